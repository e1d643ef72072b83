//! The lock-free counter table over caller-supplied memory.
//!
//! I own the rows that counters live in: their layout, finding and claiming them, reserving hits,
//! showing remote totals, eviction, and the marks that tell a driver what changed. I promise: what
//! is admitted locally never exceeds the allowance in any window while the rule's sub-table has
//! room; one row never serves two keys and one key never has two live rows; a denied request
//! charges nothing but counted races; no lock, no system call and no allocation in a decision;
//! somebody killed at any step blocks nobody. I never hold a clock, a thread, a file, or anything
//! about peers.
//!
//! The clauses cited as `spec: adm-N` are in `docs/spec/admission.md`, `spec: pace-N` in
//! `docs/spec/pacing.md`.

mod carry;
mod charge;
mod claim;
mod decide;
mod dirty;
mod evict;
mod fast;
mod forget;
mod inspect;
mod layout;
pub mod limits;
mod mem;
mod occupancy;
mod probe;
mod raw;
mod remote;
mod row;
mod scrub;
mod share;
mod stats;
#[cfg(test)]
mod tests;
mod types;
mod word;

pub use carry::{carry, Carried};
pub use inspect::{RowState, RowView};
pub use layout::Geometry;
pub use mem::{Fault, Mem};
pub use raw::RawMem;
pub use types::{
    Charge, Decision, DirtyRow, FailOpen, Forget, Occupancy, Publish, SubSpec, TableError,
    TableStats,
};

use carry::Heritage;
use gabion_rule::RuleIdx;
use layout::{Layout, Sub};

/// The rules of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableSpec<'a> {
    /// In the order of the configuration: a [`RuleIdx`] is an index into it.
    pub rules: &'a [SubSpec],
}

/// Counters of several rules in one piece of memory. Holds no state of its own beyond the memory
/// and its layout: every call is a function of its arguments and of the words.
#[derive(Debug)]
pub struct Table<M: Mem> {
    mem: M,
    layout: Layout,
    /// Whose counters it takes over.
    heritage: Option<Heritage<M>>,
}

impl Table<RawMem> {
    /// A table in zeroed private memory of at most `bytes`.
    ///
    /// # Errors
    /// When the bytes are too few for the rules, or not to be had; nothing was changed.
    pub fn private(bytes: usize, rules: &[SubSpec]) -> Result<Table<RawMem>, TableError> {
        Layout::plan(bytes / 8, rules, None)?;
        Table::format(RawMem::private(bytes)?, rules)
    }
}

impl<M: Mem> Table<M> {
    /// Makes a table in memory that nobody else uses: all its words are zero, or are wiped first.
    ///
    /// # Errors
    /// When the memory is too small (case 9), before it is touched.
    pub fn format(mem: M, rules: &[SubSpec]) -> Result<Table<M>, TableError> {
        Table::make(mem, rules, None)
    }

    /// Uses the table that another process or configuration made in `mem`, with its counts.
    ///
    /// # Errors
    /// When the memory holds no table, or one of another version, other rules or another shape;
    /// it is not touched.
    pub fn attach(mem: M, rules: &[SubSpec]) -> Result<Table<M>, TableError> {
        Table::join(mem, rules, None)
    }

    /// The same counters under other limits: what a reload does that changes nothing else.
    ///
    /// # Errors
    /// [`TableError::OtherLayout`] when `rules` need other memory; nothing was changed.
    pub fn share(&self, rules: &[SubSpec]) -> Result<Table<M>, TableError>
    where
        M: Clone,
    {
        Table::attach(self.mem.clone(), rules)
    }

    /// [`Table::format`] with sizes chosen by a test.
    ///
    /// # Errors
    /// As [`Table::format`].
    #[doc(hidden)]
    pub fn format_with(
        mem: M,
        rules: &[SubSpec],
        geometry: Geometry,
    ) -> Result<Table<M>, TableError> {
        Table::make(mem, rules, Some(geometry))
    }

    /// [`Table::attach`] with sizes chosen by a test.
    ///
    /// # Errors
    /// As [`Table::attach`].
    #[doc(hidden)]
    pub fn attach_with(
        mem: M,
        rules: &[SubSpec],
        geometry: Geometry,
    ) -> Result<Table<M>, TableError> {
        Table::join(mem, rules, Some(geometry))
    }

    fn make(mem: M, rules: &[SubSpec], g: Option<Geometry>) -> Result<Table<M>, TableError> {
        let layout = Layout::plan(mem.len(), rules, g)?;
        layout::write_header(&mem, &layout, rules.len());
        Ok(Table {
            mem,
            layout,
            heritage: None,
        })
    }

    fn join(mem: M, rules: &[SubSpec], g: Option<Geometry>) -> Result<Table<M>, TableError> {
        let layout = Layout::plan(mem.len(), rules, g)?;
        layout::check_header(&mem, &layout)?;
        Ok(Table {
            mem,
            layout,
            heritage: None,
        })
    }

    /// Words that a table of this geometry needs.
    #[doc(hidden)]
    pub fn words_needed(rules: &[SubSpec], geometry: Geometry) -> usize {
        Layout::plan(usize::MAX / 64, rules, Some(geometry)).map_or(0, |l| l.words)
    }

    /// The memory it lives in.
    pub fn mem(&self) -> &M {
        &self.mem
    }

    /// Row slots of a rule; 0 when the table has no such rule.
    pub fn capacity(&self, rule: RuleIdx) -> u64 {
        self.sub(rule).map_or(0, |s| s.row_count() as u64)
    }

    #[inline(always)]
    fn sub(&self, rule: RuleIdx) -> Option<&Sub> {
        self.layout.subs.get(usize::from(rule))
    }
}
