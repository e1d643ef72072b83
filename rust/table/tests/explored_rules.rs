//! Several rules in one decision, and token buckets, under every interleaving.

mod common;
mod explore;

use common::{bucket, fixed, key, sub, SECOND_NS, START_NS};
use explore::table::{busy, use_up, with_fault, Found, World, ADMITTED, DENIED, FAILED_OPEN};
use explore::Program;
use gabion_admit::{Outcome, Plan};
use gabion_rule::Mode;
use gabion_table::{Charge, Fault, Geometry, Publish};

const NOW_NS: u64 = START_NS + 1;

/// Workers that charge two rules at once; outcome: code, phantom hits.
struct Case {
    plans: [Plan; 2],
    /// Hits left before, per rule.
    limits: [u64; 2],
    workers: usize,
    hits: u32,
    /// Phantom hits that races may leave, in all.
    phantoms: u64,
}

impl Case {
    fn explore(self) -> Found {
        let Case {
            plans,
            limits,
            workers,
            hits,
            phantoms,
        } = self;
        let rules = [sub(1, plans[0]), sub(2, plans[1])];
        let name = format!("limits {limits:?}, {workers} workers of {hits} hits");
        let world = World::new(&name, &rules, Geometry { ways: 1, sets: 1 });
        // The rows are there: claims have their own searches.
        let world = world.before(|table| {
            for (rule, plan) in (0..).zip(plans) {
                let epoch = plan.epoch_of(NOW_NS);
                let said = table.publish_remote_or_claim(rule, key(1), epoch, 0, NOW_NS);
                assert_ne!(said, Publish::Stale);
            }
        });
        let table = world.handle();
        let program = Program::new("decides").then("decide", move || {
            let mut charges =
                [0u8, 1].map(|rule| Charge::new(rule.into(), key(1), hits, Mode::Enforce, rule));
            let decision = table.decide(&mut charges, NOW_NS);
            let open = charges.iter().any(|c| c.fail_open.is_some());
            let code = match decision.outcome {
                Outcome::Denied => DENIED,
                Outcome::Allowed if open => FAILED_OPEN,
                Outcome::Allowed => ADMITTED,
            };
            vec![code, decision.phantom_hits]
        });
        let hits = u64::from(hits);
        world.workers(workers, program).search(move |table, view| {
            let all = || view.outcomes.iter().flat_map(|o| o.iter());
            if all().any(|o| o[0] == FAILED_OPEN) {
                return Err("failed open though there is room".to_owned());
            }
            let admitted = hits * all().filter(|o| o[0] == ADMITTED).count() as u64;
            let phantom: u64 = all().map(|o| o[1]).sum();
            if phantom > phantoms {
                return Err(format!(
                    "{phantom} phantom hits, at most {phantoms} are allowed"
                ));
            }
            let mut charged = 0;
            for rule in 0..2u16 {
                let limit = limits[usize::from(rule)];
                let left = use_up(table, rule, key(1), NOW_NS)?;
                if admitted + left > limit {
                    return Err(format!(
                        "rule {rule}: {admitted} used, {left} left of {limit}"
                    ));
                }
                charged += limit - left - admitted;
            }
            // Whoever was killed in between may leave its hits counted, once per rule.
            if charged > phantom + 2 * hits * busy(view) {
                return Err(format!("{charged} hits charged too many, {phantom} told"));
            }
            if view.all_done() && charged != phantom {
                return Err(format!("{charged} phantom hits, {phantom} told"));
            }
            let denied = all().any(|o| o[0] == DENIED);
            if denied && view.all_done() && admitted + phantom + hits <= limits[0].min(limits[1]) {
                return Err(format!("denied with {admitted} admitted of {limits:?}"));
            }
            Ok(())
        })
    }
}

/// Two fixed windows.
fn windows(limits: [u32; 2], workers: usize, hits: u32, phantoms: u64) -> Case {
    let plans = limits.map(fixed);
    Case {
        plans,
        limits: limits.map(u64::from),
        workers,
        hits,
        phantoms,
    }
}

#[test]
fn one_tight_rule_leaves_no_phantom_hits() {
    windows([9, 1], 2, 1, 0).explore().holds();
    windows([1, 9], 2, 1, 0).explore().holds();
    windows([9, 2], 3, 1, 0).explore().holds();
}

#[test]
fn two_tight_rules_leave_bounded_phantom_hits() {
    windows([1, 1], 2, 1, 1).explore().holds();
    windows([2, 2], 3, 1, 2).explore().holds();
    windows([2, 2], 2, 2, 2).explore().holds();
}

#[test]
fn planted_fixed_order_reserve_is_found() {
    let found = with_fault(Fault::FixedOrderReserve, || {
        windows([9, 1], 2, 1, 0).explore()
    });
    found.fails_with("phantom");
}

/// A token bucket that is not refilled within the test, and a wide window.
#[test]
fn a_token_bucket_admits_its_burst_and_no_more() {
    for workers in 2..=3 {
        let plans = [bucket(1, 3_600 * SECOND_NS, 2), fixed(9)];
        Case {
            plans,
            limits: [2, 9],
            workers,
            hits: 1,
            phantoms: 0,
        }
        .explore()
        .holds();
    }
}
