//! Each word of the policy vocabulary at both doors, with the smallest policy that shows it.

use gabion_envoy_e2e::doors::{until, wire, Cluster, Doors};

use crate::common::{checked, denied_by, policy, statuses};

const ADDRESSES: &str = "attributes:
  client_ip:
    client_address: {peer: peer, forwarded: forwarded, trusted_proxies: [127.0.0.1]}
";

/// The doors with these rules, one on a line, without what all have in common.
fn rules(rules: &[&str]) -> Doors {
    policy(Cluster::Apart, &written("", rules))
}

fn written(head: &str, rules: &[&str]) -> String {
    let rules = rules
        .iter()
        .map(|rule| format!("- {{domain: edge, match: request, raw_body: later, {rule}}}\n"));
    format!("{ADDRESSES}{head}limits:\n{}", rules.collect::<String>())
}

fn flagged(flags: &str, list: &[&str]) -> Doors {
    policy(
        Cluster::Apart,
        &written(&format!("flags: {{{flags}}}\n"), list),
    )
}

const USER: [(&str, &str); 1] = [("X-User", "ann")];

#[test]
fn only_if_any_of_the_list_and_all_of_one_item() {
    let doors = rules(&["name: a, descriptors: [], rate: 1r/d, \
         only_if: [{path: \"/a/*\", method: [POST, PUT]}, {path: /b}]"]);
    assert_eq!(statuses(&doors, 3, "GET /a/x", &[]), [200; 3]);
    assert_eq!(statuses(&doors, 3, "GET /b/x", &[]), [200; 3]);
    assert_eq!(denied_by(&doors, "POST /a/x", &[]), "passed");
    for line in ["PUT /a/y", "GET /b", "GET /b?q=1", "DELETE /b"] {
        assert_eq!(denied_by(&doors, line, &[]), "a", "{line}");
    }
}

#[test]
fn except_if_spares_networks_paths_and_methods() {
    let doors = rules(&[
        "name: a, descriptors: [{key: client_ip}], rate: 1r/d, except_if: [\
         {client_ip: {networks: [10.0.0.0/8, \"2001:db8::/32\", 192.0.2.1]}}, \
         {path: \"/health*\", method: [GET, HEAD]}]",
    ]);
    for exempt in ["10.1.2.3", "2001:db8:5::1", "192.0.2.1", "::ffff:10.9.9.9"] {
        let from = [("X-Forwarded-For", exempt)];
        assert_eq!(statuses(&doors, 3, "GET /x", &from), [200; 3], "{exempt}");
    }
    for other in ["11.1.2.3", "2001:db9::1", "192.0.2.2"] {
        let from = [("X-Forwarded-For", other)];
        assert_eq!(statuses(&doors, 2, "GET /x", &from), [200, 429], "{other}");
        assert_eq!(statuses(&doors, 2, "GET /healthz", &from), [200; 2]);
        assert_eq!(denied_by(&doors, "POST /healthz", &from), "a");
        // A query is no part of a path, an escaped question mark is.
        assert_eq!(denied_by(&doors, "GET /x?/health", &from), "a");
    }
}

#[test]
fn a_pattern_is_exact_a_prefix_anything_nothing_or_has_a_star_inside() {
    let doors = rules(&[
        "name: exact, descriptors: [], rate: 1r/d, only_if: [{path: /e}]",
        "name: prefix, descriptors: [], rate: 1r/d, only_if: [{path: \"/p/*\"}]",
        "name: inner, descriptors: [], rate: 1r/d, only_if: [{path: \"/i/*/end\"}]",
        "name: signed_in, descriptors: [], rate: 1r/d, only_if: [{user: \"*\", path: /u}]",
        "name: signed_out, descriptors: [], rate: 1r/d, only_if: [{user: \"\", path: /u}]",
    ]);
    for (first, line, rule) in [
        ("GET /e", "GET /e", "exact"),
        ("GET /p/1", "GET /p/2/3", "prefix"),
        ("GET /i/1/end", "GET /i/2/end", "inner"),
    ] {
        assert_eq!(denied_by(&doors, first, &[]), "passed");
        assert_eq!(denied_by(&doors, line, &[]), rule);
    }
    assert_eq!(denied_by(&doors, "GET /i/1/2/end", &[]), "passed");
    assert_eq!(denied_by(&doors, "GET /u", &USER), "passed");
    assert_eq!(denied_by(&doors, "GET /u", &USER), "signed_in");
    assert_eq!(denied_by(&doors, "GET /u", &[]), "passed");
    assert_eq!(denied_by(&doors, "GET /u", &[("X-User", "")]), "signed_out");
}

