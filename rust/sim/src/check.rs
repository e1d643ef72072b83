//! The checkers: what must hold in every world, whatever is done to it.
//!
//! `truth`: no view exceeds what was admitted. `early-denial`: nobody is denied while the truth is
//! under the limit. `starve`: while no fault is on, news reaches every peer in time. `converge`:
//! once faults end, all views are equal. `bounds`: cells, bases, rows. `strict`: of a strict rule
//! nothing is admitted beyond the limit. `budget` lives in
//! [`crate::budget`], `same-trace`, which compares two runs, in [`crate::run`].

use std::fmt;

use gabion_admit::{Plan, Verdict};
use gabion_rule::{Key, Pace, RuleIdx};

use crate::config::SECOND;
use crate::member::Member;
use crate::truth::EpochTruth;
use crate::world::{head_ahead, ms, Event, World};

/// One admitted hit in this many is followed to every peer.
const SAMPLE_ONE_IN: u64 = 4;
/// Faults must be over for this long before news has a deadline again: links are found dead and
/// alive, sessions believed, repairs run.
pub(crate) const RECOVERY_NS: u64 = 10 * SECOND;

/// What still holds once a damaged datagram passed for a good one: nothing about counts.
const HOLD_UNDER_FORGERY: [&str; 2] = ["bounds", "budget"];

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker found it.
    pub checker: &'static str,
    /// True time, nanoseconds.
    pub at_ns: u64,
    /// At which member.
    pub member: usize,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation {
            checker,
            at_ns,
            member,
            detail,
        } = self;
        write!(
            f,
            "{checker}: member {member} at {} ms: {detail}",
            ms(*at_ns)
        )
    }
}

/// What was known when a hit was admitted, to see whether it reaches the others.
pub(crate) struct Sample {
    rule: RuleIdx,
    key: Key,
    epoch: u64,
    at_ns: u64,
    truth: EpochTruth,
}

impl World {
    pub(crate) fn violate(&mut self, checker: &'static str, member: usize, detail: String) {
        let forged = !self.config.authenticated && self.network.stats.damaged > 0;
        if forged && !HOLD_UNDER_FORGERY.contains(&checker) {
            return;
        }
        let violation = Violation {
            checker,
            at_ns: self.now_ns,
            member,
            detail,
        };
        match &mut self.recorder {
            Some(recorder) => recorder.objected(violation),
            None => {
                self.violation.get_or_insert(violation);
            }
        }
    }

    pub(crate) fn plan(&self, rule: RuleIdx) -> Plan {
        self.config.rules[usize::from(rule)].plan()
    }

    /// Epochs that may count at `member` now: the live ones by its clock, and up to the epoch it
    /// charged last when its clock went back.
    pub(crate) fn counting(
        &self,
        member: usize,
        rule: RuleIdx,
        key: Key,
    ) -> std::ops::RangeInclusive<u64> {
        let plan = self.plan(rule);
        let held = &self.members[member];
        let now = plan.epoch_of(held.clock.cluster_ns(self.now_ns));
        let last = now + head_ahead(&plan);
        let mut later = self.truth.later(rule, key, now, held.life);
        later.push(plan.epoch_of(held.peak_cluster_ns).min(last));
        let head = later
            .into_iter()
            .filter(|&epoch| epoch <= last)
            .max()
            .unwrap_or(now);
        now.saturating_sub(u64::from(plan.live_epochs()) - 1)..=now.max(head)
    }

    /// `early-denial`: a denial needs a truth that is at the limit.
    pub(crate) fn check_denial(
        &mut self,
        member: usize,
        rule: RuleIdx,
        key: Key,
        hits: u32,
        verdict: &Verdict,
    ) {
        self.report.checks += 1;
        let plan = self.plan(rule);
        let pace = self.config.rules[usize::from(rule)].pace;
        if hits > plan.limit() || pace != Pace::Fast && verdict.is_on_share() {
            return; // more than it could ever give, or more than this member's share
        }
        match plan {
            Plan::Window(_) => {
                let epochs = self.counting(member, rule, key);
                let used = self.truth.window(rule, key, epochs.clone());
                if used + u64::from(hits) <= u64::from(plan.limit()) {
                    let limit = plan.limit();
                    let detail = format!(
                        "rule {rule} {key:?}: denied {hits} at {used} of {limit} truly used in \
                         epochs {epochs:?}: {verdict:?}"
                    );
                    self.violate("early-denial", member, detail);
                }
            }
            Plan::Gcra(_) => self.check_bucket_denial(member, rule, key, hits, verdict),
        }
    }

