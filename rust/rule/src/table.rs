//! The index that finds the rules of a descriptor.
//!
//! I own an immutable table of rules and its index. I promise that a match costs one ordered lookup
//! per *signature* (which positions are exact, any, or a prefix of which length) of the group of
//! rules over the same domain and keys, whatever the number of rules, and never allocates. I never
//! decide: that is for `admit` and `table`.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use crate::canonical::Sorted;
use crate::error::RuleError;
use crate::identity::{fingerprint_of, CounterIdentity, LimitDigest};
use crate::limits::{MAX_MATCHED_RULES, MAX_RULES, MAX_SIGNATURES_PER_GROUP};
use crate::rule::{Mode, Rule, ValuePattern};

/// Position of a rule in its configuration.
pub type RuleIdx = u16;

/// What one position of a signature looks at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Shape {
    /// The whole value.
    Exact,
    /// Nothing.
    Any,
    /// This many leading bytes.
    Prefix(usize),
}

impl Shape {
    fn of(pattern: &ValuePattern) -> (Shape, &[u8]) {
        match pattern {
            ValuePattern::Exact(value) => (Shape::Exact, value),
            ValuePattern::Any => (Shape::Any, &[]),
            ValuePattern::Prefix(prefix) if prefix.is_empty() => (Shape::Any, &[]),
            ValuePattern::Prefix(prefix) => (Shape::Prefix(prefix.len()), prefix),
        }
    }

    /// The part of a value that this shape compares; `None` when the value is too short.
    fn part(self, value: &[u8]) -> Option<&[u8]> {
        match self {
            Shape::Exact => Some(value),
            Shape::Any => Some(&[]),
            Shape::Prefix(len) => value.get(..len),
        }
    }
}

/// What a rule compares at each position, in canonical order.
type Parts = Box<[Box<[u8]>]>;

/// Rules of one signature, sorted by (parts, index).
#[derive(Debug)]
struct Signature {
    shapes: Box<[Shape]>,
    rules: Vec<(Parts, RuleIdx)>,
}

/// Rules over one domain and one sorted list of keys.
#[derive(Debug)]
struct Group {
    domain: Box<[u8]>,
    keys: Parts,
    signatures: Vec<Signature>,
}

/// All rules of a configuration with the index over them. Immutable; share it by `Arc`.
#[derive(Debug)]
pub struct RuleTable {
    rules: Vec<Rule>,
    identities: Vec<CounterIdentity>,
    digests: Vec<LimitDigest>,
    /// Sorted by (domain, keys) in the order of [`order`].
    groups: Vec<Group>,
}

/// The rules that match one descriptor, in configuration order; at most [`MAX_MATCHED_RULES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    rules: [RuleIdx; MAX_MATCHED_RULES],
    len: u8,
}

impl Matches {
    /// No rules.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many rules matched and were kept.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether no rule matched.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The rules in configuration order.
    pub fn as_slice(&self) -> &[RuleIdx] {
        &self.rules[..self.len()]
    }

    /// The rules in configuration order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RuleIdx> + '_ {
        self.as_slice().iter().copied()
    }

    /// Keeps the lowest indices, sorted.
    fn insert(&mut self, rule: RuleIdx) {
        let mut slot = self.len();
        if slot == MAX_MATCHED_RULES {
            if rule > self.rules[MAX_MATCHED_RULES - 1] {
                return;
            }
            slot -= 1;
        } else {
            self.len += 1;
        }
        while slot > 0 && self.rules[slot - 1] > rule {
            self.rules[slot] = self.rules[slot - 1];
            slot -= 1;
        }
        self.rules[slot] = rule;
    }
}

/// What a match found beyond the rules themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchReport {
    /// Rules that matched, kept or not.
    pub matched: u32,
    /// Rules that matched beyond [`MAX_MATCHED_RULES`]: skipped, so they admit the request.
    pub skipped: u32,
    /// The descriptor had more entries than [`crate::limits::MAX_DESCRIPTOR_ENTRIES`] and was
    /// skipped.
    pub too_many_entries: bool,
    /// Ordered lookups done: the work of the match.
    pub lookups: u32,
}

impl RuleTable {
    /// Builds the index. Disabled rules are kept in [`RuleTable::rules`] and match nothing.
    ///
    /// # Errors
    /// All of: two rules with one counter identity or one (domain, name), too many rules, too many
    /// signatures over one set of keys. Nothing is built then.
    pub fn build(rules: Vec<Rule>) -> Result<RuleTable, Vec<RuleError>> {
        let errors = check_conflicts(&rules);
        if !errors.is_empty() {
            return Err(errors);
        }
        let groups = index(&rules);
        let errors: Vec<RuleError> = groups.iter().filter_map(too_many_signatures).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let identities = rules.iter().map(Rule::identity).collect();
        let digests = rules.iter().map(Rule::digest).collect();
        Ok(RuleTable {
            rules,
            identities,
            digests,
            groups,
        })
    }

