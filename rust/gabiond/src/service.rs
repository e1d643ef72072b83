//! The rate-limit service: one request in, one verdict out.
//!
//! I own the way from a protobuf request to charges and back to statuses. I promise that every
//! descriptor gets a status in the request's order, that a denied request charges nothing, and that
//! whatever cannot be decided is let through and counted. I never wait, lock, or allocate beyond
//! the answer itself.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use arrayvec::ArrayVec;
use gabion_admit::{retry_after_seconds, Outcome};
use gabion_driver::ClusterClock;
use gabion_rule::{Key, KeyHasher, Matches, Mode, RuleIdx, RuleTable};
use gabion_table::Charge;
use tonic::{Request, Response, Status};

use crate::config::{ResponseHeaders, Storage};
use crate::limits::{CHARGES_MAX, ENTRIES_MAX};
use crate::logging::Seldom;
use crate::protocol::{
    Code, DescriptorStatus, HeaderValue, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    RateLimitService,
};
use crate::shown::Shown;
use crate::tally::{Cause, Said, Tally};
use crate::Counters;

/// Everything a decision needs, shared by all connections.
#[derive(Debug)]
pub struct Engine {
    rules: Arc<RuleTable>,
    shown: Vec<Shown>,
    hasher: KeyHasher,
    /// `None` when there are no rules.
    counters: Option<Arc<Counters>>,
    clock: Arc<ClusterClock>,
    tally: Arc<Tally>,
    bounds: Storage,
    headers: ResponseHeaders,
    warned: Warned,
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
struct Wanted {
    rule: RuleIdx,
    key: Key,
    hits: u64,
    mode: Mode,
    /// Which descriptor of the request.
    descriptor: usize,
}

type AllWanted = ArrayVec<Wanted, CHARGES_MAX>;
type Charges = ArrayVec<Charge, CHARGES_MAX>;

impl Engine {
    /// An engine over `rules`, whose counters are in `counters` in the same order.
    pub fn new(
        rules: Arc<RuleTable>,
        hasher: KeyHasher,
        counters: Option<Arc<Counters>>,
        clock: Arc<ClusterClock>,
        bounds: Storage,
        headers: ResponseHeaders,
    ) -> Self {
        let shown = rules.rules().iter().map(Shown::new).collect();
        let tally = Arc::new(Tally::new(rules.rules().len()));
        Self {
            rules,
            shown,
            hasher,
            counters,
            clock,
            tally,
            bounds,
            headers,
            warned: Warned::default(),
        }
    }

    /// The rules it decides by.
    pub fn rules(&self) -> &RuleTable {
        &self.rules
    }

    /// Where it counts; `None` when there are no rules.
    pub fn counters(&self) -> Option<&Counters> {
        self.counters.as_deref()
    }

    /// Cluster time, nanoseconds since 1970.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Decides one request.
    pub fn answer(&self, request: &RateLimitRequest) -> RateLimitResponse {
        let descriptors = &request.descriptors;
        self.tally.descriptors.add(descriptors.len() as u64);
        if bytes_of(descriptors) > self.bounds.max_descriptor_bytes {
            self.tally.cause(Cause::TooLarge, 1);
            self.tally.denied.add(1);
            return too_large(descriptors.len());
        }
        let wanted = self.gather(request);
        // More hits than a counter can hold are denied, like more than the limit: nothing may be
        // charged then, so everything is only read.
        let beyond = |wanted: &Wanted| {
            wanted.hits > u64::from(u32::MAX) && matches!(wanted.mode, Mode::Enforce)
        };
        let impossible = wanted.iter().any(beyond);
        let mut charges: Charges = ArrayVec::new();
        for (tag, want) in (0u8..).zip(&wanted) {
            let hits = if impossible {
                0
            } else {
                u32::try_from(want.hits).unwrap_or(u32::MAX)
            };
            charges.push(Charge::new(want.rule, want.key, hits, want.mode, tag));
        }
        let decided = match &self.counters {
            Some(counters) if !charges.is_empty() => {
                counters.decide(&mut charges, self.clock.now_ns()).outcome
            }
            _ => Outcome::Allowed,
        };
        charges.sort_unstable_by_key(|charge| charge.tag); // the request's order again
        let denied = impossible || decided == Outcome::Denied;
        self.count(&charges, &wanted, denied, beyond);
        self.respond(descriptors.len(), &charges, &wanted, denied, beyond)
    }

