//! Peers from the EndpointSlices of Kubernetes.
//!
//! I own which slices are watched and what they mean for the peers. I promise that a peer is known
//! as soon as its slice is, and given up as soon as it has left; that one pod is one peer, however
//! many slices, families and Services name it; that pods that are not ready are peers, since gossip
//! is no traffic; and that nothing the API server does or fails to do takes the last peers away. I
//! never write to the API server, and I ask for nothing but EndpointSlices.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use futures_util::future::FutureExt;
use futures_util::stream::{self, select_all, SelectAll, StreamExt};

use crate::error::{to_log, DiscoveryError, Report, Thinned};
use crate::limits::{MAX_NAMESPACES, MAX_PEERS, MAX_SERVICES};
use crate::{canonical, Health, PeerDiscovery, PeerSet, PeerStream};

mod advice;
mod known;
mod kubeconfig;
mod place;
mod pod;
mod retry;
mod slice;
mod space;
mod tap;
mod words;

use known::{Known, Own};
pub use place::Place;
use retry::Jitter;
use space::{Access, News, Space};
use tap::Line;
pub use words::{namespace, GossipPort, ServiceName};

/// The kinds of failure that metrics show; `docs/operating.md` says what to do about each.
const KINDS: [&str; 14] = [
    "access",
    "broken_off",
    "expired",
    "forbidden",
    "garbage",
    "no_port",
    "no_service",
    "not_found",
    "reset",
    "server_error",
    "throttled",
    "too_many",
    "unauthorized",
    "unreachable",
];

/// What to watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Namespaces; none: the member's own. At most [`crate::limits::MAX_NAMESPACES`].
    pub namespaces: Vec<String>,
    /// Services; none: every one that has the port. At most [`crate::limits::MAX_SERVICES`].
    pub services: Vec<ServiceName>,
    /// The port of gossip.
    pub port: GossipPort,
}

impl Watched {
    /// Whether the settings fit together.
    ///
    /// # Errors
    /// [`DiscoveryError::Watched`] when they do not, or name too much.
    pub fn check(&self) -> Result<(), DiscoveryError> {
        let why = |why: String| Err(DiscoveryError::Watched { why });
        if self.namespaces.len() > MAX_NAMESPACES || self.services.len() > MAX_SERVICES {
            return why(format!(
                "at most {MAX_NAMESPACES} namespaces and {MAX_SERVICES} Services can be watched"
            ));
        }
        let outside = self.services.iter().find(|service| {
            let namespace = service.namespace();
            !self.namespaces.is_empty()
                && namespace.is_some_and(|name| !self.namespaces.iter().any(|own| own == name))
        });
        match outside {
            Some(service) => why(format!(
                "namespace_allow lacks the namespace of Service {service}; add it there, or leave \
                 namespace_allow out"
            )),
            None => Ok(()),
        }
    }

    /// The namespaces to watch; `None` is the member's own.
    fn spaces(&self) -> Vec<Option<String>> {
        if !self.namespaces.is_empty() {
            let named = self.namespaces.iter().collect::<BTreeSet<_>>().into_iter();
            return named.cloned().map(Some).collect();
        }
        let of_services = self
            .services
            .iter()
            .map(|service| service.namespace.clone());
        let mut all: BTreeSet<Option<String>> = of_services.collect();
        if all.is_empty() {
            all.insert(None);
        }
        all.into_iter().collect()
    }
}

/// The endpoints of Services, as the API server tells them.
pub struct KubernetesPeers {
    watched: Watched,
    access: Access,
    own: Own,
    capacity: usize,
    report: Report,
    health: Health,
    seed: u64,
}

impl KubernetesPeers {
    /// Watches what `watched` says, from where `place` is, for a member that is bound to `bind` and
    /// that peers know as `self_addr` or by the pod's address.
    pub fn new(
        watched: Watched,
        place: Place,
        bind: SocketAddr,
        self_addr: Option<SocketAddr>,
    ) -> Self {
        let own = Own::new(canonical(bind), self_addr.map(canonical), place.pod_ips());
        Self::over(watched, Access::At(Box::new(place)), own)
    }

