//! Settings of the reference service that change what is seen and not what is answered: metrics per
//! value, and quotas whose findings are in the metadata.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::collections::BTreeMap;

use common::prometheus::parse;
use common::{until, Member, Scratch, PORTS};
use gabion_server::protocol::{descriptor, request, Code, RateLimitRequest, RateLimitResponse};
use prost_types::value::Kind;

/// Labels with their names.
type Labels = Vec<(String, String)>;

/// Series of one family, by rule and values.
fn series(member: &Member, name: &str) -> BTreeMap<(String, String), f64> {
    let page = parse(&member.get("/metrics").1);
    let family = page.get(name).unwrap_or_else(|| panic!("no {name}"));
    let one = |((_, labels), value): (&(String, Labels), &f64)| {
        let label = |name: &str| {
            let found = labels.iter().find(|(label, _)| label == name);
            found.map_or(String::new(), |(_, value)| value.clone())
        };
        ((label("rule"), label("values")), *value)
    };
    family.series.iter().map(one).collect()
}

fn directory(file: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.file("limits.yaml", file);
    scratch
}

fn serving(directory: &Scratch, more: &str) -> Member {
    let reference = format!("reference: {{directory: '{}'}}\n", directory.0.display());
    Member::start_with(&format!("{PORTS}{reference}{more}"), &[])
}

const MEASURED: &str = "
domain: shop
descriptors:
- key: route
  value_to_metric: true
  descriptors:
  - key: method
    value_to_metric: true
    descriptors:
    - {key: subject, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: tenant, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: tenant, value: own, rate_limit: {unit: day, requests_per_unit: 9}}
- {key: plain, rate_limit: {unit: day, requests_per_unit: 9}}
";

fn of(entries: &[(&str, &str)]) -> RateLimitRequest {
    request("shop", vec![descriptor(entries)])
}

