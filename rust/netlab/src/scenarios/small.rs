//! Single situations that broke other limiters.

use std::time::Duration;

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, until, Lab, LabSpec, Programs};
use crate::limits::{HEAL_MAX, PATIENCE};
use crate::LabError;

/// What the log of a member says then.
const SHARED_NODE_ID: &str = "two members share one node id";

/// Two members of one name: both are counted, and somebody says so.
pub(super) async fn case_38_one_name_twice(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let mut spec = LabSpec::alike(3, &[rule("few", 100, "d", "")]);
    spec.members[1].name = "m1".to_owned();
    spec.introduced = false; // the twins never take each other for peers
    let mut lab = Lab::start(programs, spec).await?;
    for i in lab.all() {
        lab.introduce(i, true)?;
    }
    until("member 3 hears both", PATIENCE, || async {
        let up = lab.members[2].peers_up().await?;
        Ok(if up == 2 {
            Ok(())
        } else {
            Err(format!("{up} are up"))
        })
    })
    .await?;
    lab.members[0].ask("few", "k", 30).await?;
    lab.members[1].ask("few", "k", 20).await?;
    let took = lab.wait_left(&[2], ("few", "k"), 50, HEAL_MAX).await?;
    checks.holds(
        "member 3 counts both",
        true,
        format!("after {} ms", took.as_millis()),
    );
    until("a log says that two share a node id", PATIENCE, || async {
        let said = lab
            .all()
            .iter()
            .any(|i| lab.log(*i).contains(SHARED_NODE_ID));
        Ok(if said {
            Ok(())
        } else {
            Err("none does".to_owned())
        })
    })
    .await?;
    checks.holds("a log says that two share a node id", true, SHARED_NODE_ID);
    lab.check_health(checks).await
}

/// Member 3 has never heard of a rule that the others use.
pub(super) async fn case_39_a_rule_never_heard_of(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let (few, more) = (rule("few", 100, "d", ""), rule("more", 1_000, "d", ""));
    let mut spec = LabSpec::alike(3, &[few.clone(), more]);
    spec.members[2].limits = format!("limits:\n- {few}\n");
    let mut lab = Lab::start(programs, spec).await?;
    let load = lab.load(&[0, 1], ("more", one("k")), 100.0, 3.0).await?;
    lab.members[0].ask("few", "k", 40).await?;
    lab.wait_left(&[0, 1], ("more", "k"), 1_000 - load.admitted, HEAL_MAX)
        .await?;
    checks.holds("those who have the rule agree", true, load.admitted);
    lab.wait_left(&[0, 1, 2], ("few", "k"), 60, HEAL_MAX)
        .await?;
    checks.holds("the common rule is counted by all", true, 40);
    let dropped = lab.members[2].counter("drop_unknown_limiter").await?;
    checks.fact("rows that member 3 dropped and counted", dropped);
    lab.check_health(checks).await
}

/// Where member 3 was, a member of another cluster is, and later a newcomer of this one.
pub(super) async fn case_43_an_address_of_another_cluster(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let mut lab = Lab::start(programs, LabSpec::alike(3, &[rule("few", 100, "d", "")])).await?;
    lab.members[0].ask("few", "k", 40).await?;
    lab.wait_left(&[0, 1, 2], ("few", "k"), 60, PATIENCE)
        .await?;
    lab.members[2].kill();
    lab.members[2].spec.cluster = "stranger".to_owned();
    lab.start_member(2).await?;
    lab.members[2].ask("few", "k", 50).await?;
    let refused = until(
        "a frame of the other cluster is refused",
        PATIENCE,
        || async {
            let refused = lab.members[0].counter("wrong_cluster").await?;
            Ok(if refused > 0 {
                Ok(refused)
            } else {
                Err("none is".to_owned())
            })
        },
    );
    let refused = refused.await?;
    checks.holds("frames of the other cluster are dropped", true, refused);
    let left = lab.members[0].left("few", "k").await?;
    checks.holds("its hits count for nobody here", left == 60, left);
    lab.members[2].kill();
    lab.members[2].spec.cluster = "netlab".to_owned();
    lab.members[2].spec.name = "newcomer".to_owned();
    lab.start_member(2).await?;
    lab.wait_connected(2, HEAL_MAX).await?;
    let took = lab.wait_left(&[2], ("few", "k"), 60, HEAL_MAX).await?;
    checks.holds(
        "a newcomer at that address is told all",
        true,
        format!("{took:?}"),
    );
    lab.check_health(checks).await
}

