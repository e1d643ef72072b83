//! Which keys are used most, per counter set: a space-saving sketch over sampled decisions.
//!
//! A sketch holds a fixed number of keys. A newcomer to a full one takes the place of the least
//! used key and inherits its count as its possible error, so that a heavy key is never missed.
//! Counts fade by half every minute: "most used" means lately.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use dashmap::DashMap;
use gabion_rule::{CounterIdentity, Key};

use super::text::{Shower, Text};
use super::Seen;
use crate::limits::{KEYS_PER_RULE, KEY_RULES, KEY_SAMPLES_QUEUED};
use crate::tally::Said;

/// Counts of keys are halved this often, seconds.
pub const HALF_LIFE_S: u64 = 60;

#[derive(Debug)]
struct Sample {
    identity: CounterIdentity,
    key: Key,
    era: u32,
    text: Text,
    hits: u32,
    limit: u32,
    over: bool,
}

/// One key of a sketch.
#[derive(Clone, Debug)]
pub struct KeyUse {
    /// Which counter.
    pub key: Key,
    /// The descriptor, cut to a length.
    pub text: String,
    /// Hits asked for lately, estimated from samples.
    pub hits: u64,
    /// Of `hits`, at most so many may be other keys'.
    pub hits_error: u64,
    /// Requests found over the limit lately, estimated from samples.
    pub over: u64,
    /// The limit that the last sampled request met.
    pub limit: u32,
}

/// The most used keys of one counter set.
#[derive(Clone, Debug, Default)]
pub struct TopKeys {
    /// Most used first.
    pub keys: Vec<KeyUse>,
    /// Keys held, of which `keys` are the first.
    pub held: usize,
}

#[derive(Debug)]
struct Entry {
    era: u32,
    text: Text,
    hits: u64,
    error: u64,
    over: u64,
    limit: u32,
}

type Sketch = HashMap<Key, Entry>;

#[derive(Debug)]
pub(super) struct Keys {
    queue: ArrayQueue<Sample>,
    dropped: AtomicU64,
    sketches: DashMap<CounterIdentity, Sketch>,
    /// Half-lives that have passed since `started`; also keeps two drains apart.
    faded: Mutex<u64>,
    started: Instant,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            queue: ArrayQueue::new(KEY_SAMPLES_QUEUED),
            dropped: AtomicU64::new(0),
            sketches: DashMap::new(),
            faded: Mutex::new(0),
            started: Instant::now(),
        }
    }
}