    /// Which rules are to be charged with what.
    fn gather(&self, request: &RateLimitRequest) -> AllWanted {
        let mut wanted = AllWanted::new();
        let looked_at = self
            .bounds
            .max_descriptor_count
            .min(request.descriptors.len());
        let skipped = request.descriptors.len() - looked_at;
        if skipped > 0 {
            self.tally.cause(Cause::TooManyDescriptors, skipped as u64);
        }
        for (index, descriptor) in request.descriptors.iter().take(looked_at).enumerate() {
            let hits = self.hits_of(request, descriptor);
            self.gather_one(&request.domain, index, descriptor, hits, &mut wanted);
        }
        wanted
    }

    fn hits_of(&self, request: &RateLimitRequest, descriptor: &RateLimitDescriptor) -> u64 {
        if descriptor.limit.is_some() {
            self.tally.cause(Cause::OverrideIgnored, 1);
            if self.warned.own_limit.pass(self.now_ns()) {
                tracing::warn!(
                    "a request brings its own limit; this version decides by the configured \
                     rules. Remove the override in Envoy, or add a rule"
                );
            }
        }
        if descriptor.is_negative_hits {
            self.tally.cause(Cause::NegativeHits, 1);
            if self.warned.hits_back.pass(self.now_ns()) {
                tracing::warn!(
                    "a request wants hits back; this version reads without charging instead"
                );
            }
            return 0;
        }
        descriptor
            .hits_addend
            .unwrap_or_else(|| u64::from(request.hits_addend.max(1)))
    }

    fn gather_one(
        &self,
        domain: &[u8],
        index: usize,
        descriptor: &RateLimitDescriptor,
        hits: u64,
        wanted: &mut AllWanted,
    ) {
        if descriptor.entries.len() > ENTRIES_MAX {
            return self.tally.cause(Cause::TooManyEntries, 1);
        }
        if bytes_of(std::slice::from_ref(descriptor)) > self.bounds.max_key_bytes {
            return self.tally.cause(Cause::KeyTooLong, 1);
        }
        let entries: ArrayVec<(&[u8], &[u8]), ENTRIES_MAX> = descriptor
            .entries
            .iter()
            .map(|entry| (&*entry.key, &*entry.value))
            .collect();
        let mut matches = Matches::new();
        let report = self.rules.match_descriptor(domain, &entries, &mut matches);
        if report.matched == 0 {
            self.tally.unmatched.add(1);
        }
        let mut skipped = u64::from(report.skipped);
        for index_of_rule in matches.iter() {
            let (Some(rule), Some(identity)) = (
                self.rules.rule(index_of_rule),
                self.rules.identities().get(usize::from(index_of_rule)),
            ) else {
                continue;
            };
            let want = Wanted {
                rule: index_of_rule,
                key: self.hasher.key(identity, &entries, 0),
                hits,
                mode: rule.mode,
                descriptor: index,
            };
            skipped += u64::from(wanted.try_push(want).is_err());
        }
        if skipped > 0 {
            self.tally.cause(Cause::TooManyRules, skipped);
            if self.warned.too_many_rules.pass(self.now_ns()) {
                tracing::warn!(
                    skipped,
                    "a request matches more rules than are looked at; the rest was not counted. \
                     Split the rules over domains"
                );
            }
        }
    }

    fn count(
        &self,
        charges: &[Charge],
        wanted: &[Wanted],
        denied: bool,
        beyond: impl Fn(&Wanted) -> bool,
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
            let over = charge.verdict.outcome == Outcome::Denied || beyond(want);
            let said = match (over, want.mode) {
                (true, Mode::DryRun) => Said::WouldDeny,
                (true, _) => Said::Denied,
                (false, _) => Said::Allowed,
            };
            let hits = if denied { 0 } else { charge.hits };
            self.tally.rule(want.rule, said, hits);
        }
    }

    fn respond(
        &self,
        descriptors: usize,
        charges: &[Charge],
        wanted: &[Wanted],
        denied: bool,
        beyond: impl Fn(&Wanted) -> bool,
    ) -> RateLimitResponse {
        let mut statuses = Vec::with_capacity(descriptors);
        let mut decisive: Option<Finding<'_>> = None;
        let mut rest = charges.iter().zip(wanted).peekable();
        for index in 0..descriptors {
            let mut best: Option<Finding<'_>> = None;
            while let Some((charge, want)) = rest.next_if(|(_, want)| want.descriptor == index) {
                let finding = Finding::new(charge, want.mode, beyond(want));
                best = Some(best.map_or(finding, |best| best.nearer(finding)));
            }
            statuses.push(self.status(best));
            if let Some(best) = best {
                decisive = Some(decisive.map_or(best, |other| other.nearer(best)));
            }
        }
        let headers = match (self.headers, denied) {
            (ResponseHeaders::Always, _) | (ResponseHeaders::Denied, true) => decisive,
            _ => None,
        };
        RateLimitResponse {
            overall_code: if denied { Code::OverLimit } else { Code::Ok }.into(),
            statuses,
            response_headers_to_add: headers.map(|found| found.headers()).unwrap_or_default(),
            ..RateLimitResponse::default()
        }
    }

