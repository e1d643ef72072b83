//! Every bound and tunable of gabiond, with its unit in its name.

use std::time::Duration;

/// Connections that the gRPC port serves at once by default; more wait in the kernel's queue.
pub const CONNECTIONS_DEFAULT: usize = 4_096;
/// Most connections that may be configured.
pub const CONNECTIONS_MAX: u64 = 1_000_000;
/// Calls that one gRPC connection may have open at once by default.
pub const STREAMS_DEFAULT: u32 = 1_024;
/// Most calls per connection that may be configured.
pub const STREAMS_MAX: u64 = 65_536;
/// Largest request message by default; a caller's descriptors are bounded again by
/// `max_descriptor_bytes`.
pub const REQUEST_BYTES_DEFAULT: usize = 4 << 20;
/// Largest request message that may be configured.
pub const REQUEST_BYTES_MAX: u64 = 64 << 20;
/// Largest set of request headers on the gRPC port by default.
pub const HEADER_BYTES_DEFAULT: u32 = 16 << 10;
/// Largest set of request headers that may be configured.
pub const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Streams that a client may open and reset without being served, before it is disconnected.
pub const RESET_STREAMS: usize = 64;
/// Streams of one connection that may break the rules of HTTP/2, such as a body for a call that was
/// refused, before the connection is ended. Each is answered, and answers wait for a client that
/// does not read: without a bound it could pile them up (tonic's default is none).
pub const FAULTY_STREAMS: usize = 1_024;
/// How often an idle gRPC connection is asked whether it lives, by default.
pub const KEEPALIVE_EVERY: Duration = Duration::from_secs(60);
/// How long a gRPC client may take to answer that, by default.
pub const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);
/// How long a connection may take for its handshake and its first word, by default.
pub const FIRST_WORD: Duration = Duration::from_secs(10);
/// How long a gRPC connection may say nothing, not even the answer to a keep-alive, by default.
pub const ENVOY_IDLE: Duration = Duration::from_secs(180);
/// Buffer of a call at its beginning, each way; it grows with a larger message.
pub const CALL_BUFFER_BYTES: usize = 1 << 10;
/// Bytes of answers of one stream that are formed before they are handed on.
pub const CALL_YIELD_BYTES: usize = 32 << 10;
/// How long a connection may take no byte of what is to be sent to it, by default.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Shortest of the times of a connection that may be configured, nanoseconds.
pub const CONNECTION_TIME_MIN_NS: u64 = 10_000_000;
/// Longest of them, nanoseconds: a week.
pub const CONNECTION_TIME_MAX_NS: u64 = 7 * 86_400 * 1_000_000_000;
/// Permissions of a socket file by default.
pub const SOCKET_MODE_DEFAULT: u32 = 0o660;
/// Longest path of a socket file that Linux takes.
pub const SOCKET_PATH_BYTES: usize = 107;
/// Connections that the kernel holds for a port whose places are all taken.
pub const BACKLOG: i32 = 4_096;
/// Largest file with certificates.
pub const CERTIFICATE_BYTES: u64 = 1 << 20;
/// How often certificate files are looked at.
pub const CERTIFICATE_LOOK: Duration = Duration::from_secs(1);
/// A certificate that ends sooner than this is warned about.
pub const CERTIFICATE_WARN: Duration = Duration::from_secs(14 * 86_400);
/// How often that warning comes again.
pub const CERTIFICATE_WARN_EVERY: Duration = Duration::from_secs(6 * 3_600);
/// Connections that the admin port serves at once.
pub const ADMIN_CONNECTIONS: usize = 64;
/// How long an admin connection may say nothing.
pub const ADMIN_IDLE: Duration = Duration::from_secs(30);
/// How long a failed `accept` waits before the next (out of file descriptors, mostly).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Files that a directory of the reference service's files may hold.
pub const REFERENCE_FILES: usize = 4_096;
/// How deep its directories may be nested.
pub const REFERENCE_DEPTH: usize = 16;

/// Descriptors that one request may carry by default.
pub const DESCRIPTORS_DEFAULT: u32 = 64;
/// Descriptors that a configuration may allow per request.
pub const DESCRIPTORS_MAX: u32 = 1_024;
/// Entries of one descriptor; a descriptor with more is skipped and counted.
pub const ENTRIES_MAX: usize = 32;
/// Bytes of keys and values that one request may carry by default.
pub const DESCRIPTOR_BYTES_DEFAULT: u64 = 256 << 10;
/// Bytes of keys and values that a configuration may allow per request.
pub const DESCRIPTOR_BYTES_MAX: u64 = 4 << 20;
/// Bytes of the entries of one descriptor by default; a longer one is skipped and counted.
pub const KEY_BYTES_DEFAULT: u64 = 128 << 10;
/// Charges of one request: (descriptor, rule) pairs. The rest is skipped and counted.
pub const CHARGES_MAX: usize = 64;

