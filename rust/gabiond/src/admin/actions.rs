//! What an operator may change while a member runs: counters started afresh, flags.
//!
//! Every answer says how far its change reaches.

use std::str::FromStr as _;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State as Shared};
use axum::http::StatusCode;
use axum::Json;
use gabion_driver::OrderError;
use gabion_node::Reach;
use gabion_rule::{Matches, OverrideUnit, Share};
use gabion_table::Forget;
use serde_json::{json, Value};

use super::{refusal, Refusal};
use crate::limits::ENTRIES_MAX;
use crate::member::Member;
use crate::orders::OrderFailure;
use crate::overrides;
use crate::snapshot::flag_json;

type Parameters = Vec<(String, String)>;
type Asked = Result<Query<Parameters>, QueryRejection>;
type Answer = Result<Json<Value>, Refusal>;

const RESET: &str = "POST /reset?limiter=NAME, &domain=D for one domain, &entry=KEY=VALUE (once \
                     per entry) for the counter of one descriptor on this member; \
                     limiter=override:UNIT&requests=N&domain=D&entry=KEY=VALUE for that of a limit \
                     that requests brought";
const FLAG: &str = "POST /flags/NAME?value=on, off, 25% or default";

fn bad(what: &str, usage: &str) -> Refusal {
    refusal(StatusCode::BAD_REQUEST, format!("{what}; write {usage}"))
}

fn parameters(asked: Asked, usage: &str) -> Result<Parameters, Refusal> {
    match asked {
        Ok(Query(parameters)) => Ok(parameters),
        Err(error) => Err(bad(&error.body_text(), usage)),
    }
}

fn word(reach: Reach) -> &'static str {
    match reach {
        Reach::Cluster => "cluster",
        Reach::Local => "local",
    }
}

fn failed(failure: &OrderFailure) -> Refusal {
    let status = match failure {
        OrderFailure::NoLimiter { .. } | OrderFailure::NoFlag { .. } => StatusCode::NOT_FOUND,
        OrderFailure::Gossip(OrderError::NotRunning) => StatusCode::SERVICE_UNAVAILABLE,
        OrderFailure::Gossip(_) => StatusCode::CONFLICT,
    };
    refusal(status, failure.to_string())
}

/// What is to be reset.
#[derive(Debug, Default)]
struct Target {
    limiter: String,
    domain: Option<String>,
    entries: Vec<(String, String)>,
    /// Per unit, of a limit that requests brought.
    requests: Option<u32>,
}

impl Target {
    fn of(parameters: Parameters) -> Result<Self, Refusal> {
        let mut target = Target::default();
        let mut limiter = None;
        for (name, value) in parameters {
            let before = match name.as_str() {
                "limiter" => limiter.replace(value),
                "domain" => target.domain.replace(value),
                "requests" => {
                    let Ok(number) = value.parse() else {
                        return Err(bad("requests is no number up to 4,294,967,295", RESET));
                    };
                    target.requests.replace(number).map(|_| String::new())
                }
                "entry" => {
                    let Some((key, value)) = value.split_once('=') else {
                        return Err(bad("an entry has no `=`", RESET));
                    };
                    target.entries.push((key.to_owned(), value.to_owned()));
                    None
                }
                _ => return Err(bad(&format!("`{name}` is not known"), RESET)),
            };
            if before.is_some() {
                return Err(bad(&format!("`{name}` is there twice"), RESET));
            }
        }
        target.limiter = limiter.ok_or_else(|| bad("which limiter?", RESET))?;
        Ok(target)
    }
}

/// Starts the counters of a limiter afresh everywhere, or one of them here.
pub(super) async fn reset(Shared(member): Shared<Arc<Member>>, asked: Asked) -> Answer {
    let target = Target::of(parameters(asked, RESET)?)?;
    if let Some(unit) = overrides::unit_named(&target.limiter) {
        return reset_brought(&member, &target, unit);
    }
    if target.requests.is_some() {
        return Err(bad(
            "requests is for limits that requests bring only",
            RESET,
        ));
    }
    if !target.entries.is_empty() {
        return reset_key(&member, &target);
    }
    let (limiter, domain) = (&target.limiter, target.domain.as_deref());
    let done = member.reset_limiter(limiter, domain).await;
    let done = done.map_err(|failure| failed(&failure))?;
    let everywhere = done.iter().all(|reset| reset.reach == Reach::Cluster);
    let domains: Vec<&str> = done.iter().map(|reset| reset.domain.as_str()).collect();
    let message = format!(
        "the counters of limiter {limiter} of domain {} start afresh {}",
        domains.join(", "),
        if everywhere {
            "here and, within moments, on every member"
        } else {
            "on this member only: it counts alone"
        }
    );
    let resets = done
        .iter()
        .map(|reset| json!({"domain": reset.domain, "era": reset.era, "reach": word(reset.reach)}));
    Ok(Json(json!({
        "limiter": limiter,
        "resets": resets.collect::<Vec<Value>>(),
        "message": message,
    })))
}

