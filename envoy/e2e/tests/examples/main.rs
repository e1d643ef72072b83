//! The worked examples, each on both doors: real nginx with the module, real Envoy with gabiond.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod addresses;
mod common;
mod packages;
mod plain;
mod registry;
mod runs;
mod vocabulary;
