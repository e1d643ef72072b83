//! Members that come and go, and one whose clock is wrong.

use std::time::Duration;

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, until, Lab, LabSpec, Programs};
use crate::limits::{HEAL_MAX, PATIENCE};
use crate::LabError;

const LIMIT: u64 = 2_000;

/// Case 36: a gabiond beside an nginx.
pub(super) async fn case_36_killed_and_started_again(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    killed_and_started_again(programs, checks, &[2]).await
}

/// Case 36: an nginx with all its workers, beside a gabiond and another nginx.
pub(super) async fn case_36_nginx_killed_and_started_again(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    killed_and_started_again(programs, checks, &[0, 1]).await
}

/// 40 hits, a crash, 5 hits under the same name: 45 everywhere.
async fn killed_and_started_again(
    programs: &Programs,
    checks: &mut Checks,
    nginx: &[usize],
) -> Result<(), LabError> {
    let rules = [rule("few", 100, "d", ""), rule("wide", LIMIT, "d", "")];
    let spec = LabSpec::alike(3, &rules).with_nginx(nginx);
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    lab.members[0].ask("few", "k", 40).await?;
    let before = lab.load(&all, ("wide", one("k")), 200.0, 3.0).await?;
    lab.wait_left(&all[1..], ("few", "k"), 60, PATIENCE).await?;
    lab.wait_left(&all, ("wide", "k"), LIMIT - before.admitted, PATIENCE)
        .await?;

    lab.members[0].kill();
    let meanwhile = lab.load(&[1, 2], ("wide", one("k")), 200.0, 2.0).await?;
    lab.start_member(0).await?;
    lab.wait_connected(2, PATIENCE).await?;
    lab.members[0].ask("few", "k", 5).await?;
    let took = lab.wait_left(&all, ("few", "k"), 55, HEAL_MAX).await?;
    checks.holds("40 hits, a crash, 5 hits are 45 everywhere", true, "45");
    checks.fact("after", format!("{} ms", took.as_millis()));
    let sum = before.admitted + meanwhile.admitted;
    lab.wait_left(&all, ("wide", "k"), LIMIT - sum, HEAL_MAX)
        .await?;
    checks.holds("it has the counts of before from its peers", true, sum);
    let denied = before.denied + meanwhile.denied;
    checks.holds("nobody was denied under the limit", denied == 0, denied);
    let rest = lab.load(&all, ("wide", one("k")), 500.0, 4.0).await?;
    checks.within(
        "admitted in all",
        sum + rest.admitted,
        LIMIT,
        most_admitted(LIMIT, 3),
    );
    lab.check_health(checks).await
}

/// Each member in turn, the second of them nginx, is stopped and started, while the others and it
/// are asked.
pub(super) async fn rolling_restart_under_load(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let spec = LabSpec::alike(3, &[rule("wide", LIMIT, "d", "")]).with_nginx(&[1]);
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    let (mut admitted, mut denied, mut errors) = (0, 0, 0);
    let mut ended_well = true;
    for i in 0..3 {
        let others: Vec<usize> = all.iter().copied().filter(|other| *other != i).collect();
        let first = lab.load(&all, ("wide", one("k")), 150.0, 1.0).await?;
        // Envoy has taken it off its list when it is told to end: load is on the others
        let mut leaving = lab.members.remove(i);
        let rest = lab.load(&others, ("wide", one("k")), 150.0, 2.0);
        let (rest, stopped) = tokio::join!(rest, leaving.stop());
        ended_well &= stopped?;
        lab.members.insert(i, leaving);
        lab.start_member(i).await?;
        lab.wait_connected(2, PATIENCE).await?;
        let rest = rest?;
        errors += first.error_count + rest.error_count;
        admitted += first.admitted + rest.admitted;
        denied += first.denied + rest.denied;
        let took = lab
            .wait_left(&all, ("wide", "k"), LIMIT - admitted, HEAL_MAX)
            .await?;
        checks.fact(
            format!("member {} came back: all counts are there after", i + 1),
            format!("{} ms", took.as_millis()),
        );
    }
    checks.holds("each member ended with 0", ended_well, ended_well);
    checks.holds("every request was answered", errors == 0, errors);
    checks.holds("nobody was denied under the limit", denied == 0, denied);
    let rest = lab.load(&all, ("wide", one("k")), 500.0, 4.0).await?;
    checks.within(
        "admitted in all",
        admitted + rest.admitted,
        LIMIT,
        most_admitted(LIMIT, 3),
    );
    lab.check_health(checks).await
}

/// Member 3 starts with a clock that is 30 s ahead: the cluster's time is that of the others, and
/// windows of 10 s hold.
pub(super) async fn one_clock_is_off(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    const WINDOW_LIMIT: u64 = 500;
    let rule = "{name: ten, domain: lab, rate: 50r/s, window: 10s, descriptors: [{key: ten}]}";
    let mut spec = LabSpec::alike(3, &[rule.to_owned()]);
    spec.members[2].clock_ahead_s = 30;
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    let correction = until("the clock of member 3 is set right", PATIENCE, || async {
        let ns = lab.members[2].number("/gossip/clock_correction_ns").await?;
        let off_ms = (ns + 30_000_000_000) / 1_000_000;
        Ok(if off_ms.abs() < 250 {
            Ok(ns / 1_000_000)
        } else {
            Err(format!("{ns} ns"))
        })
    })
    .await?;
    checks.holds(
        "member 3 goes back by 30 s",
        true,
        format!("{correction} ms"),
    );
    for i in [0, 1] {
        let ns = lab.members[i].number("/gossip/clock_correction_ns").await?;
        let stays = ns.abs() < 250_000_000;
        checks.holds(
            format!("member {} stays", i + 1),
            stays,
            format!("{} ms", ns / 1_000_000),
        );
    }
    // From the middle of a window to the middle of another one: each of the four is used up, the
    // first and the last by a half that is offered twice what it holds.
    wait_for_the_middle(&lab, 10).await?;
    let load = lab.load(&all, ("ten", one("k")), 200.0, 30.0).await?;
    let most = 4 * most_admitted(WINDOW_LIMIT, 3);
    checks.within(
        "admitted in four windows",
        load.admitted,
        4 * WINDOW_LIMIT,
        most,
    );
    checks.holds(
        "every request was answered",
        load.error_count == 0,
        load.error_count,
    );
    lab.check_health(checks).await
}

/// Waits until the cluster's time is in the middle of a window of so many seconds.
async fn wait_for_the_middle(lab: &Lab, window_s: u64) -> Result<(), LabError> {
    until(
        "the middle of a window",
        Duration::from_secs(2 * window_s),
        || async {
            let snapshot = lab.members[0].snapshot().await?;
            let now = snapshot["cluster_time_ns"]
                .as_str()
                .and_then(|text| text.parse::<u64>().ok());
            let now_ms = now.ok_or_else(|| LabError::odd("no cluster time"))? / 1_000_000;
            let in_window_ms = now_ms % (window_s * 1_000);
            let middle_ms = window_s * 500;
            let near = (middle_ms..middle_ms + 500).contains(&in_window_ms);
            Ok(if near {
                Ok(())
            } else {
                Err(format!("{in_window_ms} ms in it"))
            })
        },
    )
    .await
}
