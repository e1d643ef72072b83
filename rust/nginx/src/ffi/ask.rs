//! What a request is asked: its rules, their values, the decision.
//!
//! I promise that what fails admits, and that nothing is taken from the system's heap.

use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use gabion_driver::monotonic_ns;
use gabion_rule::{Counted, Key, Mode};
use nginx_sys::{ngx_http_request_t, ngx_int_t, ngx_worker};

use super::conf::{LocConf, Ready, SharedZone};
use super::log::Seldom;
use super::text::{self, Text};
use super::{code, log, phase, planted};
use crate::answer::{charge_late, decide, Answer, Ask, Asks, Status};
use crate::catalog::Bound;
use crate::limits::BINDINGS_MAX;
use crate::truth::is_true;
use crate::zone::Stat;

/// Status of a request whose descriptors are too long.
const TOO_LARGE: ngx_int_t = 400;

static KEY_TOO_LONG: Seldom = Seldom::new();
static NOT_COUNTED: Seldom = Seldom::new();
static NOT_BUILT: Seldom = Seldom::new();
/// Relaxed: a number for people, in one thread.
static COUNTED_LATE: AtomicU64 = AtomicU64::new(0);

/// Requests that this process counted in memory that a reload had replaced.
pub(super) fn counted_late() -> u64 {
    COUNTED_LATE.load(Ordering::Relaxed)
}

/// A request that is asked.
pub(super) struct Asked<'r> {
    /// Valid as long as the value.
    pub(super) r: *mut ngx_http_request_t,
    pub(super) loc: &'r LocConf,
    pub(super) ready: &'r Ready,
}

/// What gathering a request's rules has seen.
#[derive(Default)]
pub(super) struct Seen {
    /// Bytes of all values.
    pub(super) bytes: u64,
    /// Whether a rule was left out that should have counted.
    pub(super) lost: bool,
}

/// Keys and values of a descriptor.
pub(super) type Pairs<'a> = ArrayVec<(&'a [u8], &'a [u8]), BINDINGS_MAX>;

