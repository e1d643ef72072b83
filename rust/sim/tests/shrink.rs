//! Scenarios as files, and the way from a seed that fails to a small one.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::path::Path;

use gabion_sim::config::{Plant, WorldConfig};
use gabion_sim::run::{run_caught, run_seed};
use gabion_sim::scenario::{parse, read, text, write};
use gabion_sim::shrink::{shrink, TRIES};
use gabion_sim::swarm;

/// Plants of which the small world is looked at: one for most checkers.
const SHRUNK: [Plant; 5] = [
    Plant::DoubleAnnounce,
    Plant::DenyEarly,
    Plant::SkipKeys,
    Plant::LongFrames,
    Plant::LeakCells,
];

#[test]
fn a_failing_seed_becomes_a_small_file_that_fails_alike() {
    let dir = std::env::temp_dir().join(format!("gabion-sim-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for plant in SHRUNK {
        let failing = |seed| Some((seed, run_seed(seed, plant).err()?));
        let (seed, violation) = (20..60).find_map(failing).unwrap();
        let config = swarm::world(seed, plant);
        let small = shrink(config.clone(), violation.clone(), TRIES);
        println!(
            "{plant:?}: seed {seed}: {} members, {} faults -> {} and {} in {} tries: {}",
            config.members,
            config.faults.len(),
            small.config.members,
            small.config.faults.len(),
            small.tries,
            small.violation
        );
        assert!(small.tries <= TRIES);
        assert_eq!(small.violation.checker, violation.checker);
        assert!(small.config.members <= 3, "{plant:?}: {:#?}", small.config);
        assert!(
            small.config.faults.len() <= 2,
            "{plant:?}: {:#?}",
            small.config
        );

        let file = dir.join(format!("{seed}.json"));
        write(&file, &small.config).unwrap();
        let again = run_caught(read(&file).unwrap()).unwrap_err();
        assert_eq!(again, small.violation, "the file is the world");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn every_world_is_read_back_as_it_was_written() {
    for seed in 0..150 {
        let config = swarm::world(seed, Plant::None);
        let read = parse(Path::new("x.json"), &text(&config));
        let read = read.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(format!("{config:?}"), format!("{read:?}"), "seed {seed}");
    }
}

#[test]
fn what_is_left_out_is_as_in_a_calm_world() {
    let rule = r#"{"algorithm": {"window": {"limit": 5, "window_ns": 1000000000,
        "bucket_ns": 1000000000, "sliding": "live"}}}"#;
    let config = parse(Path::new("x.json"), &format!(r#"{{"rules": [{rule}]}}"#)).unwrap();
    let calm = WorldConfig::calm(1, 3, vec![swarm::fixed(5, 1_000_000_000)]);
    assert_eq!(format!("{config:?}"), format!("{calm:?}"));
}

#[test]
fn a_wrong_scenario_is_refused_with_its_place_or_its_name() {
    let whole = text(&swarm::world(3, Plant::None));
    let refused = |from: &str, to: &str| {
        let bad = whole.replacen(from, to, 1);
        assert_ne!(bad, whole, "{from} is in it");
        parse(Path::new("x.json"), &bad).unwrap_err().to_string()
    };
    let unknown = refused("\"members\"", "\"membres\"");
    assert!(
        unknown.starts_with("x.json:3:11: unknown field `membres`, expected one of `seed`"),
        "{unknown}"
    );
    assert!(
        unknown.contains("`members`") && unknown.contains("docs/sim.md"),
        "{unknown}"
    );
    let cut = parse(Path::new("x.json"), &whole[..whole.len() / 2])
        .unwrap_err()
        .to_string();
    let line = whole[..whole.len() / 2].lines().count();
    assert!(
        cut.starts_with(&format!("x.json:{line}:")) && cut.contains("EOF"),
        "{cut}"
    );
    let none = refused(
        "\"members\": ",
        "\"members\": 0, \"later\": [], \"roomy_\": ",
    );
    assert!(none.contains("roomy_"), "{none}");
    let text_for_number = refused("\"settle_ns\": 1", "\"settle_ns\": \"1\", \"starve_ns\": 1");
    assert!(
        text_for_number.contains("invalid type: string"),
        "{text_for_number}"
    );
    let rule = refused("\"rule\": ", "\"rule\": 7");
    assert!(rule.contains("loads[0].rule is 7"), "{rule}");
    let missing = read(Path::new("/no/such/file.json"))
        .unwrap_err()
        .to_string();
    assert!(missing.starts_with("/no/such/file.json: "), "{missing}");
}

#[test]
fn numbers_out_of_range_are_refused_by_name() {
    let calm = || WorldConfig::calm(1, 3, vec![swarm::fixed(5, 1_000_000_000)]);
    let refused = |change: fn(&mut WorldConfig)| {
        let mut config = calm();
        change(&mut config);
        parse(Path::new("x.json"), &text(&config))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refused(|config| config.members = 0),
        "x.json: members is 0; it may be 1 to 1024"
    );
    assert!(refused(|config| config.no_peers = vec![3]).contains("a member that is named is 3"));
    assert!(refused(|config| config.table_bytes = 8).contains("table_bytes is 8"));
    assert!(refused(|config| config.rules.clear()).contains("the number of rules is 0"));
    assert!(refused(|config| config.rules[0] = swarm::fixed(0, 1_000_000_000)).contains("limit"));
    assert!(refused(|config| config.rules[0] = swarm::fixed(5, 0)).contains("bucket_ns is 0"));
}
