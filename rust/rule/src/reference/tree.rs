//! The files as a tree of descriptors, one tree per domain.
//!
//! I own the tree and what must hold in it: one domain per file, one branch per composite key. I
//! never look at YAML or at rules.

use std::collections::BTreeMap;

use super::Options;
use crate::error::Place;
use crate::policy::PolicyError;

/// One domain with its descriptors, in the order written.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) branches: Vec<Branch>,
}

/// One descriptor of a file.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) key: String,
    pub(super) value: BranchValue,
    /// Whether the values of a wildcard share one counter.
    pub(super) shared: bool,
    pub(super) limit: Option<Limit>,
    /// Whether its limit only watches (`shadow_mode`).
    pub(super) watch: bool,
    /// Whether its limit only watches, and metadata list what is beyond it (`quota_mode`).
    pub(super) quota: bool,
    /// Whether the values of the whole way to it are in its metrics (`detailed_metric`).
    pub(super) detailed: bool,
    /// Whether its value is in the metrics of all limits at and below it (`value_to_metric`).
    pub(super) measured: bool,
    pub(super) branches: Vec<Branch>,
    pub(super) place: Place,
    /// Path of its keys in the file, for messages.
    pub(super) path: String,
}

/// What a branch asks of a value; in the order in which the branches of a level are tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BranchValue {
    /// This text.
    Exact(String),
    /// Every text that starts with this one.
    Wildcard(String),
    /// None given: every text.
    Absent,
}

/// A `rate_limit` block.
#[derive(Debug)]
pub(super) struct Limit {
    /// Requests per unit, with the letters of the unit in a native rate; `None` is unlimited.
    pub(super) rate: Option<(u32, &'static str)>,
    pub(super) name: Option<String>,
    pub(super) replaces: Vec<String>,
}

impl Branch {
    /// What the service calls this descriptor: `key`, or `key_value`.
    pub(super) fn composite(&self) -> String {
        match &self.value {
            BranchValue::Exact(value) => format!("{}_{value}", self.key),
            BranchValue::Wildcard(prefix) => format!("{}_{prefix}*", self.key),
            BranchValue::Absent => self.key.clone(),
        }
    }

    /// In which turn the branches of a level are tried: exact, wildcard, key alone.
    pub(super) fn turn(&self) -> u8 {
        match self.value {
            BranchValue::Exact(_) => 0,
            BranchValue::Wildcard(_) => 1,
            BranchValue::Absent => 2,
        }
    }
}

/// Adds what one file holds. A domain that is there already is an error, or is added to.
pub(super) fn add(
    domains: &mut Vec<Domain>,
    domain: Domain,
    options: Options,
    errors: &mut Vec<PolicyError>,
) {
    let known = domains.iter_mut().find(|known| known.name == domain.name);
    match known {
        Some(known) if options.merge_domains => known.branches.extend(domain.branches),
        Some(known) => errors.push(PolicyError {
            message: format!(
                "domain {} is already given at {}; one file is one domain, unless files of a \
                 domain are merged (reference.merge_domains, MERGE_DOMAIN_CONFIG)",
                domain.name, known.place
            ),
            place: domain.place,
            key: "domain".to_owned(),
            suggestion: None,
        }),
        None => domains.push(domain),
    }
}

/// Reports every branch whose composite key a level has already, naming both places.
pub(super) fn find_doubles(domain: &Domain, errors: &mut Vec<PolicyError>) {
    doubles_of(&domain.branches, &domain.name, errors);
}

fn doubles_of(level: &[Branch], above: &str, errors: &mut Vec<PolicyError>) {
    let mut seen: BTreeMap<String, &Place> = BTreeMap::new();
    for branch in level {
        let composite = branch.composite();
        let full = format!("{above}.{composite}");
        match seen.get(&composite) {
            Some(first) => errors.push(PolicyError {
                place: branch.place.clone(),
                key: branch.path.clone(),
                message: format!(
                    "composite key {full} is already given at {first}; remove one of the two"
                ),
                suggestion: None,
            }),
            None => {
                seen.insert(composite, &branch.place);
            }
        }
        doubles_of(&branch.branches, &full, errors);
    }
}
