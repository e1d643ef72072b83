//! One validated rule and its parts.
//!
//! I own the types every other room reads a limit from, and their canonical printing. I promise
//! that a [`Rule`] made by [`crate::RuleSpec::build`] is inside every bound of [`crate::limits`]
//! and that printing it and building it again gives an equal one. I never read text: the grammar is
//! in `rate`, `duration` and `spec`.

use std::fmt;

use crate::condition::{Alternative, Shown};
use crate::denial::Denial;
use crate::duration::DurationText;
use crate::error::Place;
use crate::identity::{CounterIdentity, LimitDigest};
use crate::limits::{MIN_BUCKET_NS, MIN_TOKEN_EPOCH_NS};
use crate::log_line::LogLine;
use crate::operator::{flag_name, limiter_name, Switch};
use crate::pace::Pace;
use crate::rate::Rate;
use crate::spec::{DescriptorSpec, RuleSpec, TiersSpec};
use crate::tier::{ChargeAfter, Tiers};

/// What a rule does with its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Count and deny.
    #[default]
    Enforce,
    /// Count, never deny; the would-be verdict is visible.
    DryRun,
    /// Neither count nor deny: the rule matches nothing.
    Disabled,
    /// Deny whatever matches, count nothing.
    DenyAll,
    /// Admit whatever matches, count nothing, and shield it from broader rules.
    Unlimited,
}

/// The word for a dry run whose findings are in the metadata of answers.
pub(crate) const QUOTA: &str = "quota";

impl Mode {
    /// The word of a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Enforce => "enforce",
            Mode::DryRun => "dry_run",
            Mode::Disabled => "disabled",
            Mode::DenyAll => "deny",
            Mode::Unlimited => "unlimited",
        }
    }

    /// Whether the rule holds counters.
    pub fn counts(self) -> bool {
        matches!(self, Mode::Enforce | Mode::DryRun)
    }
}

/// How a rule finds its descriptors.
// spec: rule-10, rule-19
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Matching {
    /// The order of a descriptor's entries does not matter, and every rule that matches applies.
    #[default]
    All,
    /// The entries stand in the order of the rule, and of the rules of a domain that match by path
    /// only the first one in the configuration applies to a descriptor.
    Path,
    /// The keys are picked from the attributes of a request, which may have others; every rule that
    /// applies is asked.
    Request,
}

impl Matching {
    /// The word of a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Matching::All => "all",
            Matching::Path => "path",
            Matching::Request => "request",
        }
    }
}

/// How the buckets of a window are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Sliding {
    /// The live buckets, the current one included: never denies early.
    #[default]
    Live,
    /// One closed bucket more, counted whole: never more than the limit in any window.
    Strict,
    /// One closed bucket more, counted by its remaining share.
    Weighted,
}

impl Sliding {
    /// The word of a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Sliding::Live => "live",
            Sliding::Strict => "strict",
            Sliding::Weighted => "weighted",
        }
    }
}

/// What is enforced, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// At most `limit` hits in `window_ns`. The window is fixed when `bucket_ns == window_ns`.
    Window {
        /// Hits, at least 1.
        limit: u32,
        /// Horizon, ns.
        window_ns: u64,
        /// Grain inside the horizon, ns.
        bucket_ns: u64,
        /// How the buckets are summed.
        sliding: Sliding,
    },
    /// `burst` hits at once when idle, then `hits` per `per_ns`.
    TokenBucket {
        /// Hits in `per_ns`; the two are in lowest terms.
        hits: u64,
        /// Nanoseconds.
        per_ns: u64,
        /// Depth, at least 1.
        burst: u32,
        /// Replication epoch: a power of two of milliseconds, at least 1 s and at least the time
        /// the bucket needs to fill.
        epoch_ns: u64,
    },
}

impl Algorithm {
    /// Buckets that make up the window: `ceil(window / bucket)`; 1 for a token bucket.
    pub fn buckets(&self) -> u64 {
        match *self {
            Algorithm::Window {
                window_ns,
                bucket_ns,
                ..
            } => window_ns.div_ceil(bucket_ns.max(1)),
            Algorithm::TokenBucket { .. } => 1,
        }
    }

    /// Most hits that can ever be admitted at once.
    pub fn limit(&self) -> u32 {
        match *self {
            Algorithm::Window { limit, .. } => limit,
            Algorithm::TokenBucket { burst, .. } => burst,
        }
    }

