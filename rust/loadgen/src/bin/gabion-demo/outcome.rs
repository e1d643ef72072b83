//! Judges what was measured, for people and for machines.
//!
//! Owns: the bound. Promises: the bound is computed from the rule and from what was measured before
//! the load, never from the load's own result. Never: rounds a failure away.

use gabion_loader::report::{Report, Summary};
use serde::Serialize;

use crate::cluster::{LIMIT, MEMBERS};
use crate::measure::{Load, RATE_PER_S};

/// The rules' error budget (the default): over-admission that gossip may leave open, in percent.
const ERROR_BUDGET_PCT: u64 = 1;
/// Of the limit, at least this much must be admitted, in percent.
const MIN_ADMITTED_PCT: u64 = 99;
/// News that takes longer than this counts as broken gossip, not as a reason for a wider bound.
const MAX_NEWS_US: f64 = 100_000.0;

/// One way into the cluster.
#[derive(Clone, Debug, Serialize)]
struct Door {
    name: &'static str,
    offered: u64,
    admitted: u64,
    /// Requests that reached the upstream behind it; of a door that has one.
    served: Option<u64>,
    errors: u64,
    unsent: u64,
    p50_us: f64,
    p99_us: f64,
}

impl Door {
    fn new(name: &'static str, report: &Report, served: Option<u64>) -> Door {
        Door {
            name,
            offered: report.offered,
            admitted: report.admitted,
            served,
            errors: report.error_count,
            unsent: report.unsent,
            p50_us: report.latency.p50_us,
            p99_us: report.latency.p99_us,
        }
    }
}

/// The figures of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    offered: u64,
    admitted: u64,
    limit: u64,
    over_admitted: u64,
    over_admitted_pct: f64,
    bound: u64,
    /// Of a rate-limit call at gabiond.
    p50_us: f64,
    p99_us: f64,
    gossip_bytes_per_s: f64,
    convergence_p50_us: f64,
    convergence_max_us: f64,
    doors: [Door; 3],
    members: usize,
}

impl Outcome {
    pub(crate) fn new(load: &Load, news: &Summary) -> Outcome {
        let doors = [
            Door::new("nginx", &load.nginx, Some(load.served.nginx)),
            Door::new("Envoy", &load.envoy, Some(load.served.envoy)),
            Door::new("gabiond", &load.direct, None),
        ];
        let admitted = doors.iter().map(|door| door.admitted).sum::<u64>();
        let over_admitted = admitted.saturating_sub(LIMIT);
        Outcome {
            offered: doors.iter().map(|door| door.offered).sum(),
            admitted,
            limit: LIMIT,
            over_admitted,
            over_admitted_pct: round2(over_admitted as f64 * 100.0 / LIMIT as f64),
            bound: bound(news),
            p50_us: load.direct.latency.p50_us,
            p99_us: load.direct.latency.p99_us,
            gossip_bytes_per_s: load.gossip_bytes_per_s.round(),
            convergence_p50_us: news.p50_us,
            convergence_max_us: news.max_us,
            doors,
            members: MEMBERS,
        }
    }