    fn status(&self, found: Option<Finding<'_>>) -> DescriptorStatus {
        let Some(found) = found else {
            return DescriptorStatus {
                code: Code::Ok.into(),
                ..DescriptorStatus::default()
            };
        };
        DescriptorStatus {
            code: if found.denies {
                Code::OverLimit
            } else {
                Code::Ok
            }
            .into(),
            current_limit: self
                .shown
                .get(usize::from(found.charge.rule))
                .map(Shown::limit),
            limit_remaining: found.charge.verdict.reading.remaining,
            duration_until_reset: Some(prost_types::Duration {
                seconds: i64::try_from(found.reset_seconds()).unwrap_or(i64::MAX),
                nanos: 0,
            }),
        }
    }
}

/// What one rule has to say about one descriptor.
#[derive(Clone, Copy)]
struct Finding<'c> {
    charge: &'c Charge,
    enforced: bool,
    denies: bool,
}

impl<'c> Finding<'c> {
    fn new(charge: &'c Charge, mode: Mode, beyond: bool) -> Self {
        let enforced = mode != Mode::DryRun;
        let over = beyond || charge.verdict.outcome == Outcome::Denied;
        Self {
            charge,
            enforced,
            denies: enforced && over,
        }
    }

    /// The one that denies, by the longest wait; else the enforced one with the least left; the
    /// earlier one when they are equal.
    fn nearer(self, other: Self) -> Self {
        let rank = |found: &Self| {
            let verdict = &found.charge.verdict;
            let wait_ns = if found.denies {
                verdict.retry_after_ns
            } else {
                0
            };
            (
                found.denies,
                found.enforced,
                wait_ns,
                u32::MAX - verdict.reading.remaining,
            )
        };
        if rank(&other) > rank(&self) {
            other
        } else {
            self
        }
    }

    /// Seconds until the answer can change, rounded up; at least 1 when denied.
    fn reset_seconds(&self) -> u64 {
        let verdict = &self.charge.verdict;
        if self.denies {
            retry_after_seconds(verdict.retry_after_ns.max(1))
        } else {
            verdict.reading.reset_ns.div_ceil(1_000_000_000)
        }
    }

    fn headers(&self) -> Vec<HeaderValue> {
        let header = |key: &str, value: u64| HeaderValue {
            key: key.to_owned(),
            value: value.to_string(),
            ..HeaderValue::default()
        };
        let reading = &self.charge.verdict.reading;
        let mut headers = vec![
            header("x-ratelimit-limit", u64::from(reading.limit)),
            header("x-ratelimit-remaining", u64::from(reading.remaining)),
            header("x-ratelimit-reset", self.reset_seconds()),
        ];
        if self.denies {
            headers.push(header("retry-after", self.reset_seconds()));
        }
        headers
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

fn too_large(descriptors: usize) -> RateLimitResponse {
    let over = DescriptorStatus {
        code: Code::OverLimit.into(),
        ..DescriptorStatus::default()
    };
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![over; descriptors],
        ..RateLimitResponse::default()
    }
}

/// The gRPC face of an [`Engine`].
#[derive(Clone, Debug)]
pub struct Service {
    engine: Arc<Engine>,
}

impl Service {
    /// Serves `engine`.
    pub fn new(engine: Arc<Engine>) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let tally = &self.engine.tally;
        if request.domain.is_empty() {
            tally.cause(Cause::NoDomain, 1);
            return Err(Status::invalid_argument("the request names no domain"));
        }
        if request.descriptors.is_empty() {
            tally.cause(Cause::NoDescriptors, 1);
            return Err(Status::invalid_argument("the request has no descriptors"));
        }
        let answer = catch_unwind(AssertUnwindSafe(|| self.engine.answer(&request)));
        Ok(Response::new(answer.unwrap_or_else(|_panic| {
            tally.cause(Cause::Internal, 1);
            let ok = DescriptorStatus {
                code: Code::Ok.into(),
                ..DescriptorStatus::default()
            };
            RateLimitResponse {
                overall_code: Code::Ok.into(),
                statuses: vec![ok; request.descriptors.len()],
                ..RateLimitResponse::default()
            }
        })))
    }
}
