//! Deciding a request (SEMANTICS 3).

use crate::charge::{Act, Ask};
use crate::evict::Door;
use crate::layout::Sub;
use crate::limits::{CHARGES_MAX, CLAIM_ATTEMPTS_MAX, NOW_MAX_NS};
use crate::mem::{Fault, Mem};
use crate::probe::Place;
use crate::row::Spot;
use crate::stats::Stat;
use crate::types::{Charge, Decision, FailOpen};
use crate::word::{HeadFormat, NARROW, WIDE};
use crate::Table;
use gabion_admit::{Outcome, Reading, Verdict};
use gabion_rule::{Key, Mode, RuleIdx};

impl<M: Mem> Table<M> {
    /// Decides a request: reads all charges, denies by the longest wait, else reserves, tightest
    /// first. Writes a verdict into each charge; their order stays. Never allocates. When denied
    /// nothing was charged but [`Decision::phantom_hits`]. spec: adm-18
    #[inline]
    pub fn decide(&self, charges: &mut [Charge], now_ns: u64) -> Decision {
        match charges {
            [only] if now_ns.wrapping_sub(1) < NOW_MAX_NS => self.decide_one(only, now_ns),
            _ => self.decide_many(charges, now_ns),
        }
    }

    /// What a counter shows. Changes nothing. A key without a row shows nothing used, also when
    /// other members count hits of it that are too few to be shown here.
    pub fn read(&self, rule: RuleIdx, key: Key, now_ns: u64) -> Reading {
        let Some(sub) = self.sub(rule) else {
            return Reading::unused(0);
        };
        let ask = Ask {
            hits: 0,
            limit: None,
            act: Act::Read,
        };
        self.peek(sub, key, ask, now_ns).0.reading
    }

    #[inline(always)]
    fn decide_one(&self, charge: &mut Charge, now_ns: u64) -> Decision {
        let enforced = charge.mode == Mode::Enforce;
        if let (true, Some(sub)) = (enforced, self.sub(charge.rule)) {
            if charge.limit.is_some() {
                return self.decide_own(sub, charge, now_ns);
            }
            if let Some(outcome) = self.decide_fast(sub, charge, now_ns) {
                return alone(charge, outcome);
            }
            if charge.peek == 0 && charge.hits <= sub.plan.limit() {
                let ask = Ask {
                    hits: charge.hits,
                    limit: None,
                    act: Act::Enforce,
                };
                let (verdict, fail_open) = self.charge(sub, charge.key, ask, None, now_ns);
                (charge.verdict, charge.fail_open) = (verdict, fail_open);
                return alone(charge, verdict.outcome);
            }
        }
        self.decide_many(std::slice::from_mut(charge), now_ns)
    }

    /// As above, for a charge that brings its limit: apart, so that the others stay as short.
    #[inline(never)]
    fn decide_own(&self, sub: &Sub, charge: &mut Charge, now_ns: u64) -> Decision {
        if charge.peek > 0 || charge.hits > charge.limit_in(sub) {
            return self.decide_many(std::slice::from_mut(charge), now_ns);
        }
        let ask = charge.ask(charge.hits, Act::Enforce);
        let (verdict, fail_open) = self.charge(sub, charge.key, ask, None, now_ns);
        (charge.verdict, charge.fail_open) = (verdict, fail_open);
        alone(charge, verdict.outcome)
    }

    #[cold]
    #[inline(never)]
    fn decide_many(&self, charges: &mut [Charge], now_ns: u64) -> Decision {
        let clock_ok = now_ns.wrapping_sub(1) < NOW_MAX_NS;
        for (i, charge) in charges.iter_mut().enumerate() {
            (charge.fail_open, charge.spot, charge.merged) = (None, None, Some(charge.hits));
            let known = self.sub(charge.rule).is_some() && i < CHARGES_MAX;
            if !clock_ok {
                self.pass(charge, FailOpen::BadClock);
            } else if !known {
                self.pass(charge, FailOpen::UnknownRule);
            }
        }
        if clock_ok {
            merge(charges);
            self.prefetch(charges);
            charges
                .iter_mut()
                .for_each(|charge| self.look(charge, now_ns));
        }
        if let Some(decider) = longest_wait(charges) {
            spread(charges);
            return Decision {
                outcome: Outcome::Denied,
                decider: Some(decider),
                phantom_hits: 0,
            };
        }
        self.reserve_all(charges, now_ns)
    }

    /// Admits a charge uncounted.
    fn pass(&self, charge: &mut Charge, why: FailOpen) {
        let limit = self.sub(charge.rule).map_or(0, |s| charge.limit_in(s));
        charge.verdict = Verdict::allowed(Reading::unused(limit));
        charge.fail_open = Some(why);
        charge.merged = None;
        match why {
            FailOpen::UnknownRule => self.note(Stat::UnknownRules, 1),
            FailOpen::BadClock => self.note(Stat::BadClock, 1),
            FailOpen::TableFull | FailOpen::Doorkeeper => {}
        }
    }

