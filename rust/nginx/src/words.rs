//! The words of `gabion_limit_rule`.
//!
//! I own the grammar `NAME BINDING... [setting=value]... [dry_run] [last]`. I promise that every
//! word is understood or refused with what to write, and that a rule means the same here and in
//! YAML, since both become a [`RuleSpec`]. I never look at nginx: templates are handed on as text.

use gabion_rule::policy::yaml::nearest;
use gabion_rule::{DescriptorSpec, Place, RuleSpec};

use crate::error::ConfError;
use crate::limits::BINDINGS_MAX;

const DIRECTIVE: &str = "gabion_limit_rule";
/// Domain of rules written in nginx's own words.
pub const DOMAIN_DEFAULT: &str = "nginx";

/// Where a descriptor's value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The descriptor's key.
    pub key: String,
    /// nginx text with variables.
    pub template: String,
}

/// One rule as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleWords {
    /// What becomes the rule.
    pub spec: RuleSpec,
    /// In the order of the rule's descriptors.
    pub bindings: Vec<Binding>,
    /// nginx text of the condition that exempts.
    pub except_if: Option<String>,
    /// nginx text of the condition without which the rule does not apply.
    pub only_if: Option<String>,
    /// What an empty value counts as.
    pub fallback: Option<String>,
    /// Zone that holds the counters; the first when `None`.
    pub zone: Option<String>,
    /// Name of the flag that must be on.
    pub if_flag: Option<String>,
    /// Name of the flag that must be off.
    pub unless_flag: Option<String>,
    /// No setting of the limit was written: the limit is in the file of rules.
    pub bare: bool,
}

/// Settings that go to the rule as they are.
pub const SETTINGS: [&str; 18] = [
    "rate",
    "window",
    "bucket",
    "burst",
    "cardinality",
    "mode",
    "domain",
    "limiter",
    "sliding",
    "pace",
    "members",
    "error_budget",
    "except_if",
    "only_if",
    "fallback",
    "zone",
    "if_flag",
    "unless_flag",
];

/// Settings that a rule of a file may be given here, too, beside conditions.
const OF_ANY_RULE: [&str; 5] = ["fallback", "zone", "domain", "if_flag", "unless_flag"];

/// Reads the arguments of one `gabion_limit_rule`, its name first.
///
/// # Errors
/// The first word that is wrong.
pub fn rule_words(args: &[&str], place: Place) -> Result<RuleWords, ConfError> {
    let bad = |value: &str, why: String| ConfError::new(DIRECTIVE, value, why);
    let Some((name, rest)) = args.split_first() else {
        return Err(bad(
            "",
            "a name and what to count by are missing; write \
             gabion_limit_rule NAME $binary_remote_addr rate=10r/s"
                .into(),
        ));
    };
    if name.contains(['=', ':', '$']) {
        let why = "the first word is the rule's name, of letters, digits, - and _";
        return Err(bad(name, why.into()));
    }
    let mut words = RuleWords {
        bare: true,
        ..RuleWords::default()
    };
    words.spec.name = (*name).to_owned();
    words.spec.place = Some(place);
    for word in rest {
        if let Some(binding) = binding(word)? {
            if words.bindings.iter().any(|b| b.key == binding.key) {
                let why = format!(
                    "the key \"{}\" is bound twice; name it otherwise",
                    binding.key
                );
                return Err(bad(word, why));
            }
            words.bindings.push(binding);
        } else if *word == "dry_run" {
            set(&mut words, "mode", "dry_run", word)?;
        } else if *word == "last" {
            words.spec.last = true;
            words.bare = false;
        } else if let Some((setting, value)) = word.split_once('=') {
            set(&mut words, setting, value, word)?;
        } else {
            let why = "it is neither a binding ($var, name:$var, name:\"text-$var\") nor a \
                       setting (rate=10r/s); see the directive's reference";
            return Err(bad(word, why.into()));
        }
    }
    if words.bindings.len() > BINDINGS_MAX {
        let why = format!("more than {BINDINGS_MAX} bindings; join some in one template");
        return Err(bad(name, why));
    }
    words.spec.descriptors = words.bindings.iter().map(descriptor).collect();
    Ok(words)
}

fn descriptor(binding: &Binding) -> DescriptorSpec {
    DescriptorSpec {
        key: binding.key.clone().into_bytes(),
        value: None,
        ..DescriptorSpec::default()
    }
}

