//! Far too much of something.

use std::net::SocketAddr;
use std::time::Duration;

use gabion_loader::mix::MixSpec;

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, Lab, LabSpec, Programs};
use crate::limits::{PATIENCE, STORM, STORM_PER_S};
use crate::net::{address, GOSSIP_PORT};
use crate::storm;
use crate::LabError;

/// Garbage at a gabiond, beside an nginx.
pub(super) async fn garbage_at_the_gossip_port(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    garbage(programs, checks, &[1]).await
}

/// Garbage at an nginx: the worker that gossips serves requests, too.
pub(super) async fn garbage_at_nginx(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    garbage(programs, checks, &[0]).await
}

/// Garbage at the gossip port of member 1, while all members share a limit.
async fn garbage(
    programs: &Programs,
    checks: &mut Checks,
    nginx: &[usize],
) -> Result<(), LabError> {
    const LIMIT: u64 = 1_000;
    let mut spec = LabSpec::alike(3, &[rule("wide", LIMIT, "d", "")]).with_nginx(nginx);
    spec.signed = Some("5a");
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    let received = lab.members[0].counter("frames_in").await?;
    let to = SocketAddr::from((address(0), GOSSIP_PORT));
    let seed = programs.seed;
    let storm = std::thread::spawn(move || storm::blow(to, STORM_PER_S, STORM, seed, None));
    let load = lab
        .load(&all, ("wide", one("k")), 400.0, STORM.as_secs_f64())
        .await?;
    let (sent, took) = storm
        .join()
        .map_err(|_| LabError::odd("the storm panicked"))??;
    let per_s = sent as f64 / took.as_secs_f64();
    checks.fact(
        "garbage",
        format!("{sent} datagrams, {per_s:.0} per second"),
    );
    let got = lab.members[0].counter("frames_in").await? - received;
    checks.holds(
        "member 1 met much of it",
        got > sent / 10,
        format!("{got} datagrams"),
    );
    checks.within(
        "admitted meanwhile",
        load.admitted,
        LIMIT,
        LIMIT + LIMIT / 10, // what of the news the socket lost in the storm is sent again
    );
    checks.holds(
        "every request was answered",
        load.error_count == 0,
        load.error_count,
    );
    let p99_ms = load.latency.p99_us / 1_000.0;
    checks.fact("p99 of answers meanwhile", format!("{p99_ms:.1} ms"));
    lab.wait_left(&all, ("wide", "k"), 0, PATIENCE).await?;
    lab.wait_connected(2, PATIENCE).await?;
    let after = lab.load(&all, ("wide", one("after")), 300.0, 5.0).await?;
    checks.within(
        "admitted afterwards",
        after.admitted,
        LIMIT,
        most_admitted(LIMIT, 3),
    );
    lab.check_health(checks).await
}

/// A rule with room for 4,096 keys meets 24,000, while one key of it is at its limit.
pub(super) async fn unique_keys_beside_a_hot_one(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    const LIMIT: u64 = 300;
    let rules = [rule("ip", LIMIT, "d", ", cardinality: 4096")];
    let mut lab = Lab::start(programs, LabSpec::alike(3, &rules)).await?;
    let all = lab.all();
    let hot = lab.load(&all, ("ip", one("hot")), 300.0, 4.0).await?;
    checks.within(
        "the hot key is admitted",
        hot.admitted,
        LIMIT,
        most_admitted(LIMIT, 3),
    );
    lab.wait_left(&all, ("ip", "hot"), 0, PATIENCE).await?;
    let before = lab.members[0].resident_most_bytes().unwrap_or(0);
    let flood = lab.load(&all, ("ip", MixSpec::Uniform(1 << 40)), 1_200.0, 20.0);
    let still = lab.load(&all, ("ip", one("hot")), 50.0, 20.0);
    let (flood, still) = tokio::join!(flood, still);
    let (flood, still) = (flood?, still?);
    let keys = flood.sent;
    checks.holds(
        "keys that are new pass",
        flood.denied == 0,
        format!("{keys} keys"),
    );
    checks.holds(
        "the hot key stays denied",
        still.admitted == 0,
        still.admitted,
    );
    let errors = flood.error_count + still.error_count;
    checks.holds("every request was answered", errors * 1_000 <= keys, errors);
    let after = lab.members[0].resident_most_bytes().unwrap_or(u64::MAX);
    checks.within(
        "memory that the flood took, MiB",
        after.saturating_sub(before) >> 20,
        0,
        48,
    );
    let stats = lab.members[0].snapshot().await?;
    checks.fact(
        "evicted exhausted rows",
        &stats["table"]["evicted_exhausted"],
    );
    let fresh = lab.load(&all, ("ip", one("fresh")), 100.0, 2.0).await?;
    checks.holds("a fresh key is not denied", fresh.denied == 0, fresh.denied);
    tokio::time::timeout(Duration::from_secs(60), lab.check_health(checks))
        .await
        .map_err(LabError::odd)?
}
