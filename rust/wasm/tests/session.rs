//! A world driven by commands: refused or done, recorded, sought, carried and replayed alike.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use gabion_sim::{scenario, World};
use gabion_wasm::session::Session;
use serde_json::Value;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const RUN: &str = r#"{"format": "gabion-run-1", "rules": "api rate=100/m", "end_ns": 0,
    "scenario": {"seed": 5, "members": 4,
                 "calm": {"delay_min_ns": 20000000, "delay_max_ns": 40000000}}}"#;

fn session() -> Session {
    let mut session = Session::new(RUN).unwrap();
    session.live().step(SECOND, 0);
    session
}

fn does(session: &mut Session, command: &str) -> Value {
    serde_json::from_str(&session.command(command).unwrap()).unwrap()
}

/// Column of the cluster's row.
fn cluster(session: &Session, column: usize) -> u64 {
    session.cluster()[column] as u64
}

const TRUTH: usize = 1;
const DISAGREEMENT: usize = 5;
const CUT: usize = 13;

/// How long it takes until something holds.
fn within_10_s(session: &mut Session, holds: impl Fn(&Session) -> bool) -> u64 {
    let from_ns = session.live().now_ns();
    while !holds(session) {
        let now_ns = session.live().step(10 * MS, 0);
        assert!(
            now_ns < from_ns + 10 * SECOND,
            "it does not hold within 10 s"
        );
    }
    session.live().now_ns() - from_ns
}

/// Everything there is to do, in 8 s.
fn busy(session: &mut Session) {
    let script = [
        r#"{"burst": {"member": 0, "hits": 30}}"#,
        r#"{"load": {"per_second": 40, "keys": 5}}"#,
        r#"{"fault": {"partition": {"side": [0, 1]}}}"#,
        r#"{"burst": {"member": 3, "hits": 20, "over_ns": 1000000}}"#,
        r#"{"fault": {"mend": {"one": 0, "other": 2}}}"#,
        r#"{"kill": {"member": 1}}"#,
        r#"{"fault": "heal"}"#,
        r#"{"links": {"loss_ppm": 200000}}"#,
        r#"{"start": {"member": 1}}"#,
        r#"{"fault": {"clock_step": {"member": 2, "by_ns": 300000000}}}"#,
        r#"{"stop_load": {"load": 1}}"#,
        r#"{"load": {"per_second": 25, "at": 2, "steady": true}}"#,
        r#"{"fault": {"slow": {"member": 0, "pause_ns": 80000000, "for_ns": 900000000}}}"#,
        r#"{"stop_loads": {}}"#,
    ];
    for command in script {
        does(session, command);
        session.live().step(571 * MS, 0);
    }
}

