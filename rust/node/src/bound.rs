//! The over-admission bound that holds now, per limiter, and how old news may be.
//!
//! I own the law: what members may admit beyond a limit, from links, rates and hits held back. I
//! promise: work in proportion to links, limiters and flows, never to keys; no more than the law
//! allows with certainty ((members - 1) x limit). I never decide, and nothing here changes what is
//! sent. spec: bnd-1 to bnd-8

use std::collections::BTreeMap;

use gabion_rule::RuleIdx;

use crate::api::{LimiterSpec, Now};
use crate::limits::{MS, SECOND};
use crate::link::Link;
use crate::node::Node;
use crate::origins::{OriginIdx, NO_ORIGIN};

/// A driver that just had something to do looks at its rows again within this, nanoseconds: two
/// turns of the pump, for the first of which it may have been resting a little.
const BUSY_TURN_NS: u64 = 2 * MS;
/// A driver at rest looks at its rows within this, nanoseconds. spec: pmp-8
pub const REST_TURN_NS: u64 = 10 * MS;
/// Sums of hits are kept in thousandths.
const MILLI: u64 = 1_000;

/// What holds now for one limiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleBound {
    /// Hits that all members together may admit beyond the limit of a key. spec: bnd-2
    pub bound_hits: u64,
    /// Of which the error budget lets members that are reached hold back. spec: bnd-3
    pub held_back_hits: u64,
    /// Of which, beyond that, are under way by the rates seen. spec: bnd-5
    pub under_way_hits: u64,
    /// Of which members that are not reached may admit. spec: bnd-6
    pub unreachable_hits: u64,
    /// Age of the oldest hit that a member which is reached may lack, nanoseconds. spec: bnd-7
    pub staleness_ns: u64,
}

impl RuleBound {
    /// The same of a rule whose members have parts of their own: nobody is ever over, only late.
    // spec: bnd-10
    pub fn strict(self) -> RuleBound {
        RuleBound {
            staleness_ns: self.staleness_ns,
            ..RuleBound::default()
        }
    }
}

/// What holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Members, this one included: those of the peer set, or those that are up if that is more.
    pub members: u64,
    /// Of which are not reached both ways, or are not caught up with yet. spec: bnd-6
    pub unreachable: u64,
    /// Age of the oldest published row that a peer which is reached did not acknowledge, and what
    /// a resting driver and the emission floor add, nanoseconds.
    pub unacknowledged_ns: u64,
    /// In the order of the limiters.
    pub rules: Vec<RuleBound>,
}

