//! From the words of a configuration to a validated rule.
//!
//! I own the checks and the defaults. I promise that nginx words and YAML build the same rule,
//! since both come through here, and that every fault of a rule is reported at once. I never guess:
//! what contradicts itself is refused with what to write.

use crate::condition::Alternative;
use crate::denial::Denial;
use crate::duration::{parse_duration_ns, shorten, DurationText};
use crate::error::{Notice, NoticeKind, Place, RuleError};
use crate::limits::{
    DEFAULT_ERROR_BUDGET_PPM, MAX_HITS_PER_SECOND, MAX_LIVE_BUCKETS, MAX_NAME_BYTES, MAX_REPLACED,
    MAX_WINDOW_NS, MIN_BUCKET_NS,
};
use crate::log_line::LogLine;
use crate::operator::Switch;
use crate::pace::{check_pace, pace_of, Pace};
use crate::rate::{parse_ppm, Rate};
use crate::rule::{Algorithm, Fallback, Matching, Mode, Rule, Sliding, ValuePattern, QUOTA};
use crate::tier::ChargeAfter;

mod descriptors;
mod vocabulary;

pub use vocabulary::TiersSpec;

/// One descriptor entry as a configuration gives it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorSpec {
    /// Key.
    pub key: Vec<u8>,
    /// Text of the pattern: `*`, `abc*`, or an exact value; `None` is any.
    pub value: Option<Vec<u8>>,
    /// Whether all values that match share one counter; not for an exact value.
    pub shared: bool,
    /// What stands for an absent or unknown value, with `match: request`.
    pub fallback: Option<Fallback>,
}

/// The words of one rule as a configuration gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSpec {
    /// Name, required.
    pub name: String,
    /// Domain, required: nginx passes `nginx` by default.
    pub domain: Option<String>,
    /// Named set of counters; the rule's name by default.
    pub limiter: Option<String>,
    /// What is counted; at least one entry, but with `match: request`.
    pub descriptors: Vec<DescriptorSpec>,
    /// `all` (default), `path` or `request`. Written `match`.
    pub matching: Option<String>,
    /// Limiters that a request is spared when this rule matches it.
    pub replaces: Vec<String>,
    /// `100r/s`; required for `enforce` and `dry_run`.
    pub rate: Option<String>,
    /// `1m`; the rate's unit by default.
    pub window: Option<String>,
    /// `1s`; the window by default.
    pub bucket: Option<String>,
    /// Depth of a token bucket; excludes `window`, `bucket` and `sliding`.
    pub burst: Option<String>,
    /// `live` (default), `strict` or `weighted`.
    pub sliding: Option<String>,
    /// Counters the rule may hold.
    pub cardinality: Option<String>,
    /// `enforce` (default), `dry_run`, `quota`, `disabled`, `deny` or `unlimited`.
    pub mode: Option<String>,
    /// Keys of the descriptor whose values have metric series of their own.
    pub metric_values: Vec<String>,
    /// `fast` (default), `paced` or `strict`.
    pub pace: Option<String>,
    /// Members that share the limit; for `pace=strict` alone, which needs it.
    pub members: Option<String>,
    /// `1%`, `100bps` or `10000ppm`; 1 % by default.
    pub error_budget: Option<String>,
    /// The declared flag that switches the rule: `if_flag` or `unless_flag`.
    pub switch: Option<Switch>,
    /// The rule applies only if one of these holds.
    pub only_if: Vec<Alternative>,
    /// The rule does not apply if one of these holds.
    pub except_if: Vec<Alternative>,
    /// Limits by the value of an attribute; not with `burst`.
    pub tiers: Option<TiersSpec>,
    /// When the rule applies, later ones of its domain do not.
    pub last: bool,
    /// Charged when the response is known, with `match: request`.
    pub charge: Option<ChargeAfter>,
    /// What a denied client reads.
    pub denial: Option<Denial>,
    /// What the log says of its denials.
    pub log: Option<LogLine>,
    /// Where the rule was written.
    pub place: Option<Place>,
}