    /// A token bucket with its rate in lowest terms and its epoch computed. `None` when it would
    /// take longer than [`crate::limits::MAX_WINDOW_NS`] to fill, or when a number is 0.
    // spec: rule-6
    pub fn token_bucket(rate: Rate, burst: u32) -> Option<Algorithm> {
        let Rate { hits, per_ns } = rate.reduced();
        if hits == 0 || per_ns == 0 || burst == 0 {
            return None;
        }
        let fill_ns = (u128::from(burst) * u128::from(per_ns)).div_ceil(u128::from(hits));
        if fill_ns > u128::from(crate::limits::MAX_WINDOW_NS) {
            return None;
        }
        let fill_ns = u64::try_from(fill_ns).ok()?.max(MIN_TOKEN_EPOCH_NS);
        let epoch_ms = fill_ns
            .div_ceil(MIN_BUCKET_NS)
            .checked_next_power_of_two()?;
        let epoch_ns = epoch_ms.checked_mul(MIN_BUCKET_NS)?;
        Some(Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            epoch_ns,
        })
    }
}

/// What one value of a descriptor must look like.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ValuePattern {
    /// These bytes and no others.
    Exact(Vec<u8>),
    /// Anything; each value has its own counter.
    Any,
    /// Anything that starts with these bytes; each value has its own counter.
    Prefix(Vec<u8>),
}

impl ValuePattern {
    /// Parses the text of a configuration: `*` is any, `abc*` a prefix, all else exact. A last star
    /// that is meant as a character is written `\*`; a backslash before it is then doubled.
    // spec: rule-9
    pub fn parse(text: &[u8]) -> ValuePattern {
        let Some(body) = text.strip_suffix(b"*") else {
            return ValuePattern::Exact(text.to_vec());
        };
        let slashes = body.iter().rev().take_while(|b| **b == b'\\').count();
        let mut value = body[..body.len() - slashes].to_vec();
        value.extend(std::iter::repeat_n(b'\\', slashes / 2));
        if slashes % 2 == 1 {
            value.push(b'*');
            ValuePattern::Exact(value)
        } else if value.is_empty() {
            ValuePattern::Any
        } else {
            ValuePattern::Prefix(value)
        }
    }

    /// The text that parses to this pattern.
    pub fn text(&self) -> Vec<u8> {
        let doubled = |body: &[u8]| {
            let slashes = body.iter().rev().take_while(|b| **b == b'\\').count();
            let mut out = body.to_vec();
            out.extend(std::iter::repeat_n(b'\\', slashes));
            out
        };
        match self {
            ValuePattern::Any => b"*".to_vec(),
            ValuePattern::Prefix(prefix) => {
                let mut out = doubled(prefix);
                out.push(b'*');
                out
            }
            ValuePattern::Exact(value) => match value.strip_suffix(b"*") {
                Some(body) => {
                    let mut out = doubled(body);
                    out.extend_from_slice(b"\\*");
                    out
                }
                None => value.clone(),
            },
        }
    }

    /// Whether a value matches.
    pub fn matches(&self, value: &[u8]) -> bool {
        match self {
            ValuePattern::Exact(exact) => exact == value,
            ValuePattern::Any => true,
            ValuePattern::Prefix(prefix) => value.starts_with(prefix),
        }
    }
}

/// One entry of a rule's descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DescriptorPattern {
    /// Key, compared byte by byte.
    pub key: Vec<u8>,
    /// What the value must look like.
    pub value: ValuePattern,
    /// Whether all values that match share one counter. Means nothing for an exact value.
    pub shared: bool,
    /// What stands for an absent value, with [`Matching::Request`].
    pub fallback: Option<Fallback>,
}

/// What a request counts as whose value is absent, or unknown.
// spec: pol-6
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fallback {
    /// The value in its place.
    pub value: Vec<u8>,
    /// The values that are known, sorted; none: all are.
    pub known: Vec<Vec<u8>>,
}

impl Fallback {
    /// The value itself when it is known. Never allocates.
    pub fn known_or_own<'v>(&'v self, value: &'v [u8]) -> &'v [u8] {
        let known = || self.known.binary_search_by(|k| k.as_slice().cmp(value));
        if self.known.is_empty() || known().is_ok() {
            value
        } else {
            &self.value
        }
    }
}

impl DescriptorPattern {
    /// A pattern from the text of a configuration; no value is any value.
    pub fn new(key: impl Into<Vec<u8>>, value: Option<&[u8]>) -> Self {
        DescriptorPattern {
            key: key.into(),
            value: value.map_or(ValuePattern::Any, ValuePattern::parse),
            shared: false,
            fallback: None,
        }
    }
}

