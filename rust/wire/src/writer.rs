//! A frame to bytes, into a caller's buffer.

use gabion_rule::Key;

use crate::auth::Auth;
use crate::error::WriteError;
use crate::header::{Header, FLAGS_OF_CALLER, FLAG_INTRODUCTION, FLAG_SIGNED, VERSION};
use crate::limits::{MAX_FRAME_BYTES, MAX_PLACE, MAX_SECTIONS_PER_FRAME, TRAILER_BYTES};
use crate::register::{EraEntry, FlagEntry};
use crate::section::{
    parts_fit, Ack, Digest, Heard, Hello, LimitEntry, NotKept, Origin, Scope, Section, SectionKind,
};
use crate::spread::SpreadRow;
use crate::varint::{varint_len, Sink};

/// Bytes before a body in the common case: kind, and a length below 128.
const SECTION_HEAD_BYTES: usize = 2;

/// Writes one frame. A section that does not fit leaves the frame as it was, so the caller can
/// finish it and start the next.
///
/// ```
/// use gabion_wire::{decode, Ack, FrameWriter, Header, Section};
/// let mut buf = [0u8; gabion_wire::MAX_FRAME_BYTES];
/// let mut w = FrameWriter::new(&mut buf, &Header::new(7, 1, 2, 1), None).unwrap();
/// w.ack(&Ack { largest: 9, before: u64::MAX, delay_us: 100 }).unwrap();
/// let n = w.finish();
/// let frame = decode(&buf[..n]).unwrap();
/// assert!(matches!(frame.sections().next(), Some(Section::Ack(_))));
/// ```
#[derive(Debug)]
pub struct FrameWriter<'b> {
    buf: &'b mut [u8],
    /// Bytes written.
    at: usize,
    /// Where sections must end: the trailer, when there is one, comes behind.
    end: usize,
    sections: usize,
    auth: Option<Auth<'b>>,
}

impl<'b> FrameWriter<'b> {
    /// Starts a frame. Uses at most [`MAX_FRAME_BYTES`] of the buffer. With `auth`, the frame is
    /// signed and room for the trailer is kept back; for [`crate::Receiver::UNKNOWN`] it becomes an
    /// introduction, which may hold only a hello.
    ///
    /// # Errors
    /// [`WriteError::OutOfBounds`] for a header no reader would take, [`WriteError::Full`] when the
    /// buffer is too small for a header.
    pub fn new(
        buf: &'b mut [u8],
        header: &Header,
        auth: Option<Auth<'b>>,
    ) -> Result<Self, WriteError> {
        let cap = buf.len().min(MAX_FRAME_BYTES);
        let trailer = if auth.is_some() { TRAILER_BYTES } else { 0 };
        let end = cap.checked_sub(trailer).ok_or(WriteError::Full)?;
        let mut flags = header.flags & FLAGS_OF_CALLER;
        if let Some(a) = &auth {
            flags |= FLAG_SIGNED;
            let bit = if a.receiver.is_unknown() {
                FLAG_INTRODUCTION
            } else {
                0
            };
            flags = flags & !FLAG_INTRODUCTION | bit;
        }
        let mut sink = Sink::new(&mut buf[..end]);
        Header {
            version: VERSION,
            flags,
            ..*header
        }
        .write(&mut sink)?;
        let at = sink.finish().ok_or(WriteError::Full)?;
        Ok(FrameWriter {
            buf,
            at,
            end,
            sections: 0,
            auth,
        })
    }

    /// Bytes left for sections (each takes two or three bytes beside its body).
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Has no section been written?
    pub fn is_empty(&self) -> bool {
        self.sections == 0
    }

    /// Writes an ack.
    ///
    /// # Errors
    /// [`WriteError`]; the frame is as before. The same holds for every section below.
    pub fn ack(&mut self, ack: &Ack) -> Result<(), WriteError> {
        self.section(SectionKind::Ack as u8, |out| ack.write(out))
    }

