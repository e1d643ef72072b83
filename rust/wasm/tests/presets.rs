//! Every preset reaches the end that its file documents, and can be driven, exported and replayed.
#![allow(clippy::unwrap_used)]

use gabion_sim::World;
use gabion_wasm::presets::PRESETS;
use gabion_wasm::run;
use gabion_wasm::session::Session;

#[test]
fn every_preset_reaches_its_documented_end() {
    for (id, text) in PRESETS {
        let mut session = Session::new(text).unwrap();
        let about = session.about().clone();
        assert_eq!(about.id.as_deref(), Some(*id));
        assert!(about.title.is_some() && about.tells.is_some(), "{id}");
        // In steps as a page takes them: how time is cut does not matter.
        while session.live().now_ns() < about.end_ns {
            let left_ns = about.end_ns - session.live().now_ns();
            session.live().step(left_ns.min(16_666_667), 500);
        }
        assert_eq!(session.violations(), "[]", "{id}");
        let hint = "run `cargo run -p gabion-wasm --example presets -- --write` if it was meant";
        assert_eq!(Some(session.ends()), about.ends, "{id}: {hint}");
    }
}

#[test]
fn presets_end_as_their_text_says() {
    let ends = |id: &str| {
        let (_, text) = PRESETS.iter().find(|(name, _)| *name == id).unwrap();
        run::read(text).unwrap().run.ends.unwrap()
    };
    for (id, _) in PRESETS {
        assert_eq!(ends(id).disagreement, 0, "{id}");
    }
    let first = ends("first-steps");
    assert_eq!((first.truth, first.admitted, first.denied), (100, 100, 20));
    let burst = ends("burst");
    assert!(burst.over > 0 && burst.denied >= 140, "{burst:?}");
    let halves = ends("cut-in-half");
    assert!(
        (200..=206).contains(&halves.truth),
        "each half admits the limit: {halves:?}"
    );
    assert_eq!(ends("rolling-restart").over, 0);
}

#[test]
fn a_preset_exported_at_its_end_replays_to_the_same_trace() {
    for (id, text) in PRESETS.iter().filter(|(id, _)| *id != "members-64") {
        let mut session = Session::new(text).unwrap();
        let end_ns = session.about().end_ns;
        session.live().seek(end_ns, 0);
        let exported = session.scenario();
        let config = gabion_sim::scenario::parse(id.as_ref(), &exported).unwrap();
        let mut world = World::new(config);
        world.run_until(end_ns);
        assert_eq!(world.violation(), None, "{id}");
        assert_eq!(
            format!("{:016x}", world.report().trace),
            session.trace(),
            "{id}"
        );
        assert!(world.settle(), "{id}: {:?}", world.violation());
    }
}
