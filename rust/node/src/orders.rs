//! What operators order, and what peers say was ordered.
//!
//! I own the way of an order into the registers, from this member and from others. I promise that
//! a flag is never taken from gossip that is not authenticated, and that what was heard from a peer
//! is not told back to it.

use gabion_rule::{Order, Share};
use gabion_wire::{EraEntry, EraIter, FlagEntry, FlagIter};

use crate::api::{Note, Now};
use crate::node::Node;
use crate::registers::{Merged, OrderError, Reach};

impl Node {
    /// Raises the era of a limiter (`gabion_rule::limiter_name`): its counters start afresh here at
    /// once, and on every member that hears of it. Returns the new era.
    ///
    /// # Errors
    /// [`OrderError`]; nothing changed.
    // spec: ord-3
    pub fn raise_era(&mut self, limiter: u64, now: Now) -> Result<u32, OrderError> {
        self.told(now);
        let seconds = u32::try_from(now.cluster_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let era = self.registers.next_era(limiter, seconds)?;
        let merged = self.registers.merge_era(EraEntry { limiter, era });
        self.merged(merged);
        match merged {
            Merged::Refused => Err(OrderError::Full),
            _ => Ok(era),
        }
    }

    /// Sets a flag (`gabion_rule::flag_name`); `None`: back to its declared default. Without keys
    /// it holds on this member only.
    ///
    /// # Errors
    /// [`OrderError`]; nothing changed.
    // spec: ord-5, ord-8
    pub fn set_flag(
        &mut self,
        flag: u64,
        share: Option<Share>,
        now: Now,
    ) -> Result<Reach, OrderError> {
        self.told(now);
        let version = self
            .registers
            .next_version(flag, now.cluster_ns / 1_000_000)?;
        let merged = self.registers.merge_flag(FlagEntry {
            flag,
            version,
            node: self.me.node,
            percent: share.map(Share::get),
        });
        self.merged(merged);
        match (merged, &self.keys) {
            (Merged::Refused, _) => Err(OrderError::Full),
            (_, Some(_)) => Ok(Reach::Cluster),
            (_, None) => Ok(Reach::Local),
        }
    }

    /// Takes what was known before this node was made, as if it had been heard. Peers get it, too.
    pub fn remember(&mut self, eras: &[EraEntry], flags: &[FlagEntry]) {
        for entry in eras {
            let merged = self.registers.merge_era(*entry);
            self.merged(merged);
        }
        for entry in flags {
            let merged = self.registers.merge_flag(*entry);
            self.merged(merged);
        }
    }

    /// Every reset era that is known.
    pub fn eras(&self) -> impl Iterator<Item = EraEntry> + '_ {
        self.registers.eras()
    }

    /// Every flag that was set.
    pub fn flags(&self) -> impl Iterator<Item = FlagEntry> + '_ {
        self.registers.flags()
    }

    /// Place of the latest change of an order; 0 before the first.
    pub fn orders_head(&self) -> u64 {
        self.registers.head()
    }

    /// What changed behind a place, each as it is now; all of it behind 0.
    pub fn orders_since(&self, place: u64) -> impl Iterator<Item = Order> + '_ {
        self.registers.orders_behind(place)
    }

    pub(crate) fn on_eras(&mut self, at: usize, eras: EraIter<'_>) {
        let told = self.is_told(at);
        for entry in eras {
            let merged = self.registers.merge_era(entry);
            self.heard_order(merged);
        }
        self.tell_no_more(at, told);
    }

    pub(crate) fn on_flags(&mut self, at: usize, flags: FlagIter<'_>) {
        if self.keys.is_none() {
            self.stats.drop_unsigned_flags += flags.count() as u64; // spec: ord-8
            return;
        }
        let told = self.is_told(at);
        for entry in flags {
            let merged = self.registers.merge_flag(entry);
            self.heard_order(merged);
        }
        self.tell_no_more(at, told);
    }

    fn heard_order(&mut self, merged: Merged) {
        self.stats.registers_newer += u64::from(merged == Merged::Newer);
        self.merged(merged);
    }

    fn merged(&mut self, merged: Merged) {
        match merged {
            Merged::Newer => {
                self.stale = true; // every link has something to say
                self.stats.registers = self.registers.len() as u64;
            }
            Merged::Refused => {
                self.stats.refused_registers += 1;
                self.note(Note::RegistersFull);
            }
            Merged::Same | Merged::Older => {}
        }
    }

    /// Was everything told to this link?
    fn is_told(&self, at: usize) -> bool {
        let link = self.links[at].as_ref();
        link.is_some_and(|l| !self.registers.is_behind(l.orders))
    }

    /// What this link itself just said need not be told to it. spec: ord-11
    fn tell_no_more(&mut self, at: usize, told: bool) {
        let head = self.registers.head();
        if let (true, Some(link)) = (told, self.links[at].as_mut()) {
            link.orders = head;
        }
    }
}
