//! The rules of one configuration, bound, checked against each other and given to zones.
//!
//! I own which rule counts where and under which index. I promise that the order of rules in a file
//! does not matter to a zone's memory, that two rules never share counters by accident, and that a
//! zone is known by a name that changes when the meaning of its memory does. I never touch memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_admit::headers::RuleText;
use gabion_admit::{Pacing, Plan};
use gabion_node::LimiterSpec;
use gabion_rule::limits::DEFAULT_ERROR_BUDGET_PPM;
use gabion_rule::policy::declared;
use gabion_rule::policy::yaml::nearest;
use gabion_rule::{
    CounterIdentity, KeyHasher, Matching, Mode, Rule, RuleTable, Switch, ValuePattern,
};
use gabion_table::SubSpec;

use crate::error::ConfError;
use crate::orders::{switches, Names};
use crate::settings::Settings;
use crate::words::{Binding, RuleWords, DOMAIN_DEFAULT};

mod sources;

pub use sources::SourceText;

const DIRECTIVE: &str = "gabion_limit_rule";

/// A rule, ready to be asked.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The rule.
    pub rule: Rule,
    /// Names its counters.
    pub identity: CounterIdentity,
    /// Where each descriptor's value comes from, in the rule's order.
    pub bindings: Vec<Binding>,
    /// nginx text of the condition that exempts.
    pub except_if: Option<String>,
    /// nginx text of the condition without which the rule does not apply.
    pub only_if: Option<String>,
    /// What an empty value counts as; without it the rule is left out.
    pub fallback: Option<String>,
    /// Index of its zone.
    pub zone: usize,
    /// Index within its zone's table.
    pub index: u16,
    /// What the orders for it are called.
    pub order_names: Names,
    /// Its header texts.
    pub text: RuleText,
    /// The rule's own limit when it has tiers: every charge on its counters brings a limit.
    pub tiered_limit: Option<u32>,
}

/// A zone with the rules it holds.
#[derive(Clone, Debug, Default)]
pub struct ZonePlan {
    /// Name in the configuration.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// Indices into [`Catalog::rules`], in the order of the table.
    pub rules: Vec<usize>,
    /// As the table needs them.
    pub subs: Vec<SubSpec>,
    /// As the pump needs them: by the smallest limit that a key may be held to.
    pub pump: Vec<SubSpec>,
    /// As the node needs them.
    pub limiters: Vec<LimiterSpec>,
    /// What the orders for them are called.
    pub order_names: Vec<Names>,
    /// Name of the shared memory: the same as long as its words mean the same.
    pub memory_name: String,
}

impl ZonePlan {
    /// What its rules are called, in the order of the table.
    pub fn names(&self, catalog: &Catalog) -> Vec<String> {
        let rules = self.rules.iter().filter_map(|at| catalog.rules.get(*at));
        rules.map(|bound| bound.rule.describe()).collect()
    }
}

/// Where the state of a flag is read: the first rule that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagPlace {
    /// Index of the zone.
    pub zone: usize,
    /// Index of the rule in the zone's table.
    pub index: u16,
    /// Which of the rule's flags it is.
    pub slot: usize,
    /// What the flag is called.
    pub name: Option<u64>,
}

/// All of it.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// The same rules, by which requests are asked.
    pub table: Arc<RuleTable>,
    /// By index of the table's flags.
    pub flags: Vec<FlagPlace>,
    /// By slot of the table's sources; empty when no level asks for attributes.
    pub sources: Vec<SourceText>,
    /// In the order of the configuration.
    pub rules: Vec<Bound>,
    /// In the order of the configuration.
    pub zones: Vec<ZonePlan>,
    /// What the operator should know.
    pub notices: Vec<String>,
}

