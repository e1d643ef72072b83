//! From the charges of one request to its answer.
//!
//! I own how rules of several zones are decided together and what the answer shows. I promise that
//! a denied request charges nothing but the table's counted races, that what cannot be counted is
//! admitted and marked, and that nothing is allocated. I never know where values came from.

use arrayvec::ArrayVec;
use gabion_admit::headers::Shown;
use gabion_admit::Outcome;
use gabion_rule::{Counted, Dropped, Key, Mode};
use gabion_table::{Charge, Mem, Table};

use crate::limits::RULES_PER_REQUEST_MAX;
use crate::zone::Stat;

/// What became of a request, as `$gabion_status` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Counted and admitted.
    Passed,
    /// Denied.
    Rejected,
    /// Admitted; a dry-run rule would have denied it.
    RejectedDryRun,
    /// No rule applied: conditions or empty keys left all of them out.
    Exempted,
    /// Admitted uncounted, since nothing could be counted.
    Bypassed,
}

impl Status {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Status::Passed => "PASSED",
            Status::Rejected => "REJECTED",
            Status::RejectedDryRun => "REJECTED_DRY_RUN",
            Status::Exempted => "EXEMPTED",
            Status::Bypassed => "BYPASSED",
        }
    }
}

/// One rule that is to be charged.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The caller's index of the rule.
    pub rule: u16,
    /// Index of its zone.
    pub zone: u16,
    /// Index in the zone's table.
    pub index: u16,
    /// The counter.
    pub key: Key,
    /// The rule's mode.
    pub mode: Mode,
    /// The limit of the request's tier; `None`: the rule's own.
    pub limit: Option<u32>,
    /// When it is counted.
    pub counted: Counted,
}

impl Ask {
    fn charge(&self, tag: u8) -> Charge {
        let mut charge = Charge::new(self.index, self.key, 1, self.mode, tag);
        charge.limit = self.limit;
        match self.counted {
            Counted::Now => charge,
            Counted::Read => charge.peeking(),
            Counted::Late => {
                charge.mode = Mode::DryRun;
                charge
            }
        }
    }
}

/// What a rule that does not apply counts as; `None`: it is not about such requests.
pub fn stat_of(why: Dropped) -> Option<Stat> {
    match why {
        Dropped::Flag => Some(Stat::FlagOff),
        Dropped::ExceptIf => Some(Stat::Exempted),
        Dropped::Absent => Some(Stat::EmptyKey),
        Dropped::Unreadable => Some(Stat::PredicateFailed),
        Dropped::Replaced(_) => Some(Stat::Replaced),
        Dropped::AfterLast(_) => Some(Stat::AfterLast),
        Dropped::TooMany => Some(Stat::Skipped),
        _ => None,
    }
}

/// The rules of a request.
pub type Asks = ArrayVec<Ask, RULES_PER_REQUEST_MAX>;
type Charges = ArrayVec<Charge, RULES_PER_REQUEST_MAX>;

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What became of it.
    pub status: Status,
    /// The rule that variables describe, and what it shows.
    pub shown: Option<(u16, Shown)>,
    /// Whether headers describe it, too: a rule that is enforced.
    pub in_headers: bool,
}

/// Decides. `table` gives a zone's table, `note` is told what happened to each rule.
pub fn decide<'t, M: Mem + 't>(
    asks: &Asks,
    now_ns: u64,
    table: &dyn Fn(u16) -> Option<&'t Table<M>>,
    note: &mut dyn FnMut(&Ask, Stat),
) -> Answer {
    let mut charges = Charges::new();
    for (tag, ask) in (0u8..).zip(asks) {
        charges.push(ask.charge(tag));
    }
    let (outcome, decider) = match asks.first() {
        None => return nothing(Status::Exempted),
        Some(first) if asks.iter().all(|ask| ask.zone == first.zone) => match table(first.zone) {
            Some(table) => {
                let decision = table.decide(&mut charges, now_ns);
                (decision.outcome, decision.decider)
            }
            None => {
                asks.iter().for_each(|ask| note(ask, Stat::FailOpen));
                return nothing(Status::Bypassed);
            }
        },
        Some(_) => over_zones(asks, &mut charges, now_ns, table),
    };
    sum_up(asks, &charges, outcome, decider, note)
}

fn nothing(status: Status) -> Answer {
    Answer {
        status,
        shown: None,
        in_headers: false,
    }
}

