//! `gabiond explain`: what would happen to a request, rule by rule.
//!
//! I own the words it prints. I charge nothing, at no member.

use std::fmt::Write as _;
use std::path::PathBuf;

use gabion_rule::Rule;
use serde_json::Value;

use super::client::escaped;
use super::{load, Member, ReferenceArgs};
use crate::bound;
use crate::config::Gossip;
use crate::engine::explain::{explain, parse_descriptor};
use crate::protocol::request;

/// Explain what would happen to a request, and why; nothing is charged.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// The domain of the request.
    domain: String,
    /// Descriptors: key=value,key=value each; a comma of a value is written `\,`.
    #[arg(required = true)]
    descriptors: Vec<String>,
    /// How many hits the request brings.
    #[arg(long, default_value_t = 1)]
    hits: u32,
    /// Ask this configuration instead of a running member: nothing is used yet there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The same of a directory of Envoy's reference service.
    #[arg(long, value_name = "DIR")]
    reference: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    member: Member,
}

impl Explain {
    /// Asks and prints.
    ///
    /// # Errors
    /// A descriptor or the configuration is at fault, or the member gives no answer.
    pub fn run(self) -> Result<String, String> {
        let mut descriptors = Vec::new();
        for text in &self.descriptors {
            descriptors.push(parse_descriptor(text)?);
        }
        let (file, directory) = (self.config.as_deref(), self.reference.as_deref());
        let said = match file.or(directory) {
            Some(_) => {
                let mut config = load(file, directory, &ReferenceArgs::default())?;
                let members = members_of(config.gossip.take().as_ref());
                let member = crate::member::Member::start(config).map_err(|e| e.to_string())?;
                let mut request = request(&self.domain, descriptors);
                request.hits_addend = self.hits;
                let law = |_, rule: &Rule| bound::by_law(rule, members);
                explain(member.engine(), &request, &law)
            }
            None => {
                let mut path = format!("/explain?domain={}", escaped(&self.domain));
                for text in &self.descriptors {
                    let _ = write!(path, "&descriptor={}", escaped(text));
                }
                let _ = write!(path, "&hits={}", self.hits);
                self.member.json(&path).map_err(|e| e.to_string())?
            }
        };
        if self.json {
            let text = serde_json::to_string_pretty(&said).map_err(|e| e.to_string())?;
            return Ok(text + "\n");
        }
        Ok(words(&said))
    }
}

fn word<'v>(value: &'v Value, what: &str) -> &'v str {
    value[what].as_str().unwrap_or("?")
}

/// More hits than one, since they may be why a rule with room denies.
fn brought(rule: &Value) -> String {
    match rule["hits"].as_u64() {
        Some(1) | None => String::new(),
        Some(hits) => format!("; the request brings {hits} hits"),
    }
}

/// Which counter it is, in the words of the rule.
fn counted(rule: &Value) -> String {
    let by = match rule["counts_by"].as_str() {
        None | Some("") => "one counter for all".to_owned(),
        Some(entries) => format!("counter of {entries}"),
    };
    match rule["tier_by"].as_str() {
        Some(tier) => format!("{by}, limit by {tier}"),
        None => by,
    }
}

/// Members that a configuration names, this one included.
fn members_of(gossip: Option<&Gossip>) -> u64 {
    let Some(gossip) = gossip else { return 1 };
    let (peers, own) = (&gossip.discovery.addresses, gossip.discovery.self_addr);
    let others = peers
        .iter()
        .filter(|peer| Some(**peer) != own && **peer != gossip.bind);
    1 + others.count() as u64
}

/// How far all members together may be over the limit of this key.
fn over_admission(bound: &Value) -> String {
    let hits = |what: &str| bound[what].as_u64().unwrap_or(0);
    if bound["members"] == 1 || bound.is_null() {
        return String::new();
    }
    if bound["members"].is_u64() {
        return format!(
            "    over-admission: at most {} hits while all {} members reach each other, {} when \
             none does\n",
            hits("at_rest_hits"),
            bound["members"],
            hits("at_worst_hits"),
        );
    }
    #[allow(clippy::cast_precision_loss)] // a time for people
    let stale_ms = hits("staleness_ns") as f64 / 1e6;
    format!(
        "    over-admission: at most {} hits now ({} held back, {} under way, {} of members that \
         are not reached); news is at most {stale_ms:.1} ms old\n",
        hits("bound_hits"),
        hits("held_back_hits"),
        hits("under_way_hits"),
        hits("unreachable_hits"),
    )
}

fn words(said: &Value) -> String {
    let mut text = String::new();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for descriptor in list(&said["descriptors"]) {
        let _ = writeln!(
            text,
            "domain {}, descriptor {}",
            word(said, "domain"),
            word(&descriptor, "descriptor")
        );
        let rules = list(&descriptor["rules"]);
        if rules.is_empty() {
            text.push_str("  no rule is of this domain: the request is admitted\n");
        }
        for rule in &rules {
            let name = word(rule, "rule");
            if rule["applies"] == true {
                let _ = writeln!(
                    text,
                    "  {name}: {} ({} of {} used, {} left, reset in {} s{})\n    {}\n    \
                     {}, key {}",
                    word(rule, "verdict"),
                    rule["used"],
                    rule["limit"],
                    rule["remaining"],
                    rule["reset_seconds"],
                    brought(rule),
                    word(rule, "as"),
                    counted(rule),
                    word(rule, "key"),
                );
                text.push_str(&over_admission(&rule["over_admission"]));
            } else {
                let _ = writeln!(text, "  {name}: does not apply: {}", word(rule, "why"));
            }
        }
    }
    let _ = writeln!(text, "answer: {}", word(&said["answer"], "code"));
    for header in list(&said["answer"]["headers"]) {
        let part = |at: usize| header[at].as_str().unwrap_or("?").to_owned();
        let _ = writeln!(text, "  {}: {}", part(0), part(1));
    }
    text
}
