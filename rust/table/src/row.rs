//! Reading rows.

/// Where a row is, and its head when it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) slot: usize,
    pub(crate) head: u64,
}
