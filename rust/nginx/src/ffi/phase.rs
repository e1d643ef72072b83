//! The handler of a request, in the phase before access checks.
//!
//! I own what a request is asked and told: once for a client's request, whatever it is redirected
//! to. I promise that what fails admits, that nothing is taken from the system's heap, and that no
//! system call is made unless a line is logged.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;
use gabion_admit::headers::{headers, Families};
use gabion_driver::monotonic_ns;
use gabion_rule::{Mode, Orders};
use nginx_sys::{
    ngx_http_complex_value, ngx_http_complex_value_t, ngx_http_finalize_request,
    ngx_http_request_t, ngx_http_send_response, ngx_int_t, ngx_list_push, ngx_pool_cleanup_add,
    ngx_str_t, ngx_table_elt_t, ngx_worker,
};

use super::conf::{LocConf, MainConf, Ready, SharedZone};
use super::log::Seldom;
use super::tables::ngx_http_gabion_module;
use super::{caught, code, log, planted, pool};
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

/// Our part of the configuration a request is under.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn main_of<'r>(r: *mut ngx_http_request_t) -> Option<&'r Ready> {
    // SAFETY: a request's configuration has a place for each module, and outlives the request.
    unsafe {
        let conf = *(*r).main_conf.add(ngx_http_gabion_module.ctx_index);
        conf.cast::<MainConf>().as_ref()?.ready.as_ref()
    }
}

/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn loc_of<'r>(r: *mut ngx_http_request_t) -> Option<&'r LocConf> {
    // SAFETY: as in `main_of`.
    unsafe {
        let conf = *(*r).loc_conf.add(ngx_http_gabion_module.ctx_index);
        conf.cast::<LocConf>().as_ref()
    }
}

/// Marks an answer in a request's pool; internal redirects clear the modules' own contexts.
unsafe extern "C" fn mark(_: *mut c_void) {}

/// The answer that a client's request was given, if it was asked.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn answered<'r>(r: *mut ngx_http_request_t) -> Option<&'r Answer> {
    // SAFETY: a request's pool and its chain of cleanups are valid; an entry with our mark holds
    // an answer, which is written before the mark is set.
    unsafe {
        let mut at = (*(*(*r).main).pool).cleanup;
        while let Some(entry) = at.as_ref() {
            let ours = entry.handler.is_some_and(|handler| {
                ptr::fn_addr_eq(handler, mark as unsafe extern "C" fn(*mut c_void))
            });
            if ours {
                return entry.data.cast::<Answer>().as_ref();
            }
            at = entry.next;
        }
    }
    None
}

/// # Safety
/// `r` is a valid request.
unsafe fn remember(r: *mut ngx_http_request_t, answer: Answer) -> bool {
    // SAFETY: the pool gives memory aligned for it, or null. Dropping an answer does nothing.
    unsafe {
        let entry = ngx_pool_cleanup_add((*r).pool, std::mem::size_of::<Answer>());
        if entry.is_null() {
            return false;
        }
        (*entry).data.cast::<Answer>().write(answer);
        (*entry).handler = Some(mark);
    }
    true
}

pub(super) unsafe extern "C" fn handler(r: *mut ngx_http_request_t) -> ngx_int_t {
    caught(code::DECLINED, || {
        // SAFETY: nginx hands a valid request.
        unsafe {
            let Some(loc) = loc_of(r).filter(|loc| !loc.rules.is_empty()) else {
                return code::DECLINED;
            };
            if r != (*r).main || answered(r).is_some() {
                return code::DECLINED;
            }
            match main_of(r) {
                Some(ready) => Asked { r, loc, ready }.ask(),
                None => code::DECLINED,
            }
        }
    })
}

/// A request that is asked.
struct Asked<'r> {
    /// Valid as long as the value.
    r: *mut ngx_http_request_t,
    loc: &'r LocConf,
    ready: &'r Ready,
}

/// What came of reading one rule's values.
enum Values {
    Key(gabion_rule::Key),
    /// The rule does not apply.
    LeftOut(Option<Stat>),
}

