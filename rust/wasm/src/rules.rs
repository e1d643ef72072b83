//! Rules as text: the words of one rule a line, or a policy file; read by the real parser.
//!
//! I own the line form `NAME setting=value ..`. I promise: a rule means here what it means in a
//! configuration, since both become a [`RuleSpec`]; every fault has a line and a column. I never:
//! evaluate conditions, tiers or descriptors: here every request counts for a numbered key.

use gabion_node::bound_at_rest_hits;
use gabion_rule::policy::yaml::nearest;
use gabion_rule::policy::{parse_limits, PolicyError};
use gabion_rule::{
    Algorithm, DescriptorSpec, DurationText, Mode, Notice, Pace, Rule, RuleError, RuleSpec, Sliding,
};
use gabion_sim::config::{SimRule, WorldConfig};
use gabion_sim::scenario::{validate, ScenarioError};
use serde::Serialize;

use crate::limits::{RULES_BYTES_MAX, TABLE_BYTES};

/// Settings that a line may have.
const SETTINGS: [&str; 10] = [
    "rate",
    "window",
    "bucket",
    "burst",
    "sliding",
    "pace",
    "members",
    "error_budget",
    "cardinality",
    "mode",
];
/// Keys with which a policy file begins.
const POLICY_KEYS: [&str; 3] = ["limits:", "flags:", "attributes:"];

/// A rule that was understood.
#[derive(Clone, Debug)]
pub struct Understood {
    /// What a page shows of it.
    pub info: RuleInfo,
    /// What a world runs.
    pub rule: SimRule,
}

/// What a page shows of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleInfo {
    /// Its name.
    pub name: String,
    /// In the words of a line; empty when no such words give it.
    pub words: String,
    /// In plain words.
    pub describe: String,
    /// Hits in a window; depth of a bucket.
    pub limit: u32,
    /// Window, nanoseconds; of a token bucket the time in which it fills.
    pub window_ns: u64,
    /// Grain inside the window, nanoseconds.
    pub epoch_ns: u64,
    /// `fast`, `paced` or `strict`.
    pub pace: &'static str,
    /// Error budget, parts per million.
    pub error_budget_ppm: u32,
    /// What the cluster may be over by that budget at rest, hits.
    pub bound_at_rest_hits: u64,
    /// What an operator should know about it.
    pub notices: Vec<String>,
}

/// One fault in a text of rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleFault {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The setting or key; empty for the whole.
    pub key: String,
    /// What is wrong and what to write.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// Reads rules for a cluster of `members`.
///
/// # Errors
/// Every fault that can be found at once, at least one.
pub fn read(text: &str, members: usize) -> Result<Vec<Understood>, Vec<RuleFault>> {
    if text.len() > RULES_BYTES_MAX {
        let message = format!("longer than {RULES_BYTES_MAX} bytes; leave rules out");
        return Err(vec![whole(message)]);
    }
    let policy = |line: &str| POLICY_KEYS.iter().any(|key| line.starts_with(key));
    let read = if text.lines().any(policy) {
        let policy = parse_limits("rules", text);
        let policy = policy.map_err(|errors| errors.iter().map(of_policy).collect::<Vec<_>>())?;
        let of = |rule: &Rule| -> Vec<Notice> {
            let all = policy.notices.iter();
            all.filter(|notice| notice.rule == rule.name)
                .cloned()
                .collect()
        };
        policy
            .rules
            .iter()
            .map(|rule| (rule.clone(), of(rule)))
            .collect()
    } else {
        read_lines(text, members)?
    };
    let understood: Vec<Understood> = read
        .iter()
        .map(|(rule, notices)| understood(rule, notices, members))
        .collect();
    trial(&understood, members).map_err(|message| vec![whole(message)])?;
    Ok(understood)
}

fn whole(message: String) -> RuleFault {
    RuleFault {
        line: 1,
        column: 1,
        key: String::new(),
        message,
        suggestion: None,
    }
}

fn of_policy(error: &PolicyError) -> RuleFault {
    RuleFault {
        line: error.place.line.max(1),
        column: error.place.column.max(1),
        key: error.key.clone(),
        message: error.message.clone(),
        suggestion: error.suggestion.clone(),
    }
}

