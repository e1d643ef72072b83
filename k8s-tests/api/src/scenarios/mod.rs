//! The scenarios by name.
//!
//! Owns: the list. Promises: each scenario ends within [`SCENARIO_S_MAX`], has a namespace of its
//! own, and checks accuracy, wrong denials, crashes and memory. Never: depends on what another one
//! left.

mod basics;
mod costs;
mod doors;
mod faults;
mod life;
mod starts;
mod strangers;
mod tally;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use gabion_netlab::checks::Checks;

use crate::cluster::{late, World};
use crate::limits::SCENARIO_S_MAX;
use crate::SuiteError;

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), SuiteError>> + 'a>>;

/// One scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens in it.
    pub what: &'static str,
    work: for<'a> fn(&'a mut World, &'a mut Checks) -> Work<'a>,
}

macro_rules! scenario {
    ($name:literal, $work:path, $what:literal) => {
        Scenario {
            name: $name,
            what: $what,
            work: |world, checks| Box::pin($work(world, checks)),
        }
    };
}

/// All scenarios, in the order in which they run.
pub const ALL: &[Scenario] = &[
    scenario!(
        "control-plane",
        basics::control_plane,
        "the controller writes slices, roles hold for tokens, the API server is killed"
    ),
    scenario!(
        "mixed",
        doors::mixed,
        "3 gabiond and 2 nginx find each other and hold one limit"
    ),
    scenario!(
        "scale",
        life::scale,
        "3 members become 6 and then 2 while requests come"
    ),
    scenario!(
        "rolling",
        life::rolling,
        "each pod is replaced by a new one, in order, while requests come"
    ),
    scenario!(
        "no-grace",
        life::no_grace,
        "a pod is deleted with no grace; another one gets its address"
    ),
    scenario!(
        "renamed",
        life::renamed,
        "the Service gets another name while requests come"
    ),
    scenario!(
        "node-cut",
        faults::node_cut,
        "a node is cut off from the API and the other node, and healed"
    ),
    scenario!(
        "no-role",
        faults::no_role,
        "the role is taken away and given back"
    ),
    scenario!(
        "no-api",
        faults::no_api,
        "the API server is away for a minute while requests come"
    ),
    scenario!(
        "token",
        faults::token,
        "tokens are renewed, and the old ones no longer hold"
    ),
    scenario!(
        "two-clusters",
        strangers::two_clusters,
        "two clusters behind one Service stay apart"
    ),
    scenario!(
        "reused-address",
        strangers::case_43_reused_address,
        "case 43: a pod's address goes to another cluster, then to a newcomer"
    ),
    scenario!(
        "releases",
        strangers::releases,
        "members of two releases during an upgrade"
    ),
    scenario!(
        "slices",
        starts::case_44_slices,
        "case 44: two Services, two families, not ready at a cold start"
    ),
    scenario!(
        "empty-start",
        starts::case_45_empty_start,
        "case 45: the API server is away at the start, or the list is empty"
    ),
    scenario!(
        "many-endpoints",
        costs::many_endpoints,
        "a thousand endpoints of strangers"
    ),
];

/// Runs one scenario to its end or its deadline.
///
/// # Errors
/// It could not be carried out; what it found until then is in `checks`.
pub async fn run(
    scenario: &Scenario,
    world: &mut World,
    checks: &mut Checks,
) -> Result<(), SuiteError> {
    world.plane.revive().await?;
    let most = Duration::from_secs(SCENARIO_S_MAX);
    let work = (scenario.work)(world, checks);
    let ended = tokio::time::timeout(most, work).await;
    ended.unwrap_or_else(|_| Err(late(format!("the scenario {}", scenario.name))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_distinct_and_in_the_document() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
        let document = std::fs::read_to_string(path).unwrap();
        let mut names = BTreeSet::new();
        for scenario in ALL {
            assert!(names.insert(scenario.name), "{} twice", scenario.name);
            let row = format!("| `{}` |", scenario.name);
            assert!(
                document.contains(&row),
                "{row} is not in k8s-tests/README.md"
            );
        }
    }
}