    /// The rules in configuration order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// One rule.
    pub fn rule(&self, index: RuleIdx) -> Option<&Rule> {
        self.rules.get(usize::from(index))
    }

    /// The counter identities, in the order of the rules.
    pub fn identities(&self) -> &[CounterIdentity] {
        &self.identities
    }

    /// The limit digests, in the order of the rules.
    pub fn digests(&self) -> &[LimitDigest] {
        &self.digests
    }

    /// The rule of a name. A scan: for configuration time and admin requests.
    pub fn by_name(&self, domain: &str, name: &str) -> Option<RuleIdx> {
        let found = self
            .rules
            .iter()
            .position(|r| r.name == name && r.domain == domain)?;
        RuleIdx::try_from(found).ok()
    }

    /// One number for the whole set, equal on members whose rules are equal in any order.
    pub fn fingerprint(&self) -> u64 {
        fingerprint_of(&self.digests)
    }

    /// Rules that match one descriptor, in configuration order. `out` is overwritten. Never
    /// allocates. What does not fit `out` is counted in the report and admitted.
    // spec: rule-8, rule-10
    pub fn match_descriptor<'e>(
        &self,
        domain: &[u8],
        entries: &[(&'e [u8], &'e [u8])],
        out: &mut Matches,
    ) -> MatchReport {
        *out = Matches::new();
        let mut report = MatchReport::default();
        let Some(sorted) = Sorted::new(entries) else {
            report.too_many_entries = true;
            return report;
        };
        report.lookups = 1;
        let found = self.groups.binary_search_by(|group| {
            order(&group.domain, domain).then_with(|| order_all(&group.keys, sorted.keys()))
        });
        let Ok(found) = found else { return report };
        for signature in &self.groups[found].signatures {
            report.lookups += 1;
            let Some(run) = signature.run(&sorted) else {
                continue;
            };
            report.matched += u32::try_from(run.len()).unwrap_or(u32::MAX);
            // A run is sorted by index, so its first rules are the ones to keep.
            run.iter()
                .take(MAX_MATCHED_RULES)
                .for_each(|(_, rule)| out.insert(*rule));
        }
        report.skipped = report.matched.saturating_sub(u32::from(out.len));
        report
    }
}

impl Signature {
    /// The rules whose parts equal those of the entries; `None` when a value is too short.
    fn run(&self, sorted: &Sorted<'_, '_>) -> Option<&[(Parts, RuleIdx)]> {
        let mut fits = self.shapes.iter().zip(sorted.iter());
        if !fits.all(|(shape, (_, value))| shape.part(value).is_some()) {
            return None;
        }
        let compare = |parts: &[Box<[u8]>]| -> Ordering {
            for ((part, shape), (_, value)) in parts.iter().zip(&self.shapes).zip(sorted.iter()) {
                let order = order(part, shape.part(value).unwrap_or_default());
                if order != Ordering::Equal {
                    return order;
                }
            }
            Ordering::Equal
        };
        let start = self
            .rules
            .partition_point(|(parts, _)| compare(parts) == Ordering::Less);
        let rest = &self.rules[start..];
        let equal = |(parts, _): &(Parts, RuleIdx)| compare(parts) == Ordering::Equal;
        // Mostly none or one rule has these parts, so the end is looked for near the start.
        let near = rest.iter().take(2).take_while(|rule| equal(rule)).count();
        let len = if near < 2 {
            near
        } else {
            rest.partition_point(equal)
        };
        Some(&rest[..len])
    }
}

/// Any total order serves an index, so lengths come first and most comparisons end there. Empty
/// texts are compared without a call: reading zero bytes at the address of an empty slice costs
/// some processors 200 ns (a masked load whose fault is suppressed).
fn order(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| {
        if a.is_empty() {
            Ordering::Equal
        } else {
            a.cmp(b)
        }
    })
}

/// The order of lists: position by position, then by length.
fn order_all<'a, A: AsRef<[u8]> + 'a>(
    a: impl IntoIterator<Item = &'a A>,
    b: impl IntoIterator<Item = &'a [u8]>,
) -> Ordering {
    let (mut a, mut b) = (a.into_iter(), b.into_iter());
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match order(a.as_ref(), b) {
                Ordering::Equal => {}
                other => return other,
            },
        }
    }
}

/// One rule in canonical form, while the index is built.
struct Row<'r> {
    domain: &'r [u8],
    keys: Vec<&'r [u8]>,
    shapes: Vec<Shape>,
    parts: Vec<&'r [u8]>,
    index: RuleIdx,
}

