//! Many keys of one rule, each with remote counts of two members: memory and decision time.
//!
//! Table, node and pump are the production ones; the two other members are counterfeit, so that the
//! memory is that of one member. It runs in a process of its own.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use gabion_admit::Outcome;
use gabion_node::{Config, Input, Node, Now};
use gabion_pump::Pump;
use gabion_rule::{Key, Mode};
use gabion_table::{Charge, Mem, RawMem, Table};
use gabion_wire::{Scope, MAX_FRAME_BYTES};
use serde::{Deserialize, Serialize};

use crate::core::peer::FakePeer;
use crate::limits::{
    BLOCKS, BLOCK_DECISIONS, FEW_KEYS, MANY_KEYS_P99_RATIO_MAX, MANY_KEYS_RSS_BYTES_MAX,
    ROWS_PER_100_KEYS,
};
use crate::report::{percentile, Bar, Figure};
use crate::rig::{self, Picker, SECOND_NS};
use crate::{system, BenchError};

const CLUSTER: u32 = 7;
const WINDOW_NS: u64 = 3_600 * SECOND_NS;
/// A tenth into a window of 2026: no run crosses its end.
const START_NS: u64 = 498_889 * WINDOW_NS + WINDOW_NS / 10;
const LIMIT: u32 = 1_000;
/// Hits of the two other members on every key.
const REMOTE: [u32; 2] = [2, 3];
/// Keys between two turns of the pump.
const BATCH: u64 = 1_024;
/// Simulated time between two batches.
const BATCH_NS: u64 = 1_000_000;
/// Keys whose sum is checked at the end.
const CHECKED: u64 = 10_000;
const SEED: u64 = 42;

/// Decision times in nanoseconds, clock read included: medians over blocks of decisions, so that
/// what else the machine did for a moment is in none of them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// Half of the decisions take at most this.
    pub p50_ns: u64,
    /// 99 of 100 take at most this.
    pub p99_ns: u64,
    /// 999 of 1,000 take at most this.
    pub p999_ns: u64,
}

/// What many keys came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KeysResult {
    /// Most resident memory until the table was full, bytes.
    pub resident_most_bytes: u64,
    /// Bytes of the table in it.
    pub table_bytes: u64,
    /// Row slots of the table.
    pub rows: u64,
    /// A table of its own with [`FEW_KEYS`] keys.
    pub small: Times,
    /// [`FEW_KEYS`] of the large table's keys.
    pub few: Times,
    /// All of the large table's keys.
    pub all: Times,
    /// All of them right after the window's end, when every row is stale at once.
    pub expired: Times,
}

struct World {
    table: Table<RawMem>,
    node: Node,
    pump: Pump,
    peers: [FakePeer; 2],
    scope: Scope,
    ns: u64,
    random: Picker,
}

impl World {
    fn new(keys: u64) -> Result<World, BenchError> {
        let (rule, limiter) = rig::fixed_rule(1, LIMIT, WINDOW_NS);
        let table = rig::table_of(&rule, keys * ROWS_PER_100_KEYS / 100)?;
        let config = Config {
            node: 1,
            incarnation: 1,
            session: 1,
            cluster: CLUSTER,
            keys: None,
            limiters: vec![limiter],
            tunables: gabion_node::Tunables::default(),
        };
        let pump = Pump::new(&[rule], 3, gabion_pump::Tunables::default());
        let peer =
            |i: u16| FakePeer::new(SocketAddr::from(([127, 0, 0, 1], i)), CLUSTER, u64::from(i));
        let mut world = World {
            table,
            node: Node::new(config, 0),
            pump,
            peers: [peer(2), peer(3)],
            scope: Scope {
                limiter: limiter.short,
                epoch: START_NS / WINDOW_NS,
                origin: None,
            },
            ns: 0,
            random: Picker(SEED),
        };
        let addrs = [world.peers[0].addr(), world.peers[1].addr()];
        let now = world.now();
        world.node.handle(Input::Peers(&addrs), now);
        for _ in 0..5_000 {
            world.step()?;
            if world.node.peers().filter(|peer| peer.up).count() == 2 {
                return Ok(world);
            }
        }
        Err(BenchError::Void(
            "the counterfeit members are not believed".to_owned(),
        ))
    }