#[test]
fn flags_switch_rules_on_and_off() {
    let doors = flagged(
        "new: {default: on}, old: {default: off}",
        &[
            "name: a, descriptors: [], rate: 1r/d, if_flag: new, only_if: [{path: /a}]",
            "name: b, descriptors: [], rate: 1r/d, unless_flag: new, only_if: [{path: /b}]",
            "name: c, descriptors: [], rate: 1r/d, if_flag: old, only_if: [{path: /c}]",
            "name: d, descriptors: [], rate: 1r/d, unless_flag: old, only_if: [{path: /d}]",
        ],
    );
    for (line, second) in [("/a", "a"), ("/b", "passed"), ("/c", "passed"), ("/d", "d")] {
        let line = format!("GET {line}");
        assert_eq!(denied_by(&doors, &line, &[]), "passed");
        assert_eq!(denied_by(&doors, &line, &[]), second, "{line}");
    }
}

/// C: a percentage goes by one attribute, so all rules change together for one user.
#[test]
fn a_percentage_takes_whole_users() {
    let doors = flagged(
        "half: {default: 50%, by: user}",
        &[
            "name: a, descriptors: [{key: user}], rate: 1r/d, if_flag: half, only_if: [{path: /a}]",
            "name: b, descriptors: [{key: user}, {key: plan}], rate: 1r/d, if_flag: half, \
             only_if: [{path: /b}]",
            "name: c, descriptors: [{key: user}], rate: 1r/d, unless_flag: half, \
             only_if: [{path: /c}]",
        ],
    );
    let mut on = 0;
    for n in 0..40 {
        let user = format!("user-{n}");
        let user = [("X-User", user.as_str()), ("X-Plan", "free")];
        let limited = |line: &str| statuses(&doors, 2, line, &user)[1] == 429;
        let all = [limited("GET /a"), limited("GET /b"), !limited("GET /c")];
        assert!(all == [true; 3] || all == [false; 3], "{user:?}: {all:?}");
        on += usize::from(all[0]);
    }
    assert!((8..=32).contains(&on), "{on} of 40 at 50 %");
}

#[test]
fn fallback_puts_the_absent_and_the_unknown_in_one_bucket() {
    let doors = rules(&[
        "name: a, descriptors: [{key: plan, fallback: none, known: [free, ultimate]}], rate: 1r/d",
    ]);
    let plan = |plan: &str| denied_by(&doors, "GET /", &[("X-Plan", plan)]);
    assert_eq!(plan("free"), "passed");
    assert_eq!(plan("free"), "a");
    assert_eq!(plan("ultimate"), "passed");
    assert_eq!(denied_by(&doors, "GET /", &[]), "passed");
    for made_up in ["", "x", "y", "none"] {
        assert_eq!(plan(made_up), "a", "{made_up}");
    }
}

#[test]
fn an_absent_key_leaves_a_rule_out() {
    let doors = rules(&["name: a, descriptors: [{key: user}], rate: 1r/d"]);
    assert_eq!(statuses(&doors, 3, "GET /", &[]), [200; 3]);
    assert_eq!(statuses(&doors, 3, "GET /", &[("X-User", "")]), [200; 3]);
    assert_eq!(statuses(&doors, 2, "GET /", &USER), [200, 429]);
}

/// C: order and short-circuit.
#[test]
fn last_ends_the_list_and_replaces_takes_out_by_name() {
    let doors = rules(&[
        "name: first, descriptors: [], rate: 3r/d, only_if: [{path: \"/l/*\"}], last: true",
        "name: swap, descriptors: [], rate: 4r/d, only_if: [{path: \"/r/*\"}], replaces: [all]",
        "name: all, descriptors: [], rate: 1r/d",
    ]);
    assert_eq!(statuses(&doors, 4, "GET /l/x", &[]), [200, 200, 200, 429]);
    assert_eq!(denied_by(&doors, "GET /l/x", &[]), "first");
    assert_eq!(statuses(&doors, 4, "GET /r/x", &[]), [200; 4]);
    assert_eq!(denied_by(&doors, "GET /r/x", &[]), "swap");
    // Neither charged the third.
    assert_eq!(denied_by(&doors, "GET /x", &[]), "passed");
    assert_eq!(denied_by(&doors, "GET /x", &[]), "all");
}

