//! Benchmarks against the bars: a table for people, JSON for machines.