    fn prefetch(&self, charges: &[Charge]) {
        for charge in charges {
            if let Some(sub) = self.sub(charge.rule) {
                let place = Place::of(sub, charge.key);
                self.mem
                    .prefetch(sub.tags + place.sets[0] * crate::layout::TAG_LINE);
            }
        }
    }

    /// Reads what a charge would meet.
    fn look(&self, charge: &mut Charge, now_ns: u64) {
        let (Some(hits), Some(sub)) = (charge.merged, self.sub(charge.rule)) else {
            return;
        };
        match charge.mode {
            Mode::Disabled => {
                charge.verdict = Verdict::allowed(Reading::unused(charge.limit_in(sub)));
                charge.merged = None;
            }
            Mode::Unlimited => {
                charge.verdict = Verdict::allowed(Reading::unused(u32::MAX));
                charge.merged = None;
            }
            Mode::DenyAll => {
                let reset_ns = sub.plan.epoch_rest_ns(now_ns);
                let limit = charge.limit_in(sub);
                let reading = Reading {
                    limit,
                    remaining: 0,
                    reset_ns,
                    used: 0,
                };
                charge.verdict = Verdict::denied(reading, reset_ns);
            }
            Mode::Enforce | Mode::DryRun => {
                let ask = charge.ask(hits.max(charge.peek), Act::Peek);
                (charge.verdict, charge.spot) = self.peek(sub, charge.key, ask, now_ns);
            }
        }
    }

    /// What `ask` would meet, and where the row is.
    fn peek(&self, sub: &Sub, key: Key, ask: Ask, now_ns: u64) -> (Verdict, Option<Spot>) {
        let fmt = sub.format;
        let place = Place::of(sub, key);
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let Some(spot) = self.find_or_inherit(sub, fmt, &place, key, now_ns) else {
                break;
            };
            if !fmt.is_live(spot.head) {
                // Being claimed: nothing is in it yet.
                break;
            }
            if let Some(verdict) = self.charge_row(sub, fmt, spot, ask, now_ns) {
                return (verdict, Some(spot));
            }
        }
        let limit = ask.limit_in(sub);
        let reading = Reading::unused(limit);
        if ask.hits > limit {
            // spec: adm-11
            let wait_ns = sub.plan.epoch_rest_ns(now_ns);
            return (Verdict::denied(reading, wait_ns), None);
        }
        (Verdict::allowed(reading), None)
    }

    /// Second half of a decision: nothing denies by what was read.
    fn reserve_all(&self, charges: &mut [Charge], now_ns: u64) -> Decision {
        let mut ranks = [0u64; CHARGES_MAX];
        let ranks = tightest_first(
            charges,
            &mut ranks,
            self.mem.planted(Fault::FixedOrderReserve),
        );
        let mut phantom_hits = 0u64;
        let mut denied = None;
        for rank in ranks {
            let charge = &mut charges[position(*rank)];
            let (Some(hits), Some(sub)) = (charge.merged, self.sub(charge.rule)) else {
                continue;
            };
            let act = match charge.mode {
                Mode::Enforce => Act::Enforce,
                _ => Act::Saturate,
            };
            let ask = charge.ask(hits, act);
            let (verdict, fail_open) = self.charge(sub, charge.key, ask, charge.spot, now_ns);
            (charge.verdict, charge.fail_open) = (verdict, fail_open);
            if verdict.outcome == Outcome::Denied && act == Act::Enforce {
                denied = Some(charge.tag);
                break;
            }
            if fail_open.is_none() {
                phantom_hits += u64::from(hits);
            }
        }
        spread(charges);
        if denied.is_some() {
            self.note(Stat::PhantomHits, phantom_hits);
            return Decision {
                outcome: Outcome::Denied,
                decider: denied,
                phantom_hits,
            };
        }
        Decision {
            outcome: Outcome::Allowed,
            decider: nearest(charges),
            phantom_hits: 0,
        }
    }

    /// Charges what is asked to `key`, in the row it has (`spot`, when known) or one it gets.
    #[inline(always)]
    fn charge(
        &self,
        sub: &Sub,
        key: Key,
        ask: Ask,
        spot: Option<Spot>,
        now_ns: u64,
    ) -> (Verdict, Option<FailOpen>) {
        // Constant formats, so that shifts are constants on the way that is taken most.
        if sub.format == NARROW {
            self.charge_as(sub, NARROW, key, ask, spot, now_ns)
        } else {
            self.charge_as(sub, WIDE, key, ask, spot, now_ns)
        }
    }

    #[inline(always)]
    fn charge_as(
        &self,
        sub: &Sub,
        fmt: HeadFormat,
        key: Key,
        ask: Ask,
        mut spot: Option<Spot>,
        now_ns: u64,
    ) -> (Verdict, Option<FailOpen>) {
        // Not needed, mostly, when the row is known.
        let mut place = None;
        for _ in 0..CLAIM_ATTEMPTS_MAX {
            let mut place = || *place.get_or_insert_with(|| Place::of(sub, key));
            let found = match spot.take() {
                None => self.find_or_inherit(sub, fmt, &place(), key, now_ns),
                known => known,
            };
            let found = match found {
                Some(found) if fmt.is_live(found.head) => found,
                _ if ask.hits == 0 => break,
                _ => {
                    let door = Door::Request {
                        hits: ask.hits,
                        limit: ask.limit_in(sub),
                    };
                    match self.claim(sub, fmt, &place(), key, now_ns, door) {
                        Ok(found) => found,
                        Err(why) => return self.uncounted(sub, ask, why),
                    }
                }
            };
            if let Some(verdict) = self.charge_row(sub, fmt, found, ask, now_ns) {
                return (verdict, None);
            }
        }
        if ask.hits == 0 {
            return (Verdict::allowed(Reading::unused(ask.limit_in(sub))), None);
        }
        self.uncounted(sub, ask, FailOpen::TableFull)
    }

    #[cold]
    fn uncounted(&self, sub: &Sub, ask: Ask, why: FailOpen) -> (Verdict, Option<FailOpen>) {
        let stat = match why {
            FailOpen::Doorkeeper => Stat::DoorkeeperHits,
            _ => Stat::FullAdmits,
        };
        self.note(stat, u64::from(ask.hits));
        let reading = Reading::unused(ask.limit_in(sub));
        (Verdict::allowed(reading), Some(why))
    }
}

