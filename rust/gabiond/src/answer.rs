//! From verdicts to the response: statuses, the finding that decides, headers.
//!
//! I own the form of an answer. I promise that every descriptor gets a status in the request's
//! order. I allocate the answer itself and nothing else.

use gabion_admit::{retry_after_seconds, Outcome};
use gabion_rule::Mode;
use gabion_table::Charge;

use crate::config::ResponseHeaders;
use crate::engine::Wanted;
use crate::policy::Policy;
use crate::protocol::{Code, DescriptorStatus, HeaderValue, RateLimitResponse};
use crate::shown::Shown;

impl Policy {
    pub(crate) fn respond(
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
            response_headers_to_add: headers
                .filter(|found| !found.unlimited)
                .map(|found| found.headers())
                .unwrap_or_default(),
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
    unlimited: bool,
    denies: bool,
}

impl<'c> Finding<'c> {
    fn new(charge: &'c Charge, mode: Mode, beyond: bool) -> Self {
        let enforced = !matches!(mode, Mode::DryRun | Mode::Unlimited);
        let over = beyond || charge.verdict.outcome == Outcome::Denied;
        Self {
            charge,
            enforced,
            unlimited: mode == Mode::Unlimited,
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

pub(crate) fn too_large(descriptors: usize) -> RateLimitResponse {
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