    /// A token bucket never locks out for longer than its hits take plus the slack of a fold, and
    /// never while nobody was admitted within its memory.
    fn check_bucket_denial(
        &mut self,
        member: usize,
        rule: RuleIdx,
        key: Key,
        hits: u32,
        verdict: &Verdict,
    ) {
        let gabion_rule::Algorithm::TokenBucket {
            hits: rate,
            per_ns,
            epoch_ns,
            ..
        } = self.config.rules[usize::from(rule)].algorithm
        else {
            return;
        };
        let each_ns = per_ns / rate.max(1) + 1;
        let slack_ns = gabion_admit::limits::FOLD_SLACK_NS;
        let longest_ns = each_ns
            .saturating_mul(u64::from(hits) + 1)
            .saturating_add(slack_ns);
        let epochs = self.counting(member, rule, key);
        // A fold may come as late as a row is accepted: the live epochs, and one of grace; what it
        // charges lasts at most one more.
        // And folds come from the epoch ahead, or from one that a clock that went back was in.
        let peak = self
            .plan(rule)
            .epoch_of(self.members[member].peak_cluster_ns);
        let epochs = epochs.start().saturating_sub(2)..=peak.max(*epochs.end()) + 1;
        let used = self.truth.window(rule, key, epochs.clone());
        if verdict.retry_after_ns > longest_ns.max(epoch_ns / 1_000) {
            let waits = verdict.retry_after_ns;
            let detail = format!("rule {rule} {key:?}: waits {waits} ns, bound {longest_ns} ns");
            self.violate("early-denial", member, detail);
        } else if used == 0 {
            let detail =
                format!("rule {rule} {key:?}: {verdict:?} in {epochs:?} with nothing admitted");
            self.violate("early-denial", member, detail);
        }
    }

    /// `strict`: all that members admitted of a strict rule in a window is within its limit.
    pub(crate) fn check_strict(&mut self, member: usize, rule: RuleIdx, key: Key, epoch: u64) {
        let (Plan::Window(plan), Pace::Strict { .. }) =
            (self.plan(rule), self.config.rules[usize::from(rule)].pace)
        else {
            return;
        };
        if plan.sliding == gabion_rule::Sliding::Weighted
            || self.config.has_wrong_clocks()
            || !self.config.roomy
        {
            return; // shares of buckets; restarts in other epochs; rows that are forgotten
        }
        self.report.checks += 1;
        let first = epoch.saturating_sub(u64::from(plan.closed));
        let ambiguous = self
            .truth
            .epochs(rule, key, first..=epoch)
            .any(|(_, truth)| truth.ambiguous);
        let admitted = self.truth.window(rule, key, first..=epoch);
        if admitted > u64::from(plan.limit) && !ambiguous {
            let detail = format!(
                "rule {rule} {key:?} epochs {first}..={epoch}: {admitted} admitted, limit {}",
                plan.limit
            );
            self.violate("strict", member, detail);
        }
    }

    /// `truth` for one counter at one member, in the node and in the table.
    pub(crate) fn check_counter(&mut self, member: usize, rule: RuleIdx, key: Key) {
        let epochs = self.counting(member, rule, key);
        let held = &self.members[member];
        let last = epochs.end().saturating_add(1);
        for epoch in *epochs.start()..=last {
            self.report.checks += 1;
            let remote = held.remote(rule, key, epoch);
            if remote == 0 {
                continue;
            }
            let others = self.truth.epoch(rule, key, epoch).others(held.life);
            if remote > others {
                let detail = format!(
                    "rule {rule} {key:?} epoch {epoch}: node shows {remote} of others, who \
                     admitted {others}"
                );
                return self.violate("truth", member, detail);
            }
        }
        if !matches!(self.plan(rule), Plan::Window(_)) {
            return;
        }
        let used = held
            .read(rule, key, self.now_ns)
            .map_or(0, |reading| reading.used);
        let truth = self.truth.window(rule, key, epochs.clone());
        if used > truth {
            let detail = format!(
                "rule {rule} {key:?} epochs {epochs:?}: table shows {used} used, {truth} admitted"
            );
            self.violate("truth", member, detail);
        }
    }

