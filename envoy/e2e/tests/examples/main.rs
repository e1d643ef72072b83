//! The worked examples, each on both doors: real nginx with the module, real Envoy with gabiond.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod plain;
