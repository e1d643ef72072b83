//! Every preset, looked at 20 times on its way, as lines of JSON. `tests/trace.mjs` prints the same
//! lines from the module for browsers, and `tools/simulator --check` compares the numbers.
//!
//!     cargo run -p gabion-wasm --example trace
#![allow(clippy::unwrap_used)] // a tool for tests

use gabion_wasm::presets::PRESETS;
use gabion_wasm::session::Session;
use serde_json::json;

const LOOKS: u64 = 20;

fn main() {
    for (id, text) in PRESETS {
        let mut session = Session::new(text).unwrap();
        let end_ns = session.about().end_ns;
        for look in 1..=LOOKS {
            session.live().seek(end_ns / LOOKS * look, 0);
            let line = json!({
                "id": id,
                "cluster": session.cluster(),
                "members": session.members(),
                "verdicts": session.verdicts(),
                "merges": session.merges().len(),
                "frames": session.frames(),
                "trace": session.trace(),
            });
            println!("{line}");
        }
    }
}