/// Whether a world takes these rules; it has bounds of its own.
fn trial(rules: &[Understood], members: usize) -> Result<(), String> {
    let rules = rules.iter().map(|held| held.rule.clone()).collect();
    let mut config = WorldConfig::calm(1, members, rules);
    config.table_bytes = TABLE_BYTES;
    validate("".as_ref(), &config).map_err(|error| match error {
        ScenarioError::Invalid { what, .. } => what,
        other => other.to_string(),
    })
}

/// A word and its place.
struct Word<'t> {
    text: &'t str,
    line: u32,
    column: u32,
}

impl Word<'_> {
    fn fault(&self, key: &str, message: String, suggestion: Option<&str>) -> RuleFault {
        RuleFault {
            line: self.line,
            column: self.column,
            key: key.to_owned(),
            message,
            suggestion: suggestion.map(str::to_owned),
        }
    }
}

fn words_of(line: &str, number: u32) -> Vec<Word<'_>> {
    let code = line.split('#').next().unwrap_or_default();
    let mut words = Vec::new();
    let mut rest = code;
    loop {
        rest = rest.trim_start();
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        if length == 0 {
            return words;
        }
        let before = &code[..code.len() - rest.len()];
        words.push(Word {
            text: &rest[..length],
            line: number,
            column: u32::try_from(before.chars().count() + 1).unwrap_or(u32::MAX),
        });
        rest = &rest[length..];
    }
}

type Built = (Rule, Vec<Notice>);

fn read_lines(text: &str, members: usize) -> Result<Vec<Built>, Vec<RuleFault>> {
    let (mut rules, mut faults) = (Vec::<Built>::new(), Vec::new());
    for (line, number) in text.lines().zip(1u32..) {
        let words = words_of(line, number);
        let Some(name) = words.first() else { continue };
        match read_line(&words, members) {
            Ok(built) if rules.iter().any(|(rule, _)| rule.name == built.0.name) => {
                let message = format!("a rule {} is there already; name it otherwise", name.text);
                faults.push(name.fault("name", message, None));
            }
            Ok(built) => rules.push(built),
            Err(found) => faults.extend(found),
        }
    }
    if rules.is_empty() && faults.is_empty() {
        faults.push(whole(
            "no rule is written; write a line like: api rate=10/s window=10s".to_owned(),
        ));
    }
    match faults.is_empty() {
        true => Ok(rules),
        false => Err(faults),
    }
}

