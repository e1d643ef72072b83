//! From a tree of descriptors to native rules.
//!
//! I own the order of the rules: a level's exact values first, then its wildcards as written, then
//! the key alone, each with everything below it. With `match: path`, where the first rule that fits
//! applies, this is the service's own search, and it finds its way back from a branch that ends.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Branch, BranchValue, Domain, Limit};
use crate::error::{Notice, NoticeKind};
use crate::policy::PolicyError;
use crate::rule::{Rule, ValuePattern};
use crate::silence::never_match;
use crate::spec::{DescriptorSpec, RuleSpec};

/// One descriptor with the way to it.
struct Item<'b> {
    way: Vec<&'b Branch>,
    /// The place in the list, so that what comes later can be told.
    turn: usize,
}

impl<'b> Item<'b> {
    fn branch(&self) -> &'b Branch {
        self.way[self.way.len() - 1]
    }

    fn keys(&self) -> Vec<&'b str> {
        self.way.iter().map(|branch| branch.key.as_str()).collect()
    }

    fn limit(&self) -> Option<&'b Limit> {
        self.branch().limit.as_ref()
    }
}

/// Adds the rules of one domain.
pub(super) fn domain(
    domain: &Domain,
    rules: &mut Vec<Rule>,
    notices: &mut Vec<Notice>,
    errors: &mut Vec<PolicyError>,
) {
    let mut items = Vec::new();
    collect(&domain.branches, &mut Vec::new(), &mut items);
    let names = Names::new(&items);
    let needed = needed(&items);
    let mut taken = names.singles.iter().map(|s| (*s).to_owned()).collect();
    let mut built = Vec::new();
    for item in items.iter().filter(|item| needed[item.turn]) {
        let spec = spec(domain, item, &names, &mut taken, notices);
        match spec.build_all() {
            Ok((rule, said)) => {
                let useless =
                    |notice: &Notice| matches!(notice.kind, NoticeKind::RateUnused { .. });
                notices.extend(said.into_iter().filter(|notice| !useless(notice)));
                built.push(rule);
            }
            Err(found) => errors.extend(found.into_iter().map(|error| PolicyError {
                place: item.branch().place.clone(),
                key: item.branch().path.clone(),
                message: error.to_string(),
                suggestion: None,
            })),
        }
    }
    leave_out_hidden(&mut built, notices);
    rules.extend(built);
}

/// Every descriptor of a level and below, in the order in which they are tried.
fn collect<'b>(level: &'b [Branch], way: &mut Vec<&'b Branch>, items: &mut Vec<Item<'b>>) {
    let mut sorted: Vec<&Branch> = level.iter().collect();
    sorted.sort_by_key(|branch| branch.turn());
    for branch in sorted {
        way.push(branch);
        items.push(Item {
            way: way.clone(),
            turn: items.len(),
        });
        collect(&branch.branches, way, items);
        way.pop();
    }
}

/// Which descriptors become rules: those with a limit; leaves without one, which let through what
/// ends there; and others without one where a later limit could take what ends there.
fn needed(items: &[Item<'_>]) -> Vec<bool> {
    let mut last_limit: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for item in items.iter().filter(|item| item.limit().is_some()) {
        last_limit.insert(item.keys(), item.turn);
    }
    let needed = |item: &Item<'_>| {
        item.limit().is_some()
            || item.branch().branches.is_empty()
            || last_limit
                .get(&item.keys())
                .is_some_and(|last| *last > item.turn)
    };
    items.iter().map(needed).collect()
}

/// The names that the files give and use.
struct Names<'b> {
    /// Given to exactly one limit.
    singles: BTreeSet<&'b str>,
    /// Given to any limit.
    given: BTreeSet<&'b str>,
    /// Given or replaced: no other limiter may be called so.
    reserved: BTreeSet<&'b str>,
}

