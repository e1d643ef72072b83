//! The frame codec: header, sections, acks, authentication, replay window.
//!
//! I own the bytes on the wire: what a frame looks like, how it is written into a caller's buffer,
//! how it is read back without copying, how it is signed, and how a repeated one is recognised.
//! Specified in `docs/spec/wire.md`.
//!
//! I promise: [`decode`] is total (any bytes give a valid frame or a named [`WireError`], never a
//! panic, never an allocation); writing then reading gives back what was written, and a frame that
//! decodes has exactly one encoding; no frame exceeds [`MAX_FRAME_BYTES`].
//!
//! I never hold state about peers other than a [`ReplayWindow`], never decide who is believed,
//! never read a clock, a file or entropy, and never print a key.
//!
//! The receiver calls the steps in this order, cheapest first (`[wire-60]`):
//! [`peek_header`] (length, version), [`Header::check_cluster`], the caller's own source check
//! ([`WireError::UnknownSource`]), [`KeyRing::verify`], [`ReplayWindow::accept`], [`decode`].
#![forbid(unsafe_code)]

mod auth;
mod decode;
mod digest;
mod error;
mod header;
pub mod limits;
mod register;
mod replay;
mod section;
mod spread;
mod varint;
mod writer;

pub use auth::{Auth, KeyFileError, KeyRing, Receiver};
pub use decode::{decode, Frame, Sections};
pub use digest::{origin_weight, partition_of, row_digest};
pub use error::{WireError, WriteError};
pub use header::{
    peek_header, Header, FLAG_INTRODUCTION, FLAG_SIGNED, FLAG_SPARSE, FLAG_WANT_ACK, VERSION,
};
pub use limits::MAX_FRAME_BYTES;
pub use register::{EraEntry, FlagEntry};
pub use replay::{ReplayWindow, SeqWindow};
pub use section::{
    Ack, Digest, DigestRequest, EraIter, FlagIter, Heard, Hello, IdIter, LimitEntry, LimitsIter,
    NotKept, Origin, Row, Rows, RowsIter, Scope, Section, SectionKind, SumIter,
};
pub use spread::{encode_spread, Spread, SpreadCounts, SpreadKeys, SpreadRow, WholeDigest};
pub use writer::{FrameWriter, RowsWriter};
