//! Who a set of counters is, on every member and in every version.
//!
//! I own the canonical encoding of a rule and the two hashes over it. I promise that equal counters
//! give equal identities whatever the order of the descriptors or the form of the configuration,
//! and that the encoding only changes together with its version byte. I never look at names that
//! only people read, nor at the place of a rule.

use std::fmt;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::attributes::Glob;
use crate::condition::{Clause, Test};
use crate::rule::{Algorithm, DescriptorPattern, Matching, Rule, Sliding, ValuePattern};

/// Version of the encoding below. A change starts new counters everywhere.
// spec: rule-12
const ENCODING: u8 = 1;
/// Fixed keys: identities are compared between members, and configuration is trusted text.
const IDENTITY_KEY: &[u8; 16] = b"gabion identity1";
const OVERRIDE_KEY: &[u8; 16] = b"gabion override1";
const DIGEST_KEY: &[u8; 16] = b"gabion digest  1";
const FLAG_BY_KEY: &[u8; 16] = b"gabion flag by 1";

/// 128-bit identity of a limiter's counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterIdentity(pub [u8; 16]);

impl CounterIdentity {
    /// The 64-bit name used on the wire: the first eight bytes, little endian.
    pub fn short(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for CounterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CounterIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CounterIdentity({self})")
    }
}

/// 64-bit digest of everything that decides. Members gossip it only to show differences.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LimitDigest(pub u64);

impl fmt::Display for LimitDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Writes integers little endian and texts with their length, so that no two rules share a stream.
struct Encoder(SipHasher24);

impl Encoder {
    fn new(key: &[u8; 16]) -> Self {
        let mut encoder = Encoder(SipHasher24::new_with_key(key));
        encoder.byte(ENCODING);
        encoder
    }

    fn byte(&mut self, value: u8) {
        self.0.write(&[value]);
    }

    fn number(&mut self, value: u64) {
        self.0.write(&value.to_le_bytes());
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.write(bytes);
    }
}

pub(crate) fn identity_of(rule: &Rule) -> CounterIdentity {
    let mut out = Encoder::new(IDENTITY_KEY);
    out.text(rule.domain.as_bytes());
    out.text(rule.limiter.as_bytes());
    let mut sorted: Vec<&DescriptorPattern> = rule.descriptors.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    out.number(sorted.len() as u64);
    for descriptor in sorted {
        out.text(&descriptor.key);
        let shared = if descriptor.shared { 3 } else { 0 };
        match &descriptor.value {
            ValuePattern::Prefix(prefix) if !prefix.is_empty() => {
                out.byte(2 + shared);
                out.text(prefix);
            }
            ValuePattern::Any | ValuePattern::Prefix(_) => out.byte(shared),
            ValuePattern::Exact(value) => {
                out.byte(1);
                out.text(value);
            }
        }
    }
    match rule.algorithm {
        Algorithm::Window {
            window_ns,
            bucket_ns,
            sliding,
            ..
        } => {
            out.byte(match sliding {
                Sliding::Live => 1,
                Sliding::Strict => 2,
                Sliding::Weighted => 3,
            });
            out.number(window_ns);
            out.number(bucket_ns);
        }
        Algorithm::TokenBucket { epoch_ns, .. } => {
            out.byte(4);
            out.number(epoch_ns);
        }
    }
    encode_order(rule, &mut out);
    CounterIdentity(out.0.finish128().as_bytes())
}

/// Of the limits that callers bring, in fixed windows of `window_ns`.
// spec: rule-30
pub(crate) fn override_identity(window_ns: u64) -> CounterIdentity {
    let mut out = Encoder::new(OVERRIDE_KEY);
    out.number(window_ns);
    CounterIdentity(out.0.finish128().as_bytes())
}

/// Of the values that a flag goes by.
// spec: ord-9
pub(crate) fn flag_identity(flag: &str) -> CounterIdentity {
    let mut out = Encoder::new(FLAG_BY_KEY);
    out.text(flag.as_bytes());
    CounterIdentity(out.0.finish128().as_bytes())
}

/// Paths that differ only in their order are different paths. In canonical order nothing is
/// written, so that such a rule shares its counters with one that matches in any order.
fn encode_order(rule: &Rule, out: &mut Encoder) {
    let ordered = rule.descriptors.windows(2).all(|w| w[0].key <= w[1].key);
    if rule.matching == Matching::Path && !ordered {
        out.byte(5);
        rule.descriptors.iter().for_each(|d| out.text(&d.key));
    }
}

pub(crate) fn digest_of(rule: &Rule) -> LimitDigest {
    let mut out = Encoder::new(DIGEST_KEY);
    out.0.write(&rule.identity().0);
    match rule.algorithm {
        Algorithm::Window { limit, .. } => out.number(u64::from(limit)),
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            ..
        } => {
            out.number(hits);
            out.number(per_ns);
            out.number(u64::from(burst));
        }
    }
    out.text(rule.mode.word().as_bytes());
    out.text(rule.pace.word().as_bytes());
    rule.pace
        .members()
        .into_iter()
        .for_each(|members| out.number(u64::from(members)));
    out.number(u64::from(rule.error_budget_ppm));
    if rule.matching != Matching::All {
        out.text(rule.matching.word().as_bytes());
    }
    rule.replaces
        .iter()
        .for_each(|name| out.text(name.as_bytes()));
    // Written for rules that have any of it, so that others keep the digests of earlier releases.
    encode_vocabulary(rule, &mut out);
    LimitDigest(out.0.finish128().h1)
}

// spec: rule-13
fn encode_vocabulary(rule: &Rule, out: &mut Encoder) {
    let mut part = |name: &str, texts: &[Vec<u8>]| {
        out.text(name.as_bytes());
        out.number(texts.len() as u64);
        texts.iter().for_each(|text| out.text(text));
    };
    for (name, list) in [("only_if", &rule.only_if), ("except_if", &rule.except_if)] {
        for alternative in list {
            part(name, &[]);
            for Clause { key, test } in &alternative.clauses {
                let texts: Vec<Vec<u8>> = match test {
                    Test::Like(patterns) => patterns.iter().map(Glob::text).collect(),
                    Test::Within(networks) => {
                        let entries = networks.entries().iter();
                        entries.map(|entry| entry.as_bytes().to_vec()).collect()
                    }
                };
                part(
                    if matches!(test, Test::Like(_)) {
                        "like"
                    } else {
                        "in"
                    },
                    std::slice::from_ref(key),
                );
                part("", &texts);
            }
        }
    }
    for part_of_key in &rule.descriptors {
        if let Some(fallback) = &part_of_key.fallback {
            part(
                "fallback",
                &[part_of_key.key.clone(), fallback.value.clone()],
            );
            part("known", &fallback.known);
        }
    }
    if let Some(tiers) = &rule.tiers {
        part("tiers", &[tiers.by().to_vec()]);
        for tier in tiers.all() {
            part(&tier.limit.to_string(), std::slice::from_ref(&tier.value));
        }
    }
    if let Some(charge) = &rule.charge {
        let statuses: Vec<Vec<u8>> = charge.statuses.iter().map(Glob::text).collect();
        part("charge", &statuses);
    }
    if rule.last {
        part("last", &[]);
    }
}

/// One number for a whole set of rules, whatever their order.
pub(crate) fn fingerprint_of(digests: &[LimitDigest]) -> u64 {
    let mut sorted = digests.to_vec();
    sorted.sort_unstable();
    let mut out = Encoder::new(DIGEST_KEY);
    out.number(sorted.len() as u64);
    sorted.iter().for_each(|digest| out.number(digest.0));
    out.0.finish128().h1
}