/// Counters of each unit for limits that requests bring, by default.
pub const OVERRIDES_DEFAULT: u32 = 16_384;
/// Most of them that may be configured.
pub const OVERRIDES_MAX: u64 = 1 << 28;
/// Without a setting they take at most this part of the table: one in ...
pub const OVERRIDE_TABLE_PART: u64 = 8;
/// ... where one takes so many bytes, the slots kept free included.
pub const OVERRIDE_BYTES: u64 = 96;

/// Table memory by default.
pub const TABLE_BYTES_DEFAULT: u64 = 64 << 20;
/// Least table memory that a configuration may ask for.
pub const TABLE_BYTES_MIN: u64 = 64 << 10;
/// Most table memory that a configuration may ask for.
pub const TABLE_BYTES_MAX: u64 = 1 << 40;

/// Time that open calls get at shutdown, by default.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(5);
/// Longest drain that may be configured.
pub const DRAIN_MAX: Duration = Duration::from_secs(600);
/// A member counts as ready at the latest this long after it started, with or without peers.
pub const READY_AT_LATEST: Duration = Duration::from_secs(5);

/// Messages of one kind that are logged in one [`LOG_WINDOW`]; the rest is counted.
pub const LOG_MESSAGES_PER_WINDOW: u32 = 10;
/// The window of [`LOG_MESSAGES_PER_WINDOW`].
pub const LOG_WINDOW: Duration = Duration::from_secs(10);
/// Kinds of messages that are told apart; beyond that they share one allowance.
pub const LOG_KINDS: usize = 512;

/// Key samples that may wait to be taken in; more are dropped and counted.
pub const KEY_SAMPLES_QUEUED: usize = 2_048;
/// Keys that `/keys` remembers per rule.
pub const KEYS_PER_RULE: usize = 128;
/// Keys that `/keys` shows per rule when it is not told how many.
pub const KEYS_SHOWN: usize = 20;
/// Counter sets that `/keys` remembers keys of; more are not sampled.
pub const KEY_RULES: usize = 512;
/// One in so many decisions is sampled by default.
pub const SAMPLE_DEFAULT: u32 = 16;
/// Rarest sampling that may be configured.
pub const SAMPLE_MAX: u32 = 1_000_000;
/// Denials that may wait to be logged; more are thinned out and counted.
pub const DENIALS_QUEUED: usize = 1_024;
/// How often spans are sent to the collector.
pub const TRACE_EXPORT_EVERY: Duration = Duration::from_secs(1);
/// How long the collector may take to accept them.
pub const TRACE_EXPORT_PATIENCE: Duration = Duration::from_secs(5);
/// Of calls that bring no trace, one in so many is traced by default.
pub const TRACE_SAMPLE_DEFAULT: u32 = 1_000;
/// Logged denials per rule and second by default.
pub const DENIALS_DEFAULT: u16 = 1;
/// Most logged denials per rule and second that may be configured.
pub const DENIALS_MAX: u16 = 1_000;
/// Rules that get metric series of their own by default; the rest share one.
pub const RULE_SERIES_DEFAULT: usize = 500;
/// Most rules with series of their own that may be configured.
pub const RULE_SERIES_MAX: usize = 10_000;
/// Values of descriptors that get metric series of their own by default (`metric_values`); the rest
/// of a rule's values share one.
pub const VALUE_SERIES_DEFAULT: usize = 1_000;
/// Most values with series of their own that may be configured.
pub const VALUE_SERIES_MAX: usize = 100_000;
/// Peers that get metric series of their own, in the order of their addresses.
pub const PEER_SERIES_MAX: usize = 64;
/// Bytes of a name in a metric's label; a longer one is cut and ends with a hash of all of it.
pub const LABEL_BYTES: usize = 64;
/// Rows that one scrape looks at, over all rules, to say how full they are.
pub const FILL_ROWS_A_SCRAPE: u64 = 2 << 20;

/// Largest configuration file.
pub const CONFIG_BYTES: u64 = 16 << 20;
/// Largest file with a key or a secret.
pub const SECRET_BYTES: u64 = 64 << 10;
/// Shortest admin token.
pub const TOKEN_BYTES_MIN: usize = 16;

/// How often configuration files are looked at.
pub const WATCH_EVERY: Duration = Duration::from_millis(250);
/// Looks for which a file that became empty, or that is gone, is waited for.
pub const WATCH_EMPTY_LOOKS: u32 = 8;
/// Files that are watched in one directory.
pub const WATCHED_FILES: usize = 4_096;
/// Changed rules that a reload logs one by one; the rest is counted.
pub const CHANGES_LOGGED: usize = 200;
/// Longest wait of a reload for the last decision by the configuration before.
pub const SWITCH_PATIENCE: Duration = Duration::from_millis(20);
/// Longest wait of a reload for the gossip thread to let go of the table.
pub const GOSSIP_REST: Duration = Duration::from_millis(250);
