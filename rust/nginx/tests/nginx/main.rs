//! Behaviour of the module in real nginx.
fn main() {}
