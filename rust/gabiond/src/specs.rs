//! From rules to counters: what table, pump and protocol must know, in one order.
//!
//! I own that order (the rules', then the limits that requests bring) and the choice between new
//! memory and the memory in force. I promise that an error makes nothing. I never decide.

use std::sync::Arc;

use gabion_node::LimiterSpec;
use gabion_rule::limits::DEFAULT_ERROR_BUDGET_PPM;
use gabion_rule::{OverrideUnit, Rule, RuleTable};
use gabion_table::{Mem as _, SubSpec, Table, TableError};

use crate::config::{Gossip, Storage};
use crate::overrides;
use crate::Counters;

/// The counters of one configuration, as each room must know them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Specs {
    pub(crate) table: Vec<SubSpec>,
    pub(crate) pump: Vec<SubSpec>,
    pub(crate) limiters: Vec<LimiterSpec>,
    pub(crate) names: Vec<String>,
    /// Whether limits that requests bring are counted.
    pub(crate) overrides: bool,
}

impl Specs {
    fn of(rules: &RuleTable, override_keys: u32) -> Self {
        let rules = rules.rules();
        let table: Vec<SubSpec> = rules.iter().map(|r| fitted(r, SubSpec::of(r))).collect();
        let pump: Vec<SubSpec> = rules.iter().map(|r| fitted(r, SubSpec::least(r))).collect();
        let limiters = rules.iter().zip(&pump);
        let mut specs = Self {
            limiters: limiters.map(|(rule, sub)| limiter(rule, sub)).collect(),
            pump,
            names: rules.iter().map(Rule::describe).collect(),
            overrides: override_keys > 0,
            table,
        };
        if specs.overrides {
            specs.table.extend(overrides::table_specs(override_keys));
            specs.pump.extend(overrides::pump_specs(override_keys));
            specs.limiters.extend(overrides::limiter_specs());
            specs.names.extend(OverrideUnit::ALL.map(overrides::name));
        }
        specs
    }
}

/// Counters, ready to be used.
#[derive(Debug)]
pub(crate) struct Made {
    /// `None` when there is nothing to count.
    pub(crate) counters: Option<Arc<Counters>>,
    pub(crate) specs: Arc<Specs>,
    /// The table whose rows they take over.
    pub(crate) heir_of: Option<Arc<Counters>>,
    /// They are the memory in force.
    pub(crate) kept: bool,
}

/// The counters of `rules`: the memory of those before when its layout is the same; else new
/// memory, the heir of those before. Limits that requests bring have theirs behind those of the
/// rules; without a setting they are left out where there is no room.
pub(crate) fn counters(
    rules: &RuleTable,
    storage: &Storage,
    notices: &mut Vec<String>,
    before: Option<(&Arc<Counters>, &Specs)>,
) -> Result<Made, TableError> {
    let keys = overrides::cardinality(storage);
    if keys > 0 {
        match make(Specs::of(rules, keys), storage, before) {
            Ok(made) => return Ok(made),
            Err(error) if storage.override_cardinality.is_some() => return Err(error),
            Err(_) if rules.rules().is_empty() => {}
            Err(_) => notices.push(
                "storage.table_bytes has no room for limits that requests bring, so these are \
                 ignored; enlarge it, or set storage.override_cardinality: 0"
                    .to_owned(),
            ),
        }
    }
    make(Specs::of(rules, 0), storage, before)
}

fn make(
    specs: Specs,
    storage: &Storage,
    before: Option<(&Arc<Counters>, &Specs)>,
) -> Result<Made, TableError> {
    let mut made = Made {
        counters: None,
        specs: Arc::new(specs),
        heir_of: None,
        kept: false,
    };
    let subs = &made.specs.table;
    if subs.is_empty() {
        return Ok(made);
    }
    let bytes = usize::try_from(storage.table_bytes).unwrap_or(usize::MAX);
    let Some((old, old_specs)) = before else {
        made.counters = Some(Arc::new(Table::private(bytes, subs)?));
        return Ok(made);
    };
    if old.mem().len() == bytes / 8 {
        if let Ok(shared) = old.share(subs) {
            (made.counters, made.kept) = (Some(Arc::new(shared)), true);
            return Ok(made);
        }
    }
    let mut heir = Table::private(bytes, subs)?;
    heir.inherit(subs, old, &old_specs.table);
    (made.counters, made.heir_of) = (Some(Arc::new(heir)), Some(Arc::clone(old)));
    Ok(made)
}

fn fitted(rule: &Rule, spec: SubSpec) -> SubSpec {
    // A rule that counts nothing needs no rows.
    let cardinality = match rule.mode.counts() {
        true => rule.cardinality,
        false => Some(1),
    };
    SubSpec {
        cardinality,
        ..spec
    }
}

fn limiter(rule: &Rule, sub: &SubSpec) -> LimiterSpec {
    LimiterSpec {
        short: rule.identity().short(),
        digest: rule.digest().0,
        epoch_ns: sub.plan.epoch_ns(),
        live_epochs: sub.plan.live_epochs(),
        limit: sub.plan.limit(),
        error_budget_ppm: rule.error_budget_ppm,
    }
}

/// The same rules with what the member says for all of them: `gossip.target_err_bps` for those that
/// name no budget of their own, and its place for those that are strict.
pub(crate) fn placed(rules: RuleTable, gossip: Option<&Gossip>, place: Option<u32>) -> RuleTable {
    let budget_ppm = gossip.and_then(|gossip| gossip.error_budget_ppm);
    if budget_ppm.is_none() && place.is_none() {
        return rules;
    }
    let attributes = rules.attributes().attributes().clone();
    let changed = rules.rules().iter().cloned().map(|mut rule| {
        if let (Some(ppm), DEFAULT_ERROR_BUDGET_PPM) = (budget_ppm, rule.error_budget_ppm) {
            rule.error_budget_ppm = ppm;
        }
        rule.pace = rule.pace.at(place);
        rule
    });
    // Neither is part of what can conflict; if one were, the rules stay as they are.
    RuleTable::with_attributes(changed.collect(), &attributes).unwrap_or(rules)
}
