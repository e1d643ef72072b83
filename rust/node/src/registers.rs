//! Registers: eras and flags, merged, and the log that carries them to every peer.
//!
//! I own what is known of each register and the order in which it changed. I promise that merging
//! is the same whatever the order, that a register which changed is sent to every link until that
//! link acknowledged it, and that memory is bounded. I never know what an era or a flag does.

use std::collections::BTreeMap;

use gabion_rule::{Order, Share};
use gabion_wire::limits::MAX_FLAG_VERSION;
use gabion_wire::{EraEntry, FlagEntry};
use thiserror::Error;

use crate::limits::{MAX_ERAS, MAX_FLAGS, REGISTERS_PER_FRAME};

/// Why an order was not taken. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrderError {
    /// No room for another name.
    #[error(
        "this member holds as many eras or flags as it can. Nothing was changed; names that are \
         no longer used go with a restart of all members"
    )]
    Full,
    /// The highest value is in force.
    #[error(
        "this register is at its highest value, and nothing was changed. For an era, rename the \
         limiter (limiter=) to start its counters afresh; for a flag, declare another"
    )]
    Exhausted,
}

/// How far an order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To every member.
    Cluster,
    /// This member only, until it restarts.
    Local,
}

/// What a received register did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// It is newer than what was known.
    Newer,
    /// It was known.
    Same,
    /// It was known, and something newer is.
    Older,
    /// There is no room for its name.
    Refused,
}

/// What is in a register, in the order that decides which one wins. spec: ord-4, ord-5
type FlagValue = (u64, u64, Option<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Era(u64),
    Flag(u64),
}

/// All registers of a member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    /// Value and place in the log.
    eras: BTreeMap<u64, (u32, u64)>,
    flags: BTreeMap<u64, (FlagValue, u64)>,
    /// Which register changed last at each place.
    log: BTreeMap<u64, Name>,
    head: u64,
}

impl Registers {
    /// The place of the latest change; 0 before the first.
    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn len(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn era(&self, limiter: u64) -> u32 {
        self.eras.get(&limiter).map_or(0, |(era, _)| *era)
    }

    pub(crate) fn flag(&self, flag: u64) -> Option<FlagEntry> {
        let (value, _) = self.flags.get(&flag)?;
        Some(flag_entry(flag, *value))
    }

    pub(crate) fn eras(&self) -> impl Iterator<Item = EraEntry> + '_ {
        let entry = |(limiter, (era, _)): (&u64, &(u32, u64))| EraEntry {
            limiter: *limiter,
            era: *era,
        };
        self.eras.iter().map(entry)
    }

    pub(crate) fn flags(&self) -> impl Iterator<Item = FlagEntry> + '_ {
        self.flags
            .iter()
            .map(|(flag, (v, _))| flag_entry(*flag, *v))
    }

    /// The next era of a limiter: above the one known, and not below the clock, so that a member
    /// that has not heard of the present era does not repeat an old one. spec: ord-3
    pub(crate) fn next_era(&self, limiter: u64, now_s: u32) -> Result<u32, OrderError> {
        let known = self.era(limiter);
        let next = known.checked_add(1).ok_or(OrderError::Exhausted)?;
        // A clock at the end of time would leave no room above itself.
        Ok(next.max(now_s.min(u32::MAX / 2)))
    }

    /// The next version of a flag, in the same way. spec: ord-5
    pub(crate) fn next_version(&self, flag: u64, now_ms: u64) -> Result<u64, OrderError> {
        let known = self
            .flags
            .get(&flag)
            .map_or(0, |((version, ..), _)| *version);
        if known >= MAX_FLAG_VERSION {
            return Err(OrderError::Exhausted);
        }
        Ok((known + 1).max(now_ms.min(MAX_FLAG_VERSION / 2)))
    }

    /// Keeps the higher era.
    pub(crate) fn merge_era(&mut self, entry: EraEntry) -> Merged {
        let EraEntry { limiter, era } = entry;
        let place = match self.eras.get(&limiter) {
            Some((known, _)) if *known == era => return Merged::Same,
            Some((known, _)) if *known > era => return Merged::Older,
            Some((_, place)) => Some(*place),
            None if era == 0 => return Merged::Same,
            None if self.eras.len() >= MAX_ERAS => return Merged::Refused,
            None => None,
        };
        let place = self.place(place, Name::Era(limiter));
        self.eras.insert(limiter, (era, place));
        Merged::Newer
    }

    /// Keeps the flag with the higher (version, node, percent).
    pub(crate) fn merge_flag(&mut self, entry: FlagEntry) -> Merged {
        let value = (entry.version, entry.node, entry.percent);
        let place = match self.flags.get(&entry.flag) {
            Some((known, _)) if *known == value => return Merged::Same,
            Some((known, _)) if *known > value => return Merged::Older,
            Some((_, place)) => Some(*place),
            None if self.flags.len() >= MAX_FLAGS => return Merged::Refused,
            None => None,
        };
        let place = self.place(place, Name::Flag(entry.flag));
        self.flags.insert(entry.flag, (value, place));
        Merged::Newer
    }

    /// A register changed: it leaves its old place for a new one, so that the log has one entry
    /// per register. spec: ord-10
    fn place(&mut self, old: Option<u64>, name: Name) -> u64 {
        if let Some(old) = old {
            self.log.remove(&old);
        }
        self.head += 1;
        self.log.insert(self.head, name);
        self.head
    }

    /// Whether something changed behind `cursor`.
    pub(crate) fn is_behind(&self, cursor: u64) -> bool {
        cursor < self.head
    }

    /// What changed behind `cursor`, as it is now: at most a frame's share, and where that ends.
    pub(crate) fn behind(&self, cursor: u64) -> (Vec<EraEntry>, Vec<FlagEntry>, u64) {
        let (mut eras, mut flags, mut end) = (Vec::new(), Vec::new(), self.head);
        for (place, name) in self.log.range(cursor + 1..) {
            if eras.len() + flags.len() >= REGISTERS_PER_FRAME {
                break;
            }
            end = *place;
            match name {
                Name::Era(limiter) => eras.push(EraEntry {
                    limiter: *limiter,
                    era: self.era(*limiter),
                }),
                Name::Flag(flag) => flags.extend(self.flag(*flag)),
            }
        }
        (eras, flags, end)
    }

    /// The same for deciders, all of it.
    pub(crate) fn orders_behind(&self, cursor: u64) -> impl Iterator<Item = Order> + '_ {
        self.log.range(cursor + 1..).filter_map(|(_, name)| {
            Some(match *name {
                Name::Era(limiter) => Order::Era {
                    limiter,
                    era: self.era(limiter),
                },
                Name::Flag(flag) => Order::Flag {
                    flag,
                    share: self.flag(flag)?.percent.and_then(Share::percent),
                },
            })
        })
    }
}

