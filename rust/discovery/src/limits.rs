//! Every bound and interval of this room, with its unit in its name.
//!
//! I own the numbers. I promise that no other file of the room hides one. I never change at run
//! time.

/// Peers one set may hold; more are cut off, lowest addresses first, and reported.
pub const MAX_PEERS: usize = 4096;
/// Bytes a peer file may have.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Pause between two looks at a peer file.
pub const FILE_POLL_MS: u64 = 1_000;
/// Pause between two looks at a peer file that has just changed.
pub const FILE_SETTLE_MS: u64 = 250;
/// How long a file that looks unfinished (no address in it, or no newline at its end) must stay as
/// it is before it is believed.
pub const FILE_UNFINISHED_MS: u64 = 3_000;
/// Shortest pause between two resolutions of a name, whatever its time to live.
pub const DNS_MIN_REFRESH_MS: u64 = 1_000;
/// Longest pause between two resolutions of a name, whatever its time to live.
pub const DNS_MAX_REFRESH_MS: u64 = 60_000;
/// First pause after a failed resolution; it doubles up to [`DNS_MAX_RETRY_MS`].
pub const DNS_MIN_RETRY_MS: u64 = 1_000;
/// Longest pause after a failed resolution.
pub const DNS_MAX_RETRY_MS: u64 = 5_000;
/// How long a name that had addresses must be answered with nothing before the peers are given up.
pub const DNS_NEGATIVE_GRACE_MS: u64 = 30_000;
/// Time one query to one name server may take.
pub const DNS_QUERY_TIMEOUT_MS: u64 = 2_000;
/// Time one resolution, all servers and both families, may take.
pub const DNS_RESOLVE_TIMEOUT_MS: u64 = 10_000;
/// How long an unchanged problem is not reported again.
pub const REPORT_AGAIN_MS: u64 = 60_000;
/// How long an unchanged problem whose text is long advice is not reported again.
pub const REPORT_ADVICE_AGAIN_MS: u64 = 3_600_000;

/// Namespaces that are watched at the same time.
pub const MAX_NAMESPACES: usize = 64;
/// Services that may be named.
pub const MAX_SERVICES: usize = 256;
/// Letters of a text from outside that a message shows.
pub const MAX_TEXT_CHARS: usize = 300;
/// First pause after a request to the API server failed; it doubles up to [`KUBE_MAX_RETRY_MS`],
/// and half of it is drawn by lot.
pub const KUBE_MIN_RETRY_MS: u64 = 500;
/// Longest pause after a request failed, unless the server asks for a longer one.
pub const KUBE_MAX_RETRY_MS: u64 = 15_000;
/// Longest pause that the server may ask for (Retry-After).
pub const KUBE_MAX_RETRY_AFTER_MS: u64 = 300_000;
/// A watch that the server ends sooner than this counts as failed: the next one waits.
pub const KUBE_SHORT_WATCH_MS: u64 = 5_000;
/// How long the server keeps one watch open; then it is asked for again.
pub const KUBE_WATCH_S: u32 = 290;
/// How long an idle connection is left before the system asks whether it still stands.
pub const KUBE_KEEPALIVE_MS: u64 = 30_000;
/// Time for the head of an answer.
pub const KUBE_ANSWER_MS: u64 = 30_000;
/// How long a connection may be silent: the server sends bookmarks about every minute.
pub const KUBE_SILENCE_MS: u64 = 100_000;
/// Time for connecting to the server.
pub const KUBE_CONNECT_MS: u64 = 5_000;
/// Failures in a row after which everything is made anew: credentials, connection, list.
pub const KUBE_FAILURES_BEFORE_ANEW: u32 = 5;
/// Bytes of one list of slices (a slice of 100 endpoints has about 40 KB).
pub const KUBE_MAX_LIST_BYTES: u64 = 64 << 20;
/// Bytes of one event of a watch; the server stores no object that is larger.
pub const KUBE_MAX_EVENT_BYTES: u64 = 4 << 20;