impl<'r> Row<'r> {
    fn new(rule: &'r Rule, index: RuleIdx) -> Self {
        let mut sorted: Vec<_> = rule.descriptors.iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        let keys = sorted.iter().map(|d| d.key.as_slice()).collect();
        let (shapes, parts) = sorted.iter().map(|d| Shape::of(&d.value)).unzip();
        Row {
            domain: rule.domain.as_bytes(),
            keys,
            shapes,
            parts,
            index,
        }
    }

    fn order_of_groups(&self, other: &Row<'r>) -> Ordering {
        order(self.domain, other.domain)
            .then_with(|| order_all(&self.keys, other.keys.iter().copied()))
    }

    fn order(&self, other: &Row<'r>) -> Ordering {
        self.order_of_groups(other)
            .then_with(|| self.shapes.cmp(&other.shapes))
            .then_with(|| order_all(&self.parts, other.parts.iter().copied()))
            .then_with(|| self.index.cmp(&other.index))
    }
}

/// The index over all rules that are not disabled.
fn index(rules: &[Rule]) -> Vec<Group> {
    let live = rules
        .iter()
        .zip(0..=RuleIdx::MAX)
        .filter(|(rule, _)| rule.mode != Mode::Disabled);
    let mut rows: Vec<Row<'_>> = live.map(|(rule, index)| Row::new(rule, index)).collect();
    rows.sort_by(Row::order);
    let own = |texts: &[&[u8]]| texts.iter().map(|text| Box::from(*text)).collect::<Parts>();
    let signature = |rows: &[Row<'_>]| Signature {
        shapes: rows[0].shapes.as_slice().into(),
        rules: rows
            .iter()
            .map(|row| (own(&row.parts), row.index))
            .collect(),
    };
    let group = |rows: &[Row<'_>]| Group {
        domain: rows[0].domain.into(),
        keys: own(&rows[0].keys),
        signatures: rows
            .chunk_by(|a, b| a.shapes == b.shapes)
            .map(signature)
            .collect(),
    };
    rows.chunk_by(|a, b| a.order_of_groups(b) == Ordering::Equal)
        .map(group)
        .collect()
}

fn too_many_signatures(group: &Group) -> Option<RuleError> {
    let count = group.signatures.len();
    (count > MAX_SIGNATURES_PER_GROUP).then(|| RuleError::TooManySignatures {
        domain: String::from_utf8_lossy(&group.domain).into_owned(),
        keys: group
            .keys
            .iter()
            .map(|k| String::from_utf8_lossy(k))
            .collect::<Vec<_>>()
            .join(", "),
        count,
        most: MAX_SIGNATURES_PER_GROUP,
    })
}

/// Rules that cannot stand together: equal counters, equal names, too many. One error per later
/// rule, naming the first one.
// spec: rule-12
pub(crate) fn check_conflicts(rules: &[Rule]) -> Vec<RuleError> {
    if rules.len() > MAX_RULES {
        return vec![RuleError::TooManyRules {
            count: rules.len(),
            most: MAX_RULES,
        }];
    }
    let mut errors: Vec<(usize, RuleError)> = Vec::new();
    let mut order: Vec<(CounterIdentity, usize)> = rules
        .iter()
        .enumerate()
        .map(|(i, rule)| (rule.identity(), i))
        .collect();
    // By the wire name, so that two identities that share it (odds 2^-64) are refused as well.
    order.sort_by_key(|(identity, i)| (identity.short(), *i));
    for same in order.chunk_by(|a, b| a.0.short() == b.0.short()) {
        for (_, i) in &same[1..] {
            let (first, second) = (&rules[same[0].1], &rules[*i]);
            errors.push((
                *i,
                RuleError::SameCounters {
                    first: first.name.clone(),
                    first_place: first.place.clone(),
                    second: second.name.clone(),
                    second_place: second.place.clone(),
                },
            ));
        }
    }
    let doubled: BTreeSet<usize> = errors.iter().map(|(i, _)| *i).collect();
    let mut names: Vec<usize> = (0..rules.len()).collect();
    let name_of = |i: usize| (&rules[i].domain, &rules[i].name);
    names.sort_by_key(|i| (name_of(*i), *i));
    for same in names.chunk_by(|a, b| name_of(*a) == name_of(*b)) {
        for i in &same[1..] {
            if doubled.contains(i) {
                continue;
            }
            errors.push((
                *i,
                RuleError::SameName {
                    name: rules[*i].name.clone(),
                    first_place: rules[same[0]].place.clone(),
                    second_place: rules[*i].place.clone(),
                },
            ));
        }
    }
    errors.sort_by_key(|(i, _)| *i);
    errors.into_iter().map(|(_, error)| error).collect()
}

#[cfg(test)]
mod tests;