impl RuleSpec {
    /// Builds the rule.
    ///
    /// # Errors
    /// The first fault found; [`RuleSpec::build_all`] gives all of them.
    pub fn build(&self) -> Result<(Rule, Vec<Notice>), RuleError> {
        self.build_all().map_err(|mut errors| errors.swap_remove(0))
    }

    /// Builds the rule.
    ///
    /// # Errors
    /// Every fault of the rule, at least one, in the order of the settings.
    pub fn build_all(&self) -> Result<(Rule, Vec<Notice>), Vec<RuleError>> {
        let mut check = Check {
            spec: self,
            errors: Vec::new(),
            notices: Vec::new(),
        };
        let name = check.name("name", Some(&self.name));
        let domain = check.name("domain", self.domain.as_deref());
        let limiter = check.limiter();
        let matching = check.matching();
        let descriptors = check.descriptors(matching);
        check.vocabulary(matching, &descriptors);
        check.log(matching, &descriptors);
        check.replaces();
        let mode = check.mode();
        check.metric_values();
        let pace = check.pace();
        let sliding = check.sliding();
        let cardinality = check.cardinality();
        let budget = check.error_budget();
        let limit = check.limit(mode.unwrap_or_default(), sliding);
        let algorithm = limit.as_ref().map(|(_, algorithm)| algorithm);
        check
            .errors
            .extend(check_pace(pace.unwrap_or_default(), self, algorithm));
        let tiers = check.tiers(limit.as_ref().map(|(_, algorithm)| algorithm));
        let Check {
            errors, notices, ..
        } = check;
        match (name, domain, limiter, limit) {
            (Some(name), Some(domain), Some(limiter), Some((rate, algorithm)))
                if errors.is_empty() =>
            {
                let rule = Rule {
                    name,
                    domain,
                    limiter,
                    descriptors,
                    matching,
                    replaces: self.replaces.clone(),
                    rate,
                    algorithm,
                    mode: mode.unwrap_or_default(),
                    quota: self.mode.as_deref() == Some(QUOTA),
                    metric_values: self.metric_values.clone(),
                    pace: pace.unwrap_or_default(),
                    cardinality,
                    error_budget_ppm: budget.unwrap_or(DEFAULT_ERROR_BUDGET_PPM),
                    switch: self.switch.clone(),
                    only_if: self.only_if.clone(),
                    except_if: self.except_if.clone(),
                    tiers,
                    last: self.last,
                    charge: self.charge.clone(),
                    denial: self.denial.clone(),
                    log: self.log.clone(),
                    place: self.place.clone(),
                };
                Ok((rule, notices))
            }
            _ => Err(errors),
        }
    }
}

const MODES: [Mode; 5] = [
    Mode::Enforce,
    Mode::DryRun,
    Mode::Disabled,
    Mode::DenyAll,
    Mode::Unlimited,
];
const MATCHINGS: [Matching; 3] = [Matching::All, Matching::Path, Matching::Request];
const SLIDINGS: [Sliding; 3] = [Sliding::Live, Sliding::Strict, Sliding::Weighted];

/// The run over one spec: collects faults and notices.
struct Check<'s> {
    spec: &'s RuleSpec,
    errors: Vec<RuleError>,
    notices: Vec<Notice>,
}

