//! Every bound and default of the module, with its unit in its name.

/// Smallest zone: the header, the statistics and one set of rows for a few rules.
pub const ZONE_BYTES_MIN: u64 = 64 << 10;
/// Largest zone.
pub const ZONE_BYTES_MAX: u64 = 1 << 40;
/// Zones of one configuration.
pub const ZONES_MAX: usize = 64;
/// Rules of one configuration.
pub const RULES_MAX: usize = 4096;
/// Rules that apply to one request; more at one level are refused when the file is read.
pub const RULES_PER_REQUEST_MAX: usize = 16;
/// Bindings of one rule.
pub const BINDINGS_MAX: usize = 8;
/// Attributes that one configuration binds.
pub const BINDS_MAX: usize = 128;
/// Values of one descriptor that are looked at, and the bound of `gabion_storage_max_key_bytes`.
pub const KEY_BYTES_DEFAULT: u64 = 4 << 10;
/// Default of `gabion_storage_max_descriptor_bytes`: more in one request is answered with 400.
pub const DESCRIPTOR_BYTES_DEFAULT: u64 = 64 << 10;
/// Largest value of both.
pub const DESCRIPTOR_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a file of rules.
pub const RULES_FILE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a file of keys.
pub const KEY_FILE_BYTES_MAX: u64 = 64 << 10;
/// Default status of a rejected request.
pub const REJECT_STATUS_DEFAULT: u16 = 429;
/// Media type of a rejection's body that names none.
pub const BODY_TYPE_DEFAULT: &str = "text/plain";
/// Bytes of one value of a request in a log line.
pub const LOGGED_VALUE_BYTES_MAX: usize = 256;
/// Worker slots that statistics are kept in, so that workers do not share cache lines.
pub const STAT_SLOTS: usize = 8;
/// Length of a tick of the lease's deadline, ms.
pub const LEASE_TICK_MS: u64 = 10;
/// How long a lease holds after its holder was last seen, in ticks: 500 ms.
pub const LEASE_TERM_TICKS: u32 = 50;
/// How often a worker looks at the lease, ms. A holder renews it as often.
pub const LEASE_LOOK_MS: u64 = 100;
/// How long the end of a worker waits for its gossip thread, ms.
pub const LEAVE_PATIENCE_MS: u64 = 1_000;
/// Pause before a worker's gossip begins again after a panic, ms.
pub const RETRY_AFTER_FAILURE_MS: u64 = 1_000;
/// How often the worker that gossips posts its state, ms.
pub const POST_EVERY_MS: u64 = 200;
/// A zone's board for that state has an eighth of the zone, but at least and at most so many bytes.
pub const BOARD_BYTES_MIN: u64 = 12 << 10;
/// See [`BOARD_BYTES_MIN`].
pub const BOARD_BYTES_MAX: u64 = 256 << 10;
/// Rules that the Prometheus form shows one by one; the others are summed up.
pub const RULE_SERIES_MAX: usize = 512;
/// Peers that the Prometheus form shows one by one; the JSON shows as many as the board holds.
pub const PEER_SERIES_MAX: usize = 256;
/// Seconds between two log lines of one kind about requests that could not be counted.
pub const LOG_EVERY_S: u64 = 10;
