//! One request, decided.
//!
//! I own the way from a protobuf request to charges and verdicts. I promise that a denied request
//! charges nothing, and that whatever cannot be decided is let through and counted. I never lock or
//! allocate, and wait only for the moment in which a reload moves counters.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;
use gabion_admit::Outcome;
use gabion_driver::ClusterClock;
use gabion_rule::{Key, Matches, Mode, OverrideUnit, RuleIdx};
use gabion_table::Charge;

use crate::answer::{too_large, Decided};
use crate::limits::{CHARGES_MAX, ENTRIES_MAX, SWITCH_PATIENCE};
use crate::logging::Seldom;
use crate::observe::{Observer, Seen, Values, Verdict, Watch};
use crate::overrides;
use crate::policy::Policy;
use crate::protocol::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::tally::{is_near, Cause, Said, Tally};

pub mod explain;

/// Everything a decision needs, shared by all connections.
#[derive(Debug)]
pub struct Engine {
    policy: ArcSwap<InForce>,
    clock: Arc<ClusterClock>,
    tally: Arc<Tally>,
    warned: Warned,
    observer: Arc<Observer>,
}

/// The policy in force. Only decisions hold it, each for as long as it takes, so that whoever
/// replaced it can tell when the last of them is over; everybody else holds the policy itself.
#[derive(Debug)]
struct InForce {
    policy: Arc<Policy>,
    /// Decisions may begin: none by an earlier policy is under way that would be missed.
    open: AtomicBool,
}

/// When each warning about requests was logged last.
#[derive(Debug, Default)]
struct Warned {
    own_limit: Seldom,
    hits_back: Seldom,
    too_many_rules: Seldom,
}

/// One descriptor under one rule, before it is charged.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) rule: RuleIdx,
    pub(crate) key: Key,
    pub(crate) hits: u64,
    pub(crate) mode: Mode,
    /// The limit that the request brought.
    pub(crate) limit: Option<u32>,
    /// It asks for hits to be given back: read only, and never a reason to deny.
    pub(crate) refund: bool,
    /// Which descriptor of the request.
    pub(crate) descriptor: usize,
}

impl Wanted {
    /// More hits than a counter can hold are denied, like more than the limit.
    pub(crate) fn is_beyond(&self) -> bool {
        self.hits > u64::from(u32::MAX) && self.mode == Mode::Enforce
    }
}

type AllWanted = ArrayVec<Wanted, CHARGES_MAX>;
type Charges = ArrayVec<Charge, CHARGES_MAX>;

impl Engine {
    /// An engine that decides by `policy`.
    pub fn new(policy: Policy, clock: Arc<ClusterClock>) -> Self {
        Self::over(Arc::new(policy), clock)
    }

    fn over(policy: Arc<Policy>, clock: Arc<ClusterClock>) -> Self {
        Self {
            policy: ArcSwap::from_pointee(InForce {
                policy,
                open: AtomicBool::new(true),
            }),
            clock,
            tally: Arc::default(),
            warned: Warned::default(),
            observer: Arc::default(),
        }
    }

    /// The same engine, watched by `observer`.
    pub fn watched_by(mut self, observer: Arc<Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// What watches its decisions.
    pub fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// What it decides by, for everything beside a decision; holding it holds nothing up.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.load().policy)
    }

    /// Decides by `policy` from now on. With `alone`, no decision by it begins before the last one
    /// by the policy before has ended and `when_alone` was called; requests wait for that, mostly
    /// some microseconds and at most [`SWITCH_PATIENCE`]. Returns whether it was so.
    pub(crate) fn replace(&self, policy: Policy, alone: bool, when_alone: impl FnOnce()) -> bool {
        let next = Arc::new(InForce {
            policy: Arc::new(policy),
            open: AtomicBool::new(!alone),
        });
        let mut before = self.policy.swap(Arc::clone(&next));
        if !alone {
            return true;
        }
        // The swap turned every guard of a decision under way into a count of its own. `get_mut`
        // sees the last of them go, with all that its decision wrote.
        let until = Instant::now() + SWITCH_PATIENCE;
        let mut quiet = Arc::get_mut(&mut before).is_some();
        while !quiet && Instant::now() < until {
            std::thread::yield_now();
            quiet = Arc::get_mut(&mut before).is_some();
        }
        when_alone();
        // Release: pairs with the load in `answer`, so that it decides after all of the above.
        next.open.store(true, Ordering::Release);
        quiet
    }

