//! What the slices say, and the peers that follow from it.
//!
//! I own the step from slices to peers. I promise that it is a function of the slices alone, so
//! that members that see the same slices have the same peers; that a namespace that is not read yet
//! counts for nothing; and that a pod is one peer. I never ask anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use super::slice::Kept;
use super::space::News;
use super::words::{GossipPort, ServiceName};
use super::Watched;
use crate::error::DiscoveryError;
use crate::{canonical, usable, PeerSet};

/// The addresses of this very member.
#[derive(Clone, Debug)]
pub(super) struct Own {
    addresses: BTreeSet<SocketAddr>,
    /// The family that a pod is reached by when it has both.
    v6: bool,
}

impl Own {
    /// From the bound address, the one that peers know, and the pod's.
    pub(super) fn new(bind: SocketAddr, known_as: Option<SocketAddr>, pod: &[IpAddr]) -> Self {
        let of_pod = pod
            .iter()
            .map(|ip| canonical(SocketAddr::new(*ip, bind.port())));
        let first = known_as.map(|addr| addr.ip()).or(pod.first().copied());
        Own {
            // A socket of IPv4 reaches nobody by IPv6.
            v6: bind.is_ipv6() && first.is_none_or(|ip| ip.to_canonical().is_ipv6()),
            addresses: of_pod.chain(known_as).chain([bind]).collect(),
        }
    }
}

/// One namespace.
#[derive(Debug)]
struct Seen {
    /// `None`: the own one, whose name is not known yet.
    name: Option<String>,
    /// Whether its slices were read at all.
    listed: bool,
    slices: BTreeMap<Box<str>, Kept>,
}

/// All namespaces.
#[derive(Debug)]
pub(super) struct Known {
    services: Vec<ServiceName>,
    port: GossipPort,
    spaces: Vec<Seen>,
    own: Own,
    capacity: usize,
    /// Peers found at the last look, those without room included.
    found: usize,
}

/// What an operator should mend.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) missing: Option<DiscoveryError>,
    pub(super) portless: Option<DiscoveryError>,
    pub(super) crowded: Option<DiscoveryError>,
}

impl Known {
    pub(super) fn new(
        watched: Watched,
        spaces: Vec<Option<String>>,
        own: Own,
        capacity: usize,
    ) -> Self {
        let spaces = spaces.into_iter().map(|name| Seen {
            name,
            listed: false,
            slices: BTreeMap::new(),
        });
        Known {
            services: watched.services,
            port: watched.port,
            spaces: spaces.collect(),
            own,
            capacity,
            found: 0,
        }
    }

    /// Takes what the watch of the namespace at `at` told.
    pub(super) fn take(&mut self, at: usize, news: News) {
        let Some(space) = self.spaces.get_mut(at) else {
            return;
        };
        match news {
            News::All(name, slices) => {
                space.name = Some(name);
                space.listed = true;
                space.slices = slices;
            }
            News::One(name, kept) => {
                space.slices.insert(name, kept);
            }
            News::Gone(name) => {
                space.slices.remove(&name);
            }
        }
    }

    /// The peers, this member left out.
    pub(super) fn peers(&mut self) -> PeerSet {
        let mut alone = PeerSet::new();
        let mut pods: BTreeMap<&str, (SocketAddr, bool)> = BTreeMap::new();
        let v6 = self.own.v6;
        let rank = |addr: &SocketAddr| (addr.is_ipv6() != v6, *addr);
        for kept in self.spaces.iter().flat_map(|space| space.slices.values()) {
            let Ok(port) = kept.port else { continue };
            for end in &kept.ends {
                let addr = canonical(SocketAddr::new(end.ip, port));
                if !usable(&addr) {
                    continue;
                }
                let own = self.own.addresses.contains(&addr);
                match &end.pod {
                    None if !own => {
                        alone.insert(addr);
                    }
                    None => {}
                    Some(pod) => {
                        let (best, is_own) = pods.entry(pod).or_insert((addr, own));
                        *is_own |= own;
                        if rank(&addr) < rank(best) {
                            *best = addr;
                        }
                    }
                }
            }
        }
        let others = pods.into_values().filter(|(_, own)| !own);
        alone.extend(others.map(|(addr, _)| addr));
        self.found = alone.len();
        while alone.len() > self.capacity {
            alone.pop_last();
        }
        alone
    }

    /// What is wrong with what [`Known::peers`] looked at last.
    pub(super) fn problems(&self) -> Problems {
        if !self.spaces.iter().all(|space| space.listed) {
            return Problems::default();
        }
        Problems {
            missing: self.missing(),
            portless: self.portless(),
            crowded: self.crowded(),
        }
    }

    fn spaces_named(&self) -> String {
        let names = self.spaces.iter().filter_map(|space| space.name.as_deref());
        let names: Vec<&str> = names.collect();
        format!("namespace {}", names.join(", "))
    }

    /// The slices of a Service, with the namespace of each.
    fn of<'k>(&'k self, service: &'k ServiceName) -> impl Iterator<Item = &'k Kept> {
        let here = self.spaces.iter().filter(move |space| {
            let wanted = service.namespace();
            wanted.is_none() || wanted == space.name.as_deref()
        });
        here.flat_map(|space| space.slices.values())
            .filter(move |kept| *kept.service == *service.name)
    }

    fn missing(&self) -> Option<DiscoveryError> {
        let none = |services: String| {
            let namespaces = self.spaces_named();
            Some(DiscoveryError::NoService {
                services,
                namespaces,
            })
        };
        if self.services.is_empty() {
            let empty = self.spaces.iter().all(|space| space.slices.is_empty());
            return empty.then(|| "any Service".to_owned()).and_then(none);
        }
        let lost = self.services.iter();
        let lost = lost.filter(|service| self.of(service).next().is_none());
        let lost: Vec<String> = lost.map(|service| format!("Service {service}")).collect();
        match lost.as_slice() {
            [] => None,
            _ => none(lost.join(", ")),
        }
    }

    fn portless(&self) -> Option<DiscoveryError> {
        let all = || self.spaces.iter().flat_map(|space| space.slices.values());
        let (mut lacking, mut found): (Vec<String>, _) = (Vec::new(), None);
        if self.services.is_empty() {
            // Others may have whatever ports they like, as long as there are members.
            if all().any(|kept| kept.port.is_ok()) {
                return None;
            }
            if let Some(kept) = all().next() {
                lacking.push(format!("every Service in {}", self.spaces_named()));
                found = kept.port.as_ref().err();
            }
        }
        for service in &self.services {
            let mut slices = self.of(service).peekable();
            let first = slices.peek().and_then(|kept| kept.port.as_ref().err());
            if let (Some(ports), true) = (first, slices.all(|kept| kept.port.is_err())) {
                lacking.push(format!("Service {service}"));
                found = found.or(Some(ports));
            }
        }
        let found = found?.to_string();
        Some(DiscoveryError::NoPort {
            services: lacking.join(", "),
            port: self.port.to_string(),
            found,
        })
    }

    fn crowded(&self) -> Option<DiscoveryError> {
        if self.found <= self.capacity {
            return None;
        }
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for space in &self.spaces {
            let namespace = space.name.as_deref().unwrap_or_default();
            for kept in space.slices.values() {
                *counts.entry((namespace, &kept.service)).or_default() += kept.ends.len();
            }
        }
        let ((namespace, service), ends) = counts.into_iter().max_by_key(|(_, ends)| *ends)?;
        Some(DiscoveryError::TooManyEndpoints {
            found: self.found,
            capacity: self.capacity,
            largest: format!("Service {namespace}/{service} ({ends})"),
        })
    }
}
