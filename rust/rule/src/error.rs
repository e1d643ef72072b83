//! What can be wrong with a rule, and what an operator should know about one that is right.
//!
//! I own the room's error enum and its notices. I promise that every variant says what was written
//! and what to write instead. I never hold state: a failed build changes nothing, and the
//! configuration in force stays in force.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::rule::Rule;

/// Where in a configuration something was written. Lines and columns count from 1; a column counts
/// characters; 0 means that the source does not know it (nginx knows lines only).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// File name as the operator gave it.
    pub file: Arc<str>,
    /// Line, from 1; 0 if unknown.
    pub line: u32,
    /// Column in characters, from 1; 0 if unknown.
    pub column: u32,
}

impl Place {
    /// A place in `file`.
    pub fn new(file: impl Into<Arc<str>>, line: u32, column: u32) -> Self {
        Place {
            file: file.into(),
            line,
            column,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
            if self.column > 0 {
                write!(f, ":{}", self.column)?;
            }
        }
        Ok(())
    }
}

/// Prints ` (file:line:column)`, or nothing when the place is not known.
pub(crate) struct At<'a>(pub(crate) &'a Option<Place>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(place) => write!(f, " ({place})"),
            None => Ok(()),
        }
    }
}

/// Why a rule or a set of rules was refused. Nothing changed: the rules in force stay in force.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A setting that has no default is absent.
    #[error("{setting} is missing: {hint}")]
    Missing {
        /// Name of the setting.
        setting: &'static str,
        /// What to write.
        hint: &'static str,
    },
    /// A text does not follow the grammar of its setting.
    #[error("{setting}={text}: {why}; write {hint}")]
    Malformed {
        /// Name of the setting.
        setting: &'static str,
        /// The text, shortened.
        text: String,
        /// What is wrong with it.
        why: String,
        /// What a right text looks like.
        hint: &'static str,
    },
    /// A word is none of those that the setting knows.
    #[error(
        "{setting}={text} is not known{}; it is one of {known}",
        suggest(suggestion)
    )]
    UnknownWord {
        /// Name of the setting.
        setting: &'static str,
        /// The word.
        text: String,
        /// The known word that is nearest, if one is near.
        suggestion: Option<String>,
        /// All known words.
        known: &'static str,
    },
    /// A number or a duration is outside what the setting can hold.
    #[error("{setting}={text} is out of range: {why}")]
    OutOfRange {
        /// Name of the setting.
        setting: &'static str,
        /// The text.
        text: String,
        /// The range, and what to do.
        why: String,
    },
    /// The rate admits nothing at all.
    #[error(
        "{text} admits nothing; write mode=disabled to switch the rule off, mode=deny to deny all"
    )]
    ZeroRate {
        /// The rate as written.
        text: String,
    },
    /// The window is so short that the limit in it rounds down to nothing.
    #[error("{rate} over {window} is less than one hit; write window={least} or longer")]
    LimitBelowOne {
        /// The rate as written.
        rate: String,
        /// The window as written or taken from the rate.
        window: String,
        /// Shortest window that holds one hit.
        least: String,
    },
    /// The limit of the window does not fit 32 bits.
    #[error(
        "{rate} over {window} is {limit} hits, more than 4294967295; write a shorter window, or \
         burst= instead of a window"
    )]
    LimitTooLarge {
        /// The rate as written.
        rate: String,
        /// The window.
        window: String,
        /// The limit it would be.
        limit: u128,
    },
    /// Two settings exclude each other.
    #[error("{first} and {second} exclude each other: {why}")]
    Conflict {
        /// One setting.
        first: &'static str,
        /// The other one.
        second: &'static str,
        /// Which one to keep.
        why: &'static str,
    },
    /// Two rules would share one set of counters.
    #[error(
        "rule {second}{} counts in the same counters as rule {first}{}: same domain, limiter, \
             descriptors, window, bucket and algorithm; give one of them another limiter= or \
             remove it",
        At(second_place),
        At(first_place)
    )]
    SameCounters {
        /// Name of the rule that came first.
        first: String,
        /// Where it was written.
        first_place: Option<Place>,
        /// Name of the rule that came second.
        second: String,
        /// Where it was written.
        second_place: Option<Place>,
    },
    /// Two rules of one domain have one name.
    #[error(
        "rule {name}{} has the name of another rule of its domain{}; rename one of them",
        At(second_place),
        At(first_place)
    )]
    SameName {
        /// The name.
        name: String,
        /// Where the first rule was written.
        first_place: Option<Place>,
        /// Where the second rule was written.
        second_place: Option<Place>,
    },
    /// A rule replaces a limiter that no rule of its domain has.
    #[error(
        "rule {rule}{} replaces {name}, and no rule of its domain has this limiter{}",
        At(place),
        suggest(suggestion)
    )]
    UnknownReplaced {
        /// Name of the rule.
        rule: String,
        /// Where it was written.
        place: Option<Place>,
        /// The name it replaces.
        name: String,
        /// The known name that is nearest, if one is near.
        suggestion: Option<String>,
    },
    /// More rules than an index can name.
    #[error("{count} rules are more than {most}; split the configuration over several members")]
    TooManyRules {
        /// Rules in the configuration.
        count: usize,
        /// Rules one configuration may hold.
        most: usize,
    },
    /// A rule that matches whole descriptors names an attribute that its descriptor does not have.
    #[error(
        "{setting} names {key}, which this rule can never see: with match: {matching} its \
             descriptor has the keys {known} and no other{}; write match: request to look at all \
             attributes of a request",
        suggest(suggestion)
    )]
    NeverSeen {
        /// Name of the setting.
        setting: &'static str,
        /// The attribute.
        key: String,
        /// How the rule matches.
        matching: &'static str,
        /// The keys that it has.
        known: String,
        /// The key that is nearest, if one is near.
        suggestion: Option<String>,
    },
    /// Too many rules that pick their keys from a request.
    #[error(
        "domain {domain} has {count} rules with match: request, more than {most}; split them over \
             domains, or use tiers, lookups and conditions with several alternatives"
    )]
    TooManyRequestRules {
        /// The domain.
        domain: String,
        /// Rules found.
        count: usize,
        /// Rules allowed.
        most: usize,
    },
    /// Too many shapes of values over one set of descriptor keys.
    #[error(
        "domain {domain}, keys {keys}: {count} combinations of exact, any and prefix lengths \
             are more than {most}; use prefixes of fewer different lengths"
    )]
    TooManySignatures {
        /// The domain.
        domain: String,
        /// The descriptor keys.
        keys: String,
        /// Combinations found.
        count: usize,
        /// Combinations allowed.
        most: usize,
    },
}