    /// All counters at all members, and every bound.
    pub(crate) fn sweep(&mut self) {
        let counters: Vec<(RuleIdx, Key)> = self.truth.counters().collect();
        // Worlds with very many keys are swept in part, another part each time.
        let stride = (counters.len() * self.members.len() / 4_000).max(1);
        let phase = usize::try_from(self.now_ns / SECOND).unwrap_or(0) % stride;
        for member in 0..self.members.len() {
            if !self.members[member].here(self.now_ns) {
                continue;
            }
            for &(rule, key) in counters.iter().skip(phase).step_by(stride) {
                self.check_counter(member, rule, key);
                if self.violation.is_some() {
                    return;
                }
            }
            self.check_bounds(member);
        }
        self.check_budgets();
    }

    /// `bounds`: what a member holds.
    fn check_bounds(&mut self, member: usize) {
        self.report.checks += 3;
        let held = &self.members[member];
        let cells = held.node.stats().cells;
        let (bases, table) = (held.pump.bases(), held.table.stats());
        let cells_max = u64::from(self.config.node.max_cells);
        if cells > cells_max {
            self.violate(
                "bounds",
                member,
                format!("{cells} cells, bound {cells_max}"),
            );
        } else if bases > self.config.pump.bases_max {
            self.violate("bounds", member, format!("{bases} bases"));
        } else if table.live > table.rows {
            self.violate("bounds", member, format!("{table:?}"));
        }
    }

    /// Follows one admitted hit in some.
    pub(crate) fn sample(&mut self, rule: RuleIdx, key: Key, epoch: u64) {
        if self.config.starve_ns == 0 || self.rng.below(SAMPLE_ONE_IN) != 0 {
            return;
        }
        let truth = self.truth.epoch(rule, key, epoch);
        let sample = Sample {
            rule,
            key,
            epoch,
            at_ns: self.now_ns,
            truth,
        };
        let due_ns = self.now_ns + self.config.starve_ns;
        self.push(due_ns, Event::Sample(Box::new(sample)));
    }

    /// `starve`: everybody who could hear of a hit has.
    pub(crate) fn check_sample(&mut self, sample: &Sample) {
        self.note_trouble();
        let calm_since = self.troubled_ns.saturating_add(RECOVERY_NS);
        if (self.troubled_ns > 0 && sample.at_ns < calm_since) || !self.config.roomy {
            return;
        }
        let plan = self.plan(sample.rule);
        let there = self.members.iter().filter(|member| !member.gone);
        let alive: Vec<u32> = there.map(|member| member.life).collect();
        for member in 0..self.members.len() {
            let held = &self.members[member];
            if held.gone {
                continue;
            }
            let now = plan.epoch_of(held.clock.cluster_ns(self.now_ns));
            let oldest = now.saturating_sub(u64::from(plan.live_epochs()) - 1);
            let known = held.local(sample.rule).is_some();
            if !known || sample.epoch < oldest || sample.epoch > now {
                continue;
            }
            let news: u64 = alive
                .iter()
                .filter(|&&life| life != held.life)
                .map(|&life| sample.truth.of(life))
                .sum();
            let remote = held.remote(sample.rule, sample.key, sample.epoch);
            self.report.news_followed += 1;
            if remote < news && !sample.truth.ambiguous {
                let detail = format!(
                    "rule {} {:?} epoch {}: shows {remote} of {news} that others had admitted at \
                     {} ms",
                    sample.rule,
                    sample.key,
                    sample.epoch,
                    ms(sample.at_ns)
                );
                return self.violate("starve", member, detail);
            }
        }
    }

