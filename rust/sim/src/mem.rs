//! The table's memory, with room for a planted fault.

use gabion_table::{Fault, Mem, RawMem};

/// Real memory; `fault` is an omission the table is told to make.
#[derive(Debug)]
pub struct SimMem {
    raw: RawMem,
    fault: Option<Fault>,
}

impl SimMem {
    /// Wraps zeroed memory.
    pub fn new(raw: RawMem, fault: Option<Fault>) -> Self {
        SimMem { raw, fault }
    }
}

impl Mem for SimMem {
    fn load(&self, i: usize) -> u64 {
        self.raw.load(i)
    }

    fn load_seq(&self, i: usize) -> u64 {
        self.raw.load_seq(i)
    }

    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.raw.cas(i, old, new)
    }

    fn fetch_or(&self, i: usize, bits: u64) -> u64 {
        self.raw.fetch_or(i, bits)
    }

    fn swap(&self, i: usize, v: u64) -> u64 {
        self.raw.swap(i, v)
    }

    fn fetch_add(&self, i: usize, v: u64) -> u64 {
        self.raw.fetch_add(i, v)
    }

    fn fence(&self) {
        self.raw.fence();
    }

    fn len(&self) -> usize {
        self.raw.len()
    }

    fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}
