//! The sections of a frame: their fields, their checks, and lazy readers over borrowed bytes.

use gabion_rule::Key;

use crate::error::{WireError, WriteError};
use crate::limits::{KEY_BYTES, MAX_EPOCH, MAX_PARTITIONS_LOG2, MAX_PLACE, MAX_SEQ};
use crate::register::{read_eras, read_flags, EraEntry, FlagEntry};
use crate::spread::{Spread, WholeDigest};
use crate::varint::{Cursor, Sink};

/// The kinds this release knows. Numbers are never reused. spec: wire-14
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SectionKind {
    /// [`Ack`]
    Ack = 1,
    /// [`Rows`]
    Rows = 2,
    /// [`Hello`]
    Hello = 3,
    /// [`Digest`]
    Digest = 4,
    /// [`DigestRequest`]
    DigestRequest = 5,
    /// [`NotKept`]
    NotKept = 6,
    /// [`Heard`]
    Heard = 7,
    /// [`LimitEntry`] list
    Limits = 8,
    /// The sender leaves.
    Leave = 9,
    /// [`EraEntry`] list
    Eras = 10,
    /// [`FlagEntry`] list
    Flags = 11,
    /// The sender's place in rules that are strict.
    Place = 15,
    /// [`Spread`]
    Spread = 12,
    /// [`WholeDigest`]
    WholeDigest = 13,
    /// [`DigestRequest`] of all origins
    WholeRequest = 14,
}

impl SectionKind {
    pub(crate) fn from_u8(kind: u8) -> Option<SectionKind> {
        Some(match kind {
            1 => SectionKind::Ack,
            2 => SectionKind::Rows,
            3 => SectionKind::Hello,
            4 => SectionKind::Digest,
            5 => SectionKind::DigestRequest,
            6 => SectionKind::NotKept,
            7 => SectionKind::Heard,
            8 => SectionKind::Limits,
            9 => SectionKind::Leave,
            10 => SectionKind::Eras,
            11 => SectionKind::Flags,
            15 => SectionKind::Place,
            12 => SectionKind::Spread,
            13 => SectionKind::WholeDigest,
            14 => SectionKind::WholeRequest,
            _ => return None,
        })
    }
}

/// One validated section of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section<'a> {
    /// What the sender has received of the receiver's frames.
    Ack(Ack),
    /// Counts.
    Rows(Rows<'a>),
    /// Introduction and proof of life.
    Hello(Hello),
    /// One hash over the rows of a scope.
    Digest(Digest),
    /// The sender's own sums, split by key: asks for the rows of the partitions that differ.
    DigestRequest(DigestRequest<'a>),
    /// The sender does not keep these rows.
    NotKept(NotKept),
    /// Who the sender hears, or knows but does not hear.
    Heard(Heard<'a>),
    /// The sender's limits.
    Limits(LimitsIter<'a>),
    /// The sender is about to stop; its counts stay valid.
    Leave,
    /// Reset eras of limiters.
    Eras(EraIter<'a>),
    /// Flags that were set.
    Flags(FlagIter<'a>),
    /// Which part of strict rules the sender has, at most [`MAX_PLACE`]. spec: pace-6
    Place(u32),
    /// Counts of many origins, to be forwarded.
    Spread(Spread<'a>),
    /// One hash over all origins of a limiter and epoch.
    WholeDigest(WholeDigest),
    /// [`Section::DigestRequest`] over all origins.
    WholeRequest(DigestRequest<'a>),
    /// A section of a later release: skipped, and to be counted.
    Unknown {
        /// Its kind.
        kind: u8,
        /// Bytes of its body.
        len: usize,
    },
}

/// Where a count came from when it is not the frame's sender. Never relabelled, never ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Node id; never 0.
    pub node: u64,
    /// Incarnation of that node.
    pub incarnation: u64,
}

/// Which rows are meant: one limiter, one epoch, one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// `CounterIdentity::short()` of the limiter.
    pub limiter: u64,
    /// Full epoch number, at most [`MAX_EPOCH`].
    pub epoch: u64,
    /// Whose counts; `None` = the sender of this frame, except in [`DigestRequest`] and
    /// [`NotKept`], where it is the receiver.
    pub origin: Option<Origin>,
}

/// One row: a key and the absolute count of one origin in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The counter's key.
    pub key: Key,
    /// Absolute count, 1 to `u32::MAX`.
    pub count: u32,
}

/// Which frames of the receiver the sender has. Also half of a clock sample.
///
/// With t1 = when the receiver wrote frame `largest`, t3 = the header's `sent_at_us`, t2 = t3 -
/// `delay_us` and t4 = arrival: offset = ((t2 - t1) + (t3 - t4)) / 2, round trip = (t4 - t1) -
/// `delay_us`. spec: wire-32
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Largest sequence number received, at least 1.
    pub largest: u64,
    /// Bit i: `largest - 1 - i` was received, or lies below 1 and was never sent.
    pub before: u64,
    /// Microseconds between the arrival of `largest` and this frame.
    pub delay_us: u32,
}

/// Counts of one scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    /// What they are counts of.
    pub scope: Scope,
    /// At least one row.
    pub rows: RowsIter<'a>,
}

/// Introduction: a session is believed once it echoed a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// A fresh random number of the sender.
    pub nonce: u64,
    /// The receiver's nonce, when the sender has one to answer.
    pub echo: Option<u64>,
    /// The sender has (re)started and asks for digests of everything live.
    pub wants_digests: bool,
}

/// Hash over the acknowledged, quiet rows of a scope: the wrapping sum of [`crate::row_digest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// What is hashed.
    pub scope: Scope,
    /// How many rows are in it (0: the sender has none).
    pub rows: u32,
    /// The sum.
    pub hash: u64,
}

