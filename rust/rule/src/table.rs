//! The index that finds the rules of a descriptor.
//!
//! I own an immutable table of rules and its index. I promise that a match costs one ordered lookup
//! per *signature* (which positions are exact, any, or a prefix of which length) of the group of
//! rules over the same domain and keys, whatever the number of rules, and never allocates. Which
//! rules stand aside for which others is in `silence`. I never decide: that is for `admit` and
//! `table`.

use std::cmp::Ordering;

use crate::attributes::{Attributes, BoundAttributes, SourceNames};
use crate::canonical::Sorted;
use crate::conflicts::check_conflicts;
use crate::error::RuleError;
use crate::identity::{fingerprint_of, CounterIdentity, LimitDigest};
use crate::key::{Key, KeyHasher};
use crate::limits::{MAX_MATCHED_RULES, MAX_SIGNATURES_PER_GROUP};
use crate::marks::{Marks, Requests};
use crate::rule::{Matching, Mode, Rule, ValuePattern};
use crate::silence::{covers, Replacing};

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

/// What a rule compares at each position: in canonical order, or in its own when it matches by
/// path.
type Parts = Box<[Box<[u8]>]>;

/// Rules of one signature, sorted by (parts, index).
#[derive(Debug)]
struct Signature {
    shapes: Box<[Shape]>,
    /// Every value fits, so there is nothing to compare.
    is_open: bool,
    rules: Vec<(Parts, RuleIdx)>,
}

/// Rules over one domain and one list of keys: sorted, or in the order of a path.
#[derive(Debug)]
struct Group {
    /// [`mark_of`] its domain and keys.
    mark: u64,
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
    /// Rules that match in any order, sorted by their groups' marks.
    groups: Vec<Group>,
    /// Rules that match by path, sorted alike.
    paths: Vec<Group>,
    /// Rules that pick their keys from a request.
    pub(crate) requests: Requests,
    pub(crate) marks: Marks,
    replacing: Replacing,
    /// Whether there is a rule that shields from broader ones.
    shields: bool,
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

    /// Keeps the rules that `keep` wants.
    fn retain(&mut self, mut keep: impl FnMut(RuleIdx) -> bool) {
        let mut kept = 0;
        for at in 0..self.len() {
            if keep(self.rules[at]) {
                self.rules[usize::from(kept)] = self.rules[at];
                kept += 1;
            }
        }
        self.rules[usize::from(kept)..].fill(0);
        self.len = kept;
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
    /// Rules that matched, kept or not; of those that match by path only the one that applies.
    pub matched: u32,
    /// Rules that matched beyond [`MAX_MATCHED_RULES`]: skipped, so they admit the request.
    pub skipped: u32,
    /// The descriptor had more entries than [`crate::limits::MAX_DESCRIPTOR_ENTRIES`] and was
    /// skipped.
    pub too_many_entries: bool,
    /// Rules that an unlimited one shields this descriptor from; they are not among the matches.
    pub shielded: u32,
    /// Ordered lookups done: the work of the match.
    pub lookups: u32,
}

impl RuleTable {
    /// As [`RuleTable::with_attributes`], where nothing is derived.
    ///
    /// # Errors
    /// The same.
    pub fn build(rules: Vec<Rule>) -> Result<RuleTable, Vec<RuleError>> {
        Self::with_attributes(rules, &Attributes::default())
    }

