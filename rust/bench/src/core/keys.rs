//! Many keys of one rule, each with remote counts of two members: memory and decision time.
//!
//! Table, node and pump are the production ones; the two other members are counterfeit, so that the
//! memory is that of one member. Each size runs in a process of its own.

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
    FEW_KEYS, MANY_KEYS_P99_RATIO_MAX, MANY_KEYS_RSS_BYTES_MAX, ROWS_PER_100_KEYS, TIMED_DECISIONS,
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

/// What one size came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KeysResult {
    /// Most resident memory, bytes.
    pub resident_most_bytes: u64,
    /// Resident memory at the end of filling, bytes.
    pub resident_bytes: u64,
    /// Resident memory before table and node were made, bytes.
    pub resident_before_bytes: u64,
    /// Row slots of the table.
    pub rows: u64,
    /// Bytes of its memory.
    pub table_bytes: u64,
    /// 99 of 100 decisions on [`FEW_KEYS`] keys of this very table, nanoseconds.
    pub few_p99_ns: u64,
    /// Decision times in nanoseconds, clock read included.
    pub p50_ns: u64,
    /// 99 of 100 are at most this.
    pub p99_ns: u64,
    /// 999 of 1,000 are at most this.
    pub p999_ns: u64,
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

    fn time(&mut self, keys: u64) -> Result<Vec<u32>, BenchError> {
        let mut times = Vec::with_capacity(TIMED_DECISIONS);
        let mut denied = 0u64;
        for _ in 0..TIMED_DECISIONS {
            let key = rig::key(self.random.below(keys));
            let from = Instant::now();
            let outcome = self.decide(key);
            let took = from.elapsed();
            times.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
            denied += u64::from(outcome == Outcome::Denied);
        }
        if denied > 0 {
            return Err(BenchError::Void(format!("{denied} decisions were denied")));
        }
        Ok(times)
    }
}

/// The work of one size, in this process.
///
/// # Errors
/// The counts are not what was put in.
pub fn work(keys: u64) -> Result<KeysResult, BenchError> {
    let (_, resident_before_bytes) = system::resident_bytes()?;
    let mut world = World::new(keys)?;
    world.fill(keys)?;
    world.check(keys)?;
    let (resident_most_bytes, resident_bytes) = system::resident_bytes()?;
    let mut few_times = world.time(keys.min(FEW_KEYS))?;
    let mut times = world.time(keys)?;
    let at = |times: &mut [u32], share| u64::from(percentile(times, share).unwrap_or(0));
    Ok(KeysResult {
        resident_most_bytes,
        resident_bytes,
        resident_before_bytes,
        rows: world.table.capacity(0),
        table_bytes: world.table.mem().len() as u64 * 8,
        few_p99_ns: at(&mut few_times, 0.99),
        p50_ns: at(&mut times, 0.5),
        p99_ns: at(&mut times, 0.99),
        p999_ns: at(&mut times, 0.999),
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

/// The large table against the small one.
///
/// # Errors
/// One of them could not be filled.
pub fn measure(many: u64) -> Result<Vec<Figure>, BenchError> {
    let small = in_own_process(FEW_KEYS)?;
    let large = in_own_process(many)?;
    let again = in_own_process(FEW_KEYS)?;
    // The quieter of two, so that a disturbance does not make the large one look good.
    let small = if again.p99_ns < small.p99_ns {
        again
    } else {
        small
    };
    let p99 = small.p99_ns;
    let millions = many as f64 / 1e6;
    let name = |what: &str| format!("{millions} M keys, 2 remote members: {what}");
    let resident = large.resident_most_bytes as f64;
    let ratio = large.p99_ns as f64 / p99 as f64;
    Ok(vec![
        Figure::barred(
            name("most resident memory"),
            resident,
            "bytes",
            Bar::AtMost(MANY_KEYS_RSS_BYTES_MAX),
        ),
        Figure::stated(
            name("of which the table, 0.8 full"),
            large.table_bytes as f64,
            "bytes",
        ),
        Figure::stated(name("memory per key"), resident / many as f64, "bytes"),
        Figure::stated(
            "10,000 keys: decision p50, clock read included",
            small.p50_ns as f64,
            "ns",
        ),
        Figure::stated(
            "10,000 keys: decision p99, clock read included",
            p99 as f64,
            "ns",
        ),
        Figure::stated(name("decision p50"), large.p50_ns as f64, "ns"),
        Figure::stated(name("decision p99"), large.p99_ns as f64, "ns"),
        Figure::stated(name("p99 on 10,000 of them"), large.few_p99_ns as f64, "ns"),
        Figure::stated(name("decision p99.9"), large.p999_ns as f64, "ns"),
        Figure::barred(
            name("decision p99 against 10,000 keys"),
            ratio,
            "x",
            Bar::AtMost(MANY_KEYS_P99_RATIO_MAX),
        ),
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
