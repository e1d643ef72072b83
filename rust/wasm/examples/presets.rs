//! Runs every preset to its end and says what holds then; with `--write` that is put into its file.
//!
//!     cargo run -p gabion-wasm --example presets [-- --write]
#![allow(clippy::unwrap_used)] // a tool for those who change presets

use std::path::Path;

use gabion_wasm::presets::PRESETS;
use gabion_wasm::session::Session;

fn main() {
    let write = std::env::args().any(|word| word == "--write");
    for (id, _) in PRESETS {
        // From the folder, not as built in: it may have changed since.
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("presets/{id}.json"));
        let mut session = Session::new(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let end_ns = session.about().end_ns;
        session.live().seek(end_ns, 0);
        let ends = session.ends();
        println!("{id}: {ends:?} {}", session.violations());
        if write {
            let mut run = session.about().clone();
            run.ends = Some(ends);
            let text = serde_json::to_string_pretty(&run).unwrap();
            std::fs::write(file, text + "\n").unwrap();
        }
    }
}
