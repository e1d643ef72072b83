//! Which attributes a rule asks for, found once when the table is built.
//!
//! I own the references of one rule, in the shape of the rule. I promise that a request looks up
//! nothing by name that its front end could have been told before. I never read a value.

use crate::attributes::{AttributeRef, BoundAttributes, SourceNames};
use crate::condition::Alternative;
use crate::error::RuleError;
use crate::operator::Switch;
use crate::rule::{Matching, Rule};
use crate::tier::Tiers;

/// Name of the attribute that says that a response is known.
// spec: pol-16
pub(crate) const STATUS: &str = "status";

/// The references of one rule.
#[derive(Debug)]
pub(crate) struct Wants {
    pub(crate) status: AttributeRef,
    /// In the order of the descriptors.
    pub(crate) keys: Box<[AttributeRef]>,
    pub(crate) only_if: Refs,
    pub(crate) except_if: Refs,
    pub(crate) tier: AttributeRef,
    pub(crate) flag_by: AttributeRef,
    pub(crate) charge_flag_by: AttributeRef,
    /// In the order of the log's fields.
    pub(crate) log: Box<[AttributeRef]>,
}

/// Of each clause of each alternative.
pub(crate) type Refs = Box<[Box<[AttributeRef]>]>;

/// Stands where a rule asks for nothing, and for rules that are asked with their own entries.
pub(crate) const NOTHING: AttributeRef = AttributeRef::Source(u16::MAX);

impl Wants {
    /// Of a rule that is not plain.
    ///
    /// # Errors
    /// More names than there may be.
    pub(crate) fn of(
        rule: &Rule,
        bound: &mut BoundAttributes,
        names: &mut SourceNames,
    ) -> Result<Self, RuleError> {
        let mut finder = Finder {
            is_request: rule.matching == Matching::Request,
            bound,
            names,
        };
        let charge_switch = rule
            .charge
            .as_ref()
            .and_then(|charge| charge.switch.as_ref());
        Ok(Wants {
            status: finder.find(Some(STATUS.as_bytes()))?,
            keys: {
                let keys = rule.descriptors.iter();
                let refs = keys.map(|part| finder.find(Some(&part.key)));
                refs.collect::<Result<_, _>>()?
            },
            only_if: finder.refs(&rule.only_if)?,
            except_if: finder.refs(&rule.except_if)?,
            tier: finder.find(rule.tiers.as_ref().map(Tiers::by))?,
            flag_by: finder.find(by(rule.switch.as_ref()))?,
            charge_flag_by: finder.find(by(charge_switch))?,
            log: {
                let fields = rule.log.iter().flat_map(|log| &log.fields);
                let refs = fields.map(|name| finder.find(Some(name.as_bytes())));
                refs.collect::<Result<_, _>>()?
            },
        })
    }
}

fn by(switch: Option<&Switch>) -> Option<&[u8]> {
    switch?.flag.by.as_deref()
}

struct Finder<'b> {
    is_request: bool,
    bound: &'b mut BoundAttributes,
    names: &'b mut SourceNames,
}

impl Finder<'_> {
    fn find(&mut self, name: Option<&[u8]>) -> Result<AttributeRef, RuleError> {
        match name {
            Some(name) if self.is_request => self.bound.reference(name, self.names),
            _ => Ok(NOTHING),
        }
    }

    fn refs(&mut self, list: &[Alternative]) -> Result<Refs, RuleError> {
        let mut all = Vec::with_capacity(list.len());
        for alternative in list {
            let clauses = alternative.clauses.iter();
            let refs = clauses.map(|clause| self.find(Some(&clause.key)));
            all.push(refs.collect::<Result<_, _>>()?);
        }
        Ok(all.into())
    }
}
