//! What a source of peers says of itself while it runs.
//!
//! I own the numbers that operators see of discovery: how many peers, how old the knowledge is,
//! what failed. I promise that reading them disturbs no source. I never judge them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// Stands for "nothing yet".
const NONE: u64 = u64::MAX;

/// The numbers of one source; all clones are one.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: &'static str,
    began: Instant,
    peers: AtomicU64,
    /// Milliseconds from `began` to when the source last heard that its knowledge holds.
    fresh_ms: AtomicU64,
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

/// A source as it was when it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthView {
    /// `static`, `dns`, `file`, `kubernetes`, or the name that a foreign source gave.
    pub source: &'static str,
    /// Peers in the set it gave last; `None` before the first.
    pub peers: Option<u64>,
    /// Seconds since it last heard that its knowledge holds; `None`: never, or it cannot age.
    pub age_s: Option<f64>,
    /// Failures by kind ([`crate::DiscoveryError::kind`]), since the source was made.
    pub errors: Vec<(&'static str, u64)>,
}

impl Health {
    /// The numbers of a source with this name; it has found nothing yet. Failures of these kinds
    /// are shown from the start, at 0, so that the first one can be seen to come.
    pub fn new(source: &'static str, kinds: &[&'static str]) -> Self {
        Health(Arc::new(Inner {
            source,
            began: Instant::now(),
            peers: AtomicU64::new(NONE),
            fresh_ms: AtomicU64::new(NONE),
            errors: Mutex::new(kinds.iter().map(|kind| (*kind, 0)).collect()),
        }))
    }

    /// The source gave a set of so many peers.
    pub fn found(&self, peers: usize) {
        // Relaxed, here and below: numbers for people, which order nothing.
        self.0.peers.store(peers as u64, Ordering::Relaxed);
    }

    /// What the source knows was right just now.
    pub fn fresh(&self) {
        let ms = self.0.began.elapsed().as_millis();
        let ms = u64::try_from(ms).unwrap_or(NONE - 1);
        self.0.fresh_ms.store(ms, Ordering::Relaxed);
    }

    /// Something of this kind failed.
    pub fn failed(&self, kind: &'static str) {
        let mut errors = self.0.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let count = errors.entry(kind).or_default();
        *count = count.saturating_add(1);
    }

    /// The source as it is now.
    pub fn view(&self) -> HealthView {
        let some = |cell: &AtomicU64| Some(cell.load(Ordering::Relaxed)).filter(|n| *n != NONE);
        let errors = self.0.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = self.0.began.elapsed().as_millis();
        let age = |fresh_ms: u64| now_ms.saturating_sub(u128::from(fresh_ms)) as f64 / 1e3;
        HealthView {
            source: self.0.source,
            peers: some(&self.0.peers),
            age_s: some(&self.0.fresh_ms).map(age),
            errors: errors.iter().map(|(kind, count)| (*kind, *count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn knowledge_ages_until_it_is_confirmed() {
        let health = Health::new("test", &[]);
        assert_eq!(health.view().age_s, None);
        assert_eq!(health.view().peers, None);
        health.fresh();
        health.found(3);
        tokio::time::advance(std::time::Duration::from_millis(2_500)).await;
        let view = health.clone().view();
        assert_eq!((view.source, view.peers), ("test", Some(3)));
        assert_eq!(view.age_s, Some(2.5));
        health.fresh();
        assert_eq!(health.view().age_s, Some(0.0));
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let health = Health::new("test", &["c"]);
        health.failed("b");
        health.failed("a");
        health.failed("b");
        assert_eq!(health.view().errors, [("a", 1), ("b", 2), ("c", 0)]);
    }
}
