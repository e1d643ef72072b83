//! Looks at a world as flat rows of numbers; `web/src/bridge.d.ts` names the columns.
//!
//! I own the order of the columns. I promise: a look changes nothing. Numbers are `f64`, as pages
//! have no other: exact up to 2^53, which is 104 days of nanoseconds.

use gabion_admit::Plan;
use gabion_node::Bounds;
use gabion_rule::{Key, Pace, RuleIdx, Sliding};
use gabion_sim::clock::WORLD_UNIX_NS;
use gabion_sim::member::{key, Member};
use gabion_sim::record::{Fate, FrameRecord, MergeRecord, Sent, Tally};
use gabion_sim::World;

use crate::run::Focus;

/// Numbers for one frame.
pub const FRAME_COLUMNS: usize = 8;
/// Numbers for one merge.
pub const MERGE_COLUMNS: usize = 4;
/// Numbers for one line of verdicts.
pub const VERDICT_COLUMNS: usize = 5;
/// Numbers for one member.
pub const MEMBER_COLUMNS: usize = 20;
/// Numbers for the cluster.
pub const CLUSTER_COLUMNS: usize = 20;

/// Frames as numbers.
pub fn frames(records: &[FrameRecord]) -> Vec<f64> {
    let mut flat = Vec::with_capacity(records.len() * FRAME_COLUMNS);
    for frame in records {
        let fate = match frame.fate {
            Fate::Arrives => 0.0,
            Fate::Lost => 1.0,
            Fate::Cut => 2.0,
            Fate::Copy => 3.0,
            Fate::Damaged => 4.0,
        };
        flat.extend([
            frame.sent_ns as f64,
            frame.arrives_ns as f64,
            frame.from as f64,
            frame.to as f64,
            frame.bytes as f64,
            f64::from(frame.rows),
            f64::from(frame.kind),
            fate,
        ]);
    }
    flat
}

/// Merges as numbers.
pub fn merges(records: &[MergeRecord]) -> Vec<f64> {
    let columns = |merge: &MergeRecord| -> [f64; MERGE_COLUMNS] {
        let MergeRecord {
            at_ns,
            from,
            to,
            rows,
        } = *merge;
        [at_ns as f64, from as f64, to as f64, rows as f64]
    };
    records.iter().flat_map(columns).collect()
}

/// Verdicts as numbers.
pub fn verdicts(records: &[(usize, usize, Tally)]) -> Vec<f64> {
    let columns = |(member, rule, tally): &(usize, usize, Tally)| -> [f64; VERDICT_COLUMNS] {
        [
            *member as f64,
            *rule as f64,
            tally.admitted as f64,
            tally.denied as f64,
            tally.failed_open as f64,
        ]
    };
    records.iter().flat_map(columns).collect()
}

/// One counter of a world.
struct Counter<'w> {
    world: &'w World,
    rule: RuleIdx,
    number: u32,
    key: Key,
    plan: Plan,
    /// The table says how many hits count; else the sum of what the node knows is comparable.
    by_table: bool,
}

impl<'w> Counter<'w> {
    fn new(world: &'w World, focus: Focus) -> Option<Self> {
        let rule = world.config().rules.get(usize::from(focus.rule))?;
        let plan = rule.plan();
        let by_table = match plan {
            Plan::Window(held) => held.sliding != Sliding::Weighted || held.closed == 0,
            _ => false,
        };
        Some(Counter {
            world,
            rule: focus.rule,
            number: focus.key,
            key: key(focus.rule, focus.key),
            plan,
            by_table,
        })
    }

    /// Epochs that count when a clock shows `cluster_ns`.
    fn live(&self, cluster_ns: u64) -> std::ops::RangeInclusive<u64> {
        let now = self.plan.epoch_of(cluster_ns);
        now.saturating_sub(u64::from(self.plan.live_epochs()) - 1)..=now
    }

    fn truth(&self, cluster_ns: u64) -> u64 {
        let live = self.live(cluster_ns);
        self.world.truth.window(self.rule, self.key, live)
    }

    /// Hits that count now, as a member knows them: its table, or its node where no row is; what
    /// is small waits there until the first request.
    fn used(&self, member: &Member) -> u64 {
        let shown = match self.by_table {
            true => self.world.used(member.index, self.rule, self.number),
            false => 0,
        };
        match shown {
            0 => self.world.known(member.index, self.rule, self.number),
            _ => shown,
        }
    }

    fn own(&self, member: &Member) -> u64 {
        let live = self.live(member.clock.cluster_ns(self.world.now_ns()));
        live.map(|epoch| member.own(self.rule, self.key, epoch))
            .sum()
    }

    fn is_strict(&self) -> bool {
        let rule = &self.world.config().rules[usize::from(self.rule)];
        matches!(rule.pace, Pace::Strict { .. })
    }
}

