//! Sections of the dissemination by forwarding: rows of many origins, and digests over all of them.
//!
//! I own their bodies and their checks. A body of rows lists its origins once and names them by
//! number, so that a burst of one member costs 16 bytes per row and a key that is hot everywhere 19
//! bytes per member. spec: wire-80, wire-81, wire-82, wire-83

use gabion_rule::Key;

use crate::error::{WireError, WriteError};
use crate::limits::{KEY_BYTES, MAX_EPOCH, MAX_FRAME_BYTES};
use crate::section::{Digest, Origin, Scope, SectionKind};
use crate::varint::{Cursor, Sink};
use crate::writer::FrameWriter;

/// Bytes of one origin.
const ORIGIN_BYTES: usize = 16;
const SHORT: WireError = WireError::BadSection;

/// Counts of one limiter and epoch by many origins, to be forwarded by whom they are news to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread<'a> {
    /// `CounterIdentity::short()` of the limiter.
    pub limiter: u64,
    /// Full epoch number.
    pub epoch: u64,
    origins: &'a [u8],
    keys: &'a [u8],
}

/// One count in a [`Spread`], as it is written: consecutive ones of one key share the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpreadRow {
    /// The counter's key.
    pub key: Key,
    /// 0: the sender of the frame; i: the i-th origin of the section, from 1.
    pub origin: u16,
    /// Absolute count, at least 1.
    pub count: u32,
}

/// The digest of all origins together on one (limiter, epoch). Its scope names no origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeDigest {
    /// It answers one of the receiver's: it is not answered again.
    pub answer: bool,
    /// Rows count each (key, origin).
    pub digest: Digest,
}

impl<'a> Spread<'a> {
    /// The origins, in the order of their numbers (the first has number 1).
    pub fn origins(&self) -> impl ExactSizeIterator<Item = Origin> + 'a {
        self.origins.chunks_exact(ORIGIN_BYTES).map(|bytes| {
            let mut c = Cursor::new(bytes);
            let mut word = || c.u64(SHORT).unwrap_or(1);
            let (node, incarnation) = (word(), word());
            Origin { node, incarnation }
        })
    }

    /// The keys with their counts.
    pub fn keys(&self) -> SpreadKeys<'a> {
        SpreadKeys { rest: self.keys }
    }

    /// All counts.
    pub fn rows(&self) -> impl Iterator<Item = SpreadRow> + 'a {
        self.keys().flat_map(|(key, counts)| {
            counts.map(move |(origin, count)| SpreadRow { key, origin, count })
        })
    }

    pub(crate) fn read(c: &mut Cursor<'a>) -> Result<Self, WireError> {
        let limiter = c.u64(SHORT)?;
        let epoch = c.varint()?;
        if epoch > MAX_EPOCH {
            return Err(WireError::BadEpoch);
        }
        let n = c.varint_u32(WireError::BadSection)? as usize;
        let bytes = n.checked_mul(ORIGIN_BYTES).ok_or(WireError::BadSection)?;
        let origins = c.bytes(bytes, SHORT)?;
        let keys = c.rest();
        let spread = Spread {
            limiter,
            epoch,
            origins,
            keys,
        };
        if spread.origins().any(|o| o.node == 0) {
            return Err(WireError::BadOrigin);
        }
        if keys.is_empty() {
            return Err(WireError::EmptySection);
        }
        let mut last = None;
        while !c.is_empty() {
            let key = c.array::<KEY_BYTES>(SHORT)?;
            // The counts of a key stand together: one encoding. spec: wire-2
            if last.replace(key) == Some(key) {
                return Err(WireError::BadSection);
            }
            let counts = c.varint()?;
            if counts == 0 {
                return Err(WireError::EmptySection);
            }
            for _ in 0..counts {
                if c.varint()? > n as u64 {
                    return Err(WireError::BadOrigin);
                }
                if c.varint_u32(WireError::BadCount)? == 0 {
                    return Err(WireError::BadCount);
                }
            }
        }
        Ok(spread)
    }
}