/// `$var`, `${var}`, `name:$var`, `name:"template"`; `None` when the word is no binding.
fn binding(word: &str) -> Result<Option<Binding>, ConfError> {
    let bad = |why: &str| Err(ConfError::new(DIRECTIVE, word, why));
    if let Some(variable) = word.strip_prefix('$') {
        let braces = variable.strip_prefix('{').and_then(|v| v.strip_suffix('}'));
        let name = braces.unwrap_or(variable);
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return bad("it is no variable; a text with variables needs a key: key:\"a-$b\"");
        }
        return Ok(Some(Binding {
            key: name.to_owned(),
            template: word.to_owned(),
        }));
    }
    let Some((key, value)) = word.split_once(':') else {
        return Ok(None);
    };
    if key.contains('=') {
        return Ok(None); // a setting whose value has a colon
    }
    let starts = value.starts_with('"');
    let value = match value.strip_prefix('"').and_then(|v| v.strip_suffix('"')) {
        Some(inner) => inner,
        None if starts => {
            return bad("the quote is not closed in this word; quote the whole: \"key:a b $c\"")
        }
        None => value,
    };
    if key.is_empty() {
        return bad("the key before the colon is missing; write key:$var");
    }
    // In quotes a constant is meant: one counter for all, as in Envoy's generic_key.
    if !value.contains('$') && (!starts || value.is_empty()) {
        return bad(
            "its value has no variable; write key:$var, or key:\"text\" when all requests \
             share one counter",
        );
    }
    Ok(Some(Binding {
        key: key.to_owned(),
        template: value.to_owned(),
    }))
}

/// Names of the variables in nginx text, in lower case as nginx keeps them. Captures of regular
/// expressions (`$1`) are not named.
pub fn variables(template: &str) -> Vec<String> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = Vec::new();
    for part in template.split('$').skip(1) {
        let part = part.strip_prefix('{').unwrap_or(part);
        let end = part.find(|c| !in_name(c)).unwrap_or(part.len());
        let name = part[..end].to_ascii_lowercase();
        if !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) {
            names.push(name);
        }
    }
    names
}

