//! From verdicts to the response: statuses, the finding that decides, headers, metadata.
//!
//! I own the form of an answer. I promise that every descriptor gets a status in the request's
//! order. I allocate the answer itself and nothing else.

use std::convert::Infallible;

use bytes::Bytes;
use gabion_admit::headers::{headers, Shown};
use gabion_admit::{retry_after_seconds, Outcome};
use gabion_rule::Mode;
use gabion_table::Charge;

use crate::config::When;
use crate::engine::Wanted;
use crate::metadata::Metadata;
use crate::policy::Policy;
use crate::protocol::{Code, DescriptorStatus, HeaderValue, RateLimitRequest, RateLimitResponse};

/// One request with what was found about it.
#[derive(Clone, Copy)]
pub(crate) struct Decided<'r> {
    pub(crate) request: &'r RateLimitRequest,
    /// In the order of `wanted`.
    pub(crate) charges: &'r [Charge],
    pub(crate) wanted: &'r [Wanted],
    pub(crate) denied: bool,
}

/// What a whole request comes down to.
#[derive(Clone, Copy, Default)]
struct Summary<'r> {
    /// The finding that denies, or is nearest to it.
    decisive: Option<Finding<'r>>,
    /// The first dry run that would have denied.
    watched: Option<Finding<'r>>,
}

impl Policy {
    pub(crate) fn respond(&self, decided: &Decided<'_>) -> RateLimitResponse {
        let descriptors = decided.request.descriptors.len();
        let mut statuses = Vec::with_capacity(descriptors);
        let mut summary = Summary::default();
        let mut rest = decided.charges.iter().zip(decided.wanted).peekable();
        for index in 0..descriptors {
            let mut best: Option<Finding<'_>> = None;
            while let Some((charge, want)) = rest.next_if(|(_, want)| want.descriptor == index) {
                let finding = Finding::new(charge, want);
                best = Some(best.map_or(finding, |best| best.nearer(finding)));
                if finding.would_deny && summary.watched.is_none() {
                    summary.watched = Some(finding);
                }
            }
            statuses.push(self.status(best));
            if let Some(best) = best {
                let decisive = summary.decisive;
                summary.decisive = Some(decisive.map_or(best, |other| other.nearer(best)));
            }
        }
        let (denied, answers) = (decided.denied, &self.answers);
        let shown = summary.decisive.filter(|found| !found.unlimited);
        let headers = shown.filter(|_| answers.headers.holds(denied));
        let mut headers = headers.map_or_else(Vec::new, |found| self.headers(found));
        let body = shown.filter(|found| found.denies);
        let body = body.and_then(|found| self.shown.get(usize::from(found.charge.rule)));
        let body = body.and_then(|shown| shown.denial.as_ref());
        headers.extend(body.iter().flat_map(|body| body.headers.iter().cloned()));
        if let Some(content_type) = body.and_then(|body| body.content_type.as_ref()) {
            headers.push(HeaderValue {
                key: Bytes::from_static(b"content-type"),
                value: content_type.clone(),
                ..HeaderValue::default()
            });
        }
        RateLimitResponse {
            overall_code: if denied { Code::OverLimit } else { Code::Ok }.into(),
            statuses,
            response_headers_to_add: headers,
            raw_body: body.map_or_else(Bytes::new, |body| body.text.clone()),
            dynamic_metadata: self.metadata(decided, shown, summary.watched),
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
        if found.unlimited {
            return DescriptorStatus {
                code: Code::Ok.into(),
                limit_remaining: u32::MAX,
                ..DescriptorStatus::default()
            };
        }
        let reading = &found.charge.verdict.reading;
        let code = if found.denies {
            Code::OverLimit
        } else {
            Code::Ok
        };
        DescriptorStatus {
            code: code.into(),
            current_limit: self
                .shown
                .get(usize::from(found.charge.rule))
                .map(|shown| shown.limit(reading.limit)),
            limit_remaining: reading.remaining,
            duration_until_reset: Some(prost_types::Duration {
                seconds: i64::try_from(found.reset_seconds()).unwrap_or(i64::MAX),
                nanos: 0,
            }),
        }
    }

    fn headers(&self, found: Finding<'_>) -> Vec<HeaderValue> {
        let Some(shown) = self.shown.get(usize::from(found.charge.rule)) else {
            return Vec::new();
        };
        let mut all = Vec::with_capacity(8);
        let mut keep = |name: &'static str, value: &[u8]| {
            all.push(HeaderValue {
                key: lower(name),
                value: Bytes::copy_from_slice(value),
                ..HeaderValue::default()
            });
            Ok::<(), Infallible>(())
        };
        let families = self.answers.families;
        let Ok(()) = headers(families, &shown.text, &found.shown(), &mut keep);
        all
    }

