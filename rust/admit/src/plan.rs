//! An algorithm, made ready to decide.

use crate::{GcraPlan, Pacing, WindowPlan};
use gabion_rule::Algorithm;

/// Numbers precomputed from an [`Algorithm`], so that a decision is a handful of integer
/// operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Fixed or sliding window.
    Window(WindowPlan),
    /// Token bucket.
    Gcra(GcraPlan),
}

impl Plan {
    /// Never fails: zero times and limits are read as 1, more buckets than the bound as the bound
    /// (a validated rule has neither).
    pub fn new(algorithm: &Algorithm) -> Plan {
        match *algorithm {
            Algorithm::Window {
                limit,
                window_ns,
                bucket_ns,
                sliding,
            } => Plan::Window(WindowPlan::new(limit, window_ns, bucket_ns, sliding)),
            Algorithm::TokenBucket {
                hits,
                per_ns,
                burst,
                epoch_ns,
            } => Plan::Gcra(GcraPlan::new(hits, per_ns, burst, epoch_ns)),
        }
    }

    /// The same plan under `pacing`. Token buckets have none: `burst` and a pace other than `fast`
    /// are refused together.
    pub fn paced(self, pacing: Pacing) -> Plan {
        match self {
            Plan::Window(window) => Plan::Window(window.with_pacing(pacing)),
            Plan::Gcra(_) => self,
        }
    }

    /// How the members share it.
    pub fn pacing(&self) -> Pacing {
        match self {
            Plan::Window(window) => window.pacing,
            Plan::Gcra(_) => Pacing::Fast,
        }
    }

    /// The window's limit, or the token bucket's depth.
    #[inline]
    pub fn limit(&self) -> u32 {
        match self {
            Plan::Window(w) => w.limit,
            Plan::Gcra(g) => g.burst(),
        }
    }

    /// The epoch (bucket number since the Unix epoch) that `now_ns` is in.
    #[inline]
    pub fn epoch_of(&self, now_ns: u64) -> u64 {
        match self {
            Plan::Window(w) => w.split(now_ns).0,
            Plan::Gcra(g) => g.split(now_ns).0,
        }
    }

    /// Length of an epoch, ns.
    #[inline]
    pub fn epoch_ns(&self) -> u64 {
        match self {
            Plan::Window(w) => w.bucket_ns,
            Plan::Gcra(g) => g.epoch_ns(),
        }
    }

    /// How many epochs still count, the current one included: B for `live`, B+1 for `strict` and
    /// `weighted`, 2 for token buckets. spec: adm-4
    #[inline]
    pub fn live_epochs(&self) -> u32 {
        match self {
            Plan::Window(w) => u32::from(w.closed) + 1,
            Plan::Gcra(_) => 2,
        }
    }

    /// ns from `now_ns` to the end of its epoch; at least 1.
    #[inline]
    pub fn epoch_rest_ns(&self, now_ns: u64) -> u64 {
        let into = match self {
            Plan::Window(w) => w.split(now_ns).1,
            Plan::Gcra(g) => g.split(now_ns).1,
        };
        self.epoch_ns() - into
    }
}