#[tokio::test]
async fn metric_settings_of_the_reference_service_give_each_value_its_series() {
    let directory = directory(MEASURED);
    let member = serving(&directory, "");
    for subject in ["1", "1", "1", "2"] {
        let route = [("route", "api"), ("method", "GET"), ("subject", subject)];
        member.ask(of(&route)).await;
    }
    let long = "x".repeat(200);
    for tenant in ["a", "b", "b", "own", &long] {
        member.ask(of(&[("tenant", tenant)])).await;
    }
    member.ask(of(&[("plain", "p")])).await;
    let allowed = series(&member, "gabion_rule_value_allowed_total");
    let denied = series(&member, "gabion_rule_value_denied_total");
    let (nested, wide) = ("route.method.subject".to_owned(), "tenant".to_owned());
    let api = (nested.clone(), "route=api,method=GET".to_owned());
    assert_eq!(
        (allowed[&api], denied[&api]),
        (3.0, 1.0),
        "whatever subject"
    );
    let of = |values: &str| allowed[&(wide.clone(), values.to_owned())];
    assert_eq!(
        (of("tenant=a"), of("tenant=b"), of("(others)")),
        (1.0, 2.0, 0.0)
    );
    let cut: Vec<_> = allowed.keys().filter(|(_, v)| v.contains("xxx")).collect();
    assert!(cut.len() == 1 && cut[0].1.len() <= 64, "{cut:?}");
    assert_eq!(
        allowed.len(),
        6,
        "rules that name no value have none: {allowed:?}"
    );
    let rules = series(&member, "gabion_rule_allowed_total");
    assert_eq!(
        rules[&(wide, String::new())],
        4.0,
        "the rule's own series stays whole"
    );
    let snapshot = member.snapshot();
    assert_eq!(snapshot["config"]["notices"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn values_beyond_the_bound_share_a_series_and_a_reload_frees_what_is_gone() {
    let rule = |values: &str| {
        format!(
            "{PORTS}observe: {{value_series: 20, values: hashed}}\nlimits:\n- {{name: r, \
             domain: shop, rate: 1r/d, descriptors: [{{key: a}}, {{key: b}}], \
             metric_values: [{values}]}}\n"
        )
    };
    let member = Member::start_with(&rule("a"), &[]);
    for n in 0..300 {
        let value = format!("secret-{n}");
        member.ask(of(&[("a", &value), ("b", "x")])).await;
    }
    let name = "gabion_rule_value_allowed_total";
    let allowed = series(&member, name);
    assert!((15..=21).contains(&allowed.len()), "{}", allowed.len());
    assert_eq!(allowed.values().sum::<f64>(), 300.0, "nothing is lost");
    assert!(!allowed.keys().any(|(_, values)| values.contains("secret")));
    let config = member.scratch.0.join("gabiond.yaml");
    let put = |text: &str, reloads: u64| {
        std::fs::write(&config, text).unwrap();
        until("the reload", || {
            let done = &member.snapshot()["config"]["reloads"]["done"];
            (done.as_u64() == Some(reloads)).then_some(())
        });
    };
    put(&rule("a").replace("1r/d", "2r/d"), 1);
    assert_eq!(
        series(&member, name),
        allowed,
        "a rule that stays keeps them"
    );
    put(&rule("b"), 2);
    assert_eq!(series(&member, name).len(), 1, "only the rest of the rule");
    member.ask(of(&[("a", "new"), ("b", "x")])).await;
    assert_eq!(series(&member, name).len(), 2, "there is room again");
}

const QUOTA: &str = "
domain: shop
descriptors:
- {key: pool, rate_limit: {unit: day, requests_per_unit: 1}, quota_mode: true}
- {key: user, rate_limit: {unit: day, requests_per_unit: 2}}
";

fn pools(names: &[&str]) -> RateLimitRequest {
    let of = |name: &&str| descriptor(&[("pool", name)]);
    request("shop", names.iter().map(of).collect())
}

/// What the reference service would say of quotas: whether there are any, and who is beyond.
fn quota(answer: &RateLimitResponse) -> Option<(bool, Vec<f64>)> {
    let metadata = answer.dynamic_metadata.as_ref()?;
    let kind = |name: &str| metadata.fields.get(name)?.kind.clone();
    let Some(Kind::BoolValue(enabled)) = kind("quotaModeEnabled") else {
        return None;
    };
    let Some(Kind::ListValue(list)) = kind("quotaModeViolations") else {
        return Some((enabled, Vec::new()));
    };
    let number = |value: &prost_types::Value| match value.kind {
        Some(Kind::NumberValue(number)) => number,
        _ => panic!("{value:?}"),
    };
    Some((enabled, list.values.iter().map(number).collect()))
}

#[tokio::test]
async fn a_quota_never_denies_and_lists_the_descriptors_beyond_it() {
    let directory = directory(QUOTA);
    let member = serving(&directory, "");
    let first = member.ask(pools(&["a"])).await;
    assert_eq!(quota(&first), None, "nothing to say by default");
    let answer = member.ask(pools(&["b", "a", "c"])).await;
    assert_eq!(answer.overall_code(), Code::Ok);
    assert!(answer
        .statuses
        .iter()
        .all(|status| status.code() == Code::Ok));
    assert_eq!(quota(&answer), Some((true, vec![1.0])));
    let user = || request("shop", vec![descriptor(&[("user", "u")])]);
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        let answer = member.ask(user()).await;
        assert_eq!(answer.overall_code(), expected, "others deny as before");
        assert_eq!(quota(&answer), None);
    }
    let counts = &member.snapshot()["rules"][0]["counts"];
    assert_eq!(
        (counts["would_deny"].as_u64(), counts["denied"].as_u64()),
        (Some(1), Some(0))
    );
}

#[tokio::test]
async fn metadata_can_have_all_fields_of_the_reference_service() {
    let directory = directory(QUOTA);
    let member = serving(&directory, "dynamic_metadata: [always, reference]\n");
    let mut asked = pools(&["a", "b"]);
    asked.hits_addend = 3;
    asked
        .descriptors
        .push(descriptor(&[("nobody", "knows"), ("n", "")]));
    asked.descriptors[1].hits_addend = Some(1);
    let answer = member.ask(asked).await;
    assert_eq!(quota(&answer), Some((true, vec![0.0])));
    let fields = answer.dynamic_metadata.unwrap().fields;
    let text = format!("{:?}", fields["descriptors"]);
    for part in ["\"pool=a\"", "\"nobody=knows\"", "\"n=\"", "\"hitsAddend\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(fields["hitsAddend"].kind, Some(Kind::NumberValue(3.0)));
    assert_eq!(
        fields["domain"].kind,
        Some(Kind::StringValue("shop".to_owned()))
    );
    let none = member
        .ask(request("else", vec![descriptor(&[("k", "v")])]))
        .await;
    assert_eq!(quota(&none), Some((false, Vec::new())));
}
