//! Which rules a request is to be charged by, and why others are left out.
//!
//! I own the way from descriptors to [`Wanted`]. I promise that a request sees each flag in one
//! state, and that I charge nothing and count nothing but causes: what is left out is told to the
//! caller. I never allocate.

use arrayvec::ArrayVec;
use gabion_rule::attributes::{Found, Resolver};
use gabion_rule::{
    without_query, Applies, Aside, Context, Counted, Dropped, Entries, Key, Matches, Mode,
    OverrideUnit, RuleIdx, MAX_MATCHED_RULES,
};

use super::{bytes_of, AllWanted, Engine, Wanted};
use crate::limits::ENTRIES_MAX;
use crate::overrides;
use crate::policy::Policy;
use crate::protocol::{RateLimitDescriptor, RateLimitRequest};
use crate::tally::Cause;

/// Is told which rule a descriptor is not charged by, and why.
pub(super) type Told<'t> = dyn FnMut(usize, RuleIdx, Dropped) + 't;

type KeysAndValues<'d> = ArrayVec<(&'d [u8], &'d [u8]), ENTRIES_MAX>;

/// A request while its rules are gathered.
struct Gathering<'g> {
    policy: &'g Policy,
    request: &'g RateLimitRequest,
    context: &'g Context<'g>,
    aside: Aside,
    wanted: AllWanted,
    /// Rules that there was no room for.
    skipped: u64,
}

/// A descriptor's part in it.
#[derive(Clone, Copy)]
struct Part<'g> {
    index: usize,
    descriptor: &'g RateLimitDescriptor,
    hits: u64,
}

impl Part<'_> {
    fn wants(&self, applies: Applies, mode: Mode) -> Wanted {
        let Applies {
            rule,
            key,
            limit,
            counted,
        } = applies;
        let refund = self.descriptor.is_negative_hits;
        let mode = match mode {
            // What is read for a refund must not deny the request that brings it, and a response
            // is there already.
            Mode::Enforce | Mode::DenyAll if refund || counted == Counted::Late => Mode::DryRun,
            mode => mode,
        };
        Wanted {
            rule,
            key,
            hits: self.hits,
            mode,
            limit,
            refund,
            counted,
            descriptor: self.index,
        }
    }
}

impl Gathering<'_> {
    fn take(&mut self, part: &Part<'_>, applies: Applies) {
        let Some(rule) = self.policy.rules.rule(applies.rule) else {
            return;
        };
        self.aside.note(&self.policy.rules, applies.rule);
        let want = part.wants(applies, rule.mode);
        self.skipped += u64::from(self.wanted.try_push(want).is_err());
    }
}

impl Engine {
    /// Which rules are to be charged with what.
    #[inline]
    pub(super) fn gather(
        &self,
        policy: &Policy,
        request: &RateLimitRequest,
        told: &mut Told<'_>,
    ) -> AllWanted {
        policy.asked(|context| {
            let mut gathering = Gathering {
                policy,
                request,
                context,
                aside: Aside::default(),
                wanted: AllWanted::new(),
                skipped: 0,
            };
            self.gather_all(&mut gathering, told);
            gathering.wanted
        })
    }

    fn gather_all(&self, gathering: &mut Gathering<'_>, told: &mut Told<'_>) {
        let (policy, request) = (gathering.policy, gathering.request);
        let looked_at = policy
            .bounds
            .max_descriptor_count
            .min(request.descriptors.len());
        let beyond = request.descriptors.len() - looked_at;
        if beyond > 0 {
            self.tally.cause(Cause::TooManyDescriptors, beyond as u64);
        }
        for (index, descriptor) in request.descriptors.iter().take(looked_at).enumerate() {
            let part = Part {
                index,
                descriptor,
                hits: self.hits_of(request, descriptor),
            };
            self.gather_one(gathering, &part, told);
        }
        if policy.rules.any_aside() {
            let Gathering { aside, wanted, .. } = gathering;
            wanted.retain(|want| {
                let out = policy.rules.stands_aside(aside, want.rule);
                out.inspect(|why| told(want.descriptor, want.rule, *why))
                    .is_none()
            });
        }
        if gathering.skipped > 0 {
            self.too_many_rules(gathering.skipped);
        }
    }

