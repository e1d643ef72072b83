//! What would happen to a request, rule by rule, and why.
//!
//! I own the form of an explanation. I promise that explaining charges and counts nothing, and that
//! which rules apply is decided by the same code that decides requests. I am for people: I allocate
//! and look at every rule.

use std::sync::Arc;

use arrayvec::ArrayVec;
use gabion_admit::Outcome;
use gabion_rule::attributes::Resolver;
use gabion_rule::{Counted, Dropped, Entries, Matching, Miss, Mode, Rule, RuleIdx};
use gabion_table::Charge;
use serde_json::{json, Value};

use super::gather::{counted_by, raw};
use super::{AllWanted, Charges, Engine, Wanted};
use crate::answer::Decided;
use crate::limits::ENTRIES_MAX;
use crate::observe::pair;
use crate::policy::Policy;
use crate::protocol::{Code, RateLimitDescriptor, RateLimitRequest};

/// What is known of the over-admission of the rule at an index; null when nothing is.
pub type BoundOf<'a> = dyn Fn(usize, &Rule) -> Value + 'a;

/// Explains one request as it would be answered now.
pub fn explain(engine: &Engine, request: &RateLimitRequest, bound: &BoundOf<'_>) -> Value {
    // Counts and warnings of gathering go to an engine that nobody looks at.
    let policy = engine.policy();
    let aside = Engine::over(Arc::clone(&policy), Arc::clone(&engine.clock));
    let mut dropped = Vec::new();
    let wanted = aside.gather(&policy, request, &mut |at, rule, why| {
        dropped.push((at, rule, why))
    });
    let charges = read(&policy, &wanted, engine.now_ns());
    let denied = wanted.iter().zip(&charges).any(|(want, charge)| {
        let enforced = matches!(want.mode, Mode::Enforce | Mode::DenyAll);
        enforced && charge.verdict.outcome == Outcome::Denied
    });
    let descriptors = request.descriptors.iter().enumerate();
    let descriptors: Vec<Value> = descriptors
        .map(|(at, descriptor)| {
            let asked = Asked {
                policy: &policy,
                domain: &request.domain,
                at,
                descriptor,
                dropped: &dropped,
                bound,
            };
            let rules = rules_of(&asked, &wanted, &charges);
            json!({"descriptor": text(descriptor), "rules": rules})
        })
        .collect();
    let answer = policy.respond(&Decided {
        request,
        charges: &charges,
        wanted: &wanted,
        denied,
    });
    let over = answer.overall_code == i32::from(Code::OverLimit);
    let headers = answer.response_headers_to_add.iter();
    let shown = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    json!({
        "domain": String::from_utf8_lossy(&request.domain),
        "descriptors": descriptors,
        "answer": {
            "code": if over { "OVER_LIMIT" } else { "OK" },
            "headers": headers.map(|h| json!([shown(&h.key), shown(&h.value)])).collect::<Vec<_>>(),
        },
    })
}

/// The charges of a request with the verdicts they would get, in the request's order.
fn read(policy: &Policy, wanted: &AllWanted, now_ns: u64) -> Charges {
    let mut charges: Charges = ArrayVec::new();
    for (tag, want) in (0u8..).zip(wanted) {
        let mut charge = Charge::new(want.rule, want.key, 0, want.mode, tag);
        charge.limit = want.limit;
        charges.push(charge);
    }
    if let Some(counters) = policy.counters().filter(|_| !charges.is_empty()) {
        counters.decide(&mut charges, now_ns);
    }
    for (charge, want) in charges.iter_mut().zip(wanted) {
        let verdict = &mut charge.verdict;
        let fits = want.hits <= u64::from(verdict.reading.remaining);
        if !fits && want.mode != Mode::Unlimited && !want.is_mute() {
            verdict.outcome = Outcome::Denied;
            verdict.retry_after_ns = verdict.retry_after_ns.max(verdict.reading.reset_ns).max(1);
        }
    }
    charges
}

/// One descriptor of a request, with what was told of the rules that were left out.
struct Asked<'a> {
    policy: &'a Policy,
    domain: &'a [u8],
    at: usize,
    descriptor: &'a RateLimitDescriptor,
    dropped: &'a [(usize, RuleIdx, Dropped)],
    bound: &'a BoundOf<'a>,
}

fn rules_of(asked: &Asked<'_>, wanted: &AllWanted, charges: &Charges) -> Vec<Value> {
    let Asked { policy, at, .. } = *asked;
    let entries: Vec<(&[u8], &[u8])> = asked
        .descriptor
        .entries
        .iter()
        .map(|entry| (&*entry.key, &*entry.value))
        .collect();
    let misses = policy.rules.explain(asked.domain, &entries);
    let mut said = Vec::new();
    for ((rule, miss), index) in policy.rules.rules().iter().zip(misses).zip(0..) {
        if rule.domain.as_bytes() != asked.domain {
            continue;
        }
        let of_this = |want: &Wanted| want.descriptor == at && want.rule == index;
        said.push(match wanted.iter().position(of_this) {
            Some(place) => applies(asked, rule, &wanted[place], &charges[place]),
            None => {
                let why = left_out(asked, rule, index, miss);
                json!({"rule": rule.name, "applies": false, "why": why})
            }
        });
    }
    said
}

