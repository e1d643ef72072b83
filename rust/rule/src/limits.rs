//! Every bound of this room, with its unit in its name.
//!
//! I own the numbers that keep rules, descriptors and policy files finite. I promise that no other
//! file of the room hides a bound. I never hold a value that a request can change.

/// Rules one configuration may hold. A rule is named by a `u16`; the last value stays free.
pub const MAX_RULES: usize = 65_535;
/// Rules one descriptor may match; the rest is skipped and counted.
pub const MAX_MATCHED_RULES: usize = 16;
/// Entries one descriptor may have, in a rule and in a request.
pub const MAX_DESCRIPTOR_ENTRIES: usize = 32;
/// Bytes of one descriptor key, of one pattern, of a domain and of a limiter name.
pub const MAX_NAME_BYTES: usize = 1024;
/// Different exact/any/prefix-length combinations over one (domain, keys): each costs one ordered
/// lookup per request, so their number bounds the work of a match.
pub const MAX_SIGNATURES_PER_GROUP: usize = 256;
/// Limiters one rule may replace.
pub const MAX_REPLACED: usize = 256;
/// Comparisons of two rules that the search for rules that never match may take; beyond them it
/// ends without having found all.
pub const MAX_NEVER_MATCH_COMPARISONS: usize = 4_000_000;
/// Buckets whose hits still count at one time, the current one included.
pub const MAX_LIVE_BUCKETS: u64 = 64;
/// Shortest bucket, and so the shortest window: 1 ms.
pub const MIN_BUCKET_NS: u64 = 1_000_000;
/// Longest window, and the longest time a token bucket may need to fill: 400 days.
pub const MAX_WINDOW_NS: u64 = 400 * 86_400 * 1_000_000_000;
/// Fastest rate of a token bucket, in hits per second.
pub const MAX_HITS_PER_SECOND: u64 = u32::MAX as u64;
/// Shortest replication epoch of a token bucket.
pub const MIN_TOKEN_EPOCH_NS: u64 = 1_000_000_000;
/// Digits a number in a rate may have on both sides of its point together.
pub const MAX_RATE_DIGITS: usize = 18;
/// Error budget of a rule that names none: 1 %.
pub const DEFAULT_ERROR_BUDGET_PPM: u32 = 10_000;
/// Largest error budget: all of the limit.
pub const MAX_ERROR_BUDGET_PPM: u32 = 1_000_000;
/// Bytes of one policy document.
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// Nodes of one policy document after its aliases are expanded.
pub const MAX_DOCUMENT_NODES: usize = 2_000_000;
/// Nodes that aliases and merge keys alone may add, so that a small document stays small.
pub const MAX_ALIAS_NODES: usize = 100_000;
/// Text bytes that aliases and merge keys alone may add.
pub const MAX_ALIAS_BYTES: usize = 4 << 20;
/// Depth of a policy document's nesting.
pub const MAX_DOCUMENT_DEPTH: usize = 64;
/// Errors of one document that are kept in full; the rest is counted.
pub const MAX_REPORTED_ERRORS: usize = 64;
/// Flags one configuration may declare: as many as a member keeps for its cluster.
pub const MAX_FLAGS: usize = 1_024;
/// Bytes of the body of a rule's denials.
pub const MAX_RAW_BODY_BYTES: usize = 16 << 10;
/// Bytes of its `content-type`.
pub const MAX_CONTENT_TYPE_BYTES: usize = 128;
/// Rules with `match: request` that one domain may have: they are asked one after the other.
pub const MAX_REQUEST_RULES: usize = 256;
/// Alternatives of one `only_if` or `except_if`.
pub const MAX_ALTERNATIVES: usize = 16;
/// Attributes that one alternative may name.
pub const MAX_CLAUSES: usize = 16;
/// Patterns for one attribute of an alternative, and statuses of a charge.
pub const MAX_PATTERNS: usize = 256;
/// Tiers of one rule.
pub const MAX_TIERS: usize = 64;
/// Values that a descriptor's `known` may list.
pub const MAX_KNOWN: usize = 4_096;
/// Rules that replace others, and rules that are the last, that one request may meet.
pub const MAX_STANDING: usize = 64;
/// Headers that a rule's denials may carry.
pub const MAX_RAW_HEADERS: usize = 16;
/// Bytes of the name of such a header, and of its value.
pub const MAX_RAW_HEADER_BYTES: usize = 1_024;
/// Attributes that the log lines of one rule show.
pub const MAX_LOG_FIELDS: usize = 4;
/// Bytes of the name of such an attribute.
pub const MAX_LOG_NAME_BYTES: usize = 32;
/// Bytes of the message of a rule's log lines.
pub const MAX_LOG_MESSAGE_BYTES: usize = 64;
/// Derived attributes of one configuration.
pub const MAX_DERIVED_ATTRIBUTES: usize = 64;
/// Raw attributes that one configuration may name.
pub const MAX_SOURCE_ATTRIBUTES: usize = 4_096;
/// Values of one lookup.
pub const MAX_LOOKUP_VALUES: usize = 100_000;
/// Networks of one list, with those of its presets.
pub const MAX_NETWORKS: usize = 10_000;
/// Elements of a forwarded header that are read, from the right.
pub const MAX_FORWARDED_HOPS: usize = 64;
/// Bytes of a forwarded header that are read, from the right.
pub const MAX_FORWARDED_BYTES: usize = 4_096;