fn read_line(words: &[Word<'_>], members: usize) -> Result<Built, Vec<RuleFault>> {
    let mut faults = Vec::new();
    let mut spec = RuleSpec {
        domain: Some("simulator".to_owned()),
        descriptors: vec![DescriptorSpec {
            key: b"key".to_vec(),
            ..DescriptorSpec::default()
        }],
        ..RuleSpec::default()
    };
    let (name, settings) = words.split_at(1);
    let name = &name[0];
    if name.text.contains('=') {
        let message = "the first word is the rule's name, of letters, digits, - and _".to_owned();
        faults.push(name.fault("name", message, None));
    }
    spec.name = name.text.to_owned();
    for word in settings {
        if let Err(fault) = set(&mut spec, word) {
            faults.push(fault);
        }
    }
    if spec.pace.as_deref() == Some("strict") && spec.members.is_none() {
        spec.members = Some(members.to_string());
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    spec.build_all().map_err(|errors| {
        let errors = errors.iter();
        errors.map(|error| of_rule(error, words)).collect()
    })
}

/// An error of the real parser, at the word it is about.
fn of_rule(error: &RuleError, words: &[Word<'_>]) -> RuleFault {
    let setting = error.setting();
    let is = |word: &&Word<'_>| {
        let named = word.text.split_once('=');
        named.is_some_and(|(name, _)| name == setting)
    };
    let word = words.iter().find(is).unwrap_or(&words[0]);
    word.fault(setting, error.to_string(), None)
}

fn set(spec: &mut RuleSpec, word: &Word<'_>) -> Result<(), RuleFault> {
    let Some((setting, value)) = word.text.split_once('=') else {
        let message = "it is no setting; write setting=value, like rate=10/s".to_owned();
        return Err(word.fault("", message, None));
    };
    let slot = match setting {
        "rate" => &mut spec.rate,
        "window" => &mut spec.window,
        "bucket" => &mut spec.bucket,
        "burst" => &mut spec.burst,
        "sliding" => &mut spec.sliding,
        "pace" => &mut spec.pace,
        "members" => &mut spec.members,
        "error_budget" => &mut spec.error_budget,
        "cardinality" => &mut spec.cardinality,
        "mode" => &mut spec.mode,
        _ => {
            let message = format!("\"{setting}\" is no setting of a rule here");
            return Err(word.fault(setting, message, nearest(setting, SETTINGS)));
        }
    };
    if let Some(first) = slot {
        let message = format!("{setting} is {first} already; keep one of them");
        return Err(word.fault(setting, message, None));
    }
    *slot = Some(value.to_owned());
    Ok(())
}

fn understood(rule: &Rule, notices: &[Notice], members: usize) -> Understood {
    let sim = SimRule {
        algorithm: rule.algorithm,
        cardinality: rule.cardinality,
        error_budget_ppm: rule.error_budget_ppm,
        pace: rule.pace,
    };
    let mut notices: Vec<String> = notices.iter().map(Notice::to_string).collect();
    if rule.mode != Mode::Enforce {
        notices.push(format!(
            "mode={} is taken as enforce here",
            rule.mode_word()
        ));
    }
    if rule.tiers.is_some() || !rule.only_if.is_empty() || !rule.except_if.is_empty() {
        notices.push("conditions and tiers are left out here: the limit alone is run".to_owned());
    }
    let mut info = info(&rule.name, &sim, members);
    info.words = words(rule);
    info.notices = notices;
    Understood { info, rule: sim }
}

/// What a page shows of a rule of a scenario, which has no name.
pub fn of_scenario(number: usize, rule: &SimRule, members: usize) -> Understood {
    Understood {
        info: info(&format!("rule-{number}"), rule, members),
        rule: rule.clone(),
    }
}

fn info(name: &str, rule: &SimRule, members: usize) -> RuleInfo {
    let plan = rule.plan();
    let window_ns = match rule.algorithm {
        Algorithm::Window { window_ns, .. } => window_ns,
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            ..
        } => {
            let fills_ns = u128::from(burst) * u128::from(per_ns) / u128::from(hits.max(1));
            u64::try_from(fills_ns).unwrap_or(u64::MAX)
        }
    };
    let bound = match rule.pace {
        Pace::Strict { .. } => 0,
        _ => bound_at_rest_hits(plan.limit(), rule.error_budget_ppm, members as u64),
    };
    RuleInfo {
        name: name.to_owned(),
        words: String::new(),
        describe: describe(rule),
        limit: plan.limit(),
        window_ns,
        epoch_ns: plan.epoch_ns(),
        pace: rule.pace.word(),
        error_budget_ppm: rule.error_budget_ppm,
        bound_at_rest_hits: bound,
        notices: Vec::new(),
    }
}

fn describe(rule: &SimRule) -> String {
    let what = match rule.algorithm {
        Algorithm::Window {
            limit,
            window_ns,
            bucket_ns,
            sliding,
        } => {
            let window = DurationText(window_ns);
            let grain = match (window_ns == bucket_ns, sliding) {
                (true, Sliding::Weighted) => ", the last window counted in part".to_owned(),
                (true, _) => ", from one multiple of it to the next".to_owned(),
                (false, sliding) => {
                    let bucket = DurationText(bucket_ns);
                    format!(", sliding by {bucket} ({})", sliding.word())
                }
            };
            format!("at most {limit} hits in {window}{grain}")
        }
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            ..
        } => {
            let per = DurationText(per_ns);
            format!("{hits} hits in each {per}, and up to {burst} at once")
        }
    };
    let how = match rule.pace {
        Pace::Fast => "each member decides on what it knows",
        Pace::Paced => "each member takes a part of what is left",
        Pace::Strict { .. } => "each member has a fixed part of its own: never more in all",
    };
    format!("{what}; {how}")
}