    fn over(watched: Watched, access: Access, own: Own) -> Self {
        KubernetesPeers {
            watched,
            access,
            own,
            capacity: MAX_PEERS,
            report: to_log(),
            health: Health::new("kubernetes", &KINDS),
            seed: retry::any_seed(),
        }
    }

    /// Gives at most so many peers; the rest is left out and reported.
    pub fn capacity(mut self, peers: usize) -> Self {
        self.capacity = peers.min(MAX_PEERS);
        self
    }

    /// Reports problems to `report` instead of the log.
    pub fn reporting(mut self, report: Report) -> Self {
        self.report = report;
        self
    }

    /// Draws the lots of its pauses from this seed, so that a run can be had again.
    pub fn seeded(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

impl PeerDiscovery for KubernetesPeers {
    fn peers(self: Box<Self>) -> PeerStream {
        let thinned = || Thinned::new(self.report.clone(), self.health.clone());
        let names = self.watched.spaces();
        let mut spaces = Vec::with_capacity(names.len());
        let mut watches = Vec::with_capacity(names.len());
        for (index, name) in names.into_iter().enumerate() {
            let jitter = Jitter::new(self.seed.wrapping_add(index as u64));
            let services = match &name {
                Some(name) => words::within(&self.watched.services, name),
                None => self.watched.services.clone(),
            };
            if services.is_empty() && !self.watched.services.is_empty() {
                // Only Services of other namespaces are wanted.
                continue;
            }
            let space = Space::new(
                self.access.clone(),
                name.clone(),
                services,
                self.watched.port.clone(),
                thinned(),
                Line::new(self.health.clone(), jitter),
            );
            let at = spaces.len();
            spaces.push(name);
            watches.push(
                stream::unfold(space, move |mut space| async move {
                    let news = space.next().await;
                    Some(((at, news), space))
                })
                .boxed(),
            );
        }
        let follow = Follow {
            known: Known::new(self.watched, spaces, self.own, self.capacity),
            news: select_all(watches),
            missing: thinned(),
            portless: thinned(),
            crowded: thinned(),
            health: self.health,
            last: None,
        };
        Box::pin(stream::unfold(follow, |mut follow| async move {
            let set = follow.next().await?;
            Some((set, follow))
        }))
    }

    fn health(&self) -> Vec<Health> {
        vec![self.health.clone()]
    }
}

type Watch = stream::BoxStream<'static, (usize, News)>;

/// All watches, and what they have told.
struct Follow {
    known: Known,
    news: SelectAll<Watch>,
    missing: Thinned,
    portless: Thinned,
    crowded: Thinned,
    health: Health,
    /// The set last given.
    last: Option<PeerSet>,
}

impl Follow {
    /// The next set that differs from the last one.
    async fn next(&mut self) -> Option<PeerSet> {
        loop {
            let (at, news) = self.news.next().await?;
            self.known.take(at, news);
            // A roll-out changes many slices at once: what is here already is one change.
            while let Some(Some((at, news))) = self.news.next().now_or_never() {
                self.known.take(at, news);
            }
            let set = self.known.peers();
            self.say();
            if self.last.as_ref() != Some(&set) {
                self.health.found(set.len());
                self.last = Some(set.clone());
                return Some(set);
            }
        }
    }

    fn say(&mut self) {
        let problems = self.known.problems();
        for (thinned, problem) in [
            (&mut self.missing, problems.missing),
            (&mut self.portless, problems.portless),
            (&mut self.crowded, problems.crowded),
        ] {
            match problem {
                Some(problem) => thinned.report(problem),
                None => thinned.clear(),
            }
        }
    }
}

#[cfg(test)]
mod tests;
