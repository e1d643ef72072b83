//! Pods that come and go.

use gabion_netlab::checks::Checks;

use super::tally::{alike, converged, joined, silent, Tally};
use crate::cluster::{Cluster, End, World, SERVICE};
use crate::limits::PATIENCE;
use crate::moments::{silent_after, Joined, Watch};
use crate::SuiteError;

/// Starts the pod in slot `i`, and checks how soon `others` know it.
pub(super) async fn join(
    cluster: &mut Cluster<'_>,
    checks: &mut Checks,
    (i, others): (usize, &[usize]),
) -> Result<Joined, SuiteError> {
    let watch = Watch::new(cluster, i, others);
    let (found, started) = tokio::join!(watch.joined(), cluster.start_pod(i));
    started?;
    let found = found?;
    joined(checks, found.after);
    Ok(found)
}

/// Ends the pod in slot `i`, and checks how soon nobody sends to it.
async fn leave(
    cluster: &mut Cluster<'_>,
    checks: &mut Checks,
    (i, end): (usize, End),
) -> Result<bool, SuiteError> {
    cluster.lab.net.count_to(i)?;
    let watch = Watch::new(cluster, i, &[]);
    let ended = cluster.end_pod(i, end).await?;
    let gone = watch.until_named(false).await?;
    silent(checks, silent_after(cluster, i, gone).await?);
    Ok(ended)
}

/// 3 members, one of them nginx, become 6 and then 2.
pub(super) async fn scale(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(6).with_nginx(&[1, 4]);
    let mut cluster = Cluster::new(world, "scale", spec).await?;
    for i in 0..3 {
        cluster.start_pod(i).await?;
    }
    cluster.wait_meshed(&[0, 1, 2]).await?;
    cluster.lab.members[0].ask("few", "k", 40).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    let changes = async {
        for i in 3..6 {
            let others: Vec<usize> = (0..i).collect();
            let found = join(&mut cluster, checks, (i, &others)).await?;
            let key = ("few", "k");
            cluster.lab.wait_left(&[i], key, 60, PATIENCE).await?;
            converged(checks, found.known.elapsed());
        }
        cluster.wait_meshed(&[0, 1, 2, 3, 4, 5]).await?;
        cluster.lab.members[5].ask("few", "k", 10).await?;
        let mut ended_well = true;
        for i in [3, 4, 5] {
            ended_well &= cluster.end_pod(i, End::InOrder).await?;
        }
        ended_well &= leave(&mut cluster, checks, (2, End::InOrder)).await?;
        checks.holds("each pod ended with 0", ended_well, ended_well);
        cluster.wait_meshed(&[0, 1]).await
    };
    tally.during(loader, (&[0, 1], 60.0), changes).await?;
    let key = ("few", "k");
    cluster.lab.wait_left(&[0, 1], key, 50, PATIENCE).await?;
    checks.holds("the counts of pods that left are kept", true, 50);
    tally.finish(&mut cluster, checks, &[0, 1]).await
}

/// As a Deployment does it: a new pod is there and ready before an old one goes. In the end none of
/// the first pods is left, and all that they counted is.
pub(super) async fn rolling(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(6).with_nginx(&[1, 4]);
    let mut cluster = Cluster::new(world, "rolling", spec).await?;
    let mut there = vec![0, 1, 2];
    for i in &there {
        cluster.start_pod(*i).await?;
    }
    cluster.wait_meshed(&there).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    tally.load(&cluster, &there, (150.0, 2.0)).await?;
    cluster.lab.members[0].ask("few", "k", 40).await?;
    let mut ended_well = true;
    for (old, new) in [(0, 3), (1, 4), (2, 5)] {
        // clients have taken the old one off their lists when it is told to end
        let others: Vec<usize> = there.iter().copied().filter(|i| *i != old).collect();
        let change = async {
            let found = join(&mut cluster, checks, (new, &there)).await?;
            let key = ("few", "k");
            cluster.lab.wait_left(&[new], key, 60, PATIENCE).await?;
            converged(checks, found.known.elapsed());
            cluster.end_pod(old, End::InOrder).await
        };
        ended_well &= tally
            .during(loader.clone(), (&others, 60.0), change)
            .await?;
        there = others;
        there.push(new);
        cluster.wait_meshed(&there).await?;
    }
    checks.holds("each pod ended with 0", ended_well, ended_well);
    tally.finish(&mut cluster, checks, &there).await
}

/// What a pod had counted when it was killed is kept by the others, and told to the next one at its
/// address.
pub(super) async fn no_grace(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(4).with_nginx(&[3]);
    let mut cluster = Cluster::new(world, "no-grace", spec).await?;
    let all = cluster.lab.all();
    for i in &all {
        cluster.start_pod(*i).await?;
    }
    cluster.wait_meshed(&all).await?;
    let (mut tally, key) = (Tally::default(), ("few", "k"));
    cluster.lab.members[2].ask("few", "k", 40).await?;
    cluster.lab.wait_left(&all, key, 60, PATIENCE).await?;
    let loader = cluster.lab.loader();
    let stay = [0, 1, 3];
    let killed = leave(&mut cluster, checks, (2, End::NoGrace));
    tally.during(loader, (&stay, 60.0), killed).await?;
    cluster.wait_meshed(&stay).await?;
    cluster.lab.members[2].spec.name = "m3-again".to_owned();
    let found = join(&mut cluster, checks, (2, &stay)).await?;
    cluster.lab.wait_left(&[2], key, 60, PATIENCE).await?;
    converged(checks, found.known.elapsed());
    cluster.wait_meshed(&all).await?;
    tally.finish(&mut cluster, checks, &all).await
}

/// Members look at every Service of their namespace. While both names are there, each pod is one
/// member; when the first goes, nobody is lost.
pub(super) async fn renamed(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    const NEW: &str = "limits";
    let spec = alike(4).with_nginx(&[1]);
    let mut cluster = Cluster::new(world, "renamed", spec).await?;
    let first = [0, 1, 2];
    for i in cluster.lab.all() {
        cluster.look_at(i, &[]);
    }
    for i in first {
        cluster.start_pod(i).await?;
    }
    cluster.wait_meshed(&first).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    let change = async {
        cluster.add_service(NEW, SERVICE).await?;
        cluster.wait_slices(NEW, &first).await?;
        cluster.hold_named(&first, 1.0).await?;
        cluster.remove_service(SERVICE).await?;
        cluster.wait_slices(SERVICE, &[]).await?;
        cluster.hold_named(&first, 2.0).await?;
        let what = "each pod is one peer all the while";
        checks.holds(what, true, "2 peers each");
        join(&mut cluster, checks, (3, &first)).await
    };
    tally.during(loader, (&first, 60.0), change).await?;
    let all = cluster.lab.all();
    cluster.wait_meshed(&all).await?;
    tally.finish(&mut cluster, checks, &all).await
}
