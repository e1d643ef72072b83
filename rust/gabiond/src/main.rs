//! The `gabiond` binary.
fn main() {}