impl Catalog {
    /// Builds the catalog of a finished configuration. `hasher` is the keys' when others share it.
    ///
    /// # Errors
    /// The first rule that cannot be, or cannot be beside another.
    pub fn build(settings: &Settings, hasher: Option<&KeyHasher>) -> Result<Catalog, ConfError> {
        let (mut notices, mut rules) = (Vec::new(), Vec::new());
        let is_of_file = |words: &&RuleWords| {
            let rules = &settings.file_rules;
            words.bare && rules.iter().any(|rule| is_same(words, rule))
        };
        let (of_file, own): (Vec<_>, Vec<_>) = settings.rules.iter().partition(is_of_file);
        for words in own {
            rules.push(bind_words(words, settings, &mut notices)?);
        }
        // The file keeps its order, since it may matter.
        for rule in &settings.file_rules {
            let words = of_file.iter().copied().find(|words| is_same(words, rule));
            rules.push(bind_file_rule(rule, words, settings)?);
        }
        for bound in &mut rules {
            let budget = settings.error_budget_ppm;
            if let (Some(ppm), DEFAULT_ERROR_BUDGET_PPM) = (budget, bound.rule.error_budget_ppm) {
                bound.rule.error_budget_ppm = ppm;
            }
            let place = settings.member_place;
            if let (Some(_), None) = (bound.rule.pace.members(), place) {
                let why = "a rule is pace=strict, so each member has one part of its limit, and \
                           this one does not say which; write gabion_runtime_member_place 0 on \
                           the first, 1 on the next, and so on";
                return Err(ConfError::new(DIRECTIVE, &bound.rule.name, why));
            }
            bound.rule.pace = bound.rule.pace.at(place);
        }
        check_names(&rules)?;
        let plain = rules.iter().map(|b| b.rule.clone()).collect();
        let table = RuleTable::with_attributes(plain, &settings.attributes).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            ConfError::new(DIRECTIVE, "", lines.join("; "))
        })?;
        let sources = sources::of(&table, settings, &mut notices)?;
        let mut catalog = Catalog {
            table: Arc::new(table),
            flags: Vec::new(),
            sources,
            rules,
            zones: Vec::new(),
            notices,
        };
        catalog.give_to_zones(settings, hasher);
        catalog.place_flags();
        Ok(catalog)
    }

    fn place_flags(&mut self) {
        let place = |flag: &gabion_rule::Flag| {
            let of = |bound: &Bound| {
                let is_it = |switch: &Option<&Switch>| switch.is_some_and(|s| s.flag == *flag);
                let slot = switches(&bound.rule).iter().position(is_it)?;
                Some(FlagPlace {
                    zone: bound.zone,
                    index: bound.index,
                    slot,
                    name: bound.order_names.flags[slot],
                })
            };
            self.rules.iter().find_map(of)
        };
        self.flags = self.table.flags().iter().filter_map(place).collect();
    }

    fn give_to_zones(&mut self, settings: &Settings, hasher: Option<&KeyHasher>) {
        for (at, words) in settings.zones.iter().enumerate() {
            let mut rules: Vec<usize> = (0..self.rules.len())
                .filter(|i| self.rules[*i].zone == at)
                .collect();
            rules.sort_by_key(|i| self.rules[*i].identity.0);
            for (index, rule) in rules.iter().enumerate() {
                self.rules[*rule].index = u16::try_from(index).unwrap_or(u16::MAX);
            }
            let of = |spec: fn(&Rule) -> SubSpec| -> Vec<SubSpec> {
                let rules = rules.iter().map(|i| &self.rules[*i].rule);
                rules.map(|rule| fitted(rule, spec(rule))).collect()
            };
            let (subs, pump) = (of(SubSpec::of), of(SubSpec::least));
            let limiters = rules
                .iter()
                .zip(&pump)
                .map(|(i, sub)| limiter(&self.rules[*i], sub));
            let limiters = limiters.collect();
            let order_names = rules.iter().map(|i| self.rules[*i].order_names).collect();
            if rules.is_empty() {
                let name = &words.name;
                let text = format!("zone \"{name}\" holds no rule; its memory is not taken");
                self.notices.push(text);
            }
            self.zones.push(ZonePlan {
                name: words.name.clone(),
                bytes: words.bytes,
                memory_name: memory_name(&words.name, &subs, hasher),
                rules,
                subs,
                pump,
                limiters,
                order_names,
            });
        }
    }

    /// Whether a rule is asked by its bindings alone, and says nothing of others.
    pub fn is_plain(&self, at: u16) -> bool {
        let rule = self.table.rule(at);
        let alone = |rule: &Rule| {
            rule.matching != Matching::Request && rule.replaces.is_empty() && !rule.last
        };
        rule.is_some_and(alone) && self.table.is_plain(at)
    }

    /// Whether `gabion_domain NAME` means any rule.
    ///
    /// # Errors
    /// When it does not, with the domains that would.
    pub fn check_domain(&self, name: &str) -> Result<(), ConfError> {
        if !self.table.request_rules(name.as_bytes()).is_empty() {
            return Ok(());
        }
        let of = |bound: &&Bound| bound.rule.matching == Matching::Request;
        let domains = self.rules.iter().filter(of).map(|b| b.rule.domain.as_str());
        let domains: std::collections::BTreeSet<&str> = domains.collect();
        if domains.contains(name) {
            return Ok(()); // all of its rules are disabled
        }
        let known = match domains.is_empty() {
            true => String::new(),
            false => {
                let list: Vec<&str> = domains.iter().copied().collect();
                let near = nearest(name, domains.iter().copied());
                let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
                format!("; there are {}{near}", list.join(", "))
            }
        };
        let why = format!(
            "no rule of this domain has match: request; write it into gabion_rules_file, or name \
             rules with gabion_limit{known}"
        );
        Err(ConfError::new("gabion_domain", name, why))
    }

    /// The rule that `gabion_limit NAME` means.
    ///
    /// # Errors
    /// When there is none, with the nearest name.
    pub fn find(&self, name: &str) -> Result<usize, ConfError> {
        if let Some(at) = self.rules.iter().position(|b| b.rule.name == name) {
            return Ok(at);
        }
        let near = nearest(name, self.rules.iter().map(|b| b.rule.name.as_str()));
        let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
        let why = format!("there is no such rule; declare it with gabion_limit_rule{near}");
        Err(ConfError::new("gabion_limit", name, why))
    }
}