/// Rules of several zones: all are read before any is charged, then each zone decides its own.
fn over_zones<'t, M: Mem + 't>(
    asks: &Asks,
    charges: &mut Charges,
    now_ns: u64,
    table: &dyn Fn(u16) -> Option<&'t Table<M>>,
) -> (Outcome, Option<u8>) {
    // A denial of one zone stops the request before another is charged; what is read here may
    // change until it is charged, which costs at most one hit of the zones before it.
    let mut denier: Option<(u64, u8)> = None;
    for (charge, ask) in charges.iter_mut().zip(asks) {
        let Some(table) = table(ask.zone) else {
            continue;
        };
        let mut one = [ask.charge(charge.tag).peeking()];
        if table.decide(&mut one, now_ns).outcome == Outcome::Denied {
            charge.verdict = one[0].verdict;
            let wait_ns = charge.verdict.retry_after_ns;
            if denier.is_none_or(|(longest, _)| wait_ns > longest) {
                denier = Some((wait_ns, charge.tag));
            }
        }
    }
    if let Some((_, tag)) = denier {
        return (Outcome::Denied, Some(tag));
    }
    let mut nearest: Option<(u32, u8)> = None;
    let mut zones: ArrayVec<u16, RULES_PER_REQUEST_MAX> = asks.iter().map(|a| a.zone).collect();
    zones.sort_unstable();
    for (at, zone) in zones.iter().enumerate() {
        let Some(table) = table(*zone).filter(|_| at == 0 || zones[at - 1] != *zone) else {
            continue;
        };
        let of_zone = |c: &Charge| asks[usize::from(c.tag)].zone == *zone;
        let mut part: Charges = charges.iter().filter(|c| of_zone(c)).cloned().collect();
        let decision = table.decide(&mut part, now_ns);
        for charge in part {
            let at = usize::from(charge.tag);
            charges[at] = charge;
        }
        if decision.outcome == Outcome::Denied {
            return (Outcome::Denied, decision.decider);
        }
        if let Some(tag) = decision.decider {
            let left = charges[usize::from(tag)].verdict.reading.remaining;
            if nearest.is_none_or(|(least, _)| left < least) {
                nearest = Some((left, tag));
            }
        }
    }
    (Outcome::Allowed, nearest.map(|(_, tag)| tag))
}

/// Charges what was only read, once the response is known: never denied, and beyond the limit, too.
// spec: pol-16
pub fn charge_late<'t, M: Mem + 't>(
    asks: &[Ask],
    now_ns: u64,
    table: &dyn Fn(u16) -> Option<&'t Table<M>>,
    note: &mut dyn FnMut(&Ask, Stat),
) {
    for ask in asks.iter().filter(|ask| ask.mode.counts()) {
        let late = Ask {
            counted: Counted::Late,
            ..*ask
        };
        let mut charge = [late.charge(0)];
        let counted = table(ask.zone).is_some_and(|table| {
            table.decide(&mut charge, now_ns);
            charge[0].fail_open.is_none()
        });
        note(
            ask,
            if counted {
                Stat::Charged
            } else {
                Stat::FailOpen
            },
        );
    }
}

fn sum_up(
    asks: &Asks,
    charges: &Charges,
    outcome: Outcome,
    decider: Option<u8>,
    note: &mut dyn FnMut(&Ask, Stat),
) -> Answer {
    let ask_of = |charge: &Charge| asks.get(usize::from(charge.tag));
    let show = |tag: Option<u8>| {
        let charge = charges.iter().find(|c| Some(c.tag) == tag)?;
        let denied = charge.verdict.outcome == Outcome::Denied;
        let shown = Shown {
            reading: charge.verdict.reading,
            denied_for_ns: denied.then_some(charge.verdict.retry_after_ns),
        };
        Some((ask_of(charge)?.rule, shown))
    };
    if outcome == Outcome::Denied {
        let by = decider.and_then(|tag| asks.get(usize::from(tag)));
        by.into_iter().for_each(|ask| note(ask, Stat::Rejected));
        let shown = show(decider);
        return Answer {
            status: Status::Rejected,
            shown,
            in_headers: shown.is_some(),
        };
    }
    let mut counted = false;
    let mut dry: Option<(bool, u32, u8)> = None;
    for charge in charges {
        let Some(ask) = ask_of(charge) else { continue };
        let would_deny = charge.verdict.outcome == Outcome::Denied;
        let stat = match (charge.fail_open, would_deny) {
            (Some(_), _) => Stat::FailOpen,
            (None, true) => Stat::RejectedDryRun,
            (None, false) => Stat::Passed,
        };
        note(ask, stat);
        counted |= charge.fail_open.is_none();
        if charge.mode == Mode::DryRun && charge.fail_open.is_none() {
            let rank = (!would_deny, charge.verdict.reading.remaining, charge.tag);
            dry = Some(dry.map_or(rank, |least| least.min(rank)));
        }
    }
    let would_deny = dry.is_some_and(|(passes, ..)| !passes);
    let status = match (counted, would_deny) {
        (false, _) => Status::Bypassed,
        (true, true) => Status::RejectedDryRun,
        (true, false) => Status::Passed,
    };
    let dry_tag = dry.map(|(.., tag)| tag);
    let tag = if would_deny {
        dry_tag
    } else {
        decider.or(dry_tag)
    };
    Answer {
        status,
        shown: show(tag),
        in_headers: !would_deny && decider.is_some(),
    }
}

#[cfg(test)]
mod tests;
