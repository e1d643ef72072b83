//! The block, the rules it stands for, and what is wrong with it.

use super::*;
use crate::policy::{parse_limits, policy_to_yaml};
use crate::rate::Rate;
use crate::rule::Algorithm;
use proptest::prelude::*;

fn policy(text: &str) -> Policy {
    parse("r.toml", text).unwrap_or_else(|errors| panic!("{errors:#?}"))
}

fn numbers(rule: &Rule) -> (u64, u64, u32) {
    match rule.algorithm {
        Algorithm::TokenBucket {
            hits,
            per_ns,
            burst,
            ..
        } => (hits, per_ns, burst),
        Algorithm::Window { .. } => panic!("{rule}"),
    }
}

#[test]
fn an_empty_block_is_its_defaults() {
    let policy = policy("[api.rate_limit]\n");
    let names: Vec<&str> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    let expected = [
        "registry_global",
        "registry_per_ip",
        "admin_global",
        "admin_per_ip",
    ];
    assert_eq!(names, expected);
    let per_ms = |n: u64| 1_000_000_000 / n;
    for rule in &policy.rules {
        let per_ip = rule.name.ends_with("per_ip");
        let rate = if per_ip { 50 } else { 500 };
        assert_eq!(numbers(rule), (1, per_ms(rate), 100), "{rule}");
        assert_eq!(rule.domain, "registry");
        assert_eq!(rule.descriptors.len(), usize::from(per_ip));
        assert_eq!(rule.mode, Mode::Enforce);
        assert_eq!(rule.place.as_ref().map(|place| place.line), Some(1));
        let denial = rule.denial.as_ref().unwrap();
        assert_eq!(denial.content_type.as_deref(), Some("application/json"));
        let (body, headers) = (denial.body.as_deref().unwrap(), denial.headers.len());
        if rule.name.starts_with("admin") {
            assert_eq!((body, headers), (r#"{"error":"rate limit exceeded"}"#, 0));
        } else {
            let api = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"rate limit exceeded"}]}"#;
            assert_eq!((body, headers), (api, 1));
        }
    }
    assert!(policy.notices.is_empty());
    assert!(policy.attributes.is_derived("client_ip"));
}

#[test]
fn the_block_stands_alone_or_beside_other_tables() {
    let alone = "enabled = true\nglobal_rps = 1000\nper_ip_rps = 30.0\nburst = 50\n";
    let inside = format!(
        "title = 'x'\n[storage]\nburst = 'x'\n[api.tls]\nenabled = 1\n\
                          [api.rate_limit]\n{alone}[log]\nlevel = 'info'\n"
    );
    let digests = |text: &str| {
        let rules = policy(text).rules;
        rules.iter().map(Rule::digest).collect::<Vec<_>>()
    };
    assert_eq!(digests(alone), digests(&inside));
    assert_eq!(numbers(&policy(alone).rules[1]), (3, 100_000_000, 50));
    let inline = "api = { rate_limit = { global_rps = 1000, per_ip_rps = 30, burst = 50 } }";
    assert_eq!(digests(alone), digests(inline));
}

#[test]
fn rates_are_exact() {
    for (written, rate) in [
        ("0.5", "0.5r/s"),
        ("33.3", "33.3r/s"),
        ("500", "500r/s"),
        ("500.0", "500r/s"),
        ("1_000.25", "1000.25r/s"),
        ("+7", "7r/s"),
        ("5e2", "500r/s"),
        ("1.5E+3", "1500r/s"),
        ("25e-2", "0.25r/s"),
        ("12.5e-1", "1.25r/s"),
        ("0x10", "16r/s"),
        ("0.1", "0.1r/s"),
    ] {
        let policy = policy(&format!("global_rps = {written}\n"));
        assert_eq!(
            policy.rules[0].rate,
            rate.parse::<Rate>().unwrap(),
            "{written}"
        );
        assert_eq!(
            policy.rules[2].rate,
            rate.parse::<Rate>().unwrap(),
            "{written}"
        );
    }
}

#[test]
fn what_is_off_limits_nothing() {
    let policy = policy("[api.rate_limit]\nenabled = false\nper_ip_rps = 7.5\n");
    assert_eq!(policy.rules.len(), 4);
    assert!(policy.rules.iter().all(|rule| rule.mode == Mode::Disabled));
}

#[test]
fn what_is_printed_is_the_same_policy() {
    for text in [
        "[api.rate_limit]\n",
        "enabled = false\n",
        "global_rps = 33.3\nper_ip_rps = 0.5\nburst = 7\n\
         trusted_proxies = ['127.0.0.1', '::1', '10.0.0.0/8', 'preset:cloudflare']\n",
    ] {
        let read = policy(text);
        let yaml = policy_to_yaml(&read);
        let again = parse_limits("p.yaml", &yaml).unwrap_or_else(|e| panic!("{yaml}\n{e:#?}"));
        let unplaced = |policy: &Policy| {
            let rules = policy.rules.iter().cloned();
            let rules: Vec<Rule> = rules
                .map(|rule| Rule {
                    place: None,
                    ..rule
                })
                .collect();
            let attributes = policy.attributes.iter().cloned();
            let attributes: Vec<Attribute> = attributes
                .map(|attribute| Attribute {
                    place: None,
                    ..attribute
                })
                .collect();
            (rules, attributes)
        };
        assert_eq!(unplaced(&again), unplaced(&read), "{yaml}");
        assert!(again.notices.is_empty(), "{:?}", again.notices);
        for (one, two) in again.rules.iter().zip(&read.rules) {
            assert_eq!(
                (one.identity(), one.digest()),
                (two.identity(), two.digest())
            );
        }
        assert_eq!(policy_to_yaml(&again), yaml);
    }
}