/// Where a rule was written, for messages that come once the whole file is read.
fn at(words: &RuleWords) -> String {
    let place = words.spec.place.as_ref();
    place.map_or(String::new(), |place| format!(" (rule at {place})"))
}

/// Whether the words are about this rule of the file.
fn is_same(words: &RuleWords, rule: &Rule) -> bool {
    let domain = words.spec.domain.as_ref();
    words.bare && words.spec.name == rule.name && domain.is_none_or(|d| *d == rule.domain)
}

/// `gabion_limit` could not tell two rules of one name apart.
fn check_names(rules: &[Bound]) -> Result<(), ConfError> {
    let mut names = BTreeMap::new();
    for bound in rules {
        let domain = &bound.rule.domain;
        let other = names.insert(&bound.rule.name, domain);
        if let Some(other) = other.filter(|other| *other != domain) {
            let why = format!(
                "the name stands for rules of two domains, {other} and {domain}; gabion_limit \
                 could not tell them apart: rename one and give it limiter={}",
                bound.rule.limiter
            );
            return Err(ConfError::new(DIRECTIVE, &bound.rule.name, why));
        }
    }
    Ok(())
}

fn bind_words(
    words: &RuleWords,
    settings: &Settings,
    notices: &mut Vec<String>,
) -> Result<Bound, ConfError> {
    let name = &words.spec.name;
    if words.bindings.is_empty() {
        let why = "it says not what to count by; write a binding such as $binary_remote_addr";
        return Err(ConfError::new(DIRECTIVE, name, why.to_owned() + &at(words)));
    }
    let mut spec = words.spec.clone();
    spec.domain.get_or_insert_with(|| DOMAIN_DEFAULT.to_owned());
    let (rule, said) = spec.build_all().map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        ConfError::new(DIRECTIVE, name, lines.join("; ") + &at(words))
    })?;
    notices.extend(said.iter().map(ToString::to_string));
    bound(rule, words.bindings.clone(), Some(words), settings)
}

/// A rule of the file: bound as its directive says, or each key to the variable of its name.
fn bind_file_rule(
    rule: &Rule,
    words: Option<&RuleWords>,
    settings: &Settings,
) -> Result<Bound, ConfError> {
    if rule.matching == Matching::Request {
        return bind_request_rule(rule, words, settings);
    }
    let mut bindings = Vec::new();
    let mut given: Vec<&Binding> = words.iter().flat_map(|w| &w.bindings).collect();
    for pattern in &rule.descriptors {
        let key = String::from_utf8_lossy(&pattern.key).into_owned();
        if let Some(at) = given.iter().position(|b| b.key == key) {
            bindings.push(given.remove(at).clone());
            continue;
        }
        let template = match &pattern.value {
            ValuePattern::Exact(value) if key == "generic_key" => {
                String::from_utf8_lossy(value).replace('$', "")
            }
            _ if key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                format!("${{{key}}}")
            }
            _ => {
                let why = format!(
                    "nothing says where \"{key}\" comes from; write gabion_limit_rule {} \
                     {key}:$var",
                    rule.name
                );
                return Err(ConfError::new("gabion_rules_file", &rule.name, why));
            }
        };
        bindings.push(Binding { key, template });
    }
    if let Some(extra) = given.first() {
        let why = format!(
            "rule {} of the file has no descriptor \"{}\"",
            rule.name, extra.key
        );
        return Err(ConfError::new(DIRECTIVE, &extra.key, why));
    }
    bound(rule.clone(), bindings, words, settings)
}