    fn now(&self) -> Now {
        Now {
            mono_ns: self.ns,
            cluster_ns: START_NS + self.ns,
        }
    }

    /// One millisecond: pump, frames out, answers in.
    fn step(&mut self) -> Result<usize, BenchError> {
        self.ns += BATCH_NS;
        let now = self.now();
        self.node.handle(Input::Tick, now);
        let mut moved = 0;
        loop {
            let turn = self.pump.turn(&self.table, &mut self.node, now);
            moved += turn.dirty_rows + turn.remote_totals;
            while self.pump.poll_effect().is_some() {}
            if turn.next_turn_ns > 0 {
                break;
            }
        }
        let mut buf = [0u8; MAX_FRAME_BYTES];
        let random = &mut self.random;
        while let Some((to, n)) = self
            .node
            .poll_transmit(now, &mut buf, &mut || random.next())
        {
            if let Some(peer) = self.peers.iter_mut().find(|peer| peer.addr() == to) {
                peer.take(&buf[..n]);
            }
        }
        for peer in &mut self.peers {
            peer.answer(&mut self.node, now)
                .map_err(BenchError::start("frame"))?;
        }
        Ok(moved)
    }

    fn decide(&self, key: Key) -> Outcome {
        let mut charges = [Charge::new(0, key, 1, Mode::Enforce, 0)];
        self.table.decide(&mut charges, START_NS + self.ns).outcome
    }

    fn fill(&mut self, keys: u64) -> Result<(), BenchError> {
        let mut from = 0;
        while from < keys {
            let batch: Vec<Key> = (from..keys.min(from + BATCH)).map(rig::key).collect();
            if batch
                .iter()
                .any(|key| self.decide(*key) != Outcome::Allowed)
            {
                return Err(BenchError::Void("a first hit was denied".to_owned()));
            }
            self.step()?;
            let now = self.now();
            for (peer, count) in self.peers.iter_mut().zip(REMOTE) {
                let fed = peer.rows(&mut self.node, now, &self.scope, &batch, count);
                fed.map_err(BenchError::start("frame"))?;
            }
            from += BATCH;
        }
        // Until what is left has moved.
        let settled = (0..10_000).any(|_| self.step().is_ok_and(|moved| moved == 0));
        if settled {
            Ok(())
        } else {
            Err(BenchError::Void(
                "the pump does not come to rest".to_owned(),
            ))
        }
    }

    /// Every key has its own hit and those of both members, but for what the table evicted.
    fn check(&mut self, keys: u64) -> Result<(), BenchError> {
        let want = u64::from(1 + REMOTE[0] + REMOTE[1]);
        let now_ns = self.now().cluster_ns;
        let mut wrong = 0u64;
        for _ in 0..CHECKED {
            let key = rig::key(self.random.below(keys));
            wrong += u64::from(self.table.read(0, key, now_ns).used != want);
        }
        if wrong * 100 > CHECKED {
            let stats = self.table.stats();
            return Err(BenchError::Void(format!(
                "{wrong} of {CHECKED} keys do not show {want} hits; {stats:?}"
            )));
        }
        Ok(())
    }

    /// One block of decisions on the first `keys` keys. Few keys are asked for once before, so that
    /// they are as warm as keys that are asked for all the time.
    fn time(&mut self, keys: u64) -> Result<Times, BenchError> {
        if keys <= FEW_KEYS {
            (0..keys).for_each(|n| {
                self.decide(rig::key(n));
            });
        }
        let mut times = Vec::with_capacity(BLOCK_DECISIONS);
        let mut denied = 0u64;
        for _ in 0..BLOCK_DECISIONS {
            let key = rig::key(self.random.below(keys));
            let from = Instant::now();
            let outcome = self.decide(key);
            let took = from.elapsed();
            times.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
            denied += u64::from(outcome == Outcome::Denied);
        }
        if denied > 0 {
            return Err(BenchError::Void(format!("{denied} decisions were denied")));
        }
        let mut at = |share| percentile(&mut times, share).unwrap_or(0);
        Ok(Times {
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
        })
    }
}

