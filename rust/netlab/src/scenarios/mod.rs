//! The scenarios by name.
//!
//! Owns: the list. Promises: each scenario ends within [`SCENARIO_S_MAX`], checks accuracy, wrong
//! denials, crashes and memory, and leaves nothing. Never: depends on what another one left.

mod cuts;
mod floods;
mod hostile;
mod life;
mod links;
mod many;
mod mixed;
mod rotation;
mod shares;
mod small;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::checks::Checks;
use crate::lab::Programs;
use crate::limits::SCENARIO_S_MAX;
use crate::LabError;

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), LabError>> + 'a>>;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens in it.
    pub what: &'static str,
    work: for<'a> fn(&'a Programs, &'a mut Checks) -> Work<'a>,
}

macro_rules! scenario {
    ($name:literal, $work:path, $what:literal) => {
        Scenario {
            name: $name,
            what: $what,
            work: |programs, checks| Box::pin($work(programs, checks)),
        }
    };
}

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    scenario!(
        "partition",
        cuts::partition,
        "two halves apart, then together again"
    ),
    scenario!(
        "mixed",
        mixed::two_doors_one_limit,
        "case 52: two gabiond and two nginx share one limit and its keys"
    ),
    scenario!(
        "rotation",
        rotation::keys_change_under_load,
        "members change their gossip keys one after the other, while requests come"
    ),
    scenario!(
        "one-way",
        cuts::one_way,
        "one member is not heard by another one; a third tells its news"
    ),
    scenario!(
        "long-partition",
        cuts::case_40_41_longer_than_a_window,
        "cases 40, 41: apart for longer than a window"
    ),
    scenario!(
        "restart",
        life::case_36_killed_and_started_again,
        "case 36: killed, and started again under its name"
    ),
    scenario!(
        "restart-nginx",
        life::case_36_nginx_killed_and_started_again,
        "case 36: an nginx is killed with its workers, and started again"
    ),
    scenario!(
        "rolling",
        life::rolling_restart_under_load,
        "one after the other is stopped and started while requests come"
    ),
    scenario!("clock", life::one_clock_is_off, "one clock is 30 s ahead"),
    scenario!(
        "lossy",
        links::lossy,
        "30 % loss, 50 ms jitter, duplicates, late frames"
    ),
    scenario!(
        "strict",
        shares::strict,
        "30 % loss, a cut, a crash: a strict rule is never over its limit"
    ),
    scenario!(
        "garbage",
        floods::garbage_at_the_gossip_port,
        "50,000 datagrams of garbage per second at one gossip port"
    ),
    scenario!(
        "garbage-nginx",
        floods::garbage_at_nginx,
        "the same at the gossip port of an nginx"
    ),
    scenario!(
        "key-flood",
        floods::unique_keys_beside_a_hot_one,
        "a flood of keys seen once, while one key is exhausted"
    ),
    scenario!(
        "hostile",
        hostile::case_50_59_forged_and_replayed,
        "cases 50, 59: frames replayed, cut, flipped, unsigned, of a wrong key"
    ),
    scenario!(
        "twins",
        small::case_38_one_name_twice,
        "case 38: two members with one node id"
    ),
    scenario!(
        "strange-rule",
        small::case_39_a_rule_never_heard_of,
        "case 39: one member lacks a rule of the others"
    ),
    scenario!(
        "other-cluster",
        small::case_43_an_address_of_another_cluster,
        "case 43: an address is reused by another cluster, then by a newcomer"
    ),
    scenario!(
        "late-peers",
        small::case_45_no_peers_at_start,
        "case 45: no peers at the start"
    ),
    scenario!(
        "per-minute",
        small::case_46_450_per_minute,
        "case 46: 450 per minute, 3 members, 10 and 20 requests per second"
    ),
    scenario!(
        "tiny-limit",
        small::case_47_a_limit_of_five,
        "case 47: 10 members, a limit of 5"
    ),
    scenario!(
        "socket-errors",
        small::case_49_sending_fails,
        "case 49: each send of a member fails for a while"
    ),
    scenario!(
        "many-keys",
        many::case_58_twenty_thousand_keys,
        "case 58: 20,000 new keys reach everyone, then it is quiet"
    ),
    scenario!(
        "heal-many",
        many::heal_100_000_rows,
        "a cut heals with 100,000 live rows"
    ),
];

/// Runs one scenario to its end or its deadline.
///
/// # Errors
/// It could not be carried out; what it found until then is in `checks`.
pub async fn run(
    scenario: &Scenario,
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let most = Duration::from_secs(SCENARIO_S_MAX);
    let work = (scenario.work)(programs, checks);
    tokio::time::timeout(most, work).await.unwrap_or_else(|_| {
        Err(LabError::Late {
            what: format!("the scenario {}", scenario.name),
            seconds: SCENARIO_S_MAX,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_in_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/netlab.md");
        let document = std::fs::read_to_string(path).unwrap();
        let mut names = BTreeSet::new();
        for scenario in ALL {
            assert!(names.insert(scenario.name), "{} twice", scenario.name);
            let row = format!("| `{}` |", scenario.name);
            assert!(document.contains(&row), "{row} is not in docs/netlab.md");
        }
    }
}