impl<'b> Names<'b> {
    fn new(items: &[Item<'b>]) -> Self {
        let (mut singles, mut given) = (BTreeSet::new(), BTreeSet::new());
        let mut reserved = BTreeSet::new();
        for limit in items.iter().filter_map(Item::limit) {
            reserved.extend(limit.replaces.iter().map(String::as_str));
            let Some(name) = limit.name.as_deref() else {
                continue;
            };
            reserved.insert(name);
            if given.insert(name) {
                singles.insert(name);
            } else {
                singles.remove(name);
            }
        }
        Names {
            singles,
            given,
            reserved,
        }
    }
}

fn spec(
    domain: &Domain,
    item: &Item<'_>,
    names: &Names<'_>,
    taken: &mut BTreeSet<String>,
    notices: &mut Vec<Notice>,
) -> RuleSpec {
    let branch = item.branch();
    let path = printable(&item.way);
    let given = item.limit().and_then(|limit| limit.name.as_deref());
    let name = match given {
        Some(name) if names.singles.contains(name) => name.to_owned(),
        _ => fresh(taken, &path),
    };
    let mut limiter = given.map_or(path, str::to_owned);
    while given.is_none() && names.reserved.contains(limiter.as_str()) {
        limiter.push('~');
    }
    let mut say = |what: String| {
        notices.push(Notice {
            rule: name.clone(),
            place: Some(branch.place.clone()),
            kind: NoticeKind::Reference { what },
        });
    };
    let rate = item.limit().and_then(|limit| limit.rate);
    let mode = match rate {
        None => Some("unlimited"),
        Some((0, _)) if branch.watch || branch.quota => {
            say("0 requests that only watch deny nothing, and are not counted here".to_owned());
            Some("unlimited")
        }
        Some((0, _)) => Some("deny"),
        Some(_) if branch.quota => Some("quota"),
        Some(_) if branch.watch => Some("dry_run"),
        Some(_) => None,
    };
    let mut replaces = Vec::new();
    for other in item.limit().map_or(&[][..], |limit| &limit.replaces) {
        if names.given.contains(other.as_str()) {
            replaces.push(other.clone());
        } else {
            say(format!(
                "it replaces {other}, and no limit of the domain has this name"
            ));
        }
    }
    RuleSpec {
        domain: Some(domain.name.clone()),
        limiter: Some(limiter),
        descriptors: item.way.iter().map(|branch| entry(branch)).collect(),
        matching: Some("path".to_owned()),
        replaces,
        rate: rate.map(|(requests, unit)| format!("{}r/{unit}", requests.max(1))),
        mode: mode.map(str::to_owned),
        metric_values: metric_values(item),
        place: Some(branch.place.clone()),
        name,
        ..RuleSpec::default()
    }
}

/// The keys on the way whose values the metrics tell apart. `detailed_metric` of a limit takes all
/// of them; a wildcard that shares its counter shows as itself, like a value that is written out.
fn metric_values(item: &Item<'_>) -> Vec<String> {
    let limited = item
        .branch()
        .limit
        .as_ref()
        .is_some_and(|l| l.rate.is_some());
    let all = item.branch().detailed;
    let varies = |branch: &&&Branch| {
        let exact = matches!(branch.value, BranchValue::Exact(_));
        (all || branch.measured) && !branch.shared && !exact
    };
    let mut keys: Vec<String> = Vec::new();
    for branch in item.way.iter().filter(varies).filter(|_| limited) {
        if !keys.contains(&branch.key) {
            keys.push(branch.key.clone());
        }
    }
    keys
}

fn entry(branch: &Branch) -> DescriptorSpec {
    let pattern = match &branch.value {
        BranchValue::Exact(value) => Some(ValuePattern::Exact(value.clone().into_bytes())),
        BranchValue::Wildcard(prefix) if prefix.is_empty() => Some(ValuePattern::Any),
        BranchValue::Wildcard(prefix) => Some(ValuePattern::Prefix(prefix.clone().into_bytes())),
        BranchValue::Absent => None,
    };
    DescriptorSpec {
        key: branch.key.clone().into_bytes(),
        value: pattern.map(|pattern| pattern.text()),
        shared: branch.shared,
        fallback: None,
    }
}

/// The composite keys of a way, as the service's metrics name it, without control characters.
fn printable(way: &[&Branch]) -> String {
    let composites: Vec<String> = way.iter().map(|branch| branch.composite()).collect();
    let joined = composites.join(".");
    if !joined.chars().any(char::is_control) {
        return joined;
    }
    let escaped = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    joined.chars().map(escaped).collect()
}

/// A name that nobody has yet.
fn fresh(taken: &mut BTreeSet<String>, base: &str) -> String {
    let mut name = base.to_owned();
    let mut next = 2u32;
    while !taken.insert(name.clone()) {
        name = format!("{base}~{next}");
        next += 1;
    }
    name
}

/// Takes out the rules that can never match, and says so.
fn leave_out_hidden(rules: &mut Vec<Rule>, notices: &mut Vec<Notice>) {
    let hidden = never_match(rules);
    for (later, earlier) in &hidden {
        notices.push(Notice::never_matches(&rules[*later], &rules[*earlier]));
    }
    if hidden.is_empty() {
        return;
    }
    let hidden: BTreeSet<usize> = hidden.into_iter().map(|(later, _)| later).collect();
    let mut at = 0;
    rules.retain(|_| {
        at += 1;
        !hidden.contains(&(at - 1))
    });
    let left: BTreeSet<String> = rules.iter().map(|rule| rule.limiter.clone()).collect();
    for rule in rules {
        rule.replaces.retain(|name| left.contains(name));
    }
}
