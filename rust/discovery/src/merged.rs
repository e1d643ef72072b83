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
    report: Report,
}

impl MergedPeers {
    /// The union of `sources`; of none, the empty set.
    pub fn new(sources: Vec<Box<dyn PeerDiscovery>>) -> Self {
        MergedPeers {
            sources,
            report: to_log(),
        }
    }

    /// Reports problems to `report` instead of the log.
    pub fn reporting(mut self, report: Report) -> Self {
        self.report = report;
        self
    }
}

impl PeerDiscovery for MergedPeers {
    fn peers(self: Box<Self>) -> PeerStream {
        if self.sources.is_empty() {
            return Box::pin(stream::iter([PeerSet::new()]).chain(stream::pending()));
        }
        let mut latest: Vec<PeerSet> = vec![PeerSet::new(); self.sources.len()];
        let mut last: Option<PeerSet> = None;
        let mut thinned = Thinned::new(self.report, Health::new("all", &[]));
        let tagged = self.sources.into_iter().enumerate().map(|(i, source)| {
            // A source that ends must not end the others, nor its own last set.
            source
                .peers()
                .map(move |set| (i, set))
                .chain(stream::pending())
                .boxed()
        });
        Box::pin(select_all(tagged).filter_map(move |(i, set)| {
            latest[i] = set;
            let mut union: PeerSet = latest.iter().flatten().copied().collect();
            if union.len() > MAX_PEERS {
                thinned.report(DiscoveryError::TooMany { found: union.len() });
                union = union.into_iter().take(MAX_PEERS).collect();
            }
            let changed = last.as_ref() != Some(&union);
            if changed {
                last = Some(union.clone());
            }
            std::future::ready(changed.then_some(union))
        }))
    }

    fn health(&self) -> Vec<Health> {
        self.sources
            .iter()
            .flat_map(|source| source.health())
            .collect()
    }
}
