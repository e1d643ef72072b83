//! Log lines for people, thinned.
//!
//! I own the form of a line and how often one kind of message may appear. I promise that a flood
//! of one message becomes a few lines and a count, and that nothing is dropped without one. I never
//! fail: a line that cannot be written is gone.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::limits::{LOG_KINDS, LOG_MESSAGES_PER_WINDOW, LOG_WINDOW};

/// Starts logging to standard error. `filter` is a level (`info`) or a tracing filter; what it
/// does not understand it says back as an error text.
pub fn start(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("log filter `{filter}`: {e}"))?;
    tracing_subscriber::registry()
        .with(filter)
        .with(Lines {
            thinner: Mutex::new(Thinner::default()),
            started: Instant::now(),
        })
        .try_init()
        .map_err(|e| e.to_string())
}

struct Lines {
    thinner: Mutex<Thinner>,
    started: Instant,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let kind = event.metadata().callsite();
        let pass = self
            .thinner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pass(kind, now_ms);
        let Some(suppressed) = pass else { return };
        let mut line = String::with_capacity(160);
        // Writing into a string cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut line));
        let _ = write!(line, " {:5}", event.metadata().level());
        event.record(&mut Text(&mut line));
        if suppressed > 0 {
            let _ = write!(line, " ({suppressed} more like this were suppressed)");
        }
        line.push('\n');
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

/// Appends the message, then the fields as `name=value`.
struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            let _ = write!(self.0, " {value}");
        } else {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, " {value:?}");
        } else {
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }
}

/// Lets one message per second pass without a lock: for what a request may cause.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    next_ns: AtomicU64,
}

impl Seldom {
    /// Whether the message may be logged at `now_ns` of any clock. Of several threads at once, one
    /// may.
    pub(crate) fn pass(&self, now_ns: u64) -> bool {
        // Relaxed: the number carries no other memory, and the exchange lets only one thread win.
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let later_ns = now_ns.saturating_add(1_000_000_000);
        // A clock that was stepped back must not silence the message for long.
        let due = now_ns >= next_ns || next_ns > later_ns;
        due && self
            .next_ns
            .compare_exchange(next_ns, later_ns, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

/// Counts messages per kind and window.
#[derive(Default)]
struct Thinner {
    kinds: HashMap<Identifier, Window>,
    others: Window,
}

#[derive(Default)]
struct Window {
    started_ms: u64,
    passed: u32,
    suppressed: u64,
}

impl Thinner {
    /// `None` suppresses the message; `Some(n)` lets it pass, after `n` that were suppressed.
    fn pass(&mut self, kind: Identifier, now_ms: u64) -> Option<u64> {
        let known = self.kinds.contains_key(&kind);
        let window = if known || self.kinds.len() < LOG_KINDS {
            self.kinds.entry(kind).or_default()
        } else {
            &mut self.others
        };
        window.pass(now_ms)
    }
}

impl Window {
    fn pass(&mut self, now_ms: u64) -> Option<u64> {
        let length_ms = u64::try_from(LOG_WINDOW.as_millis()).unwrap_or(u64::MAX);
        if now_ms.saturating_sub(self.started_ms) >= length_ms {
            self.started_ms = now_ms;
            self.passed = 0;
        }
        if self.passed >= LOG_MESSAGES_PER_WINDOW {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.passed += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_a_few_lines_and_a_count() {
        let mut window = Window::default();
        let passed = (0..1_000).filter(|_| window.pass(5).is_some()).count();
        assert_eq!(passed, 10);
        assert_eq!(window.pass(9_999), None);
        assert_eq!(window.pass(10_000), Some(991), "the count is told once");
        assert_eq!(window.pass(10_001), Some(0));
    }

    #[test]
    fn a_seldom_message_passes_once_per_second_also_after_a_step_back() {
        const SECOND_NS: u64 = 1_000_000_000;
        let seldom = Seldom::default();
        assert!(seldom.pass(50 * SECOND_NS));
        assert!(!seldom.pass(50 * SECOND_NS + 1));
        assert!(!seldom.pass(51 * SECOND_NS - 1));
        assert!(seldom.pass(51 * SECOND_NS));
        assert!(seldom.pass(7 * SECOND_NS), "the clock was stepped back");
        assert!(!seldom.pass(7 * SECOND_NS + 1));
    }
}
