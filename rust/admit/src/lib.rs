//! Verdict arithmetic: window sums, token buckets, remaining, reset, retry-after.