/// The words of a line that gives this rule again.
fn words(rule: &Rule) -> String {
    let spec = rule.to_spec();
    let usual = RuleSpec {
        sliding: Some(Sliding::default().word().to_owned()),
        pace: Some(Pace::default().word().to_owned()),
        error_budget: Some("10000ppm".to_owned()),
        bucket: spec.window.clone(),
        ..RuleSpec::default()
    };
    let settings = [
        ("rate", &spec.rate, &usual.rate),
        ("window", &spec.window, &usual.window),
        ("bucket", &spec.bucket, &usual.bucket),
        ("burst", &spec.burst, &usual.burst),
        ("sliding", &spec.sliding, &usual.sliding),
        ("pace", &spec.pace, &usual.pace),
        ("members", &spec.members, &usual.members),
        ("error_budget", &spec.error_budget, &usual.error_budget),
        ("cardinality", &spec.cardinality, &usual.cardinality),
    ];
    let mut line = rule.name.clone();
    for (name, value, usual) in settings {
        if let Some(value) = value.as_ref().filter(|_| value != usual) {
            line += &format!(" {name}={value}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<RuleFault> {
        read(text, 3).err().unwrap_or_default()
    }

    #[test]
    fn lines_and_policy_files_give_the_same_rule() {
        let line = "# a comment\napi rate=10/s window=10s # of ours\n";
        let yaml = "limits:\n  - name: api\n    domain: d\n    descriptors: [{key: k}]\n    \
                    rate: 10/s\n    window: 10s\n";
        let (one, other) = (read(line, 3).unwrap(), read(yaml, 3).unwrap());
        assert_eq!(one[0].info, other[0].info);
        assert_eq!(
            (one[0].info.limit, one[0].info.window_ns),
            (100, 10_000_000_000)
        );
        assert_eq!(one[0].info.words, "api rate=10r/s window=10s");
    }

    #[test]
    fn words_give_the_same_rule_again() {
        let lines = "a rate=10/s\nb rate=100/m bucket=10s sliding=strict error_budget=5%\n\
                     c rate=5/s burst=20 cardinality=99\nd rate=60/m pace=strict\n\
                     e rate=60/m pace=paced";
        let first = read(lines, 6).unwrap();
        let printed: Vec<String> = first.iter().map(|held| held.info.words.clone()).collect();
        let again = read(&printed.join("\n"), 6).unwrap();
        for (one, other) in first.iter().zip(&again) {
            assert_eq!(one.info, other.info);
            assert_eq!(one.rule.algorithm, other.rule.algorithm);
            assert_eq!(one.rule.pace, other.rule.pace);
        }
        assert!(printed[3].ends_with("pace=strict members=6"), "{printed:?}");
    }

    #[test]
    fn every_fault_has_its_place() {
        let found = faults("api rate=10/s wndow=10s\n\nb  rate=ten/s  window=1x\n=");
        let places: Vec<_> = found
            .iter()
            .map(|f| (f.line, f.column, f.key.as_str()))
            .collect();
        let wanted = [
            (1, 15, "wndow"),
            (3, 4, "rate"),
            (3, 16, "window"),
            (4, 1, "name"),
        ];
        assert_eq!(places, wanted);
        assert_eq!(found[0].suggestion.as_deref(), Some("window"));
        assert!(found[1].message.contains("ten/s"), "{found:?}");
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_a_reason() {
        for (text, part) in [
            ("", "no rule is written"),
            ("limits: []", "number of rules"),
            ("limits: [{nme: a}]", "name"),
            ("a rate=1/s rate=2/s", "already"),
            ("a rate", "no setting"),
            ("a rate=1/s\na rate=2/s", "is there already"),
        ] {
            let found = faults(text);
            assert!(
                found.iter().any(|f| f.message.contains(part)),
                "{text}: {found:?}"
            );
        }
        assert!(faults(&"a".repeat(RULES_BYTES_MAX + 1))[0]
            .message
            .contains("longer"));
    }
}