#[test]
fn a_burst_spreads_and_the_disagreement_falls_to_zero() {
    let mut session = session();
    let at = does(&mut session, r#"{"burst": {"member": 1, "hits": 30}}"#);
    assert_eq!(at["at_ns"], SECOND + 1);
    session.frames();
    session.live().step(10 * MS, 0);
    assert!(cluster(&session, DISAGREEMENT) > 5, "links take 20 ms");
    session.live().step(90 * MS, 0);
    assert_eq!(
        (cluster(&session, TRUTH), cluster(&session, DISAGREEMENT)),
        (30, 0)
    );
    let frames = session.frames();
    assert!(frames.len() >= 3 * 8 && frames.len() % 8 == 0);
    let told = frames
        .chunks(8)
        .filter(|frame| frame[2] == 1.0 && frame[5] > 0.0);
    for frame in told {
        let flight_ns = frame[1] - frame[0];
        assert!((20e6..=40e6).contains(&flight_ns), "{frame:?}");
    }
    let merges = session.merges();
    assert!(merges.chunks(4).filter(|merge| merge[1] == 1.0).count() >= 3);
    assert_eq!(session.verdicts(), [1.0, 0.0, 30.0, 0.0, 0.0]);
    assert!(session.verdicts().is_empty() && session.frames().is_empty());
}

#[test]
fn a_cut_link_carries_nothing_until_it_is_mended() {
    let mut session = session();
    for other in [1, 2, 3] {
        let cut = format!(r#"{{"fault": {{"apart": {{"one": 0, "other": {other}}}}}}}"#);
        does(&mut session, &cut);
    }
    assert_eq!(
        session.cuts().len(),
        12,
        "at once, though no time was let pass"
    );
    does(&mut session, r#"{"burst": {"member": 0, "hits": 10}}"#);
    session.live().step(2 * SECOND, 0);
    assert_eq!(cluster(&session, DISAGREEMENT), 10);
    assert!(cluster(&session, CUT) > 0);
    assert!(session.frames().chunks(8).any(|frame| frame[7] == 2.0));
    does(
        &mut session,
        r#"{"fault": {"mend": {"one": 0, "other": 3}}}"#,
    );
    assert_eq!(session.cuts().len(), 8);
    let heard_ns = within_10_s(&mut session, |session| {
        session.members()[3 * 20 + 1] == 10.0
    });
    println!("member 3 hears of it after {} ms", heard_ns / MS);
    does(&mut session, r#"{"fault": "heal"}"#);
    let equal_ns = within_10_s(&mut session, |session| cluster(session, DISAGREEMENT) == 0);
    println!("all agree after {} ms", equal_ns / MS);
}

#[test]
fn a_round_ends_when_what_was_told_has_arrived() {
    let mut session = session();
    does(
        &mut session,
        r#"{"burst": {"member": 1, "hits": 30, "over_ns": 0}}"#,
    );
    let before_ns = session.live().now_ns();
    let after_ns = session.live().step_round();
    assert!(
        (before_ns + 20 * MS..before_ns + 200 * MS).contains(&after_ns),
        "{after_ns}"
    );
    assert!(session.merges().len() >= 3 * 4, "all others heard of it");
}

#[test]
fn who_is_killed_stays_away_until_it_is_started() {
    let mut session = session();
    does(&mut session, r#"{"kill": {"member": 2}}"#);
    let state = |session: &Session| session.members()[2 * 20];
    assert_eq!(state(&session), 1.0);
    let refused = session
        .command(r#"{"kill": {"member": 2}}"#)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("down or away already"), "{refused}");
    session.live().step(5 * SECOND, 0);
    assert_eq!(state(&session), 1.0);
    does(&mut session, r#"{"start": {"member": 2}}"#);
    assert_eq!(state(&session), 0.0);
    let refused = session
        .command(r#"{"start": {"member": 2}}"#)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("runs already"), "{refused}");
}

#[test]
fn back_and_forth_is_the_same_run() {
    let mut session = session();
    busy(&mut session);
    let (end_ns, trace, cluster) = (session.live().now_ns(), session.trace(), session.cluster());
    assert_eq!(session.live().seek(3 * SECOND, 0), 3 * SECOND);
    assert_ne!(session.trace(), trace);
    while session.live().seek(end_ns, 700) < end_ns {}
    assert_eq!((session.trace(), session.cluster()), (trace, cluster));
}

#[test]
fn a_permalink_and_a_scenario_file_are_the_same_run() {
    let mut session = session();
    busy(&mut session);
    let end_ns = session.live().now_ns();
    let mut again = Session::new(&session.run_json()).unwrap();
    assert_eq!(again.about().end_ns, end_ns);
    assert_eq!(again.about().rules, session.about().rules);
    again.live().seek(end_ns, 0);
    assert_eq!(again.trace(), session.trace());

    let exported = session.scenario();
    let config = scenario::parse("exported".as_ref(), &exported).unwrap();
    let mut world = World::new(config);
    world.run_until(end_ns);
    assert_eq!(format!("{:016x}", world.report().trace), session.trace());
    assert!(world.settle(), "{:?}", world.violation());

    let mut imported = Session::new(&exported).unwrap();
    imported.live().seek(end_ns, 0);
    assert_eq!(imported.trace(), session.trace());
}

#[test]
fn the_same_whatever_was_done_after_a_look_back() {
    let mut session = session();
    busy(&mut session);
    session.live().seek(2 * SECOND, 0);
    does(&mut session, r#"{"burst": {"member": 2, "hits": 7}}"#);
    let end_ns = 9 * SECOND;
    session.live().seek(end_ns, 0);
    let mut again = Session::new(&session.run_json()).unwrap();
    again.live().seek(end_ns, 0);
    assert_eq!(again.trace(), session.trace());
    session.live().seek(2 * SECOND, 0);
    session.live().forget_later();
    let info: Value = serde_json::from_str(&session.info()).unwrap();
    let recorded = info["recorded"].as_array().unwrap();
    assert!(recorded
        .iter()
        .all(|held| held["at_ns"].as_u64().unwrap() <= 2 * SECOND));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let mut session = session();
    let before = (session.trace(), session.run_json());
    for (command, part) in [
        ("{", "command:1:"),
        (r#"{"bust": {"member": 0}}"#, "unknown variant"),
        (
            r#"{"burst": {"member": 9, "hits": 1}}"#,
            "the member is 9; it may be 0 to 3",
        ),
        (r#"{"burst": {"member": 0, "hits": 0}}"#, "hits is 0"),
        (
            r#"{"burst": {"member": 0, "hits": 1, "rule": 1}}"#,
            "the rule is 1",
        ),
        (r#"{"load": {"per_second": 0}}"#, "per_second is 0"),
        (r#"{"load": {"per_second": 1, "at": 4}}"#, "the member is 4"),
        (r#"{"stop_load": {"load": 0}}"#, "no load"),
        (r#"{"start": {"member": 0}}"#, "runs already"),
        (
            r#"{"fault": {"apart": {"one": 0, "other": 7}}}"#,
            "the member is 7",
        ),
        (
            r#"{"fault": {"sleep": {"member": 0, "for_ns": 9000000000000000,
            "clock_stops": false}}}"#,
            "how long it lasts",
        ),
    ] {
        let refused = session.command(command).unwrap_err().to_string();
        assert!(refused.contains(part), "{command}: {refused}");
    }
    assert_eq!((session.trace(), session.run_json()), before);
}

#[test]
fn what_is_no_run_is_refused_with_its_place() {
    for (json, part) in [
        ("", "run:1:"),
        ("[]", "the number of rules is 0"),
        (r#"{"members": 0, "rules": []}"#, "members is 0"),
        (
            r#"{"format": "gabion-run-2", "end_ns": 0, "scenario": {}}"#,
            "gabion-run-2",
        ),
        (
            r#"{"format": "gabion-run-1", "end_ns": 0, "scenario": {"membrs": 3}}"#,
            "membrs",
        ),
        (
            r#"{"format": "gabion-run-1", "end_ns": 0, "rules": "a rate=x", "scenario": {}}"#,
            "rules:1:3:",
        ),
        (
            r#"{"format": "gabion-run-1", "end_ns": 0, "rules": "a rate=1/s",
                "scenario": {"members": 2000}}"#,
            "2000",
        ),
    ] {
        let refused = Session::new(json).err().unwrap().to_string();
        assert!(refused.contains(part), "{json}: {refused}");
    }
}

#[test]
fn links_say_what_a_node_knows_of_its_peers() {
    let session = session();
    let links: Value = serde_json::from_str(&session.links_of(0)).unwrap();
    let to: Vec<u64> = links
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["to"].as_u64().unwrap())
        .collect();
    assert_eq!(to, [1, 2, 3]);
    assert!(links[0]["up"].as_bool().unwrap() && links[0]["rtt_ns"].as_u64().unwrap() > 40_000_000);
    assert_eq!(session.links_of(99), "[]");
}