/// The sender's digest of a scope, split by [`crate::partition_of`]: asks for the receiver's rows
/// in those partitions whose sums differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestRequest<'a> {
    /// What is asked for; `origin: None` = the receiver's own counts.
    pub scope: Scope,
    /// The split: 2^this partitions, 0 (the whole) to [`MAX_PARTITIONS_LOG2`].
    pub parts_log2: u8,
    /// Partition of the first sum.
    pub first: u32,
    /// Low 32 bits of one digest per partition, from `first` on; at least one.
    pub sums: SumIter<'a>,
}

/// "Do not send me these": the sender evicted them or has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotKept {
    /// What; `origin: None` = the receiver's own counts.
    pub scope: Scope,
    /// How long to leave them out of digests and repair, milliseconds.
    pub backoff_ms: u32,
}

/// Node ids the sender hears, or knows of and does not hear. One link's news are then relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard<'a> {
    /// False: ids that are heard. True: ids that are known and silent.
    pub silent: bool,
    /// The ids; none 0; may be empty ("nobody is silent").
    pub ids: IdIter<'a>,
}

/// One limiter as the sender enforces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitEntry {
    /// `CounterIdentity::short()`.
    pub limiter: u64,
    /// `LimitDigest`: differs when count, burst, budget, pace or mode differ.
    pub digest: u64,
}

const SCOPE_HAS_ORIGIN: u8 = 0x01;
const HELLO_HAS_ECHO: u8 = 0x01;
const HELLO_WANTS_DIGESTS: u8 = 0x02;

const SHORT: WireError = WireError::BadSection;

impl Scope {
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        if self.epoch > MAX_EPOCH {
            return Err(WriteError::OutOfBounds("epoch"));
        }
        match self.origin {
            Some(o) if o.node == 0 => Err(WriteError::OutOfBounds("origin")),
            _ => Ok(()),
        }
    }

    pub(crate) fn write(&self, out: &mut Sink<'_>) {
        out.u8(if self.origin.is_some() {
            SCOPE_HAS_ORIGIN
        } else {
            0
        });
        out.u64(self.limiter);
        out.varint(self.epoch);
        if let Some(o) = self.origin {
            out.u64(o.node);
            out.u64(o.incarnation);
        }
    }

    fn read(c: &mut Cursor<'_>) -> Result<Scope, WireError> {
        let flags = c.u8(SHORT)?;
        if flags & !SCOPE_HAS_ORIGIN != 0 {
            return Err(WireError::BadSection);
        }
        let limiter = c.u64(SHORT)?;
        let epoch = c.varint()?;
        if epoch > MAX_EPOCH {
            return Err(WireError::BadEpoch);
        }
        let mut origin = None;
        if flags & SCOPE_HAS_ORIGIN != 0 {
            let o = Origin {
                node: c.u64(SHORT)?,
                incarnation: c.u64(SHORT)?,
            };
            if o.node == 0 {
                return Err(WireError::BadOrigin);
            }
            origin = Some(o);
        }
        Ok(Scope {
            limiter,
            epoch,
            origin,
        })
    }
}

impl Ack {
    pub(crate) fn write(&self, out: &mut Sink<'_>) -> Result<(), WriteError> {
        if !(1..=MAX_SEQ).contains(&self.largest) {
            return Err(WriteError::OutOfBounds("largest"));
        }
        out.varint(self.largest);
        // Written as "missing", which is 0 on a healthy link: one byte. spec: wire-31
        out.varint(!self.before);
        out.varint(u64::from(self.delay_us));
        Ok(())
    }