    /// `None` when it is off, or when there is nothing to say.
    fn metadata(
        &self,
        decided: &Decided<'_>,
        shown: Option<Finding<'_>>,
        watched: Option<Finding<'_>>,
    ) -> Option<prost_types::Struct> {
        let when = self.answers.metadata;
        if when == When::Off {
            return None;
        }
        let request = decided.request;
        let refunds = request.descriptors.iter().filter(|d| d.is_negative_hits);
        let refunds = refunds.count() as u64;
        let worth_saying = decided.denied || watched.is_some() || refunds > 0;
        if !when.holds(worth_saying) {
            return None;
        }
        let mut metadata = Metadata::default();
        let verdict = match (decided.denied, watched) {
            (true, _) => "denied",
            (false, Some(_)) => "would_deny",
            (false, None) => "allowed",
        };
        metadata.text("verdict", verdict);
        if let Some(watched) = watched {
            metadata.text("would_deny", self.name_of(&watched));
        }
        // An admitted request whose only news is a dry run is about that one.
        let about = match (decided.denied, watched) {
            (false, Some(watched)) => Some(watched),
            _ => shown,
        };
        if let Some(found) = about {
            let rule = self.rules.rule(found.charge.rule);
            metadata.who(rule.ok_or(self.name_of(&found)), &request.domain);
            metadata.shown(&found.shown());
        }
        if refunds > 0 {
            metadata.number("refunds_refused", refunds);
        }
        if self.answers.reference_fields {
            metadata.request(request);
        }
        self.say_quotas(decided, &mut metadata);
        Some(metadata.finish())
    }

    fn say_quotas(&self, decided: &Decided<'_>, metadata: &mut Metadata) {
        let (mut enabled, mut beyond) = (false, Vec::new());
        for (charge, want) in decided.charges.iter().zip(decided.wanted) {
            if !self.any_quota || !self.rules.rule(want.rule).is_some_and(|rule| rule.quota) {
                continue;
            }
            enabled = true;
            let index = want.descriptor;
            if Finding::new(charge, want).would_deny && beyond.last() != Some(&index) {
                beyond.push(index);
            }
        }
        if enabled || self.answers.reference_fields {
            metadata.quota(enabled, &beyond);
        }
    }

    fn name_of(&self, found: &Finding<'_>) -> &str {
        let shown = self.shown.get(usize::from(found.charge.rule));
        shown.map_or("", |shown| shown.text.name.as_str())
    }
}

/// What one rule has to say about one descriptor.
#[derive(Clone, Copy)]
struct Finding<'c> {
    charge: &'c Charge,
    enforced: bool,
    unlimited: bool,
    denies: bool,
    /// A dry run without room.
    would_deny: bool,
}

impl<'c> Finding<'c> {
    fn new(charge: &'c Charge, want: &Wanted) -> Self {
        let mode = want.mode;
        let enforced = !matches!(mode, Mode::DryRun | Mode::Unlimited);
        let over = want.is_beyond() || charge.verdict.outcome == Outcome::Denied;
        Self {
            charge,
            enforced,
            unlimited: mode == Mode::Unlimited,
            denies: enforced && over,
            would_deny: mode == Mode::DryRun && over && !want.is_mute(),
        }
    }

    /// The one that denies, by the longest wait; else the enforced one with the least left, of
    /// these the one that is longest so; the earlier one when they are equal. As in nginx.
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
                verdict.reading.reset_ns,
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

    fn shown(&self) -> Shown {
        let verdict = &self.charge.verdict;
        let over = self.denies || self.would_deny;
        Shown {
            reading: verdict.reading,
            denied_for_ns: over.then_some(verdict.retry_after_ns.max(1)),
        }
    }
}

/// The name of a header as HTTP/2 has it.
fn lower(name: &'static str) -> Bytes {
    Bytes::from_static(match name {
        "X-RateLimit-Limit" => b"x-ratelimit-limit",
        "X-RateLimit-Remaining" => b"x-ratelimit-remaining",
        "X-RateLimit-Reset" => b"x-ratelimit-reset",
        "Retry-After" => b"retry-after",
        other => return Bytes::from(other.to_ascii_lowercase()),
    })
}

/// The answer to a request over `max_descriptor_bytes`.
pub(crate) fn too_large(policy: &Policy, descriptors: usize) -> RateLimitResponse {
    let mut metadata = Metadata::default();
    metadata.text("verdict", "denied");
    metadata.text("cause", "too_large");
    let over = DescriptorStatus {
        code: Code::OverLimit.into(),
        ..DescriptorStatus::default()
    };
    RateLimitResponse {
        overall_code: Code::OverLimit.into(),
        statuses: vec![over; descriptors],
        dynamic_metadata: (policy.answers.metadata != When::Off).then(|| metadata.finish()),
        ..RateLimitResponse::default()
    }
}