/// Case 30, and C: one limiter for several paths by its name.
#[test]
fn case_30_one_that_denies_charges_none() {
    let doors = rules(&[
        "name: wide, descriptors: [], rate: 4r/d",
        "name: tight, descriptors: [{key: user}], rate: 1r/d",
    ]);
    assert_eq!(denied_by(&doors, "GET /", &USER), "passed");
    for _ in 0..5 {
        assert_eq!(denied_by(&doors, "GET /", &USER), "tight");
    }
    assert_eq!(statuses(&doors, 4, "GET /", &[]), [200, 200, 200, 429]);
}

#[test]
fn tiers_give_each_plan_its_rate_over_one_set_of_counters() {
    let doors = rules(&["name: a, descriptors: [{key: user}], rate: 1r/d, \
         tiers: {by: plan, rates: {free: 2r/d, ultimate: 5r/d}}"]);
    for (user, plan, limit) in [("a", "free", 2), ("b", "ultimate", 5), ("c", "x", 1)] {
        let headers = [("X-User", user), ("X-Plan", plan)];
        let first = doors.both("GET /", &headers);
        assert_eq!(first.number("x-ratelimit-limit"), limit, "{first:?}");
        let more = usize::try_from(limit).unwrap();
        let seen = statuses(&doors, more, "GET /", &headers);
        assert_eq!(seen[more - 1], 429, "{seen:?}");
        assert!(
            seen[..more - 1].iter().all(|status| *status == 200),
            "{seen:?}"
        );
    }
}

#[test]
fn a_rule_in_shadow_counts_beside_one_that_is_enforced() {
    let doors = rules(&[
        "name: enforced, descriptors: [], rate: 4r/d",
        "name: shadow, descriptors: [], rate: 2r/d, mode: dry_run",
    ]);
    for door in [doors.nginx, doors.envoy] {
        let ask = || wire::ask(door, "GET /", &[]).unwrap().status;
        assert_eq!([(); 5].map(|()| ask()), [200, 200, 200, 200, 429]);
    }
    let page = doors.admin("GET /metrics").unwrap().body;
    let line = "gabion_rule_dry_run_denied_total{domain=\"edge\",rule=\"shadow\"} 3";
    assert!(page.contains(line), "{page}");
}

/// C: body and headers for each rule.
#[test]
fn each_rule_has_its_own_body_and_headers() {
    let yaml = "limits:
- {name: a, domain: edge, match: request, descriptors: [], rate: 1r/d, only_if: [{path: /a}], \
raw_body: '{\"e\":1}', raw_body_type: application/json, raw_headers: {X-Why: a, X-Also: yes}}
- {name: b, domain: edge, match: request, descriptors: [], rate: 1r/d, only_if: [{path: /b}], \
raw_body: slow down}
";
    let doors = policy(Cluster::Apart, yaml);
    for (path, body, media, why) in [
        ("/a", "{\"e\":1}", "application/json", Some("a")),
        ("/b", "slow down", "text/plain", None),
    ] {
        let line = format!("GET {path}");
        let passed = doors.both(&line, &[]);
        assert_eq!((passed.status, passed.header("x-why")), (200, None));
        for door in [doors.nginx, doors.envoy] {
            let denied = wire::ask(door, &line, &[]).unwrap();
            assert_eq!((denied.status, denied.body.as_str()), (429, body));
            assert_eq!(denied.header("content-type"), Some(media));
            assert_eq!(denied.header("x-why"), why);
        }
    }
}

