//! Reading the sections `log`, `observe` and `traces`.

use gabion_rule::policy::MapReader;

use super::{Log, LogFormat, Observe, Traces};
use crate::limits;

/// All three.
pub(super) fn read(map: &mut MapReader<'_, '_>) -> (Log, Observe, Option<Traces>) {
    let mut observe = observe(map);
    let log = log(map, &mut observe);
    (log, observe, traces(map))
}

/// The section `log`, and how many denials go into it.
fn log(map: &mut MapReader<'_, '_>, observe: &mut Observe) -> Log {
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
fn observe(map: &mut MapReader<'_, '_>) -> Observe {
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
    if let Some(values) = map.u64_in("value_series", 0..=limits::VALUE_SERIES_MAX as u64) {
        observe.value_series = usize::try_from(values).unwrap_or(limits::VALUE_SERIES_MAX);
    }
    map.finish();
    observe
}

/// The section `traces`; `None` when it names no endpoint.
fn traces(map: &mut MapReader<'_, '_>) -> Option<Traces> {
    let mut map = map.map("traces")?;
    let every = map.u64_in("sample_every", 1..=u64::from(u32::MAX));
    let endpoint = map.text("endpoint").map(str::to_owned);
    match &endpoint {
        Some(url) if is_plain_http(url) => {}
        Some(_) => map.problem(
            "endpoint",
            "an OTLP collector that speaks gRPC is expected; write http://HOST:PORT (TLS to it is \
             not in this version: use a collector on this host)",
        ),
        None if every.is_some() => map.problem("sample_every", "it does nothing without endpoint"),
        None => {}
    }
    map.finish();
    Some(Traces {
        endpoint: endpoint?,
        sample_every: every
            .and_then(|every| u32::try_from(every).ok())
            .unwrap_or(limits::TRACE_SAMPLE_DEFAULT),
    })
}

fn is_plain_http(url: &str) -> bool {
    let authority = url.strip_prefix("http://").unwrap_or_default();
    let (host, port) = authority.rsplit_once(':').unwrap_or_default();
    let port = port.trim_end_matches('/').parse::<u16>();
    !host.is_empty() && !host.contains(['/', '@', ' ']) && port.is_ok_and(|port| port > 0)
}
