//! The API, the roles and the network between nodes fail.

use std::time::{Duration, Instant};

use gabion_netlab::checks::Checks;
use gabion_netlab::net::{cut, Fault};

use super::life::join;
use super::tally::{alike, Tally};
use crate::cluster::{late, Cluster, End, World};
use crate::limits::{API_AWAY, BACK_MS_MAX, LOOK_EVERY, PATIENCE};
use crate::moments::{ms, Watch};
use crate::plane::API_PORT;
use crate::SuiteError;

/// Slots 0 and 2 are on a node, 1 and 3 on the other one, which is cut off until the API calls its
/// pods not ready. Both sides decide; afterwards all know all, and a pod that came meanwhile.
pub(super) async fn node_cut(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(5).with_nginx(&[3]);
    let mut cluster = Cluster::new(world, "node-cut", spec).await?;
    let first = [0, 1, 2, 3];
    for i in first {
        cluster.start_pod(i).await?;
    }
    cluster.wait_meshed(&first).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    let apart = async {
        let mut faults = cut(&[0, 2, 4], &[1, 3]);
        faults.extend([1, 3].map(|member| Fault::NoService {
            member,
            port: API_PORT,
        }));
        cluster.lab.net.set_faults(&faults)?;
        cluster.world.kubelets.cut_off("node-2");
        let start = Instant::now();
        while cluster.is_ready(1).await? {
            if start.elapsed() > PATIENCE {
                return Err(late("a pod of the lost node that is not ready".to_owned()));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        checks.fact("the API gives the pods up after, ms", ms(start.elapsed()));
        join(&mut cluster, checks, (4, &[0, 2])).await?;
        for (i, others) in [(0, [1, 2, 3]), (2, [0, 1, 3])] {
            let kept = cluster.has_peers(i, &others).await?;
            checks.holds(format!("member {} keeps its peers", i + 1), kept, kept);
        }
        Ok(())
    };
    tally.during(loader.clone(), (&first, 60.0), apart).await?;
    cluster.lab.net.set_faults(&[])?;
    cluster.world.kubelets.heal("node-2").await?;
    for i in [1, 3] {
        cluster.set_ready(i, true).await?;
    }
    let (healed, all) = (Instant::now(), cluster.lab.all());
    let again = cluster.wait_meshed(&all);
    tally.during(loader, (&first, 60.0), again).await?;
    checks.fact("all are peers again after, ms", ms(healed.elapsed()));
    tally.finish(&mut cluster, checks, &all).await
}

/// Without the role members keep their peers, decide, and say what to do.
pub(super) async fn no_role(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(4).with_nginx(&[2]);
    let mut cluster = Cluster::new(world, "no-role", spec).await?;
    let first = [0, 1, 2];
    for i in first {
        cluster.start_pod(i).await?;
    }
    cluster.wait_meshed(&first).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    let without = async {
        cluster.revoke().await?;
        // a watch that was allowed goes on until it ends
        cluster.world.plane.kill_api();
        cluster.world.plane.start_api().await?;
        cluster.start_pod(3).await?;
        for i in [0, 1, 2, 3] {
            cluster.wait_said(i, NO_ROLE).await?;
        }
        let advice = [0, 1, 2, 3].map(|i| cluster.lab.log(i).contains("kind: RoleBinding"));
        let all = advice == [true; 4];
        checks.holds("each shows the Role to create", all, format!("{advice:?}"));
        cluster.hold_named(&first, 2.0).await?;
        checks.holds("peers are kept without the role", true, "2 each");
        let passed = cluster.lab.members[3].ask("few", "k", 1).await?;
        checks.holds("a pod that never had the role decides", passed, passed);
        let said = cluster.lab.log(0).matches(NO_ROLE).count();
        checks.within("it is said, times", said as u64, 1, 2);
        cluster.grant().await
    };
    tally.during(loader, (&first, 40.0), without).await?;
    let (granted, all) = (Instant::now(), cluster.lab.all());
    cluster.wait_meshed(&all).await?;
    let after = ms(granted.elapsed());
    checks.within(
        "with the role all are peers after, ms",
        after,
        0,
        BACK_MS_MAX,
    );
    tally.finish(&mut cluster, checks, &all).await
}

/// What a member says when it may not read slices.
const NO_ROLE: &str = "lets this member watch no EndpointSlices";

/// Nobody notices, but for a pod that comes meanwhile.
pub(super) async fn no_api(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(4).with_nginx(&[2]);
    let mut cluster = Cluster::new(world, "no-api", spec).await?;
    let first = [0, 1, 2];
    for i in first {
        cluster.start_pod(i).await?;
    }
    cluster.wait_meshed(&first).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    let away = async {
        cluster.world.plane.stop_api().await;
        let half = API_AWAY.as_secs_f64() / 2.0;
        cluster.hold_named(&first, half).await?;
        // Another worker of nginx runs gossip from now on, and has nobody to ask.
        cluster.lab.members[2].reload().await?;
        cluster.wait_named(&first, PATIENCE).await?;
        cluster.hold_named(&first, half).await?;
        cluster.world.plane.start_api().await?;
        cluster.hold_named(&first, 3.0).await?;
        let what = "no peer is lost while it is away, nor when nginx reloads meanwhile";
        checks.holds(what, true, "2 each");
        let watch = Watch::new(&cluster, 3, &first);
        let (found, started) = tokio::join!(watch.joined(), cluster.start_pod(3));
        started?;
        let what = "a pod that comes then is a peer after, ms";
        checks.within(what, ms(found?.after), 0, BACK_MS_MAX);
        cluster.end_pod(3, End::InOrder).await?;
        cluster.wait_meshed(&first).await?;
        join(&mut cluster, checks, (3, &first)).await
    };
    tally.during(loader, (&first, 20.0), away).await?;
    let all = cluster.lab.all();
    cluster.wait_meshed(&all).await?;
    tally.finish(&mut cluster, checks, &all).await
}

/// A token is worth nothing a while after its pod is gone: members are given new ones, in time, as
/// a kubelet does; then the pod of the old ones goes, and the API server is started anew.
pub(super) async fn token(world: &mut World, checks: &mut Checks) -> Result<(), SuiteError> {
    let spec = alike(3).with_nginx(&[1]);
    let mut cluster = Cluster::new(world, "token", spec).await?;
    let first = [0, 1];
    let core = cluster.core();
    let helper = crate::objects::pod("keeper", "keeper", "node-1");
    cluster.world.kubelets.add("node-1").await?;
    let pods = format!("{core}/pods");
    cluster.api().create(&pods, &helper).await?;
    for i in first {
        cluster.make_pod(i, "node-1").await?;
        cluster.renew_token(i, "keeper").await?;
        cluster.set_ready(i, true).await?;
        cluster.lab.start_member(i).await?;
    }
    cluster.wait_meshed(&first).await?;
    let (mut tally, loader) = (Tally::default(), cluster.lab.loader());
    let renewed = async {
        let old = cluster.world.plane.kubeconfig_of(&cluster.token(0)?)?;
        for i in first {
            cluster.renew_own_token(i).await?;
        }
        let keeper = format!("{core}/pods/keeper");
        cluster.api().delete(&keeper, Some(0)).await?;
        cluster.world.plane.kill_api();
        cluster.world.plane.start_api().await?;
        let old = crate::api::Api::new(&old).await?;
        let start = Instant::now();
        while !old
            .get(&cluster.slices())
            .await
            .is_err_and(|e| e.is_status(401))
        {
            if start.elapsed() > PATIENCE {
                return Err(late("the refusal of an old token".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        checks.fact("the old token is refused after, ms", ms(start.elapsed()));
        let watch = Watch::new(&cluster, 2, &first);
        let (found, started) = tokio::join!(watch.joined(), cluster.start_pod(2));
        started?;
        let what = "a pod that comes then is a peer after, ms";
        checks.within(what, ms(found?.after), 0, BACK_MS_MAX);
        Ok(())
    };
    tally.during(loader, (&first, 40.0), renewed).await?;
    let all = cluster.lab.all();
    cluster.wait_meshed(&all).await?;
    tally.finish(&mut cluster, checks, &all).await
}
