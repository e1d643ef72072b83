//! Files of the reference service, good and bad: what its documentation says of its examples, in
//! our words, and an oracle of its matching.

use super::*;
use crate::error::NoticeKind;
use crate::key::{Key, KeyHasher};
use crate::policy::{parse_limits, to_yaml};
use crate::rule::Mode;
use crate::table::{Matches, RuleIdx, RuleTable};

mod bad;
mod examples;
mod oracle;

/// What a descriptor meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// No limit, and nothing that says so.
    Nothing,
    /// An entry that lets it through.
    Unlimited,
    /// So many requests per unit; 0 denies all.
    Limit(u32),
}

/// A descriptor as a request has it.
type Entries<'a> = &'a [(&'a str, &'a str)];

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile {
        name: name.to_owned(),
        bytes: text.as_bytes().to_vec(),
    }
}

fn load(text: &str) -> Policy {
    let read = read(&[file("c.yaml", text)], Options::default());
    read.unwrap_or_else(|errors| panic!("{errors:#?}\n{text}"))
}

fn table(policy: &Policy) -> RuleTable {
    RuleTable::build(policy.rules.clone()).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn bytes<'a>(entries: Entries<'a>) -> Vec<(&'a [u8], &'a [u8])> {
    let pairs = entries.iter();
    pairs.map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect()
}

fn matched(table: &RuleTable, domain: &str, entries: Entries<'_>) -> Option<RuleIdx> {
    let mut out = Matches::new();
    table.match_descriptor(domain.as_bytes(), &bytes(entries), &mut out);
    assert!(out.len() <= 1, "one limit per descriptor");
    out.as_slice().first().copied()
}

/// What each descriptor of a request meets.
fn request(table: &RuleTable, domain: &str, descriptors: &[Entries<'_>]) -> Vec<Meets> {
    let all: Vec<Option<RuleIdx>> = descriptors
        .iter()
        .map(|entries| matched(table, domain, entries))
        .collect();
    let spared = |rule: RuleIdx| all.iter().flatten().any(|by| table.replaces(*by, rule));
    let meets = |rule: &Option<RuleIdx>| match rule.filter(|rule| !spared(*rule)) {
        None => Meets::Nothing,
        Some(at) => {
            let rule = &table.rules()[usize::from(at)];
            match rule.mode {
                Mode::Unlimited => Meets::Unlimited,
                Mode::DenyAll => Meets::Limit(0),
                _ => Meets::Limit(rule.algorithm.limit()),
            }
        }
    };
    all.iter().map(meets).collect()
}

fn meets(table: &RuleTable, domain: &str, entries: Entries<'_>) -> Meets {
    request(table, domain, &[entries])[0]
}

/// The counter of a descriptor.
fn counter(table: &RuleTable, domain: &str, entries: Entries<'_>) -> Option<Key> {
    let rule = matched(table, domain, entries)?;
    table.key(&KeyHasher::new([1; 16]), rule, &bytes(entries), 0)
}

fn notices(policy: &Policy) -> Vec<String> {
    policy.notices.iter().map(ToString::to_string).collect()
}
