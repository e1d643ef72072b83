//! One turn of the pump: dirty rows out, remote totals in, a slice of scrub.

use std::collections::VecDeque;

use gabion_admit::Plan;
use gabion_node::{Effect, Input, Node, Now};
use gabion_rule::{Key, RuleIdx};
use gabion_table::{DirtyRow, Publish, SubSpec};

use crate::bases::{Bases, Early, Seen, Sight};
use crate::counters::Counters;
use crate::limits::{self, Tunables};
use crate::pace::Scrub;
use crate::shares::Shares;

/// What one turn did, and when the next one is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Dirty rows moved into the node.
    pub dirty_rows: usize,
    /// Remote totals moved into the table, or looked at and left in the node.
    pub remote_totals: usize,
    /// Rows the scrub found with a count the node did not know.
    pub found_rows: usize,
    /// Nothing moved.
    pub idle: bool,
    /// Pause before the next turn, nanoseconds; 0 when a budget was used up.
    pub next_turn_ns: u64,
}

/// Named counters of a pump, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PumpStats {
    /// Rows seen with a new (generation, key).
    pub rows_adopted: u64,
    /// Own counts of earlier rows carried on as a base.
    pub bases_set: u64,
    /// Bases that found their map full: the count is announced late ([pmp-9]).
    pub bases_refused: u64,
    /// Counts lower than announced in an unchanged row ([pmp-12]).
    pub shrunk_counts: u64,
    /// Remote totals that stay in the node: no row, and small.
    pub remote_left: u64,
    /// Rows claimed for a remote total.
    pub remote_claims: u64,
    /// Claims the table refused.
    pub remote_claims_refused: u64,
    /// Remote totals of an epoch that has not begun here, kept for it ([pmp-11]).
    pub early_kept: u64,
    /// Early remote totals that found their set full: seen at their next change.
    pub early_refused: u64,
    /// Rows found by the scrub with an unannounced count.
    pub scrub_found: u64,
    /// Whole passes of the scrub.
    pub scrub_passes: u64,
}

impl PumpStats {
    /// Every counter with its stable name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("rows_adopted", self.rows_adopted),
            ("bases_set", self.bases_set),
            ("bases_refused", self.bases_refused),
            ("shrunk_counts", self.shrunk_counts),
            ("remote_left", self.remote_left),
            ("remote_claims", self.remote_claims),
            ("remote_claims_refused", self.remote_claims_refused),
            ("early_kept", self.early_kept),
            ("early_refused", self.early_refused),
            ("scrub_found", self.scrub_found),
            ("scrub_passes", self.scrub_passes),
        ]
        .into_iter()
    }
}

#[derive(Clone, Copy, Debug)]
struct RulePlan {
    plan: Plan,
    limit: u64,
    live_epochs: u64,
}

impl RulePlan {
    /// Epochs that can still count at `now_ns`, oldest first; one ahead for members whose clock is.
    fn live(&self, now_ns: u64) -> std::ops::RangeInclusive<u64> {
        let now = self.plan.epoch_of(now_ns);
        now.saturating_sub(self.live_epochs.saturating_sub(1))..=now.saturating_add(1)
    }
}

/// Moves state between one table and one node. spec: pmp-1 to pmp-13
#[derive(Debug)]
pub struct Pump {
    rules: Vec<RulePlan>,
    members_hint: u32,
    tunables: Tunables,
    bases: Bases,
    seen: Seen,
    early: Early,
    handed_on: VecDeque<Effect>,
    /// Reused between turns, so that a turn does not allocate once it is warm.
    rows: Vec<DirtyRow>,
    pause_ns: u64,
    members: Option<u64>,
    scrub: Scrub,
    shares: Shares,
    stats: PumpStats,
}

