//! What builds, what is refused, and what is said about it.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A spec over `ip` with the settings of `words`, like `rate=10r/s window=1m`.
fn spec(words: &str) -> RuleSpec {
    let mut spec = RuleSpec {
        name: "r".into(),
        domain: Some("d".into()),
        descriptors: vec![DescriptorSpec {
            key: b"ip".to_vec(),
            value: None,
            ..DescriptorSpec::default()
        }],
        ..RuleSpec::default()
    };
    for word in words.split_whitespace() {
        let (key, value) = word.split_once('=').unwrap();
        let value = Some(value.to_owned());
        match key {
            "rate" => spec.rate = value,
            "window" => spec.window = value,
            "bucket" => spec.bucket = value,
            "burst" => spec.burst = value,
            "sliding" => spec.sliding = value,
            "cardinality" => spec.cardinality = value,
            "mode" => spec.mode = value,
            "pace" => spec.pace = value,
            "members" => spec.members = value,
            "budget" => spec.error_budget = value,
            other => panic!("{other}"),
        }
    }
    spec
}

fn build(words: &str) -> (Rule, Vec<Notice>) {
    spec(words)
        .build()
        .unwrap_or_else(|e| panic!("{words}: {e}"))
}

fn error(words: &str) -> RuleError {
    match spec(words).build() {
        Ok((rule, _)) => panic!("{words} built {rule}"),
        Err(error) => error,
    }
}

