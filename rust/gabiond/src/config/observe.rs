//! Reading the sections `log` and `observe`.

use gabion_rule::policy::MapReader;

use super::{Log, LogFormat, Observe};
use crate::limits;

/// The section `log`, and how many denials go into it.
pub(super) fn log(map: &mut MapReader<'_, '_>, observe: &mut Observe) -> Log {
    let mut log = Log::default();
    let Some(mut map) = map.map("log") else {
        return log;
    };
    if let Some(format) = map
        .word("format", &LogFormat::WORDS)
        .and_then(LogFormat::of)
    {
        log.format = format;
    }
    if let Some(lines) = map.u64_in("denials", 0..=u64::from(limits::DENIALS_MAX)) {
        observe.denials_per_second = u16::try_from(lines).unwrap_or(limits::DENIALS_MAX);
    }
    map.finish();
    log
}

/// The section `observe`.
pub(super) fn observe(map: &mut MapReader<'_, '_>) -> Observe {
    let mut observe = Observe::default();
    let Some(mut map) = map.map("observe") else {
        return observe;
    };
    if let Some(keys) = map.bool("keys") {
        observe.keys = keys;
    }
    if let Some(every) = map.u64_in("sample", 1..=u64::from(limits::SAMPLE_MAX)) {
        observe.sample = u32::try_from(every).unwrap_or(limits::SAMPLE_MAX);
    }
    if let Some(word) = map.word("values", &["shown", "hashed"]) {
        observe.values_shown = word == "shown";
    }
    if let Some(rules) = map.u64_in("rule_series", 0..=limits::RULE_SERIES_MAX as u64) {
        observe.rule_series = usize::try_from(rules).unwrap_or(limits::RULE_SERIES_MAX);
    }
    map.finish();
    observe
}
