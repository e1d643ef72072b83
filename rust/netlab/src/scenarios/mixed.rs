//! gabiond and nginx in one cluster.

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, Lab, LabSpec, Programs};
use crate::limits::HEAL_MAX;
use crate::LabError;

const LIMIT: u64 = 2_000;

/// Case 52: what one door counts under a key, the other one shows and denies by.
pub(super) async fn two_doors_one_limit(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let rules = [
        rule("wide", LIMIT, "d", ""),
        rule("few", 100, "d", ""),
        rule("own", 100, "d", ""),
    ];
    let spec = LabSpec::alike(4, &rules).with_nginx(&[2, 3]);
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    let (gabiond, nginx) = ([0, 1], [2, 3]);

    // 60 hits through one door, all the rest through the other
    for (by, other, key) in [(0, 2, "first"), (3, 1, "second")] {
        let passed = lab.members[by].ask("few", key, 60).await?;
        checks.holds(format!("60 hits on the {key} key pass"), passed, passed);
        let took = lab.wait_left(&all, ("few", key), 40, HEAL_MAX).await?;
        checks.fact(
            "both doors show them after",
            format!("{} ms", took.as_millis()),
        );
        let mut rest = 0;
        for _ in 0..50 {
            rest += u64::from(lab.members[other].ask("few", key, 1).await?);
        }
        checks.within("the other door admits what is left", rest, 40, 40);
    }

    // two loads one after the other, then all members at four times the limit
    let one_door = lab.load(&gabiond, ("wide", one("k")), 100.0, 3.0).await?;
    let two_door = lab.load(&nginx, ("wide", one("k")), 100.0, 3.0).await?;
    let denied = one_door.denied + two_door.denied;
    checks.holds("nobody is denied under the limit", denied == 0, denied);
    let sum = one_door.admitted + two_door.admitted;
    lab.wait_left(&all, ("wide", "k"), LIMIT - sum, HEAL_MAX)
        .await?;
    let rest = lab.load(&all, ("wide", one("k")), 800.0, 8.0).await?;
    let most = most_admitted(LIMIT, 4);
    checks.within("admitted in all", sum + rest.admitted, LIMIT, most);
    lab.wait_left(&all, ("wide", "k"), 0, HEAL_MAX).await?;

    // a key that only one door has seen is nobody else's
    let fresh = lab.load(&nginx, ("own", one("k")), 40.0, 2.0).await?;
    checks.holds("a fresh key is not denied", fresh.denied == 0, fresh.denied);
    for i in &all {
        let said = lab.log(*i).matches("gossip is not authenticated").count();
        let what = format!("member {} says once that gossip has no keys", i + 1);
        checks.holds(what, said == 1, said);
    }
    let errors = [one_door, two_door, rest, fresh].map(|load| load.error_count);
    let errors: u64 = errors.iter().sum();
    checks.holds("every request was answered", errors == 0, errors);
    lab.check_health(checks).await
}