fn window(words: &str) -> (u32, u64, u64, Sliding) {
    match build(words).0.algorithm {
        Algorithm::Window {
            limit,
            window_ns,
            bucket_ns,
            sliding,
        } => (limit, window_ns, bucket_ns, sliding),
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_default_to_the_unit_of_the_rate() {
    assert_eq!(window("rate=100r/s"), (100, SECOND, SECOND, Sliding::Live));
    assert_eq!(window("rate=600r/m"), (600, MINUTE, MINUTE, Sliding::Live));
    assert_eq!(window("rate=10/h"), (10, HOUR, HOUR, Sliding::Live));
    assert_eq!(window("rate=2.5r/s"), (2, SECOND, SECOND, Sliding::Live));
    assert_eq!(
        window("rate=2.5r/s window=2s"),
        (5, 2 * SECOND, 2 * SECOND, Sliding::Live)
    );
    assert_eq!(
        window("rate=600r/m window=1s"),
        (10, SECOND, SECOND, Sliding::Live)
    );
    let sliding = window("rate=60r/m bucket=1s sliding=strict");
    assert_eq!(sliding, (60, MINUTE, SECOND, Sliding::Strict));
}

#[test]
fn case_10_limits_at_the_edges_are_exact_or_refused_with_a_reason() {
    assert_eq!(window("rate=1r/d"), (1, DAY, DAY, Sliding::Live));
    assert_eq!(window("rate=700000r/s").0, 700_000);
    assert_eq!(window("rate=4294967295r/s").0, u32::MAX);
    let error = error("rate=4294967296r/s");
    assert!(
        matches!(
            error,
            RuleError::LimitTooLarge {
                limit: 4_294_967_296,
                ..
            }
        ),
        "{error}"
    );
    let error = self::error("rate=1000000r/s window=1d");
    assert!(error.to_string().contains("86400000000 hits"), "{error}");
    let error = self::error("rate=1r/d window=1h");
    assert!(
        error.to_string().contains("write window=1d or longer"),
        "{error}"
    );
    let error = self::error("rate=0.5r/s");
    assert!(
        error.to_string().contains("write window=2s or longer"),
        "{error}"
    );
    assert!(matches!(
        self::error("rate=0r/s"),
        RuleError::ZeroRate { .. }
    ));
    assert!(matches!(
        self::error("rate=0r/s mode=disabled"),
        RuleError::ZeroRate { .. }
    ));
    let burst = build("rate=1000r/s burst=1000").0.algorithm;
    assert_eq!(
        burst,
        Algorithm::TokenBucket {
            hits: 1,
            per_ns: 1_000_000,
            burst: 1000,
            epoch_ns: 1_024_000_000
        }
    );
    build("rate=4294967295r/s burst=4294967295");
    assert!(matches!(
        self::error("rate=4294967296r/s burst=1"),
        RuleError::OutOfRange {
            setting: "rate",
            ..
        }
    ));
    assert!(matches!(
        self::error("rate=1r/w burst=4294967295"),
        RuleError::OutOfRange {
            setting: "burst",
            ..
        }
    ));
}

#[test]
fn off_and_deny_are_different_words_and_need_no_rate() {
    assert_eq!(build("mode=disabled").0.mode, Mode::Disabled);
    assert_eq!(build("mode=deny").0.mode, Mode::DenyAll);
    assert_eq!(build("rate=1r/s mode=dry_run").0.mode, Mode::DryRun);
    let (_, notices) = build("rate=1r/s mode=deny");
    assert_eq!(notices[0].kind, NoticeKind::RateUnused { mode: "deny" });
    assert!(matches!(
        error("mode=dry_run"),
        RuleError::Missing {
            setting: "rate",
            ..
        }
    ));
}

#[test]
fn fractional_token_buckets_are_exact() {
    let algorithm = build("rate=0.5r/s burst=3").0.algorithm;
    let epoch_ns = 8_192_000_000; // 6 s to fill
    let expected = Algorithm::TokenBucket {
        hits: 1,
        per_ns: 2 * SECOND,
        burst: 3,
        epoch_ns,
    };
    assert_eq!(algorithm, expected);
    // 1r/d: a day for one hit, so the epoch is the next power of two above 86,400,000 ms.
    let Algorithm::TokenBucket { epoch_ns, .. } = build("rate=1r/d burst=1").0.algorithm else {
        panic!()
    };
    assert_eq!(epoch_ns, 134_217_728 * 1_000_000);
}

#[test]
fn burst_excludes_window_bucket_and_sliding() {
    for other in ["window=1s", "bucket=1s", "sliding=strict"] {
        let error = error(&format!("rate=1r/s burst=1 {other}"));
        assert!(
            matches!(error, RuleError::Conflict { first: "burst", .. }),
            "{error}"
        );
    }
    assert_eq!(error("rate=1r/s burst=0").setting(), "burst");
}

#[test]
fn buckets_are_at_most_the_window_and_at_least_a_millisecond() {
    assert_eq!(error("rate=100r/s bucket=2s").setting(), "bucket");
    assert_eq!(error("rate=100r/s bucket=999us").setting(), "bucket");
    assert_eq!(error("rate=100r/s bucket=0s").setting(), "bucket");
    assert_eq!(error("rate=100r/s window=401d").setting(), "window");
    assert_eq!(error("rate=100r/s window=30").setting(), "window");
    assert_eq!(window("rate=10000r/s window=1ms").0, 10);
    assert_eq!(window("rate=1000r/s window=64ms bucket=1ms").2, 1_000_000);
}

#[test]
fn buckets_finer_than_the_table_are_coarsened_with_a_notice() {
    let (rule, notices) = build("rate=1000r/h bucket=30s");
    assert_eq!(rule.algorithm.buckets(), 60);
    assert_eq!(
        notices[0].kind,
        NoticeKind::BucketCoarsened {
            from_ns: 30 * SECOND,
            to_ns: MINUTE,
            window_ns: HOUR
        }
    );
    assert!(
        notices[0].to_string().contains("would need 120 buckets"),
        "{}",
        notices[0]
    );
    // 64 buckets are live as they are, but not with one more to close.
    assert_eq!(
        build("rate=1r/s window=64s bucket=1s")
            .0
            .algorithm
            .buckets(),
        64
    );
    assert_eq!(
        build("rate=1r/s window=64s bucket=1s sliding=strict")
            .0
            .algorithm
            .buckets(),
        32
    );
    assert_eq!(
        build("rate=1r/s window=63s bucket=1s sliding=strict")
            .0
            .algorithm
            .buckets(),
        63
    );
    let (rule, notices) = build("rate=1r/s window=1m bucket=7s");
    assert_eq!(rule.algorithm.buckets(), 9);
    assert_eq!(
        notices[0].kind,
        NoticeKind::WindowRoundedUp {
            window_ns: MINUTE,
            counted_ns: 63 * SECOND
        }
    );
}

#[test]
fn words_that_are_not_known_are_refused_with_a_suggestion() {
    let error = error("rate=1r/s mode=dry-run");
    assert!(
        error.to_string().contains("did you mean dry_run?"),
        "{error}"
    );
    let error = self::error("rate=1r/s sliding=strickt");
    assert!(
        error.to_string().contains("did you mean strict?"),
        "{error}"
    );
    assert!(matches!(
        self::error("rate=1r/s pace=slow"),
        RuleError::UnknownWord { .. }
    ));
    assert_eq!(build("rate=1r/s pace=fast").0.pace, Pace::Fast);
}

#[test]
fn shares_need_a_window_and_strict_ones_a_number_of_members_and_hits_for_each() {
    assert_eq!(build("rate=1r/s pace=paced").0.pace, Pace::Paced);
    let strict = build("rate=16r/s pace=strict members=4").0;
    assert_eq!(
        strict.pace,
        Pace::Strict {
            members: 4,
            place: None
        }
    );
    assert!(
        strict.describe().ends_with("pace=strict members=4"),
        "{strict}"
    );
    assert_eq!(strict.to_spec().build().unwrap().0, strict);
    let fast = build("rate=16r/s").0;
    assert_eq!(fast.identity(), strict.identity());
    let three = build("rate=16r/s pace=strict members=3").0;
    let digests = [&fast, &strict, &three].map(Rule::digest);
    assert!(digests[0] != digests[1] && digests[1] != digests[2]);
    for (words, setting, why) in [
        (
            "rate=15r/s pace=strict members=4",
            "members",
            "are 16, and its limit is 15",
        ),
        ("rate=9r/s pace=strict", "members", "members=4"),
        ("rate=9r/s pace=strict members=0", "members", "1 to"),
        ("rate=9r/s pace=strict members=two", "members", "digits"),
        (
            "rate=900000r/s pace=strict members=70000",
            "members",
            "1 to 65535",
        ),
        (
            "rate=9r/s pace=paced members=2",
            "members",
            "only pace=strict",
        ),
        ("rate=9r/s members=2", "members", "only pace=strict"),
        ("rate=9r/s burst=9 pace=paced", "pace", "no window"),
        (
            "rate=99r/s burst=99 pace=strict members=2",
            "pace",
            "no window",
        ),
    ] {
        let error = self::error(words);
        assert_eq!(error.setting(), setting, "{words}: {error}");
        assert!(error.to_string().contains(why), "{words}: {error}");
    }
}

#[test]
fn case_61_numbers_beyond_their_range_are_refused_not_truncated() {
    for (words, setting) in [
        ("rate=1r/s cardinality=0", "cardinality"),
        ("rate=1r/s cardinality=4294967296", "cardinality"),
        ("rate=1r/s cardinality=-1", "cardinality"),
        ("rate=1r/s cardinality=0x10", "cardinality"),
        ("rate=1r/s burst=4294967296", "burst"),
        ("rate=1r/s budget=100.0001%", "error_budget"),
        ("rate=1r/s budget=4294967296%", "error_budget"),
        ("rate=1r/s budget=0.00001%", "error_budget"),
        ("rate=1r/s budget=1", "error_budget"),
        ("rate=1r/s budget=.5%", "error_budget"),
    ] {
        assert_eq!(error(words).setting(), setting, "{words}");
    }
    for (text, ppm) in [
        ("1%", 10_000),
        ("0.5%", 5_000),
        ("100bps", 10_000),
        ("1ppm", 1),
        ("100%", 1_000_000),
        ("0%", 0),
        ("12.34bps", 1_234),
        ("0.0001%", 1),
    ] {
        assert_eq!(
            build(&format!("rate=1r/s budget={text}"))
                .0
                .error_budget_ppm,
            ppm,
            "{text}"
        );
    }
    assert_eq!(
        build("rate=1r/s cardinality=4294967295").0.cardinality,
        Some(u32::MAX)
    );
}

#[test]
fn names_and_descriptors_are_checked_and_all_faults_come_at_once() {
    let mut bad = spec("rate=1x window=5 mode=on cardinality=many pace=slow");
    bad.domain = None;
    bad.name = "a\u{7}b".into();
    bad.descriptors = Vec::new();
    let errors = bad.build_all().unwrap_err();
    let settings: Vec<_> = errors.iter().map(RuleError::setting).collect();
    let expected = [
        "name",
        "domain",
        "descriptors",
        "mode",
        "pace",
        "cardinality",
        "rate",
        "window",
    ];
    assert_eq!(settings, expected);
    let mut many = spec("rate=1r/s");
    many.descriptors = vec![
        DescriptorSpec {
            key: b"k".to_vec(),
            value: None,
            ..DescriptorSpec::default()
        };
        33
    ];
    assert_eq!(many.build().unwrap_err().setting(), "descriptors");
}

#[test]
fn values_that_look_like_wildcards_and_are_none_are_said() {
    let mut odd = spec("rate=1r/s");
    for value in ["", "a*b", "*a*", "plain", "a*"] {
        odd.descriptors.push(DescriptorSpec {
            key: b"k".to_vec(),
            value: Some(value.into()),
            ..DescriptorSpec::default()
        });
    }
    let kinds: Vec<_> = odd.build().unwrap().1.into_iter().map(|n| n.kind).collect();
    let star = |value: &str| NoticeKind::LiteralStar {
        key: "k".into(),
        value: value.into(),
    };
    let empty = NoticeKind::EmptyValue { key: "k".into() };
    assert_eq!(kinds, [empty, star("a*b"), star("*a*")]);
}

#[test]
fn the_canonical_line_says_the_whole_rule() {
    let (mut rule, _) = build("rate=600r/m bucket=1s cardinality=1000 mode=dry_run budget=2%");
    rule.limiter = "shared".into();
    assert_eq!(
        rule.describe(),
        "r domain=d limiter=shared [ip=*] rate=600r/m window=1m bucket=1s sliding=live \
         (limit 600) cardinality=1000 mode=dry_run error_budget=20000ppm"
    );
    let (rule, _) = build("rate=0.5r/s burst=3");
    assert_eq!(
        rule.describe(),
        "r domain=d [ip=*] rate=0.5r/s burst=3 mode=enforce"
    );
}

fn any_pattern_text() -> impl Strategy<Value = Option<Vec<u8>>> {
    proptest::option::of(proptest::collection::vec(
        prop_oneof![Just(b'*'), Just(b'\\'), Just(b'a'), any::<u8>()],
        0..6,
    ))
}

fn refused(error: RuleError) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

fn any_duration() -> impl Strategy<Value = String> {
    (1u64..=40_000_000).prop_map(|ms| DurationText(ms * 1_000_000).to_string())
}

proptest! {
    #[test]
    fn print_and_build_again_is_identity(
        hits in 1u64..=5_000_000, unit in "[smhdw]", fraction in 0u32..1000,
        window in proptest::option::of(any_duration()),
        bucket in proptest::option::of(any_duration()),
        sliding in proptest::option::of(prop_oneof!["live", "strict", "weighted"]),
        burst in proptest::option::of(1u32..),
        entries in proptest::collection::vec(("[a-c]{1,2}", any_pattern_text()), 1..4),
        mode in prop_oneof!["enforce", "dry_run", "disabled", "deny"],
    ) {
        let mut spec = spec(&format!("rate={hits}.{fraction:03}r/{unit} mode={mode}"));
        (spec.window, spec.bucket, spec.sliding) = (window, bucket, sliding);
        spec.burst = burst.map(|b| b.to_string());
        spec.descriptors = entries
            .into_iter()
            .map(|(key, value)| {
                let key = key.into_bytes();
                DescriptorSpec { key, value, ..DescriptorSpec::default() }
            })
            .collect();
        if let Ok((rule, _)) = spec.build() {
            let (again, _) = rule.to_spec().build().map_err(refused)?;
            prop_assert_eq!(&again, &rule);
            prop_assert_eq!(again.identity(), rule.identity());
            prop_assert_eq!(again.digest(), rule.digest());
            let extra = match rule.algorithm {
                Algorithm::Window { sliding: Sliding::Live, .. } => 0,
                _ => 1,
            };
            prop_assert!(rule.algorithm.buckets() + extra <= MAX_LIVE_BUCKETS);
        }
    }

    #[test]
    fn any_words_build_or_are_refused(
        texts in proptest::collection::vec(proptest::option::of("\\PC{0,12}|[0-9.rsmhd/%]{0,8}"), 9)
    ) {
        let mut texts = texts.into_iter();
        let mut next = || texts.next().flatten();
        let mut spec = spec("");
        spec.rate = next();
        spec.window = next();
        spec.bucket = next();
        spec.burst = next();
        spec.sliding = next();
        spec.cardinality = next();
        spec.mode = next();
        spec.pace = next();
        spec.members = next();
        spec.error_budget = next();
        match spec.build_all() {
            Ok((rule, _)) => prop_assert!(rule.algorithm.limit() >= 1),
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }

    #[test]
    fn coarsened_buckets_are_multiples_that_fit_and_no_coarser_than_needed(
        (window_ms, bucket_ms) in (10_000u64..=34_560_000_000)
            .prop_flat_map(|window_ms| (Just(window_ms), 1..=window_ms)),
        strict in any::<bool>(),
    ) {
        let mut spec = spec("rate=0.1r/s");
        spec.window = Some(format!("{window_ms}ms"));
        spec.bucket = Some(format!("{bucket_ms}ms"));
        spec.sliding = strict.then(|| "strict".to_owned());
        let (rule, _) = spec.build().map_err(|e| TestCaseError::fail(e.to_string()))?;
        let Algorithm::Window { window_ns, bucket_ns, .. } = rule.algorithm else {
            return Err(TestCaseError::fail("not a window"));
        };
        prop_assert_eq!(window_ns, window_ms * 1_000_000);
        prop_assert_eq!(bucket_ns % (bucket_ms * 1_000_000), 0);
        let most = MAX_LIVE_BUCKETS - u64::from(strict);
        prop_assert!(window_ns.div_ceil(bucket_ns) <= most);
        let factor = bucket_ns / (bucket_ms * 1_000_000);
        let least = window_ms.div_ceil(bucket_ms).div_ceil(most);
        prop_assert!(factor >= least && factor <= 2 * least, "{} of {}", factor, least);
    }
}