    /// In the middle of a reload: waits for the last decision by the policy before.
    #[cold]
    fn wait_until_open(&self, in_force: &InForce) {
        let until = Instant::now() + 2 * SWITCH_PATIENCE;
        while !in_force.open.load(Ordering::Acquire) {
            if Instant::now() > until {
                return self.tally.cause(Cause::ReloadRace, 1);
            }
            std::thread::yield_now();
        }
    }

    /// Cluster time, nanoseconds since 1970.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The clock it decides by.
    pub(crate) fn clock(&self) -> &Arc<ClusterClock> {
        &self.clock
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Decides one request.
    pub fn answer(&self, request: &RateLimitRequest) -> RateLimitResponse {
        let watch = self.observer.begin();
        let in_force = self.policy.load(); // once: a request has one configuration
        if !in_force.open.load(Ordering::Acquire) {
            self.wait_until_open(&in_force);
        }
        let answer = self.decide(&in_force.policy, request, &watch);
        self.observer.end(watch);
        answer
    }

    fn decide(
        &self,
        policy: &Policy,
        request: &RateLimitRequest,
        watch: &Watch,
    ) -> RateLimitResponse {
        let descriptors = &request.descriptors;
        self.tally.descriptors.add(descriptors.len() as u64);
        if bytes_of(descriptors) > policy.bounds.max_descriptor_bytes {
            self.tally.cause(Cause::TooLarge, 1);
            self.tally.denied.add(1);
            return too_large(policy, descriptors.len());
        }
        let wanted = self.gather(policy, request);
        // Nothing may be charged then, so everything is only read.
        let impossible = wanted.iter().any(Wanted::is_beyond);
        let mut charges: Charges = ArrayVec::new();
        for (tag, want) in (0u8..).zip(&wanted) {
            let hits = if impossible {
                0
            } else {
                u32::try_from(want.hits).unwrap_or(u32::MAX)
            };
            let mut charge = Charge::new(want.rule, want.key, hits, want.mode, tag);
            charge.limit = want.limit;
            charges.push(charge);
        }
        let now_ns = self.clock.now_ns();
        let decided = match &policy.counters {
            Some(counters) if !charges.is_empty() => counters.decide(&mut charges, now_ns).outcome,
            _ => Outcome::Allowed,
        };
        let denied = impossible || decided == Outcome::Denied;
        self.count(policy, request, &charges, &wanted, denied);
        self.show(policy, request, watch, &charges, &wanted, now_ns);
        policy.respond(&Decided {
            request,
            charges: &charges,
            wanted: &wanted,
            denied,
        })
    }

    /// Which rules are to be charged with what.
    fn gather(&self, policy: &Policy, request: &RateLimitRequest) -> AllWanted {
        let mut wanted = AllWanted::new();
        let looked_at = policy
            .bounds
            .max_descriptor_count
            .min(request.descriptors.len());
        let skipped = request.descriptors.len() - looked_at;
        if skipped > 0 {
            self.tally.cause(Cause::TooManyDescriptors, skipped as u64);
        }
        for (index, descriptor) in request.descriptors.iter().take(looked_at).enumerate() {
            self.gather_one(policy, request, index, descriptor, &mut wanted);
        }
        if policy.rules.any_replaces() {
            spare_replaced(policy, &mut wanted);
        }
        wanted
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

    fn gather_one(
        &self,
        policy: &Policy,
        request: &RateLimitRequest,
        index: usize,
        descriptor: &RateLimitDescriptor,
        wanted: &mut AllWanted,
    ) {
        let domain = &*request.domain;
        let hits = self.hits_of(request, descriptor);
        let want = |rule, key, mode, limit| Wanted {
            rule,
            key,
            hits,
            mode: match mode {
                // What is read for a refund must not deny the request that brings it.
                Mode::Enforce | Mode::DenyAll if descriptor.is_negative_hits => Mode::DryRun,
                mode => mode,
            },
            limit,
            refund: descriptor.is_negative_hits,
            descriptor: index,
        };
        if descriptor.entries.len() > ENTRIES_MAX {
            return self.tally.cause(Cause::TooManyEntries, 1);
        }
        if bytes_of(std::slice::from_ref(descriptor)) > policy.bounds.max_key_bytes {
            return self.tally.cause(Cause::KeyTooLong, 1);
        }
        let entries: ArrayVec<(&[u8], &[u8]), ENTRIES_MAX> = descriptor
            .entries
            .iter()
            .map(|entry| (&*entry.key, &*entry.value))
            .collect();
        if let Some((unit, limit, key)) = self.override_of(policy, domain, descriptor, &entries) {
            let rule = overrides::index(policy.rules.rules().len(), unit);
            let want = want(rule, key, Mode::Enforce, Some(limit));
            if wanted.try_push(want).is_err() {
                self.too_many_rules(1);
            }
            return;
        }
        let mut matches = Matches::new();
        let report = policy
            .rules
            .match_descriptor(domain, &entries, &mut matches);
        if report.matched == 0 {
            self.tally.unmatched.add(1);
        }
        let mut skipped = u64::from(report.skipped);
        for index_of_rule in matches.iter() {
            let Some(rule) = policy.rules.rule(index_of_rule) else {
                continue;
            };
            let Some(key) = policy.key_in_force(index_of_rule, rule, &entries) else {
                continue;
            };
            let want = want(index_of_rule, key, rule.mode, None);
            skipped += u64::from(wanted.try_push(want).is_err());
        }
        if skipped > 0 {
            self.too_many_rules(skipped);
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

    fn count(
        &self,
        policy: &Policy,
        request: &RateLimitRequest,
        charges: &[Charge],
        wanted: &[Wanted],
        denied: bool,
    ) {
        if denied {
            &self.tally.denied
        } else {
            &self.tally.allowed
        }
        .add(1);
        for (charge, want) in charges.iter().zip(wanted) {
            if let Some(cause) = charge.fail_open {
                self.tally.cause(cause.into(), 1);
            }
            let said = said(charge, want);
            let reading = &charge.verdict.reading;
            let near = is_near(reading.used, reading.limit);
            let hits = if denied { 0 } else { charge.hits };
            if let Some(tally) = policy.tallies.get(usize::from(want.rule)) {
                tally.add(said, near, hits);
            }
            if let Some(values) = &policy.values {
                let verdict = Verdict { said, near, hits };
                self.count_values((policy, values), request, want, verdict);
            }
        }
    }

    /// Counts by the values that the metrics of the rule tell apart.
    fn count_values(
        &self,
        (policy, values): (&Policy, &Values),
        request: &RateLimitRequest,
        want: &Wanted,
        verdict: Verdict,
    ) {
        let index = usize::from(want.rule);
        if let (Some(rule), Some(tally), Some(descriptor)) = (
            policy.rules.rule(want.rule),
            policy.tallies.get(index),
            request.descriptors.get(want.descriptor),
        ) {
            let shower = self.observer.shower();
            values.add((index, rule, tally), descriptor, verdict, shower);
        }
    }

    /// Shows what happened to the observer.
    #[allow(clippy::too_many_arguments)]
    fn show(
        &self,
        policy: &Policy,
        request: &RateLimitRequest,
        watch: &Watch,
        charges: &[Charge],
        wanted: &[Wanted],
        now_ns: u64,
    ) {
        for (charge, want) in charges.iter().zip(wanted) {
            let said = said(charge, want);
            if said == Said::Allowed && !watch.looks() {
                continue;
            }
            let index = usize::from(want.rule);
            let (Some((rule, domain, identity)), Some(descriptor), Some(tally)) = (
                policy.who(want.rule, &request.domain),
                request.descriptors.get(want.descriptor),
                policy.tallies.get(index),
            ) else {
                continue;
            };
            let verdict = &charge.verdict;
            let seen = Seen {
                rule,
                domain,
                identity: &identity,
                key: want.key,
                era: policy.era(index),
                descriptor,
                said,
                hits: want.hits,
                reading: verdict.reading,
                wait_ns: verdict.retry_after_ns,
                now_ns,
                gate: tally.gate(),
            };
            self.observer.saw(watch, &seen);
        }
    }
}

/// What a rule said by its verdict.
fn said(charge: &Charge, want: &Wanted) -> Said {
    let over = charge.verdict.outcome == Outcome::Denied || want.is_beyond();
    match (over, want.mode) {
        _ if want.refund => Said::Allowed,
        (true, Mode::DryRun) => Said::WouldDeny,
        (true, _) => Said::Denied,
        (false, _) => Said::Allowed,
    }
}

/// Takes out the rules that another rule of the request replaces, itself replaced or not.
// spec: rule-21
fn spare_replaced(policy: &Policy, wanted: &mut AllWanted) {
    let all = wanted.clone();
    wanted.retain(|want| {
        let mut others = all.iter();
        !others.any(|other| policy.rules.replaces(other.rule, want.rule))
    });
}

fn bytes_of(descriptors: &[RateLimitDescriptor]) -> u64 {
    let entries = descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.entries);
    entries
        .map(|entry| entry.key.len() as u64 + entry.value.len() as u64)
        .sum()
}
