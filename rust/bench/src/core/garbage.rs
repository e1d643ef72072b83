//! What a datagram costs a member that has no use for it, by cause.
//!
//! I own the datagrams. I count instructions of the node alone: to receive a datagram costs a
//! system call besides, whatever is in it.

use std::net::SocketAddr;

use gabion_node::{Config, Input, Node, Now, Tunables};
use gabion_wire::{
    Auth, FrameWriter, Header, Hello, KeyRing, Receiver, Scope, FLAG_INTRODUCTION, MAX_FRAME_BYTES,
};

use super::decision::{instructions, per_operation, CALLGRIND};
use crate::report::Figure;
use crate::BenchError;

const CLUSTER: u32 = 7;
/// The kinds of garbage, and what they are called.
const KINDS: [(&str, &str); 8] = [
    ("short", "10 bytes"),
    ("noise", "1,200 random bytes"),
    ("cluster", "a full frame of another cluster"),
    ("unsigned", "a full frame without a signature"),
    (
        "forged-first",
        "a full frame with a wrong signature, within the budget of strangers",
    ),
    ("forged", "the same, beyond the budget of strangers"),
    (
        "hello-first",
        "a hello with a wrong signature, within the budget",
    ),
    ("hello", "the same, beyond the budget"),
];

fn ring(digits: &str) -> Result<KeyRing, BenchError> {
    KeyRing::parse(&format!("1:{}", digits.repeat(32))).map_err(BenchError::start("a key ring"))
}

/// One datagram of a kind.
fn datagram(kind: &str) -> Result<Vec<u8>, BenchError> {
    let void = |e: &dyn std::fmt::Display| BenchError::Void(e.to_string());
    if kind == "short" {
        return Ok(vec![0x5a; 10]);
    }
    if kind == "noise" {
        let mut state = 1u64;
        let mut byte = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        return Ok((0..MAX_FRAME_BYTES).map(|_| byte()).collect());
    }
    let hello = kind.starts_with("hello");
    let cluster = if kind == "cluster" { 8 } else { CLUSTER };
    let mut header = Header::new(cluster, 77, 78, 1);
    header.flags = if hello { FLAG_INTRODUCTION } else { 0 };
    let strange = ring("77")?;
    let auth = Auth {
        ring: &strange,
        receiver: Receiver::UNKNOWN,
    };
    let auth = (kind != "unsigned").then_some(auth);
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let mut writer = FrameWriter::new(&mut buf, &header, auth).map_err(|e| void(&e))?;
    if hello {
        let hello = Hello {
            nonce: 5,
            echo: None,
            wants_digests: true,
        };
        writer.hello(&hello).map_err(|e| void(&e))?;
    } else {
        let scope = Scope {
            limiter: 1,
            epoch: 1,
            origin: None,
        };
        let mut rows = writer.rows(&scope).map_err(|e| void(&e))?;
        while rows
            .push(gabion_rule::Key::from_bytes([255; 12]), 10_000)
            .is_ok()
        {}
        rows.finish().map_err(|e| void(&e))?;
    }
    let length = writer.finish();
    Ok(buf[..length].to_vec())
}

/// Hands `n` datagrams of a kind to a member with keys; gives how many it took notice of.
///
/// # Errors
/// There is no such kind.
pub fn work(kind: &str, n: u64) -> Result<u64, BenchError> {
    let bytes = datagram(kind)?;
    let now = |mono_ns| Now {
        mono_ns,
        cluster_ns: 1_796_000_000_000_000_000 + mono_ns,
    };
    let config = Config {
        node: 1,
        incarnation: 2,
        session: 1,
        cluster: CLUSTER,
        keys: Some(ring("5a")?),
        limiters: Vec::new(),
        tunables: Tunables {
            max_cells: 1_024,
            ..Tunables::default()
        },
    };
    let mut node = Node::new(config, 0);
    let from = SocketAddr::from(([10, 0, 0, 7], 7_946));
    // within the budget each comes after a pause, beyond it all at once
    let apart_ns = if kind.ends_with("-first") {
        10_000_000
    } else {
        0
    };
    for i in 0..n {
        let bytes = std::hint::black_box(&bytes[..]);
        let at = now(1_000_000_000 + i * apart_ns);
        node.handle(Input::Datagram { from, bytes }, at);
    }
    let stats = node.stats();
    Ok(stats.frames_in - stats.refused_strangers)
}

/// Instructions for each kind.
///
/// # Errors
/// Valgrind is missing or failed.
pub fn measure() -> Result<Vec<Figure>, BenchError> {
    let program = std::env::current_exe()?;
    let mut figures = Vec::new();
    for (kind, name) in KINDS {
        let args = |n: u64| vec!["work-garbage".to_owned(), kind.to_owned(), n.to_string()];
        let cost = per_operation(&CALLGRIND, &program, args, instructions)?;
        let name = format!("garbage: {name}");
        figures.push(Figure::stated(name, cost, "instructions"));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_looked_at_within_their_budget_only() {
        for (kind, _) in KINDS {
            let noticed = work(kind, 1_000).unwrap();
            let few = matches!(kind, "forged" | "hello");
            assert_eq!(noticed < 500, few, "{kind}: {noticed}");
        }
    }
}
