//! nginx's error log, for this module and for the driver's thread.

use std::fmt::Write as _;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use gabion_driver::monotonic_ns;
use nginx_sys::{
    ngx_conf_log_error, ngx_conf_t, ngx_log_error_core, ngx_log_t, ngx_uint_t, NGX_LOG_DEBUG,
    NGX_LOG_EMERG, NGX_LOG_ERR, NGX_LOG_INFO, NGX_LOG_NOTICE, NGX_LOG_WARN,
};
use tracing::field::{Field, Visit};
use tracing::span;

use crate::level::Severity;
use crate::limits::LOG_EVERY_S;

pub(super) const ERROR: ngx_uint_t = NGX_LOG_ERR as ngx_uint_t;
pub(super) const WARN: ngx_uint_t = NGX_LOG_WARN as ngx_uint_t;
pub(super) const NOTICE: ngx_uint_t = NGX_LOG_NOTICE as ngx_uint_t;
const INFO: ngx_uint_t = NGX_LOG_INFO as ngx_uint_t;
pub(super) const DEBUG: ngx_uint_t = NGX_LOG_DEBUG as ngx_uint_t;

/// The log of the cycle in force.
static LOG: AtomicPtr<ngx_log_t> = AtomicPtr::new(ptr::null_mut());

pub(super) fn of(severity: Severity) -> ngx_uint_t {
    match severity {
        Severity::Error => ERROR,
        Severity::Warn => WARN,
        Severity::Notice => NOTICE,
        Severity::Info => INFO,
    }
}

/// A dry run's line is one step milder than a rejection's.
pub(super) fn milder(level: ngx_uint_t) -> ngx_uint_t {
    (level + 1).min(INFO)
}

/// From now on lines that belong to no request go to `log`.
pub(super) fn use_log(log: *mut ngx_log_t) {
    // Release: pairs with the acquire in `say`, so that a thread sees the log's content.
    LOG.store(log, Ordering::Release);
}

/// A line that belongs to no request.
pub(super) fn say(level: ngx_uint_t, text: &str) {
    // Acquire: pairs with `use_log`.
    let log = LOG.load(Ordering::Acquire);
    // SAFETY: null, or a cycle's log, which outlives the worker and its threads; nginx's own
    // threads write to it in the same way.
    unsafe { line(log, level, text) };
}

/// A line of a request or of start-up.
///
/// # Safety
/// `log` is null or a valid log.
pub(super) unsafe fn line(log: *mut ngx_log_t, level: ngx_uint_t, text: &str) {
    // SAFETY: the caller's promise; `%*s` takes a length and a pointer to that many bytes.
    unsafe {
        if !log.is_null() && (*log).log_level >= level {
            let format = c"gabion: %*s".as_ptr();
            ngx_log_error_core(level, log, 0, format, text.len(), text.as_ptr());
        }
    }
}

/// An error of the configuration, with file and line as nginx adds them.
///
/// # Safety
/// `cf` is a valid configuration.
pub(super) unsafe fn refuse(cf: *mut ngx_conf_t, text: &str) {
    // SAFETY: as in `line`.
    unsafe {
        let format = c"gabion: %*s".as_ptr();
        let level = NGX_LOG_EMERG as ngx_uint_t;
        ngx_conf_log_error(level, cf, 0, format, text.len(), text.as_ptr());
    }
}

/// Lets one line of a kind pass every [`LOG_EVERY_S`] seconds and counts the others.
pub(super) struct Seldom {
    last_s: AtomicU64,
    held_back: AtomicU64,
}

impl Seldom {
    pub(super) const fn new() -> Self {
        Seldom {
            last_s: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// How many were held back since the last line, when this one may be written.
    pub(super) fn pass(&self) -> Option<u64> {
        let now_s = monotonic_ns() / 1_000_000_000 + 1;
        // Relaxed: numbers for people, in one thread.
        let last_s = self.last_s.load(Ordering::Relaxed);
        if last_s != 0 && now_s < last_s + LOG_EVERY_S {
            self.held_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.last_s.store(now_s, Ordering::Relaxed);
        Some(self.held_back.swap(0, Ordering::Relaxed))
    }
}

/// Hands what the driver says to nginx's log.
struct Lines;

/// Once in a worker, before its gossip thread starts.
pub(super) fn listen_to_driver() {
    // Set already after a reload in a single process, which is as good.
    let _ = tracing::subscriber::set_global_default(Lines);
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing into a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
        *about.level() <= tracing::Level::INFO && about.target().starts_with("gabion")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => ERROR,
            tracing::Level::WARN => WARN,
            _ => NOTICE,
        };
        let mut text = Text(String::with_capacity(128));
        event.record(&mut text);
        say(level, &text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
