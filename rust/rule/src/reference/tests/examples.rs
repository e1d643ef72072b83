//! What the service's documentation says of its worked examples, said again with other files.

use super::*;
use Meets::{Limit, Nothing, Unlimited};

#[test]
fn values_of_one_key_have_limits_of_their_own_and_others_none() {
    let table = table(&load(
        "
domain: stores
descriptors:
- {key: store, value: orders, rate_limit: {unit: second, requests_per_unit: 400}}
- {key: store, value: carts, rate_limit: {unit: second, requests_per_unit: 300}}
",
    ));
    assert_eq!(meets(&table, "stores", &[("store", "orders")]), Limit(400));
    assert_eq!(meets(&table, "stores", &[("store", "carts")]), Limit(300));
    assert_eq!(meets(&table, "stores", &[("store", "users")]), Nothing);
    assert_eq!(meets(&table, "stores", &[("Store", "orders")]), Nothing);
    assert_eq!(meets(&table, "other", &[("store", "orders")]), Nothing);
}

#[test]
fn nested_descriptors_and_each_value_of_a_key_alone_has_a_counter() {
    let table = table(&load(
        "
domain: mail
descriptors:
- key: kind
  value: promo
  descriptors:
  - {key: to, rate_limit: {unit: day, requests_per_unit: 5}}
- {key: to, rate_limit: {unit: day, requests_per_unit: 100}}
",
    ));
    let promo = |to| [("kind", "promo"), ("to", to)];
    assert_eq!(meets(&table, "mail", &promo("555-1")), Limit(5));
    assert_eq!(meets(&table, "mail", &[("to", "555-1")]), Limit(100));
    assert_eq!(meets(&table, "mail", &[("kind", "promo")]), Nothing);
    assert_ne!(
        counter(&table, "mail", &promo("555-1")),
        counter(&table, "mail", &promo("555-2"))
    );
    let both: [Entries<'_>; 2] = [&promo("555-1"), &[("to", "555-1")]];
    assert_eq!(request(&table, "mail", &both), [Limit(5), Limit(100)]);
}

#[test]
fn the_value_is_tried_before_the_key_alone_and_zero_denies() {
    let table = table(&load(
        "
domain: edge
descriptors:
- {key: address, rate_limit: {unit: second, requests_per_unit: 10}}
- {key: address, value: 192.0.2.9, rate_limit: {unit: second, requests_per_unit: 0}}
",
    ));
    assert_eq!(meets(&table, "edge", &[("address", "192.0.2.9")]), Limit(0));
    assert_eq!(
        meets(&table, "edge", &[("address", "192.0.2.1")]),
        Limit(10)
    );
}

#[test]
fn a_descriptor_matches_at_its_own_depth_and_in_its_own_order() {
    let flat = table(&load(
        "
domain: d
descriptors:
- {key: a, value: x, rate_limit: {unit: second, requests_per_unit: 300}}
",
    ));
    assert_eq!(meets(&flat, "d", &[("a", "x"), ("b", "y")]), Nothing);
    let nested = table(&load(
        "
domain: d
descriptors:
- key: a
  value: x
  descriptors:
  - {key: b, rate_limit: {unit: second, requests_per_unit: 300}}
",
    ));
    assert_eq!(meets(&nested, "d", &[("a", "x"), ("b", "y")]), Limit(300));
    assert_eq!(meets(&nested, "d", &[("b", "y"), ("a", "x")]), Nothing);
    assert_eq!(meets(&nested, "d", &[("a", "x")]), Nothing);
}

#[test]
fn case_17_an_unlimited_entry_shields_from_the_key_alone() {
    let policy = load(
        "
domain: inner
descriptors:
- {key: user, rate_limit: {unit: minute, requests_per_unit: 100}}
- {key: user, value: root, rate_limit: {unlimited: true}}
- {key: user, value: probe}
- key: user
  value: robot
  descriptors:
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 7}}
",
    );
    let table = table(&policy);
    assert_eq!(meets(&table, "inner", &[("user", "ann")]), Limit(100));
    assert_eq!(meets(&table, "inner", &[("user", "root")]), Unlimited);
    assert_eq!(
        meets(&table, "inner", &[("user", "probe")]),
        Unlimited,
        "neither a limit nor anything below: let through"
    );
    assert_eq!(
        meets(&table, "inner", &[("user", "robot")]),
        Unlimited,
        "the search ends at an entry without a limit"
    );
}

