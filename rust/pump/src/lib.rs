//! Moves dirty rows, remote totals and evicted counts between table and node.