/// C: charged when the answer is known.
#[test]
fn charge_after_the_response_counts_failures_only() {
    let doors = rules(&[
        "name: failed_logins, descriptors: [{key: client_ip}], rate: 3r/d, \
         charge: {after: response, status: [\"401\", \"403\"]}",
    ]);
    for door in [doors.nginx, doors.envoy] {
        let ask = |answer: &str| {
            let answer = wire::ask(door, "GET /login", &[("X-Answer", answer)]);
            answer.unwrap().status
        };
        for _ in 0..10 {
            assert_eq!(ask("200"), 200);
        }
        let mut failed = 0;
        until("the limit of failures", || {
            let status = ask("401");
            failed += u32::from(status == 401);
            Ok((status == 429).then_some(()))
        })
        .unwrap();
        assert!((3..=8).contains(&failed), "{failed}");
        assert_eq!(ask("200"), 429);
    }
}

/// Case 32: an anonymous limit does not hit signed-in users behind the same address, and a denial
/// carries its headers.
#[test]
fn case_32_signed_in_users_are_not_hit_by_the_anonymous_limit() {
    let doors = rules(&[
        "name: anonymous, descriptors: [{key: client_ip}], rate: 2r/d, only_if: [{user: \"\"}]",
        "name: signed_in, descriptors: [{key: user}], rate: 10r/d",
    ]);
    assert_eq!(statuses(&doors, 3, "GET /", &[]), [200, 200, 429]);
    assert_eq!(statuses(&doors, 10, "GET /", &USER), [200; 10]);
    let denied = doors.both("GET /", &[]);
    for (name, value) in [
        ("ratelimit-name", "anonymous"),
        ("x-ratelimit-limit", "2"),
        ("x-ratelimit-remaining", "0"),
        ("ratelimit-policy", "\"anonymous\";q=2;w=86400"),
    ] {
        assert_eq!(denied.header(name), Some(value), "{denied:?}");
    }
    assert!(denied.number("retry-after") >= 1 && denied.number("x-ratelimit-reset") >= 1);
    assert!(denied
        .header("ratelimit")
        .unwrap()
        .starts_with("\"anonymous\";r=0;t="));
}

/// Mistakes in a policy give place and advice, at both doors.
#[test]
fn mistakes_in_a_policy_give_place_and_advice() {
    let rule = |words: &str| {
        format!(
            "attributes:\n  client_ip: {{client_address: {{peer: peer, forwarded: forwarded, \
             trusted_proxies: [127.0.0.1]}}}}\nflags: {{known: {{default: off}}}}\nlimits:\n\
             - name: a\n  domain: edge\n  match: request\n  descriptors: [{{key: user}}]\n  \
             rate: 5r/m\n  {words}\n"
        )
    };
    for (words, advice) in [
        ("if_flag: knwon", "known"),
        ("if_flag: known\n  unless_flag: known", "unless_flag"),
        ("only_fi: [{path: /x}]", "only_if"),
        (
            "except_if: [{client_ip: {networks: [10.0.0.0/33]}}]",
            "10.0.0.0/33",
        ),
        (
            "except_if: [{client_ip: {networks: [\"preset:cloudfare\"]}}]",
            "cloudflare",
        ),
        (
            "burst: 5\n  tiers: {by: plan, rates: {free: 1r/m}}",
            "tiers",
        ),
        ("tiers: {by: plan, rates: {free: fast}}", "fast"),
        ("charge: {after: answer}", "response"),
        ("replaces: [nobody]", "nobody"),
        ("raw_headers: {\"bad name\": x}", "bad name"),
    ] {
        for (taken, said) in checked("policy.yaml", &rule(words)) {
            assert!(!taken, "{words}: {said}");
            assert!(said.contains("policy.yaml:"), "{words}: {said}");
            assert!(said.contains(advice), "{words}: {said}");
        }
    }
    for (attributes, advice) in [
        (
            "a: {lookup: {from: b, values: {x: y}}}, b: {lookup: {from: a, values: {x: y}}}",
            "a",
        ),
        ("a: {capture: {from: path, pattern: \"/x/*\"}}", "{}"),
        (
            "a: {client_address: {peer: peer, forwarded: f, trusted_proxies: [1.2.3]}}",
            "1.2.3",
        ),
    ] {
        let text = format!("attributes: {{{attributes}}}\nlimits: []\n");
        for (taken, said) in checked("policy.yaml", &text) {
            assert!(!taken, "{attributes}: {said}");
            assert!(said.contains("policy.yaml:1"), "{attributes}: {said}");
            assert!(said.contains(advice), "{attributes}: {said}");
        }
    }
}
