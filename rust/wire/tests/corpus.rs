//! The fuzz corpus, replayed: generated frames are there, and every file decodes or is refused.
//!
//! Renew the generated part with `cargo run -p gabion-wire --example corpus`.

#![allow(clippy::disallowed_methods)] // a test is an edge: it reads the corpus

mod common;

use std::path::PathBuf;

use gabion_wire::*;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/decode")
}

#[test]
fn the_corpus_holds_every_generated_frame() {
    for (name, bytes) in common::varied_frames() {
        let file = corpus().join(format!("frame-{name}"));
        let stored = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert_eq!(
            stored, bytes,
            "{name}: the encoding changed; adjacent releases read the old one"
        );
    }
}

#[test]
fn every_file_of_the_corpus_decodes_or_is_refused() {
    let (mut valid, mut refused) = (0, 0);
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        match decode(&bytes) {
            Ok(frame) => {
                frame.sections().for_each(drop);
                valid += 1;
            }
            Err(e) => {
                assert!(
                    !path.to_string_lossy().contains("frame-"),
                    "{}: {e}",
                    path.display()
                );
                refused += 1;
            }
        }
    }
    println!("{valid} valid, {refused} refused");
    assert!(valid >= common::varied_frames().len());
}
