//! Tests of answers.
use super::*;
use gabion_admit::Plan;
use gabion_rule::{Algorithm, CounterIdentity, Sliding};
use gabion_table::{RawMem, SubSpec};

const NOW_NS: u64 = 1_700_000_000_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;

fn table(limits: &[u32]) -> Table<RawMem> {
    let subs: Vec<SubSpec> = (1u8..)
        .zip(limits)
        .map(|(name, limit)| SubSpec {
            identity: CounterIdentity([name; 16]),
            plan: Plan::new(&Algorithm::Window {
                limit: *limit,
                window_ns: HOUR_NS,
                bucket_ns: HOUR_NS,
                sliding: Sliding::Live,
            }),
            cardinality: None,
        })
        .collect();
    Table::private(1 << 20, &subs).unwrap()
}

fn ask(rule: u16, zone: u16, index: u16, mode: Mode) -> Ask {
    let key = Key::new(u64::from(rule) + 1, 5);
    Ask {
        rule,
        zone,
        index,
        key,
        mode,
        limit: None,
        counted: Counted::Now,
    }
}

struct World {
    tables: Vec<Table<RawMem>>,
    notes: Vec<(u16, Stat)>,
}

impl World {
    fn ask(&mut self, asks: &[Ask]) -> Answer {
        let asks: Asks = asks.iter().copied().collect();
        let (tables, notes) = (&self.tables, &mut self.notes);
        let of = |zone: u16| tables.get(usize::from(zone));
        notes.clear();
        decide(&asks, NOW_NS, &of, &mut |ask, stat| {
            notes.push((ask.rule, stat))
        })
    }
}

fn world(tables: Vec<Table<RawMem>>) -> World {
    World {
        tables,
        notes: Vec::new(),
    }
}

#[test]
fn case_30_a_denied_request_charges_none_of_its_rules() {
    let mut world = world(vec![table(&[10, 10, 1])]);
    let all = [0, 1, 2].map(|i| ask(i, 0, i, Mode::Enforce));
    assert_eq!(world.ask(&all).status, Status::Passed);
    world.notes.sort_unstable_by_key(|note| note.0);
    assert_eq!(world.notes, [0, 1, 2].map(|i| (i, Stat::Passed)));
    for _ in 0..5 {
        let answer = world.ask(&all);
        assert_eq!(
            (answer.status, answer.shown.unwrap().0),
            (Status::Rejected, 2)
        );
        assert!(answer.in_headers);
        assert_eq!(world.notes, [(2, Stat::Rejected)]);
    }
    assert_eq!(world.ask(&all[..2]).shown.unwrap().1.reading.remaining, 8);
}

#[test]
fn case_30_holds_over_zones() {
    let mut world = world(vec![table(&[10]), table(&[1])]);
    let both = [ask(0, 0, 0, Mode::Enforce), ask(1, 1, 0, Mode::Enforce)];
    let answer = world.ask(&both);
    assert_eq!(
        (answer.status, answer.shown.unwrap().0),
        (Status::Passed, 1)
    );
    for _ in 0..5 {
        let answer = world.ask(&both);
        assert_eq!(
            (answer.status, answer.shown.unwrap().0),
            (Status::Rejected, 1)
        );
        assert!(answer.shown.unwrap().1.denied_for_ns.unwrap() > 0);
    }
    assert_eq!(world.ask(&both[..1]).shown.unwrap().1.reading.remaining, 8);
}

#[test]
fn case_16_a_dry_run_marks_and_never_denies() {
    let mut world = world(vec![table(&[1, 3])]);
    let both = [ask(0, 0, 0, Mode::DryRun), ask(1, 0, 1, Mode::Enforce)];
    let first = world.ask(&both);
    assert_eq!((first.status, first.shown.unwrap().0), (Status::Passed, 1));
    for _ in 0..2 {
        let answer = world.ask(&both);
        assert_eq!(
            (answer.status, answer.shown.unwrap().0),
            (Status::RejectedDryRun, 0)
        );
        assert!(!answer.in_headers);
        assert!(world.notes.contains(&(0, Stat::RejectedDryRun)));
    }
    assert_eq!(world.ask(&both).status, Status::Rejected);
    let only = world.ask(&both[..1]);
    assert_eq!(
        (only.status, only.in_headers),
        (Status::RejectedDryRun, false)
    );
}

