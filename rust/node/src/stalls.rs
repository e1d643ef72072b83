//! When the driver last stood still, and for how long.
//!
//! I promise: a stall is never shown shorter than it was, or longer ago; my memory is bounded.
//! What a stall does to the age of news is in `bound`. spec: bnd-4

use std::collections::VecDeque;

use crate::api::Now;
use crate::bound::REST_TURN_NS;
use crate::node::Node;

/// Stalls kept; beyond, the two latest count as one.
const STALLS_MAX: usize = 32;

/// Ends and lengths of stalls: ends rise, lengths fall, as a longer one hides those before it.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    kept: VecDeque<(u64, u64)>,
}

impl Stalls {
    fn push(&mut self, end_ns: u64, for_ns: u64) {
        while self.kept.back().is_some_and(|(_, other)| *other <= for_ns) {
            self.kept.pop_back();
        }
        self.kept.push_back((end_ns, for_ns));
        if self.kept.len() > STALLS_MAX {
            self.kept.pop_back();
            if let Some(last) = self.kept.back_mut() {
                last.0 = end_ns;
            }
        }
    }

    /// Forgets what ended before `since_ns`.
    fn forget(&mut self, since_ns: u64) {
        while self.kept.front().is_some_and(|(end, _)| *end < since_ns) {
            self.kept.pop_front();
        }
    }

    /// The longest that ended at `since_ns` or later, nanoseconds; 0: none.
    fn longest_ns(&self, since_ns: u64) -> u64 {
        let mut late = self.kept.iter().filter(|(end, _)| *end >= since_ns);
        late.next().map_or(0, |(_, for_ns)| *for_ns)
    }
}

impl Node {
    /// It is `now`. A driver that tells more seldom than one at rest stood still for the rest.
    pub(crate) fn told(&mut self, now: Now) {
        let gap_ns = now.mono_ns.saturating_sub(self.now.mono_ns);
        if gap_ns > REST_TURN_NS {
            // Older news than this is no news of a peer that is reached.
            let kept_ns = 4 * self.t.peer_timeout_ns + self.t.heartbeat_ns;
            self.stalls.forget(now.mono_ns.saturating_sub(kept_ns));
            self.stalls.push(now.mono_ns, gap_ns - REST_TURN_NS);
        }
        self.now = now;
    }

    /// The longest stall that news of `age_ns` or younger may have met, before it was looked at
    /// or before it left. spec: bnd-4
    pub(crate) fn stalled_ns(&self, age_ns: u64, now_ns: u64) -> u64 {
        let within = |ns: u64| self.stalls.longest_ns(now_ns.saturating_sub(ns));
        let leaves_ns = within(age_ns);
        within(age_ns.saturating_add(leaves_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_since_then_counts_and_memory_is_bounded() {
        let mut stalls = Stalls::default();
        let all: Vec<(u64, u64)> = (1..2_000).map(|n| (n * 100, n * 7_919 % 97)).collect();
        for (end, length) in &all {
            stalls.push(*end, *length);
            assert!(stalls.kept.len() <= STALLS_MAX);
        }
        for since in 0..2_100 {
            let late = all.iter().filter(|(end, _)| *end >= since * 100);
            let longest = late.map(|(_, length)| *length).max().unwrap_or(0);
            assert_eq!(stalls.longest_ns(since * 100), longest, "{since}");
        }
        stalls.forget(u64::MAX);
        assert_eq!(stalls.longest_ns(0), 0);
    }

    #[test]
    fn beyond_the_memory_a_stall_is_shown_no_shorter() {
        let mut stalls = Stalls::default();
        let all: Vec<(u64, u64)> = (0..200).map(|n| (n * 10, 1_000 - n)).collect();
        for (end, length) in &all {
            stalls.push(*end, *length);
        }
        for (end, length) in &all {
            assert!(stalls.longest_ns(*end) >= *length, "{end}");
        }
    }
}