/// One policy: what is counted, how much of it is admitted, and what happens beyond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name that headers, metrics and logs use; unique in its domain.
    pub name: String,
    /// Namespace of the rule; a request names its domain.
    pub domain: String,
    /// The named set of counters; the rule's name by default.
    pub limiter: String,
    /// What is counted, as written.
    pub descriptors: Vec<DescriptorPattern>,
    /// How the descriptors are found.
    pub matching: Matching,
    /// Limiters of this domain whose rules a request is spared when this rule matches it.
    pub replaces: Vec<String>,
    /// The rate as written; `1r/s` for a mode that uses none.
    pub rate: Rate,
    /// What is enforced.
    pub algorithm: Algorithm,
    /// What happens with the verdict.
    pub mode: Mode,
    /// Whether metadata of answers list what is beyond the limit; with [`Mode::DryRun`] only. Part
    /// of neither identity nor digest.
    pub quota: bool,
    /// Keys of the descriptor whose values have metric series of their own. Part of neither
    /// identity nor digest.
    pub metric_values: Vec<String>,
    /// How members share the limit.
    pub pace: Pace,
    /// How many counters the rule may hold; an equal share of the memory when `None`.
    pub cardinality: Option<u32>,
    /// Error budget in parts per million of the limit.
    pub error_budget_ppm: u32,
    /// The flag that switches the rule, declared beside the rules. Part of neither identity nor
    /// digest: it says whether the rule is looked at, not what it counts.
    pub switch: Option<Switch>,
    /// The rule applies only if one of these holds; always when there are none.
    pub only_if: Vec<Alternative>,
    /// The rule does not apply if one of these holds.
    pub except_if: Vec<Alternative>,
    /// Other limits by the value of an attribute.
    pub tiers: Option<Tiers>,
    /// When the rule applies, later ones of its domain do not.
    pub last: bool,
    /// It is charged when the response is known.
    pub charge: Option<ChargeAfter>,
    /// What a denied client reads. Part of neither identity nor digest.
    pub denial: Option<Denial>,
    /// What the log says of its denials. Part of neither identity nor digest.
    pub log: Option<LogLine>,
    /// Where the rule was written, for messages. Part of neither identity nor digest.
    pub place: Option<Place>,
}

impl Rule {
    /// Identity of the rule's counters. Equal for equal domain, limiter, descriptor shape, window,
    /// bucket and algorithm, whatever their order, whoever computes it.
    // spec: rule-11
    pub fn identity(&self) -> CounterIdentity {
        crate::identity::identity_of(self)
    }

    /// Digest of everything that decides: the identity, the numbers and the mode.
    // spec: rule-13
    pub fn digest(&self) -> LimitDigest {
        crate::identity::digest_of(self)
    }

