//! The frame header.

use crate::error::{WireError, WriteError};
use crate::limits::{
    HEADER_FIXED_BYTES, MAX_FRAME_BYTES, MAX_SENT_AT_US, MAX_SEQ, MIN_FRAME_BYTES, TRAILER_BYTES,
};
use crate::varint::{Cursor, Sink};

/// What this release writes: layout 1 (high nibble), revision 0 (low nibble). A reader takes any
/// revision of its own layout. spec: wire-10
pub const VERSION: u8 = 0x10;

/// Flag: a trailer (key id and MAC) ends the frame.
pub const FLAG_SIGNED: u8 = 0x01;

/// Flag: the sender does not know the receiver yet. When signed, the MAC is bound to no receiver
/// and the frame proves nothing but who holds the key. Only a `Hello` may be in it. spec: wire-53
pub const FLAG_INTRODUCTION: u8 = 0x02;

/// Flag: the sender waits for an ack of this frame. May be ignored. spec: wire-33
pub const FLAG_WANT_ACK: u8 = 0x04;

/// Flag: the sender's liveness frames are rare, because it forwards. May be ignored. spec: dis-9
pub const FLAG_SPARSE: u8 = 0x08;

/// What a sender may set in [`Header::flags`]; the writer sets or clears the rest.
pub(crate) const FLAGS_OF_CALLER: u8 = FLAG_INTRODUCTION | FLAG_WANT_ACK | FLAG_SPARSE;

/// Flags a reader must understand or drop the frame; the low nibble may be ignored. spec: wire-11
const FLAGS_CRITICAL: u8 = 0xf0;

/// What every frame starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Layout and revision; see [`VERSION`]. Set by the writer.
    pub version: u8,
    /// [`FLAG_WANT_ACK`] is the caller's; [`FLAG_INTRODUCTION`] too, unless the frame is signed
    /// (then it follows from the receiver); [`FLAG_SIGNED`] is the writer's.
    pub flags: u8,
    /// Which cluster: a 32-bit tag of the cluster id.
    pub cluster: u32,
    /// Sender's node id; never 0.
    pub node: u64,
    /// Sender's incarnation: random, lives with the counters' memory.
    pub incarnation: u64,
    /// Higher after each take-over of the incarnation's memory by a driver.
    pub session: u32,
    /// Sequence number of the frame on this link and session; starts at 1; at most
    /// [`crate::limits::MAX_SEQ`].
    pub seq: u64,
    /// Sender's cluster clock when it wrote the frame, microseconds of Unix time; at most
    /// [`crate::limits::MAX_SENT_AT_US`].
    pub sent_at_us: u64,
}

impl Header {
    /// A header as a sender fills it; version and flags are the writer's.
    pub fn new(cluster: u32, node: u64, incarnation: u64, session: u32) -> Self {
        Header {
            version: VERSION,
            flags: 0,
            cluster,
            node,
            incarnation,
            session,
            seq: 1,
            sent_at_us: 0,
        }
    }

    /// Is the frame signed?
    pub fn is_signed(&self) -> bool {
        self.flags & FLAG_SIGNED != 0
    }

    /// Does the sender wait for an ack of this frame?
    pub fn wants_ack(&self) -> bool {
        self.flags & FLAG_WANT_ACK != 0
    }

    /// Are the sender's liveness frames rare?
    pub fn is_sparse(&self) -> bool {
        self.flags & FLAG_SPARSE != 0
    }

    /// Is the frame bound to no receiver?
    pub fn is_introduction(&self) -> bool {
        self.flags & FLAG_INTRODUCTION != 0
    }

    /// Second check of a receiver: the cluster tag.
    ///
    /// # Errors
    /// [`WireError::WrongCluster`].
    pub fn check_cluster(&self, cluster: u32) -> Result<(), WireError> {
        if self.cluster == cluster {
            Ok(())
        } else {
            Err(WireError::WrongCluster)
        }
    }

    pub(crate) fn write(&self, out: &mut Sink<'_>) -> Result<(), WriteError> {
        if self.node == 0 {
            return Err(WriteError::OutOfBounds("node"));
        }
        if self.seq == 0 || self.seq > MAX_SEQ {
            return Err(WriteError::OutOfBounds("seq"));
        }
        if self.sent_at_us > MAX_SENT_AT_US {
            return Err(WriteError::OutOfBounds("sent_at_us"));
        }
        out.u8(self.version);
        out.u8(self.flags);
        out.u32(self.cluster);
        out.u64(self.node);
        out.u64(self.incarnation);
        out.varint(u64::from(self.session));
        out.varint(self.seq);
        out.varint(self.sent_at_us);
        Ok(())
    }
}

/// First check of a receiver: length, version, flags and the bounds of the header's fields. Looks
/// at no section. spec: wire-60
///
/// # Errors
/// [`WireError::TooShort`], [`WireError::TooLong`], [`WireError::BadVersion`],
/// [`WireError::UnknownFlag`], [`WireError::BadVarint`], [`WireError::BadHeader`].
pub fn peek_header(bytes: &[u8]) -> Result<Header, WireError> {
    Ok(split_header(bytes)?.0)
}

/// The header and what follows it (sections, and the trailer of a signed frame).
pub(crate) fn split_header(bytes: &[u8]) -> Result<(Header, &[u8]), WireError> {
    if bytes.len() < MIN_FRAME_BYTES {
        return Err(WireError::TooShort);
    }
    if bytes.len() > MAX_FRAME_BYTES {
        return Err(WireError::TooLong);
    }
    let mut c = Cursor::new(bytes);
    let version = c.u8(WireError::TooShort)?;
    if version >> 4 != VERSION >> 4 {
        return Err(WireError::BadVersion);
    }
    let flags = c.u8(WireError::TooShort)?;
    if flags & FLAGS_CRITICAL != 0 {
        return Err(WireError::UnknownFlag);
    }
    if flags & FLAG_SIGNED != 0 && bytes.len() < MIN_FRAME_BYTES + TRAILER_BYTES {
        return Err(WireError::TooShort);
    }
    let header = Header {
        version,
        flags,
        cluster: c.u32(WireError::TooShort)?,
        node: c.u64(WireError::TooShort)?,
        incarnation: c.u64(WireError::TooShort)?,
        session: c.varint_u32(WireError::BadHeader)?,
        seq: c.varint()?,
        sent_at_us: c.varint()?,
    };
    debug_assert!(bytes.len() - c.rest().len() >= HEADER_FIXED_BYTES);
    let in_bounds = header.node != 0
        && (1..=MAX_SEQ).contains(&header.seq)
        && header.sent_at_us <= MAX_SENT_AT_US;
    if in_bounds {
        Ok((header, c.rest()))
    } else {
        Err(WireError::BadHeader)
    }
}