const FAULTS: [(&str, &str); 27] = [
    (
        "global_rps = 0",
        "r.toml:1:14: global_rps: 0: it admits nothing; write a number above 0, or \
                        enabled = false to limit nothing",
    ),
    (
        "\nper_ip_rps = 0.0",
        "r.toml:2:14: per_ip_rps: 0.0: it admits nothing",
    ),
    ("per_ip_rps = -1.5", "per_ip_rps: -1.5: it admits nothing"),
    (
        "per_ip_rps = nan",
        "per_ip_rps: nan: it is no number; write requests per second",
    ),
    ("per_ip_rps = inf", "per_ip_rps: inf: it is no number"),
    ("per_ip_rps = -inf", "it is no number"),
    ("per_ip_rps = 1e400", "it is out of range"),
    (
        "per_ip_rps = '50.0'",
        "r.toml:1:14: per_ip_rps: \"50.0\" stands in quotes, which makes it a text; write it \
         without them, like per_ip_rps = 50",
    ),
    (
        "[api.rate_limit]\nburst = \"50\"",
        "r.toml:2:9: api.rate_limit.burst: \"50\" stands in quotes, which makes it a text; write \
         it without them, like burst = 100",
    ),
    ("global_rps = \"\"\"5\"\"\"", "\"5\" stands in quotes"),
    ("enabled = 'true'", "like enabled = true"),
    (
        "per_ip_rps = []",
        "per_ip_rps: a list stands here; a single value is expected",
    ),
    ("per_ip_rps = 5e9", "r.toml:1:14: per_ip_rps: "),
    ("per_ip_rps = 0.00000001", "r.toml:1:14: per_ip_rps: "),
    (
        "per_ip_rps = 0.1234567890123456789",
        "a rate has at most 18 digits",
    ),
    (
        "burst = 0",
        "r.toml:1:9: burst: 0 is outside 1 to 4294967295",
    ),
    ("burst = 10.5", "burst: 10.5 is not a whole number"),
    ("enabled = 1", "enabled: 1 is neither true nor false"),
    (
        "trusted_proxies = ['127.0.0.1', 'proxy.example']",
        "r.toml:1:33: trusted_proxies[1]: trusted_proxies=proxy.example: it is no address",
    ),
    (
        "trusted_proxies = ['10.0.0.1/8']",
        "its network is 10.0.0.0/8",
    ),
    (
        "[api.rate_limit]\nper_ip_rsp = 5\n",
        "r.toml:2:1: api.rate_limit.per_ip_rsp: this key is \
                                             not known; did you mean per_ip_rps?",
    ),
    (
        "per_ip_rsp = 5\n",
        "r.toml:1:1: per_ip_rsp: this key is not known; did you mean per_ip_rps?",
    ),
    (
        "[api.rate_limits]\nburst = 5\n",
        "r.toml:1:6: api.rate_limits: this table is not known; did \
                                        you mean rate_limit?",
    ),
    (
        "[[api.rate_limit]]\nburst = 5\n",
        "api.rate_limit: a list stands here; a mapping",
    ),
    (
        "[storage]\npath = '/x'\n",
        "there is no table [api.rate_limit] and none of its keys",
    ),
    ("", "there is no table [api.rate_limit]"),
    ("burst = 5\nburst = 6\n", "r.toml:2:1: this is not TOML: "),
];

#[test]
fn every_fault_has_its_place_and_advice() {
    for (text, expected) in FAULTS {
        let errors = parse("r.toml", text).unwrap_err();
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(
            found.iter().any(|error| error.contains(expected)),
            "{text}: {found:#?}"
        );
        assert_eq!(found.len(), 1, "{text}: told once: {found:#?}");
    }
    let text = "global_rps = 0\nper_ip_rps = 0\nburst = 0\ntrusted_proxies = ['x', 'y']\nz = 1\n";
    assert_eq!(parse("r.toml", text).unwrap_err().len(), 6, "all at once");
}

proptest! {
    #[test]
    fn a_number_keeps_its_value(whole in 0u32..100_000, milli in 1u32..1_000, shift in -4i32..5) {
        let written = format!("{whole}.{milli:03}e{shift}");
        let plain = plain_decimal(&written).unwrap();
        // Both in millionths of ten thousandths: whole numbers.
        let value = |text: &str, shift: i32| {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let digits = format!("{whole}{fraction:0<12}");
            digits.parse::<u128>().unwrap() * 10u128.pow(u32::try_from(shift + 4).unwrap())
        };
        let mantissa = format!("{whole}.{milli:03}");
        prop_assert_eq!(value(&plain, 0), value(&mantissa, shift), "{}", plain);
    }

    #[test]
    fn any_text_is_a_policy_or_a_list_of_faults(
        text in "(\\[api\\.rate_limit\\]\n)?(burst|global_rps|per_ip_rps) = [0-9.e+-]{0,8}\n"
    ) {
        match parse("r.toml", &text) {
            Ok(policy) => prop_assert_eq!(policy.rules.len(), 4),
            Err(errors) => prop_assert!(!errors.is_empty()),
        }
    }
}
