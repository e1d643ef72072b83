//! The checker `bound`: nobody is further over a limit than the law allows.
//!
//! I own what was admitted lately, by whom and when. I promise: a look costs in proportion to the
//! hits of the last seconds, and only when a limit is exceeded. The law is told from what members
//! state at that moment, and from the truth. spec: bnd-9

use std::collections::VecDeque;

use gabion_admit::Plan;
use gabion_node::{share_hits, Fanout};
use gabion_rule::{Key, Pace, RuleIdx, Sliding};

use crate::config::SECOND;
use crate::truth::Life;
use crate::world::World;

/// Hits are remembered for this long; what is staler is taken for not reached.
const KEPT_NS: u64 = 10 * SECOND;
/// Clocks of members agree by this long after one was stepped, beside the rule's own window.
const CLOCKS_SETTLE_NS: u64 = 5 * SECOND;

struct Hit {
    at_ns: u64,
    rule: RuleIdx,
    key: Key,
    life: Life,
    hits: u64,
}

/// What was admitted lately, and when a clock was last stepped.
#[derive(Default)]
pub(crate) struct Lately {
    hits: VecDeque<Hit>,
    stepped_ns: Option<u64>,
}

impl Lately {
    /// A member's clock was stepped.
    pub(crate) fn stepped(&mut self, now_ns: u64) {
        self.stepped_ns = Some(now_ns);
    }

    fn push(&mut self, hit: Hit) {
        let oldest = hit.at_ns.saturating_sub(KEPT_NS);
        while self.hits.front().is_some_and(|hit| hit.at_ns < oldest) {
            self.hits.pop_front();
        }
        self.hits.push_back(hit);
    }

    /// Hits of one counter that `life` admitted since `since_ns`.
    fn since(&self, rule: RuleIdx, key: Key, life: Life, since_ns: u64) -> u64 {
        let late = self.hits.iter().rev().take_while(|h| h.at_ns >= since_ns);
        let of = late.filter(|h| (h.rule, h.key, h.life) == (rule, key, life));
        of.map(|h| h.hits).sum()
    }
}

impl World {
    /// `bound`, for a hit just admitted at `member` and entered in the truth.
    pub(crate) fn check_bound(&mut self, member: usize, rule: RuleIdx, key: Key, hits: u32) {
        let (at_ns, life) = (self.now_ns, self.members[member].life);
        self.lately.push(Hit {
            at_ns,
            rule,
            key,
            life,
            hits: u64::from(hits),
        });
        let config = &self.config.rules[usize::from(rule)];
        let Plan::Window(plan) = self.plan(rule) else {
            return;
        };
        let rough = plan.sliding == Sliding::Weighted && plan.closed > 0;
        if rough || matches!(config.pace, Pace::Strict { .. }) || !self.config.roomy {
            return;
        }
        if matches!(self.config.node.fanout, Fanout::Members(_)) {
            return; // who is missed by all rounds hears later than is stated. spec: dis-14
        }
        let window_ns = plan.bucket_ns.saturating_mul(u64::from(plan.closed) + 2);
        let unsettled = window_ns.saturating_add(CLOCKS_SETTLE_NS);
        let stepped = self.lately.stepped_ns;
        if stepped.is_some_and(|at| at_ns < at.saturating_add(unsettled)) {
            return;
        }
        let epochs = self.counting(member, rule, key);
        let truth = self.truth.window(rule, key, epochs.clone());
        let over = truth.saturating_sub(u64::from(plan.limit));
        let ambiguous = || {
            let mut known = self.truth.epochs(rule, key, epochs.clone());
            known.any(|(_, epoch)| epoch.ambiguous)
        };
        if over == 0 || ambiguous() {
            return;
        }
        self.report.checks += 1;
        let (allowed, why) = self.allowed_over(member, rule, key, plan.limit, epochs);
        if over > allowed {
            let limit = plan.limit;
            let detail = format!(
                "rule {rule} {key:?}: {truth} admitted of {limit}, the law allows {allowed} more: \
                 {why}"
            );
            self.violate("bound", member, detail);
        }
    }

    /// What the law allows `member` not to know now, and how that comes. spec: bnd-9
    fn allowed_over(
        &self,
        member: usize,
        rule: RuleIdx,
        key: Key,
        limit: u32,
        epochs: std::ops::RangeInclusive<u64>,
    ) -> (u64, String) {
        let me = &self.members[member];
        let of = |life: Life| -> u64 {
            let all = self.truth.epochs(rule, key, epochs.clone());
            all.map(|(_, epoch)| epoch.of(life)).sum()
        };
        let (mut allowed, mut living, mut why) = (0, of(me.life), String::new());
        for other in self.members.iter().filter(|m| m.life != me.life) {
            let own = of(other.life);
            living += own;
            if own == 0 {
                continue;
            }
            let may = self.unseen(member, other.index, rule, key, limit).min(own);
            allowed += may;
            why += &format!("{may} of member {}'s {own}; ", other.index);
        }
        // Lives that ended, and what the node knows and the table does not.
        let total = self.truth.window(rule, key, epochs.clone());
        let heard: u64 = epochs.clone().map(|e| me.remote(rule, key, e)).sum();
        let unheard = total.saturating_sub(of(me.life) + heard);
        let dead = (total - living.min(total)).min(unheard);
        let used = me.read(rule, key, self.now_ns).map_or(0, |r| r.used);
        let outside = (of(me.life) + heard).saturating_sub(used);
        why += &format!("{dead} of lives that ended; {outside} not in the table yet");
        (allowed + dead + outside, why)
    }

    /// What `other` may have admitted that `member` does not know.
    fn unseen(&self, member: usize, other: usize, rule: RuleIdx, key: Key, limit: u32) -> u64 {
        let (me, other) = (&self.members[member], &self.members[other]);
        let (mine, theirs) = (me.now(self.now_ns), other.now(self.now_ns));
        let reached = me.node.reaches(other.identity.node, mine)
            && other.node.reaches(me.identity.node, theirs);
        let place = other.local(rule).map(usize::from);
        let bounds = other.node.bounds(theirs);
        let stated = place.and_then(|place| bounds.rules.get(place));
        let Some(stated) = stated.filter(|_| reached) else {
            return u64::MAX;
        };
        let budget = self.config.rules[usize::from(rule)].error_budget_ppm;
        let held = share_hits(u64::from(limit), budget, bounds.members);
        let late = |age_ns: u64| match age_ns < KEPT_NS {
            true => {
                let since_ns = self.now_ns.saturating_sub(age_ns);
                self.lately.since(rule, key, other.life, since_ns)
            }
            false => u64::MAX,
        };
        let all = late(stated.staleness_ns);
        all.min(late(bounds.unacknowledged_ns).saturating_add(held))
    }
}