    /// `converge`: every view of every live epoch is the same.
    pub(crate) fn compare_views(&mut self) {
        let counters: Vec<(RuleIdx, Key)> = self.truth.counters().collect();
        for (rule, key) in counters {
            let plan = self.plan(rule);
            let now_of = |member: &Member| plan.epoch_of(member.clock.cluster_ns(self.now_ns));
            let there = || self.members.iter().filter(|member| !member.gone);
            let newest = there().map(now_of).max().unwrap_or(0);
            let first = newest.saturating_sub(u64::from(plan.live_epochs()) - 1);
            let oldest_now = there().map(now_of).min().unwrap_or(0);
            let epochs: Vec<(u64, EpochTruth)> = self
                .truth
                .epochs(rule, key, first..=oldest_now)
                .map(|(epoch, truth)| (epoch, truth.clone()))
                .collect();
            for (epoch, truth) in &epochs {
                self.compare_epoch(rule, key, *epoch, truth);
            }
            if self.violation.is_none() && !epochs.is_empty() {
                self.compare_tables(rule, key);
            }
            if self.violation.is_some() {
                return;
            }
        }
    }

    fn compare_epoch(&mut self, rule: RuleIdx, key: Key, epoch: u64, truth: &EpochTruth) {
        if !self.config.roomy {
            return;
        }
        let there = |member: &&Member| !member.gone && member.local(rule).is_some();
        let view = |member: &Member| {
            let all = member.own(rule, key, epoch) + member.remote(rule, key, epoch);
            (member.index, all)
        };
        let views: Vec<(usize, u64)> = self.members.iter().filter(there).map(view).collect();
        self.report.views_compared += u64::try_from(views.len()).unwrap_or(0);
        let alive = self.members.iter().filter(|member| !member.gone);
        let alive: u64 = alive.map(|member| truth.of(member.life)).sum();
        let first = views.first().map_or(0, |view| view.1);
        let short = |all: u64| all < alive && !truth.ambiguous;
        let wrong = views.iter().find(|(_, all)| *all != first || short(*all));
        if let Some(&(member, _)) = wrong {
            let views: Vec<u64> = views.iter().map(|view| view.1).collect();
            let detail = format!(
                "rule {rule} {key:?} epoch {epoch}: views {views:?}, members that still live \
                 admitted {alive}, all {}",
                truth.total()
            );
            self.violate("converge", member, detail);
        }
    }

    /// What the tables show is what the nodes know, where a row is due.
    fn compare_tables(&mut self, rule: RuleIdx, key: Key) {
        let plan = self.plan(rule);
        let Plan::Window(window) = plan else { return };
        let weighted = window.sliding == gabion_rule::Sliding::Weighted;
        if !self.config.roomy || (weighted && window.closed > 0) {
            return;
        }
        for index in 0..self.members.len() {
            let held = &self.members[index];
            if held.gone || held.local(rule).is_none() {
                continue;
            }
            let epochs = self.counting(index, rule, key);
            let now = plan.epoch_of(held.clock.cluster_ns(self.now_ns));
            if *epochs.end() > now {
                continue; // its clock went back: the head is ahead
            }
            let mut known = 0;
            let mut asked = 0;
            let mut ambiguous = false;
            for epoch in epochs {
                known += held.remote(rule, key, epoch) + held.own(rule, key, epoch);
                let truth = self.truth.epoch(rule, key, epoch);
                asked += truth.of(held.life);
                ambiguous |= truth.ambiguous;
            }
            let used = held
                .read(rule, key, self.now_ns)
                .map_or(0, |reading| reading.used);
            let members = u64::try_from(self.members.len()).unwrap_or(1);
            let due = asked > 0 || known > u64::from(plan.limit()) / (2 * members);
            // A table keeps what an earlier leader was told by members that are gone since.
            let kept = held.identity.session > 1 && used > known;
            if !ambiguous && !kept && used != known && (due || used != 0) {
                let detail = format!(
                    "rule {rule} {key:?}: table shows {used}, node knows {known} (own hits: \
                     {asked})"
                );
                return self.violate("converge", index, detail);
            }
        }
    }
}