/// The list of peers is empty at first.
pub(super) async fn case_45_no_peers_at_start(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let mut spec = LabSpec::alike(3, &[rule("few", 100, "d", "")]);
    spec.introduced = false;
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    for i in &all {
        let passed = lab.members[*i].ask("few", "k", 10).await?;
        checks.holds(format!("member {} serves alone", i + 1), passed, passed);
    }
    let start = std::time::Instant::now();
    for i in &all {
        lab.introduce(*i, true)?;
    }
    lab.wait_connected(2, HEAL_MAX).await?;
    lab.wait_left(&all, ("few", "k"), 70, HEAL_MAX).await?;
    let took = start.elapsed();
    checks.holds(
        "once told, all have met and agree",
        true,
        format!("{} ms", took.as_millis()),
    );
    lab.check_health(checks).await
}

/// 450 per minute, 3 members, 10 and 20 requests per second, each on a key of its own.
pub(super) async fn case_46_450_per_minute(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    const LIMIT: u64 = 450;
    let mut lab = Lab::start(programs, LabSpec::alike(3, &[rule("min", LIMIT, "m", "")])).await?;
    let all = lab.all();
    until("the start of a minute", Duration::from_secs(61), || async {
        let snapshot = lab.members[0].snapshot().await?;
        let now = snapshot["cluster_time_ns"]
            .as_str()
            .and_then(|text| text.parse::<u64>().ok());
        let second = now.ok_or_else(|| LabError::odd("no cluster time"))? / 1_000_000_000 % 60;
        Ok(if second < 3 {
            Ok(())
        } else {
            Err(format!("second {second}"))
        })
    })
    .await?;
    let slow = lab.load(&all, ("min", one("slow")), 10.0, 54.0);
    let fast = lab.load(&all, ("min", one("fast")), 20.0, 54.0);
    let (slow, fast) = tokio::join!(slow, fast);
    let most = most_admitted(LIMIT, 3);
    checks.within("admitted at 10 per second", slow?.admitted, LIMIT, most);
    checks.within("admitted at 20 per second", fast?.admitted, LIMIT, most);
    lab.check_health(checks).await
}

/// A limit of 5 for 10 members.
pub(super) async fn case_47_a_limit_of_five(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let mut lab = Lab::start(programs, LabSpec::alike(10, &[rule("few", 5, "d", "")])).await?;
    let all = lab.all();
    let load = lab.load(&all, ("few", one("k")), 100.0, 3.0).await?;
    checks.within("admitted", load.admitted, 5, most_admitted(5, 10));
    checks.holds(
        "every request was answered",
        load.error_count == 0,
        load.error_count,
    );
    lab.wait_left(&all, ("few", "k"), 0, PATIENCE).await?;
    lab.check_health(checks).await
}

/// Every send of member 1 fails for five seconds.
pub(super) async fn case_49_sending_fails(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    const LIMIT: u64 = 2_000;
    let mut lab = Lab::start(programs, LabSpec::alike(3, &[rule("wide", LIMIT, "d", "")])).await?;
    let all = lab.all();
    lab.net.refuse_sending(0, true)?;
    let load = lab.load(&all, ("wide", one("k")), 150.0, 5.0).await?;
    checks.holds("decisions go on", load.error_count == 0, load.error_count);
    checks.holds(
        "nobody is denied under the limit",
        load.denied == 0,
        load.denied,
    );
    let failed = lab.members[0]
        .number("/gossip/driver_counters/send_errors")
        .await?
        + lab.members[0]
            .number("/gossip/driver_counters/socket_faults")
            .await?;
    checks.holds("failed sends are counted", failed > 0, failed);
    lab.net.refuse_sending(0, false)?;
    let took = lab
        .wait_left(&all, ("wide", "k"), LIMIT - load.admitted, HEAL_MAX)
        .await?;
    checks.holds(
        "it resumes by itself",
        true,
        format!("{} ms", took.as_millis()),
    );
    lab.wait_connected(2, PATIENCE).await?;
    let rest = lab.load(&all, ("wide", one("k")), 500.0, 4.0).await?;
    let admitted = load.admitted + rest.admitted;
    checks.within("admitted in all", admitted, LIMIT, most_admitted(LIMIT, 3));
    lab.check_health(checks).await
}