    fn hits_of(&self, request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> u64 {
        if descriptor.is_negative_hits {
            self.tally.cause(Cause::NegativeHits, 1);
            if self.warned.hits_back.pass(self.now_ns()) {
                tracing::warn!(
                    "a request wants hits back; counters only grow, so it was read without \
                     charging. Charge late instead of giving back"
                );
            }
            return 0;
        }
        descriptor
            .hits_addend
            .unwrap_or_else(|| u64::from(request.hits_addend.max(1)))
    }

    /// The counter of the limit that a descriptor brings; `None` when it brings none, or one that
    /// is ignored.
    fn override_of(
        &self,
        policy: &Policy,
        domain: &[u8],
        descriptor: &RateLimitDescriptor,
        entries: &[(&[u8], &[u8])],
    ) -> Option<(OverrideUnit, u32, Key)> {
        let brought = descriptor.limit.as_ref()?;
        let unit = overrides::unit_of(brought).filter(|_| policy.overrides);
        let Some(unit) = unit else {
            self.tally.cause(Cause::OverrideIgnored, 1);
            if self.warned.own_limit.pass(self.now_ns()) {
                tracing::warn!(
                    "a request brings its own limit, and it is ignored: it names no unit, or \
                     storage.override_cardinality is 0. The configured rules decide"
                );
            }
            return None;
        };
        let limit = brought.requests_per_unit;
        let key = policy.hasher.override_key(unit, limit, domain, entries);
        Some((unit, limit, key))
    }

    fn gather_one(&self, gathering: &mut Gathering<'_>, part: &Part<'_>, told: &mut Told<'_>) {
        let (policy, descriptor) = (gathering.policy, part.descriptor);
        let domain = &*gathering.request.domain;
        if descriptor.entries.len() > ENTRIES_MAX {
            return self.tally.cause(Cause::TooManyEntries, 1);
        }
        if bytes_of(std::slice::from_ref(descriptor)) > policy.bounds.max_key_bytes {
            return self.tally.cause(Cause::KeyTooLong, 1);
        }
        let entries = keys_and_values(descriptor);
        if let Some((unit, limit, key)) = self.override_of(policy, domain, descriptor, &entries) {
            let own = Applies {
                rule: overrides::index(policy.rules.rules().len(), unit),
                key,
                limit: Some(limit),
                counted: Counted::Now,
            };
            let want = part.wants(own, Mode::Enforce);
            gathering.skipped += u64::from(gathering.wanted.try_push(want).is_err());
            return;
        }
        let mut matches = Matches::new();
        let report = policy
            .rules
            .match_descriptor(domain, &entries, &mut matches);
        gathering.skipped += u64::from(report.skipped);
        for rule in matches.iter() {
            let entries = Entries {
                entries: &entries,
                has_query: true,
            };
            match policy.rules.ask_entries(rule, entries, gathering.context) {
                Ok(applies) => gathering.take(part, applies),
                Err(why) => told(part.index, rule, why),
            }
        }
        let met = report.matched > 0
            || (policy.rules.any_requests() && self.gather_request(gathering, part, told));
        if !met {
            self.tally.unmatched.add(1);
        }
    }

    /// The rules that pick their keys. Returns whether one applies, or would in the other phase.
    #[inline(never)]
    fn gather_request(
        &self,
        gathering: &mut Gathering<'_>,
        part: &Part<'_>,
        told: &mut Told<'_>,
    ) -> bool {
        let rules = &gathering.policy.rules;
        let source = |slot| raw(rules.sources().name(slot), part.descriptor);
        let values = Resolver::new(rules.attributes(), &source);
        let mut all: ArrayVec<Applies, MAX_MATCHED_RULES> = ArrayVec::new();
        let (mut met, mut skipped) = (false, 0);
        rules.gather(
            &gathering.request.domain,
            &values,
            gathering.context,
            &mut gathering.aside,
            &mut all,
            &mut |rule, why| {
                met |= matches!(why, Dropped::Phase | Dropped::Status);
                skipped += u64::from(why == Dropped::TooMany);
                told(part.index, rule, why);
            },
        );
        gathering.skipped += skipped;
        met |= !all.is_empty();
        for applies in all {
            gathering.take(part, applies);
        }
        if let Some(peer) = values.untrusted_peer() {
            self.untrusted_peer(peer);
        }
        met
    }

    #[cold]
    fn untrusted_peer(&self, peer: std::net::IpAddr) {
        self.tally.cause(Cause::UntrustedForwarded, 1);
        if self.warned.untrusted_peer.pass(self.now_ns()) {
            tracing::warn!(
                %peer,
                "forwarded headers from untrusted peer {peer}; add it to trusted_proxies if it is \
                 your proxy"
            );
        }
    }

    #[cold]
    fn too_many_rules(&self, skipped: u64) {
        self.tally.cause(Cause::TooManyRules, skipped);
        if self.warned.too_many_rules.pass(self.now_ns()) {
            tracing::warn!(
                skipped,
                "a request matches more rules than are looked at; the rest was not counted. Split \
                 the rules over domains"
            );
        }
    }
}

pub(super) fn keys_and_values(descriptor: &RateLimitDescriptor) -> KeysAndValues<'_> {
    let entries = descriptor.entries.iter().take(ENTRIES_MAX);
    entries.map(|entry| (&*entry.key, &*entry.value)).collect()
}

/// An entry as an attribute. Envoy's `:path` carries the query.
// spec: pol-1, pol-10
pub(crate) fn raw<'d>(name: &[u8], descriptor: &'d RateLimitDescriptor) -> Found<'d> {
    let mut entries = descriptor.entries.iter();
    match entries.find(|entry| *entry.key == *name) {
        Some(entry) if name == b"path" => Found::of(without_query(&entry.value)),
        Some(entry) => Found::of(&entry.value),
        None => Found::Absent,
    }
}

/// Calls `show` with what a rule counts a descriptor by: what it picks of it, or all of it.
pub(crate) fn counted_by<T>(
    policy: &Policy,
    rule: RuleIdx,
    descriptor: &RateLimitDescriptor,
    show: impl FnOnce(&[(&[u8], &[u8])]) -> T,
) -> T {
    let rules = &policy.rules;
    let picks = rules
        .rule(rule)
        .is_some_and(|rule| rule.matching == gabion_rule::Matching::Request);
    if !picks {
        return show(&keys_and_values(descriptor));
    }
    let source = |slot| raw(rules.sources().name(slot), descriptor);
    let values = Resolver::new(rules.attributes(), &source);
    let entries = rules.counted_by(rule, &values).unwrap_or_default();
    show(&entries)
}