fn flag_entry(flag: u64, (version, node, percent): FlagValue) -> FlagEntry {
    FlagEntry {
        flag,
        version,
        node,
        percent,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn era(limiter: u64, era: u32) -> EraEntry {
        EraEntry { limiter, era }
    }

    fn flag(flag: u64, version: u64, node: u64, percent: Option<u8>) -> FlagEntry {
        flag_entry(flag, (version, node, percent))
    }

    #[test]
    fn merging_is_the_same_in_every_order() {
        let flags = [
            flag(1, 5, 1, Some(10)),
            flag(1, 5, 2, None),
            flag(1, 4, 9, Some(100)),
            flag(1, 5, 2, Some(0)),
        ];
        let eras = [era(7, 3), era(7, 9), era(7, 1), era(8, 2)];
        let mut ends = BTreeSet::new();
        for turn in 0..24usize {
            // All orders of four: by factorial digits.
            let mut left: Vec<usize> = (0..4).collect();
            let mut r = Registers::default();
            for (i, base) in [(turn / 6, 4), (turn / 2 % 3, 3), (turn % 2, 2), (0, 1)] {
                assert_eq!(left.len(), base);
                let at = left.remove(i);
                r.merge_flag(flags[at]);
                r.merge_era(eras[at]);
            }
            let value = |f: FlagEntry| (f.version, f.node, f.percent);
            ends.insert((r.era(7), r.era(8), r.flag(1).map(value)));
        }
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert_eq!(ends.first(), Some(&(9, 2, Some((5, 2, Some(0))))));
    }

    #[test]
    fn the_log_has_one_place_per_register_and_a_cursor_sees_every_change() {
        let mut r = Registers::default();
        assert_eq!(r.merge_era(era(1, 1)), Merged::Newer);
        assert_eq!(r.merge_flag(flag(1, 1, 1, None)), Merged::Newer);
        let cursor = r.head();
        for n in 2..500 {
            assert_eq!(r.merge_era(era(1, n)), Merged::Newer);
        }
        assert_eq!(r.merge_era(era(1, 4)), Merged::Older);
        assert_eq!(r.merge_era(era(1, 499)), Merged::Same);
        assert_eq!(r.len(), 2);
        let (eras, flags, end) = r.behind(cursor);
        assert_eq!((eras.as_slice(), flags.len()), (&[era(1, 499)][..], 0));
        assert!(!r.is_behind(end));
        assert_eq!(r.orders_behind(0).count(), 2);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_known_names_go_on() {
        let names = MAX_ERAS as u64;
        let mut r = Registers::default();
        for n in 0..names {
            assert_eq!(r.merge_era(era(n, 1)), Merged::Newer);
            assert_eq!(r.merge_flag(flag(n, 1, 1, None)), Merged::Newer);
        }
        assert_eq!(r.merge_era(era(names, 1)), Merged::Refused);
        assert_eq!(r.merge_flag(flag(names, 1, 1, None)), Merged::Refused);
        assert_eq!(r.merge_era(era(3, 2)), Merged::Newer);
        assert_eq!(r.merge_flag(flag(3, 2, 1, None)), Merged::Newer);
        assert_eq!((r.eras().count(), r.flags().count()), (MAX_ERAS, MAX_FLAGS));
        assert_eq!(r.len(), MAX_ERAS + MAX_FLAGS);
        let mut seen = 0;
        let mut cursor = 0;
        while r.is_behind(cursor) {
            let (eras, flags, end) = r.behind(cursor);
            assert!(end > cursor && eras.len() + flags.len() <= REGISTERS_PER_FRAME);
            seen += eras.len() + flags.len();
            cursor = end;
        }
        assert_eq!(seen, r.len());
    }

    #[test]
    fn a_member_that_heard_nothing_yet_still_raises_above_what_the_others_have() {
        let mut old = Registers::default();
        for now in [100, 101, 101, 101] {
            let next = old.next_era(1, now).unwrap();
            assert_eq!(old.merge_era(era(1, next)), Merged::Newer);
        }
        assert_eq!(old.era(1), 103);
        let fresh = Registers::default();
        assert!(fresh.next_era(1, 200).unwrap() > old.era(1));
        old.merge_era(era(1, u32::MAX));
        assert_eq!(old.next_era(1, 300), Err(OrderError::Exhausted));
        assert!(fresh.next_era(1, u32::MAX).unwrap() < u32::MAX);
        old.merge_flag(flag(1, MAX_FLAG_VERSION, 1, None));
        assert_eq!(old.next_version(1, 5), Err(OrderError::Exhausted));
        assert_eq!(fresh.next_version(1, 5), Ok(5));
    }
}
