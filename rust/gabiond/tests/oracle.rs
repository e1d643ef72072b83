//! Random requests against a model that a child could check: counts in a map, all or nothing.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::collections::BTreeMap;
use std::sync::Arc;

use gabion_driver::{monotonic_ns, ClusterClock};
use gabion_rule::policy::parse_limits;
use gabion_rule::{KeyHasher, RuleTable};
use gabion_server::config::{Answers, Storage, When};
use gabion_server::engine::Engine;
use gabion_server::policy::{Policy, PolicyParts};
use gabion_server::protocol::{
    descriptor, request, Code, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use gabion_table::{SubSpec, Table};

/// Name, descriptor key, limit, whether it is enforced. `user` has two rules, `path` three.
const RULES: [(&str, &str, u32, bool); 6] = [
    ("user-tight", "user", 7, true),
    ("user-wide", "user", 40, true),
    ("path-watched", "path", 5, false),
    ("path-wide", "path", 60, true),
    ("path-tight", "path", 23, true),
    ("all", "all", 150, true),
];

const WEEK_NS: u64 = 604_800_000_000_000;

fn engine() -> Engine {
    let rules: String = RULES
        .iter()
        .map(|(name, key, limit, enforced)| {
            let mode = if *enforced { "enforce" } else { "dry_run" };
            format!(
                "- {{name: {name}, domain: d, limiter: {name}, rate: {limit}r/w, mode: {mode}, \
                 descriptors: [{{key: {key}}}]}}\n"
            )
        })
        .collect();
    let rules = parse_limits("test", &format!("limits:\n{rules}"))
        .unwrap()
        .rules;
    let rules = RuleTable::build(rules).unwrap();
    let sub = |rule: &gabion_rule::Rule| SubSpec {
        identity: rule.identity(),
        plan: gabion_admit::Plan::new(&rule.algorithm),
        cardinality: None,
    };
    let subs: Vec<SubSpec> = rules.rules().iter().map(sub).collect();
    let bounds = Storage {
        table_bytes: 1 << 20,
        override_cardinality: None,
        max_descriptor_count: 64,
        max_descriptor_bytes: 1 << 20,
        max_key_bytes: 1 << 20,
    };
    // The clock begins a week of its own, so that no window ends during the test.
    let start = WEEK_NS * 2_900;
    let offset = i64::try_from(start).unwrap() - i64::try_from(monotonic_ns()).unwrap();
    let parts = PolicyParts {
        rules: Arc::new(rules),
        hasher: KeyHasher::new([7; 16]),
        overrides: false,
        counters: Some(Arc::new(Table::private(1 << 20, &subs).unwrap())),
        bounds,
        answers: Answers {
            headers: When::Always,
            ..Answers::default()
        },
        flags: Vec::new(),
        orders: Arc::default(),
        value_series: 0,
    };
    Engine::new(
        Policy::new(parts, None),
        Arc::new(ClusterClock::with_offset(offset)),
    )
}

/// Hits per (rule, value).
#[derive(Default)]
struct Model {
    used: BTreeMap<(usize, String), u64>,
}

/// What one descriptor asks for.
struct Ask {
    key: &'static str,
    value: String,
    hits: u64,
}

impl Model {
    fn matching(key: &str) -> impl Iterator<Item = usize> + '_ {
        (0..RULES.len()).filter(move |rule| RULES[*rule].1 == key)
    }

    fn left(&self, rule: usize, value: &str) -> u64 {
        let used = self
            .used
            .get(&(rule, value.to_owned()))
            .copied()
            .unwrap_or(0);
        u64::from(RULES[rule].2).saturating_sub(used)
    }

    /// Decides, and says which enforced (rule, value) pairs have no room for all that is asked.
    fn decide(&mut self, asks: &[Ask]) -> Vec<(usize, String)> {
        let mut wanted: BTreeMap<(usize, String), u64> = BTreeMap::new();
        for ask in asks {
            for rule in Self::matching(ask.key) {
                *wanted.entry((rule, ask.value.clone())).or_default() += ask.hits;
            }
        }
        let over = |(key, hits): (&(usize, String), &u64)| {
            let denies = RULES[key.0].3 && *hits > self.left(key.0, &key.1);
            denies.then(|| key.clone())
        };
        let over: Vec<(usize, String)> = wanted.iter().filter_map(over).collect();
        if over.is_empty() {
            for (key, hits) in wanted {
                *self.used.entry(key).or_default() += hits;
            }
        }
        over
    }

    fn check(&self, asks: &[Ask], over: &[(usize, String)], answer: &RateLimitResponse) {
        let expected = if over.is_empty() {
            Code::Ok
        } else {
            Code::OverLimit
        };
        assert_eq!(answer.overall_code(), expected);
        assert_eq!(answer.statuses.len(), asks.len());
        for (ask, status) in asks.iter().zip(&answer.statuses) {
            let rules: Vec<usize> = Self::matching(ask.key).collect();
            let Some(limit) = &status.current_limit else {
                assert!(rules.is_empty());
                continue;
            };
            let named = rules
                .iter()
                .copied()
                .find(|r| RULES[*r].0.as_bytes() == &limit.name[..]);
            let named = named.expect("a rule that matches");
            let denies = |rule: &usize| over.contains(&(*rule, ask.value.clone()));
            if rules.iter().any(denies) {
                assert_eq!(status.code(), Code::OverLimit);
                assert!(denies(&named));
                assert!(status.duration_until_reset.unwrap().seconds >= 1);
            } else {
                assert_eq!(status.code(), Code::Ok);
                let enforced = rules.iter().filter(|rule| RULES[**rule].3);
                let least = enforced
                    .map(|rule| self.left(*rule, &ask.value))
                    .min()
                    .unwrap();
                assert_eq!(self.left(named, &ask.value), least);
            }
            assert_eq!(
                u64::from(status.limit_remaining),
                self.left(named, &ask.value)
            );
            assert!(status.limit_remaining <= RULES[named].2);
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

fn random_asks(random: &mut Random) -> (Vec<Ask>, RateLimitRequest) {
    let addend = u32::try_from(random.below(4)).unwrap();
    let count = 1 + random.below(5);
    let mut asks = Vec::new();
    let mut descriptors = Vec::new();
    for _ in 0..count {
        let key = ["user", "path", "all", "nobody"][usize::try_from(random.below(4)).unwrap()];
        let value = format!("v{}", random.below(3));
        let own = (random.below(3) == 0).then(|| random.below(9));
        let base = descriptor(&[(key, &value)]);
        descriptors.push(RateLimitDescriptor {
            hits_addend: own,
            ..base
        });
        let hits = own.unwrap_or_else(|| u64::from(addend.max(1)));
        asks.push(Ask { key, value, hits });
    }
    let sent = RateLimitRequest {
        hits_addend: addend,
        ..request("d", descriptors)
    };
    (asks, sent)
}

#[test]
fn cases_12_13_14_16_19_21_random_requests_are_all_or_nothing() {
    let (mut allowed, mut denied) = (0, 0);
    for seed in 1..=200 {
        println!("seed {seed}");
        let (engine, mut model, mut random) = (engine(), Model::default(), Random(seed));
        for _ in 0..60 {
            let (asks, sent) = random_asks(&mut random);
            let over = model.decide(&asks);
            let answer = engine.answer(&sent);
            model.check(&asks, &over, &answer);
            allowed += u32::from(over.is_empty());
            denied += u32::from(!over.is_empty());
        }
        let tally = engine.tally();
        assert_eq!(tally.allowed.get() + tally.denied.get(), 60);
    }
    assert!(
        allowed > 1_000 && denied > 1_000,
        "{allowed} allowed, {denied} denied"
    );
}
