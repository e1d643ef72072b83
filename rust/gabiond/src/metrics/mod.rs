//! `/metrics`: everything this member counts, for Prometheus.
//!
//! I own the names, labels and help texts of metrics; `docs/operating.md` lists them and a test
//! compares. I promise a bounded number of series: rules and peers beyond a bound share one or have
//! none, and no label holds more than `LABEL_BYTES` of anybody's name. Counters are read where they
//! are, at the time of a scrape; nothing is counted for me. I only read.

mod gossip;
mod page;
mod ports;
mod process;
mod rules;
mod values;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{prometheus_text, text, DescriptorEncoder};
use prometheus_client::registry::Registry;

use crate::member::{Member, State};
use crate::observe::BOUNDS_NS;
use crate::tally::{Cause, Tally};
use gabion_table::TableStats;
use page::{seconds, Page};

/// In which form metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Prometheus' text form 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Form {
    /// What a client that sends this `Accept` header gets.
    pub(crate) fn accepted_by(header: &str) -> Self {
        if header.contains("application/openmetrics-text") {
            Form::OpenMetrics
        } else {
            Form::Prometheus
        }
    }

    /// The content type of this form.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => prometheus_text::CONTENT_TYPE,
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All metrics of this moment. Looks at rows of the table, so it may take some milliseconds.
pub(crate) fn render(member: Arc<Member>, form: Form) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(member)));
    let mut out = String::with_capacity(64 << 10);
    // Writing into a string cannot fail.
    let _ = match form {
        Form::Prometheus => prometheus_text::encode(&mut out, &registry),
        Form::OpenMetrics => text::encode(&mut out, &registry),
    };
    out
}

struct Scrape(Arc<Member>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page::new(&mut encoder);
        self::member(&self.0, &mut page)?;
        requests(self.0.engine().tally(), &mut page)?;
        ports::write(self.0.ports(), &mut page)?;
        decisions(&self.0, &mut page)?;
        rules::write(&self.0, &mut page)?;
        values::write(&self.0, &mut page)?;
        table(&self.0, &mut page)?;
        gossip::write(self.0.gossip().as_deref(), &mut page)?;
        process::write(&mut page, self.0.started_at())
    }
}

fn member(member: &Member, page: &mut Page<'_, '_>) -> fmt::Result {
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let build = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("profile", profile),
        ("arch", std::env::consts::ARCH),
    ];
    page.gauges(
        "gabion_build_info",
        "1, with what this is as labels",
        [(build, 1u64)],
    )?;
    let state = member.state();
    let states = [State::Starting, State::Ready, State::Draining]
        .map(|each| ([("state", each.word())], u64::from(each == state)));
    page.gauges("gabion_state", "1 for the state this member is in", states)?;
    let reloads = member.reloads();
    page.counters(
        "gabion_config_reloads",
        "Configurations read after the first, by what became of them",
        [
            ([("result", "done")], reloads.done),
            ([("result", "refused")], reloads.refused),
        ],
    )?;
    page.gauge(
        "gabion_config_last_reload_successful",
        "1 while the configuration read last is in force",
        u64::from(reloads.last_refusal.is_none()),
    )
}

fn requests(tally: &Tally, page: &mut Page<'_, '_>) -> fmt::Result {
    page.counters(
        "gabion_requests",
        "Requests by what was decided",
        [
            ([("decision", "allowed")], tally.allowed.get()),
            ([("decision", "denied")], tally.denied.get()),
        ],
    )?;
    let refused = tally.of_cause(Cause::NoDomain) + tally.of_cause(Cause::NoDescriptors);
    let served = tally.allowed.get() + tally.denied.get() + tally.of_cause(Cause::Internal);
    page.counters(
        "gabion_grpc_requests",
        "Calls of ShouldRateLimit by gRPC status",
        [
            ([("code", "OK")], served),
            ([("code", "INVALID_ARGUMENT")], refused),
        ],
    )?;
    page.counter(
        "gabion_descriptors",
        "Descriptors looked at",
        tally.descriptors.get(),
    )?;
    page.counter(
        "gabion_unmatched_descriptors",
        "Descriptors that matched no rule",
        tally.unmatched.get(),
    )?;
    page.counters(
        "gabion_fail_open",
        "What was let through undecided, or answered without a decision, by cause",
        Cause::ALL.map(|cause| ([("cause", cause.name())], tally.of_cause(cause))),
    )
}