fn medians(blocks: &[Times]) -> Times {
    let of = |field: fn(&Times) -> u64| {
        let mut values: Vec<u64> = blocks.iter().map(field).collect();
        percentile(&mut values, 0.5).unwrap_or(0)
    };
    Times {
        p50_ns: of(|t| t.p50_ns),
        p99_ns: of(|t| t.p99_ns),
        p999_ns: of(|t| t.p999_ns),
    }
}

fn filled(keys: u64) -> Result<World, BenchError> {
    let mut world = World::new(keys)?;
    world.fill(keys)?;
    world.check(keys)?;
    Ok(world)
}

/// The work of the measurement, in this process.
///
/// # Errors
/// The counts are not what was put in.
pub fn work(keys: u64) -> Result<KeysResult, BenchError> {
    let mut large = filled(keys)?;
    let resident_most_bytes = system::resident_most_bytes()?;
    let mut small = filled(FEW_KEYS)?;
    let mut blocks: [Vec<Times>; 4] = Default::default();
    for _ in 0..BLOCKS {
        blocks[0].push(small.time(FEW_KEYS)?);
        blocks[1].push(large.time(FEW_KEYS.min(keys))?);
        blocks[2].push(large.time(keys)?);
    }
    large.ns += WINDOW_NS;
    for _ in 0..BLOCKS {
        blocks[3].push(large.time(keys)?);
    }
    let [small, few, all, expired] = blocks.map(|blocks| medians(&blocks));
    Ok(KeysResult {
        resident_most_bytes,
        table_bytes: large.table.mem().len() as u64 * 8,
        rows: large.table.capacity(0),
        small,
        few,
        all,
        expired,
    })
}

fn in_own_process(keys: u64) -> Result<KeysResult, BenchError> {
    let program = std::env::current_exe()?;
    let output = Command::new(program)
        .args(["work-keys", &keys.to_string()])
        .output()?;
    let void = |why: String| BenchError::Void(format!("{keys} keys: {why}"));
    if !output.status.success() {
        return Err(void(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| void(e.to_string()))
}

/// Memory of many keys, and decisions on them against decisions on few, in turns.
///
/// # Errors
/// A table could not be filled.
pub fn measure(many: u64) -> Result<Vec<Figure>, BenchError> {
    let got = in_own_process(many)?;
    let millions = many as f64 / 1e6;
    let name = |what: &str| format!("{millions} M keys, 2 remote members: {what}");
    let ns = |name: String, value: u64| Figure::stated(name, value as f64, "ns");
    let ratio = |name: String, to: u64| {
        let value = got.all.p99_ns as f64 / to.max(1) as f64;
        Figure::barred(name, value, "x", Bar::AtMost(MANY_KEYS_P99_RATIO_MAX))
    };
    let resident = got.resident_most_bytes as f64;
    let most = Bar::AtMost(MANY_KEYS_RSS_BYTES_MAX);
    Ok(vec![
        Figure::barred(name("most resident memory"), resident, "bytes", most),
        Figure::stated(
            name("of it the table, 0.8 full"),
            got.table_bytes as f64,
            "bytes",
        ),
        Figure::stated(name("memory per key"), resident / many as f64, "bytes"),
        ns(
            "table of 10,000 keys: decision p50, clock read included".to_owned(),
            got.small.p50_ns,
        ),
        ns(
            "table of 10,000 keys: decision p99, clock read included".to_owned(),
            got.small.p99_ns,
        ),
        ns(name("decision p50"), got.all.p50_ns),
        ns(name("decision p99"), got.all.p99_ns),
        ns(name("decision p99.9"), got.all.p999_ns),
        ns(name("p99 when all rows just expired"), got.expired.p99_ns),
        ns(name("p99 on 10,000 of them"), got.few.p99_ns),
        ratio(name("p99 against 10,000 of them"), got.few.p99_ns),
        ratio(name("p99 against a table of 10,000"), got.small.p99_ns),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_world_shows_every_key_with_all_its_counts() {
        let mut world = World::new(5_000).unwrap();
        world.fill(5_000).unwrap();
        let now_ns = world.now().cluster_ns;
        let used = |n: u64| world.table.read(0, rig::key(n), now_ns).used;
        assert!((0..5_000).all(|n| used(n) == 6));
    }
}
