//! One request against the rules: which apply, with which key and limit, and why others do not.
//!
//! I own the order of business that both doors follow: phase, flags, conditions and keys, then
//! `replaces`, then `last`, then the cap. I promise that each flag is read once per request, that
//! nothing here allocates or locks, and that what cannot be evaluated leaves its rule out under its
//! own name. I never count and never decide: that is for `table`.

use std::cell::RefCell;
use std::fmt;

use arrayvec::ArrayVec;

use crate::attributes::{AttributeRef, Found, Resolver, Source};
use crate::condition::any_holds;
use crate::key::{Key, KeyHasher};
use crate::limits::{
    MAX_DESCRIPTOR_ENTRIES, MAX_FLAGS, MAX_MATCHED_RULES, MAX_REQUEST_RULES, MAX_STANDING,
};
use crate::marks::Mark;
use crate::operator::{flag_key, Flag, Share, Switch};
use crate::rule::{DescriptorPattern, Rule};
use crate::table::{RuleIdx, RuleTable};
use crate::tier::ChargeAfter;
use crate::wants::{Wants, STATUS};

/// Position of a flag among those that the rules of a table name: [`RuleTable::flags`].
pub type FlagIdx = u16;

/// The attributes of one request: what its door sends, and what is derived of it.
pub trait Values {
    /// The value of an attribute, by its name and by what the table bound the name to.
    fn value(&self, name: &[u8], at: AttributeRef) -> Found<'_>;
}

impl<'r, S: Source<'r>> Values for Resolver<'r, S> {
    #[inline]
    fn value(&self, _name: &[u8], at: AttributeRef) -> Found<'_> {
        Resolver::value(self, at)
    }
}

/// The entries of a descriptor as attributes; of equal keys the first one counts.
#[derive(Clone, Copy, Debug)]
pub struct Entries<'e> {
    /// Keys and values, as they are counted by.
    pub entries: &'e [(&'e [u8], &'e [u8])],
    /// Whether `path` may carry a query, which conditions do not look at.
    // spec: pol-10
    pub has_query: bool,
}

impl Values for Entries<'_> {
    fn value(&self, name: &[u8], _at: AttributeRef) -> Found<'_> {
        let entry = self.entries.iter().find(|(key, _)| *key == name);
        match entry.map(|(_, value)| *value) {
            Some(value) if self.has_query && name == b"path" => Found::of(without_query(value)),
            Some(value) => Found::of(value),
            None => Found::Absent,
        }
    }
}

/// The value of `path` up to its query or fragment. Doors whose path carries one use it.
// spec: pol-10
pub fn without_query(path: &[u8]) -> &[u8] {
    let end = path.iter().position(|byte| matches!(byte, b'?' | b'#'));
    end.map_or(path, |end| &path[..end])
}

/// The states of the flags as one request sees them: each is read once, whatever asks for it.
// spec: pol-12
pub struct FlagStates<'f> {
    ask: &'f dyn Fn(FlagIdx) -> Option<Share>,
    known: RefCell<ArrayVec<(FlagIdx, Option<Share>), MAX_FLAGS>>,
}

impl<'f> FlagStates<'f> {
    /// Reads flags with `ask`, at most once each: what a flag was set to, `None` for its default.
    #[inline]
    pub fn new(ask: &'f dyn Fn(FlagIdx) -> Option<Share>) -> Self {
        FlagStates {
            ask,
            known: RefCell::new(ArrayVec::new()),
        }
    }

    fn share(&self, index: FlagIdx, flag: &Flag) -> Share {
        let mut known = self.known.borrow_mut();
        let set = match known.iter().find(|(at, _)| *at == index) {
            Some((_, set)) => *set,
            None => {
                let set = (self.ask)(index);
                // There are no more flags than places.
                let _ = known.try_push((index, set));
                set
            }
        };
        set.unwrap_or(flag.default)
    }
}

impl fmt::Debug for FlagStates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlagStates({:?})", self.known)
    }
}

/// What a request is asked with, beside its attributes.
#[derive(Clone, Copy)]
pub struct Context<'c> {
    /// Makes the keys of counters.
    pub hasher: &'c KeyHasher,
    /// The reset era of a rule's counters.
    pub era: &'c dyn Fn(RuleIdx) -> u32,
    /// The flags, as this request sees them.
    pub flags: &'c FlagStates<'c>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("flags", self.flags)
            .finish_non_exhaustive()
    }
}

/// A rule that applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applies {
    /// Which rule.
    pub rule: RuleIdx,
    /// Its counter, in the reset era that is in force.
    pub key: Key,
    /// The limit of the request's tier; `None` when the rule has no tiers. A rule that has some
    /// brings its limit with every charge.
    pub limit: Option<u32>,
    /// When it is counted.
    pub counted: Counted,
}

