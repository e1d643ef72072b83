//! Several sources as one.
//!
//! I own the union of sources. I promise that one source that is silent or wrong never holds up the
//! others. I never give the same set twice in a row.

use futures_util::stream::{self, select_all, StreamExt};

use crate::error::{to_log, DiscoveryError, Report, Thinned};
use crate::limits::MAX_PEERS;
use crate::{Health, PeerDiscovery, PeerSet, PeerStream};

/// The union of what several sources give: from the first one that answers, and again whenever the
/// union changes. At most [`MAX_PEERS`]; the rest is reported.
pub struct MergedPeers {
    sources: Vec<Box<dyn PeerDiscovery>>,
    remembered: PeerSet,
    report: Report,
}

impl MergedPeers {
    /// The union of `sources`; of none, the empty set.
    pub fn new(sources: Vec<Box<dyn PeerDiscovery>>) -> Self {
        MergedPeers {
            sources,
            remembered: PeerSet::new(),
            report: to_log(),
        }
    }

    /// Begins with what was known before: until each source has given its first set, these are
    /// peers, too. So whoever goes on for another loses no peer while a source cannot be asked.
    pub fn remembering(mut self, peers: PeerSet) -> Self {
        self.remembered = peers;
        self
    }

    /// Reports problems to `report` instead of the log.
    pub fn reporting(mut self, report: Report) -> Self {
        self.report = report;
        self
    }
}

/// What the sources gave last.
struct Union {
    /// `None`: not yet anything.
    latest: Vec<Option<PeerSet>>,
    remembered: PeerSet,
    /// The union last given.
    last: Option<PeerSet>,
    thinned: Thinned,
}

impl Union {
    /// The union, if it is not the one that was given last.
    fn change(&mut self) -> Option<PeerSet> {
        if self.latest.iter().all(Option::is_some) {
            self.remembered.clear();
        }
        let told = self.latest.iter().flatten().flatten();
        let mut union: PeerSet = told.chain(&self.remembered).copied().collect();
        if union.len() > MAX_PEERS {
            let found = union.len();
            self.thinned.report(DiscoveryError::TooMany { found });
            union = union.into_iter().take(MAX_PEERS).collect();
        }
        if self.last.as_ref() == Some(&union) {
            return None;
        }
        self.last = Some(union.clone());
        Some(union)
    }
}

impl PeerDiscovery for MergedPeers {
    fn peers(self: Box<Self>) -> PeerStream {
        let mut union = Union {
            latest: vec![None; self.sources.len()],
            remembered: self.remembered,
            last: None,
            thinned: Thinned::new(self.report, Health::new("all", &[])),
        };
        let none = self.sources.is_empty();
        let first = (none || !union.remembered.is_empty()).then(|| union.change());
        let tagged = self.sources.into_iter().enumerate().map(|(i, source)| {
            // A source that ends must not end the others, nor its own last set.
            source
                .peers()
                .map(move |set| (i, set))
                .chain(stream::pending())
                .boxed()
        });
        let later = select_all(tagged).map(move |(i, set)| {
            union.latest[i] = Some(set);
            union.change()
        });
        let all = stream::iter(first).chain(later).chain(stream::pending());
        Box::pin(all.filter_map(std::future::ready))
    }

    fn health(&self) -> Vec<Health> {
        self.sources
            .iter()
            .flat_map(|source| source.health())
            .collect()
    }
}