/// What every member states now. It costs more than all the rest of a look: to be asked once.
pub fn bounds(world: &World) -> Vec<Bounds> {
    let all = (0..world.members()).map(|index| world.member(index));
    all.map(|member| member.node.bounds(member.now(world.now_ns())))
        .collect()
}

/// Every member, [`MEMBER_COLUMNS`] numbers each, and the counter in focus; `bounds` as
/// [`bounds`] gives them now.
pub fn members(world: &World, bounds: &[Bounds], focus: Focus) -> Vec<f64> {
    let Some(counter) = Counter::new(world, focus) else {
        return Vec::new();
    };
    let all = (0..world.members()).zip(bounds);
    all.flat_map(|(index, bounds)| member(&counter, world.member(index), bounds))
        .collect()
}

fn state(member: &Member, now_ns: u64) -> f64 {
    if member.gone {
        3.0
    } else if !member.here(now_ns) {
        1.0
    } else if !member.driving(now_ns) || member.slow(now_ns) {
        2.0
    } else {
        0.0
    }
}

fn member(counter: &Counter<'_>, member: &Member, bounds: &Bounds) -> [f64; MEMBER_COLUMNS] {
    let world = counter.world;
    let now_ns = world.now_ns();
    let now = member.now(now_ns);
    let place = member.local(counter.rule).map(usize::from);
    let bound = place.and_then(|place| bounds.rules.get(place)).copied();
    let mut bound = bound.unwrap_or_default();
    if counter.is_strict() {
        bound = bound.strict();
    }
    let reading = member.read(counter.rule, counter.key, now_ns);
    let (tally, sent) = match world.records() {
        Some(records) => (
            records.tally(member.index, usize::from(counter.rule)),
            records.sent(member.index),
        ),
        None => (Tally::default(), Sent::default()),
    };
    let true_ns = i128::from(WORLD_UNIX_NS) + i128::from(now_ns);
    [
        state(member, now_ns),
        counter.used(member) as f64,
        counter.own(member) as f64,
        counter.truth(now.cluster_ns) as f64,
        reading.map_or(0.0, |reading| f64::from(reading.remaining)),
        bound.bound_hits as f64,
        bound.staleness_ns as f64,
        bounds.unreachable as f64,
        member.node.peers_up() as f64,
        tally.admitted as f64,
        tally.denied as f64,
        tally.failed_open as f64,
        sent.frames as f64,
        sent.bytes as f64,
        sent.heard_frames as f64,
        sent.heard_bytes as f64,
        member.node.stats().cells as f64,
        (i128::from(now.cluster_ns) - true_ns) as f64,
        member.clock.offset_ns() as f64,
        f64::from(member.life),
    ]
}

/// The cluster as a whole, [`CLUSTER_COLUMNS`] numbers, and the counter in focus; `bounds` as
/// [`bounds`] gives them now.
pub fn cluster(world: &World, bounds: &[Bounds], focus: Focus) -> Vec<f64> {
    let Some(counter) = Counter::new(world, focus) else {
        return Vec::new();
    };
    let now_ns = world.now_ns();
    let truth = counter.truth(WORLD_UNIX_NS.saturating_add(now_ns));
    let limit = u64::from(counter.plan.limit());
    let (mut least, mut greatest, mut unknown, mut bound) = (u64::MAX, 0, 0, 0u64);
    for (index, bounds) in (0..world.members()).zip(bounds) {
        let member = world.member(index);
        if !member.here(now_ns) {
            continue;
        }
        let now = member.now(now_ns);
        let used = counter.used(member);
        least = least.min(used);
        greatest = greatest.max(used);
        unknown = counter
            .truth(now.cluster_ns)
            .saturating_sub(used)
            .max(unknown);
        let place = member.local(counter.rule).map(usize::from);
        if let Some(stated) = place.and_then(|place| bounds.rules.get(place)) {
            bound = bound.max(stated.bound_hits);
        }
    }
    if counter.is_strict() {
        bound = 0;
    }
    let (report, stats) = (world.report(), world.network.stats);
    let epoch_ns = counter.plan.epoch_ns().max(1);
    let into_ns = WORLD_UNIX_NS.saturating_add(now_ns) % epoch_ns;
    let (merged, dropped, objected) = world.records().map_or((0, 0, 0), |records| {
        (records.merged, records.frames_dropped, records.objected)
    });
    vec![
        now_ns as f64,
        truth as f64,
        limit as f64,
        truth.saturating_sub(limit) as f64,
        bound as f64,
        greatest.saturating_sub(least) as f64,
        unknown as f64,
        report.admitted as f64,
        report.denied as f64,
        report.failed_open as f64,
        stats.sent as f64,
        stats.bytes as f64,
        stats.lost as f64,
        stats.cut as f64,
        merged as f64,
        dropped as f64,
        now_ns as f64 - into_ns as f64,
        epoch_ns as f64,
        objected as f64,
        f64::from(u8::from(world.troubled())),
    ]
}
