//! Random policies and requests against the order of business written rule by rule, and the YAML
//! that a policy prints against the policy.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::policy::{parse_limits, policy_to_yaml, Policy};
use crate::rule::Mode;
use proptest::prelude::*;

/// A flag by its position, and whether it must be on.
type Flagged = Option<(usize, bool)>;

/// A rule as a person would write it.
#[derive(Clone, Debug)]
struct Written {
    domain: &'static str,
    mode: &'static str,
    parts: Vec<Part>,
    only_if: Vec<Vec<(&'static str, Want)>>,
    except_if: Vec<Vec<(&'static str, Want)>>,
    switch: Flagged,
    tiers: Option<(&'static str, Vec<(&'static str, u32)>)>,
    last: bool,
    /// Positions of rules, modulo their number.
    replaces: Vec<usize>,
    charge: Option<(Vec<&'static str>, Flagged)>,
    answer: bool,
}

#[derive(Clone, Debug)]
struct Part {
    key: &'static str,
    value: Option<&'static str>,
    /// And the values that are known.
    fallback: Option<(&'static str, Vec<&'static str>)>,
}

#[derive(Clone, Debug)]
enum Want {
    Like(Vec<&'static str>),
    InTen,
}

const FLAGS: [(&str, &str, Option<&str>); 4] = [
    ("f", "off", None),
    ("g", "40%", None),
    ("h", "on", Some("a")),
    ("i", "60%", Some("b")),
];
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const VALUES: [&str; 6] = ["x", "xy", "x/y", "y", "10.0.0.1", "401"];
const LIKE: [&str; 10] = [
    "", "*", "x", "x*", "x*y", "*y", "y", "40*", "10.0.0.1", "x/*",
];

fn one_of<const N: usize>(of: [&'static str; N]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(of.to_vec())
}

fn any_list() -> impl Strategy<Value = Vec<Vec<(&'static str, Want)>>> {
    let want = prop_oneof![
        4 => proptest::collection::vec(one_of(LIKE), 1..3).prop_map(Want::Like),
        1 => Just(Want::InTen),
    ];
    let alternative = proptest::collection::btree_map(one_of(KEYS), want, 1..3)
        .prop_map(|clauses| clauses.into_iter().collect());
    let list = proptest::collection::vec(alternative, 1..3);
    proptest::option::weighted(0.25, list).prop_map(Option::unwrap_or_default)
}

fn any_part() -> impl Strategy<Value = (Option<&'static str>, Option<Vec<&'static str>>)> {
    let known = proptest::collection::btree_set(one_of(VALUES), 0..3);
    prop_oneof![
        3 => Just((None, None)),
        1 => one_of(["x", "x*", "*"]).prop_map(|value| (Some(value), None)),
        2 => known.prop_map(|known| (None, Some(known.into_iter().collect()))),
    ]
}

fn any_parts() -> impl Strategy<Value = Vec<Part>> {
    proptest::collection::btree_map(one_of(KEYS), any_part(), 0..3).prop_map(|parts| {
        let part = |(key, (value, known)): (_, (_, Option<Vec<_>>))| Part {
            key,
            value,
            fallback: known.map(|known| ("other", known)),
        };
        parts.into_iter().map(part).collect()
    })
}

fn any_switch() -> impl Strategy<Value = Option<(usize, bool)>> {
    proptest::option::weighted(0.25, (0..FLAGS.len(), any::<bool>()))
}

fn any_written() -> impl Strategy<Value = Written> {
    let rates = proptest::collection::btree_map(one_of(VALUES), 1u32..50, 1..3);
    let tiers = (one_of(KEYS), rates).prop_map(|(by, rates)| (by, rates.into_iter().collect()));
    let statuses = proptest::collection::vec(one_of(["401", "40*", "*", "x"]), 0..2);
    let mode = prop_oneof![
        6 => Just("enforce"), 1 => Just("dry_run"), 1 => Just("unlimited"), 1 => Just("disabled"),
    ];
    let shape = (
        prop_oneof![9 => Just("d"), 1 => Just("e")],
        mode,
        any_parts(),
    );
    let picks = (any_list(), any_list(), any_switch());
    let more = (
        proptest::option::weighted(0.25, tiers),
        proptest::bool::weighted(0.07),
        prop_oneof![4 => Just(Vec::new()), 1 => proptest::collection::vec(0usize..64, 1..3)],
        proptest::option::weighted(0.2, (statuses, any_switch())),
        any::<bool>(),
    );
    (shape, picks, more).prop_map(|(shape, picks, more)| Written {
        domain: shape.0,
        mode: shape.1,
        parts: shape.2,
        only_if: picks.0,
        except_if: picks.1,
        switch: picks.2,
        tiers: more
            .0
            .filter(|_| shape.1 == "enforce" || shape.1 == "dry_run"),
        last: more.1,
        replaces: more.2,
        charge: more
            .3
            .filter(|_| shape.1 == "enforce" || shape.1 == "dry_run"),
        answer: more.4,
    })
}

fn any_policy() -> impl Strategy<Value = Vec<Written>> {
    prop_oneof![
        4 => proptest::collection::vec(any_written(), 0..8),
        1 => proptest::collection::vec(any_written(), 24..40),
    ]
}

/// One set of attributes: what stands at each key and as the status.
type Sent = BTreeMap<&'static str, Option<&'static str>>;

fn any_sent() -> impl Strategy<Value = Sent> {
    // `None`: it could not be read; an empty text: it is absent.
    let value = prop_oneof![
        6 => one_of(VALUES).prop_map(Some), 2 => Just(Some("")), 1 => Just(None),
    ];
    let status = prop_oneof![12 => Just(Some("")), 5 => Just(Some("401")), 1 => Just(None)];
    (proptest::collection::vec(value, 4), status).prop_map(|(values, status)| {
        let mut sent: Sent = KEYS.into_iter().zip(values).collect();
        sent.insert("status", status);
        sent
    })
}

impl Values for Sent {
    fn value(&self, name: &[u8], _at: AttributeRef) -> Found<'_> {
        match self.get(std::str::from_utf8(name).unwrap()) {
            Some(None) => Found::Failed,
            Some(Some(value)) => Found::of(value.as_bytes()),
            None => Found::Absent,
        }
    }
}

fn flag_yaml(switch: &Option<(usize, bool)>) -> String {
    switch.map_or_else(String::new, |(flag, on)| {
        let word = if on { "if_flag" } else { "unless_flag" };
        format!(", {word}: {}", FLAGS[flag].0)
    })
}

fn list_yaml(list: &[Vec<(&str, Want)>]) -> String {
    let alternative = |clauses: &Vec<(&str, Want)>| {
        let clause = |(key, want): &(&str, Want)| match want {
            Want::Like(patterns) => format!("{key}: {patterns:?}"),
            Want::InTen => format!("{key}: {{networks: [10.0.0.0/8]}}"),
        };
        format!(
            "{{{}}}",
            clauses.iter().map(clause).collect::<Vec<_>>().join(", ")
        )
    };
    let all: Vec<String> = list.iter().map(alternative).collect();
    format!("[{}]", all.join(", "))
}

/// Names of the limiters that a rule replaces: others of its domain.
fn replaced(policy: &[Written], at: usize) -> Vec<String> {
    let mut others: Vec<usize> = policy[at]
        .replaces
        .iter()
        .map(|n| n % policy.len())
        .filter(|n| *n != at && policy[*n].domain == policy[at].domain)
        .collect();
    others.sort_unstable();
    others.dedup();
    others.iter().map(|n| format!("r{n}")).collect()
}

fn yaml(policy: &[Written]) -> String {
    let mut out = String::from("flags:\n");
    for (name, default, by) in FLAGS {
        let by = by.map_or_else(String::new, |by| format!(", by: {by}"));
        writeln!(out, "  {name}: {{default: {default}{by}}}").unwrap();
    }
    out.push_str("limits:\n");
    for (at, rule) in policy.iter().enumerate() {
        let (domain, mode) = (rule.domain, rule.mode);
        let lead = format!("- {{name: r{at}, domain: {domain}, mode: {mode}, match: request");
        out.push_str(&lead);
        if mode != "unlimited" {
            write!(out, ", rate: {}r/h", at + 100).unwrap();
        }
        let part = |part: &Part| {
            let mut text = format!("{{key: {}", part.key);
            if let Some(value) = part.value {
                write!(text, ", value: {value:?}").unwrap();
            }
            if let Some((fallback, known)) = &part.fallback {
                write!(text, ", fallback: {fallback}, known: {known:?}").unwrap();
            }
            text + "}"
        };
        let parts: Vec<String> = rule.parts.iter().map(part).collect();
        write!(out, ", descriptors: [{}]", parts.join(", ")).unwrap();
        write!(out, ", only_if: {}", list_yaml(&rule.only_if)).unwrap();
        write!(out, ", except_if: {}", list_yaml(&rule.except_if)).unwrap();
        out.push_str(&flag_yaml(&rule.switch));
        if let Some((by, rates)) = &rule.tiers {
            let rate = |(value, rate): &(&str, u32)| format!("{value:?}: {rate}r/h");
            let rates: Vec<String> = rates.iter().map(rate).collect();
            write!(
                out,
                ", tiers: {{by: {by}, rates: {{{}}}}}",
                rates.join(", ")
            )
            .unwrap();
        }
        write!(out, ", last: {}", rule.last).unwrap();
        write!(out, ", replaces: {:?}", replaced(policy, at)).unwrap();
        if let Some((statuses, switch)) = &rule.charge {
            let switch = flag_yaml(switch);
            let charge = format!(", charge: {{after: response, status: {statuses:?}{switch}}}");
            out.push_str(&charge);
        }
        if rule.answer {
            out.push_str(", raw_body: '{\"a\":\"é''\"}', raw_body_type: application/json");
            out.push_str(", raw_headers: {X-A: 'b: c #'}, log: {message: 'm: #', fields: [a]}");
        }
        out.push_str("}\n");
    }
    if policy.is_empty() {
        out.push_str("  []\n");
    }
    out
}

/// A pattern against a value, tried every way.
fn fits(pattern: &[u8], value: &[u8]) -> bool {
    match pattern {
        [] => value.is_empty(),
        b"*" => true,
        [b'*', rest @ ..] => (0..=value.len())
            .take_while(|n| !value[..*n].contains(&b'/'))
            .any(|n| fits(rest, &value[n..])),
        [byte, rest @ ..] => value.first() == Some(byte) && fits(rest, &value[1..]),
    }
}

/// What a person would say of one request, clause by clause.
struct Oracle<'a> {
    policy: &'a [Written],
    rules: &'a [Rule],
    set: &'a [Option<Share>],
    hasher: &'a KeyHasher,
}

impl Oracle<'_> {
    fn clause(sent: &Sent, key: &str, want: &Want) -> Option<bool> {
        let value = sent[key]?;
        Some(match want {
            Want::InTen => value.starts_with("10."),
            Want::Like(patterns) => patterns.iter().any(|pattern| {
                // Nothing but the empty pattern fits what is not there.
                value.is_empty() == pattern.is_empty() && fits(pattern.as_bytes(), value.as_bytes())
            }),
        })
    }

    // spec: pol-7, pol-9
    fn holds(sent: &Sent, list: &[Vec<(&str, Want)>]) -> Option<bool> {
        let of = |clauses: &Vec<(&str, Want)>| {
            let all: Vec<_> = clauses
                .iter()
                .map(|c| Self::clause(sent, c.0, &c.1))
                .collect();
            match (all.contains(&Some(false)), all.contains(&None)) {
                (true, _) => Some(false),
                (false, unknown) => (!unknown).then_some(true),
            }
        };
        let all: Vec<_> = list.iter().map(of).collect();
        match (all.contains(&Some(true)), all.contains(&None)) {
            (true, _) => Some(true),
            (false, unknown) => (!unknown).then_some(false),
        }
    }

    // spec: pol-3, pol-6
    fn key(&self, at: usize, sent: &Sent, era: u32) -> Result<Key, Dropped> {
        let mut entries: Vec<(&[u8], &[u8])> = Vec::new();
        for part in &self.policy[at].parts {
            let value = match (sent[part.key], &part.fallback) {
                (None, _) => return Err(Dropped::Unreadable),
                (Some(""), None) => return Err(Dropped::Absent),
                (Some(""), Some((fallback, _))) => *fallback,
                (Some(value), Some((fallback, known))) => {
                    let is_known = known.is_empty() || known.contains(&value);
                    if is_known {
                        value
                    } else {
                        fallback
                    }
                }
                (Some(value), None) => {
                    let pattern = part.value.unwrap_or("*");
                    if !fits(pattern.as_bytes(), value.as_bytes()) {
                        return Err(Dropped::Value);
                    }
                    value
                }
            };
            entries.push((part.key.as_bytes(), value.as_bytes()));
        }
        Ok(self.hasher.key(&self.rules[at].identity(), &entries, era))
    }

    // spec: ord-9, pol-12
    fn flag(&self, at: usize, sent: &Sent, flag: usize) -> Result<bool, Dropped> {
        let (name, default, by) = FLAGS[flag];
        let share = self.set[flag].unwrap_or_else(|| default.parse().unwrap());
        if share == Share::ON || share == Share::OFF {
            return Ok(share == Share::ON);
        }
        let Some(by) = by else {
            return Ok(share.admits(self.key(at, sent, 0)?));
        };
        let value = sent[by].ok_or(Dropped::Unreadable)?;
        Ok(!value.is_empty() && share.admits(flag_key(self.hasher, name, value.as_bytes())))
    }

    // spec: pol-16, pol-17
    fn counted(&self, at: usize, sent: &Sent) -> Result<Counted, Dropped> {
        let status = sent["status"].ok_or(Dropped::Unreadable)?;
        let mut late = None;
        if let Some((statuses, switch)) = &self.policy[at].charge {
            let waits = match switch {
                Some((flag, on)) => self.flag(at, sent, *flag)? == *on,
                None => true,
            };
            late = waits.then_some(statuses);
        }
        match (late, status) {
            (None, "") => Ok(Counted::Now),
            (Some(_), "") => Ok(Counted::Read),
            (None, _) => Err(Dropped::Phase),
            (Some(list), status) => {
                let mut listed = list.iter();
                let fits = |p: &&str| fits(p.as_bytes(), status.as_bytes());
                if list.is_empty() || listed.any(fits) {
                    Ok(Counted::Late)
                } else {
                    Err(Dropped::Status)
                }
            }
        }
    }

    // spec: pol-14
    fn tier(&self, at: usize, sent: &Sent) -> Result<Option<u32>, Dropped> {
        let Some((by, rates)) = &self.policy[at].tiers else {
            return Ok(None);
        };
        let value = sent[by].ok_or(Dropped::Unreadable)?;
        let listed = rates.iter().find(|(tier, _)| *tier == value);
        let own = u32::try_from(at + 100).unwrap();
        Ok(Some(listed.map_or(own, |(_, rate)| *rate)))
    }

    /// What applies before rules speak of each other.
    // spec: pol-4
    fn alone(&self, at: usize, sent: &Sent) -> Result<Applies, Dropped> {
        let rule = &self.policy[at];
        let counted = self.counted(at, sent)?;
        if let Some((flag, on)) = rule.switch {
            if self.flag(at, sent, flag)? != on {
                return Err(Dropped::Flag);
            }
        }
        if !rule.only_if.is_empty() {
            match Self::holds(sent, &rule.only_if) {
                Some(true) => {}
                Some(false) => return Err(Dropped::OnlyIf),
                None => return Err(Dropped::Unreadable),
            }
        }
        match Self::holds(sent, &rule.except_if) {
            Some(false) => {}
            Some(true) => return Err(Dropped::ExceptIf),
            None => return Err(Dropped::Unreadable),
        }
        let index = RuleIdx::try_from(at).unwrap();
        Ok(Applies {
            rule: index,
            key: self.key(at, sent, era(index))?,
            limit: self.tier(at, sent)?,
            counted,
        })
    }

    /// One set of attributes after those that gave `before`: the rules that applied, in the order
    /// in which they were found.
    // spec: pol-4, pol-5, rule-21
    fn gather(&self, sent: &Sent, before: &mut Vec<RuleIdx>) -> Gathered {
        let mut out = Gathered::default();
        let mut applies = Vec::new();
        for at in 0..self.policy.len() {
            let rule = &self.policy[at];
            if rule.domain != "d" || rule.mode == "disabled" {
                continue;
            }
            match self.alone(at, sent) {
                Ok(found) => applies.push(found),
                Err(why) => drop(out.1.insert(RuleIdx::try_from(at).unwrap(), why)),
            }
        }
        for found in &applies {
            if !before.contains(&found.rule) {
                before.push(found.rule);
            }
        }
        let replacer = |other: RuleIdx| {
            let name = format!("r{other}");
            if self.policy[usize::from(other)].mode == "unlimited" {
                return None;
            }
            let mut all = before.iter().copied();
            all.find(|by| replaced(self.policy, usize::from(*by)).contains(&name))
        };
        for found in applies {
            let mut all = before.iter().copied();
            let stop = all.find(|by| {
                *by < found.rule && self.policy[usize::from(*by)].last && replacer(*by).is_none()
            });
            let why = match (replacer(found.rule), stop) {
                (Some(by), _) => Dropped::Replaced(by),
                (None, Some(by)) => Dropped::AfterLast(by),
                (None, None) if out.0.len() == MAX_MATCHED_RULES => Dropped::TooMany,
                (None, None) => {
                    out.0.push(found);
                    continue;
                }
            };
            out.1.insert(found.rule, why);
        }
        out
    }
}

type Gathered = (Vec<Applies>, BTreeMap<RuleIdx, Dropped>);

fn era(index: RuleIdx) -> u32 {
    u32::from(index) % 3
}

fn read(policy: &[Written]) -> Result<Policy, TestCaseError> {
    let text = yaml(policy);
    parse_limits("p.yaml", &text).map_err(|e| TestCaseError::fail(format!("{text}\n{e:#?}")))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn gathering_agrees_with_the_order_of_business_rule_by_rule(
        policy in any_policy(),
        request in proptest::collection::vec(any_sent(), 1..3),
        set in proptest::collection::vec(proptest::option::of(0u8..=100), FLAGS.len()),
    ) {
        let rules = read(&policy)?.rules;
        let table = RuleTable::build(rules.clone()).unwrap();
        let hasher = KeyHasher::new([5; 16]);
        let set: Vec<Option<Share>> = set.iter().map(|s| s.and_then(Share::percent)).collect();
        let reads: RefCell<Vec<FlagIdx>> = RefCell::default();
        let ask = |index: FlagIdx| {
            reads.borrow_mut().push(index);
            let name = &table.flags()[usize::from(index)].name;
            set[FLAGS.iter().position(|flag| flag.0 == name).unwrap()]
        };
        let flags = FlagStates::new(&ask);
        let context = Context { hasher: &hasher, era: &era, flags: &flags };
        let oracle = Oracle { policy: &policy, rules: &rules, set: &set, hasher: &hasher };
        let (mut aside, mut before) = (Aside::default(), Vec::new());
        for sent in &request {
            let mut out = ArrayVec::new();
            let mut dropped = BTreeMap::new();
            let mut told = 0;
            table.gather(b"d", sent, &context, &mut aside, &mut out, &mut |index, why| {
                told += 1;
                dropped.insert(index, why);
            });
            prop_assert_eq!(told, dropped.len(), "each is told once");
            let expected = oracle.gather(sent, &mut before);
            prop_assert_eq!(&(out.to_vec(), dropped), &expected, "{}", yaml(&policy));
            for (at, rule) in policy.iter().enumerate() {
                let alone = table.ask(RuleIdx::try_from(at).unwrap(), sent, &context);
                if rule.mode != "disabled" {
                    prop_assert_eq!(alone, oracle.alone(at, sent));
                }
            }
        }
        let mut reads = reads.into_inner();
        let all = reads.len();
        reads.sort_unstable();
        reads.dedup();
        prop_assert_eq!(reads.len(), all, "each flag is read once");
    }

    #[test]
    fn what_a_policy_prints_is_the_same_policy(policy in any_policy()) {
        let first = read(&policy)?;
        let text = policy_to_yaml(&first);
        let again = parse_limits("q.yaml", &text)
            .map_err(|e| TestCaseError::fail(format!("{text}\n{e:#?}")))?;
        let unplaced = |rule: &Rule| Rule { place: None, ..rule.clone() };
        let rules = |policy: &Policy| policy.rules.iter().map(unplaced).collect::<Vec<_>>();
        prop_assert_eq!(rules(&again), rules(&first), "{}", text);
        for (one, two) in again.rules.iter().zip(&first.rules) {
            prop_assert_eq!(one.identity(), two.identity());
            prop_assert_eq!(one.digest(), two.digest());
        }
        let flags = |policy: &Policy| {
            let all = policy.flags.iter();
            all.map(|f| (f.name.clone(), f.default, f.by.clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(flags(&again), flags(&first));
        prop_assert_eq!(policy_to_yaml(&again), text);
    }
}

#[test]
fn a_rule_whose_tier_cannot_be_read_says_nothing_of_others() {
    let text = "limits:\n\
        - {name: a, domain: d, match: request, descriptors: [], rate: 9r/h, last: true,\n   \
           replaces: [b], tiers: {by: plan, rates: {free: 1r/h}}}\n\
        - {name: b, domain: d, match: request, descriptors: [], rate: 9r/h}\n";
    let table = RuleTable::build(parse_limits("p.yaml", text).unwrap().rules).unwrap();
    assert_eq!(table.rules()[0].mode, Mode::Enforce);
    let ask = |_: FlagIdx| None;
    let (hasher, flags) = (KeyHasher::new([5; 16]), FlagStates::new(&ask));
    let context = Context {
        hasher: &hasher,
        era: &era,
        flags: &flags,
    };
    for (plan, expected) in [(None, [1].as_slice()), (Some("free"), &[0])] {
        let sent: Sent = [("plan", plan)].into_iter().collect();
        let (mut aside, mut out) = (Aside::default(), ArrayVec::new());
        table.gather(b"d", &sent, &context, &mut aside, &mut out, &mut |_, _| {});
        let applied: Vec<RuleIdx> = out.iter().map(|found| found.rule).collect();
        assert_eq!(applied, expected, "{plan:?}");
    }
}