fn decisions(member: &Member, page: &mut Page<'_, '_>) -> fmt::Result {
    let observer = member.observer();
    let (counts, sum_ns) = observer.latency().read();
    let bounds = BOUNDS_NS
        .iter()
        .map(|ns| seconds(*ns))
        .chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
    page.histogram(
        "gabion_decision_duration_seconds",
        "Time from a parsed request to its answer, of sampled requests",
        seconds(sum_ns),
        &buckets,
    )?;
    page.gauge(
        "gabion_decision_sample_every",
        "One in so many decisions is sampled",
        u64::from(observer.sample_every()),
    )?;
    page.counter(
        "gabion_key_samples_dropped",
        "Samples of keys that found no room",
        observer.samples_dropped(),
    )?;
    page.gauge(
        "gabion_keys_held",
        "Keys that are held for /keys",
        observer.keys_held() as u64,
    )?;
    let (logged, thinned) = observer.denials_logged();
    page.counters(
        "gabion_denials",
        "Denials and would-be denials by whether they were logged or thinned out",
        [
            ([("log", "written")], logged),
            ([("log", "thinned")], thinned),
        ],
    )
}

fn table(member: &Member, page: &mut Page<'_, '_>) -> fmt::Result {
    let policy = member.engine().policy();
    let stats = policy.counters().map(|counters| counters.stats());
    let stats = stats.unwrap_or_default();
    page.gauge(
        "gabion_table_rows",
        "Row slots of the counter table",
        stats.rows,
    )?;
    page.gauge(
        "gabion_table_live_rows",
        "Rows that hold a key, dead ones included until they are reused or scrubbed",
        stats.live,
    )?;
    table_counters(&stats)
        .into_iter()
        .try_for_each(|(name, help, count)| {
            page.counter(&format!("gabion_table_{name}"), help, count)
        })
}

const SHARE_DENIALS: &str = "Denials on a member's share of a paced or strict rule";

fn table_counters(stats: &TableStats) -> [(&'static str, &'static str, u64); 15] {
    [
        ("claims", "Rows given to a key", stats.claims),
        (
            "full_admits",
            "Hits let through uncounted: no row",
            stats.full_admits,
        ),
        (
            "doorkeeper_hits",
            "Hits let through uncounted: new to a full table",
            stats.doorkeeper_hits,
        ),
        (
            "evicted_rows",
            "Rows taken from a key that still counted",
            stats.evicted_rows,
        ),
        (
            "evicted_hits",
            "Own hits that were forgotten with them",
            stats.evicted_hits,
        ),
        (
            "evicted_exhausted",
            "Rows taken that were exhausted",
            stats.evicted_exhausted,
        ),
        (
            "phantom_hits",
            "Hits that stayed counted on a denied request",
            stats.phantom_hits,
        ),
        (
            "takeovers",
            "Claims left by somebody who stopped, taken over",
            stats.takeovers,
        ),
        (
            "withdrawals",
            "Claims withdrawn because another had the key",
            stats.withdrawals,
        ),
        (
            "void_epochs",
            "Counts too far ahead of now, read as nothing",
            stats.void_epochs,
        ),
        (
            "unknown_rules",
            "Charges for a rule the table does not have",
            stats.unknown_rules,
        ),
        (
            "bad_clock",
            "Charges at a time that cannot be real",
            stats.bad_clock,
        ),
        ("scrubbed", "Dead rows cleared by the scrub", stats.scrubbed),
        (
            "remarked",
            "Dirty marks repaired by the scrub",
            stats.remarked,
        ),
        ("share_denials", SHARE_DENIALS, stats.share_denials),
    ]
}
