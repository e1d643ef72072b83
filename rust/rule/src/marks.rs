//! What a table knows of each rule beside the rule itself.
//!
//! I own the positions of flags, the attributes that rules ask for, and the lists of the rules that
//! pick their keys from a request. I promise that all of it is found when the table is built. I
//! never look at a request.

use std::collections::BTreeMap;

use crate::attributes::{BoundAttributes, SourceNames};
use crate::error::RuleError;
use crate::limits::MAX_REQUEST_RULES;
use crate::operator::{Flag, Switch};
use crate::request::FlagIdx;
use crate::rule::{Matching, Mode, Rule};
use crate::table::{RuleIdx, RuleTable};
use crate::wants::Wants;

/// What is known of a rule.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Bit `i` is set when the values at position `i` of the canonical order share a counter.
    pub(crate) shared: u32,
    /// Position of its flag; of no meaning without one.
    pub(crate) flag: FlagIdx,
    /// Position of the flag of its charge; of no meaning without one.
    pub(crate) charge_flag: FlagIdx,
    /// What it asks a request for; `None` for a rule that is asked by its descriptors alone.
    pub(crate) wants: Option<Box<Wants>>,
}

/// The marks of all rules, and what they point at.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    pub(crate) of_rules: Vec<Mark>,
    /// The flags that rules name, each once, in the order in which they are met.
    pub(crate) flags: Vec<Flag>,
    pub(crate) attributes: BoundAttributes,
    pub(crate) sources: SourceNames,
    /// Whether there is a rule that replaces others or is the last one.
    pub(crate) stands: bool,
}

impl Marks {
    /// # Errors
    /// All rules that ask for more names than there may be.
    pub(crate) fn of(
        rules: &[Rule],
        attributes: BoundAttributes,
        sources: SourceNames,
    ) -> Result<Self, Vec<RuleError>> {
        let mut marks = Marks {
            attributes,
            sources,
            stands: rules
                .iter()
                .any(|rule| rule.last || !rule.replaces.is_empty()),
            ..Marks::default()
        };
        let mut errors = Vec::new();
        let mut known = BTreeMap::new();
        for rule in rules {
            let charge = rule
                .charge
                .as_ref()
                .and_then(|charge| charge.switch.as_ref());
            let mut place = |switch: Option<&Switch>| {
                let Some(switch) = switch else { return 0 };
                *known.entry(switch.flag.name.clone()).or_insert_with(|| {
                    marks.flags.push(switch.flag.clone());
                    FlagIdx::try_from(marks.flags.len() - 1).unwrap_or(FlagIdx::MAX)
                })
            };
            let (flag, charge_flag) = (place(rule.switch.as_ref()), place(charge));
            let is_request = rule.matching == Matching::Request && rule.mode != Mode::Disabled;
            let mut wants = None;
            if is_request || !rule.is_plain() {
                match Wants::of(rule, &mut marks.attributes, &mut marks.sources) {
                    Ok(found) => wants = Some(Box::new(found)),
                    Err(error) => errors.push(error),
                }
            }
            marks.of_rules.push(Mark {
                shared: shared_positions(rule),
                flag,
                charge_flag,
                wants,
            });
        }
        if errors.is_empty() {
            Ok(marks)
        } else {
            errors.truncate(1);
            Err(errors)
        }
    }
}

// spec: rule-22
fn shared_positions(rule: &Rule) -> u32 {
    let mut sorted: Vec<_> = rule.descriptors.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let bits = sorted.iter().zip(0u32..).filter(|(d, _)| d.shared);
    bits.fold(0, |bits, (_, at)| bits | 1u32.checked_shl(at).unwrap_or(0))
}

/// The rules with `match: request` that are not disabled, by domain.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Sorted by domain.
    domains: Vec<(Box<[u8]>, Vec<RuleIdx>)>,
}

impl Requests {
    /// # Errors
    /// Every domain with more of them than there may be.
    // spec: pol-2
    pub(crate) fn of(rules: &[Rule]) -> Result<Self, Vec<RuleError>> {
        let mut domains = BTreeMap::<&str, Vec<RuleIdx>>::new();
        for (rule, index) in rules.iter().zip(0..=RuleIdx::MAX) {
            if rule.matching == Matching::Request && rule.mode != Mode::Disabled {
                domains.entry(&rule.domain).or_default().push(index);
            }
        }
        let too_many = |(domain, of): (&&str, &Vec<RuleIdx>)| {
            (of.len() > MAX_REQUEST_RULES).then(|| RuleError::TooManyRequestRules {
                domain: (*domain).to_owned(),
                count: of.len(),
                most: MAX_REQUEST_RULES,
            })
        };
        let errors: Vec<RuleError> = domains.iter().filter_map(too_many).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let domains = domains.into_iter();
        let domains = domains.map(|(domain, rules)| (domain.as_bytes().into(), rules));
        Ok(Requests {
            domains: domains.collect(),
        })
    }

    pub(crate) fn rules(&self, domain: &[u8]) -> &[RuleIdx] {
        let found = self
            .domains
            .binary_search_by(|(name, _)| (**name).cmp(domain));
        found.map_or(&[], |at| &self.domains[at].1)
    }
}

impl RuleTable {
    /// Whether any rule picks its keys from a request, so that [`RuleTable::gather`] need not be
    /// asked.
    #[inline]
    pub fn any_requests(&self) -> bool {
        !self.requests.domains.is_empty()
    }

    /// The rules with `match: request` of a domain that are not disabled, in the order of the
    /// configuration.
    pub fn request_rules(&self, domain: &[u8]) -> &[RuleIdx] {
        self.requests.rules(domain)
    }

    /// Whether any rule replaces others or is the last one, so that
    /// [`RuleTable::stands_aside`] need not be asked.
    #[inline]
    pub fn any_aside(&self) -> bool {
        self.marks.stands
    }

    /// Whether a rule is asked by its descriptors alone: no flag, condition or tier.
    #[inline]
    pub fn is_plain(&self, index: RuleIdx) -> bool {
        self.mark(index).is_none_or(|mark| mark.wants.is_none())
    }

    /// The flags that rules name, each once.
    pub fn flags(&self) -> &[Flag] {
        &self.marks.flags
    }

    /// What rules with `match: request` ask a front end for, by slot.
    pub fn sources(&self) -> &SourceNames {
        &self.marks.sources
    }

    /// What is derived of it.
    pub fn attributes(&self) -> &BoundAttributes {
        &self.marks.attributes
    }

    #[inline]
    pub(crate) fn mark(&self, index: RuleIdx) -> Option<&Mark> {
        self.marks.of_rules.get(usize::from(index))
    }
}
