//! Every bound of the wire format, in one place, with its unit in its name.

/// Largest frame, trailer included. Fits the IPv6 minimum MTU of 1,280 bytes with 40 bytes of IPv6
/// and 8 bytes of UDP header. spec: wire-1
pub const MAX_FRAME_BYTES: usize = 1200;

/// Bytes of the fixed part of the header: version, flags, cluster, node, incarnation.
pub const HEADER_FIXED_BYTES: usize = 22;

/// Smallest frame: the fixed part and three one-byte varints (session, seq, sent-at).
pub const MIN_FRAME_BYTES: usize = HEADER_FIXED_BYTES + 3;

/// Bytes of the trailer of a signed frame: key id and truncated HMAC.
pub const TRAILER_BYTES: usize = 1 + MAC_BYTES;

/// Bytes of the message authentication code (HMAC-SHA256 cut to 128 bits).
pub const MAC_BYTES: usize = 16;

/// Sections in one frame; more is refused, so that work per frame is bounded. spec: wire-13
pub const MAX_SECTIONS_PER_FRAME: usize = 128;

/// Largest epoch number: 48 bits hold 8,900 years of 1 ms buckets. spec: wire-22
pub const MAX_EPOCH: u64 = (1 << 48) - 1;

/// Largest frame sequence number: 48 bits last 89 years at 100,000 frames per second.
pub const MAX_SEQ: u64 = (1 << 48) - 1;

/// Largest send time in microseconds: year 2255 as Unix time, so that nanoseconds fit an `i64`.
pub const MAX_SENT_AT_US: u64 = (1 << 53) - 1;

/// Bytes of a row's key.
pub const KEY_BYTES: usize = 12;

/// Largest split of a digest: 2^20 partitions, ten rows each at ten million. spec: wire-42
pub const MAX_PARTITIONS_LOG2: u8 = 20;

/// Sequence numbers, before the largest, that an ack reports. spec: wire-31
pub const ACK_BITS: u32 = 64;

/// Width of the replay window in frames, the newest included. spec: wire-70
pub const REPLAY_WINDOW_FRAMES: u32 = 128;

/// Keys in one key ring.
pub const MAX_KEYS: usize = 8;

/// Shortest key: 128 bits.
pub const MIN_KEY_BYTES: usize = 16;

/// Longest key; longer ones are hashed by HMAC anyway, so they would only look stronger.
pub const MAX_KEY_BYTES: usize = 64;

/// Largest version of a flag: 48 bits of milliseconds last 8,900 years. spec: wire-47
pub const MAX_FLAG_VERSION: u64 = (1 << 48) - 1;

/// Largest place of a member in rules that are strict.
pub const MAX_PLACE: u32 = 65_534;

/// Largest share a flag is set to, per cent.
pub const MAX_FLAG_PERCENT: u8 = 100;