impl RuleError {
    /// The setting that the error is about, so that a reader can point at it; empty when it is
    /// about the rule as a whole.
    pub fn setting(&self) -> &'static str {
        match self {
            RuleError::Missing { setting, .. }
            | RuleError::Malformed { setting, .. }
            | RuleError::UnknownWord { setting, .. }
            | RuleError::OutOfRange { setting, .. }
            | RuleError::NeverSeen { setting, .. } => setting,
            RuleError::ZeroRate { .. } => "rate",
            RuleError::LimitBelowOne { .. } | RuleError::LimitTooLarge { .. } => "rate",
            RuleError::Conflict { second, .. } => second,
            _ => "",
        }
    }

    /// Where the offending rule was written, for errors about two rules.
    pub fn place(&self) -> Option<&Place> {
        match self {
            RuleError::SameCounters { second_place, .. }
            | RuleError::SameName { second_place, .. } => second_place.as_ref(),
            RuleError::UnknownReplaced { place, .. } => place.as_ref(),
            _ => None,
        }
    }
}

fn suggest(suggestion: &Option<String>) -> String {
    suggestion
        .as_ref()
        .map(|s| format!(" (did you mean {s}?)"))
        .unwrap_or_default()
}

/// Something an operator should know about a rule that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Name of the rule.
    pub rule: String,
    /// Where it was written.
    pub place: Option<Place>,
    /// What was done.
    pub kind: NoticeKind,
}

impl Notice {
    /// `later` never matches, since `earlier` does before it.
    pub(crate) fn never_matches(later: &Rule, earlier: &Rule) -> Notice {
        Notice {
            rule: later.name.clone(),
            place: later.place.clone(),
            kind: NoticeKind::NeverMatches {
                by: earlier.name.clone(),
                by_place: earlier.place.clone(),
            },
        }
    }
}

/// What a [`Notice`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The bucket was finer than the table can hold.
    BucketCoarsened {
        /// Bucket as written, ns.
        from_ns: u64,
        /// Bucket in force, ns.
        to_ns: u64,
        /// The window, ns.
        window_ns: u64,
    },
    /// The bucket does not divide the window, so the limit holds over whole buckets.
    WindowRoundedUp {
        /// Window as written, ns.
        window_ns: u64,
        /// Time that really counts, ns.
        counted_ns: u64,
    },
    /// `value: ""` matches only an empty value.
    EmptyValue {
        /// Descriptor key.
        key: String,
    },
    /// A star that is not the last character is an ordinary character.
    LiteralStar {
        /// Descriptor key.
        key: String,
        /// The value as written.
        value: String,
    },
    /// Another rule always comes first.
    NeverMatches {
        /// Name of that rule.
        by: String,
        /// Where it was written.
        by_place: Option<Place>,
    },
    /// Something about a file of the reference service.
    Reference {
        /// What was done.
        what: String,
    },
    /// A rate stands beside a mode that does not use it.
    RateUnused {
        /// The mode's word.
        mode: &'static str,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        write!(f, "rule {}: {}", self.rule, self.kind)
    }
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::duration::DurationText as D;
        match self {
            NoticeKind::BucketCoarsened {
                from_ns,
                to_ns,
                window_ns,
            } => write!(
                f,
                "bucket={} would need {} buckets for window={}; bucket={} is used",
                D(*from_ns),
                window_ns.div_ceil((*from_ns).max(1)),
                D(*window_ns),
                D(*to_ns)
            ),
            NoticeKind::WindowRoundedUp {
                window_ns,
                counted_ns,
            } => write!(
                f,
                "the bucket does not divide window={}; the limit holds over {}",
                D(*window_ns),
                D(*counted_ns)
            ),
            NoticeKind::EmptyValue { key } => write!(
                f,
                "descriptor {key} matches only an empty value; leave value out to match any"
            ),
            NoticeKind::LiteralStar { key, value } => write!(
                f,
                "descriptor {key}: a star inside {value} is an ordinary character; only a last one \
                 is a wildcard"
            ),
            NoticeKind::NeverMatches { by, by_place } => write!(
                f,
                "it never matches: rule {by}{} comes first for all that it could match",
                At(by_place)
            ),
            NoticeKind::Reference { what } => f.write_str(what),
            NoticeKind::RateUnused { mode } => write!(f, "mode={mode} uses no rate"),
        }
    }
}