impl Pump {
    /// A pump for the rules of a table, in the table's order. `members_hint`: how many members the
    /// cluster is expected to have at least (0 counts as 1).
    pub fn new(rules: &[SubSpec], members_hint: u32, tunables: Tunables) -> Self {
        let rules: Vec<RulePlan> = rules
            .iter()
            .map(|rule| RulePlan {
                plan: rule.plan,
                limit: u64::from(rule.plan.limit()),
                live_epochs: u64::from(rule.plan.live_epochs().max(1)),
            })
            .collect();
        let shortest = rules
            .iter()
            .map(|rule| rule.plan.epoch_ns())
            .min()
            .unwrap_or(u64::MAX);
        let wrap = shortest.saturating_mul(1 << limits::EPOCH_BITS);
        let period_ns = tunables
            .scrub_period_ns
            .min(wrap / limits::SCRUB_PASSES_PER_WRAP)
            .max(1);
        Pump {
            rules,
            members_hint,
            bases: Bases::new(tunables.bases_max),
            seen: Seen::default(),
            early: Early::new(tunables.early_max),
            handed_on: VecDeque::with_capacity(limits::HANDED_ON_MAX),
            rows: Vec::with_capacity(tunables.dirty_rows_per_turn),
            pause_ns: tunables.pause_busy_ns,
            members: None,
            scrub: Scrub::new(period_ns),
            stats: PumpStats::default(),
            shares: Shares::new(tunables.pause_idle_max_ns),
            tunables,
        }
    }

    /// One turn. Work is bounded by the tunables; the caller sleeps `next_turn_ns` or until its
    /// socket is readable, whichever comes first, and then turns again.
    pub fn turn<T: Counters + ?Sized>(&mut self, table: &T, node: &mut Node, now: Now) -> Turn {
        if !self.seen.ready() {
            self.size_up(table);
        }
        self.members = None;
        self.shares.turn(table, node, now);
        let begun = self.begin_epochs(table, node, now);
        let dirty_rows = self.drain(table, node, now);
        let (remote_totals, more_effects) = self.effects(table, node, now);
        let remote_totals = remote_totals + begun;
        let found_rows = self.scrub(table, node, now);
        self.expire(now);
        let idle = dirty_rows == 0 && remote_totals == 0 && found_rows == 0;
        let full = dirty_rows >= self.tunables.dirty_rows_per_turn || more_effects;
        self.pause_ns = match (idle, self.scrub.first_pass_done) {
            (_, false) => self.tunables.pause_busy_ns,
            // There is nobody to tell.
            (false, true) if node.peer_count() == 0 => self.tunables.pause_idle_max_ns,
            (false, true) => self.tunables.pause_busy_ns,
            (true, true) => self
                .pause_ns
                .saturating_mul(2)
                .clamp(1, self.tunables.pause_idle_max_ns),
        };
        let next_turn_ns = match (full, node.hurries_ns()) {
            (true, _) => 0,
            (false, Some(soon)) => self.pause_ns.min(soon.max(limits::PAUSE_BURST_NS)),
            (false, None) => self.pause_ns,
        };
        Turn {
            dirty_rows,
            remote_totals,
            found_rows,
            idle,
            next_turn_ns,
        }
    }