/// Forgets what this member counts of one descriptor under the rules of a limiter.
fn reset_key(member: &Member, target: &Target) -> Answer {
    if target.entries.len() > ENTRIES_MAX {
        return Err(bad("more entries than a descriptor has", RESET));
    }
    let policy = member.engine().policy();
    let entries = target.entries.iter();
    let entries: Vec<(&[u8], &[u8])> = entries
        .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
        .collect();
    let rules = policy.rules();
    let of_domain = |domain: &str| target.domain.as_deref().is_none_or(|d| d == domain);
    let mut rows = Vec::new();
    for (index, rule) in (0u16..).zip(rules.rules()) {
        if rule.limiter != target.limiter || !of_domain(&rule.domain) {
            continue;
        }
        let mut matches = Matches::new();
        rules.match_descriptor(rule.domain.as_bytes(), &entries, &mut matches);
        let key = policy.key_in_force(index, &entries);
        let (Some(counters), Some(key), true) =
            (policy.counters(), key, matches.iter().any(|m| m == index))
        else {
            continue;
        };
        let result = words(counters.forget(index, key));
        rows.push(json!({"domain": rule.domain, "rule": rule.name, "result": result}));
    }
    if rows.is_empty() {
        let error =
            "no rule of that limiter and domain counts such a descriptor; GET /rules lists \
                     limiters and what their rules match";
        return Err(refusal(StatusCode::NOT_FOUND, error));
    }
    tracing::info!(
        limiter = target.limiter,
        "the counter of one descriptor was reset here"
    );
    Ok(Json(json!({
        "limiter": target.limiter,
        "reach": "local",
        "counters": rows,
        "message": "on this member only: what others counted comes back with their next news, and \
                    what this member had counted still counts there. To start everywhere, reset \
                    the limiter without entry=",
    })))
}

fn words(forgotten: Forget) -> &'static str {
    match forgotten {
        Forget::Forgotten => "forgotten",
        Forget::Absent => "nothing was counted here",
        Forget::Busy => "too busy at this moment, nothing changed; try again",
    }
}

/// Forgets what this member counts of one limit that requests brought. There is no era for all of
/// them: their keys have none, so that members need not agree on one.
fn reset_brought(member: &Member, target: &Target, unit: OverrideUnit) -> Answer {
    let policy = member.engine().policy();
    let (Some(counters), true) = (policy.counters(), policy.overrides) else {
        let error = "limits that requests bring are ignored here (storage.override_cardinality)";
        return Err(refusal(StatusCode::NOT_FOUND, error));
    };
    let (Some(requests), Some(domain), false) =
        (target.requests, &target.domain, target.entries.is_empty())
    else {
        let what = "counters of limits that requests bring start afresh one by one, and all of a \
                    unit when it ends";
        return Err(bad(what, RESET));
    };
    let entries = target.entries.iter();
    let entries: Vec<(&[u8], &[u8])> = entries
        .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
        .collect();
    let index = overrides::index(policy.rules().rules().len(), unit);
    let key = policy
        .hasher
        .override_key(unit, requests, domain.as_bytes(), &entries);
    let result = words(counters.forget(index, key));
    let rule = overrides::name(unit);
    tracing::info!(
        limiter = rule,
        "the counter of one descriptor was reset here"
    );
    Ok(Json(json!({
        "limiter": rule,
        "reach": "local",
        "counters": [{"domain": domain, "rule": rule, "result": result}],
        "message": "on this member only: what others counted comes back with their next news, and \
                    what this member had counted still counts there",
    })))
}

/// All declared flags.
pub(super) async fn flags(Shared(member): Shared<Arc<Member>>) -> Json<Value> {
    Json(member.flags().iter().map(flag_json).collect())
}

/// One flag.
pub(super) async fn flag(Shared(member): Shared<Arc<Member>>, Path(name): Path<String>) -> Answer {
    let flags = member.flags();
    match flags.iter().find(|flag| flag.name == name) {
        Some(flag) => Ok(Json(flag_json(flag))),
        None => Err(refusal(
            StatusCode::NOT_FOUND,
            format!("flag {name} is not declared; GET /flags lists all"),
        )),
    }
}

/// Sets a flag, or sets it back to its default.
pub(super) async fn set_flag(
    Shared(member): Shared<Arc<Member>>,
    Path(name): Path<String>,
    asked: Asked,
) -> Answer {
    let parameters = parameters(asked, FLAG)?;
    let value = match parameters.as_slice() {
        [(key, value)] if key == "value" => value.as_str(),
        _ => return Err(bad("exactly one value= is expected", FLAG)),
    };
    let share = match value {
        "default" => None,
        text => Some(Share::from_str(text).map_err(|error| bad(&error.to_string(), FLAG))?),
    };
    let reach = member.set_flag(&name, share).await;
    let reach = reach.map_err(|failure| failed(&failure))?;
    let where_to = match reach {
        Reach::Cluster => "here and, within moments, on every member",
        Reach::Local => {
            "on this member only, until it restarts: gossip has no keys (gossip.auth_key_file) or \
             is not configured"
        }
    };
    Ok(Json(json!({
        "name": name,
        "set": share.map(|share| share.to_string()),
        "reach": word(reach),
        "message": format!("flag {name} is {value} {where_to}"),
    })))
}
