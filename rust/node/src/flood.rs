//! What strangers may cost.
//!
//! I own the budgets of frames that do not come from a proven session. I promise: beyond them such
//! a frame costs neither a signature nor a parse; one source does not use up another one's budget,
//! and sources that are in no peer set do not use up that of those which are. I never look at a
//! frame. spec: link-15

use std::net::SocketAddr;

use crate::limits::{SECOND, STRANGER_FRAMES_PER_S, STRANGER_SOURCES, UNLISTED_FRAMES_PER_S};
use crate::peers::address_hash;

/// So many frames in a second, and as many at once.
#[derive(Clone, Copy, Debug)]
struct Budget {
    per_s: u64,
    /// When it would be whole again, nanoseconds.
    whole_ns: u64,
}

impl Budget {
    fn new(per_s: u64) -> Budget {
        Budget { per_s, whole_ns: 0 }
    }

    fn take(&mut self, now_ns: u64) -> bool {
        let each_ns = SECOND / self.per_s;
        let next_ns = self.whole_ns.max(now_ns) + each_ns;
        let fits = next_ns <= now_ns + SECOND;
        if fits {
            self.whole_ns = next_ns;
        }
        fits
    }
}

/// The budgets.
#[derive(Debug)]
pub(crate) struct Flood {
    /// By a hash of the address: two may share one, which halves it.
    sources: Vec<Budget>,
    unlisted: Budget,
}

impl Flood {
    pub(crate) fn new() -> Flood {
        Flood {
            sources: vec![Budget::new(STRANGER_FRAMES_PER_S); STRANGER_SOURCES],
            unlisted: Budget::new(UNLISTED_FRAMES_PER_S),
        }
    }

    /// Whether a frame of no proven session may be looked at.
    pub(crate) fn admits(&mut self, from: SocketAddr, listed: bool, now_ns: u64) -> bool {
        let hash = address_hash(from);
        // The remainder first: where usize has 32 bits, all sources would share one place else.
        let at = usize::try_from((hash ^ hash >> 32) % STRANGER_SOURCES as u64).unwrap_or(0);
        let Some(source) = self.sources.get_mut(at) else {
            return false;
        };
        source.take(now_ns) && (listed || self.unlisted.take(now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(ip: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, ip], port))
    }

    #[test]
    fn a_source_has_its_budget_and_no_more_however_long_it_was_silent() {
        let mut flood = Flood::new();
        for start_s in [1, 100] {
            let now = start_s * SECOND;
            let admitted = (0..5_000).filter(|_| flood.admits(addr(1, 1), true, now));
            assert_eq!(admitted.count() as u64, STRANGER_FRAMES_PER_S);
        }
        // a steady flood gets its rate, and an hour of silence no more than a second's worth
        let from = 200 * SECOND;
        let steady = (0..50_000u64).filter(|n| flood.admits(addr(1, 1), true, from + n * 20_000));
        let most = 2 * STRANGER_FRAMES_PER_S;
        assert!((most - 1..=most).contains(&(steady.count() as u64)));
    }

    #[test]
    fn sources_in_no_peer_set_share_a_budget_that_listed_ones_do_not_need() {
        let mut flood = Flood::new();
        let mut admitted = 0;
        for port in 0..60_000 {
            admitted += u64::from(flood.admits(addr(7, port), false, SECOND));
        }
        assert_eq!(admitted, UNLISTED_FRAMES_PER_S);
        // all buckets of sources have met the flood; a second later a peer is heard at once
        assert!(flood.admits(addr(1, 7_000), true, 2 * SECOND));
    }
}