    /// Effects of the node that are not the pump's, in their order. To be asked after each turn.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.handed_on.pop_front()
    }

    /// Counters since the start.
    pub fn stats(&self) -> PumpStats {
        self.stats
    }

    /// Bases held now (bounded by `Tunables::bases_max`).
    pub fn bases(&self) -> usize {
        self.bases.len()
    }

    fn size_up<T: Counters + ?Sized>(&mut self, table: &T) {
        for rule in 0..self.rules.len() {
            let rows = RuleIdx::try_from(rule).map_or(0, |rule| table.capacity(rule));
            self.scrub.rows_total = self.scrub.rows_total.saturating_add(rows);
            self.seen
                .push_rule(usize::try_from(rows).unwrap_or(usize::MAX));
        }
    }

    fn drain<T: Counters + ?Sized>(&mut self, table: &T, node: &mut Node, now: Now) -> usize {
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let budget = self.tunables.dirty_rows_per_turn;
        table.drain_dirty(budget, now.cluster_ns, &mut |row| rows.push(row));
        for row in &rows {
            self.absorb(table, node, now, row);
        }
        let count = rows.len();
        self.rows = rows;
        count
    }

    /// Gives the node the own counts of one row. True when one was news. spec: pmp-1
    fn absorb<T: Counters + ?Sized>(
        &mut self,
        table: &T,
        node: &mut Node,
        now: Now,
        row: &DirtyRow,
    ) -> bool {
        if usize::from(row.rule) >= self.rules.len() {
            return false;
        }
        match self.seen.visit(row.rule, row.row, row.generation, row.key) {
            Sight::Same => {}
            Sight::First => self.adopt(table, node, now, row, self.scrub.first_pass_done),
            Sight::Changed => self.adopt(table, node, now, row, true),
        }
        let mut news = false;
        for &(epoch, count) in row.counts.iter().take(usize::from(row.n)) {
            let known = node.own_count(row.rule, row.key, epoch);
            let mut base = self.bases.get(row.rule, epoch, row.key);
            if count > 0 && base.saturating_add(count) < known {
                // spec: pmp-12
                self.stats.shrunk_counts += 1;
                base = self.rebase(row, epoch, known - count);
                let remote = node.remote_total(row.rule, row.key, epoch);
                let total = remote.saturating_add(u64::from(base));
                self.raise(table, now, row.rule, row.key, epoch, total);
            }
            let own = base.saturating_add(count);
            if own > known {
                news = true;
                let input = Input::Own {
                    limiter: row.rule,
                    key: row.key,
                    epoch,
                    count: own,
                };
                node.handle(input, now);
            }
        }
        news
    }

    /// A row that is new here gets what the node holds. When it was `claimed` under this pump's
    /// eyes, all that was announced for its key before is its base. spec: pmp-2, pmp-3, pmp-5
    fn adopt<T: Counters + ?Sized>(
        &mut self,
        table: &T,
        node: &Node,
        now: Now,
        row: &DirtyRow,
        claimed: bool,
    ) {
        self.stats.rows_adopted += 1;
        for epoch in self.rules[usize::from(row.rule)].live(now.cluster_ns) {
            let known = node.own_count(row.rule, row.key, epoch);
            let base = if claimed && known > 0 {
                self.rebase(row, epoch, known)
            } else {
                self.bases.get(row.rule, epoch, row.key)
            };
            let remote = node.remote_total(row.rule, row.key, epoch);
            let total = remote.saturating_add(u64::from(base));
            if total > 0 {
                self.raise(table, now, row.rule, row.key, epoch, total);
            }
        }
    }

    /// Raises a remote total in the table; one of an epoch to come is kept for it. spec: pmp-11
    fn raise<T: Counters + ?Sized>(
        &mut self,
        table: &T,
        now: Now,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
    ) -> Publish {
        let answer = table.publish_remote(rule, key, epoch, total, now.cluster_ns);
        let plan = self.rules[usize::from(rule)].plan;
        if answer == Publish::Stale && epoch > plan.epoch_of(now.cluster_ns) {
            if self.early.keep(rule, epoch, key) {
                self.stats.early_kept += 1;
            } else {
                self.stats.early_refused += 1;
            }
        }
        answer
    }

    /// Publishes the totals that waited for an epoch that has begun. spec: pmp-11
    fn begin_epochs<T: Counters + ?Sized>(&mut self, table: &T, node: &Node, now: Now) -> usize {
        let mut published = 0;
        for index in 0..self.rules.len() {
            let Ok(rule) = RuleIdx::try_from(index) else {
                break;
            };
            let epoch_now = self.rules[index].plan.epoch_of(now.cluster_ns);
            while published < self.tunables.effects_per_turn {
                let Some((epoch, key)) = self.early.take(rule, epoch_now) else {
                    break;
                };
                let total = node.remote_total(rule, key, epoch);
                self.publish(table, node, now, rule, key, epoch, total);
                published += 1;
            }
        }
        published
    }

    fn rebase(&mut self, row: &DirtyRow, epoch: u64, base: u32) -> u32 {
        if self.bases.set(row.rule, epoch, row.key, base) {
            self.stats.bases_set += 1;
            base
        } else {
            self.stats.bases_refused += 1;
            self.bases.get(row.rule, epoch, row.key)
        }
    }

    /// Takes effects from the node. Returns (remote totals, whether the budget was used up).
    fn effects<T: Counters + ?Sized>(
        &mut self,
        table: &T,
        node: &mut Node,
        now: Now,
    ) -> (usize, bool) {
        let mut totals = 0;
        for _ in 0..self.tunables.effects_per_turn {
            if self.handed_on.len() >= limits::HANDED_ON_MAX {
                return (totals, false);
            }
            match node.poll_effect() {
                None => return (totals, false),
                Some(Effect::RemoteTotal {
                    limiter,
                    key,
                    epoch,
                    total,
                }) => {
                    totals += 1;
                    self.publish(table, node, now, limiter, key, epoch, total);
                }
                Some(other) => self.handed_on.push_back(other),
            }
        }
        (totals, true)
    }

    #[allow(clippy::too_many_arguments)] // the fields of one effect
    fn publish<T: Counters + ?Sized>(
        &mut self,
        table: &T,
        node: &Node,
        now: Now,
        rule: RuleIdx,
        key: Key,
        epoch: u64,
        total: u64,
    ) {
        if usize::from(rule) >= self.rules.len() {
            return;
        }
        let base = u64::from(self.bases.get(rule, epoch, key));
        let total = total.saturating_add(base);
        if self.raise(table, now, rule, key, epoch, total) == Publish::Absent {
            self.claim(table, node, now, rule, key);
        }
    }

    /// No row for `key`: everything announced for it is outside the table. spec: pmp-6
    fn claim<T: Counters + ?Sized>(
        &mut self,
        table: &T,
        node: &Node,
        now: Now,
        rule: RuleIdx,
        key: Key,
    ) {
        let plan = self.rules[usize::from(rule)];
        let total_of = |epoch: u64| {
            let own = u64::from(node.own_count(rule, key, epoch));
            node.remote_total(rule, key, epoch).saturating_add(own)
        };
        let live = plan.live(now.cluster_ns);
        let sum = live
            .clone()
            .fold(0u64, |sum, epoch| sum.saturating_add(total_of(epoch)));
        if sum <= plan.limit / self.members(node).saturating_mul(2) {
            self.stats.remote_left += 1;
            return;
        }
        let mut claimed = false;
        for epoch in live {
            let total = total_of(epoch);
            if total > 0 {
                let answer = table.publish_remote_or_claim(rule, key, epoch, total, now.cluster_ns);
                claimed |= answer == Publish::Published;
            }
        }
        if claimed {
            self.stats.remote_claims += 1;
        } else {
            self.stats.remote_claims_refused += 1;
        }
    }

    /// Members of the cluster, self included; counted at most once per turn.
    fn members(&mut self, node: &Node) -> u64 {
        let hint = u64::from(self.members_hint.max(1));
        *self.members.get_or_insert_with(|| {
            let peers = u64::try_from(node.peer_count()).unwrap_or(u64::MAX);
            hint.max(peers.saturating_add(1))
        })
    }

    /// Visits the rows that are due. Returns how many held unannounced counts. spec: pmp-7
    fn scrub<T: Counters + ?Sized>(&mut self, table: &T, node: &mut Node, now: Now) -> usize {
        let due = self
            .scrub
            .due(now.mono_ns, self.tunables.scrub_rows_per_turn);
        if due == 0 {
            return 0;
        }
        let mut rows = std::mem::take(&mut self.rows);
        rows.clear();
        let mut cursor = self.scrub.cursor;
        table.scrub(&mut cursor, due, now.cluster_ns, &mut |row| rows.push(row));
        self.scrub.cursor = cursor;
        let mut found = 0;
        for row in &rows {
            found += usize::from(self.absorb(table, node, now, row));
        }
        self.rows = rows;
        self.stats.scrub_found += u64::try_from(found).unwrap_or(u64::MAX);
        self.stats.scrub_passes += self.scrub.advance(due);
        found
    }

    fn expire(&mut self, now: Now) {
        if self.bases.len() == 0 {
            return;
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let Ok(index) = RuleIdx::try_from(index) else {
                return;
            };
            // One epoch more than is live, for members whose clock is behind.
            let oldest = rule.live(now.cluster_ns).start().saturating_sub(1);
            self.bases
                .expire(index, oldest, self.tunables.dirty_rows_per_turn);
        }
    }
}