/// Hits that one of `members` may hold back of what is `left` of a limit. spec: rep-3, bnd-3
pub fn share_hits(left: u64, error_budget_ppm: u32, members: u64) -> u64 {
    let budget = u128::from(left) * u128::from(error_budget_ppm);
    let share = budget / (1_000_000 * u128::from(members.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// The bound while all `members` reach each other and nothing is under way. spec: bnd-3
pub fn bound_at_rest_hits(limit: u32, error_budget_ppm: u32, members: u64) -> u64 {
    let limit = u64::from(limit);
    let each = share_hits(limit, error_budget_ppm, members).min(limit);
    each.saturating_mul(members.max(1) - 1)
}

/// What one member may have admitted that another does not know, thousandths of hits. spec: bnd-5
fn unseen_milli(held: u64, jump: u64, per_second: u64, spacing_ns: u64, lag_ns: u64) -> u64 {
    let by_jumps = jump.saturating_mul(SECOND) / spacing_ns.max(1);
    let rate = u128::from(per_second.min(by_jumps));
    let under_way = rate * u128::from(lag_ns) * u128::from(MILLI) / u128::from(SECOND);
    let under_way = u64::try_from(under_way).unwrap_or(u64::MAX);
    (held.max(jump).saturating_mul(MILLI)).saturating_add(under_way)
}

/// What is known of the links, for all limiters alike.
struct Reach {
    unreachable: u64,
    reached: u64,
    /// How old news from each origin that is reached may be.
    lags: BTreeMap<OriginIdx, u64>,
    /// The same of own news at the peers.
    own_lag_ns: u64,
    /// Silence, or the way here, of the peer that is reached worst.
    inward_ns: u64,
    unacknowledged_ns: u64,
}

impl Node {
    /// The bounds that hold at `now`. Costs in proportion to links, limiters and what was busy in
    /// the last ten seconds. To be asked every now and then, not for each request.
    pub fn bounds(&self, now: Now) -> Bounds {
        let reach = self.reach(now.mono_ns);
        let rules = (0..self.limiters.len()).filter_map(|index| {
            let limiter = RuleIdx::try_from(index).ok()?;
            Some(self.bound_of(limiter, self.limiters.get(index)?, &reach, now.mono_ns))
        });
        Bounds {
            rules: rules.collect(),
            members: reach.reached + reach.unreachable + 1,
            unreachable: reach.unreachable,
            unacknowledged_ns: reach.unacknowledged_ns,
        }
    }

    /// Does news pass both ways between this member and the one with that node id? spec: bnd-6
    pub fn reaches(&self, node: u64, now: Now) -> bool {
        let of = |link: &&Link| link.origin().is_some_and(|o| o.node == node);
        let mut links = self.each_link().filter(of);
        links.any(|link| self.is_reached(link, now.mono_ns))
    }

    /// Counts peers anew: who is up, and how many share an error budget.
    pub(crate) fn count_peers(&mut self) {
        self.stats.peers_up = self.peers_up() as u64;
        let named = |l: &&Link| l.alias_of.is_none() && (l.configured || l.up);
        self.members = self.each_link().filter(named).count() as u64 + 1;
        self.pace_acks();
    }

    /// News of a limiter: `hits` in all, one count by `jump` at once. spec: bnd-5
    pub(crate) fn note_flow(&mut self, limiter: RuleIdx, origin: OriginIdx, news: (u64, u32)) {
        let (now, pause) = (self.now.mono_ns, self.t.heartbeat_ns);
        self.flows.note((limiter, origin), now, news, pause);
    }

    /// A peer that came up, or a link that fell behind the log, is caught up with when a heartbeat
    /// passed, both lists of digests are through and nothing of it is being repaired. spec: bnd-6
    pub(crate) fn find_caught_up(&mut self) {
        let now = self.now.mono_ns;
        for at in 0..self.links.len() {
            let repaired = !self.repairs.iter().any(|r| r.link == at);
            let Some(link) = self.links[at].as_mut() else {
                continue;
            };
            let since = link.peer.as_ref().map_or(now, |p| p.since_ns);
            let through = link.list.is_none() && link.jobs.is_empty() && !link.tx.relists();
            let long = now >= since + self.t.idle_heartbeat_ns;
            link.caught_up |= link.up && long && through && repaired;
        }
    }

    /// Does news pass both ways? spec: bnd-6
    fn is_reached(&self, link: &Link, now_ns: u64) -> bool {
        let silent = now_ns.saturating_sub(link.last_in_ns);
        link.up
            && link.caught_up
            && link.hears_us(now_ns, &self.t)
            && silent <= self.t.idle_heartbeat_ns * link.slow * 5 / 2
    }

    /// Age of the oldest published news that the peer has not acknowledged. spec: bnd-4
    pub(crate) fn unacknowledged_ns(&self, link: &Link, now_ns: u64) -> u64 {
        let oldest = link.oldest_lacked(self.log.head());
        oldest.map_or(0, |pos| self.marks.age_ns(pos, now_ns))
    }

    /// How old the newest that is known of a peer may be, or that the peer knows of this member.
    /// spec: bnd-4
    fn way_ns(&self, link: &Link, turn_ns: u64, now_ns: u64) -> u64 {
        let way = link.tx.srtt_ns / 2 + link.tx.rttvar_ns();
        let mut lag = (turn_ns + self.floor_ns() + way) * self.hops(); // spec: dis-14
        let again_ns = link.tx.rto_ns(&self.t);
        if link.rx.gap_within(now_ns, 2 * again_ns) {
            lag += again_ns; // what was in the lost frame may be on its way once more
        }
        let silent = now_ns.saturating_sub(link.last_in_ns);
        if silent > self.t.idle_heartbeat_ns * link.slow + lag {
            return silent.max(lag);
        }
        lag
    }

    /// What stalls of the driver add to news of that age: what it did not look at is older than it
    /// knows, and what it did not let leave as well. spec: bnd-4
    fn stalls_add_ns(&self, age_ns: u64, now_ns: u64) -> u64 {
        let asleep_ns = now_ns.saturating_sub(self.now.mono_ns);
        let waits_ns = self.t.heartbeat_ns + self.floor_ns() + REST_TURN_NS + asleep_ns;
        2 * self.stalled_ns(age_ns + waits_ns, now_ns)
    }

    fn reach(&self, now_ns: u64) -> Reach {
        let mut reach = Reach {
            unreachable: 0,
            reached: 0,
            lags: BTreeMap::new(),
            own_lag_ns: 0,
            inward_ns: 0,
            unacknowledged_ns: 0,
        };
        // Nobody told this machine what time it is for longer than a turn: its driver stands still.
        let asleep_ns = now_ns.saturating_sub(self.now.mono_ns);
        let turns = |turn_ns: u64| match asleep_ns > REST_TURN_NS {
            true => asleep_ns,
            false => turn_ns,
        };
        let busy_ns = turns(BUSY_TURN_NS);
        let rest_ns = turns(REST_TURN_NS);
        for link in self.each_link() {
            if link.alias_of.is_some() || !(link.configured || link.up) {
                continue;
            }
            if !self.is_reached(link, now_ns) {
                reach.unreachable += 1;
                continue;
            }
            reach.reached += 1;
            let lag = self.way_ns(link, busy_ns, now_ns);
            let inward = self.way_ns(link, rest_ns, now_ns);
            reach.inward_ns = reach.inward_ns.max(inward);
            let unacked = self.unacknowledged_ns(link, now_ns);
            let unacked = unacked + self.stalls_add_ns(unacked, now_ns);
            reach.unacknowledged_ns = reach.unacknowledged_ns.max(unacked);
            let late = unacked > link.tx.ack_within_ns(&self.t);
            let out = lag.max(if late { unacked } else { 0 });
            reach.own_lag_ns = reach.own_lag_ns.max(out);
            let origin = link.origin().and_then(|o| self.cells.origins.find(o));
            if let Some(origin) = origin {
                let known = reach.lags.entry(origin).or_default();
                *known = lag.max(*known);
            }
        }
        if reach.reached > 0 {
            // Who was not told directly is told within the other rounds. spec: dis-14
            let hops = self.hops();
            reach.unacknowledged_ns += rest_ns + self.floor_ns();
            reach.unacknowledged_ns += reach.own_lag_ns / hops * (hops - 1);
        }
        reach
    }

    fn bound_of(
        &self,
        limiter: RuleIdx,
        spec: &LimiterSpec,
        reach: &Reach,
        now_ns: u64,
    ) -> RuleBound {
        let limit = u64::from(spec.limit);
        let held = share_hits(limit, spec.error_budget_ppm, self.members).min(limit);
        let (each, most) = (held.saturating_mul(MILLI), limit.saturating_mul(MILLI));
        // All members that are reached and this one, less the one that contributes least: who
        // admits last knows its own hits.
        let (mut sum, mut busy, mut least) = (0u64, 0u64, u64::MAX);
        let mut staleness_ns = reach.inward_ns;
        for (origin, flow) in self.flows.of(limiter, now_ns) {
            let lag = match origin {
                NO_ORIGIN if reach.reached > 0 => Some(reach.own_lag_ns),
                NO_ORIGIN => None,
                other => reach.lags.get(&other).copied(),
            };
            let Some(lag) = lag else { continue };
            let spacing = self.floor_ns();
            let unseen = unseen_milli(held, flow.jump(), flow.per_second(), spacing, lag).min(most);
            (sum, busy, least) = (sum.saturating_add(unseen), busy + 1, least.min(unseen));
            if origin == NO_ORIGIN {
                staleness_ns =
                    staleness_ns.max(self.outward_ns(flow.run_ns(), held, reach, now_ns));
            }
        }
        let calm = (reach.reached + 1).saturating_sub(busy);
        if calm > 0 {
            least = least.min(each);
        }
        let all = sum
            .saturating_add(each.saturating_mul(calm))
            .saturating_sub(least);
        let reached = all.div_ceil(MILLI);
        let unreachable = reach.unreachable.saturating_mul(limit);
        let certain = limit.saturating_mul(reach.reached + reach.unreachable);
        let held_back = held.saturating_mul(reach.reached).min(reached);
        RuleBound {
            bound_hits: reached.saturating_add(unreachable).min(certain),
            held_back_hits: held_back,
            under_way_hits: reached - held_back,
            unreachable_hits: unreachable,
            staleness_ns: if reach.reached > 0 { staleness_ns } else { 0 },
        }
    }

    /// How old own news may be that a peer lacks: nothing when there was none lately. spec: bnd-7
    fn outward_ns(&self, (first, last): (u64, u64), held: u64, reach: &Reach, now: u64) -> u64 {
        let wait = self.t.heartbeat_ns;
        // One hit is never held back for longer than a round.
        let held_ns = match held > 1 {
            true => wait.min(now.saturating_sub(first)),
            false => 0,
        };
        let quiet = now.saturating_sub(last) > wait.saturating_add(reach.unacknowledged_ns);
        match quiet {
            true => 0,
            false => reach.unacknowledged_ns + held_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_rest_the_bound_is_the_budget_or_a_hit_of_each_other_member() {
        for (limit, members, bound) in [
            (450, 3, 2), // case 46: 1 % is 4.5, among three 1 each
            (5, 10, 9),  // case 47
            (1_000, 16, 15),
            (100_000, 10, 900),
            (1_000_000, 2, 5_000),
            (7, 1, 0),
            (0, 9, 0),
        ] {
            assert_eq!(
                bound_at_rest_hits(limit, 10_000, members),
                bound,
                "{limit} on {members}"
            );
        }
        assert_eq!(bound_at_rest_hits(100, 1_000_000, 2), 50);
        assert_eq!(
            bound_at_rest_hits(u32::MAX, 1_000_000, u64::MAX),
            u64::MAX - 1
        );
    }

    #[test]
    fn what_is_under_way_is_the_lower_rate_times_the_lag() {
        // 100 a second for 20 ms, two at once at most.
        assert_eq!(unseen_milli(1, 2, 100, MS, 20 * MS), 4_000);
        // Very many keys: no key of theirs rises faster than one a round.
        assert_eq!(unseen_milli(1, 1, 1_000_000, MS, 2 * MS), 3_000);
        assert_eq!(unseen_milli(9, 0, 0, MS, SECOND), 9_000);
    }
}
