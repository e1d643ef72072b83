//! Members that do not reach each other.

use std::time::Duration;

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, until, Lab, LabSpec, Programs};
use crate::limits::{HEAL_MAX, PATIENCE};
use crate::net::{cut, Fault};
use crate::LabError;

/// Limit that the load does not use up before all are together again.
const WIDE: u64 = 2_000;
/// Limit that each half uses up on its own.
const NARROW: u64 = 200;

/// {1, 2} | {3, 4}, of which 2 and 4 are nginx: nobody is denied wrongly, each half holds the
/// limit, and afterwards all agree.
pub(super) async fn partition(programs: &Programs, checks: &mut Checks) -> Result<(), LabError> {
    let rules = [rule("wide", WIDE, "d", ""), rule("narrow", NARROW, "d", "")];
    let spec = LabSpec::alike(4, &rules).with_nginx(&[1, 3]);
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    let before = lab.load(&all, ("wide", one("k")), 200.0, 3.0).await?;
    checks.holds(
        "before the cut nobody is denied",
        before.denied == 0,
        before.denied,
    );
    let left = WIDE - before.admitted;
    lab.wait_left(&all, ("wide", "k"), left, PATIENCE).await?;

    lab.net.set_faults(&cut(&[0, 1], &[2, 3]))?;
    let apart = lab.load(&all, ("wide", one("k")), 200.0, 3.0).await?;
    checks.holds(
        "apart, nobody is denied under the limit",
        apart.denied == 0,
        apart.denied,
    );
    let narrow = lab.load(&all, ("narrow", one("k")), 400.0, 2.0).await?;
    checks.within(
        "apart, each half admits its limit",
        narrow.admitted,
        2 * NARROW,
        2 * most_admitted(NARROW, 2),
    );
    let sum = before.admitted + apart.admitted;
    let seen = WIDE - lab.members[0].left("wide", "k").await?;
    checks.holds(
        "the halves do not hear each other",
        seen < sum,
        format!("{seen} of {sum} seen"),
    );

    lab.net.set_faults(&[])?;
    let took = lab
        .wait_left(&all, ("wide", "k"), WIDE - sum, HEAL_MAX)
        .await?;
    checks.fact(
        "together again: all show every hit after",
        format!("{} ms", took.as_millis()),
    );
    lab.wait_left(&all, ("narrow", "k"), 0, HEAL_MAX).await?;
    for i in &all {
        let passed = lab.members[*i].ask("narrow", "k", 1).await?;
        checks.holds(
            format!("member {} denies what is used up", i + 1),
            !passed,
            !passed,
        );
    }
    lab.wait_connected(all.len() - 1, PATIENCE).await?;
    let rest = lab.load(&all, ("wide", one("k")), 500.0, 4.0).await?;
    let admitted = sum + rest.admitted;
    checks.within("admitted in all", admitted, WIDE, most_admitted(WIDE, 4));
    let errors = before.error_count + apart.error_count + narrow.error_count + rest.error_count;
    checks.holds("every request was answered", errors == 0, errors);
    lab.check_health(checks).await
}

/// Member 3 never gets a frame of member 1; member 2 tells it what member 1 counted.
pub(super) async fn one_way(programs: &Programs, checks: &mut Checks) -> Result<(), LabError> {
    let mut lab = Lab::start(programs, LabSpec::alike(3, &[rule("wide", WIDE, "d", "")])).await?;
    let all = lab.all();
    lab.net.set_faults(&[Fault::OneWay { from: 0, to: 2 }])?;
    // member 3 has a row of its own, so that it shows what it hears
    lab.members[2].ask("wide", "k", 1).await?;
    let load = lab.load(&[0], ("wide", one("k")), 100.0, 4.0).await?;
    let left = WIDE - 1 - load.admitted;
    let took = lab.wait_left(&all, ("wide", "k"), left, HEAL_MAX).await?;
    checks.fact(
        "all show every hit after",
        format!("{} ms", took.as_millis()),
    );
    let unheard = lab.members[2].peers_up().await?;
    checks.holds(
        "member 3 and member 1 are no whole link",
        unheard == 1,
        unheard,
    );
    let rest = lab.load(&all, ("wide", one("k")), 500.0, 5.0).await?;
    let told = until("member 2 tells what member 1 counted", PATIENCE, || async {
        let relayed = lab.members[1].counter("rows_relayed").await?;
        let repaired = lab.members[1].counter("rows_repaired").await?;
        let told = format!("{relayed} rows relayed, {repaired} in answer to digests");
        Ok(if relayed + repaired > 0 {
            Ok(told)
        } else {
            Err(told)
        })
    })
    .await?;
    checks.holds("member 2 tells what member 1 counted", true, told);
    let admitted = 1 + load.admitted + rest.admitted;
    // news of member 1 takes a way round: half a second of its share of the load may be late
    let most = most_admitted(WIDE, 3) + 500 / 3 / 2;
    checks.within("admitted in all", admitted, WIDE, most);
    checks.holds(
        "nobody was denied before the load",
        load.denied == 0,
        load.denied,
    );
    lab.check_health(checks).await
}

/// Cases 40 and 41: what was counted in a window that is over stays out, what is live comes in.
pub(super) async fn case_40_41_longer_than_a_window(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let short = "{name: short, domain: lab, rate: 20r/s, window: 3s, descriptors: [{key: short}]}";
    let rules = [short.to_owned(), rule("wide", WIDE, "d", "")];
    let mut lab = Lab::start(programs, LabSpec::alike(3, &rules)).await?;
    let all = lab.all();
    // all have a row of the key, so that they show what they hear
    for i in &all {
        lab.members[*i].ask("wide", "k", 1).await?;
    }
    lab.wait_left(&all, ("wide", "k"), WIDE - 3, PATIENCE)
        .await?;
    lab.net.set_faults(&cut(&[0], &[1, 2]))?;
    let live = lab.load(&[0], ("wide", one("k")), 50.0, 2.0).await?;
    // 60 in each window of 3 s: four times as much is offered, over two whole windows at least
    let old = lab.load(&[0], ("short", one("k")), 80.0, 9.0).await?;
    checks.within(
        "apart, windows of 60 hits were used up",
        old.admitted,
        3 * 60,
        4 * 60,
    );
    checks.holds("and the rest denied", old.denied > 0, old.denied);
    lab.net.set_faults(&[])?;
    let took = lab
        .wait_left(&all, ("wide", "k"), WIDE - 3 - live.admitted, HEAL_MAX)
        .await?;
    checks.fact(
        "the live count is everywhere after",
        format!("{} ms", took.as_millis()),
    );
    // a window later nothing of the old ones may be left, at anybody
    let took = lab
        .wait_left(&all, ("short", "k"), 60, Duration::from_secs(6))
        .await?;
    checks.fact(
        "the old counts are out after",
        format!("{} ms", took.as_millis()),
    );
    // 36 of 60 hits, by all members: whatever came late of an old window would deny some
    let fresh = lab.load(&all, ("short", one("k")), 12.0, 3.0).await?;
    checks.holds(
        "no hit of an old window denies",
        fresh.denied == 0,
        fresh.denied,
    );
    lab.check_health(checks).await
}