#[test]
fn what_cannot_be_counted_is_admitted_and_marked() {
    let mut world = world(vec![table(&[1])]);
    assert_eq!(world.ask(&[]).status, Status::Exempted);
    let lost = world.ask(&[ask(0, 7, 0, Mode::Enforce)]);
    assert_eq!((lost.status, lost.shown), (Status::Bypassed, None));
    assert_eq!(world.notes, [(0, Stat::FailOpen)]);
    assert_eq!(
        world.ask(&[ask(0, 0, 9, Mode::Enforce)]).status,
        Status::Bypassed
    );
    assert_eq!(
        world.ask(&[ask(0, 0, 0, Mode::Enforce)]).status,
        Status::Passed
    );
}

#[test]
fn case_15_headers_describe_the_rule_that_is_nearest_or_denies() {
    let mut world = world(vec![table(&[60, 2])]);
    let both = [ask(0, 0, 0, Mode::Enforce), ask(1, 0, 1, Mode::Enforce)];
    assert_eq!(world.ask(&both).shown.unwrap().0, 1);
    world.ask(&both);
    let (rule, shown) = world.ask(&both).shown.unwrap();
    assert_eq!((rule, shown.remaining()), (1, 0));
    let deny = world.ask(&[ask(0, 0, 0, Mode::DenyAll)]);
    assert_eq!(deny.status, Status::Rejected);
}

#[test]
fn what_is_read_first_denies_and_is_counted_once_the_response_is_known() {
    for zones in [vec![table(&[2, 9])], vec![table(&[2]), table(&[9])]] {
        let one_zone = zones.len() == 1;
        let mut world = world(zones);
        let (zone, index) = if one_zone { (0, 1) } else { (1, 0) };
        let read = Ask {
            counted: Counted::Read,
            ..ask(0, 0, 0, Mode::Enforce)
        };
        let both = [read, ask(1, zone, index, Mode::Enforce)];
        let late = |world: &World, asks: &[Ask]| {
            let mut notes = Vec::new();
            let of = |zone: u16| world.tables.get(usize::from(zone));
            charge_late(asks, NOW_NS, &of, &mut |ask, stat| {
                notes.push((ask.rule, stat))
            });
            notes
        };
        for _ in 0..4 {
            assert_eq!(
                world.ask(&both).status,
                Status::Passed,
                "reading counts nothing"
            );
        }
        // More than the limit was under way at once: all of it is counted.
        for _ in 0..3 {
            assert_eq!(late(&world, &[read]), [(0, Stat::Charged)]);
        }
        let answer = world.ask(&both);
        assert_eq!(
            (answer.status, answer.shown.unwrap().0),
            (Status::Rejected, 0)
        );
        assert!(answer.shown.unwrap().1.denied_for_ns > Some(0));
        let alone = world.ask(&both[1..]).shown.unwrap().1;
        assert_eq!(
            alone.reading.remaining, 4,
            "what was denied charged nothing"
        );
    }
}

#[test]
fn a_tier_has_its_own_limit_on_the_same_counter() {
    let mut world = world(vec![table(&[2])]);
    let tier = |limit| Ask {
        limit,
        ..ask(0, 0, 0, Mode::Enforce)
    };
    let statuses = |world: &mut World, limit, n: usize| -> Vec<Status> {
        (0..n).map(|_| world.ask(&[tier(limit)]).status).collect()
    };
    use Status::{Passed, Rejected};
    assert_eq!(statuses(&mut world, Some(1), 2), [Passed, Rejected]);
    assert_eq!(
        statuses(&mut world, Some(4), 4),
        [Passed, Passed, Passed, Rejected]
    );
    assert_eq!(
        world.ask(&[tier(Some(9))]).shown.unwrap().1.reading.limit,
        9
    );
}
