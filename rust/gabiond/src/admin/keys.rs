//! `/rules` and `/keys`: what is counted, and who uses most of it.

use std::sync::Arc;

use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::Json;
use gabion_rule::policy::yaml::nearest;
use gabion_rule::{CounterIdentity, OverrideUnit, Rule};
use serde::Deserialize;
use serde_json::{json, Value};

use super::{refusal, Refusal};
use crate::limits::{FILL_ROWS_A_SCRAPE, KEYS_PER_RULE, KEYS_SHOWN};
use crate::member::Member;
use crate::observe::HALF_LIFE_S;
use crate::overrides;
use crate::policy::Policy;
use crate::snapshot;

/// Which rules are meant: all, or those of a name, or of a name in a domain.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    rule: Option<String>,
    domain: Option<String>,
    top: Option<usize>,
}

impl Which {
    fn means(&self, rule: &Rule) -> bool {
        let is = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|w| w == is);
        is(&self.rule, &rule.name) && is(&self.domain, &rule.domain)
    }

    /// The limits that requests bring of this unit, if these are meant, by their index.
    fn unit(&self, policy: &Policy) -> Option<(usize, OverrideUnit)> {
        let unit = overrides::unit_named(self.rule.as_deref()?)?;
        let index = overrides::index(policy.rules().rules().len(), unit);
        policy.overrides.then_some((usize::from(index), unit))
    }

    /// Indexes of the rules that are meant; an answer when there is none though some are named.
    fn of(&self, policy: &Policy) -> Result<Vec<usize>, Refusal> {
        let rules = policy.rules().rules();
        let found: Vec<usize> = (0..rules.len())
            .filter(|index| rules.get(*index).is_some_and(|rule| self.means(rule)))
            .collect();
        if found.is_empty() && (self.rule.is_some() || self.domain.is_some()) {
            let names = rules.iter().map(|rule| rule.name.as_str());
            let meant = self.rule.as_deref().and_then(|rule| nearest(rule, names));
            let hint = meant.map_or(String::new(), |name| format!(", did you mean `{name}`?"));
            let unit = self.rule.as_deref().and_then(overrides::unit_named);
            let where_to = match unit {
                Some(_) => "limits that requests bring are under `overrides` in GET /snapshot",
                None => "GET /rules lists all",
            };
            let error = format!("no rule has that name and domain{hint}; {where_to}");
            return Err(refusal(StatusCode::NOT_FOUND, error));
        }
        Ok(found)
    }
}

type Asked = Result<Query<Which>, axum::extract::rejection::QueryRejection>;

fn asked(query: Asked) -> Result<Which, Refusal> {
    let advice = "only rule=, domain= and top= are known";
    match query {
        Ok(Query(which)) => Ok(which),
        Err(error) => Err(refusal(
            StatusCode::BAD_REQUEST,
            format!("{}; {advice}", error.body_text()),
        )),
    }
}

/// A list of the rules, each with what it said and how full its table is.
pub(super) async fn rules(
    Shared(member): Shared<Arc<Member>>,
    query: Asked,
) -> Result<Response, Refusal> {
    let which = asked(query)?;
    // It looks at many rows: not on a thread that serves.
    let list = tokio::task::spawn_blocking(move || {
        let policy = member.engine().policy();
        let found = which.of(&policy)?;
        let rows_max = FILL_ROWS_A_SCRAPE / (found.len() as u64).max(1);
        let now_ns = member.engine().now_ns();
        let driver = member.gossip();
        let all = found.into_iter();
        let all = all.filter_map(|index| {
            let mut rule = snapshot::rule(&policy, index, driver.as_deref())?;
            let (live, exact) = live_keys(&policy, index, now_ns, rows_max);
            rule["live_keys"] = json!(live);
            rule["live_keys_exact"] = json!(exact);
            Some(rule)
        });
        Ok(Json(all.collect::<Vec<Value>>()).into_response())
    });
    answer_of(list.await)
}

fn live_keys(policy: &Policy, index: usize, now_ns: u64, rows_max: u64) -> (u64, bool) {
    let (Ok(index), Some(counters)) = (u16::try_from(index), policy.counters()) else {
        return (0, true);
    };
    let capacity = counters.capacity(index);
    let found = counters.occupancy(index, now_ns, rows_max);
    (found.estimate(capacity), found.looked_at == capacity)
}

/// The most used keys of a rule, with what their counters show at this moment.
pub(super) async fn keys(
    Shared(member): Shared<Arc<Member>>,
    query: Asked,
) -> Result<Response, Refusal> {
    let which = asked(query)?;
    if !member.observe().keys {
        let error = "keys are not sampled on this member: observe.keys is false";
        return Err(refusal(StatusCode::NOT_FOUND, error));
    }
    if which.rule.is_none() {
        let error = "which rule? Ask /keys?rule=NAME; GET /rules lists the names";
        return Err(refusal(StatusCode::BAD_REQUEST, error));
    }
    let list = tokio::task::spawn_blocking(move || {
        let policy = member.engine().policy();
        let unit = which.unit(&policy);
        let found = match unit {
            Some(_) => Vec::new(),
            None => which.of(&policy)?,
        };
        let most = which.top.unwrap_or(KEYS_SHOWN).min(KEYS_PER_RULE);
        let brought = unit.and_then(|(index, unit)| {
            let names = (overrides::name(unit), overrides::DOMAIN.to_owned());
            keys_at(&member, (index, &unit.identity(), 0), names, most)
        });
        let rules = found.into_iter();
        let rules = rules.filter_map(|index| keys_of(&member, &policy, index, most));
        let rules = rules.chain(brought);
        let answer = json!({
            "sample_every": member.observer().sample_every(),
            "half_life_s": HALF_LIFE_S,
            "values": if member.observe().values_shown { "shown" } else { "hashed" },
            "rules": rules.collect::<Vec<Value>>(),
        });
        Ok(Json(answer).into_response())
    });
    answer_of(list.await)
}

fn keys_of(member: &Member, policy: &Policy, index: usize, most: usize) -> Option<Value> {
    let rule = policy.rules().rules().get(index)?;
    let identity = policy.rules().identities().get(index)?;
    let names = (rule.name.clone(), rule.domain.clone());
    keys_at(member, (index, identity, policy.era(index)), names, most)
}

/// The keys of the counters at an index of the policy, in an era.
fn keys_at(
    member: &Member,
    (index, identity, era): (usize, &CounterIdentity, u32),
    (name, domain): (String, String),
    most: usize,
) -> Option<Value> {
    let policy = member.engine().policy();
    let top = member.observer().top(identity, era, most)?;
    let now_ns = member.engine().now_ns();
    let keys = top.keys.iter().map(|key| {
        let reading = u16::try_from(index)
            .ok()
            .zip(policy.counters())
            .map(|(index, counters)| counters.read(index, key.key, now_ns));
        json!({
            "key": key.text,
            "hits": key.hits,
            "hits_error": key.hits_error,
            "over_limit": key.over,
            "used": reading.map(|reading| reading.used),
            "limit": key.limit,
        })
    });
    Some(json!({
        "rule": name,
        "domain": domain,
        "keys_held": top.held,
        "keys": keys.collect::<Vec<Value>>(),
    }))
}

fn answer_of(
    done: Result<Result<Response, Refusal>, tokio::task::JoinError>,
) -> Result<Response, Refusal> {
    done.unwrap_or_else(|_panic| {
        let error = "a fault inside gabiond; please report it with the log";
        Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, error))
    })
}