#[test]
fn shadow_and_quota_only_watch() {
    let policy = load(
        "
domain: d
descriptors:
- key: service
  descriptors:
  - key: user
    value: one
    rate_limit: {unit: second, requests_per_unit: 10}
    shadow_mode: true
  - key: user
    value: two
    rate_limit: {unit: second, requests_per_unit: 20}
    quota_mode: yes
  - key: user
    value: three
    rate_limit: {unit: second, requests_per_unit: 30}
    shadow_mode: false
",
    );
    let modes: Vec<Mode> = policy.rules.iter().map(|rule| rule.mode).collect();
    assert_eq!(modes, [Mode::DryRun, Mode::DryRun, Mode::Enforce]);
    let quota: Vec<bool> = policy.rules.iter().map(|rule| rule.quota).collect();
    assert_eq!(quota, [false, true, false]);
    let again = parse_limits("again", &to_yaml(&policy.rules)).unwrap();
    assert!(again.rules[1].quota && again.rules[1].mode == Mode::DryRun);
    let all = Options {
        shadow_mode: true,
        ..Options::default()
    };
    let text = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]";
    let watched = read(&[file("c.yaml", text)], all).unwrap();
    assert_eq!(
        watched.rules[0].mode,
        Mode::DryRun,
        "for all limits at once"
    );
    let all = Options {
        quota_mode: true,
        ..Options::default()
    };
    let watched = read(&[file("c.yaml", text)], all).unwrap();
    assert!(watched.rules[0].quota && watched.rules[0].mode == Mode::DryRun);
}

#[test]
fn a_limit_replaces_another_by_name_in_requests_that_have_both() {
    let table = table(&load(
        "
domain: d
descriptors:
- key: group
  value: readers
  descriptors:
  - key: user
    value: kim
    rate_limit: {name: common, unit: second, requests_per_unit: 5}
- key: page
  value: news
  descriptors:
  - key: user
    value: kim
    rate_limit: {unit: second, requests_per_unit: 10, replaces: [{name: common}]}
",
    ));
    let group: Entries<'_> = &[("group", "readers"), ("user", "kim")];
    let page: Entries<'_> = &[("page", "news"), ("user", "kim")];
    assert_eq!(request(&table, "d", &[group]), [Limit(5)]);
    assert_eq!(request(&table, "d", &[page]), [Limit(10)]);
    assert_eq!(request(&table, "d", &[group, page]), [Nothing, Limit(10)]);
    assert_eq!(request(&table, "d", &[page, group]), [Limit(10), Nothing]);
    assert_eq!(table.rules()[0].name, "common");
    assert_eq!(table.rules()[1].name, "page_news.user_kim");
}