impl Check<'_> {
    fn keep<T>(&mut self, result: Result<T, RuleError>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    fn notice(&mut self, kind: NoticeKind) {
        let (rule, place) = (self.spec.name.clone(), self.spec.place.clone());
        self.notices.push(Notice { rule, place, kind });
    }

    /// A name people and members read: not empty, bounded, without control characters.
    fn name(&mut self, setting: &'static str, text: Option<&str>) -> Option<String> {
        let hint = "a name of letters, digits, - and _";
        let Some(text) = text.filter(|t| !t.is_empty()) else {
            self.errors.push(RuleError::Missing { setting, hint });
            return None;
        };
        let why = if text.len() > MAX_NAME_BYTES {
            format!("it is longer than {MAX_NAME_BYTES} bytes")
        } else if text.chars().any(char::is_control) {
            "it has a control character".to_owned()
        } else {
            return Some(text.to_owned());
        };
        self.errors.push(RuleError::Malformed {
            setting,
            text: shorten(text),
            why,
            hint,
        });
        None
    }

    fn limiter(&mut self) -> Option<String> {
        let spec = self.spec;
        match spec.limiter.as_deref() {
            Some(limiter) => self.name("limiter", Some(limiter)),
            None => Some(spec.name.clone()),
        }
    }

    fn unknown_word(
        &mut self,
        setting: &'static str,
        text: &str,
        words: &[&str],
        known: &'static str,
    ) {
        let suggestion = crate::policy::yaml::nearest(text, words.iter().copied());
        let (text, suggestion) = (shorten(text), suggestion.map(str::to_owned));
        self.errors.push(RuleError::UnknownWord {
            setting,
            text,
            suggestion,
            known,
        });
    }

    fn mode(&mut self) -> Option<Mode> {
        let text = self.spec.mode.as_deref()?;
        if text == QUOTA {
            return Some(Mode::DryRun);
        }
        let mode = MODES.into_iter().find(|mode| mode.word() == text);
        if mode.is_none() {
            let words: Vec<&str> = MODES.map(Mode::word).into_iter().chain([QUOTA]).collect();
            self.unknown_word(
                "mode",
                text,
                &words,
                "enforce, dry_run, quota, disabled, deny, unlimited",
            );
        }
        mode
    }

    /// A key whose value cannot vary would have one series, which the rule has already.
    // spec: rule-32
    fn metric_values(&mut self) {
        let spec = self.spec;
        for key in &spec.metric_values {
            let mut entries = spec.descriptors.iter();
            let varies = |entry: &DescriptorSpec| {
                let value = entry.value.as_deref().map(ValuePattern::parse);
                !entry.shared && !matches!(value, Some(ValuePattern::Exact(_)))
            };
            if !entries.any(|entry| entry.key == key.as_bytes() && varies(entry)) {
                self.errors.push(RuleError::Malformed {
                    setting: "metric_values",
                    text: shorten(key),
                    why: "no descriptor entry of this key has values that vary".to_owned(),
                    hint:
                        "keys of the rule's descriptors without value, or with one that ends in *",
                });
            }
        }
    }

    // spec: rule-19
    fn matching(&mut self) -> Matching {
        let Some(text) = self.spec.matching.as_deref() else {
            return Matching::All;
        };
        let found = MATCHINGS.into_iter().find(|m| m.word() == text);
        if found.is_none() {
            let words = MATCHINGS.map(Matching::word);
            self.unknown_word("match", text, &words, "all, path, request");
        }
        found.unwrap_or_default()
    }

    // spec: rule-21
    fn replaces(&mut self) {
        let spec = self.spec;
        let own = spec.limiter.as_deref().unwrap_or(&spec.name);
        if spec.replaces.iter().any(|name| name == own) {
            self.errors.push(RuleError::Conflict {
                first: "limiter",
                second: "replaces",
                why: "a rule cannot replace its own limiter; name the others",
            });
        }
        if spec.replaces.len() > MAX_REPLACED {
            self.errors.push(RuleError::OutOfRange {
                setting: "replaces",
                text: format!("{} names", spec.replaces.len()),
                why: format!("a rule replaces at most {MAX_REPLACED} limiters"),
            });
        }
    }

    fn pace(&mut self) -> Option<Pace> {
        let spec = self.spec;
        if let Some(text) = spec.pace.as_deref().filter(|t| !Pace::WORDS.contains(t)) {
            self.unknown_word("pace", text, &Pace::WORDS, "fast, paced, strict");
            return None;
        }
        let faults = self.errors.len();
        let members = spec
            .members
            .as_deref()
            .and_then(|text| self.whole("members", text));
        if self.errors.len() > faults {
            return None;
        }
        let pace = pace_of(spec, members);
        self.keep(pace)
    }

    fn sliding(&mut self) -> Sliding {
        let Some(text) = self.spec.sliding.as_deref() else {
            return Sliding::Live;
        };
        let sliding = SLIDINGS.into_iter().find(|sliding| sliding.word() == text);
        if sliding.is_none() {
            let words = SLIDINGS.map(Sliding::word);
            self.unknown_word("sliding", text, &words, "live, strict, weighted");
        }
        sliding.unwrap_or_default()
    }

    fn cardinality(&mut self) -> Option<u32> {
        let text = self.spec.cardinality.as_deref()?;
        self.whole("cardinality", text)
    }

    /// A whole number from 1 to 2^32 - 1.
    fn whole(&mut self, setting: &'static str, text: &str) -> Option<u32> {
        let hint = "a whole number";
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            let why = "it is not plain digits".to_owned();
            self.errors.push(RuleError::Malformed {
                setting,
                text: shorten(text),
                why,
                hint,
            });
            return None;
        }
        let number = text.parse::<u32>().ok().filter(|n| *n > 0);
        if number.is_none() {
            let why = match setting {
                "burst" => "it is 1 to 4294967295; burst=1 spaces hits evenly",
                _ => "it is 1 to 4294967295",
            };
            let text = shorten(text);
            self.errors.push(RuleError::OutOfRange {
                setting,
                text,
                why: why.to_owned(),
            });
        }
        number
    }

    // spec: rule-7
    fn error_budget(&mut self) -> Option<u32> {
        let text = self.spec.error_budget.as_deref()?;
        let parsed = parse_ppm(text);
        self.keep(parsed)
    }

    fn limit(&mut self, mode: Mode, sliding: Sliding) -> Option<(Rate, Algorithm)> {
        let spec = self.spec;
        let used = mode.counts();
        let rate = match spec.rate.as_deref() {
            Some(text) => {
                if !used {
                    self.notice(NoticeKind::RateUnused { mode: mode.word() });
                }
                let parsed = text.parse::<Rate>();
                self.keep(parsed)
            }
            None if used => {
                self.errors.push(RuleError::Missing {
                    setting: "rate",
                    hint: "a rate like 100r/s; mode=disabled, deny and unlimited need none",
                });
                None
            }
            None => Some(Rate::UNUSED),
        };
        match spec.burst.as_deref() {
            Some(burst) => self.token_bucket(rate, burst),
            None => self.window(rate, sliding),
        }
    }

    // spec: rule-6
    fn token_bucket(&mut self, rate: Option<Rate>, burst: &str) -> Option<(Rate, Algorithm)> {
        let spec = self.spec;
        let others = [
            ("window", &spec.window),
            ("bucket", &spec.bucket),
            ("sliding", &spec.sliding),
        ];
        for (second, text) in others {
            if text.is_some() {
                self.errors.push(RuleError::Conflict {
                    first: "burst",
                    second,
                    why: "burst= makes a token bucket, which has no window; keep one of the two",
                });
            }
        }
        let depth = self.whole("burst", burst);
        let (rate, depth) = (rate?, depth?);
        // hits / per_s > MAX_HITS_PER_SECOND, without division.
        let too_fast = u128::from(rate.hits) * 1_000_000_000
            > u128::from(MAX_HITS_PER_SECOND) * u128::from(rate.per_ns);
        if too_fast {
            self.errors.push(RuleError::OutOfRange {
                setting: "rate",
                text: rate.to_string(),
                why: format!("a token bucket gives at most {MAX_HITS_PER_SECOND} hits per second"),
            });
            return None;
        }
        let algorithm = Algorithm::token_bucket(rate, depth);
        if algorithm.is_none() {
            self.errors.push(RuleError::OutOfRange {
                setting: "burst",
                text: shorten(burst),
                why: format!(
                    "at {rate} it would take longer than {} to fill; lower it",
                    DurationText(MAX_WINDOW_NS)
                ),
            });
        }
        Some((rate, algorithm?))
    }

    // spec: rule-3, rule-4, rule-5
    fn window(&mut self, rate: Option<Rate>, sliding: Sliding) -> Option<(Rate, Algorithm)> {
        let spec = self.spec;
        let before = self.errors.len();
        let given = |setting, text: &Option<String>| {
            text.as_deref()
                .map(|t| parse_duration_ns(setting, t).and_then(|ns| bounded(setting, t, ns)))
        };
        let window = given("window", &spec.window).and_then(|result| self.keep(result));
        let bucket = given("bucket", &spec.bucket).and_then(|result| self.keep(result));
        let rate = rate?;
        if self.errors.len() > before {
            return None;
        }
        let window_ns = window.unwrap_or_else(|| rate.unit_ns());
        let bucket_ns = bucket.unwrap_or(window_ns);
        if bucket_ns > window_ns {
            self.errors.push(RuleError::OutOfRange {
                setting: "bucket",
                text: DurationText(bucket_ns).to_string(),
                why: format!(
                    "it is longer than window={}; leave bucket out for a fixed window",
                    DurationText(window_ns)
                ),
            });
            return None;
        }
        let checked = limit_of(rate, window_ns);
        let limit = self.keep(checked)?;
        let bucket_ns = self.coarsened(window_ns, bucket_ns, sliding);
        let counted_ns = window_ns.div_ceil(bucket_ns).saturating_mul(bucket_ns);
        if counted_ns != window_ns {
            self.notice(NoticeKind::WindowRoundedUp {
                window_ns,
                counted_ns,
            });
        }
        Some((
            rate,
            Algorithm::Window {
                limit,
                window_ns,
                bucket_ns,
                sliding,
            },
        ))
    }

    /// The smallest multiple of the bucket that keeps the live buckets within their bound; one that
    /// divides the window if there is one at most twice as long.
    // spec: rule-5
    fn coarsened(&mut self, window_ns: u64, bucket_ns: u64, sliding: Sliding) -> u64 {
        let most = match sliding {
            Sliding::Live => MAX_LIVE_BUCKETS,
            Sliding::Strict | Sliding::Weighted => MAX_LIVE_BUCKETS - 1,
        };
        if window_ns.div_ceil(bucket_ns) <= most {
            return bucket_ns;
        }
        let least = window_ns.div_ceil(most).div_ceil(bucket_ns);
        // A window of 400 days in 1 ms buckets starts at least = 540,000,000, so only the first
        // multiples are tried.
        let tried = least..=least.saturating_mul(2).min(least.saturating_add(4096));
        let even = tried.into_iter().find(|k| window_ns % (bucket_ns * k) == 0);
        let to_ns = bucket_ns * even.unwrap_or(least);
        self.notice(NoticeKind::BucketCoarsened {
            from_ns: bucket_ns,
            to_ns,
            window_ns,
        });
        to_ns
    }
}

fn bounded(setting: &'static str, text: &str, ns: u64) -> Result<u64, RuleError> {
    if (MIN_BUCKET_NS..=MAX_WINDOW_NS).contains(&ns) {
        return Ok(ns);
    }
    Err(RuleError::OutOfRange {
        setting,
        text: shorten(text),
        why: format!(
            "it is {} to {}",
            DurationText(MIN_BUCKET_NS),
            DurationText(MAX_WINDOW_NS)
        ),
    })
}

/// The limit of a window, or why there is none.
// spec: rule-3
fn limit_of(rate: Rate, window_ns: u64) -> Result<u32, RuleError> {
    let limit = rate.limit_over(window_ns);
    let (rate_text, window) = (rate.to_string(), DurationText(window_ns).to_string());
    if limit == 0 {
        let least = DurationText(rate.least_window_ns()).to_string();
        return Err(RuleError::LimitBelowOne {
            rate: rate_text,
            window,
            least,
        });
    }
    u32::try_from(limit).map_err(|_| RuleError::LimitTooLarge {
        rate: rate_text,
        window,
        limit,
    })
}

#[cfg(test)]
mod tests;
