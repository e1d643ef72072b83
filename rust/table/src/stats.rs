//! Statistics: words of the header, raised only on rare events.

use crate::layout::AT_STATS;
use crate::mem::Mem;
use crate::types::TableStats;
use crate::Table;

/// Which word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    Live,
    Claims,
    FullAdmits,
    DoorkeeperHits,
    EvictedRows,
    EvictedHits,
    EvictedExhausted,
    PhantomHits,
    Takeovers,
    Withdrawals,
    VoidEpochs,
    UnknownRules,
    BadClock,
    Scrubbed,
    Remarked,
    ShareDenials,
}

impl Stat {
    pub(crate) const ALL: [Stat; 16] = [
        Stat::Live,
        Stat::Claims,
        Stat::FullAdmits,
        Stat::DoorkeeperHits,
        Stat::EvictedRows,
        Stat::EvictedHits,
        Stat::EvictedExhausted,
        Stat::PhantomHits,
        Stat::Takeovers,
        Stat::Withdrawals,
        Stat::VoidEpochs,
        Stat::UnknownRules,
        Stat::BadClock,
        Stat::Scrubbed,
        Stat::Remarked,
        Stat::ShareDenials,
    ];
}

impl<M: Mem> Table<M> {
    /// One counter.
    pub(crate) fn stat(&self, stat: Stat) -> u64 {
        self.mem.load(AT_STATS + stat as usize)
    }

    /// Adds `n`, wrapping, so that adding `u64::MAX` takes 1 away.
    pub(crate) fn note(&self, stat: Stat, n: u64) {
        if n != 0 {
            self.mem.fetch_add(AT_STATS + stat as usize, n);
        }
    }

    /// The counters, each read on its own.
    pub fn stats(&self) -> TableStats {
        let of = |stat: Stat| self.stat(stat);
        TableStats {
            rows: self.layout.subs.iter().map(|s| s.row_count() as u64).sum(),
            // A worker killed between a claim and its count leaves it off by one.
            live: u64::try_from(of(Stat::Live) as i64).unwrap_or(0),
            claims: of(Stat::Claims),
            full_admits: of(Stat::FullAdmits),
            doorkeeper_hits: of(Stat::DoorkeeperHits),
            evicted_rows: of(Stat::EvictedRows),
            evicted_hits: of(Stat::EvictedHits),
            evicted_exhausted: of(Stat::EvictedExhausted),
            phantom_hits: of(Stat::PhantomHits),
            takeovers: of(Stat::Takeovers),
            withdrawals: of(Stat::Withdrawals),
            void_epochs: of(Stat::VoidEpochs),
            unknown_rules: of(Stat::UnknownRules),
            bad_clock: of(Stat::BadClock),
            scrubbed: of(Stat::Scrubbed),
            remarked: of(Stat::Remarked),
            share_denials: of(Stat::ShareDenials),
        }
    }
}
