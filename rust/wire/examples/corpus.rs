//! Writes the generated part of the fuzz corpus: `cargo run -p gabion-wire --example corpus`.

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> std::io::Result<()> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/decode");
    std::fs::create_dir_all(dir)?;
    for (name, bytes) in common::varied_frames() {
        std::fs::write(format!("{dir}/frame-{name}"), bytes)?;
    }
    Ok(())
}
