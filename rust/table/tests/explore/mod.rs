//! Explicit-state exploration of real code under sequential consistency.
//!
//! I own: a word memory whose operations can be stopped and replayed ([`mem`]), a search over every
//! interleaving of several workers ([`search`]), readable counter-examples ([`trace`]), and the
//! glue that makes the counter table run on it ([`table`]).
//!
//! I promise: every reachable state within the stated bounds is visited (the one reduction made is
//! explained in [`search`]); a bound that is met fails the test, it never shortens the search.
//!
//! I never: model the code under test. What runs here is what runs in production.
//!
//! A worker that is killed is a worker that is not scheduled any more. Since every state is
//! checked, and since a survivor that cannot finish exceeds [`search::Limits::steps_per_op`], a
//! kill at every point is part of every search.
#![allow(
    dead_code,
    reason = "each test binary uses its own part of the toolkit"
)]
#![allow(unreachable_pub, reason = "shared by several test binaries")]

pub mod hash;
pub mod histories;
pub mod mem;
pub mod search;
pub mod table;
pub mod trace;

#[allow(
    unused_imports,
    reason = "each test binary uses its own part of the toolkit"
)]
pub use mem::ExploreMem;
#[allow(
    unused_imports,
    reason = "each test binary uses its own part of the toolkit"
)]
pub use search::{Limits, Program, Report, Search, View, Violation};