    /// Builds the index. Disabled rules are kept in [`RuleTable::rules`] and match nothing.
    ///
    /// # Errors
    /// All of: two rules with one counter identity or one (domain, name), too many rules, too many
    /// signatures over one set of keys, too many rules that pick their keys or attributes that they
    /// name, a replaced limiter that is not there. Nothing is built then.
    pub fn with_attributes(
        rules: Vec<Rule>,
        attributes: &Attributes,
    ) -> Result<RuleTable, Vec<RuleError>> {
        let errors = check_conflicts(&rules);
        if !errors.is_empty() {
            return Err(errors);
        }
        let groups = index(&rules, Matching::All);
        let paths = index(&rules, Matching::Path);
        let all = groups.iter().chain(&paths);
        let errors: Vec<RuleError> = all.filter_map(too_many_signatures).collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let requests = Requests::of(&rules)?;
        let mut sources = SourceNames::default();
        let bound = BoundAttributes::bind(attributes, &mut sources).map_err(|error| vec![error])?;
        let marks = Marks::of(&rules, bound, sources)?;
        let identities = rules.iter().map(Rule::identity).collect();
        let digests = rules.iter().map(Rule::digest).collect();
        Ok(RuleTable {
            identities,
            digests,
            groups,
            paths,
            requests,
            marks,
            replacing: Replacing::of(&rules),
            shields: rules.iter().any(|rule| rule.mode == Mode::Unlimited),
            rules,
        })
    }

    /// The key of a descriptor that matched `rule`, in one reset era. `None` when there is no such
    /// rule. Never allocates.
    // spec: rule-14, rule-22
    pub fn key(
        &self,
        hasher: &KeyHasher,
        rule: RuleIdx,
        entries: &[(&[u8], &[u8])],
        era: u32,
    ) -> Option<Key> {
        let identity = self.identities.get(usize::from(rule))?;
        let shared = self.mark(rule).map_or(0, |mark| mark.shared);
        Some(hasher.key_sharing(identity, entries, era, shared))
    }

    /// Whether any rule replaces others, so that [`RuleTable::replaces`] need not be asked.
    pub fn any_replaces(&self) -> bool {
        !self.replacing.is_empty()
    }

    /// Whether a request that matches `rule` is spared `other`. Never allocates.
    // spec: rule-21
    pub fn replaces(&self, rule: RuleIdx, other: RuleIdx) -> bool {
        self.replacing.replaces(rule, other)
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
    // spec: rule-8, rule-10, rule-19, rule-20
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
        for signature in signatures_of(&self.groups, domain, || sorted.keys()) {
            report.lookups += 1;
            let Some(run) = signature.run(|at| sorted.at(at).1) else {
                continue;
            };
            report.matched += u32::try_from(run.len()).unwrap_or(u32::MAX);
            // A run is sorted by index, so its first rules are the ones to keep.
            run.iter()
                .take(MAX_MATCHED_RULES)
                .for_each(|(_, rule)| out.insert(*rule));
        }
        if !self.paths.is_empty() {
            self.match_path(domain, entries, out, &mut report);
        }
        report.skipped = report.matched.saturating_sub(u32::from(out.len));
        if self.shields && out.len > 1 {
            self.shield(out, &mut report);
        }
        report
    }

    /// Adds the first rule whose path the descriptor is.
    // spec: rule-19
    fn match_path<'e>(
        &self,
        domain: &[u8],
        entries: &[(&'e [u8], &'e [u8])],
        out: &mut Matches,
        report: &mut MatchReport,
    ) {
        report.lookups += 1;
        let keys = || entries.iter().map(|(key, _)| *key);
        let mut first: Option<RuleIdx> = None;
        for signature in signatures_of(&self.paths, domain, keys) {
            report.lookups += 1;
            if let Some([(_, rule), ..]) = signature.run(|at| entries[at].1) {
                first = Some(first.map_or(*rule, |first| first.min(*rule)));
            }
        }
        if let Some(rule) = first {
            report.matched += 1;
            out.insert(rule);
        }
    }

    /// Takes out the rules that an unlimited one shields from.
    // spec: rule-20
    #[cold]
    fn shield(&self, out: &mut Matches, report: &mut MatchReport) {
        let all = *out;
        let unlimited = |rule: &&Rule| rule.mode == Mode::Unlimited;
        out.retain(|index| {
            let Some(rule) = self.rule(index) else {
                return false;
            };
            let mut others = all.iter().filter(|other| *other != index);
            rule.mode == Mode::Unlimited
                || !others.any(|other| {
                    let narrow = self.rule(other).filter(unlimited);
                    narrow.is_some_and(|narrow| covers(rule, narrow))
                })
        });
        report.shielded = u32::from(all.len - out.len);
    }
}