    /// Writes a hello. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn hello(&mut self, hello: &Hello) -> Result<(), WriteError> {
        self.section(SectionKind::Hello as u8, |out| {
            hello.write(out);
            Ok(())
        })
    }

    /// Writes a digest. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn digest(&mut self, digest: &Digest) -> Result<(), WriteError> {
        self.section(SectionKind::Digest as u8, |out| digest.write(out))
    }

    /// Writes the sender's split digest, `sums` from partition `first` on, asking for the rows that
    /// differ. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn digest_request(
        &mut self,
        scope: &Scope,
        parts_log2: u8,
        first: u32,
        sums: &[u32],
    ) -> Result<(), WriteError> {
        self.split_digest(SectionKind::DigestRequest, scope, parts_log2, first, sums)
    }

    /// A section of `kind` that holds the writer's own sums over partitions of `scope`.
    pub(crate) fn split_digest(
        &mut self,
        kind: SectionKind,
        scope: &Scope,
        parts_log2: u8,
        first: u32,
        sums: &[u32],
    ) -> Result<(), WriteError> {
        scope.check()?;
        if sums.is_empty() {
            return Err(WriteError::Empty);
        }
        if !parts_fit(parts_log2, first, sums.len()) {
            return Err(WriteError::OutOfBounds("partition"));
        }
        self.section(kind as u8, |out| {
            scope.write(out);
            out.u8(parts_log2);
            out.varint(u64::from(first));
            sums.iter().for_each(|s| out.u32(*s));
            Ok(())
        })
    }

    /// Writes a "not kept". See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn not_kept(&mut self, not_kept: &NotKept) -> Result<(), WriteError> {
        self.section(SectionKind::NotKept as u8, |out| not_kept.write(out))
    }

    /// Writes which node ids are heard (`silent` false), or known and not heard (`silent` true).
    /// See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn heard(&mut self, silent: bool, ids: &[u64]) -> Result<(), WriteError> {
        if ids.contains(&0) {
            return Err(WriteError::OutOfBounds("node"));
        }
        self.section(SectionKind::Heard as u8, |out| {
            out.u8(u8::from(silent));
            ids.iter().for_each(|id| out.u64(*id));
            Ok(())
        })
    }

    /// Writes limits. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn limits(&mut self, limits: &[LimitEntry]) -> Result<(), WriteError> {
        if limits.is_empty() {
            return Err(WriteError::Empty);
        }
        self.section(SectionKind::Limits as u8, |out| {
            for l in limits {
                out.u64(l.limiter);
                out.u64(l.digest);
            }
            Ok(())
        })
    }

    /// Writes reset eras. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn eras(&mut self, eras: &[EraEntry]) -> Result<(), WriteError> {
        if eras.is_empty() {
            return Err(WriteError::Empty);
        }
        eras.iter().try_for_each(EraEntry::check)?;
        self.section(SectionKind::Eras as u8, |out| {
            eras.iter().for_each(|era| era.write(out));
            Ok(())
        })
    }

    /// Writes flags. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn flags(&mut self, flags: &[FlagEntry]) -> Result<(), WriteError> {
        if flags.is_empty() {
            return Err(WriteError::Empty);
        }
        flags.iter().try_for_each(FlagEntry::check)?;
        self.section(SectionKind::Flags as u8, |out| {
            flags.iter().for_each(|flag| flag.write(out));
            Ok(())
        })
    }

    /// Writes the sender's place in rules that are strict. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn place(&mut self, place: u32) -> Result<(), WriteError> {
        if place > MAX_PLACE {
            return Err(WriteError::OutOfBounds("place"));
        }
        self.section(SectionKind::Place as u8, |out| {
            out.varint(u64::from(place));
            Ok(())
        })
    }

    /// Writes that the sender leaves. See [`FrameWriter::ack`] for errors.
    #[allow(clippy::missing_errors_doc)]
    pub fn leave(&mut self) -> Result<(), WriteError> {
        self.section(SectionKind::Leave as u8, |_| Ok(()))
    }

    /// Starts a section of rows; it takes rows until it is full, or finished.
    ///
    /// # Errors
    /// [`WriteError::Full`] when not even one row would fit; the frame is as before.
    pub fn rows(&mut self, scope: &Scope) -> Result<RowsWriter<'_, 'b>, WriteError> {
        scope.check()?;
        if self.sections == MAX_SECTIONS_PER_FRAME {
            return Err(WriteError::TooManySections);
        }
        let body = self.at + SECTION_HEAD_BYTES;
        let room = self.buf.get_mut(body..self.end).ok_or(WriteError::Full)?;
        let mut sink = Sink::new(room);
        scope.write(&mut sink);
        let len = sink.finish().ok_or(WriteError::Full)?;
        let rows = RowsWriter {
            frame: self,
            body_bytes: len,
            rows: 0,
        };
        if rows.room() < crate::limits::KEY_BYTES + 1 {
            return Err(WriteError::Full);
        }
        Ok(rows)
    }

    /// Copies a decoded section, for relays and tests.
    ///
    /// # Errors
    /// [`WriteError`]; an unknown section cannot be copied ([`WriteError::OutOfBounds`]); rows that
    /// do not all fit are not written at all.
    pub fn copy(&mut self, section: &Section<'_>) -> Result<(), WriteError> {
        match section {
            Section::Ack(s) => self.ack(s),
            Section::Rows(s) => {
                let mut rows = self.rows(&s.scope)?;
                for row in s.rows {
                    rows.push(row.key, row.count)?;
                }
                rows.finish().map(|_| ())
            }
            Section::Hello(s) => self.hello(s),
            Section::Digest(s) => self.digest(s),
            Section::DigestRequest(s) => {
                let mut sums = [0u32; MAX_FRAME_BYTES / 4];
                let n = fill(&mut sums, s.sums);
                self.digest_request(&s.scope, s.parts_log2, s.first, &sums[..n])
            }
            Section::NotKept(s) => self.not_kept(s),
            Section::Heard(Heard { silent, ids }) => {
                let mut out = [0u64; MAX_FRAME_BYTES / 8];
                let n = fill(&mut out, *ids);
                self.heard(*silent, &out[..n])
            }
            Section::Limits(s) => {
                let mut out = [LimitEntry {
                    limiter: 0,
                    digest: 0,
                }; MAX_FRAME_BYTES / 16];
                let n = fill(&mut out, *s);
                self.limits(&out[..n])
            }
            Section::Leave => self.leave(),
            Section::Place(s) => self.place(*s),
            Section::Eras(s) => {
                let none = EraEntry { limiter: 0, era: 1 };
                let mut out = [none; MAX_FRAME_BYTES / EraEntry::BYTES];
                let n = fill(&mut out, *s);
                self.eras(&out[..n])
            }
            Section::Flags(s) => {
                let none = FlagEntry {
                    flag: 0,
                    version: 1,
                    node: 1,
                    percent: None,
                };
                let mut out = [none; MAX_FRAME_BYTES / FlagEntry::BYTES];
                let n = fill(&mut out, *s);
                self.flags(&out[..n])
            }
            Section::Spread(s) => {
                let origins: Vec<Origin> = s.origins().collect();
                let rows: Vec<SpreadRow> = s.rows().collect();
                self.spread(s.limiter, s.epoch, &origins, &rows)
            }
            Section::WholeDigest(s) => self.whole_digest(s),
            Section::WholeRequest(s) => {
                let mut sums = [0u32; MAX_FRAME_BYTES / 4];
                let n = fill(&mut sums, s.sums);
                self.whole_request(&s.scope, s.parts_log2, s.first, &sums[..n])
            }
            Section::Unknown { .. } => Err(WriteError::OutOfBounds("kind")),
        }
    }

    /// Ends the frame, signs it when asked to, and gives its length in bytes.
    pub fn finish(self) -> usize {
        let FrameWriter { buf, at, auth, .. } = self;
        let Some(auth) = auth else { return at };
        let (signed, trailer) = buf.split_at_mut(at + 1);
        signed[at] = auth.ring.signing_id();
        let mac = auth.ring.mac(&auth.receiver, signed);
        trailer[..mac.len()].copy_from_slice(&mac);
        at + TRAILER_BYTES
    }

    pub(crate) fn section(
        &mut self,
        kind: u8,
        body: impl FnOnce(&mut Sink<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.sections == MAX_SECTIONS_PER_FRAME {
            return Err(WriteError::TooManySections);
        }
        let start = self.at + SECTION_HEAD_BYTES;
        let room = self.buf.get_mut(start..self.end).ok_or(WriteError::Full)?;
        let mut sink = Sink::new(room);
        body(&mut sink)?;
        let len = sink.finish().ok_or(WriteError::Full)?;
        self.close(kind, len)
    }

    pub(crate) fn copy_sections(&mut self, n: usize, bytes: &[u8]) -> Result<(), WriteError> {
        if self.sections + n > MAX_SECTIONS_PER_FRAME {
            return Err(WriteError::TooManySections);
        }
        let end = self.at + bytes.len();
        if end > self.end {
            return Err(WriteError::Full);
        }
        self.buf[self.at..end].copy_from_slice(bytes);
        self.at = end;
        self.sections += n;
        Ok(())
    }

    /// Puts kind and length before a body of `len` bytes that starts two bytes behind `at`.
    fn close(&mut self, kind: u8, len: usize) -> Result<(), WriteError> {
        let len_bytes = varint_len(len as u64);
        let body = self.at + SECTION_HEAD_BYTES;
        let moved = self.at + 1 + len_bytes;
        if moved + len > self.end {
            return Err(WriteError::Full);
        }
        self.buf.copy_within(body..body + len, moved);
        let mut head = Sink::new(&mut self.buf[self.at..moved]);
        head.u8(kind);
        head.varint(len as u64);
        debug_assert_eq!(head.finish(), Some(1 + len_bytes));
        self.at = moved + len;
        self.sections += 1;
        Ok(())
    }
}

