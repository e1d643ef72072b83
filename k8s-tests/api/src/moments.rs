//! How soon a change of slices reaches members.
//!
//! Owns: nothing. Promises: each time is counted from when the API itself first showed the change.
//! Never: changes anything.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use gabion_loader::local::http;
use gabion_netlab::net::address;
use serde_json::Value;

use crate::api::Api;
use crate::cluster::{late, Cluster};
use crate::limits::{HEARTBEAT, LOOK_EVERY, PATIENCE, SILENT_MS_MAX};
use crate::objects;
use crate::SuiteError;

/// Looks for one address in the slices of a namespace, and at members that are to know it.
#[derive(Clone, Debug)]
pub struct Watch {
    api: Api,
    slices: String,
    address: Ipv4Addr,
    members: Vec<SocketAddr>,
}

/// When a pod came.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// When the last of the other members had it as a peer.
    pub known: Instant,
    /// From the slice until then.
    pub after: Duration,
}

/// Whole milliseconds.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

async fn has_peer(member: SocketAddr, address: Ipv4Addr) -> bool {
    // a member that is starting or ending does not answer
    let snapshot = http::get_json(member, "/snapshot").await.ok();
    let peers = snapshot.as_ref().and_then(|it| it.pointer("/gossip/peers"));
    let peers = peers.and_then(Value::as_array).into_iter().flatten();
    let start = format!("{address}:");
    let is_it = |peer: &Value| {
        let there = peer["address"].as_str();
        peer["configured"] == true && there.is_some_and(|there| there.starts_with(&start))
    };
    peers.into_iter().any(is_it)
}

impl Watch {
    /// For the pod in slot `i`, and what `others` know of it. A value of its own: it can look while
    /// the cluster changes.
    pub fn new(cluster: &Cluster<'_>, i: usize, others: &[usize]) -> Watch {
        let members = others.iter().filter(|other| **other != i);
        let members = members.map(|other| cluster.lab.members[*other].admin());
        Watch {
            api: cluster.api().clone(),
            slices: cluster.slices(),
            address: address(i),
            members: members.collect(),
        }
    }

    async fn is_named(&self) -> Result<bool, SuiteError> {
        let slices = self.api.get(&self.slices).await?;
        Ok(objects::endpoints(&slices).contains_key(&self.address))
    }

    /// Waits until a slice names the address, or none does any more; gives when that was seen.
    ///
    /// # Errors
    /// It does not come to that in time.
    pub async fn until_named(&self, is_named: bool) -> Result<Instant, SuiteError> {
        let start = Instant::now();
        while self.is_named().await? != is_named {
            if start.elapsed() > PATIENCE {
                return Err(late(format!("a slice with {}: {is_named}", self.address)));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Instant::now())
    }

    /// Waits until a slice names the address and all members have it as a peer.
    ///
    /// # Errors
    /// It does not come to that in time.
    pub async fn joined(self) -> Result<Joined, SuiteError> {
        let named = self.until_named(true).await?;
        let mut known = named;
        for member in &self.members {
            while !has_peer(*member, self.address).await {
                if named.elapsed() > PATIENCE {
                    let what = format!("{} is no peer of {member}", self.address);
                    return Err(late(what));
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
            known = Instant::now();
        }
        Ok(Joined {
            known,
            after: known - named,
        })
    }
}

/// Waits until nobody has sent to slot `i` for three heartbeats, and gives how long after `gone`
/// the last datagram was.
///
/// # Errors
/// They never stop, or are not counted ([`gabion_netlab::net::Net::count_to`]).
pub async fn silent_after(
    cluster: &Cluster<'_>,
    i: usize,
    gone: Instant,
) -> Result<Duration, SuiteError> {
    let at_least = Duration::from_millis(SILENT_MS_MAX) + HEARTBEAT;
    let (mut last, mut seen) = (gone, cluster.lab.net.sent_to(i)?);
    while gone.elapsed() < at_least || last.elapsed() < 3 * HEARTBEAT {
        if gone.elapsed() > PATIENCE {
            return Err(late(format!("silence towards member {}", i + 1)));
        }
        tokio::time::sleep(5 * LOOK_EVERY).await;
        let now = cluster.lab.net.sent_to(i)?;
        if now != seen {
            (last, seen) = (Instant::now(), now);
        }
    }
    Ok(last - gone)
}
