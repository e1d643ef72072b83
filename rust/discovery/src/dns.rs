//! Peers from a DNS name.
//!
//! I own when a name is resolved and what an answer means for the peers. I promise that a name is
//! asked again by its time to live, within bounds; that a failure leaves the last peers in force
//! and is tried again within seconds; and that one family that cannot be resolved never hides the
//! other. I never speak DNS: `system` does, with hickory.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use futures_util::stream;
use tokio::time::Instant;

use crate::error::{to_log, DiscoveryError, Report, Thinned};
use crate::limits::{
    DNS_MAX_REFRESH_MS, DNS_MAX_RETRY_MS, DNS_MIN_REFRESH_MS, DNS_MIN_RETRY_MS,
    DNS_NEGATIVE_GRACE_MS, DNS_RESOLVE_TIMEOUT_MS, MAX_PEERS,
};
use crate::{canonical, usable, Health, PeerDiscovery, PeerSet, PeerStream};

mod system;

/// What one family (A or AAAA) of a name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Addresses, and how long they may be believed.
    Found(BTreeSet<IpAddr>, Duration),
    /// The answer is that there is none.
    Nothing,
    /// There was no answer.
    Failed(String),
}

/// What a name resolved to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) v4: Family,
    pub(crate) v6: Family,
}

pub(crate) type Resolving<'r> = Pin<Box<dyn Future<Output = Answer> + Send + 'r>>;

/// Resolves one name, again and again. Never fails for good.
pub(crate) trait Resolve: Send {
    fn resolve<'r>(&'r mut self, name: &'r str) -> Resolving<'r>;
}

/// All addresses of a name, A and AAAA, with one port: a Kubernetes headless service, or a list
/// kept in a zone. The system's resolver configuration and hosts file apply.
///
/// A member that has addresses of both families is named twice; `node` knows it by its node id.
pub struct DnsPeers {
    name: String,
    port: u16,
    report: Report,
    resolver: Box<dyn Resolve>,
    health: Health,
}

impl DnsPeers {
    /// Peers at `port` of every address of `name`.
    pub fn new(name: impl Into<String>, port: u16) -> Self {
        DnsPeers {
            name: name.into(),
            port,
            report: to_log(),
            resolver: Box::new(system::System::new(Vec::new())),
            health: Health::new("dns", &["resolve", "no_address", "too_many"]),
        }
    }

    /// Peers from a text `name:port`.
    ///
    /// # Errors
    /// [`DiscoveryError::NoName`] when it is none, or the port is 0.
    pub fn parse(text: &str) -> Result<Self, DiscoveryError> {
        let no_name = || DiscoveryError::NoName {
            text: text.chars().take(64).collect(),
        };
        let (name, port) = text.rsplit_once(':').ok_or_else(no_name)?;
        let port = port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(no_name)?;
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if name.is_empty() || name.len() > 254 || !plain {
            return Err(no_name());
        }
        Ok(DnsPeers::new(name, port))
    }

    /// Asks these name servers instead of the system's.
    pub fn asking(mut self, servers: Vec<SocketAddr>) -> Self {
        self.resolver = Box::new(system::System::new(servers));
        self
    }

    /// Reports problems to `report` instead of the log.
    pub fn reporting(mut self, report: Report) -> Self {
        self.report = report;
        self
    }

    #[cfg(test)]
    fn resolving(mut self, resolver: impl Resolve + 'static) -> Self {
        self.resolver = Box::new(resolver);
        self
    }
}

impl PeerDiscovery for DnsPeers {
    fn peers(self: Box<Self>) -> PeerStream {
        let watch = Watch {
            known: Known::default(),
            name: self.name,
            port: self.port,
            thinned: Thinned::new(self.report, self.health.clone()),
            health: self.health,
            resolver: self.resolver,
            last: None,
            pause: Duration::ZERO,
        };
        Box::pin(stream::unfold(watch, |mut watch| async move {
            let set = watch.next().await;
            Some((set, watch))
        }))
    }

    fn health(&self) -> Vec<Health> {
        vec![self.health.clone()]
    }
}

struct Watch {
    known: Known,
    name: String,
    port: u16,
    thinned: Thinned,
    health: Health,
    resolver: Box<dyn Resolve>,
    /// The set last given.
    last: Option<PeerSet>,
    pause: Duration,
}

impl Watch {
    async fn next(&mut self) -> PeerSet {
        loop {
            tokio::time::sleep(self.pause).await;
            let answer = self.ask().await;
            self.say(&answer);
            self.pause = self.known.take(answer, Instant::now());
            if let Some(set) = self.changed() {
                return set;
            }
        }
    }