#[test]
fn one_name_may_stand_on_several_limits_and_all_are_replaced() {
    let table = table(&load(
        "
domain: d
descriptors:
- {key: a, rate_limit: {name: n, unit: second, requests_per_unit: 1}}
- {key: b, rate_limit: {name: n, unit: second, requests_per_unit: 2}}
- {key: n, rate_limit: {unit: second, requests_per_unit: 3}}
- {key: c, rate_limit: {unit: second, requests_per_unit: 4, replaces: [{name: n}]}}
- {key: e, rate_limit: {unlimited: true, replaces: [{name: n}]}}
- {key: u, rate_limit: {unlimited: true, name: n}}
",
    ));
    let all: [Entries<'_>; 4] = [&[("a", "")], &[("b", "")], &[("n", "")], &[("c", "")]];
    assert_eq!(
        request(&table, "d", &all),
        [Nothing, Nothing, Limit(3), Limit(4)],
        "a limit without a name is never replaced, whatever its keys spell"
    );
    let unlimited: [Entries<'_>; 2] = [&[("e", "")], &[("a", "")]];
    assert_eq!(request(&table, "d", &unlimited), [Unlimited, Nothing]);
    let by_c: [Entries<'_>; 2] = [&[("c", "")], &[("u", "")]];
    assert_eq!(
        request(&table, "d", &by_c),
        [Limit(4), Unlimited],
        "an unlimited entry stays"
    );
}

/// The keys whose values the metrics of each rule tell apart.
fn metric_values(text: &str) -> Vec<(String, String)> {
    let policy = load(text);
    assert_eq!(notices(&policy), Vec::<String>::new());
    let again = parse_limits("again", &to_yaml(&policy.rules)).unwrap();
    let values = |rule: &crate::Rule| (rule.name.clone(), rule.metric_values.join(","));
    let read = policy.rules.iter().map(values).collect();
    assert_eq!(again.rules.iter().map(values).collect::<Vec<_>>(), read);
    read
}

#[test]
fn metric_settings_name_the_values_that_metrics_tell_apart() {
    let of = |name: &str, keys: &str| (name.to_owned(), keys.to_owned());
    let nested = "
domain: d
descriptors:
- key: route
  value_to_metric: true
  descriptors:
  - key: method
    value: get*
    value_to_metric: true
    descriptors:
    - {key: subject, rate_limit: {unit: minute, requests_per_unit: 60}}
    - {key: subject, value: boss, rate_limit: {unit: minute, requests_per_unit: 90}}
    - {key: job, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}
";
    assert_eq!(
        metric_values(nested),
        [
            of("route.method_get*.subject_boss", "route,method"),
            of("route.method_get*.subject", "route,method"),
            of("route.method_get*.job", "route,method,job"),
        ]
    );
    let shared = "
domain: d
descriptors:
- key: route
  value: api/*
  share_threshold: true
  value_to_metric: true
  descriptors:
  - {key: method, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}
- {key: plain, value: only, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: open, detailed_metric: true, rate_limit: {unlimited: true}}
";
    assert_eq!(
        metric_values(shared),
        [
            of("plain_only", ""),
            of("route_api/*.method", "method"),
            of("open", ""),
        ],
        "what shares a counter, or cannot vary, or is not counted, has no series of its own"
    );
}

#[test]
fn wildcards_match_by_beginning_between_the_value_and_the_key_alone() {
    let table = table(&load(
        r#"
domain: d
descriptors:
- {key: path, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: path, value: /api*, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: path, value: /api/v1, rate_limit: {unit: minute, requests_per_unit: 3}}
- {key: path, value: /api/v2*, rate_limit: {unit: minute, requests_per_unit: 4}}
- {key: star, value: 'a*b', rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: slash, value: 'a\*', rate_limit: {unit: minute, requests_per_unit: 6}}
- {key: any, value: '*', rate_limit: {unit: minute, requests_per_unit: 7}}
"#,
    ));
    let of = |key, value| meets(&table, "d", &[(key, value)]);
    assert_eq!(of("path", "/api/v1"), Limit(3));
    assert_eq!(
        of("path", "/api/v2/x"),
        Limit(2),
        "the first wildcard that fits"
    );
    assert_eq!(of("path", "/other"), Limit(1));
    assert_eq!(of("star", "a*b"), Limit(5));
    assert_eq!(of("star", "axb"), Nothing);
    assert_eq!(
        of("slash", r"a\xy"),
        Limit(6),
        "a backslash is a character there"
    );
    assert_eq!(of("slash", "a*"), Nothing);
    assert_eq!(of("any", "thing"), Limit(7));
    let key = |value| counter(&table, "d", &[("path", value)]);
    assert_ne!(
        key("/api/x"),
        key("/api/y"),
        "each value has its own counter"
    );
}

#[test]
fn values_of_a_wildcard_share_a_threshold_when_asked() {
    let table = table(&load(
        "
domain: d
descriptors:
- key: file
  value: pub/*
  share_threshold: true
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: own
  value: own/*
  share_threshold: false
  rate_limit: {unit: hour, requests_per_unit: 10}
- key: route
  value: api/*
  share_threshold: true
  descriptors:
  - {key: method, rate_limit: {unit: minute, requests_per_unit: 60}}
",
    ));
    let of = |key, value| counter(&table, "d", &[(key, value)]);
    assert!(of("file", "pub/a").is_some());
    assert_eq!(of("file", "pub/a"), of("file", "pub/b"));
    assert_ne!(of("own", "own/a"), of("own", "own/b"));
    let route = |path, method| counter(&table, "d", &[("route", path), ("method", method)]);
    assert_eq!(route("api/1", "GET"), route("api/2", "GET"));
    assert_ne!(route("api/1", "GET"), route("api/1", "PUT"));
}

#[test]
fn every_unit_is_a_fixed_window_of_its_length() {
    let units = ["second", "MINUTE", "Hour", "day", "week", "month", "year"];
    let seconds = [1u64, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000];
    for (unit, seconds) in units.into_iter().zip(seconds) {
        let policy = load(&format!(
            "
domain: d
descriptors:
- {{key: k, rate_limit: {{unit: {unit}, requests_per_unit: 4294967295}}}}
"
        ));
        let crate::Algorithm::Window {
            limit,
            window_ns,
            bucket_ns,
            ..
        } = policy.rules[0].algorithm
        else {
            panic!("{unit}")
        };
        let ns = seconds * 1_000_000_000;
        assert_eq!((limit, window_ns, bucket_ns), (u32::MAX, ns, ns), "{unit}");
        assert!(policy.notices.is_empty());
    }
}

#[test]
fn case_02_the_search_finds_its_way_back_and_rules_that_never_match_are_named() {
    let policy = load(
        "
domain: d
descriptors:
- key: tenant
  value: acme
  descriptors:
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1}}
- key: tenant
  value: ac*
  descriptors:
  - {key: method, rate_limit: {unit: minute, requests_per_unit: 2}}
- key: tenant
  descriptors:
  - {key: method, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: size, rate_limit: {unit: minute, requests_per_unit: 4}}
- {key: tenant, value: '*', rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: tenant, rate_limit: {unit: minute, requests_per_unit: 6}, value: acm*}
",
    );
    let table = table(&policy);
    let of = |tenant, key| meets(&table, "d", &[("tenant", tenant), (key, "x")]);
    assert_eq!(of("acme", "path"), Limit(1));
    assert_eq!(of("acme", "method"), Limit(2), "back from the exact branch");
    assert_eq!(of("acme", "size"), Limit(4), "back from two branches");
    assert_eq!(of("other", "method"), Limit(3));
    let hidden: Vec<_> = policy
        .notices
        .iter()
        .filter(|notice| matches!(notice.kind, NoticeKind::NeverMatches { .. }))
        .map(ToString::to_string)
        .collect();
    assert_eq!(hidden.len(), 1, "{:#?}", policy.notices);
    assert!(
        hidden[0].starts_with("c.yaml:17:3: rule tenant_acm*: it never matches")
            && hidden[0].contains("c.yaml:8:3"),
        "{hidden:?}"
    );
}

#[test]
fn the_order_of_nested_keys_is_part_of_a_limit() {
    let table = table(&load(
        "
domain: d
descriptors:
- key: a
  descriptors: [{key: b, rate_limit: {name: n, unit: minute, requests_per_unit: 1}}]
- key: b
  descriptors: [{key: a, rate_limit: {name: n, unit: minute, requests_per_unit: 2}}]
",
    ));
    assert_eq!(meets(&table, "d", &[("a", "1"), ("b", "1")]), Limit(1));
    assert_eq!(meets(&table, "d", &[("b", "1"), ("a", "1")]), Limit(2));
    assert_ne!(table.identities()[0], table.identities()[1]);
}
