//! Log lines for people, thinned.
//!
//! I own the form of a line and how often one kind of message may appear. I promise that a flood
//! of one message becomes a few lines and a count, and that nothing is dropped without one. I never
//! fail: a line that cannot be written is gone.

use std::borrow::Cow;
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

use serde_json::Value;

use crate::config::LogFormat;
use crate::limits::{LOG_KINDS, LOG_MESSAGES_PER_WINDOW, LOG_WINDOW};
use crate::observe;

/// Starts logging to standard error. `filter` is a level (`info`) or a tracing filter; what it
/// does not understand it says back as an error text.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = quiet(filter);
    let filter = EnvFilter::try_new(&filter).map_err(|e| format!("log filter `{filter}`: {e}"))?;
    tracing_subscriber::registry()
        .with(filter)
        .with(Lines {
            format,
            thinner: Mutex::new(Thinner::default()),
            started: Instant::now(),
        })
        .try_init()
        .map_err(|e| e.to_string())
}

/// kube tells each failed request by itself; discovery says the same once, and what to do.
fn quiet(filter: &str) -> String {
    match filter.contains("kube_") {
        true => filter.to_owned(),
        false => format!("{filter},kube_client=off,kube_runtime=off"),
    }
}

/// Target of lines that are bounded by whoever writes them.
pub(crate) const UNTHINNED: &str = "gabiond::reload";

struct Lines {
    format: LogFormat,
    thinner: Mutex<Thinner>,
    started: Instant,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // Denials are thinned where they happen, decisions are shown when all are wanted, and the
        // lines of a reload are bounded there.
        let whole = [
            observe::DENIALS_TARGET,
            observe::DECISIONS_TARGET,
            UNTHINNED,
        ];
        let suppressed = if whole.contains(&event.metadata().target()) {
            0
        } else {
            match self.pass(event.metadata().callsite()) {
                Some(suppressed) => suppressed,
                None => return,
            }
        };
        let mut time = String::with_capacity(32);
        // Writing into a string cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = event.metadata().level().as_str();
        let mut line = line(
            self.format,
            &time,
            level,
            event.metadata().target(),
            &fields,
            suppressed,
        );
        line.push('\n');
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}

impl Lines {
    fn pass(&self, kind: Identifier) -> Option<u64> {
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut thinner = self.thinner.lock().unwrap_or_else(PoisonError::into_inner);
        thinner.pass(kind, now_ms)
    }
}

/// The message and the fields of an event, in their order.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(Cow<'static, str>, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (observe::SHOWN, Value::String(pairs)) => {
                // Whoever logs them wrote them so.
                let pairs = serde_json::from_str::<Vec<(String, String)>>(&pairs);
                let pairs = pairs.unwrap_or_default().into_iter();
                let shown = pairs.map(|(name, value)| (Cow::from(name), Value::from(value)));
                self.others.extend(shown);
            }
            (name, value) => self.others.push((Cow::from(name), value)),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

/// One line without its end.
fn line(
    format: LogFormat,
    time: &str,
    level: &str,
    target: &str,
    fields: &Fields,
    suppressed: u64,
) -> String {
    match format {
        LogFormat::Text => text(time, level, fields, suppressed),
        LogFormat::Logfmt => logfmt(time, level, target, fields, suppressed),
        LogFormat::Json => json(time, level, target, fields, suppressed),
    }
}

fn text(time: &str, level: &str, fields: &Fields, suppressed: u64) -> String {
    let mut line = format!("{time} {level:5} {}", fields.message);
    for (name, value) in &fields.others {
        // Texts are quoted, so that nothing that came from outside can end a line.
        let _ = match value {
            Value::String(text) => write!(line, " {name}={text:?}"),
            value => write!(line, " {name}={value}"),
        };
    }
    if suppressed > 0 {
        let _ = write!(line, " ({suppressed} more like this were suppressed)");
    }
    line
}

fn logfmt(time: &str, level: &str, target: &str, fields: &Fields, suppressed: u64) -> String {
    let level = level.to_ascii_lowercase();
    let mut line = format!("ts={time} level={level} msg=");
    bare_or_quoted(&mut line, &fields.message);
    for (name, value) in &fields.others {
        let _ = write!(line, " {name}=");
        match value {
            Value::String(text) => bare_or_quoted(&mut line, text),
            value => {
                let _ = write!(line, "{value}");
            }
        }
    }
    if suppressed > 0 {
        let _ = write!(line, " suppressed_lines={suppressed}");
    }
    let _ = write!(line, " target=");
    bare_or_quoted(&mut line, target);
    line
}

/// A value that could be misread is quoted as JSON does it.
fn bare_or_quoted(line: &mut String, text: &str) {
    let bare = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
    if !text.is_empty() && text.chars().all(bare) {
        line.push_str(text);
    } else {
        let _ = write!(line, "{}", Value::from(text));
    }
}

fn json(time: &str, level: &str, target: &str, fields: &Fields, suppressed: u64) -> String {
    let mut line = format!(
        "{{\"timestamp\":{},\"level\":\"{level}\",\"target\":{},\"message\":{}",
        Value::from(time),
        Value::from(target),
        Value::from(fields.message.as_str())
    );
    for (name, value) in &fields.others {
        let _ = write!(line, ",{}:{value}", Value::from(name.as_ref()));
    }
    if suppressed > 0 {
        let _ = write!(line, ",\"suppressed_lines\":{suppressed}");
    }
    line.push('}');
    line
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

    fn event() -> Fields {
        Fields {
            message: "it is \"so\"".to_owned(),
            others: vec![
                ("key".into(), "a=b\nfake line".into()),
                ("limit".into(), 5.into()),
                ("rule".into(), "plain".into()),
            ],
        }
    }

    #[test]
    fn each_form_is_one_line_that_its_readers_can_take_apart() {
        let of = |format| line(format, "T", "INFO", "gabion::x", &event(), 3);
        assert_eq!(
            of(LogFormat::Text),
            "T INFO  it is \"so\" key=\"a=b\\nfake line\" limit=5 rule=\"plain\" \
             (3 more like this were suppressed)"
        );
        assert_eq!(
            of(LogFormat::Logfmt),
            "ts=T level=info msg=\"it is \\\"so\\\"\" \
             key=\"a=b\\nfake line\" limit=5 rule=plain suppressed_lines=3 target=gabion::x"
        );
        let object: Value = serde_json::from_str(&of(LogFormat::Json)).unwrap();
        let expected = serde_json::json!({
            "timestamp": "T", "level": "INFO", "target": "gabion::x", "message": "it is \"so\"",
            "key": "a=b\nfake line", "limit": 5, "rule": "plain", "suppressed_lines": 3,
        });
        assert_eq!(object, expected);
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