/// When a request is counted by a rule.
// spec: pol-16
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counted {
    /// When it is asked.
    Now,
    /// When its response is known. Until then it is read: denied when one more hit has no room.
    Read,
    /// Its response is known: counted, beyond the limit too, and never denied.
    Late,
}

/// Why a rule does not apply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dropped {
    /// Its flag is not as it wants.
    Flag,
    /// No alternative of `only_if` holds.
    OnlyIf,
    /// An alternative of `except_if` holds.
    ExceptIf,
    /// A key that it counts by is absent, and has no fallback.
    Absent,
    /// A value does not fit its pattern.
    Value,
    /// An attribute that it needs could not be read.
    Unreadable,
    /// It is charged when it is asked, and the response is known already.
    Phase,
    /// It is charged for other statuses.
    Status,
    /// That rule replaces its limiter.
    Replaced(RuleIdx),
    /// That rule is the last one.
    AfterLast(RuleIdx),
    /// More rules apply than are looked at.
    TooMany,
}

/// What the rules that apply to a request say of others: which they replace, which is the last.
/// One per request, whatever its parts.
#[derive(Clone, Debug, Default)]
pub struct Aside {
    /// Rules that replace others.
    replacing: ArrayVec<RuleIdx, MAX_STANDING>,
    /// Rules that are the last.
    lasts: ArrayVec<RuleIdx, MAX_STANDING>,
}

impl Aside {
    /// Takes note of a rule that applies. Beyond [`MAX_STANDING`] rules of a kind nothing is taken.
    #[inline]
    pub fn note(&mut self, table: &RuleTable, index: RuleIdx) {
        if table.any_aside() {
            self.take(table, index);
        }
    }

    #[cold]
    fn take(&mut self, table: &RuleTable, index: RuleIdx) {
        let Some(rule) = table.rule(index) else {
            return;
        };
        let keep = |of: &mut ArrayVec<RuleIdx, MAX_STANDING>| {
            if !of.contains(&index) {
                let _ = of.try_push(index);
            }
        };
        if !rule.replaces.is_empty() {
            keep(&mut self.replacing);
        }
        if rule.last {
            keep(&mut self.lasts);
        }
    }
}

impl RuleTable {
    /// The rules with `match: request` of a domain that apply to one set of attributes, in the
    /// order of the configuration, with `aside` taking part and being added to. `out` is
    /// overwritten; every other rule of them is told to `dropped`. Never allocates.
    // spec: pol-4
    pub fn gather(
        &self,
        domain: &[u8],
        values: &impl Values,
        context: &Context<'_>,
        aside: &mut Aside,
        out: &mut ArrayVec<Applies, MAX_MATCHED_RULES>,
        dropped: &mut dyn FnMut(RuleIdx, Dropped),
    ) {
        out.clear();
        let rules = self.request_rules(domain);
        if rules.is_empty() {
            return;
        }
        let mut fit: ArrayVec<(RuleIdx, Counted), MAX_REQUEST_RULES> = ArrayVec::new();
        for index in rules.iter().copied() {
            let asked = self.asked(index, values, context);
            match asked.and_then(|asked| asked.fits()) {
                Ok(counted) => {
                    aside.note(self, index);
                    // There are no more rules than places.
                    let _ = fit.try_push((index, counted));
                }
                Err(why) => dropped(index, why),
            }
        }
        for (index, counted) in fit {
            let asked = self.asked(index, values, context);
            let kept = match self.stands_aside(aside, index) {
                Some(why) => Err(why),
                None if out.is_full() => Err(Dropped::TooMany),
                None => asked.and_then(|asked| asked.charge(counted)),
            };
            match kept {
                Ok(applies) => out.push(applies),
                Err(why) => dropped(index, why),
            }
        }
    }

    /// One rule with `match: request`, whatever its place: phase, flag, conditions and key, but not
    /// what other rules say of it. Never allocates.
    ///
    /// # Errors
    /// Why it does not apply.
    pub fn ask(
        &self,
        index: RuleIdx,
        values: &impl Values,
        context: &Context<'_>,
    ) -> Result<Applies, Dropped> {
        let asked = self.asked(index, values, context)?;
        let counted = asked.fits()?;
        asked.charge(counted)
    }

    /// One rule that matches whole descriptors, and does match this one: flag, conditions and key,
    /// but not what other rules say of it. Never allocates.
    ///
    /// # Errors
    /// Why it does not apply.
    // spec: pol-8, ord-7
    #[inline]
    pub fn ask_entries(
        &self,
        index: RuleIdx,
        entries: Entries<'_>,
        context: &Context<'_>,
    ) -> Result<Applies, Dropped> {
        let limit = if self.is_plain(index) {
            None
        } else {
            self.ask_closely(index, entries, context)?
        };
        let era = (context.era)(index);
        let key = self.key(context.hasher, index, entries.entries, era);
        Ok(Applies {
            rule: index,
            key: key.ok_or(Dropped::Unreadable)?,
            limit,
            counted: Counted::Now,
        })
    }

