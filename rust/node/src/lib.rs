//! The protocol machine: cells, links, emission, repair, cluster clock.