    /// The word of a configuration for what the rule does with its verdict.
    pub fn mode_word(&self) -> &'static str {
        if self.quota {
            QUOTA
        } else {
            self.mode.word()
        }
    }

    /// What the rule's orders are called between members: its limiter's era and its flag.
    // spec: ord-1, ord-2
    pub fn order_names(&self) -> (u64, Option<u64>) {
        let flag = self
            .switch
            .as_ref()
            .map(|switch| flag_name(&switch.flag.name));
        (limiter_name(&self.domain, &self.limiter), flag)
    }

    /// The words of a configuration that build this rule again, in canonical form.
    pub fn to_spec(&self) -> RuleSpec {
        let mut spec = RuleSpec {
            name: self.name.clone(),
            domain: Some(self.domain.clone()),
            limiter: Some(self.limiter.clone()),
            descriptors: self
                .descriptors
                .iter()
                .map(|d| DescriptorSpec {
                    key: d.key.clone(),
                    value: (d.value != ValuePattern::Any).then(|| d.value.text()),
                    shared: d.shared,
                    fallback: d.fallback.clone(),
                })
                .collect(),
            matching: Some(self.matching.word().to_owned()),
            replaces: self.replaces.clone(),
            rate: Some(self.rate.to_string()),
            cardinality: self.cardinality.map(|c| c.to_string()),
            mode: Some(self.mode_word().to_owned()),
            metric_values: self.metric_values.clone(),
            pace: Some(self.pace.word().to_owned()),
            members: self.pace.members().map(|members| members.to_string()),
            error_budget: Some(format!("{}ppm", self.error_budget_ppm)),
            switch: self.switch.clone(),
            only_if: self.only_if.clone(),
            except_if: self.except_if.clone(),
            tiers: self.tiers.as_ref().map(TiersSpec::of),
            last: self.last,
            charge: self.charge.clone(),
            denial: self.denial.clone(),
            log: self.log.clone(),
            place: self.place.clone(),
            ..RuleSpec::default()
        };
        match self.algorithm {
            Algorithm::Window {
                window_ns,
                bucket_ns,
                sliding,
                ..
            } => {
                spec.window = Some(DurationText(window_ns).to_string());
                spec.bucket = Some(DurationText(bucket_ns).to_string());
                spec.sliding = Some(sliding.word().to_owned());
            }
            Algorithm::TokenBucket { burst, .. } => spec.burst = Some(burst.to_string()),
        }
        spec
    }

    /// The smallest limit that a request may be held to.
    pub fn limit_min(&self) -> u32 {
        let tiers = self.tiers.as_ref().map_or(&[][..], Tiers::all);
        let limits = tiers.iter().map(|tier| tier.limit);
        limits.fold(self.algorithm.limit(), u32::min)
    }

    /// Whether nothing but the rule's descriptors says whether it applies, and nothing changes its
    /// limit.
    pub(crate) fn is_plain(&self) -> bool {
        let unconditional = self.only_if.is_empty() && self.except_if.is_empty();
        unconditional && self.switch.is_none() && self.tiers.is_none()
    }

    /// One line that says the whole rule in the words of a configuration.
    pub fn describe(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} domain={}", self.name, self.domain)?;
        if self.limiter != self.name {
            write!(f, " limiter={}", self.limiter)?;
        }
        f.write_str(" [")?;
        for (i, d) in self.descriptors.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let key = String::from_utf8_lossy(&d.key);
            write!(
                f,
                "{comma}{key}={}{}",
                String::from_utf8_lossy(&d.value.text()),
                if d.shared { " (shared)" } else { "" }
            )?;
            if let Some(fallback) = &d.fallback {
                write!(f, " or {}", String::from_utf8_lossy(&fallback.value))?;
            }
        }
        write!(f, "] rate={}", self.rate)?;
        match self.algorithm {
            Algorithm::Window {
                limit,
                window_ns,
                bucket_ns,
                sliding,
            } => {
                write!(f, " window={}", DurationText(window_ns))?;
                if bucket_ns != window_ns || sliding != Sliding::Live {
                    write!(
                        f,
                        " bucket={} sliding={}",
                        DurationText(bucket_ns),
                        sliding.word()
                    )?;
                }
                write!(f, " (limit {limit})")?;
            }
            Algorithm::TokenBucket { burst, .. } => write!(f, " burst={burst}")?,
        }
        if let Some(cardinality) = self.cardinality {
            write!(f, " cardinality={cardinality}")?;
        }
        write!(f, " mode={}", self.mode_word())?;
        if self.pace != Pace::Fast {
            write!(f, " pace={}", self.pace.word())?;
        }
        if let Some(members) = self.pace.members() {
            write!(f, " members={members}")?;
        }
        if self.matching != Matching::All {
            write!(f, " match={}", self.matching.word())?;
        }
        if !self.replaces.is_empty() {
            write!(f, " replaces={}", self.replaces.join(","))?;
        }
        if self.error_budget_ppm != crate::limits::DEFAULT_ERROR_BUDGET_PPM {
            write!(f, " error_budget={}ppm", self.error_budget_ppm)?;
        }
        if !self.metric_values.is_empty() {
            write!(f, " metric_values={}", self.metric_values.join(","))?;
        }
        self.fmt_vocabulary(f)
    }
}

impl Rule {
    /// The parts of the line that most rules do not have.
    fn fmt_vocabulary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.only_if.is_empty() {
            write!(f, " only_if({})", Shown(&self.only_if))?;
        }
        if !self.except_if.is_empty() {
            write!(f, " except_if({})", Shown(&self.except_if))?;
        }
        if let Some(tiers) = &self.tiers {
            write!(f, " tiers({}:", String::from_utf8_lossy(tiers.by()))?;
            for tier in tiers.all() {
                write!(f, " {}={}", String::from_utf8_lossy(&tier.value), tier.rate)?;
            }
            f.write_str(")")?;
        }
        if let Some(switch) = &self.switch {
            write!(f, " {}={}", switch.word(), switch.flag.name)?;
        }
        if let Some(charge) = &self.charge {
            f.write_str(" charge=response")?;
            let patterns = charge.statuses.iter().map(|pattern| pattern.text());
            let texts: Vec<String> = patterns
                .map(|text| String::from_utf8_lossy(&text).into_owned())
                .collect();
            if !texts.is_empty() {
                write!(f, "({})", texts.join("|"))?;
            }
            if let Some(switch) = &charge.switch {
                write!(f, " {}={}", switch.word(), switch.flag.name)?;
            }
        }
        if self.last {
            f.write_str(" last")?;
        }
        if let Some(denial) = &self.denial {
            if let Some(body) = &denial.body {
                write!(f, " raw_body={} bytes", body.len())?;
            }
            if !denial.headers.is_empty() {
                write!(f, " raw_headers={}", denial.headers.len())?;
            }
        }
        Ok(())
    }
}