    #[cold]
    fn ask_closely(
        &self,
        index: RuleIdx,
        values: Entries<'_>,
        context: &Context<'_>,
    ) -> Result<Option<u32>, Dropped> {
        let asked = self.asked(index, &values, context)?;
        let key = || {
            let key = self.key(context.hasher, index, values.entries, 0);
            key.ok_or(Dropped::Unreadable)
        };
        asked.is_switched_on(key)?;
        asked.conditions_hold()?;
        asked.tier()
    }

    /// What a rule with `match: request` counts a request by, if it can. Never allocates.
    pub fn counted_by<'v>(
        &'v self,
        index: RuleIdx,
        values: &'v impl Values,
    ) -> Option<KeyEntries<'v>> {
        let wants = self.mark(index)?.wants.as_ref()?;
        key_entries(self.rule(index)?, wants, values).ok()
    }

    /// Why a rule that applies is out after all, by what others say of it.
    // spec: rule-21, pol-5
    pub fn stands_aside(&self, aside: &Aside, index: RuleIdx) -> Option<Dropped> {
        let replaced = |index: RuleIdx| {
            let mut by = aside.replacing.iter().copied();
            by.find(|by| self.replaces(*by, index))
        };
        if let Some(by) = replaced(index) {
            return Some(Dropped::Replaced(by));
        }
        let domain = |at: RuleIdx| self.rule(at).map(|rule| &rule.domain);
        let stops = |last: &RuleIdx| {
            *last < index && domain(*last) == domain(index) && replaced(*last).is_none()
        };
        let by = aside.lasts.iter().copied().find(stops);
        by.map(Dropped::AfterLast)
    }

    fn asked<'a, V: Values>(
        &'a self,
        index: RuleIdx,
        values: &'a V,
        context: &'a Context<'a>,
    ) -> Result<Asked<'a, V>, Dropped> {
        let rule = self.rule(index).ok_or(Dropped::Unreadable)?;
        let mark = self.mark(index).ok_or(Dropped::Unreadable)?;
        let wants = mark.wants.as_ref().ok_or(Dropped::Unreadable)?;
        Ok(Asked {
            table: self,
            index,
            rule,
            mark,
            wants,
            values,
            context,
        })
    }
}

/// One rule that a request is asked about.
struct Asked<'a, V> {
    table: &'a RuleTable,
    index: RuleIdx,
    rule: &'a Rule,
    mark: &'a Mark,
    wants: &'a Wants,
    values: &'a V,
    context: &'a Context<'a>,
}

