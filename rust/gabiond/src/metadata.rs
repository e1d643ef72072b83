//! Metadata of an answer, for Envoy's access log and later filters.
//!
//! I own the names of its fields; `docs/envoy.md` lists them. I never decide.

use gabion_rule::Rule;
use prost_types::value::Kind;
use prost_types::{Struct, Value};

use gabion_admit::headers::Shown;
use gabion_admit::retry_after_seconds;

/// Field names and values, put together.
#[derive(Debug, Default)]
pub(crate) struct Metadata(Struct);

impl Metadata {
    pub(crate) fn text(&mut self, name: &str, value: impl Into<String>) {
        self.put(name, Kind::StringValue(value.into()));
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        // Exact up to 2^32, which no number here passes in truth.
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        self.put(name, Kind::NumberValue(f64::from(value)));
    }

    fn put(&mut self, name: &str, kind: Kind) {
        let value = Value { kind: Some(kind) };
        self.0.fields.insert(name.to_owned(), value);
    }

    /// Who decided, or is nearest to it: a rule, or a limit of this name that the request brought.
    pub(crate) fn who(&mut self, rule: Result<&Rule, &str>, domain: &[u8]) {
        match rule {
            Ok(rule) => {
                self.text("rule", rule.name.as_str());
                self.text("limiter", rule.limiter.as_str());
                self.text("domain", rule.domain.as_str());
            }
            Err(name) => {
                self.text("rule", name);
                self.text("limiter", name);
                self.text("domain", String::from_utf8_lossy(domain));
            }
        }
    }

    /// What its counter shows.
    pub(crate) fn shown(&mut self, shown: &Shown) {
        self.number("limit", u64::from(shown.reading.limit));
        self.number("remaining", u64::from(shown.remaining()));
        self.number("reset", shown.reset_s());
        if let Some(ns) = shown.denied_for_ns {
            self.number("retry_after", retry_after_seconds(ns));
        }
    }

    pub(crate) fn finish(self) -> Struct {
        self.0
    }
}
