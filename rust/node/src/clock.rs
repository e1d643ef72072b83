//! The cluster clock: offsets of peers, their median with this member itself, steps and slews.
//!
//! I promise: halves that disagree meet instead of swapping (self takes part in the median); a step
//! only when far off or before anything was published; never more than the stated slew otherwise.
//! I never read a clock. spec: time-1, time-2,
//! time-3, time-4

use std::collections::BTreeMap;

use crate::limits::{Tunables, MS, SECOND};

/// Samples kept per peer.
const SAMPLES: usize = 8;
/// Samples older than this say nothing, nanoseconds.
const SAMPLE_LIFE_NS: u64 = 20 * SECOND;
/// Time between adjustments, nanoseconds.
const ADJUST_EVERY_NS: u64 = SECOND;
/// First adjustment after the first sample, nanoseconds: lets more peers answer.
const FIRST_ADJUST_NS: u64 = 50 * MS;
/// Offsets below this are noise, nanoseconds.
const DEAD_BAND_NS: i64 = 20_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    offset_ns: i64,
    rtt_ns: u64,
    at_ns: u64,
}

/// Offsets of peers relative to this member's cluster clock, and what was corrected so far.
#[derive(Debug)]
pub(crate) struct Clock {
    peers: BTreeMap<u64, Vec<Sample>>,
    /// Sum of all corrections.
    offset_ns: i64,
    next_ns: Option<u64>,
    last_ns: u64,
    step_ns: i64,
    slew_ppm: i64,
    settled_ns: u64,
}

/// After a step, smaller ones may follow for this long, nanoseconds.
const SETTLE_NS: u64 = 8 * SECOND;
const MS_I64: i64 = 1_000_000;

/// A correction to be made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Correction {
    pub(crate) offset_ns: i64,
    pub(crate) step: bool,
}

impl Clock {
    pub(crate) fn new(t: &Tunables, smallest_epoch_ns: u64) -> Clock {
        let step = t.clock_step_ns.min(smallest_epoch_ns / 4).max(1);
        Clock {
            peers: BTreeMap::new(),
            offset_ns: 0,
            next_ns: None,
            last_ns: 0,
            step_ns: i64::try_from(step).unwrap_or(i64::MAX),
            slew_ppm: i64::try_from(t.clock_slew_ppm).unwrap_or(0),
            settled_ns: 0,
        }
    }

    #[cfg(test)]
    fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes a sample: peer's clock minus ours, with the round trip that bounds its error.
    pub(crate) fn sample(&mut self, peer: u64, offset_ns: i64, rtt_ns: u64, now_ns: u64) {
        let samples = self.peers.entry(peer).or_default();
        let new = Sample {
            offset_ns,
            rtt_ns,
            at_ns: now_ns,
        };
        // Each sample is wrong by at most half its round trip. One that contradicts an older one
        // says that the peer's clock was set since.
        samples.retain(|s| {
            let bound = (s.rtt_ns + rtt_ns) / 2 + MS;
            s.offset_ns.abs_diff(offset_ns) <= bound
                && now_ns.saturating_sub(s.at_ns) < SAMPLE_LIFE_NS
        });
        if samples.len() == SAMPLES {
            samples.remove(0);
        }
        samples.push(new);
        if self.next_ns.is_none() {
            self.next_ns = Some(now_ns + FIRST_ADJUST_NS);
            self.last_ns = now_ns;
        }
    }

    pub(crate) fn forget(&mut self, peer: u64) {
        self.peers.remove(&peer);
    }

    /// The best estimate of one peer's offset and its round trip.
    pub(crate) fn peer(&self, peer: u64) -> Option<(i64, u64)> {
        let best = self.peers.get(&peer)?.iter().min_by_key(|s| s.rtt_ns)?;
        Some((best.offset_ns, best.rtt_ns))
    }

    /// When offsets were last beyond a step: alarms wait until things had time to settle.
    pub(crate) fn settled_ns(&self) -> u64 {
        self.settled_ns
    }