impl Asked<'_> {
    fn ask(&self) -> ngx_int_t {
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
                    lost |= matches!(stat, Stat::FailOpen | Stat::KeyTooLong);
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
        if !unsafe { remember(self.r, answer) } {
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
        if let Some(condition) = &compiled.except_if {
            match self.evaluate(condition) {
                Some(value) if is_true(value) => return Values::LeftOut(Some(Stat::Exempted)),
                Some(_) => {}
                None => return failed(),
            }
        }
        let mut entries: ArrayVec<(&[u8], &[u8]), BINDINGS_MAX> = ArrayVec::new();
        let patterns = &bound.rule.descriptors;
        for ((binding, value), pattern) in
            bound.bindings.iter().zip(&compiled.bindings).zip(patterns)
        {
            let Some(value) = self.evaluate(value) else {
                return failed();
            };
            if value.is_empty() {
                return Values::LeftOut(Some(Stat::EmptyKey));
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
                    None => Values::LeftOut(Some(Stat::Exempted)),
                }
            }
            None => failed(),
        }
    }

    /// The text of a compiled value for this request.
    fn evaluate(&self, value: &ngx_http_complex_value_t) -> Option<&[u8]> {
        let mut text = ngx_str_t::empty();
        // SAFETY: the request is valid; nginx reads the value only, though it takes it as mutable.
        // The text is the value's own or in the request's pool: both live as long as the request.
        unsafe {
            let value = ptr::from_ref(value).cast_mut();
            if ngx_http_complex_value(self.r, value, &mut text) != code::OK {
                return None;
            }
            match text.len {
                0 => Some(&[]),
                len => Some(std::slice::from_raw_parts(text.data, len)),
            }
        }
    }

    /// Headers, log line, response.
    fn tell(&self, answer: &Answer) -> ngx_int_t {
        let shown = answer.shown.and_then(|(rule, shown)| {
            Some((self.ready.catalog.rules.get(usize::from(rule))?, shown))
        });
        let families = self.loc.level.families();
        let sends = answer.in_headers && families != Families::NONE;
        if let (true, Some((bound, shown))) = (sends, &shown) {
            let sent = headers(families, &bound.text, shown, &mut |name, value| {
                self.header(name, value)
            });
            if sent.is_err() {
                self.line(
                    log::WARN,
                    "there is no memory for response headers; they are left out",
                );
            }
        }
        let said = match answer.status {
            Status::Rejected => Some(("", log::of(self.loc.level.severity()))),
            Status::RejectedDryRun => {
                Some((", dry run", log::milder(log::of(self.loc.level.severity()))))
            }
            _ => None,
        };
        if let (Some((how, level)), Some((bound, shown))) = (said, &shown) {
            if self.logs(level) {
                let wait_s = gabion_admit::retry_after_seconds(shown.denied_for_ns.unwrap_or(0));
                let (name, limit) = (&bound.rule.name, shown.reading.limit);
                let text = format!(
                    "limiting requests{how}, rule \"{name}\", limit {limit}, retry in {wait_s} s"
                );
                self.line(level, &text);
            }
        }
        match answer.status {
            Status::Rejected => self.reject(),
            _ => code::DECLINED,
        }
    }

    fn reject(&self) -> ngx_int_t {
        let status = self.loc.level.status();
        let Some(body) = self.loc.body else {
            return ngx_int_t::try_from(status).unwrap_or(429);
        };
        // SAFETY: the request is valid; type and value live as long as the configuration. The
        // response ends the request, as for `return` of nginx's own.
        unsafe {
            let (mut kind, mut value) = (body.content_type, body.value);
            let sent = ngx_http_send_response(self.r, status.into(), &mut kind, &mut value);
            ngx_http_finalize_request(self.r, sent);
        }
        code::DONE
    }

    fn header(&self, name: &'static str, value: &[u8]) -> Result<(), ()> {
        // SAFETY: the request is valid; the list gives room for one entry, which is cleared, since
        // later versions have a field more.
        unsafe {
            let entry = ngx_list_push(&mut (*self.r).headers_out.headers).cast::<ngx_table_elt_t>();
            if entry.is_null() {
                return Err(());
            }
            ptr::write_bytes(entry, 0, 1); // a hash of 0: left out, if the copy below fails
            (*entry).key = pool::fixed(name);
            (*entry).value = pool::copied((*self.r).pool, value).ok_or(())?;
            (*entry).hash = 1;
        }
        Ok(())
    }

    fn logs(&self, level: nginx_sys::ngx_uint_t) -> bool {
        // SAFETY: a request's connection and its log are valid.
        unsafe { (*(*(*self.r).connection).log).log_level >= level }
    }

    fn line(&self, level: nginx_sys::ngx_uint_t, text: &str) {
        // SAFETY: a request's connection and its log are valid.
        unsafe { log::line((*(*self.r).connection).log, level, text) };
    }

    #[cold]
    fn seldom(&self, kind: &Seldom, text: &str) {
        if let Some(held_back) = kind.pass() {
            self.line(
                log::WARN,
                &format!("{text} ({held_back} more were not logged)"),
            );
        }
    }
}