impl<V: Values> Asked<'_, V> {
    /// Whether phase, flag, conditions, keys and tier let the rule apply, and when it counts then.
    /// What says yes here is charged unless another rule takes it out.
    fn fits(&self) -> Result<Counted, Dropped> {
        let counted = self.counted()?;
        self.is_switched_on(|| self.key(0))?;
        self.conditions_hold()?;
        let keys = self.rule.descriptors.iter().zip(&self.wants.keys);
        let mut values = keys.map(|(part, at)| key_value(part, *at, self.values));
        values.try_for_each(|value| value.map(|_| ()))?;
        self.tier()?;
        Ok(counted)
    }

    /// What the rule counts once it applies.
    fn charge(&self, counted: Counted) -> Result<Applies, Dropped> {
        Ok(Applies {
            rule: self.index,
            key: self.key((self.context.era)(self.index))?,
            limit: self.tier()?,
            counted,
        })
    }

    fn is_switched_on(&self, key: impl FnOnce() -> Result<Key, Dropped>) -> Result<(), Dropped> {
        match &self.rule.switch {
            Some(switch) => self.is_as_wanted(switch, self.mark.flag, self.wants.flag_by, key),
            None => Ok(()),
        }
    }

    /// Whether a flag is as it is wanted; [`Dropped::Flag`] when not. `key` makes the rule's key in
    /// era 0, and is asked only for a flag that is on for some of them.
    // spec: ord-7, ord-9, pol-12
    fn is_as_wanted(
        &self,
        switch: &Switch,
        index: FlagIdx,
        by: AttributeRef,
        key: impl FnOnce() -> Result<Key, Dropped>,
    ) -> Result<(), Dropped> {
        let flag = &switch.flag;
        let share = self.context.flags.share(index, flag);
        let on = match (share.is_partial(), &flag.by) {
            (false, _) => share == Share::ON,
            (true, None) => share.admits(key()?),
            (true, Some(name)) => match self.values.value(name, by) {
                Found::Value(value) => {
                    share.admits(flag_key(self.context.hasher, &flag.name, value))
                }
                Found::Absent => false,
                Found::Failed => return Err(Dropped::Unreadable),
            },
        };
        if on == switch.on {
            Ok(())
        } else {
            Err(Dropped::Flag)
        }
    }

    /// When the rule counts a request whose status is known or not, if it does.
    // spec: pol-16, pol-17
    fn counted(&self) -> Result<Counted, Dropped> {
        let status = match self.values.value(STATUS.as_bytes(), self.wants.status) {
            Found::Value(status) => Some(status),
            Found::Absent => None,
            Found::Failed => return Err(Dropped::Unreadable),
        };
        let charge = match &self.rule.charge {
            Some(charge) if self.is_late(charge)? => Some(charge),
            _ => None,
        };
        match (charge, status) {
            (None, None) => Ok(Counted::Now),
            (Some(_), None) => Ok(Counted::Read),
            (None, Some(_)) => Err(Dropped::Phase),
            (Some(charge), Some(status)) if charge.fits(status) => Ok(Counted::Late),
            (Some(_), Some(_)) => Err(Dropped::Status),
        }
    }

    /// Whether a charge waits for the response, as its flag says.
    // spec: pol-17
    fn is_late(&self, charge: &ChargeAfter) -> Result<bool, Dropped> {
        let Some(switch) = &charge.switch else {
            return Ok(true);
        };
        let (flag, by) = (self.mark.charge_flag, self.wants.charge_flag_by);
        match self.is_as_wanted(switch, flag, by, || self.key(0)) {
            Ok(()) => Ok(true),
            Err(Dropped::Flag) => Ok(false),
            Err(why) => Err(why),
        }
    }

    // spec: pol-7, pol-9
    fn conditions_hold(&self) -> Result<(), Dropped> {
        let holds = |list, refs| any_holds(list, refs, self.values).ok_or(Dropped::Unreadable);
        let (rule, wants) = (self.rule, self.wants);
        if !rule.only_if.is_empty() && !holds(&rule.only_if, &wants.only_if)? {
            return Err(Dropped::OnlyIf);
        }
        if holds(&rule.except_if, &wants.except_if)? {
            return Err(Dropped::ExceptIf);
        }
        Ok(())
    }

    /// The limit of the request's tier.
    // spec: pol-14
    fn tier(&self) -> Result<Option<u32>, Dropped> {
        let Some(tiers) = &self.rule.tiers else {
            return Ok(None);
        };
        let own = Some(self.rule.algorithm.limit());
        match self.values.value(tiers.by(), self.wants.tier) {
            Found::Value(value) => Ok(tiers.limit_for(value).or(own)),
            Found::Absent => Ok(own),
            Found::Failed => Err(Dropped::Unreadable),
        }
    }

    /// The rule's key in an era.
    fn key(&self, era: u32) -> Result<Key, Dropped> {
        let entries = key_entries(self.rule, self.wants, self.values)?;
        let key = self
            .table
            .key(self.context.hasher, self.index, &entries, era);
        key.ok_or(Dropped::Unreadable)
    }
}

/// What a rule counts a request by: the keys of its descriptor, in its order, with their values.
pub type KeyEntries<'v> = ArrayVec<(&'v [u8], &'v [u8]), MAX_DESCRIPTOR_ENTRIES>;

fn key_entries<'v>(
    rule: &'v Rule,
    wants: &Wants,
    values: &'v impl Values,
) -> Result<KeyEntries<'v>, Dropped> {
    let mut entries = KeyEntries::new();
    for (part, at) in rule.descriptors.iter().zip(&wants.keys) {
        let entry = (part.key.as_slice(), key_value(part, *at, values)?);
        // A rule has no more parts than there are places.
        let _ = entries.try_push(entry);
    }
    Ok(entries)
}

/// What a request counts as at one position of a rule's key.
// spec: pol-3, pol-6
fn key_value<'v>(
    part: &'v DescriptorPattern,
    at: AttributeRef,
    values: &'v impl Values,
) -> Result<&'v [u8], Dropped> {
    match (values.value(&part.key, at), &part.fallback) {
        (Found::Value(value), Some(fallback)) => Ok(fallback.known_or_own(value)),
        (Found::Absent, Some(fallback)) => Ok(&fallback.value),
        (Found::Value(value), None) if part.value.matches(value) => Ok(value),
        (Found::Value(_), None) => Err(Dropped::Value),
        (Found::Absent, None) => Err(Dropped::Absent),
        (Found::Failed, _) => Err(Dropped::Unreadable),
    }
}

#[cfg(test)]
mod tests;
