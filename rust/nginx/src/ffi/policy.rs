//! Asking a request by the rules of a policy: attributes, flags, and what rules say of each other.
//!
//! I own the reading of attributes from nginx: each at most once, and only when a rule asks. What
//! applies is decided where every door has it decided, in `gabion_rule`.

use std::cell::{Cell, RefCell};

use arrayvec::ArrayVec;
use gabion_rule::attributes::{AttributeRef, Found, Resolver, Source};
use gabion_rule::{
    Applies, Aside, Context, Dropped, Entries, FlagIdx, FlagStates, LogValues, Matching, Mode,
    Share, Values, MAX_MATCHED_RULES,
};
use nginx_sys::ngx_http_request_t;

use super::ask::{ask_of, Asked, Pairs, Seen};
use super::conf::Ready;
use super::log::Seldom;
use super::phase;
use crate::answer::{stat_of, Asks};
use crate::limits::BINDS_MAX;
use crate::zone::Stat;

static UNTRUSTED_PEER: Seldom = Seldom::new();

/// What nginx knows of a request, by slot.
struct Sent<'a, 'r> {
    asked: &'a Asked<'r>,
    known: ArrayVec<Cell<Option<Found<'a>>>, BINDS_MAX>,
    seen: RefCell<Seen>,
    too_long: Cell<bool>,
}

impl<'a, 'r> Sent<'a, 'r> {
    fn new(asked: &'a Asked<'r>) -> Self {
        let slots = asked.ready.sources.iter().take(BINDS_MAX);
        Sent {
            asked,
            known: slots.map(|_| Cell::new(None)).collect(),
            seen: RefCell::default(),
            too_long: Cell::new(false),
        }
    }

    fn read(&self, slot: usize) -> Found<'a> {
        let ready = self.asked.ready;
        let source = ready.catalog.sources.get(slot);
        let (Some(source), Some(text)) = (source, ready.sources.get(slot)) else {
            return Found::Failed;
        };
        if source.is_status {
            return Found::Absent; // until the response is known
        }
        match self.asked.evaluate(text) {
            Some(value) if self.asked.has_room(value, &mut self.seen.borrow_mut()) => {
                Found::of(value)
            }
            Some(_) => {
                self.too_long.set(true);
                Found::Failed
            }
            None => Found::Failed,
        }
    }
}

impl<'x, 'a: 'x> Source<'x> for Sent<'a, '_> {
    fn raw(&self, slot: u16) -> Found<'x> {
        let slot = usize::from(slot);
        let Some(known) = self.known.get(slot) else {
            return Found::Failed;
        };
        if let Some(found) = known.get() {
            return found;
        }
        let found = self.read(slot);
        known.set(Some(found));
        found
    }
}

/// What the parts of gathering share.
struct Parts<'p, 'a, 'r> {
    sent: &'p Sent<'a, 'r>,
    context: &'p Context<'p>,
    aside: Aside,
    seen: &'p mut Seen,
}

/// Rules that apply.
type AllApply = ArrayVec<Applies, MAX_MATCHED_RULES>;

