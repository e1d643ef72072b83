//! gabiond, nginx and Envoy in one cluster.

use std::time::Instant;

use gabion_loader::local::upstream::Upstream;
use gabion_loader::local::{envoy, http};
use gabion_netlab::checks::Checks;
use gabion_netlab::limits::HEAL_MAX;

use super::tally::{alike, converged, joined, Tally};
use crate::cluster::{Cluster, World};
use crate::limits::PATIENCE;
use crate::moments::{ms, Watch};
use crate::SuiteError;

/// An Envoy, which asks the gabiond pods, admits 60 of 100; an nginx pod admits the others.
async fn through_envoy(cluster: &Cluster<'_>, checks: &mut Checks) -> Result<(), SuiteError> {
    let upstream = Upstream::start().await?;
    let ports = [
        ("admin", 0),
        ("listener", 0),
        ("upstream", upstream.address().port()),
    ];
    let text = include_str!("envoy.yaml");
    let edge = envoy::start_text(&envoy::find()?, cluster.lab.dir(), text, &ports).await?;
    let mut passed = 0;
    for _ in 0..60 {
        let reply = http::get(edge.listener, "/", &[]).await?;
        passed += u64::from(reply.status == 200);
    }
    checks.within("requests that pass Envoy", passed, 60, 60);
    let (all, key) = (cluster.lab.all(), ("few", "envoy"));
    cluster.lab.wait_left(&all, key, 40, HEAL_MAX).await?;
    let mut rest = 0;
    for _ in 0..50 {
        rest += u64::from(cluster.lab.members[3].ask(key.0, key.1, 1).await?);
    }
    checks.within("nginx admits what Envoy has left", rest, 40, 40);
    cluster.lab.wait_left(&all, key, 0, HEAL_MAX).await?;
    let reply = http::get(edge.listener, "/", &[]).await?;
    checks.within("then Envoy answers", reply.status.into(), 429, 429);
    Ok(())
}

/// 3 gabiond and 2 nginx; what one door counts the others show and deny by.
pub(super) async fn mixed(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(5).with_nginx(&[3, 4]);
    let mut cluster = Cluster::new(world, "mixed", spec).await?;
    let all = cluster.lab.all();
    for i in 0..4 {
        cluster.start_pod(i).await?;
    }
    cluster.wait_meshed(&all[..4]).await?;
    let mut tally = Tally::default();
    tally.load(&cluster, &all[..4], (200.0, 2.0)).await?;
    cluster.lab.members[3].ask("few", "k", 40).await?;

    let watch = Watch::new(&cluster, 4, &all);
    let (found, started) = tokio::join!(watch.joined(), cluster.start_pod(4));
    started?;
    let found = found?;
    joined(checks, found.after);
    cluster
        .lab
        .wait_left(&[4], ("few", "k"), 60, PATIENCE)
        .await?;
    converged(checks, found.known.elapsed());
    cluster.wait_meshed(&all).await?;

    let start = Instant::now();
    let passed = cluster.lab.members[4].ask("few", "k", 10).await?;
    checks.holds("hits on the new member pass", passed, passed);
    cluster
        .lab
        .wait_left(&all, ("few", "k"), 50, HEAL_MAX)
        .await?;
    checks.fact("all doors show its hits after, ms", ms(start.elapsed()));
    let mut rest = 0;
    for _ in 0..60 {
        rest += u64::from(cluster.lab.members[0].ask("few", "k", 1).await?);
    }
    checks.within("another door admits what is left", rest, 50, 50);
    through_envoy(&cluster, checks).await?;
    tally.load(&cluster, &all, (200.0, 3.0)).await?;
    tally.finish(&mut cluster, checks, &all).await
}