/// The decision of a request that is one enforcing charge.
#[inline(always)]
fn alone(charge: &Charge, outcome: Outcome) -> Decision {
    Decision {
        outcome,
        decider: Some(charge.tag),
        phantom_hits: 0,
    }
}

impl Charge {
    fn ask(&self, hits: u32, act: Act) -> Ask {
        Ask {
            hits,
            limit: self.limit,
            act,
        }
    }

    fn limit_in(&self, sub: &Sub) -> u32 {
        self.ask(0, Act::Read).limit_in(sub)
    }

    /// Whether both mean one counter, and mean it alike.
    fn is_like(&self, other: &Charge) -> bool {
        (self.rule, self.key, self.mode, self.limit)
            == (other.rule, other.key, other.mode, other.limit)
    }
}

/// Adds the hits of charges on the same counter to the first of them. spec: adm-18
fn merge(charges: &mut [Charge]) {
    for i in 1..charges.len() {
        let (before, rest) = charges.split_at_mut(i);
        let charge = &mut rest[0];
        let Some(hits) = charge.merged else { continue };
        let first = before
            .iter_mut()
            .find(|c| c.merged.is_some() && c.is_like(charge));
        if let Some(first) = first {
            first.merged = first.merged.map(|sum| sum.saturating_add(hits));
            charge.merged = None;
        }
    }
}

/// Gives merged charges the verdict of the one they were merged into.
fn spread(charges: &mut [Charge]) {
    for i in 0..charges.len() {
        let c = &charges[i];
        let uncounted = matches!(c.mode, Mode::Disabled | Mode::Unlimited);
        if c.merged.is_some() || c.fail_open.is_some() || uncounted {
            continue;
        }
        let into = charges.iter().find(|o| o.merged.is_some() && o.is_like(c));
        if let Some((verdict, fail_open)) = into.map(|o| (o.verdict, o.fail_open)) {
            (charges[i].verdict, charges[i].fail_open) = (verdict, fail_open);
        }
    }
}

/// The tag of the enforcing charge that is denied for longest.
fn longest_wait(charges: &[Charge]) -> Option<u8> {
    charges
        .iter()
        .filter(|c| c.merged.is_some() && c.mode != Mode::DryRun)
        .filter(|c| c.verdict.outcome == Outcome::Denied)
        // The first of equals.
        .min_by_key(|c| std::cmp::Reverse(c.verdict.retry_after_ns))
        .map(|c| c.tag)
}

/// The tag of the enforcing charge that is nearest to denying: least remaining, then the longest
/// until that changes.
fn nearest(charges: &[Charge]) -> Option<u8> {
    charges
        .iter()
        .filter(|c| c.merged.is_some() && c.mode == Mode::Enforce && c.fail_open.is_none())
        .min_by_key(|c| {
            (
                c.verdict.reading.remaining,
                std::cmp::Reverse(c.verdict.reading.reset_ns),
            )
        })
        .map(|c| c.tag)
}

/// Where the charges are, in the order in which they are reserved: enforcing ones first, those with
/// least remaining first, so that a race is lost before anything was charged; dry runs last. The
/// charges themselves stay where they are: they are large. `is_fixed` leaves the order as it is.
/// spec: adm-19
fn tightest_first<'r>(
    charges: &[Charge],
    ranks: &'r mut [u64; CHARGES_MAX],
    is_fixed: bool,
) -> &'r [u64] {
    let ranks = &mut ranks[..charges.len().min(CHARGES_MAX)];
    for ((i, charge), rank) in (0u64..).zip(charges).zip(ranks.iter_mut()) {
        let is_late = u64::from(charge.mode == Mode::DryRun);
        // The place is in it, so that equals stay in order and the rank says where.
        *rank = is_late << 63 | u64::from(charge.verdict.reading.remaining) << 8 | i;
    }
    if !is_fixed {
        ranks.sort_unstable();
    }
    ranks
}

/// The place in a rank.
fn position(rank: u64) -> usize {
    usize::from(rank.to_le_bytes()[0])
}
