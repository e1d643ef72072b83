//! The control plane alone: what the other scenarios build on.

use std::time::Instant;

use gabion_netlab::checks::Checks;

use super::tally::alike;
use crate::api::Api;
use crate::cluster::{Cluster, World, SERVICE};
use crate::moments::{ms, Watch};
use crate::SuiteError;

/// Slices are written by the controller, tokens get what the role says, and an API server that was
/// killed comes back with everything.
pub(super) async fn control_plane(
    world: &mut World,
    checks: &mut Checks,
) -> Result<(), SuiteError> {
    let mut cluster = Cluster::new(world, "control-plane", alike(2)).await?;
    for (i, is_ready) in [(0, true), (1, false)] {
        let watch = Watch::new(&cluster, i, &[]);
        let start = Instant::now();
        cluster.make_pod(i, "node-1").await?;
        cluster.set_ready(i, is_ready).await?;
        let named = watch.until_named(true).await?;
        let what = "the controller has named a pod after, ms";
        checks.fact(what, ms(named - start));
    }
    cluster.wait_slices(SERVICE, &[0, 1]).await?;
    let seen = cluster.endpoints(Some(SERVICE)).await?;
    let ready: Vec<bool> = seen.values().map(|(ready, _)| *ready).collect();
    // a Service that publishes addresses which are not ready calls them ready
    checks.holds(
        "both pods are named as ready",
        ready == [true, true],
        format!("{ready:?}"),
    );

    let token = cluster.token(0)?;
    let member = Api::new(&cluster.world.plane.kubeconfig_of(&token)?).await?;
    let slices = member.get(&cluster.slices()).await;
    checks.holds(
        "a pod's token reads slices",
        slices.is_ok(),
        answer(&slices),
    );
    let pods = member.get(&format!("{}/pods", cluster.core())).await;
    let refused = pods.as_ref().is_err_and(|e| e.is_status(403));
    checks.holds("and no pods", refused, answer(&pods));
    cluster.revoke().await?;
    let slices = member.get(&cluster.slices()).await;
    let refused = slices.as_ref().is_err_and(|e| e.is_status(403));
    checks.holds("without the role, no slices", refused, answer(&slices));
    let stranger = Api::new(&cluster.world.plane.kubeconfig_of("nobody")?).await?;
    let slices = stranger.get(&cluster.slices()).await;
    let refused = slices.as_ref().is_err_and(|e| e.is_status(401));
    checks.holds("a token of nobody is refused", refused, answer(&slices));

    cluster.world.plane.kill_api();
    let start = Instant::now();
    cluster.world.plane.start_api().await?;
    checks.fact("the API server starts again in, ms", ms(start.elapsed()));
    cluster.wait_slices(SERVICE, &[0, 1]).await?;
    let watch = Watch::new(&cluster, 1, &[]);
    cluster.drop_pod(1).await?;
    watch.until_named(false).await?;
    cluster.wait_slices(SERVICE, &[0]).await?;
    checks.holds(
        "the controller works on",
        true,
        "a pod is gone from its slice",
    );
    cluster.world.plane.check()
}

fn answer<T>(answer: &Result<T, SuiteError>) -> String {
    match answer {
        Ok(_) => "200".to_owned(),
        Err(error) => error.to_string().chars().take(120).collect(),
    }
}