fn applies(asked: &Asked<'_>, rule: &Rule, want: &Wanted, charge: &Charge) -> Value {
    let reading = &charge.verdict.reading;
    let over = charge.verdict.outcome == Outcome::Denied;
    let on_share = charge.verdict.is_on_share();
    let verdict = match (want.mode, over) {
        (Mode::Unlimited, _) => "allows: unlimited",
        (Mode::DryRun, true) if on_share => "would deny on this member's share: dry run",
        (Mode::DryRun, true) => "would deny: dry run",
        (_, true) if on_share => "denies on this member's share; the limit has room",
        (_, true) => "denies",
        (_, false) if want.counted == Counted::Late => "charged: the response is known",
        (_, false) if want.counted == Counted::Read => "allows; charged when the response is known",
        (_, false) => "allows",
    };
    let tier = rule.tiers.as_ref().filter(|_| want.limit.is_some());
    let tier = tier.map(|tiers| String::from_utf8_lossy(tiers.by()).into_owned());
    let counts = counted_by(asked.policy, want.rule, asked.descriptor, shown_entries);
    json!({
        "rule": rule.name,
        "applies": true,
        "as": rule.describe(),
        "key": want.key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "counts_by": counts,
        "tier_by": tier,
        "hits": want.hits,
        "limit": reading.limit,
        "used": reading.used,
        "remaining": reading.remaining,
        "reset_seconds": reading.reset_ns.div_ceil(1_000_000_000),
        "on_share": on_share,
        "verdict": verdict,
        "over_admission": (asked.bound)(usize::from(want.rule), rule),
    })
}

/// Why a rule is not charged.
fn left_out(asked: &Asked<'_>, rule: &Rule, index: RuleIdx, miss: Option<Miss>) -> String {
    let Asked { policy, at, .. } = *asked;
    let mut told = asked.dropped.iter();
    if let Some((_, _, why)) = told.find(|told| (told.0, told.1) == (at, index)) {
        let source = |slot| raw(policy.rules.sources().name(slot), asked.descriptor);
        let values = Resolver::new(policy.rules.attributes(), &source);
        if rule.matching == Matching::Request {
            return policy.rules.why_dropped(index, *why, &values);
        }
        let entries: Vec<(&[u8], &[u8])> = asked.descriptor.entries.iter().map(pair).collect();
        let values = Entries {
            entries: &entries,
            has_query: true,
        };
        return policy.rules.why_dropped(index, *why, &values);
    }
    if asked.descriptor.entries.len() > ENTRIES_MAX {
        return "the descriptor has more entries than are looked at".to_owned();
    }
    match miss {
        _ if rule.mode == Mode::Disabled => Miss::Disabled.to_string(),
        Some(miss) if rule.matching != Matching::Request => miss.to_string(),
        _ if asked.descriptor.limit.is_some() => {
            "the request brings a limit of its own, which is counted instead".to_owned()
        }
        _ => "the request is larger, or matches more rules, than is looked at".to_owned(),
    }
}

fn shown_entries(entries: &[(&[u8], &[u8])]) -> String {
    let entry = |(key, value): &(&[u8], &[u8])| {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        format!("{key}={value}")
    };
    entries.iter().map(entry).collect::<Vec<_>>().join(",")
}

fn text(descriptor: &RateLimitDescriptor) -> String {
    shown_entries(&descriptor.entries.iter().map(pair).collect::<Vec<_>>())
}

/// A descriptor as people write it: `key=value,key=value`; a comma of a value is written `\,`.
///
/// # Errors
/// What to write instead.
pub fn parse_descriptor(text: &str) -> Result<RateLimitDescriptor, String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        let last = parts.len() - 1;
        match letter {
            '\\' if !escaped => escaped = true,
            ',' if !escaped => parts.push(String::new()),
            _ => {
                if escaped && letter != ',' && letter != '\\' {
                    parts[last].push('\\');
                }
                parts[last].push(letter);
                escaped = false;
            }
        }
    }
    let pair = |part: &String| match part.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("\"{part}\" is no entry; write key=value,key=value")),
    };
    let pairs: Result<Vec<(String, String)>, String> = parts.iter().map(pair).collect();
    let pairs = pairs?;
    let pairs: Vec<(&str, &str)> = pairs
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    Ok(crate::protocol::descriptor(&pairs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read_as_they_are_shown() {
        let there = |given: &str| parse_descriptor(given).map(|d| text(&d));
        assert_eq!(there("a=b"), Ok("a=b".to_owned()));
        assert_eq!(there("a=b,c=d=e"), Ok("a=b,c=d=e".to_owned()));
        assert_eq!(there(r"a=1\,2,b=\\x\y"), Ok(r"a=1,2,b=\x\y".to_owned()));
        assert_eq!(there("a="), Ok("a=".to_owned()));
        for bad in ["", "a", "=b", "a=b,", "a=b,c"] {
            assert!(there(bad).is_err(), "{bad}");
        }
    }
}
