//! One request, decided.
//!
//! I own the way from a protobuf request to charges and verdicts. I promise that a denied request
//! charges nothing, and that whatever cannot be decided is let through and counted. I never lock or
//! allocate, and wait only for the moment in which a reload moves counters.

use std::sync::Arc;

use arc_swap::ArcSwap;
use arrayvec::ArrayVec;
use gabion_admit::Outcome;
use gabion_driver::ClusterClock;
use gabion_rule::{Counted, Dropped, Key, Mode, RuleIdx};
use gabion_table::Charge;

use crate::answer::{too_large, Decided};
use crate::limits::CHARGES_MAX;
use crate::logging::Seldom;
use crate::observe::{decisions_are_shown, Observer, OwnWords, Seen, Take, Values, Verdict, Watch};
use crate::policy::Policy;
use crate::protocol::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::tally::{is_near, Cause, Said, Tally};

pub mod explain;
mod gather;
mod own_words;
mod switch;

pub(crate) use gather::counted_by;
use own_words::log_values;
use switch::InForce;

/// Everything a decision needs, shared by all connections.
#[derive(Debug)]
pub struct Engine {
    policy: ArcSwap<InForce>,
    clock: Arc<ClusterClock>,
    tally: Arc<Tally>,
    warned: Warned,
    observer: Arc<Observer>,
}

/// When each warning about requests was logged last.
#[derive(Debug, Default)]
struct Warned {
    own_limit: Seldom,
    hits_back: Seldom,
    too_many_rules: Seldom,
    untrusted_peer: Seldom,
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
    /// When it is counted.
    pub(crate) counted: Counted,
    /// Which descriptor of the request.
    pub(crate) descriptor: usize,
}

impl Wanted {
    /// The charge of so many hits; now, or not before the response is known.
    // spec: pol-16
    fn charge(&self, hits: u32, tag: u8) -> Charge {
        let mut charge = Charge::new(self.rule, self.key, hits, self.mode, tag);
        charge.limit = self.limit;
        match self.counted {
            Counted::Read => charge.peeking(),
            Counted::Now | Counted::Late => charge,
        }
    }

    /// What the rule finds is no reason to say anything: hits are given back, or it is too late.
    pub(crate) fn is_mute(&self) -> bool {
        self.refund || self.counted == Counted::Late
    }

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
            policy: ArcSwap::from_pointee(InForce::new(policy, true)),
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
        Arc::clone(self.policy.load().policy())
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
        if !in_force.is_open() {
            self.wait_until_open(&in_force);
        }
        let answer = self.decide(in_force.policy(), request, &watch);
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
        let wanted = self.gather(policy, request, &mut |_, rule, why| {
            self.left_out(policy, rule, why);
        });
        // Nothing may be charged then, so everything is only read.
        let impossible = wanted.iter().any(Wanted::is_beyond);
        let mut charges: Charges = ArrayVec::new();
        for (tag, want) in (0u8..).zip(&wanted) {
            let hits = if impossible {
                0
            } else {
                u32::try_from(want.hits).unwrap_or(u32::MAX)
            };
            charges.push(want.charge(hits, tag));
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

    /// Counts that a rule was left out.
    // spec: pol-9
    fn left_out(&self, policy: &Policy, rule: RuleIdx, why: Dropped) {
        if why == Dropped::Unreadable {
            self.tally.cause(Cause::PredicateFailed, 1);
        }
        if let Some(tally) = policy.tallies.get(usize::from(rule)) {
            tally.left_out(why);
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
                match want.counted {
                    Counted::Now | Counted::Read => tally.add(said, near, hits),
                    // The request was counted when it was asked.
                    Counted::Late => tally.add_late(hits),
                }
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
            counted_by(policy, want.rule, descriptor, |entries| {
                values.add((index, rule, tally), entries, verdict, shower);
            });
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
        let all = decisions_are_shown();
        for (charge, want) in charges.iter().zip(wanted) {
            let said = said(charge, want);
            if said == Said::Allowed && !watch.looks() && !all {
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
            let named = policy.rules.rule(want.rule);
            let line = named.and_then(|rule| rule.log.as_ref());
            let values = |take: &mut Take<'_>| log_values(policy, want.rule, descriptor, take);
            counted_by(policy, want.rule, descriptor, |entries| {
                let seen = Seen {
                    rule,
                    domain,
                    identity: &identity,
                    key: want.key,
                    era: policy.era(index),
                    entries,
                    descriptor,
                    said,
                    hits: want.hits,
                    reading: verdict.reading,
                    wait_ns: verdict.retry_after_ns,
                    now_ns,
                    gate: tally.gate(),
                    log: OwnWords::new(line, &values),
                };
                self.observer.saw(watch, &seen);
            });
        }
    }
}

/// What a rule said by its verdict.
fn said(charge: &Charge, want: &Wanted) -> Said {
    let over = charge.verdict.outcome == Outcome::Denied || want.is_beyond();
    match (over, want.mode) {
        _ if want.is_mute() => Said::Allowed,
        (true, Mode::DryRun) => Said::WouldDeny,
        (true, _) => Said::Denied,
        (false, _) => Said::Allowed,
    }
}

fn bytes_of(descriptors: &[RateLimitDescriptor]) -> u64 {
    let entries = descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.entries);
    entries
        .map(|entry| entry.key.len() as u64 + entry.value.len() as u64)
        .sum()
}
