//! Metadata of an answer, for Envoy's access log and later filters.
//!
//! I own the names of its fields; `docs/envoy.md` lists them. I never decide.

use gabion_rule::Rule;
use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};

use gabion_admit::headers::Shown;
use gabion_admit::retry_after_seconds;

use crate::protocol::RateLimitRequest;

/// Exact up to 2^32, which no number here passes in truth.
fn number(value: u64) -> Kind {
    Kind::NumberValue(f64::from(u32::try_from(value).unwrap_or(u32::MAX)))
}

fn list(kinds: Vec<Kind>) -> Kind {
    let value = |kind| Value { kind: Some(kind) };
    let values = kinds.into_iter().map(value).collect();
    Kind::ListValue(ListValue { values })
}

/// Field names and values, put together.
#[derive(Debug, Default)]
pub(crate) struct Metadata(Struct);

impl Metadata {
    pub(crate) fn text(&mut self, name: &str, value: impl Into<String>) {
        self.put(name, Kind::StringValue(value.into()));
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        self.put(name, number(value));
    }

    /// Whether a limit of the request is a quota, and which descriptors are beyond theirs: in the
    /// names of the Envoy project's reference service.
    pub(crate) fn quota(&mut self, enabled: bool, beyond: &[usize]) {
        self.put("quotaModeEnabled", Kind::BoolValue(enabled));
        if !beyond.is_empty() {
            let numbers = beyond.iter().map(|index| number(*index as u64));
            self.put("quotaModeViolations", list(numbers.collect()));
        }
    }

    /// The request, in the names of the Envoy project's reference service.
    pub(crate) fn request(&mut self, request: &RateLimitRequest) {
        self.text("domain", String::from_utf8_lossy(&request.domain));
        if request.hits_addend != 0 {
            self.number("hitsAddend", u64::from(request.hits_addend));
        }
        let descriptors = request.descriptors.iter().map(|descriptor| {
            let mut one = Metadata::default();
            let entries = descriptor.entries.iter().map(|entry| {
                let (key, value) = (&entry.key, &entry.value);
                let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
                Kind::StringValue(format!("{key}={value}"))
            });
            one.put("entries", list(entries.collect()));
            if let Some(limit) = &descriptor.limit {
                let text = format!(
                    "requests_per_unit:{} unit:{}",
                    limit.requests_per_unit,
                    limit.unit().as_str_name()
                );
                one.text("limit", text);
            }
            if let Some(hits) = descriptor.hits_addend {
                one.number("hitsAddend", hits);
            }
            Kind::StructValue(one.0)
        });
        self.put("descriptors", list(descriptors.collect()));
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
        if shown.is_on_share() {
            self.put("on_share", Kind::BoolValue(true));
        }
    }

    pub(crate) fn finish(self) -> Struct {
        self.0
    }
}