    async fn ask(&mut self) -> Answer {
        if let Ok(ip) = self.name.parse::<IpAddr>() {
            let found = Family::Found(
                BTreeSet::from([ip]),
                Duration::from_millis(DNS_MAX_REFRESH_MS),
            );
            return Answer {
                v4: found,
                v6: Family::Nothing,
            };
        }
        let limit = Duration::from_millis(DNS_RESOLVE_TIMEOUT_MS);
        let answer = tokio::time::timeout(limit, self.resolver.resolve(&self.name)).await;
        answer.unwrap_or_else(|_| {
            let failed = || Family::Failed(format!("no answer within {} s", limit.as_secs()));
            Answer {
                v4: failed(),
                v6: failed(),
            }
        })
    }

    fn say(&mut self, answer: &Answer) {
        let name = self.name.clone();
        match (&answer.v4, &answer.v6) {
            (Family::Failed(why), _) | (_, Family::Failed(why)) => {
                self.thinned.report(DiscoveryError::Resolve {
                    name,
                    why: why.clone(),
                });
            }
            (Family::Nothing, Family::Nothing) => {
                self.thinned.report(DiscoveryError::NoAddress { name });
            }
            _ => {
                self.thinned.clear();
                self.health.fresh();
            }
        }
    }

    fn changed(&mut self) -> Option<PeerSet> {
        let mut set = self.known.set(self.port)?;
        if set.len() > MAX_PEERS {
            self.thinned
                .report(DiscoveryError::TooMany { found: set.len() });
            set = set.into_iter().take(MAX_PEERS).collect();
        }
        if self.last.as_ref() == Some(&set) {
            return None;
        }
        self.health.found(set.len());
        self.last = Some(set.clone());
        Some(set)
    }
}

/// What is believed about a name.
#[derive(Debug, Default)]
struct Known {
    v4: BTreeSet<IpAddr>,
    v6: BTreeSet<IpAddr>,
    /// Whether any answer came, also an empty one.
    answered: bool,
    /// Since when every answer has been that there is nothing.
    nothing_since: Option<Instant>,
    /// Resolutions in a row that gave nothing to believe.
    fruitless: u32,
}

impl Known {
    /// Takes an answer; gives the pause until the next question.
    fn take(&mut self, answer: Answer, now: Instant) -> Duration {
        let Answer { v4, v6 } = answer;
        if v4 == Family::Nothing && v6 == Family::Nothing {
            // A name server that has just started, or a service between two roll-outs, says the
            // same: the peers are given up only when it goes on.
            let since = *self.nothing_since.get_or_insert(now);
            let grace = Duration::from_millis(DNS_NEGATIVE_GRACE_MS);
            if !self.answered || now.duration_since(since) >= grace {
                self.v4.clear();
                self.v6.clear();
                self.answered = true;
            }
            return self.retry();
        }
        let found = |family: &Family| match family {
            Family::Found(_, ttl) => Some(*ttl),
            _ => None,
        };
        let ttl = [found(&v4), found(&v6)].into_iter().flatten().min();
        let Some(ttl) = ttl else {
            // Nothing was found and something failed: no reason to change anything.
            self.nothing_since = None;
            return self.retry();
        };
        for (family, known) in [(v4, &mut self.v4), (v6, &mut self.v6)] {
            match family {
                Family::Found(addresses, _) => *known = addresses,
                Family::Nothing => known.clear(),
                Family::Failed(_) => {}
            }
        }
        self.answered = true;
        self.nothing_since = None;
        self.fruitless = 0;
        let least = Duration::from_millis(DNS_MIN_REFRESH_MS);
        ttl.clamp(least, Duration::from_millis(DNS_MAX_REFRESH_MS))
    }

    fn retry(&mut self) -> Duration {
        let doubled = DNS_MIN_RETRY_MS.saturating_mul(1 << self.fruitless.min(16));
        self.fruitless = self.fruitless.saturating_add(1);
        Duration::from_millis(doubled.min(DNS_MAX_RETRY_MS))
    }

    /// The peers; `None` while there has been no answer.
    fn set(&self, port: u16) -> Option<PeerSet> {
        let address = |ip: &IpAddr| canonical(SocketAddr::new(*ip, port));
        let all = self.v4.iter().chain(&self.v6).map(address).filter(usable);
        self.answered.then(|| all.collect())
    }
}

#[cfg(test)]
mod tests;
