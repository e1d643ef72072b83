//! What discovery costs.

use std::net::{Ipv4Addr, SocketAddr};

use gabion_netlab::checks::Checks;
use gabion_netlab::lab::until;
use gabion_netlab::member::{Member, Usage};
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
    compare(&cluster, checks).await;
    // amid strangers they still decide, and find each other
    let mut tally = Tally::default();
    tally.load(&cluster, &[0], (100.0, 1.0)).await?;
    cluster.lab.check_health(checks).await?;
    tally.check(checks);
    let named = cluster.endpoints(Some(SERVICE)).await?.len();
    checks.within("own endpoints", named as u64, 4, 4);
    cluster.world.plane.check()
}

/// What all members use now.
fn usage(cluster: &Cluster<'_>) -> Vec<Usage> {
    let members = cluster.lab.members.iter();
    members.map(Member::usage).collect()
}

/// The least of three rests: what a thousand peers cost that do not answer is much more, and varies
/// more, than what is looked for.
async fn compare(cluster: &Cluster<'_>, checks: &mut Checks) {
    let doors = [("gabiond", 0, 2), ("nginx", 1, 3)];
    let mut least = doors.map(|_| (u64::MAX, String::new()));
    let mut after = usage(cluster);
    for _ in 0..3 {
        let before = after;
        tokio::time::sleep(REST).await; // what is measured is a time at rest
        after = usage(cluster);
        for (least, (_, slices, file)) in least.iter_mut().zip(doors) {
            let spent = [slices, file].map(|i| after[i].ticks.saturating_sub(before[i].ticks));
            let more = spent[0].saturating_sub(spent[1]);
            if more < least.0 {
                let both = format!("{} and {}", spent[0] * 10, spent[1] * 10);
                *least = (more, both);
            }
        }
    }
    for ((ticks, both), (door, slices, file)) in least.into_iter().zip(doors) {
        let bytes = [slices, file].map(|i| after[i].resident_bytes);
        let what = format!("{door}: resident with slices and with a file, MiB");
        checks.fact(what, format!("{} and {}", bytes[0] >> 20, bytes[1] >> 20));
        let more = bytes[0].saturating_sub(bytes[1]) >> 10;
        let what = format!("{door}: more memory than with a file, KiB");
        checks.within(what, more, 0, DISCOVERY_BYTES_MAX >> 10);
        let what = format!("{door}: time at rest with slices and with a file, ms");
        checks.fact(what, both);
        let per_mille = ticks * 10 / REST.as_secs(); // a tick is 10 ms
        let what = format!("{door}: more time of a core at rest, per mille");
        checks.within(what, per_mille, 0, DISCOVERY_CORE_PER_MILLE_MAX);
    }
}