    pub(crate) fn json(&self) -> String {
        // a struct of numbers always has a JSON form
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    pub(crate) fn table(&self) -> String {
        let ms = |us: f64| format!("{:.2} ms", us / 1_000.0);
        let mut table =
            String::from("door        offered  admitted  rejected       p50       p99\n");
        for door in &self.doors {
            table.push_str(&format!(
                "{:<10}{:>9}{:>10}{:>10}{:>10}{:>10}\n",
                door.name,
                door.offered,
                door.admitted,
                door.offered
                    .saturating_sub(door.admitted + door.errors + door.unsent),
                ms(door.p50_us),
                ms(door.p99_us)
            ));
        }
        table.push_str(&format!(
            "{:<10}{:>9}{:>10}\n\n",
            "together", self.offered, self.admitted
        ));
        let rows = [
            (
                "limit",
                format!(
                    "{} per minute, over all {} members",
                    self.limit, self.members
                ),
            ),
            (
                "over-admitted",
                format!(
                    "{} = {} % (bound {}: {ERROR_BUDGET_PCT} % error budget, and what arrives \
                     while news travels)",
                    self.over_admitted, self.over_admitted_pct, self.bound
                ),
            ),
            (
                "errors, unsent",
                format!("{}, {}", self.errors(), self.unsent()),
            ),
            (
                "convergence",
                format!(
                    "one hit seen by the others: p50 {}  max {}",
                    ms(self.convergence_p50_us),
                    ms(self.convergence_max_us)
                ),
            ),
            (
                "gossip",
                format!("{:.0} bytes/s from all members", self.gossip_bytes_per_s),
            ),
        ];
        table.extend(
            rows.iter()
                .map(|(name, value)| format!("{name:<16}{value}\n")),
        );
        table
    }

    fn errors(&self) -> u64 {
        self.doors.iter().map(|door| door.errors).sum()
    }

    fn unsent(&self) -> u64 {
        self.doors.iter().map(|door| door.unsent).sum()
    }

    /// Every promise of the demo that did not hold.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.over_admitted > self.bound {
            wrong.push(format!(
                "the limit did not hold: {} admitted, {} allowed and a bound of {} more",
                self.admitted, self.limit, self.bound
            ));
        }
        if self.admitted * 100 < self.limit * MIN_ADMITTED_PCT {
            wrong.push(format!(
                "only {} of {} were admitted: less than {MIN_ADMITTED_PCT} %",
                self.admitted, self.limit
            ));
        }
        if self.convergence_max_us > MAX_NEWS_US {
            wrong.push(format!(
                "a hit took {} us to get around",
                self.convergence_max_us
            ));
        }
        if self.errors() + self.unsent() > 0 {
            wrong.push(format!(
                "{} errors, {} unsent requests",
                self.errors(),
                self.unsent()
            ));
        }
        for door in &self.doors {
            if door.served.is_some_and(|served| served != door.admitted) {
                wrong.push(format!(
                    "the upstream behind {} served {:?}, {} were admitted",
                    door.name, door.served, door.admitted
                ));
            }
            if door.admitted == 0 {
                wrong.push(format!("{} admitted nothing: not one limit", door.name));
            }
        }
        wrong
    }
}

/// How many more than the limit may pass: what the error budget leaves unsaid (1 % of the limit, or
/// one hit for each member if that is more), and what arrives while the last news travels.
fn bound(news: &Summary) -> u64 {
    let budget = (LIMIT * ERROR_BUDGET_PCT / 100).max(MEMBERS as u64);
    let travelling = RATE_PER_S * news.max_us.min(MAX_NEWS_US) / 1e6;
    budget + ceil(travelling)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and not negative
fn ceil(value: f64) -> u64 {
    value.ceil() as u64
}

fn round2(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Served;

    fn outcome(nginx: u64, envoy: u64, direct: u64) -> Outcome {
        let report = |admitted| Report {
            offered: 800,
            admitted,
            ..Report::default()
        };
        let load = Load {
            nginx: report(nginx),
            envoy: report(envoy),
            direct: report(direct),
            served: Served { envoy, nginx },
            gossip_bytes_per_s: 1.0,
        };
        Outcome::new(
            &load,
            &Summary {
                max_us: 4_000.0,
                ..Summary::default()
            },
        )
    }

    #[test]
    fn the_bound_is_the_budget_and_what_arrives_meanwhile() {
        // 1 % of 600, and 240/s for 4 ms rounded up
        assert_eq!(outcome(200, 200, 200).bound, 6 + 1);
        let broken = Summary {
            max_us: 9e9,
            ..Summary::default()
        };
        assert_eq!(bound(&broken), 6 + 24);
    }

    #[test]
    fn a_limit_that_did_not_hold_or_was_not_used_is_a_failure() {
        assert!(outcome(200, 200, 200).wrong().is_empty());
        assert!(outcome(207, 200, 200).wrong().is_empty());
        assert!(outcome(208, 200, 200).wrong()[0].contains("did not hold"));
        assert!(outcome(194, 200, 200).wrong().is_empty());
        assert!(outcome(193, 200, 200).wrong()[0].contains("only 593"));
        let mut lost = outcome(200, 200, 200);
        lost.doors[2].errors = 1;
        assert_eq!(lost.wrong().len(), 1);
        assert_eq!(outcome(206, 200, 200).over_admitted_pct, 1.0);
    }

    #[test]
    fn a_door_that_is_shut_or_leaks_is_a_failure() {
        assert!(outcome(0, 300, 300).wrong()[0].contains("nginx admitted nothing"));
        let mut leaky = outcome(200, 200, 200);
        leaky.doors[1].served = Some(201);
        assert!(leaky.wrong()[0].contains("behind Envoy"));
    }

    #[test]
    fn the_json_has_the_promised_keys() {
        let json: serde_json::Value = serde_json::from_str(&outcome(200, 200, 200).json()).unwrap();
        for key in [
            "offered",
            "admitted",
            "limit",
            "over_admitted",
            "over_admitted_pct",
            "p50_us",
            "p99_us",
            "gossip_bytes_per_s",
            "members",
        ] {
            assert!(json[key].is_number(), "{key}");
        }
        assert_eq!(json["doors"][0]["name"], "nginx");
    }
}
