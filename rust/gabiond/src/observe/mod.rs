//! What is seen of single decisions: how long they take, which keys are used most, who is denied.
//!
//! I own the sampling of decisions and what becomes of the samples. I promise that a decision never
//! waits for me: it copies a short text into a queue that drops when it is full, takes no lock,
//! calls no system and allocates nothing. I hold a bounded number of keys. I never decide.

mod decisions;
mod denials;
mod keys;
mod latency;
mod own_words;
mod sampler;
mod text;
mod traces;
mod values;

use std::time::{Duration, Instant};

use gabion_admit::Reading;
use gabion_rule::{CounterIdentity, Key};

pub use denials::Gate;
pub use keys::{KeyUse, TopKeys, HALF_LIFE_S};
pub use latency::{Latency, BOUNDS_NS};
pub use traces::{Call, Traces};

use crate::config::Observe;
use crate::protocol::RateLimitDescriptor;
use crate::tally::Said;
pub(crate) use decisions::{are_shown as decisions_are_shown, TARGET as DECISIONS_TARGET};
use denials::Denials;
pub(crate) use denials::TARGET as DENIALS_TARGET;
use keys::Keys;
pub(crate) use own_words::SHOWN;
pub use own_words::{OwnWords, Take};
pub(crate) use text::{fnv1a, pair, Shower, FNV_START};
pub use values::{Counted, Values, Verdict};

/// How often queues are emptied.
pub const DRAIN_EVERY: Duration = Duration::from_millis(100);

/// Watches decisions; lives as long as the process, over reloads.
#[derive(Debug)]
pub struct Observer {
    every: u32,
    shower: Shower,
    latency: Latency,
    keys: Option<Keys>,
    denials: Denials,
    traces: Option<Traces>,
}

/// One decision that is going on; [`Observer::end`] takes it.
#[must_use]
#[derive(Debug)]
pub struct Watch(Option<Instant>);

/// What one rule said about one descriptor of a request.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Name of the rule, or of the limit that the request brought.
    pub rule: &'a str,
    /// Its domain.
    pub domain: &'a str,
    /// Its counters.
    pub identity: &'a CounterIdentity,
    /// Which of them.
    pub key: Key,
    /// The reset era it is of.
    pub era: u32,
    /// What the rule counts by: the descriptor, or what it picks of it.
    pub entries: &'a [(&'a [u8], &'a [u8])],
    /// What was asked about.
    pub descriptor: &'a RateLimitDescriptor,
    /// What the rule said.
    pub said: Said,
    /// Hits the request asked for.
    pub hits: u64,
    /// The counter at that moment.
    pub reading: Reading,
    /// Nanoseconds until a denied request may come again.
    pub wait_ns: u64,
    /// Cluster time, nanoseconds.
    pub now_ns: u64,
    /// The rule's share of the denial log.
    pub gate: &'a Gate,
    /// What the rule wants the log to say.
    pub log: OwnWords<'a>,
}

impl Watch {
    /// Whether this decision is looked at closely.
    #[inline]
    pub fn looks(&self) -> bool {
        self.0.is_some()
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::new(&Observe::default())
    }
}

impl Observer {
    /// Watches as configured.
    pub fn new(settings: &Observe) -> Self {
        Self {
            every: settings.sample,
            shower: Shower::new(settings.values_shown),
            latency: Latency::default(),
            keys: settings.keys.then(Keys::default),
            denials: Denials::new(settings.denials_per_second),
            traces: None,
        }
    }

    /// The same observer, which sends traces, too.
    pub fn tracing_to(mut self, traces: Option<Traces>) -> Self {
        self.traces = traces;
        self
    }

    /// Where calls are traced; `None`: nowhere.
    pub fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    /// A decision begins.
    #[inline]
    pub fn begin(&self) -> Watch {
        Watch(sampler::is_due(self.every).then(Instant::now))
    }

    /// Looks at one charge of a decision.
    #[inline]
    pub fn saw(&self, watch: &Watch, seen: &Seen<'_>) {
        if watch.looks() {
            if let Some(keys) = &self.keys {
                keys.note(seen, &self.shower);
            }
        }
        if seen.said != Said::Allowed {
            self.denials.note(seen, &self.shower);
        }
        if decisions::are_shown() {
            decisions::show(seen, &self.shower);
        }
    }

    /// How descriptors are shown.
    pub(crate) fn shower(&self) -> &Shower {
        &self.shower
    }

    /// The decision is over.
    #[inline]
    pub fn end(&self, watch: Watch) {
        if let Some(start) = watch.0 {
            self.latency.note(start.elapsed());
        }
    }

    /// How long sampled decisions took.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// One in so many decisions is looked at closely.
    pub fn sample_every(&self) -> u32 {
        self.every
    }

    /// The most used keys of some counters in an era; `None` when keys are not sampled.
    pub fn top(&self, identity: &CounterIdentity, era: u32, most: usize) -> Option<TopKeys> {
        self.keys.as_ref().map(|keys| {
            keys.drain(self.every);
            keys.top(identity, era, most)
        })
    }

    /// Key samples that found their queue full.
    pub fn samples_dropped(&self) -> u64 {
        self.keys.as_ref().map_or(0, Keys::dropped)
    }

    /// Keys held now.
    pub fn keys_held(&self) -> usize {
        self.keys.as_ref().map_or(0, Keys::held)
    }

    /// Denials that were written to the log, and those that were thinned out.
    pub fn denials_logged(&self) -> (u64, u64) {
        self.denials.counts()
    }

    /// Empties the queues: keys into their sketches, denials into the log.
    pub fn drain(&self) {
        self.denials.write();
        if let Some(keys) = &self.keys {
            keys.drain(self.every);
        }
    }
}
