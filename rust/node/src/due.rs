//! When each link is due: the soonest of many, and the next that is due.
//!
//! I own a time for each link, and the soonest of each block of links. I promise: both questions
//! cost a look at each block, not at each link, so that they hardly grow with members. Never: an
//! answer that differs from a look at all.

/// Links of a block.
const BLOCK: usize = 16;

/// Times of links, nanoseconds on the monotonic clock; the end of time for never.
#[derive(Debug, Default)]
pub(crate) struct Due {
    each: Vec<u64>,
    blocks: Vec<u64>,
}

impl Due {
    /// All times anew.
    pub(crate) fn set_all(&mut self, times: impl Iterator<Item = u64>) {
        self.each.clear();
        self.each.extend(times);
        self.blocks.clear();
        self.blocks.extend(self.each.chunks(BLOCK).map(soonest));
    }

    /// How many links there are.
    pub(crate) fn len(&self) -> usize {
        self.each.len()
    }

    /// The time of a link.
    pub(crate) fn at(&self, at: usize) -> u64 {
        self.each[at]
    }

    /// A link's time has changed.
    pub(crate) fn set(&mut self, at: usize, ns: u64) {
        self.each[at] = ns;
        let block = at / BLOCK;
        let links = self.each[block * BLOCK..].chunks(BLOCK).next();
        self.blocks[block] = links.map_or(u64::MAX, soonest);
    }

    /// The soonest of all.
    pub(crate) fn soonest(&self) -> Option<u64> {
        self.blocks.iter().copied().min()
    }

    /// The first link from `from` on, and before `end`, whose time has come.
    pub(crate) fn next(&self, from: usize, end: usize, now_ns: u64) -> Option<usize> {
        let end = end.min(self.each.len());
        let mut at = from;
        while at < end {
            let block = at / BLOCK;
            let last = ((block + 1) * BLOCK).min(end);
            if self.blocks[block] <= now_ns {
                if let Some(found) = (at..last).find(|at| self.each[*at] <= now_ns) {
                    return Some(found);
                }
            }
            at = last;
        }
        None
    }
}

fn soonest(times: &[u64]) -> u64 {
    times.iter().copied().min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_are_those_of_a_look_at_all(
            times in proptest::collection::vec(0u64..20, 0..70),
            changes in proptest::collection::vec((0usize..70, 0u64..20), 0..40),
            asked in (0usize..80, 0usize..80, 0u64..20),
        ) {
            let (mut due, mut plain) = (Due::default(), times.clone());
            due.set_all(times.iter().copied());
            for (at, ns) in changes.into_iter().filter(|(at, _)| *at < times.len()) {
                due.set(at, ns);
                plain[at] = ns;
            }
            let (from, end, now_ns) = asked;
            let first = (from..end.min(plain.len())).find(|at| plain[*at] <= now_ns);
            prop_assert_eq!(due.next(from, end, now_ns), first);
            prop_assert_eq!(due.soonest(), plain.iter().copied().min());
            prop_assert!((0..plain.len()).all(|at| due.at(at) == plain[at]));
        }
    }
}
