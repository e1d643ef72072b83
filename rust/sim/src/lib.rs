//! The deterministic world: clocks, network, faults, checkers.
