//! How many bytes the cell store takes per key: N keys (default 10,000,000), each counted by this
//! member and by two remote origins whose rows arrive in real frames.
//!
//! `cargo run --profile explore -p gabion-node --example cells_memory [KEYS]`
// A measurement needs a clock and the process's size; the room itself has neither.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used
)]
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::Instant;

use gabion_node::{Config, Input, LimiterSpec, Node, Now, Tunables};
use gabion_rule::Key;
use gabion_wire::{decode, FrameWriter, Header, Hello, Scope, Section, FLAG_INTRODUCTION};

const UNIX: u64 = 1_800_000_000_000_000_000;
const DAY_NS: u64 = 86_400_000_000_000;

/// Keys are hashes in real life; this is one.
fn key(i: u64) -> Key {
    let mix = |mut z: u64| {
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    Key::new(mix(i.wrapping_add(0x9e37_79b9_7f4a_7c15)), mix(!i))
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split_whitespace()
        .nth(1)
        .and_then(|p| p.parse::<u64>().ok())
        .unwrap_or(0);
    pages * 4_096
}

struct Remote {
    addr: SocketAddr,
    header: Header,
}

impl Remote {
    fn new(node: u64) -> Remote {
        let port = u16::try_from(9_000 + node).unwrap();
        Remote {
            addr: SocketAddr::from(([127, 0, 0, 1], port)),
            header: Header::new(1, node, node, 1),
        }
    }

    fn hello(&mut self, to: &mut Node, now: Now, echo: Option<u64>) {
        let mut buf = [0u8; 1200];
        let header = Header {
            flags: FLAG_INTRODUCTION,
            seq: 1,
            ..self.header
        };
        let mut w = FrameWriter::new(&mut buf, &header, None).unwrap();
        w.hello(&Hello {
            nonce: self.header.node,
            echo,
            wants_digests: false,
        })
        .unwrap();
        let len = w.finish();
        to.handle(
            Input::Datagram {
                from: self.addr,
                bytes: &buf[..len],
            },
            now,
        );
    }

    /// Answers the nonce of `to`, so that frames are believed.
    fn join(&mut self, to: &mut Node, now: Now) {
        self.hello(to, now, None);
        let mut buf = [0u8; 1200];
        let mut x = self.header.node;
        while let Some((addr, len)) = to.poll_transmit(now, &mut buf, &mut || {
            x += 7;
            x
        }) {
            let sections = decode(&buf[..len]).unwrap();
            for section in sections.sections() {
                if let (Section::Hello(h), true) = (section, addr == self.addr) {
                    self.hello(to, now, Some(h.nonce));
                    return;
                }
            }
        }
    }

    fn rows(&mut self, to: &mut Node, now: Now, epoch: u64, keys: std::ops::Range<u64>) {
        let mut buf = [0u8; 1200];
        let mut next = keys.start;
        while next < keys.end {
            let mut w = FrameWriter::new(&mut buf, &self.header, None).unwrap();
            let scope = Scope {
                limiter: 1,
                epoch,
                origin: None,
            };
            let mut rows = w.rows(&scope).unwrap();
            while next < keys.end && rows.push(key(next), 3).is_ok() {
                next += 1;
            }
            rows.finish().unwrap();
            let len = w.finish();
            self.header.seq += 1;
            to.handle(
                Input::Datagram {
                    from: self.addr,
                    bytes: &buf[..len],
                },
                now,
            );
            while to.poll_effect().is_some() {}
        }
    }
}

fn new_node() -> Node {
    let spec = LimiterSpec {
        short: 1,
        digest: 1,
        epoch_ns: DAY_NS,
        live_epochs: 1,
        limit: 1_000_000,
        error_budget_ppm: 10_000,
    };
    let tunables = Tunables {
        origin_share_ppm: 1_000_000,
        ..Tunables::default()
    };
    let config = Config {
        node: 99,
        incarnation: 99,
        session: 1,
        cluster: 1,
        keys: None,
        limiters: vec![spec],
        tunables,
    };
    Node::new(config, 1)
}

/// Counts every key as own; gives the worst single input.
fn count_own(node: &mut Node, now: Now, epoch: u64, keys: u64) {
    let (started, mut worst_ns) = (Instant::now(), 0);
    for i in 0..keys {
        let at = Instant::now();
        node.handle(
            Input::Own {
                limiter: 0,
                key: key(i),
                epoch,
                count: 3,
            },
            now,
        );
        worst_ns = worst_ns.max(at.elapsed().as_nanos());
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("own counts: {seconds:.1} s, worst single input {worst_ns} ns");
}

/// Three days later: everything is given back in turns.
fn expire(node: &mut Node, stored: u64) {
    let (mut worst_ns, mut turns) = (0, 0u64);
    for i in 0..1_000_000u64 {
        let mono_ns = 4_000_000_000 + i * 1_000_000;
        let at = Instant::now();
        node.handle(
            Input::Tick,
            Now {
                mono_ns,
                cluster_ns: UNIX + 3 * DAY_NS,
            },
        );
        worst_ns = worst_ns.max(at.elapsed().as_nanos());
        turns = i;
        if node.stats().cells == 0 && node.stats().cell_bytes < stored / 50 {
            break;
        }
    }
    let left = node.stats().cell_bytes;
    println!("expiry: {turns} turns, worst {worst_ns} ns; {left} bytes left");
}

fn main() {
    let keys: u64 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(10_000_000);
    let mut node = new_node();
    let now = Now {
        mono_ns: 1,
        cluster_ns: UNIX,
    };
    let mut remotes = [Remote::new(1), Remote::new(2)];
    let addrs: Vec<SocketAddr> = remotes.iter().map(|r| r.addr).collect();
    node.handle(Input::Peers(&addrs), now);
    remotes.iter_mut().for_each(|r| r.join(&mut node, now));
    assert_eq!(node.peers_up(), 2, "both remotes are believed");
    let (before, epoch) = (resident_bytes(), UNIX / DAY_NS);
    count_own(&mut node, now, epoch, keys);
    for remote in &mut remotes {
        let started = Instant::now();
        remote.rows(&mut node, now, epoch, 0..keys);
        let per_row = started.elapsed().as_nanos() / u128::from(keys.max(1));
        println!("remote origin {}: {per_row} ns per row", remote.header.node);
    }
    node.handle(
        Input::Tick,
        Now {
            mono_ns: 2_000_000_000,
            ..now
        },
    );
    let total = node.remote_total(0, key(keys - 1), epoch);
    assert_eq!((total, node.stats().cells), (6, keys));
    let (stored, resident) = (node.stats().cell_bytes, resident_bytes() - before);
    println!("{keys} keys x (own + 2 origins):");
    println!(
        "  in the store    {stored} bytes, {} per key",
        stored / keys
    );
    println!(
        "  resident growth {resident} bytes, {} per key",
        resident / keys
    );
    expire(&mut node, stored);
}
