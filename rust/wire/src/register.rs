//! Registers: the eras and flags that operators set, as they travel.
//!
//! I own their form. I promise that a register is absolute, so that a frame which carries it may be
//! lost, doubled or late without harm. Who believes which register is `node`'s matter.

use crate::error::{WireError, WriteError};
use crate::limits::{MAX_FLAG_PERCENT, MAX_FLAG_VERSION};
use crate::section::{EraIter, FlagIter};
use crate::varint::{Cursor, Sink};

/// A flag's value that means "as declared".
const AS_DECLARED: u8 = 0xff;

/// The reset era of one limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EraEntry {
    /// `gabion_rule::limiter_name`.
    pub limiter: u64,
    /// The era, at least 1; the highest wins.
    pub era: u32,
}

/// The setting of one flag. The highest (version, node, percent) wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagEntry {
    /// `gabion_rule::flag_name`.
    pub flag: u64,
    /// 1 to [`MAX_FLAG_VERSION`].
    pub version: u64,
    /// Node id of the member where it was set; never 0.
    pub node: u64,
    /// Share of keys it is on for, 0 to 100 per cent; `None`: as declared.
    pub percent: Option<u8>,
}

impl EraEntry {
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn check(&self) -> Result<(), WriteError> {
        match self.era {
            0 => Err(WriteError::OutOfBounds("era")),
            _ => Ok(()),
        }
    }

    pub(crate) fn write(&self, out: &mut Sink<'_>) {
        out.u64(self.limiter);
        out.u32(self.era);
    }

    pub(crate) fn read(c: &mut Cursor<'_>) -> Result<EraEntry, WireError> {
        let limiter = c.u64(WireError::BadSection)?;
        match c.u32(WireError::BadSection)? {
            0 => Err(WireError::BadCount),
            era => Ok(EraEntry { limiter, era }),
        }
    }
}

impl FlagEntry {
    pub(crate) const BYTES: usize = 25;

    pub(crate) fn check(&self) -> Result<(), WriteError> {
        if !(1..=MAX_FLAG_VERSION).contains(&self.version) {
            return Err(WriteError::OutOfBounds("version"));
        }
        if self.percent.is_some_and(|p| p > MAX_FLAG_PERCENT) {
            return Err(WriteError::OutOfBounds("percent"));
        }
        match self.node {
            0 => Err(WriteError::OutOfBounds("node")),
            _ => Ok(()),
        }
    }

    pub(crate) fn write(&self, out: &mut Sink<'_>) {
        out.u64(self.flag);
        out.u64(self.version);
        out.u64(self.node);
        out.u8(self.percent.unwrap_or(AS_DECLARED));
    }

    pub(crate) fn read(c: &mut Cursor<'_>) -> Result<FlagEntry, WireError> {
        let flag = c.u64(WireError::BadSection)?;
        let version = c.u64(WireError::BadSection)?;
        let node = c.u64(WireError::BadSection)?;
        let percent = match c.u8(WireError::BadSection)? {
            AS_DECLARED => None,
            percent if percent <= MAX_FLAG_PERCENT => Some(percent),
            _ => return Err(WireError::BadSection),
        };
        if !(1..=MAX_FLAG_VERSION).contains(&version) {
            return Err(WireError::BadSection);
        }
        if node == 0 {
            return Err(WireError::BadOrigin);
        }
        Ok(FlagEntry {
            flag,
            version,
            node,
            percent,
        })
    }
}

/// Reads the whole body of an eras section.
pub(crate) fn read_eras<'a>(c: &mut Cursor<'a>) -> Result<EraIter<'a>, WireError> {
    let eras = EraIter::read(c)?;
    let mut all = Cursor::new(eras.bytes());
    while !all.is_empty() {
        EraEntry::read(&mut all)?;
    }
    match eras.len() {
        0 => Err(WireError::EmptySection),
        _ => Ok(eras),
    }
}

/// Reads the whole body of a flags section.
pub(crate) fn read_flags<'a>(c: &mut Cursor<'a>) -> Result<FlagIter<'a>, WireError> {
    let flags = FlagIter::read(c)?;
    let mut all = Cursor::new(flags.bytes());
    while !all.is_empty() {
        FlagEntry::read(&mut all)?;
    }
    match flags.len() {
        0 => Err(WireError::EmptySection),
        _ => Ok(flags),
    }
}