impl Asked<'_> {
    /// The rules that are named here and those of the domain, as they stand to each other.
    // spec: pol-4
    pub(super) fn gather(&self, asks: &mut Asks, seen: &mut Seen) {
        let (Some(hasher), catalog) = (self.ready.hasher.get(), &self.ready.catalog) else {
            return;
        };
        let table = &*catalog.table;
        let set = |flag: FlagIdx| self.flag(flag);
        let flags = FlagStates::new(&set);
        let era = |rule: u16| {
            let bound = catalog.rules.get(usize::from(rule));
            bound.map_or(0, |bound| self.era(bound))
        };
        let context = Context {
            hasher,
            era: &era,
            flags: &flags,
        };
        let sent = Sent::new(self);
        let values = Resolver::new(table.attributes(), &sent);
        let mut parts = Parts {
            sent: &sent,
            context: &context,
            aside: Aside::default(),
            seen,
        };
        let named = self.named(&values, &mut parts);
        let of_domain = self.of_domain(&values, &mut parts);
        for applies in &named {
            let aside = table.stands_aside(&parts.aside, applies.rule);
            self.push(applies, aside, &mut parts, asks);
        }
        for applies in &of_domain {
            self.push(applies, None, &mut parts, asks);
        }
        if let Some(peer) = values.untrusted_peer() {
            self.warn_of(peer);
        }
        seen.bytes = seen.bytes.saturating_add(sent.seen.borrow().bytes);
    }

    /// The rules that are named here.
    fn named(&self, values: &impl Values, parts: &mut Parts<'_, '_, '_>) -> AllApply {
        let (table, mut named) = (&*self.ready.catalog.table, AllApply::new());
        for &at in &self.loc.rules {
            let Some(bound) = self.ready.catalog.rules.get(usize::from(at)) else {
                continue;
            };
            let applies = match bound.rule.matching {
                _ if bound.rule.mode == Mode::Disabled => continue,
                Matching::Request => table.ask(at, values, parts.context),
                _ => {
                    let mut pairs = Pairs::new();
                    if let Err(stat) = self.read(usize::from(at), parts.seen, &mut pairs) {
                        if let Some(stat) = stat {
                            self.leave_out(bound, stat, parts.seen);
                        }
                        continue;
                    }
                    let entries = Entries {
                        entries: &pairs,
                        has_query: false,
                    };
                    table.ask_entries(at, entries, parts.context)
                }
            };
            match applies {
                Ok(applies) => {
                    parts.aside.note(table, at);
                    let _ = named.try_push(applies); // a level names no more
                }
                Err(why) => self.drop_rule(at, why, parts.sent, parts.seen),
            }
        }
        named
    }

    /// The rules of the domain but those that are named as well.
    fn of_domain(&self, values: &impl Values, parts: &mut Parts<'_, '_, '_>) -> AllApply {
        let mut all = AllApply::new();
        let Some(domain) = &self.loc.domain else {
            return all;
        };
        let Parts {
            sent,
            context,
            aside,
            seen,
        } = parts;
        let is_named = |rule: u16| self.loc.rules.contains(&rule);
        let mut dropped = |rule, why| {
            if !is_named(rule) {
                self.drop_rule(rule, why, sent, seen);
            }
        };
        let (table, domain) = (&*self.ready.catalog.table, domain.as_bytes());
        table.gather(domain, values, context, aside, &mut all, &mut dropped);
        all.retain(|applies| !is_named(applies.rule));
        all
    }

    fn push(
        &self,
        applies: &Applies,
        aside: Option<Dropped>,
        parts: &mut Parts<'_, '_, '_>,
        asks: &mut Asks,
    ) {
        let (rule, catalog) = (applies.rule, &self.ready.catalog);
        let why = match (aside, catalog.rules.get(usize::from(rule))) {
            (None, Some(_)) if asks.is_full() => Dropped::TooMany,
            (None, Some(bound)) => {
                let Applies {
                    key,
                    limit,
                    counted,
                    ..
                } = *applies;
                return asks.push(ask_of(rule, bound, key, limit, counted));
            }
            (Some(why), _) => why,
            (None, None) => return,
        };
        self.drop_rule(rule, why, parts.sent, parts.seen);
    }

    fn drop_rule(&self, rule: u16, why: Dropped, sent: &Sent<'_, '_>, seen: &mut Seen) {
        let bound = self.ready.catalog.rules.get(usize::from(rule));
        let stat = match why {
            Dropped::Unreadable if sent.too_long.get() => Some(Stat::KeyTooLong),
            why => stat_of(why),
        };
        if stat == Some(Stat::PredicateFailed) {
            let _ = self.unreadable(Stat::PredicateFailed); // says so, seldom
        }
        if let (Some(bound), Some(stat)) = (bound, stat) {
            self.leave_out(bound, stat, seen);
        }
    }

    /// The attributes that a rule's log line shows.
    pub(super) fn log_values(&self, rule: u16, show: &mut dyn FnMut(&LogValues<'_>)) {
        let table = &*self.ready.catalog.table;
        let sent = Sent::new(self);
        let values = Resolver::new(table.attributes(), &sent);
        show(&table.log_values(rule, &values));
    }

    /// What a flag was set to.
    fn flag(&self, flag: FlagIdx) -> Option<Share> {
        let place = self.ready.catalog.flags.get(usize::from(flag))?;
        let zone = self.zone(place.zone)?;
        let orders = zone.orders(usize::from(place.index), place.slot, place.name);
        orders.share()
    }

    #[cold]
    fn warn_of(&self, peer: std::net::IpAddr) {
        let mut zones = self.ready.zones.iter().filter_map(|zone| zone.get());
        if let Some(zone) = zones.next() {
            zone.note_untrusted_peer();
        }
        self.seldom_of(&UNTRUSTED_PEER, &|| {
            format!(
                "forwarded headers from untrusted peer {peer}; add it to trusted_proxies if it is \
                 your proxy"
            )
        });
    }
}

/// An attribute of a request, by the number of a variable; `None` when there is none.
///
/// # Safety
/// `r` is a valid request.
pub(super) unsafe fn attribute<'r>(
    r: *mut ngx_http_request_t,
    ready: &'r Ready,
    name: &[u8],
    give: &mut dyn FnMut(&[u8]),
) -> bool {
    // SAFETY: the caller's promise.
    let Some(loc) = (unsafe { phase::loc_of(r) }) else {
        return false;
    };
    let asked = Asked { r, loc, ready };
    let sent = Sent::new(&asked);
    let bound = ready.catalog.table.attributes();
    let mut derived = bound.attributes().iter();
    let at = match derived.position(|attribute| attribute.name.as_bytes() == name) {
        Some(at) => u8::try_from(at).ok().map(AttributeRef::Derived),
        None => ready
            .catalog
            .table
            .sources()
            .find(name)
            .map(AttributeRef::Source),
    };
    let Some(at) = at else { return false };
    let values = Resolver::new(bound, &sent);
    match values.value(at) {
        Found::Value(value) => give(value),
        Found::Absent | Found::Failed => return false,
    }
    true
}