/// Walks the keys of a [`Spread`]; every one was checked when the frame was decoded.
#[derive(Clone, Copy, Debug)]
pub struct SpreadKeys<'a> {
    rest: &'a [u8],
}

/// Walks the counts of one key: (number of the origin, count).
#[derive(Clone, Copy, Debug)]
pub struct SpreadCounts<'a> {
    rest: &'a [u8],
    left: u64,
}

impl<'a> Iterator for SpreadKeys<'a> {
    type Item = (Key, SpreadCounts<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut c = Cursor::new(self.rest);
        let key = Key::from_bytes(c.array::<KEY_BYTES>(SHORT).ok()?);
        let left = c.varint().ok()?;
        let counts = SpreadCounts {
            rest: c.rest(),
            left,
        };
        for _ in 0..left {
            c.varint().ok()?;
            c.varint().ok()?;
        }
        self.rest = c.rest();
        Some((key, counts))
    }
}

impl Iterator for SpreadCounts<'_> {
    type Item = (u16, u32);

    fn next(&mut self) -> Option<(u16, u32)> {
        self.left = self.left.checked_sub(1)?;
        let mut c = Cursor::new(self.rest);
        let origin = u16::try_from(c.varint().ok()?).ok()?;
        let count = c.varint_u32(WireError::BadCount).ok()?;
        self.rest = c.rest();
        Some((origin, count))
    }
}

impl WholeDigest {
    pub(crate) fn read(c: &mut Cursor<'_>) -> Result<Self, WireError> {
        let answer = match c.u8(SHORT)? {
            0 => false,
            1 => true,
            _ => return Err(WireError::BadSection),
        };
        let digest = Digest::read(c)?;
        if digest.scope.origin.is_some() {
            return Err(WireError::BadSection);
        }
        Ok(WholeDigest { answer, digest })
    }
}

struct SpreadBody<'a> {
    limiter: u64,
    epoch: u64,
    origins: &'a [Origin],
    rows: &'a [SpreadRow],
}

impl SpreadBody<'_> {
    fn check(&self) -> Result<(), WriteError> {
        if self.rows.is_empty() {
            return Err(WriteError::Empty);
        }
        if self.epoch > MAX_EPOCH {
            return Err(WriteError::OutOfBounds("epoch"));
        }
        if self.origins.iter().any(|o| o.node == 0) {
            return Err(WriteError::OutOfBounds("origin"));
        }
        let fits = |r: &SpreadRow| usize::from(r.origin) <= self.origins.len() && r.count > 0;
        if !self.rows.iter().all(fits) {
            return Err(WriteError::OutOfBounds("row"));
        }
        Ok(())
    }

    fn write(&self, out: &mut Sink<'_>) {
        out.u64(self.limiter);
        out.varint(self.epoch);
        out.varint(self.origins.len() as u64);
        for o in self.origins {
            out.u64(o.node);
            out.u64(o.incarnation);
        }
        for run in self.rows.chunk_by(|a, b| a.key == b.key) {
            out.bytes(&run[0].key.to_bytes());
            out.varint(run.len() as u64);
            for row in run {
                out.varint(u64::from(row.origin));
                out.varint(u64::from(row.count));
            }
        }
    }
}

/// Appends one spread section to `out`, to be sent in several frames ([`FrameWriter::encoded`]).
///
/// # Errors
/// [`WriteError`]; `out` is as before.
pub fn encode_spread(
    out: &mut Vec<u8>,
    limiter: u64,
    epoch: u64,
    origins: &[Origin],
    rows: &[SpreadRow],
) -> Result<(), WriteError> {
    let body = SpreadBody {
        limiter,
        epoch,
        origins,
        rows,
    };
    body.check()?;
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let mut sink = Sink::new(&mut buf);
    body.write(&mut sink);
    let len = sink.finish().ok_or(WriteError::Full)?;
    let mut head = [0u8; 4];
    let mut sink = Sink::new(&mut head);
    sink.u8(SectionKind::Spread as u8);
    sink.varint(len as u64);
    let head_len = sink.finish().ok_or(WriteError::Full)?;
    out.extend_from_slice(&head[..head_len]);
    out.extend_from_slice(&buf[..len]);
    Ok(())
}

