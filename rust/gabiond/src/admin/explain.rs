//! `/explain`: what would happen to a request.

use std::sync::Arc;

use axum::extract::{Query, State as Shared};
use axum::http::StatusCode;
use axum::Json;
use gabion_rule::Rule;
use serde_json::Value;

use super::{refusal, Refusal};
use crate::bound;
use crate::engine::explain::{explain, parse_descriptor};
use crate::member::Member;
use crate::protocol::request;

/// Descriptors that are explained at once.
const DESCRIPTORS_MAX: usize = 64;

/// The explanation of one request, given by `domain`, `descriptor` (repeated) and `hits`.
pub(super) async fn page(
    Shared(member): Shared<Arc<Member>>,
    Query(words): Query<Vec<(String, String)>>,
) -> Result<Json<Value>, Refusal> {
    let bad = |why: String| refusal(StatusCode::BAD_REQUEST, why);
    let (mut domain, mut descriptors, mut hits) = (None, Vec::new(), 1);
    for (name, value) in words {
        match name.as_str() {
            "domain" => domain = Some(value),
            "descriptor" if descriptors.len() == DESCRIPTORS_MAX => {
                return Err(bad(format!("more than {DESCRIPTORS_MAX} descriptors")));
            }
            "descriptor" => descriptors.push(parse_descriptor(&value).map_err(bad)?),
            "hits" => {
                let number = value.parse();
                hits = number.map_err(|_| bad(format!("hits: \"{value}\" is no number")))?;
            }
            _ => {
                return Err(bad(format!(
                    "{name}: only domain, descriptor and hits are known"
                )))
            }
        }
    }
    let (Some(domain), false) = (domain, descriptors.is_empty()) else {
        let example = "/explain?domain=edge&descriptor=route=api,user=alice";
        return Err(bad(format!(
            "a domain and a descriptor are needed: {example}"
        )));
    };
    let mut request = request(&domain, descriptors);
    request.hits_addend = hits;
    let driver = member.gossip();
    let bound = |index, rule: &Rule| bound::now(driver.as_deref(), index, rule);
    Ok(Json(explain(member.engine(), &request, &bound)))
}