    fn read(c: &mut Cursor<'_>) -> Result<Ack, WireError> {
        let largest = c.varint()?;
        if !(1..=MAX_SEQ).contains(&largest) {
            return Err(WireError::BadSection);
        }
        Ok(Ack {
            largest,
            before: !c.varint()?,
            delay_us: c.varint_u32(WireError::BadSection)?,
        })
    }
}

impl Hello {
    pub(crate) fn write(&self, out: &mut Sink<'_>) {
        let echo = if self.echo.is_some() {
            HELLO_HAS_ECHO
        } else {
            0
        };
        let wants = if self.wants_digests {
            HELLO_WANTS_DIGESTS
        } else {
            0
        };
        out.u8(echo | wants);
        out.u64(self.nonce);
        if let Some(echo) = self.echo {
            out.u64(echo);
        }
    }

    fn read(c: &mut Cursor<'_>) -> Result<Hello, WireError> {
        let flags = c.u8(SHORT)?;
        if flags & !(HELLO_HAS_ECHO | HELLO_WANTS_DIGESTS) != 0 {
            return Err(WireError::BadSection);
        }
        let nonce = c.u64(SHORT)?;
        let echo = if flags & HELLO_HAS_ECHO != 0 {
            Some(c.u64(SHORT)?)
        } else {
            None
        };
        Ok(Hello {
            nonce,
            echo,
            wants_digests: flags & HELLO_WANTS_DIGESTS != 0,
        })
    }
}

impl Digest {
    pub(crate) fn write(&self, out: &mut Sink<'_>) -> Result<(), WriteError> {
        self.scope.check()?;
        self.scope.write(out);
        out.varint(u64::from(self.rows));
        out.u64(self.hash);
        Ok(())
    }

    pub(crate) fn read(c: &mut Cursor<'_>) -> Result<Digest, WireError> {
        let scope = Scope::read(c)?;
        let rows = c.varint_u32(WireError::BadCount)?;
        Ok(Digest {
            scope,
            rows,
            hash: c.u64(SHORT)?,
        })
    }
}

/// Does a run of `n` partitions from `first` fit a split into 2^`parts_log2`?
pub(crate) fn parts_fit(parts_log2: u8, first: u32, n: usize) -> bool {
    parts_log2 <= MAX_PARTITIONS_LOG2 && first as usize + n <= 1 << parts_log2
}

fn read_request<'a>(c: &mut Cursor<'a>) -> Result<DigestRequest<'a>, WireError> {
    let scope = Scope::read(c)?;
    let parts_log2 = c.u8(SHORT)?;
    let first = c.varint_u32(WireError::BadSection)?;
    let sums = SumIter::read(c)?;
    if sums.len() == 0 {
        return Err(WireError::EmptySection);
    }
    if !parts_fit(parts_log2, first, sums.len()) {
        return Err(WireError::BadSection);
    }
    Ok(DigestRequest {
        scope,
        parts_log2,
        first,
        sums,
    })
}

impl NotKept {
    pub(crate) fn write(&self, out: &mut Sink<'_>) -> Result<(), WriteError> {
        self.scope.check()?;
        self.scope.write(out);
        out.varint(u64::from(self.backoff_ms));
        Ok(())
    }

    fn read(c: &mut Cursor<'_>) -> Result<NotKept, WireError> {
        let scope = Scope::read(c)?;
        Ok(NotKept {
            scope,
            backoff_ms: c.varint_u32(WireError::BadSection)?,
        })
    }
}

/// Reads rows one by one; every row was checked when the frame was decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsIter<'a> {
    rest: &'a [u8],
}

fn read_row(c: &mut Cursor<'_>) -> Result<Row, WireError> {
    let key = Key::from_bytes(c.array::<KEY_BYTES>(SHORT)?);
    match c.varint_u32(WireError::BadCount)? {
        0 => Err(WireError::BadCount),
        count => Ok(Row { key, count }),
    }
}

fn read_rows<'a>(c: &mut Cursor<'a>) -> Result<Rows<'a>, WireError> {
    let scope = Scope::read(c)?;
    let rows = RowsIter { rest: c.rest() };
    if c.is_empty() {
        return Err(WireError::EmptySection);
    }
    while !c.is_empty() {
        read_row(c)?;
    }
    Ok(Rows { scope, rows })
}

impl Iterator for RowsIter<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        let mut c = Cursor::new(self.rest);
        let row = read_row(&mut c).ok();
        self.rest = if row.is_some() { c.rest() } else { &[] };
        row
    }
}