/// A rule that picks its keys from the request's attributes.
fn bind_request_rule(
    rule: &Rule,
    words: Option<&RuleWords>,
    settings: &Settings,
) -> Result<Bound, ConfError> {
    let bad = |value: &str, why: &str| {
        let place = words.map_or(String::new(), at);
        Err(ConfError::new(DIRECTIVE, value, why.to_owned() + &place))
    };
    if let Some(binding) = words.and_then(|w| w.bindings.first()) {
        let why =
            "the rule has match: request, and picks its keys itself; say where the attribute \
                   comes from with gabion_bind KEY $variable";
        return bad(&binding.key, why);
    }
    let conditions = words.map(|w| [&w.except_if, &w.only_if, &w.fallback]);
    if let Some(text) = conditions.into_iter().flatten().flatten().next() {
        let why = "conditions and fallbacks of a rule with match: request stand in its file, so \
                   that they hold at every door";
        return bad(text, why);
    }
    bound(rule.clone(), Vec::new(), words, settings)
}

fn bound(
    mut rule: Rule,
    bindings: Vec<Binding>,
    words: Option<&RuleWords>,
    settings: &Settings,
) -> Result<Bound, ConfError> {
    let wanted = words.and_then(|w| w.zone.as_deref());
    let zone = match wanted {
        None => 0,
        Some(name) => {
            let at = settings.zones.iter().position(|zone| zone.name == name);
            at.ok_or_else(|| {
                let near = nearest(name, settings.zones.iter().map(|z| z.name.as_str()));
                let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
                let why = format!("there is no such zone; declare it with gabion_limit_zone{near}");
                ConfError::new(DIRECTIVE, format!("zone={name}"), why)
            })?
        }
    };
    if let Some(switch) = words
        .map(|words| switch(words, settings))
        .transpose()?
        .flatten()
    {
        rule.switch = Some(switch);
    }
    Ok(Bound {
        identity: rule.identity(),
        order_names: Names::of(&rule),
        text: RuleText::new(&rule),
        tiered_limit: rule.tiers.is_some().then(|| rule.algorithm.limit()),
        rule,
        bindings,
        except_if: words.and_then(|w| w.except_if.clone()),
        only_if: words.and_then(|w| w.only_if.clone()),
        fallback: words.and_then(|w| w.fallback.clone()),
        zone,
        index: 0,
    })
}

/// The flag that a directive names.
fn switch(words: &RuleWords, settings: &Settings) -> Result<Option<Switch>, ConfError> {
    let (name, word, on) = match (&words.if_flag, &words.unless_flag) {
        (Some(name), _) => (name, "if_flag", true),
        (None, Some(name)) => (name, "unless_flag", false),
        (None, None) => return Ok(None),
    };
    let flag = declared(name, &settings.flags).map_err(|(_, near)| {
        let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
        let why = format!("there is no such flag; declare it with gabion_flag{near}");
        ConfError::new(DIRECTIVE, format!("{word}={name}"), why)
    })?;
    Ok(Some(Switch { flag, on }))
}

fn fitted(rule: &Rule, spec: SubSpec) -> SubSpec {
    // A rule that never counts needs no rows.
    let cardinality = match rule.mode {
        Mode::Unlimited => Some(1),
        _ => rule.cardinality,
    };
    SubSpec {
        cardinality,
        ..spec
    }
}

fn limiter(bound: &Bound, sub: &SubSpec) -> LimiterSpec {
    LimiterSpec {
        short: bound.identity.short(),
        digest: bound.rule.digest().0,
        epoch_ns: sub.plan.epoch_ns(),
        live_epochs: sub.plan.live_epochs(),
        limit: sub.plan.limit(),
        error_budget_ppm: bound.rule.error_budget_ppm,
    }
}

/// The limit of a window is not in the name, so that a reload may change it and keep the counts.
/// From this limit on rows look otherwise.
const WIDE_LIMIT: u32 = 1 << 23;

fn memory_name(name: &str, subs: &[SubSpec], hasher: Option<&KeyHasher>) -> String {
    let naming = KeyHasher::new(*b"zone memory name");
    let mut text = Vec::new();
    for sub in subs {
        text.extend(sub.identity.0);
        let shape = match &sub.plan {
            // A paced row has a word more.
            Plan::Window(window) if window.pacing == Pacing::Paced => {
                format!("{}|paced", window.limit >= WIDE_LIMIT)
            }
            Plan::Window(window) => format!("{}", window.limit >= WIDE_LIMIT),
            Plan::Gcra(bucket) => format!("{bucket:?}"),
        };
        text.extend(format!("|{shape}|{:?}|", sub.cardinality).into_bytes());
    }
    // The secret is not told: this is one keyed hash under it.
    let secret = hasher.map(|h| h.key(&CounterIdentity([0; 16]), &[], 0).to_bytes());
    let entries: [(&[u8], &[u8]); 2] = [
        (b"a", &text),
        (b"b", secret.as_ref().map_or(&[], |s| s.as_slice())),
    ];
    let hash = naming.key(&CounterIdentity([0; 16]), &entries, 0);
    format!("gabion_{name}_{:012x}", hash.a)
}

#[cfg(test)]
mod tests;
