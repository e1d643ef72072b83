//! The lock-free counter table over caller-supplied memory.
