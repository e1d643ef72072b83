//! Members that are not of the cluster, or of another release.

use std::net::SocketAddr;

use gabion_netlab::checks::Checks;
use gabion_netlab::net::{address, GOSSIP_PORT};

use super::life::join;
use super::tally::{alike, converged, Tally, LIMIT, RULE};
use crate::cluster::{Cluster, End, World};
use crate::limits::PATIENCE;
use crate::moments::Watch;
use crate::SuiteError;

/// Slots 0 and 1, and 2 and 3, are clusters of their own behind one Service: each sees the others'
/// addresses, and counts none of their hits.
pub(super) async fn two_clusters(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let mut spec = alike(4).with_nginx(&[1, 3]);
    for i in [2, 3] {
        spec.members[i].cluster = "other".to_owned();
    }
    let mut cluster = Cluster::new(world, "two-clusters", spec).await?;
    let all = cluster.lab.all();
    let (one, other) = ([0, 1], [2, 3]);
    for i in &all {
        cluster.start_pod(*i).await?;
    }
    cluster.wait_named(&all, PATIENCE).await?;
    cluster.lab.wait_peers(&all, 1, PATIENCE).await?;
    checks.holds("each has one peer of its own", true, 1);
    cluster.lab.members[0].ask("few", "k", 40).await?;
    cluster.lab.members[3].ask("few", "k", 30).await?;
    cluster
        .lab
        .wait_left(&one, ("few", "k"), 60, PATIENCE)
        .await?;
    cluster
        .lab
        .wait_left(&other, ("few", "k"), 70, PATIENCE)
        .await?;
    checks.holds("counts stay apart", true, "60 and 70 of 100 are left");
    let mut tally = Tally::default();
    tally.load(&cluster, &one, (200.0, 2.0)).await?;
    tally.finish(&mut cluster, checks, &one).await?;
    // the other cluster has its whole limit: one hit is the first
    cluster.lab.members[2].ask(RULE, "k", 1).await?;
    let left = cluster.lab.members[2].left(RULE, "k").await?;
    let what = "after its first hit the other cluster has left";
    checks.within(what, left, LIMIT - 1, LIMIT - 1);
    Ok(())
}

/// The address of a pod that died goes to a pod of another cluster, then to one of its own again.
pub(super) async fn case_43_reused_address(
    world: &mut World,
    checks: &mut Checks,
) -> Result<(), SuiteError> {
    let mut cluster = Cluster::new(world, "reused", alike(3).with_nginx(&[1])).await?;
    let (all, stay) = (cluster.lab.all(), [0, 1]);
    for i in &all {
        cluster.start_pod(*i).await?;
    }
    cluster.wait_meshed(&all).await?;
    cluster.lab.members[2].ask("few", "k", 40).await?;
    cluster
        .lab
        .wait_left(&all, ("few", "k"), 60, PATIENCE)
        .await?;

    cluster.end_pod(2, End::NoGrace).await?;
    let own = cluster.lab.members[2].spec.clone();
    let spec = &mut cluster.lab.members[2].spec;
    (spec.cluster, spec.name) = ("other".to_owned(), "stranger".to_owned());
    let watch = Watch::new(&cluster, 2, &stay);
    let (found, started) = tokio::join!(watch.joined(), cluster.start_pod(2));
    started?;
    found?;
    let passed = cluster.lab.members[2].ask("few", "k", 100).await?;
    checks.holds("the stranger counts for itself", passed, passed);
    let mut tally = Tally::default();
    tally.load(&cluster, &stay, (100.0, 3.0)).await?;
    cluster
        .lab
        .wait_left(&stay, ("few", "k"), 60, PATIENCE)
        .await?;
    let up = cluster.lab.wait_peers(&stay, 1, PATIENCE).await.is_ok();
    checks.holds("it is nobody's peer", up, address(2));

    cluster.end_pod(2, End::NoGrace).await?;
    cluster.lab.members[2].spec = own;
    cluster.lab.members[2].spec.name = "newcomer".to_owned();
    let found = join(&mut cluster, checks, (2, &stay)).await?;
    cluster
        .lab
        .wait_left(&[2], ("few", "k"), 60, PATIENCE)
        .await?;
    converged(checks, found.known.elapsed());
    cluster.wait_meshed(&all).await?;
    tally.finish(&mut cluster, checks, &all).await
}

/// Three pods of the release before are replaced one by one by the one under test. The old ones
/// read their peers from a file: a release before the first that watches slices has nothing else.
pub(super) async fn releases(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let Some(previous) = world.previous.clone() else {
        checks.not_run("no gabiond of the release before (--previous FILE)");
        return Ok(());
    };
    let mut spec = alike(6);
    for i in 0..3 {
        spec.members[i].gabiond = Some(previous.clone());
    }
    let mut cluster = Cluster::new(world, "releases", spec).await?;
    let mut there = vec![0, 1, 2];
    for i in &there {
        let others = (0..6).filter(|other| other != i);
        let peers = others.map(|other| SocketAddr::from((address(other), GOSSIP_PORT)));
        cluster.read_file(*i, &peers.collect::<Vec<_>>())?;
        cluster.start_pod(*i).await?;
    }
    cluster.lab.wait_peers(&there, 2, PATIENCE).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    tally.load(&cluster, &there, (150.0, 2.0)).await?;
    for (old, new) in [(0, 3), (1, 4), (2, 5)] {
        let others: Vec<usize> = there.iter().copied().filter(|i| *i != old).collect();
        let change = async {
            let watching: Vec<usize> = (3..new).collect();
            join(&mut cluster, checks, (new, &watching)).await?;
            there.push(new);
            cluster.lab.wait_peers(&there, 3, PATIENCE).await?;
            cluster.end_pod(old, End::InOrder).await
        };
        let well = tally
            .during(loader.clone(), (&others, 60.0), change)
            .await?;
        checks.holds("the old pod ended with 0", well, well);
        there.retain(|i| *i != old);
        cluster.lab.wait_peers(&there, 2, PATIENCE).await?;
    }
    tally.finish(&mut cluster, checks, &there).await
}