    /// The correction due now, if any. `published` = this member's counts were already sent.
    pub(crate) fn adjust(&mut self, now_ns: u64, published: bool) -> Option<Correction> {
        if self.next_ns.is_none_or(|n| n > now_ns) {
            return None;
        }
        for samples in self.peers.values_mut() {
            samples.retain(|s| now_ns.saturating_sub(s.at_ns) < SAMPLE_LIFE_NS);
        }
        self.peers.retain(|_, s| !s.is_empty());
        let elapsed = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        self.next_ns = (!self.peers.is_empty()).then_some(now_ns + ADJUST_EVERY_NS);
        let ids: Vec<u64> = self.peers.keys().copied().collect();
        let best: Vec<(i64, u64)> = ids.iter().filter_map(|id| self.peer(*id)).collect();
        let mut offsets: Vec<i64> = best.iter().map(|(o, _)| *o).collect();
        let mut trips: Vec<u64> = best.iter().map(|(_, r)| *r).collect();
        if offsets.is_empty() {
            return None;
        }
        offsets.push(0);
        trips.sort_unstable();
        let noise = i64::try_from(trips[trips.len() / 2]).unwrap_or(i64::MAX);
        let by = median(&mut offsets);
        let far = by.abs() > self.step_ns.max(noise).max(DEAD_BAND_NS);
        // What a step leaves over, because the others moved too, is stepped as well. spec: time-3
        let settling = self.settled_ns > 0 && now_ns < self.settled_ns + SETTLE_NS;
        let step = far
            || (settling && by.abs() > noise.max(MS_I64))
            || (!published && by.abs() > noise.max(DEAD_BAND_NS));
        if far {
            self.settled_ns = now_ns.max(1);
        }
        let by = if step { by } else { self.slewed(by, elapsed) };
        if by == 0 {
            return None;
        }
        self.offset_ns = self.offset_ns.saturating_add(by);
        for s in self.peers.values_mut().flatten() {
            s.offset_ns = s.offset_ns.saturating_sub(by);
        }
        Some(Correction {
            offset_ns: self.offset_ns,
            step,
        })
    }

    fn slewed(&self, by: i64, elapsed_ns: u64) -> i64 {
        if by.abs() <= DEAD_BAND_NS {
            return 0;
        }
        let elapsed = i64::try_from(elapsed_ns).unwrap_or(0);
        let most = elapsed / 1_000_000 * self.slew_ppm;
        by.clamp(-most, most)
    }
}

/// The middle, or the mean of the two in the middle.
fn median(values: &mut [i64]) -> i64 {
    values.sort_unstable();
    let n = values.len();
    let (low, high) = (values[(n - 1) / 2], values[n / 2]);
    low + (high - low) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members with perfect measurements and clocks at `at`, adjusting one after the other.
    fn run(at: &[i64], seconds: u64, published: bool) -> (Vec<i64>, u64) {
        let t = Tunables::default();
        let mut truth = at.to_vec();
        let mut clocks: Vec<Clock> = at.iter().map(|_| Clock::new(&t, SECOND)).collect();
        let mut steps = 0;
        for round in 0..seconds * 2 {
            let now = round * SECOND / 2;
            for i in 0..truth.len() {
                for j in (0..truth.len()).filter(|j| *j != i) {
                    clocks[i].sample(j as u64, truth[j] - truth[i], MS, now);
                }
                let before = clocks[i].offset_ns();
                if let Some(c) = clocks[i].adjust(now, published) {
                    truth[i] += c.offset_ns - before;
                    steps += u64::from(c.step);
                }
            }
        }
        (truth, steps)
    }

    fn spread(v: &[i64]) -> i64 {
        v.iter().max().unwrap() - v.iter().min().unwrap()
    }

    #[test]
    fn halves_that_disagree_by_20_s_meet_and_do_not_swap() {
        let s = SECOND as i64;
        for at in [
            vec![0, 20 * s],
            vec![0, 0, 20 * s, 20 * s],
            vec![0, 0, 0, 20 * s, 20 * s, 20 * s],
        ] {
            let (end, _) = run(&at, 30, true);
            assert!(spread(&end) <= 4 * MS as i64, "{at:?} -> {end:?}");
            assert!(end.iter().all(|e| (0..=20 * s).contains(e)), "{end:?}");
        }
    }

    #[test]
    fn a_newcomer_joins_the_majority_in_one_step_and_moves_nobody() {
        let s = SECOND as i64;
        let (end, steps) = run(&[0, 0, 0, 20 * s], 10, true);
        assert_eq!((end[3].abs() < MS as i64, steps), (true, 1), "{end:?}");
        assert!(end[..3].iter().all(|e| e.abs() <= DEAD_BAND_NS));
    }

    #[test]
    fn a_small_offset_is_slewed_at_the_stated_pace() {
        let (end, steps) = run(&[0, 0, 0, 50 * MS as i64], 20, true);
        assert_eq!(steps, 0);
        let moved = 50 * MS as i64 - end[3];
        // 500 ppm of 19 to 20 s.
        assert!((9_000_000..=10_100_000).contains(&moved), "moved {moved}");
    }

    #[test]
    fn before_the_first_publication_a_small_offset_is_stepped() {
        let (end, steps) = run(&[0, 50 * MS as i64], 3, false);
        assert!(steps > 0 && spread(&end) <= 2 * DEAD_BAND_NS, "{end:?}");
    }

    #[test]
    fn case_23_one_peer_an_hour_ahead_moves_nobody_in_a_cluster_of_four() {
        let hour = 3_600 * SECOND as i64;
        let (end, _) = run(&[0, 0, 0, hour], 5, true);
        assert!(spread(&end[..3]) <= 2 * DEAD_BAND_NS && end[0].abs() <= DEAD_BAND_NS);
    }
}
