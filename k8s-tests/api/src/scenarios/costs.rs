//! What discovery costs.

use std::net::{Ipv4Addr, SocketAddr};

use gabion_netlab::checks::Checks;
use gabion_netlab::lab::until;
use gabion_netlab::member::Usage;
use gabion_netlab::net::GOSSIP_PORT;

use super::tally::{alike, Tally};
use crate::cluster::{Cluster, World, SERVICE};
use crate::limits::{DISCOVERY_BYTES_MAX, DISCOVERY_CORE_PER_MILLE_MAX, PATIENCE, REST, STRANGERS};
use crate::objects;
use crate::SuiteError;

/// Endpoints in one slice, as many as Kubernetes' controller writes by default.
const IN_A_SLICE: usize = 100;

/// Slots 0 and 1 read a thousand endpoints from slices, 2 and 3 the same from a file: the
/// difference is what slices cost. Nobody is behind these addresses.
pub(super) async fn many_endpoints(
    world: &mut World,
    checks: &mut Checks,
) -> Result<(), SuiteError> {
    let spec = alike(4).with_nginx(&[1, 3]);
    let mut cluster = Cluster::new(world, "many-endpoints", spec).await?;
    let addresses: Vec<Ipv4Addr> = (0..STRANGERS)
        .map(|i| Ipv4Addr::from(0x0a4e_0100 + u32::try_from(i).unwrap_or_default()))
        .collect();
    for (n, some) in addresses.chunks(IN_A_SLICE).enumerate() {
        let slice = objects::slice(&format!("strangers-{n}"), "strangers", some);
        cluster.api().create(&cluster.slices(), &slice).await?;
    }
    let peers: Vec<_> = addresses
        .iter()
        .map(|ip| SocketAddr::from((*ip, GOSSIP_PORT)))
        .collect();
    for i in cluster.lab.all() {
        cluster.lab.net.swallow(i, "10.78.0.0/16")?;
        match i {
            0 | 1 => cluster.look_at(i, &["strangers"]),
            _ => cluster.read_file(i, &peers)?,
        }
        cluster.start_pod(i).await?;
    }
    for i in cluster.lab.all() {
        let member = &cluster.lab.members[i];
        let what = format!("{STRANGERS} peers of member {}", i + 1);
        let found = until(&what, PATIENCE, || async {
            let snapshot = member.snapshot().await?;
            let n = snapshot["gossip"]["discovered_peers"].as_u64();
            Ok(match n.and_then(|n| usize::try_from(n).ok()) {
                Some(n) if n >= STRANGERS => Ok(n),
                _ => Err(format!("{n:?}")),
            })
        });
        checks.fact(format!("peers of member {}", i + 1), found.await?);
    }
    let usage = |cluster: &Cluster<'_>| -> Vec<Usage> {
        let members = cluster.lab.members.iter();
        members.map(gabion_netlab::member::Member::usage).collect()
    };
    let before = usage(&cluster);
    tokio::time::sleep(REST).await; // what is measured is a time at rest
    let after = usage(&cluster);
    for (door, slices, file) in [("gabiond", 0, 2), ("nginx", 1, 3)] {
        let bytes = after[slices].resident_bytes;
        let more = bytes.saturating_sub(after[file].resident_bytes);
        let what = format!("{door}: more memory than with a file, KiB");
        checks.within(what, more >> 10, 0, DISCOVERY_BYTES_MAX >> 10);
        let spent = |i: usize| after[i].ticks - before[i].ticks;
        let more = spent(slices).saturating_sub(spent(file));
        let per_mille = more * 10 / REST.as_secs(); // a tick is 10 ms
        let what = format!("{door}: more time of a core at rest, per mille");
        checks.within(what, per_mille, 0, DISCOVERY_CORE_PER_MILLE_MAX);
    }
    // amid strangers they still decide, and find each other
    let mut tally = Tally::default();
    tally.load(&cluster, &[0], (100.0, 1.0)).await?;
    cluster.lab.check_health(checks).await?;
    tally.check(checks);
    let named = cluster.endpoints(Some(SERVICE)).await?.len();
    checks.within("own endpoints", named as u64, 4, 4);
    cluster.world.plane.check()
}