macro_rules! fixed_iter {
    ($(#[$doc:meta])* $name:ident, $item:ty, $size:expr, $read:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            rest: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// Takes the rest of a section, which must be whole items.
            pub(crate) fn read(c: &mut Cursor<'a>) -> Result<Self, WireError> {
                let rest = c.bytes(c.rest().len(), SHORT)?;
                if rest.len() % $size == 0 {
                    Ok($name { rest })
                } else {
                    Err(WireError::BadSection)
                }
            }

            #[allow(dead_code)] // not every kind checks its items
            pub(crate) fn bytes(&self) -> &'a [u8] {
                self.rest
            }
        }

        impl Iterator for $name<'_> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                let mut c = Cursor::new(self.rest);
                let item: Option<$item> = $read(&mut c).ok();
                self.rest = if item.is_some() { c.rest() } else { &[] };
                item
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                let n = self.rest.len() / $size;
                (n, Some(n))
            }
        }

        impl ExactSizeIterator for $name<'_> {}
    };
}

fixed_iter!(
    /// Reads partition sums one by one.
    SumIter, u32, 4, |c: &mut Cursor<'_>| c.u32(SHORT)
);
fixed_iter!(
    /// Reads node ids one by one.
    IdIter, u64, 8, |c: &mut Cursor<'_>| c.u64(SHORT)
);
fixed_iter!(
    /// Reads limit entries one by one.
    LimitsIter, LimitEntry, 16, |c: &mut Cursor<'_>| -> Result<LimitEntry, WireError> {
        Ok(LimitEntry { limiter: c.u64(SHORT)?, digest: c.u64(SHORT)? })
    }
);
fixed_iter!(
    /// Reads reset eras one by one.
    EraIter, EraEntry, EraEntry::BYTES, EraEntry::read
);
fixed_iter!(
    /// Reads flags one by one.
    FlagIter, FlagEntry, FlagEntry::BYTES, FlagEntry::read
);

fn read_heard<'a>(c: &mut Cursor<'a>) -> Result<Heard<'a>, WireError> {
    let silent = match c.u8(SHORT)? {
        0 => false,
        1 => true,
        _ => return Err(WireError::BadSection),
    };
    let ids = IdIter::read(c)?;
    if { ids }.any(|id| id == 0) {
        return Err(WireError::BadOrigin);
    }
    Ok(Heard { silent, ids })
}

fn read_place(c: &mut Cursor<'_>) -> Result<u32, WireError> {
    match c.varint_u32(WireError::BadSection)? {
        place @ 0..=MAX_PLACE => Ok(place),
        _ => Err(WireError::BadSection),
    }
}

/// Parses one body; it must be used up. spec: wire-15
pub(crate) fn read_section(kind: u8, body: &[u8]) -> Result<Section<'_>, WireError> {
    let Some(known) = SectionKind::from_u8(kind) else {
        if kind == 0 {
            return Err(WireError::BadSection);
        }
        return Ok(Section::Unknown {
            kind,
            len: body.len(),
        });
    };
    let mut c = Cursor::new(body);
    let section = match known {
        SectionKind::Ack => Section::Ack(Ack::read(&mut c)?),
        SectionKind::Rows => Section::Rows(read_rows(&mut c)?),
        SectionKind::Hello => Section::Hello(Hello::read(&mut c)?),
        SectionKind::Digest => Section::Digest(Digest::read(&mut c)?),
        SectionKind::DigestRequest => Section::DigestRequest(read_request(&mut c)?),
        SectionKind::NotKept => Section::NotKept(NotKept::read(&mut c)?),
        SectionKind::Heard => Section::Heard(read_heard(&mut c)?),
        SectionKind::Limits => {
            let limits = LimitsIter::read(&mut c)?;
            if limits.len() == 0 {
                return Err(WireError::EmptySection);
            }
            Section::Limits(limits)
        }
        SectionKind::Leave => Section::Leave,
        SectionKind::Eras => Section::Eras(read_eras(&mut c)?),
        SectionKind::Flags => Section::Flags(read_flags(&mut c)?),
        SectionKind::Place => Section::Place(read_place(&mut c)?),
        SectionKind::Spread => Section::Spread(Spread::read(&mut c)?),
        SectionKind::WholeDigest => Section::WholeDigest(WholeDigest::read(&mut c)?),
        SectionKind::WholeRequest => {
            let request = read_request(&mut c)?;
            if request.scope.origin.is_some() {
                return Err(WireError::BadSection);
            }
            Section::WholeRequest(request)
        }
    };
    if c.is_empty() {
        Ok(section)
    } else {
        Err(WireError::BadSection)
    }
}