fn set(words: &mut RuleWords, setting: &str, value: &str, word: &str) -> Result<(), ConfError> {
    let spec = &mut words.spec;
    let slot = match setting {
        "rate" => &mut spec.rate,
        "window" => &mut spec.window,
        "bucket" => &mut spec.bucket,
        "burst" => &mut spec.burst,
        "cardinality" => &mut spec.cardinality,
        "mode" => &mut spec.mode,
        "domain" => &mut spec.domain,
        "limiter" => &mut spec.limiter,
        "sliding" => &mut spec.sliding,
        "pace" => &mut spec.pace,
        "members" => &mut spec.members,
        "error_budget" => &mut spec.error_budget,
        "except_if" => &mut words.except_if,
        "only_if" => &mut words.only_if,
        "fallback" => &mut words.fallback,
        "zone" => &mut words.zone,
        "if_flag" => &mut words.if_flag,
        "unless_flag" => &mut words.unless_flag,
        _ => {
            let near = match setting {
                "flag" => Some("if_flag"), // what it was called once
                _ => nearest(setting, SETTINGS),
            };
            let near = near.map_or(String::new(), |n| format!("; did you mean {n}=?"));
            let why = format!("\"{setting}\" is no setting of a rule{near}");
            return Err(ConfError::new(DIRECTIVE, word, why));
        }
    };
    if let Some(first) = slot {
        let why = format!("{setting} is {first} already; keep one of them");
        return Err(ConfError::new(DIRECTIVE, word, why));
    }
    if value.is_empty() {
        let why = format!("the value is missing; write {setting}=VALUE or leave it out");
        return Err(ConfError::new(DIRECTIVE, word, why));
    }
    let condition = matches!(setting, "except_if" | "only_if");
    if condition && !value.contains('$') {
        let why = format!("a condition is a variable; write {setting}=$name");
        return Err(ConfError::new(DIRECTIVE, word, why));
    }
    if setting == "fallback" && value.contains('$') {
        let why = "it is one text for all, without variables; a map can choose between values";
        return Err(ConfError::new(DIRECTIVE, word, why));
    }
    *slot = Some(value.to_owned());
    let of_limit = !condition && !OF_ANY_RULE.contains(&setting);
    words.bare &= !of_limit;
    if words.if_flag.is_some() && words.unless_flag.is_some() {
        let why = "a rule goes by one flag: keep if_flag= or unless_flag=";
        return Err(ConfError::new(DIRECTIVE, word, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<RuleWords, ConfError> {
        let args: Vec<&str> = line.split(' ').collect();
        rule_words(&args, Place::new("nginx.conf", 7, 0))
    }

    #[test]
    fn bindings_in_all_their_forms() {
        let words = read("r $binary_remote_addr tenant:$http_x_tenant both:\"a-$b-$c\" rate=10r/s")
            .unwrap();
        let of = |key: &str, template: &str| Binding {
            key: key.into(),
            template: template.into(),
        };
        assert_eq!(
            words.bindings,
            [
                of("binary_remote_addr", "$binary_remote_addr"),
                of("tenant", "$http_x_tenant"),
                of("both", "a-$b-$c"),
            ]
        );
        assert_eq!(words.spec.rate.as_deref(), Some("10r/s"));
        assert_eq!(words.spec.descriptors.len(), 3);
        assert!(!words.bare);
        assert_eq!(
            read("r ${arg_k} rate=1r/s").unwrap().bindings[0].key,
            "arg_k"
        );
        let constant = read("r route:\"api\" rate=1r/s").unwrap();
        assert_eq!(constant.bindings, [of("route", "api")]);
    }

    #[test]
    fn settings_reach_the_rule_and_mean_what_yaml_means() {
        let words = read("r $a rate=600r/m window=1m bucket=1s mode=dry_run domain=d limiter=l");
        let (rule, _) = words.unwrap().spec.build().unwrap();
        let yaml = "limits: [{name: other, domain: d, limiter: l, descriptors: [{key: a}], \
                    rate: 600r/m, window: 1m, bucket: 1s}]";
        let policy = gabion_rule::policy::parse_limits("x", yaml).unwrap();
        assert_eq!(rule.identity(), policy.rules[0].identity());
        let words = read("r $a rate=1r/s dry_run except_if=$internal zone=z").unwrap();
        assert_eq!(words.spec.mode.as_deref(), Some("dry_run"));
        assert_eq!(words.except_if.as_deref(), Some("$internal"));
        assert_eq!(words.zone.as_deref(), Some("z"));
        let words = read("r $a rate=1r/s only_if=$api fallback=none").unwrap();
        assert_eq!(words.only_if.as_deref(), Some("$api"));
        assert_eq!(words.fallback.as_deref(), Some("none"));
        assert!(
            read("r only_if=$api fallback=none unless_flag=f")
                .unwrap()
                .bare
        );
        let words = read("r $a rate=1r/s if_flag=f last").unwrap();
        assert_eq!(words.if_flag.as_deref(), Some("f"));
        assert!(words.spec.last);
        assert!(read("r key:$a zone=z").unwrap().bare);
    }

    #[test]
    fn variables_of_a_template() {
        assert_eq!(variables("a-$Host-${arg_k}x$1$"), ["host", "arg_k"]);
        assert!(variables("plain").is_empty());
    }

    #[test]
    fn every_wrong_word_is_refused_with_what_to_write() {
        for (line, says) in [
            ("$a rate=1r/s", "first word is the rule's name"),
            ("r $a rte=1r/s", "did you mean rate=?"),
            ("r $a rate=1r/s rate=2r/s", "rate is 1r/s already"),
            ("r $a rate= ", "the value is missing"),
            ("r $a $a", "bound twice"),
            ("r $a fast", "neither a binding"),
            ("r key:text rate=1r/s", "no variable"),
            ("r :$a", "the key before the colon"),
            ("r key:\"a $b", "the quote is not closed"),
            ("r $a-b", "it is no variable"),
            ("r $a except_if=internal", "write except_if=$name"),
            ("r $a only_if=internal", "write only_if=$name"),
            (
                "r $a if_flag=a unless_flag=b",
                "keep if_flag= or unless_flag=",
            ),
            ("r $a flag=a", "did you mean if_flag=?"),
            ("r $a fallback=$b", "without variables"),
            ("r $a mode=enforce dry_run", "mode is enforce already"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
            assert!(error.starts_with("\"gabion_limit_rule\""), "{error}");
        }
        assert!(rule_words(&[], Place::new("f", 1, 0)).is_err());
    }
}
