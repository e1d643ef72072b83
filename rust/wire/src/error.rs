//! Why a frame was dropped, and why a section was not written.

use thiserror::Error;

/// Why a received frame was dropped. No variant changes any state: the frame is forgotten and its
/// cause is counted under [`WireError::name`]. spec: wire-61
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[repr(u8)]
pub enum WireError {
    /// Shorter than the smallest frame: noise, or another protocol on this port.
    #[error("frame is shorter than the smallest frame; is another protocol sent to this port?")]
    TooShort,
    /// Longer than [`crate::MAX_FRAME_BYTES`].
    #[error("frame is longer than 1,200 bytes; is another protocol sent to this port?")]
    TooLong,
    /// The header layout of another, not adjacent release.
    #[error("frame layout is of another version; bring members to adjacent releases")]
    BadVersion,
    /// A flag that a receiver must understand is set.
    #[error("frame needs a feature this release does not have; upgrade this member")]
    UnknownFlag,
    /// Another cluster's frame, for instance after an address was reused.
    #[error("frame is of another cluster; check cluster ids and address reuse")]
    WrongCluster,
    /// The source address is no known peer.
    #[error("frame comes from an address that is no peer; check discovery")]
    UnknownSource,
    /// The frame carries this member's own node id.
    #[error("frame carries this member's own node id; two members share one id")]
    OwnNode,
    /// This member requires signatures and the frame has none.
    #[error("frame is not signed and this member requires it; give every member the key file")]
    NotSigned,
    /// The frame is signed and this member has no keys.
    #[error("frame is signed and this member has no keys; give every member the key file")]
    UnexpectedSignature,
    /// Signed with a key id that is not in the ring.
    #[error("frame is signed with an unknown key id; finish the key rotation")]
    UnknownKey,
    /// The signature does not fit: changed, forged, or meant for another receiver.
    #[error("frame signature does not match; keys differ, or the frame was forged or replayed")]
    BadMac,
    /// An introduction carries more than a hello.
    #[error("frame without a bound receiver carries more than a hello; it proves nothing")]
    NotIntroduced,
    /// The frame belongs to a session that is not the one believed.
    #[error("frame is of another session of that member; resolved by the next hello")]
    OtherSession,
    /// This sequence number was already taken.
    #[error("frame was seen before; duplicated or replayed")]
    Replayed,
    /// Older than the replay window.
    #[error("frame is older than the replay window; delayed or replayed")]
    TooOld,
    /// A varint that is cut, too long, not minimal or above its field's bound.
    #[error("frame holds a number that is cut or not in its shortest form")]
    BadVarint,
    /// A header field is outside its bounds.
    #[error("frame header holds a value outside its bounds")]
    BadHeader,
    /// A section is longer than what is left of the frame.
    #[error("frame holds a section that ends behind the frame")]
    SectionOverrun,
    /// More than [`crate::limits::MAX_SECTIONS_PER_FRAME`] sections.
    #[error("frame holds more sections than allowed")]
    TooManySections,
    /// A section of a known kind has a body that does not parse.
    #[error("frame holds a section whose body does not parse")]
    BadSection,
    /// A section that must name something is empty.
    #[error("frame holds a section with nothing in it")]
    EmptySection,
    /// Count 0, or above 2^32 - 1.
    #[error("frame holds a count outside 1 to 4,294,967,295")]
    BadCount,
    /// Epoch above [`crate::limits::MAX_EPOCH`].
    #[error("frame holds an epoch above its bound")]
    BadEpoch,
    /// An origin whose node id is 0.
    #[error("frame holds an origin with node id 0")]
    BadOrigin,
}

impl WireError {
    /// Every cause, in declaration order; `ALL[e.index()] == e`.
    pub const ALL: [WireError; 24] = [
        WireError::TooShort,
        WireError::TooLong,
        WireError::BadVersion,
        WireError::UnknownFlag,
        WireError::WrongCluster,
        WireError::UnknownSource,
        WireError::OwnNode,
        WireError::NotSigned,
        WireError::UnexpectedSignature,
        WireError::UnknownKey,
        WireError::BadMac,
        WireError::NotIntroduced,
        WireError::OtherSession,
        WireError::Replayed,
        WireError::TooOld,
        WireError::BadVarint,
        WireError::BadHeader,
        WireError::SectionOverrun,
        WireError::TooManySections,
        WireError::BadSection,
        WireError::EmptySection,
        WireError::BadCount,
        WireError::BadEpoch,
        WireError::BadOrigin,
    ];

    /// How many causes there are: the length of an array of drop counters.
    pub const COUNT: usize = Self::ALL.len();

    /// Place in [`WireError::ALL`], for arrays of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Stable snake_case name: the label of the drop counter in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            WireError::TooShort => "too_short",
            WireError::TooLong => "too_long",
            WireError::BadVersion => "bad_version",
            WireError::UnknownFlag => "unknown_flag",
            WireError::WrongCluster => "wrong_cluster",
            WireError::UnknownSource => "unknown_source",
            WireError::OwnNode => "own_node",
            WireError::NotSigned => "not_signed",
            WireError::UnexpectedSignature => "unexpected_signature",
            WireError::UnknownKey => "unknown_key",
            WireError::BadMac => "bad_mac",
            WireError::NotIntroduced => "not_introduced",
            WireError::OtherSession => "other_session",
            WireError::Replayed => "replayed",
            WireError::TooOld => "too_old",
            WireError::BadVarint => "bad_varint",
            WireError::BadHeader => "bad_header",
            WireError::SectionOverrun => "section_overrun",
            WireError::TooManySections => "too_many_sections",
            WireError::BadSection => "bad_section",
            WireError::EmptySection => "empty_section",
            WireError::BadCount => "bad_count",
            WireError::BadEpoch => "bad_epoch",
            WireError::BadOrigin => "bad_origin",
        }
    }
}

/// Why a frame or section was not written. The writer is as it was before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The section does not fit into what is left: finish this frame and start another.
    #[error("section does not fit the frame: finish it and start another")]
    Full,
    /// The frame holds [`crate::limits::MAX_SECTIONS_PER_FRAME`] sections.
    #[error("frame holds the most sections allowed: finish it and start another")]
    TooManySections,
    /// The section would name nothing.
    #[error("section would be empty: leave it out")]
    Empty,
    /// A field is outside the bound that readers enforce; names the field.
    #[error("{0} is outside its bound and no reader would take it: a fault of the caller")]
    OutOfBounds(&'static str),
}
