//! What a request is asked: its rules, their values, the decision.
//!
//! I promise that what fails admits, and that nothing is taken from the system's heap.

use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use gabion_driver::monotonic_ns;
use gabion_rule::{Mode, Orders};
use nginx_sys::{ngx_http_request_t, ngx_int_t, ngx_worker};

use super::conf::{LocConf, Ready, SharedZone};
use super::log::Seldom;
use super::text::{self, Text};
use super::{code, log, phase, planted};
use crate::answer::{decide, Answer, Ask, Asks, Status};
use crate::limits::BINDINGS_MAX;
use crate::orders::era_in_force;
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

/// What came of reading one rule's values.
enum Values {
    Key(gabion_rule::Key),
    /// The rule does not apply.
    LeftOut(Option<Stat>),
}

impl Asked<'_> {
    pub(super) fn ask(&self) -> ngx_int_t {
        planted("decision");
        let mut asks = Asks::new();
        let (mut bytes, mut lost) = (0u64, false);
        for &at in &self.loc.rules {
            let Some(bound) = self.ready.catalog.rules.get(usize::from(at)) else {
                continue;
            };
            if bound.rule.mode == Mode::Disabled {
                continue;
            }
            let zone = u16::try_from(bound.zone).unwrap_or(u16::MAX);
            match self.values(usize::from(at), &mut bytes) {
                Values::Key(key) => asks.push(Ask {
                    rule: at,
                    zone,
                    index: bound.index,
                    key,
                    mode: bound.rule.mode,
                }),
                Values::LeftOut(Some(stat)) => {
                    lost |= matches!(
                        stat,
                        Stat::FailOpen | Stat::KeyTooLong | Stat::PredicateFailed
                    );
                    self.note(bound.zone, bound.index, stat);
                }
                Values::LeftOut(None) => {}
            }
        }
        if bytes > self.ready.settings.descriptor_bytes_max {
            self.line(
                log::ERROR,
                "the request's descriptors are longer than \
                 gabion_storage_max_descriptor_bytes; answered with 400",
            );
            return TOO_LARGE;
        }
        let mut answer = self.decide(&asks);
        if asks.iter().any(|ask| self.is_late(ask)) && answer.status != Status::Rejected {
            COUNTED_LATE.fetch_add(1, Ordering::Relaxed);
        }
        if lost && answer.status == Status::Exempted {
            answer.status = Status::Bypassed;
        }
        // SAFETY: the request is valid.
        if !unsafe { phase::remember(self.r, answer) } {
            return code::DECLINED;
        }
        self.tell(&answer)
    }

    fn decide(&self, asks: &Asks) -> Answer {
        let zone = |at: u16| self.zone(usize::from(at));
        let offset_ns = asks
            .first()
            .and_then(|ask| zone(ask.zone))
            .map_or(0, SharedZone::offset_ns);
        let now_ns = monotonic_ns().saturating_add_signed(offset_ns);
        let table = |at: u16| zone(at).map(|zone| &*zone.table);
        decide(asks, now_ns, &table, &mut |ask, stat| {
            self.note(usize::from(ask.zone), ask.index, stat);
            if stat == Stat::FailOpen {
                self.seldom(
                    &NOT_COUNTED,
                    "a request was admitted uncounted: the zone has no room \
                     for its key; see gabion_status, and enlarge the zone or set cardinality=",
                );
            }
        })
    }

    /// Whether what is charged here is lost, since a reload has replaced the memory.
    fn is_late(&self, ask: &Ask) -> bool {
        let zone = self.zone(usize::from(ask.zone));
        zone.is_some_and(SharedZone::is_retired)
    }

    fn zone(&self, at: usize) -> Option<&SharedZone> {
        Some(&**self.ready.zones.get(at)?.get()?)
    }

    fn note(&self, zone: usize, index: u16, stat: Stat) {
        // SAFETY: a number that nginx sets before a worker serves.
        let slot = unsafe { ngx_worker };
        if let Some(zone) = self.zone(zone) {
            zone.note(slot, usize::from(index), stat);
        }
    }

    /// Reads what a rule counts by.
    fn values(&self, at: usize, bytes: &mut u64) -> Values {
        let (bound, compiled) = (&self.ready.catalog.rules[at], &self.ready.compiled[at]);
        let failed = || {
            self.seldom(
                &NOT_BUILT,
                "a rule was left out: its values could not be evaluated",
            );
            Values::LeftOut(Some(Stat::FailOpen))
        };
        let orders = self.zone(bound.zone).map_or_else(Orders::default, |zone| {
            zone.orders(usize::from(bound.index), bound.order_names.1)
        });
        for (condition, applies_if) in [(&compiled.except_if, false), (&compiled.only_if, true)] {
            match condition.as_ref().map(|text| self.evaluate(text)) {
                Some(Some(value)) if is_true(value) == applies_if => {}
                Some(Some(_)) => return Values::LeftOut(Some(Stat::Exempted)),
                Some(None) => {
                    failed();
                    return Values::LeftOut(Some(Stat::PredicateFailed));
                }
                None => {}
            }
        }
        let mut entries: ArrayVec<(&[u8], &[u8]), BINDINGS_MAX> = ArrayVec::new();
        let patterns = &bound.rule.descriptors;
        for ((binding, value), pattern) in
            bound.bindings.iter().zip(&compiled.bindings).zip(patterns)
        {
            let Some(mut value) = self.evaluate(value) else {
                return failed();
            };
            if value.is_empty() {
                let Some(fallback) = &bound.fallback else {
                    return Values::LeftOut(Some(Stat::EmptyKey));
                };
                value = fallback.as_bytes();
            }
            let length = value.len() as u64;
            *bytes = bytes.saturating_add(length);
            if length > self.ready.settings.key_bytes_max {
                self.seldom(
                    &KEY_TOO_LONG,
                    "a rule was left out: a value is longer than \
                     gabion_storage_max_key_bytes",
                );
                return Values::LeftOut(Some(Stat::KeyTooLong));
            }
            if !pattern.value.matches(value) {
                return Values::LeftOut(None);
            }
            if entries.try_push((binding.key.as_bytes(), value)).is_err() {
                return failed();
            }
        }
        match self.ready.hasher.get() {
            Some(hasher) => {
                let key = |era| hasher.key(&bound.identity, &entries, era);
                match era_in_force(&bound.rule, orders, || key(0)) {
                    Some(era) => Values::Key(key(era)),
                    None => Values::LeftOut(Some(Stat::FlagOff)),
                }
            }
            None => failed(),
        }
    }

    /// The text for this request.
    fn evaluate(&self, text: &Text) -> Option<&[u8]> {
        // SAFETY: the request is valid as long as the value.
        unsafe { text::evaluate(self.r, text) }
    }
}
