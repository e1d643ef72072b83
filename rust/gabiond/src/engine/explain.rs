//! What would happen to a request, rule by rule, and why.
//!
//! I own the form of an explanation. I promise that explaining charges and counts nothing, and that
//! which rules apply is decided by the same code that decides requests. I am for people: I allocate
//! and look at every rule.

use std::sync::Arc;

use arrayvec::ArrayVec;
use gabion_admit::Outcome;
use gabion_rule::{Mode, Rule, RuleIdx};
use gabion_table::Charge;
use serde_json::{json, Value};

use super::{AllWanted, Charges, Engine, Wanted};
use crate::answer::Decided;
use crate::limits::ENTRIES_MAX;
use crate::policy::Policy;
use crate::protocol::{Code, RateLimitDescriptor, RateLimitRequest};

/// Explains one request as it would be answered now.
pub fn explain(engine: &Engine, request: &RateLimitRequest) -> Value {
    // Counts and warnings of gathering go to an engine that nobody looks at.
    let policy = engine.policy();
    let aside = Engine::over(Arc::clone(&policy), Arc::clone(&engine.clock));
    let wanted = aside.gather(&policy, request);
    let charges = read(&policy, &wanted, engine.now_ns());
    let denied = wanted.iter().zip(&charges).any(|(want, charge)| {
        let enforced = matches!(want.mode, Mode::Enforce | Mode::DenyAll);
        enforced && charge.verdict.outcome == Outcome::Denied
    });
    let descriptors = request.descriptors.iter().enumerate();
    let descriptors: Vec<Value> = descriptors
        .map(|(at, descriptor)| {
            let rules = rules_of(&policy, request, at, descriptor, &wanted, &charges);
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
        if !fits && want.mode != Mode::Unlimited {
            verdict.outcome = Outcome::Denied;
            verdict.retry_after_ns = verdict.retry_after_ns.max(verdict.reading.reset_ns).max(1);
        }
    }
    charges
}

fn rules_of(
    policy: &Policy,
    request: &RateLimitRequest,
    at: usize,
    descriptor: &RateLimitDescriptor,
    wanted: &AllWanted,
    charges: &Charges,
) -> Vec<Value> {
    let entries: Vec<(&[u8], &[u8])> = descriptor
        .entries
        .iter()
        .map(|entry| (&*entry.key, &*entry.value))
        .collect();
    let misses = policy.rules.explain(&request.domain, &entries);
    let mut said = Vec::new();
    for ((rule, miss), index) in policy.rules.rules().iter().zip(misses).zip(0..) {
        if rule.domain.as_bytes() != &*request.domain {
            continue;
        }
        let of_this = |want: &Wanted| want.descriptor == at && want.rule == index;
        said.push(match wanted.iter().position(of_this) {
            Some(place) => applies(rule, &wanted[place], &charges[place]),
            None => {
                let why = match miss {
                    Some(miss) => miss.to_string(),
                    None => left_out(policy, rule, index, &entries, wanted),
                };
                json!({"rule": rule.name, "applies": false, "why": why})
            }
        });
    }
    said
}

fn applies(rule: &Rule, want: &Wanted, charge: &Charge) -> Value {
    let reading = &charge.verdict.reading;
    let over = charge.verdict.outcome == Outcome::Denied;
    let verdict = match (want.mode, over) {
        (Mode::Unlimited, _) => "allows: unlimited",
        (Mode::DryRun, true) => "would deny: dry run",
        (_, true) => "denies",
        (_, false) => "allows",
    };
    json!({
        "rule": rule.name,
        "applies": true,
        "as": rule.describe(),
        "key": want.key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        "hits": want.hits,
        "limit": reading.limit,
        "used": reading.used,
        "remaining": reading.remaining,
        "reset_seconds": reading.reset_ns.div_ceil(1_000_000_000),
        "verdict": verdict,
    })
}

/// Why a rule that matches is not charged.
fn left_out(
    policy: &Policy,
    rule: &Rule,
    index: RuleIdx,
    entries: &[(&[u8], &[u8])],
    wanted: &AllWanted,
) -> String {
    if entries.len() > ENTRIES_MAX {
        return "the descriptor has more entries than are looked at".to_owned();
    }
    if policy.key_in_force(index, rule, entries).is_none() {
        let flag = rule.switch.as_ref();
        let flag = flag.map_or("?", |switch| switch.flag.name.as_str());
        return format!("its flag {flag} is off for this key");
    }
    let replacing = |want: &&Wanted| policy.rules.replaces(want.rule, index);
    let by = wanted.iter().find(replacing);
    match by.and_then(|want| policy.rules.rule(want.rule)) {
        Some(by) => format!("{} replaces it", by.name),
        None => "the request is larger, or matches more rules, than is looked at".to_owned(),
    }
}

fn text(descriptor: &RateLimitDescriptor) -> String {
    let entry = |key: &[u8], value: &[u8]| {
        let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
        format!("{key}={value}")
    };
    let entries = descriptor.entries.iter();
    let entries: Vec<String> = entries.map(|e| entry(&e.key, &e.value)).collect();
    entries.join(",")
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
