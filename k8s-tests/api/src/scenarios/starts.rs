//! How members find each other when they start.

use std::time::Instant;

use gabion_netlab::checks::Checks;
use serde_json::json;

use super::tally::{alike, Tally};
use crate::cluster::{Cluster, World, SERVICE};
use crate::limits::BACK_MS_MAX;
use crate::moments::ms;
use crate::SuiteError;

/// Pods with addresses of both families, behind two Services which do not publish what is not
/// ready, all start at once and none is ready.
pub(super) async fn case_44_slices(
    world: &mut World,
    checks: &mut Checks,
) -> Result<(), SuiteError> {
    let mut cluster = Cluster::new(world, "slices", alike(3).with_nginx(&[1])).await?;
    let all = cluster.lab.all();
    cluster.add_service("twice", SERVICE).await?;
    for service in [SERVICE, "twice"] {
        let path = format!("{}/services/{service}", cluster.core());
        let change = json!({ "spec": {
            "publishNotReadyAddresses": false,
            "ipFamilyPolicy": "RequireDualStack",
            "ipFamilies": ["IPv4", "IPv6"],
        } });
        cluster.api().patch(&path, &change).await?;
    }
    for i in &all {
        cluster.look_at(*i, &[]);
    }
    cluster.both_families();
    let start = Instant::now();
    for i in &all {
        cluster.start_pod_on(*i, "node-1").await?;
    }
    cluster.wait_slices(SERVICE, &all).await?;
    let slices = cluster.api().get(&cluster.slices()).await?;
    let slices = slices["items"].as_array().map_or(0, Vec::len);
    checks.within("slices", slices as u64, 4, 4);
    let endpoints = cluster.endpoints(None).await?;
    let ready = endpoints.values().filter(|(ready, _)| *ready).count();
    checks.holds("no endpoint is ready", ready == 0, ready);
    cluster.wait_meshed(&all).await?;
    checks.fact("all are peers after, ms", ms(start.elapsed()));
    cluster.hold_named(&all, 1.0).await?;
    checks.holds("each pod is one peer", true, "2 each");
    let mut tally = Tally::default();
    tally.load(&cluster, &all, (100.0, 2.0)).await?;
    for i in &all {
        cluster.set_ready(*i, true).await?;
    }
    cluster.hold_named(&all, 1.0).await?;
    tally.finish(&mut cluster, checks, &all).await
}

/// Members start while the API server is away, and then while the Service is not there.
pub(super) async fn case_45_empty_start(
    world: &mut World,
    checks: &mut Checks,
) -> Result<(), SuiteError> {
    let mut cluster = Cluster::new(world, "empty-start", alike(4).with_nginx(&[1, 3])).await?;
    let first = [0, 1];
    for i in first {
        cluster.make_pod(i, "node-1").await?;
        cluster.set_ready(i, false).await?;
    }
    cluster.wait_slices(SERVICE, &first).await?;
    cluster.world.plane.stop_api().await;
    let mut passed = true;
    for i in first {
        cluster.lab.start_member(i).await?;
        passed &= cluster.lab.members[i].ask("few", "k", 10).await?;
    }
    checks.holds("both serve while the API server is away", passed, passed);
    cluster.world.plane.start_api().await?;
    let start = Instant::now();
    cluster.wait_meshed(&first).await?;
    let after = ms(start.elapsed());
    checks.within("with it they are peers after, ms", after, 0, BACK_MS_MAX);

    cluster.remove_service(SERVICE).await?;
    cluster.wait_slices(SERVICE, &[]).await?;
    for i in [2, 3] {
        cluster.start_pod(i).await?;
        passed &= cluster.lab.members[i].ask("few", "other", 10).await?;
    }
    checks.holds("new ones serve while the list is empty", passed, passed);
    cluster.add_service(SERVICE, SERVICE).await?;
    let all = cluster.lab.all();
    cluster.wait_slices(SERVICE, &all).await?;
    let start = Instant::now();
    cluster.wait_meshed(&all).await?;
    let after = ms(start.elapsed());
    checks.within(
        "once it is not all are peers after, ms",
        after,
        0,
        BACK_MS_MAX,
    );
    let mut tally = Tally::default();
    tally.load(&cluster, &all, (100.0, 2.0)).await?;
    tally.finish(&mut cluster, checks, &all).await
}