impl Asked<'_> {
    pub(super) fn ask(&self) -> ngx_int_t {
        planted("decision");
        let (mut asks, mut seen) = (Asks::new(), Seen::default());
        match self.loc.is_plain {
            true => self.gather_plain(&mut asks, &mut seen),
            false => self.gather(&mut asks, &mut seen),
        }
        if seen.bytes > self.ready.settings.descriptor_bytes_max {
            self.line(
                log::ERROR,
                "the request's descriptors are longer than \
                 gabion_storage_max_descriptor_bytes; answered with 400",
            );
            return TOO_LARGE;
        }
        let mut answer = self.decide(&asks);
        if answer.status != Status::Rejected {
            self.count_late(&asks);
        }
        if seen.lost && answer.status == Status::Exempted {
            answer.status = Status::Bypassed;
        }
        // SAFETY: the request is valid.
        if !unsafe { phase::remember(self.r, answer, &asks) } {
            return code::DECLINED;
        }
        self.tell(&answer)
    }

    /// The rules that are named here, when none of them knows of another or has conditions in its
    /// file.
    fn gather_plain(&self, asks: &mut Asks, seen: &mut Seen) {
        let (Some(hasher), catalog) = (self.ready.hasher.get(), &self.ready.catalog) else {
            return;
        };
        for &at in &self.loc.rules {
            let Some(bound) = catalog.rules.get(usize::from(at)) else {
                continue;
            };
            if bound.rule.mode == Mode::Disabled {
                continue;
            }
            let mut pairs = Pairs::new();
            match self.read(usize::from(at), seen, &mut pairs) {
                Ok(()) => {
                    let era = self.era(bound);
                    let Some(key) = catalog.table.key(hasher, at, &pairs, era) else {
                        continue; // the table has every rule
                    };
                    asks.push(ask_of(at, bound, key, None, Counted::Now));
                }
                Err(Some(stat)) => self.leave_out(bound, stat, seen),
                Err(None) => {}
            }
        }
    }

    /// The reset era of a rule's counters.
    pub(super) fn era(&self, bound: &Bound) -> u32 {
        let zone = self.zone(bound.zone);
        zone.map_or(0, |zone| zone.era(usize::from(bound.index)))
    }

    /// Counts a rule that is left out.
    pub(super) fn leave_out(&self, bound: &Bound, stat: Stat, seen: &mut Seen) {
        seen.lost |= matches!(
            stat,
            Stat::FailOpen | Stat::KeyTooLong | Stat::PredicateFailed | Stat::Skipped
        );
        self.note(bound.zone, bound.index, stat);
    }

    fn decide(&self, asks: &Asks) -> Answer {
        let table = |at: u16| self.zone(usize::from(at)).map(|zone| &*zone.table);
        decide(asks, self.now_ns(asks), &table, &mut |ask, stat| {
            self.told(ask, stat)
        })
    }

    /// The response is known: what was only read is charged, if the response is of the kind.
    pub(super) fn charge_late(&self, asks: &Asks) {
        let Some(status) = self
            .ready
            .status
            .as_ref()
            .and_then(|text| self.evaluate(text))
        else {
            return self.seldom(
                &NOT_BUILT,
                "a rule was left out: its values could not be evaluated",
            );
        };
        let fits = |ask: &&Ask| {
            let bound = self.ready.catalog.rules.get(usize::from(ask.rule));
            let charge = bound.and_then(|bound| bound.rule.charge.as_ref());
            charge.is_some_and(|charge| charge.fits(status))
        };
        let asks: Asks = asks.iter().filter(fits).copied().collect();
        self.count_late(&asks);
        let table = |at: u16| self.zone(usize::from(at)).map(|zone| &*zone.table);
        charge_late(&asks, self.now_ns(&asks), &table, &mut |ask, stat| {
            self.told(ask, stat)
        });
    }

    fn now_ns(&self, asks: &Asks) -> u64 {
        let zone = asks
            .first()
            .and_then(|ask| self.zone(usize::from(ask.zone)));
        monotonic_ns().saturating_add_signed(zone.map_or(0, SharedZone::offset_ns))
    }

    fn told(&self, ask: &Ask, stat: Stat) {
        self.note(usize::from(ask.zone), ask.index, stat);
        if stat == Stat::FailOpen {
            self.seldom(
                &NOT_COUNTED,
                "a request was admitted uncounted: the zone has no room \
                 for its key; see gabion_status, and enlarge the zone or set cardinality=",
            );
        }
    }

    /// What is charged here is lost when a reload has replaced the memory.
    fn count_late(&self, asks: &Asks) {
        let zone = |ask: &Ask| self.zone(usize::from(ask.zone));
        if asks
            .iter()
            .any(|ask| zone(ask).is_some_and(SharedZone::is_retired))
        {
            COUNTED_LATE.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn zone(&self, at: usize) -> Option<&SharedZone> {
        Some(&**self.ready.zones.get(at)?.get()?)
    }

    fn note(&self, zone: usize, index: u16, stat: Stat) {
        // SAFETY: a number that nginx sets before a worker serves.
        let slot = unsafe { ngx_worker };
        if let Some(zone) = self.zone(zone) {
            zone.note(slot, usize::from(index), stat);
        }
    }

    /// Reads what a rule of nginx's own bindings counts by.
    ///
    /// # Errors
    /// What it counts as when it does not apply; `None`: it is not about such requests.
    pub(super) fn read<'s>(
        &'s self,
        at: usize,
        seen: &mut Seen,
        pairs: &mut Pairs<'s>,
    ) -> Result<(), Option<Stat>> {
        let (bound, compiled) = (&self.ready.catalog.rules[at], &self.ready.compiled[at]);
        for (condition, applies_if) in [(&compiled.except_if, false), (&compiled.only_if, true)] {
            match condition.as_ref().map(|text| self.evaluate(text)) {
                Some(Some(value)) if is_true(value) == applies_if => {}
                Some(Some(_)) => return Err(Some(Stat::Exempted)),
                Some(None) => return self.unreadable(Stat::PredicateFailed),
                None => {}
            }
        }
        let patterns = &bound.rule.descriptors;
        let bindings = bound.bindings.iter().zip(&compiled.bindings);
        for ((binding, value), pattern) in bindings.zip(patterns) {
            let Some(mut value) = self.evaluate(value) else {
                return self.unreadable(Stat::FailOpen);
            };
            if value.is_empty() {
                let Some(fallback) = &bound.fallback else {
                    return Err(Some(Stat::EmptyKey));
                };
                value = fallback.as_bytes();
            }
            if !self.has_room(value, seen) {
                return Err(Some(Stat::KeyTooLong));
            }
            if !pattern.value.matches(value) {
                return Err(None);
            }
            if pairs.try_push((binding.key.as_bytes(), value)).is_err() {
                return self.unreadable(Stat::FailOpen);
            }
        }
        Ok(())
    }

    /// Whether a value is short enough to be counted.
    pub(super) fn has_room(&self, value: &[u8], seen: &mut Seen) -> bool {
        let length = value.len() as u64;
        seen.bytes = seen.bytes.saturating_add(length);
        if length > self.ready.settings.key_bytes_max {
            self.seldom(
                &KEY_TOO_LONG,
                "a rule was left out: a value is longer than \
                 gabion_storage_max_key_bytes",
            );
            return false;
        }
        true
    }

    #[cold]
    pub(super) fn unreadable(&self, stat: Stat) -> Result<(), Option<Stat>> {
        self.seldom(
            &NOT_BUILT,
            "a rule was left out: its values could not be evaluated",
        );
        Err(Some(stat))
    }

    /// The text for this request.
    pub(super) fn evaluate(&self, text: &Text) -> Option<&[u8]> {
        // SAFETY: the request is valid as long as the value.
        unsafe { text::evaluate(self.r, text) }
    }
}

/// What is asked of a rule that applies.
pub(super) fn ask_of(
    rule: u16,
    bound: &Bound,
    key: Key,
    limit: Option<u32>,
    counted: Counted,
) -> Ask {
    Ask {
        rule,
        zone: u16::try_from(bound.zone).unwrap_or(u16::MAX),
        index: bound.index,
        key,
        mode: bound.rule.mode,
        limit: limit.or(bound.tiered_limit),
        counted,
    }
}