/// The signatures of the group over a domain and keys; none when there is no such group.
fn signatures_of<'t, 'k, K: Iterator<Item = &'k [u8]>>(
    groups: &'t [Group],
    domain: &[u8],
    keys: impl Fn() -> K,
) -> &'t [Signature] {
    let mark = mark_of(domain, keys());
    let start = groups.partition_point(|group| group.mark < mark);
    let mut alike = groups[start..].iter().take_while(|g| g.mark == mark);
    let found = alike.find(|group| {
        order(&group.domain, domain).then_with(|| order_all(&group.keys, keys())) == Ordering::Equal
    });
    found.map_or(&[], |group| &group.signatures)
}

/// A number by which a group is looked for before its texts are compared. It is no secret: only
/// who writes the rules could make two of them alike, and would only make them slower.
fn mark_of<'k>(domain: &[u8], keys: impl Iterator<Item = &'k [u8]>) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let stir = |mark: u64, word: u64| (mark ^ word).wrapping_mul(ODD).rotate_left(29);
    let add = |mark: u64, text: &[u8]| {
        let mut words = text.chunks_exact(8);
        let mark = words
            .by_ref()
            .fold(stir(mark, text.len() as u64), |mark, word| {
                stir(
                    mark,
                    word.iter()
                        .fold(0, |word, byte| word << 8 | u64::from(*byte)),
                )
            });
        let rest = words.remainder().iter();
        stir(
            mark,
            rest.fold(0, |word, byte| word << 8 | u64::from(*byte)),
        )
    };
    keys.fold(add(0, domain), add)
}

impl Signature {
    /// The rules whose parts equal those of the values at each position; `None` when a value is too
    /// short.
    fn run<'v>(&self, value: impl Fn(usize) -> &'v [u8]) -> Option<&[(Parts, RuleIdx)]> {
        if self.is_open {
            return Some(&self.rules);
        }
        let mut fits = self.shapes.iter().zip(0..);
        if !fits.all(|(shape, at)| shape.part(value(at)).is_some()) {
            return None;
        }
        let compare = |parts: &[Box<[u8]>]| -> Ordering {
            for ((part, shape), at) in parts.iter().zip(&self.shapes).zip(0..) {
                let order = order(part, shape.part(value(at)).unwrap_or_default());
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
fn order_all<'a, 'b, A: AsRef<[u8]> + 'a>(
    a: impl IntoIterator<Item = &'a A>,
    b: impl IntoIterator<Item = &'b [u8]>,
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

/// One rule in the form it is matched in, while the index is built.
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
        if rule.matching == Matching::All {
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
        }
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

/// The index over all rules of one kind that are not disabled.
fn index(rules: &[Rule], matching: Matching) -> Vec<Group> {
    let live = rules
        .iter()
        .zip(0..=RuleIdx::MAX)
        .filter(|(rule, _)| rule.matching == matching && rule.mode != Mode::Disabled);
    let mut rows: Vec<Row<'_>> = live.map(|(rule, index)| Row::new(rule, index)).collect();
    rows.sort_by(Row::order);
    let own = |texts: &[&[u8]]| texts.iter().map(|text| Box::from(*text)).collect::<Parts>();
    let signature = |rows: &[Row<'_>]| Signature {
        shapes: rows[0].shapes.as_slice().into(),
        is_open: rows[0].shapes.iter().all(|shape| *shape == Shape::Any),
        rules: rows
            .iter()
            .map(|row| (own(&row.parts), row.index))
            .collect(),
    };
    let group = |rows: &[Row<'_>]| Group {
        mark: mark_of(rows[0].domain, rows[0].keys.iter().copied()),
        domain: rows[0].domain.into(),
        keys: own(&rows[0].keys),
        signatures: rows
            .chunk_by(|a, b| a.shapes == b.shapes)
            .map(signature)
            .collect(),
    };
    let mut groups: Vec<Group> = rows
        .chunk_by(|a, b| a.order_of_groups(b) == Ordering::Equal)
        .map(group)
        .collect();
    groups.sort_by_key(|group| group.mark);
    groups
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

#[cfg(test)]
mod tests;