impl FrameWriter<'_> {
    /// Writes counts of many origins; `rows` of one key stand together. See [`FrameWriter::ack`]
    /// for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn spread(
        &mut self,
        limiter: u64,
        epoch: u64,
        origins: &[Origin],
        rows: &[SpreadRow],
    ) -> Result<(), WriteError> {
        let body = SpreadBody {
            limiter,
            epoch,
            origins,
            rows,
        };
        body.check()?;
        self.section(SectionKind::Spread as u8, |out| {
            body.write(out);
            Ok(())
        })
    }

    /// Copies `sections` sections that [`encode_spread`] wrote. See [`FrameWriter::ack`] for
    /// errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn encoded(&mut self, sections: usize, bytes: &[u8]) -> Result<(), WriteError> {
        self.copy_sections(sections, bytes)
    }

    /// Writes a digest of all origins. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn whole_digest(&mut self, whole: &WholeDigest) -> Result<(), WriteError> {
        if whole.digest.scope.origin.is_some() {
            return Err(WriteError::OutOfBounds("origin"));
        }
        self.section(SectionKind::WholeDigest as u8, |out| {
            out.u8(u8::from(whole.answer));
            whole.digest.write(out)
        })
    }

    /// Writes the sender's split digest of all origins, asking for the rows that differ. See
    /// [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn whole_request(
        &mut self,
        scope: &Scope,
        parts_log2: u8,
        first: u32,
        sums: &[u32],
    ) -> Result<(), WriteError> {
        scope.check()?;
        if scope.origin.is_some() {
            return Err(WriteError::OutOfBounds("origin"));
        }
        self.split_digest(SectionKind::WholeRequest, scope, parts_log2, first, sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, Header, Section};

    #[test]
    fn an_encoded_section_is_what_the_writer_writes_and_only_whole_ones_fit() {
        let origins = [Origin {
            node: 4,
            incarnation: 5,
        }];
        let row = |key: u8, origin| SpreadRow {
            key: Key::from_bytes([key; 12]),
            origin,
            count: 700,
        };
        let rows: Vec<SpreadRow> = (0..30).flat_map(|k| [row(k, 0), row(k, 1)]).collect();
        let mut bytes = Vec::new();
        encode_spread(&mut bytes, 7, 8, &origins, &rows).unwrap();
        let (mut one, mut two) = ([0u8; MAX_FRAME_BYTES], [0u8; MAX_FRAME_BYTES]);
        let header = Header::new(1, 2, 3, 4);
        let mut w = FrameWriter::new(&mut one, &header, None).unwrap();
        w.spread(7, 8, &origins, &rows).unwrap();
        let n = w.finish();
        let mut w = FrameWriter::new(&mut two, &header, None).unwrap();
        w.encoded(1, &bytes).unwrap();
        assert_eq!(w.encoded(1, &bytes), Err(WriteError::Full));
        assert_eq!(w.finish(), n);
        assert_eq!(one, two);
        let frame = decode(&one[..n]).unwrap();
        let Some(Section::Spread(s)) = frame.sections().next() else {
            panic!("no spread")
        };
        assert_eq!(s.rows().collect::<Vec<_>>(), rows);
        assert_eq!(s.origins().collect::<Vec<_>>(), origins);
        let none = encode_spread(&mut bytes, 7, 8, &[], &rows);
        assert_eq!(none, Err(WriteError::OutOfBounds("row")));
    }
}
