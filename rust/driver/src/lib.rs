//! Runs pump and node over a UDP socket: timers, entropy, clock.