impl Keys {
    pub(super) fn note(&self, seen: &Seen<'_>, shower: &Shower) {
        if self.queue.is_full() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let sample = Sample {
            identity: *seen.identity,
            key: seen.key,
            era: seen.era,
            text: shower.entries(seen.entries.iter().copied()).0,
            hits: u32::try_from(seen.hits).unwrap_or(u32::MAX),
            limit: seen.reading.limit,
            over: seen.said != Said::Allowed,
        };
        if self.queue.push(sample).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn held(&self) -> usize {
        self.sketches.iter().map(|sketch| sketch.len()).sum()
    }

    /// Moves samples, each standing for `every` decisions, into the sketches.
    pub(super) fn drain(&self, every: u32) {
        let mut faded = self.faded.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.started.elapsed().as_secs() / HALF_LIFE_S;
        let halvings = now.saturating_sub(*faded);
        if halvings > 0 {
            self.fade(u32::try_from(halvings).unwrap_or(u32::MAX));
            *faded = now;
        }
        for _ in 0..KEY_SAMPLES_QUEUED {
            let Some(sample) = self.queue.pop() else {
                return;
            };
            self.take(sample, u64::from(every));
        }
    }

    fn take(&self, sample: Sample, weight: u64) {
        let room = self.sketches.len() < KEY_RULES;
        if !room && !self.sketches.contains_key(&sample.identity) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut sketch = self.sketches.entry(sample.identity).or_default();
        add(&mut sketch, sample, weight);
    }

    /// Halves everything so often, and forgets what is nothing then.
    fn fade(&self, halvings: u32) {
        let half = |count: u64| count.checked_shr(halvings).unwrap_or(0);
        self.sketches.retain(|_, sketch| {
            sketch.retain(|_, entry| {
                entry.hits = half(entry.hits);
                entry.error = half(entry.error);
                entry.over = half(entry.over);
                entry.hits > 0
            });
            !sketch.is_empty()
        });
    }

    /// Those of `era`; what was counted before a reset is no longer used.
    pub(super) fn top(&self, identity: &CounterIdentity, era: u32, most: usize) -> TopKeys {
        let Some(sketch) = self.sketches.get(identity) else {
            return TopKeys::default();
        };
        let mut keys: Vec<KeyUse> = sketch
            .iter()
            .filter(|(_, entry)| entry.era == era)
            .map(|(key, entry)| KeyUse {
                key: *key,
                text: entry.text.to_string(),
                hits: entry.hits,
                hits_error: entry.error,
                over: entry.over,
                limit: entry.limit,
            })
            .collect();
        keys.sort_by(|a, b| (b.hits, &a.text).cmp(&(a.hits, &b.text)));
        let held = keys.len();
        keys.truncate(most);
        TopKeys { keys, held }
    }
}

fn add(sketch: &mut Sketch, sample: Sample, weight: u64) {
    // A request that only reads uses its key, too.
    let hits = u64::from(sample.hits.max(1)).saturating_mul(weight);
    let over = u64::from(sample.over) * weight;
    if let Some(entry) = sketch.get_mut(&sample.key) {
        entry.hits = entry.hits.saturating_add(hits);
        entry.over = entry.over.saturating_add(over);
        entry.limit = sample.limit;
        return;
    }
    let mut error = 0;
    if sketch.len() >= KEYS_PER_RULE {
        let least = sketch.iter().min_by_key(|(_, entry)| entry.hits);
        if let Some((&key, entry)) = least {
            error = entry.hits;
            sketch.remove(&key);
        }
    }
    let entry = Entry {
        era: sample.era,
        text: sample.text,
        hits: error.saturating_add(hits),
        error,
        over,
        limit: sample.limit,
    };
    sketch.insert(sample.key, entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CounterIdentity = CounterIdentity([7; 16]);

    fn sample(identity: CounterIdentity, n: u64, hits: u32) -> Sample {
        Sample {
            identity,
            key: Key::new(n, n),
            era: 0,
            text: Text::from(&format!("k={n}")).unwrap(),
            hits,
            limit: 9,
            over: n == 1,
        }
    }

    #[test]
    fn heavy_keys_are_found_among_many_and_memory_is_bounded() {
        let keys = Keys::default();
        for n in 0..50_000 {
            keys.take(sample(ID, 1_000 + n, 1), 1);
            keys.take(sample(ID, n % 3, 2), 1);
        }
        let top = keys.top(&ID, 0, 3);
        assert_eq!(top.held, KEYS_PER_RULE);
        let mut found: Vec<_> = top.keys.iter().map(|k| k.text.as_str()).collect();
        found.sort_unstable();
        assert_eq!(found, ["k=0", "k=1", "k=2"]);
        for key in &top.keys {
            let true_hits = 33_334;
            assert!(key.hits >= true_hits - 2 && key.hits - key.hits_error <= true_hits);
            assert_eq!(key.over > 0, key.text == "k=1");
        }
    }

    #[test]
    fn counter_sets_beyond_the_bound_are_counted_and_not_held() {
        let keys = Keys::default();
        for n in 0..KEY_RULES as u64 + 10 {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&n.to_le_bytes());
            keys.take(sample(CounterIdentity(id), 5, 1), 1);
        }
        assert_eq!((keys.held(), keys.dropped()), (KEY_RULES, 10));
    }

    #[test]
    fn use_fades_until_it_is_forgotten() {
        let keys = Keys::default();
        keys.take(sample(ID, 1, 5), 16);
        keys.fade(1);
        assert_eq!(keys.top(&ID, 0, 1).keys[0].hits, 40);
        assert_eq!(keys.top(&ID, 1, 1).held, 0, "of another era");
        keys.fade(70);
        assert_eq!(keys.held(), 0);
    }
}