fn fill<T>(out: &mut [T], items: impl Iterator<Item = T>) -> usize {
    let mut n = 0;
    for (slot, item) in out.iter_mut().zip(items) {
        *slot = item;
        n += 1;
    }
    n
}

/// Writes the rows of one section. Dropped without [`RowsWriter::finish`], it leaves no trace.
#[derive(Debug)]
pub struct RowsWriter<'w, 'b> {
    frame: &'w mut FrameWriter<'b>,
    /// Bytes of the body so far.
    body_bytes: usize,
    rows: usize,
}

impl RowsWriter<'_, '_> {
    /// Bytes left for rows, with the longer section head that 128 bytes and more need.
    fn room(&self) -> usize {
        (self.frame.end - self.frame.at).saturating_sub(SECTION_HEAD_BYTES + 1 + self.body_bytes)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`WriteError::Full`]: finish this section and start another frame.
    /// [`WriteError::OutOfBounds`] for count 0. The section is as before.
    pub fn push(&mut self, key: Key, count: u32) -> Result<(), WriteError> {
        if count == 0 {
            return Err(WriteError::OutOfBounds("count"));
        }
        let size = crate::limits::KEY_BYTES + varint_len(u64::from(count));
        if size > self.room() {
            return Err(WriteError::Full);
        }
        let at = self.frame.at + SECTION_HEAD_BYTES + self.body_bytes;
        let mut sink = Sink::new(&mut self.frame.buf[at..at + size]);
        sink.bytes(&key.to_bytes());
        sink.varint(u64::from(count));
        debug_assert_eq!(sink.finish(), Some(size));
        self.body_bytes += size;
        self.rows += 1;
        Ok(())
    }

    /// Rows written so far.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Has no row been written?
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Ends the section and gives its number of rows.
    ///
    /// # Errors
    /// [`WriteError::Empty`] when it has none; the frame is as before the section.
    pub fn finish(self) -> Result<usize, WriteError> {
        if self.rows == 0 {
            return Err(WriteError::Empty);
        }
        self.frame.close(SectionKind::Rows as u8, self.body_bytes)?;
        Ok(self.rows)
    }
}
