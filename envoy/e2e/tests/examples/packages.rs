//! Package registries behind general throttles, at both doors: what the flag changes, and what not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gabion_envoy_e2e::doors::{until, wire, Cluster, Doors};

use crate::common::{denied_by, name, packages, statuses};

const FLAG: &str = "virtual_registries_skip_authenticated_throttles";
const MAVEN: &str =
    "GET /api/v4/virtual_registries/packages/maven/42/com/example/app/1.0/app-1.0.pom";
const NPM: &str = "GET /api/v4/virtual_registries/packages/npm/42/@example/app";
const API: &str = "GET /api/v4/projects";
const GENERAL: &str = "throttle_authenticated_api";
const DEDICATED: &str = "virtual_registries_endpoints_api_limit";

/// Limits that are reached after few requests and do not come back while a test runs.
const SMALL: [(&str, &str); 4] = [
    ("rate: 2000r/m", "rate: 5r/d"),
    ("rate: 16000r/m\n  window: 15s", "rate: 8r/d"),
    ("rate: 10r/m", "rate: 3r/d"),
    ("rate: 500r/m", "rate: 4r/d"),
];

fn small(cluster: Cluster, more: &[(&str, &str)]) -> Doors {
    packages(cluster, &[&SMALL[..], more].concat())
}

/// The same with the flag on by default.
fn small_on(more: &[(&str, &str)]) -> Doors {
    small(
        Cluster::Apart,
        &[&[("default: off", "default: on")], more].concat(),
    )
}

fn user(name: &str) -> [(&str, &str); 2] {
    [("X-User", name), ("X-Forwarded-For", "203.0.113.50")]
}

/// B.5: the general limit 5 per 60 s.
#[test]
fn flag_off_the_sixth_request_is_denied_and_flag_on_none_is_by_that_rule() {
    let five = [("rate: 2000r/m", "rate: 5r/m")];
    let off = packages(Cluster::Apart, &five);
    // All six in one minute of the clock, by which the windows go.
    let minute = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
            / 60
    };
    for attempt in ["ann", "bea", "cora"] {
        let began = minute();
        let five = statuses(&off, 5, MAVEN, &user(attempt));
        let sixth = off.both(MAVEN, &user(attempt));
        if minute() == began {
            assert_eq!(five, [200; 5]);
            assert_eq!((sixth.status, name(&sixth).as_str()), (429, GENERAL));
            assert!((1..=60).contains(&sixth.number("retry-after")), "{sixth:?}");
            assert_eq!(sixth.body, "Retry later\n");
            break;
        }
    }
    let on = packages(
        Cluster::Apart,
        &[&five[..], &[("default: off", "default: on")]].concat(),
    );
    assert_eq!(statuses(&on, 40, MAVEN, &user("ann")), [200; 40]);
    assert_eq!(statuses(&on, 40, NPM, &user("ann")), [200; 40]);
    // The same user elsewhere.
    assert_eq!(statuses(&on, 5, API, &user("ann")), [200; 5]);
}

/// B.2
#[test]
fn flag_on_package_paths_skip_the_general_throttle_and_the_plan_caps() {
    // A plan cap of 6, between the general 5 and the dedicated 8.
    let cap = [("ultimate: 25000r/h", "ultimate: 6r/h")];
    let off = small(Cluster::Apart, &cap);
    let ultimate = [("X-User", "ann"), ("X-Plan", "ultimate")];
    let denied = denied_by_rule(&off, MAVEN, &ultimate);
    assert_eq!(denied, (5, GENERAL.to_owned()));
    let on = small_on(&cap);
    assert_eq!(
        denied_by_rule(&on, MAVEN, &ultimate),
        (8, DEDICATED.to_owned())
    );
    // What they did not count is all there elsewhere.
    assert_eq!(denied_by_rule(&on, API, &ultimate), (5, GENERAL.to_owned()));
}

/// How many pass, and who denies the next one.
fn denied_by_rule(doors: &Doors, line: &str, headers: &[(&str, &str)]) -> (usize, String) {
    for passed in 0..100 {
        let answer = doors.both(line, headers);
        if answer.status == 429 {
            return (passed, name(&answer));
        }
    }
    panic!("{line}: 100 passed");
}

/// B.1: one rule for all plans.
#[test]
fn plan_caps_are_by_the_users_plan() {
    let doors = packages(
        Cluster::Apart,
        &[
            ("rate: 5000r/h\n", "rate: 2r/d\n"),
            (
                "{free: 5000r/h, premium: 15000r/h, ultimate: 25000r/h}",
                "{free: 3r/d, premium: 4r/d, ultimate: 6r/d}",
            ),
        ],
    );
    for (user, plan, limit) in [
        ("ann", "free", 3),
        ("bea", "premium", 4),
        ("cora", "ultimate", 6),
        ("dora", "unheard-of", 2),
        ("eve", "", 2),
    ] {
        let headers = [("X-User", user), ("X-Plan", plan)];
        let denied = denied_by_rule(&doors, API, &headers);
        assert_eq!(denied, (limit, "plan_caps".to_owned()), "{plan}");
    }
    // An upgrade counts at once: the counter is one whatever the plan.
    let upgraded = [("X-User", "ann"), ("X-Plan", "ultimate")];
    assert_eq!(statuses(&doors, 4, API, &upgraded), [200, 200, 200, 429]);
}

/// B.2
#[test]
fn flag_on_protected_paths_still_count_package_paths() {
    let login = "PUT /api/v4/virtual_registries/packages/npm/42/-/user/org.couchdb.user:ann";
    for doors in [small(Cluster::Apart, &[]), small_on(&[])] {
        let denied = denied_by_rule(&doors, login, &user("ann"));
        assert_eq!(denied, (3, "throttle_protected_paths".to_owned()));
        // By address: another path, another user, the same counter; another method is none.
        let sign_in = "POST /users/sign_in";
        assert_eq!(
            denied_by(&doors, sign_in, &user("bea")),
            "throttle_protected_paths"
        );
        assert_eq!(
            denied_by(&doors, "GET /users/sign_in", &user("bea")),
            "passed"
        );
    }
}

/// B.2
#[test]
fn flag_on_the_dedicated_limit_counts_unknown_ids_and_failed_logins() {
    let doors = small_on(&[]);
    for (client, answer, line) in [
        ("203.0.113.1", "401", MAVEN),
        (
            "203.0.113.2",
            "404",
            "GET /api/v4/virtual_registries/packages/maven/9999/x",
        ),
        ("203.0.113.3", "200", NPM),
    ] {
        let headers = [("X-Forwarded-For", client), ("X-Answer", answer)];
        let denied = denied_by_rule(&doors, line, &headers);
        assert_eq!(denied, (8, DEDICATED.to_owned()), "{line}");
    }
}

/// B.2
#[test]
fn flag_off_the_dedicated_limit_counts_only_what_passed_both() {
    let many = [("rate: 5r/d", "rate: 1000r/d")];
    let doors = small(Cluster::Apart, &many);
    for door in [doors.nginx, doors.envoy] {
        let ask = |answer: &str| {
            let headers = [("X-User", "ann"), ("X-Answer", answer)];
            wire::ask(door, MAVEN, &headers).unwrap()
        };
        for answer in ["401", "403", "404", "422", "500"] {
            for _ in 0..5 {
                assert_eq!(ask(answer).status.to_string(), answer);
            }
        }
        // Charged after the answer: the count comes a moment later than the request.
        let mut passed = 0;
        let denied = until("the limit of valid requests", || {
            let answer = ask("200");
            passed += u32::from(answer.status == 200);
            Ok((answer.status == 429).then_some(answer))
        });
        assert_eq!(name(&denied.unwrap()), DEDICATED);
        assert!((8..=16).contains(&passed), "{passed}");
        // What is denied is denied before it can fail.
        assert_eq!(ask("401").status, 429);
    }
}

/// B.2: all effects together, at both doors, by one reload of the one file.
#[test]
fn a_reload_flips_all_effects_at_both_doors() {
    let mut doors = small(Cluster::Apart, &[]);
    assert_eq!(
        denied_by_rule(&doors, MAVEN, &user("ann")),
        (5, GENERAL.to_owned())
    );
    doors
        .reload(&|text| text.replace("default: off", "default: on"))
        .unwrap();
    // The five that passed both are in the dedicated counter: it is one, whatever the flag.
    assert_eq!(
        denied_by_rule(&doors, MAVEN, &user("ann")),
        (3, DEDICATED.to_owned())
    );
    assert_eq!(denied_by(&doors, API, &user("ann")), GENERAL);
    doors
        .reload(&|text| text.replace("default: on", "default: off"))
        .unwrap();
    assert_eq!(doors.both(MAVEN, &user("ann")).status, 429);
}

/// B.4
#[test]
fn a_post_flips_the_flag_at_both_doors_for_all_or_for_a_share() {
    let doors = small(Cluster::Joined, &[("rate: 8r/d", "rate: 100000r/d")]);
    let flag = |value: &str| {
        let answer = doors.admin(&format!("POST /flags/{FLAG}?value={value}"));
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.contains("cluster"), "{answer:?}");
    };
    // Used up: from here on a package request passes only where the flag is on.
    until("the general limit", || {
        Ok((doors.either(API, &user("ann")).status == 429).then_some(()))
    })
    .unwrap();
    let passes = |door, client: &str| {
        let headers = [("X-User", "ann"), ("X-Forwarded-For", client)];
        wire::ask(door, MAVEN, &headers).unwrap().status == 200
    };
    let all_are = |on: bool| {
        until("the flag at both doors", || {
            let seen = [doors.nginx, doors.envoy].map(|door| passes(door, "203.0.113.50"));
            Ok((seen == [on, on]).then_some(()))
        })
        .unwrap();
    };
    all_are(false);
    flag("on");
    all_are(true);
    flag("off");
    all_are(false);
    flag("30%25");
    // A share of addresses: the same ones at both doors.
    let clients: Vec<String> = (0..100).map(|n| format!("198.51.100.{n}")).collect();
    let share = until("a share at both doors", || {
        let seen = |door| -> Vec<bool> { clients.iter().map(|c| passes(door, c)).collect() };
        let (nginx, envoy) = (seen(doors.nginx), seen(doors.envoy));
        let share = nginx.iter().filter(|on| **on).count();
        Ok((nginx == envoy && share > 0).then_some(share))
    });
    let share = share.unwrap();
    assert!((15..=45).contains(&share), "{share} of 100 at 30 %");
    // Shown everywhere.
    assert!(doors.admin("GET /snapshot").unwrap().body.contains(FLAG));
    assert!(doors.admin("GET /metrics").unwrap().body.contains(FLAG));
    assert!(doors.nginx_status().unwrap().to_string().contains(FLAG));
}

/// B.2
#[test]
fn internal_api_and_health_paths_stay_throttled_whatever_the_flag() {
    for doors in [small(Cluster::Apart, &[]), small_on(&[])] {
        for (name, line) in [
            ("ann", "GET /api/v4/internal/allowed"),
            ("bea", "GET /-/health"),
            ("cora", "GET /-/readiness"),
        ] {
            let denied = denied_by_rule(&doors, line, &user(name));
            assert_eq!(denied, (5, GENERAL.to_owned()), "{line}");
        }
    }
}

/// B.2
#[test]
fn the_unauthenticated_throttle_skips_virtual_registries_whatever_the_flag() {
    for (doors, dedicated) in [(small(Cluster::Apart, &[]), false), (small_on(&[]), true)] {
        let client = [("X-Forwarded-For", "203.0.113.50"), ("X-Answer", "401")];
        let seen = statuses(&doors, 9, MAVEN, &client);
        assert_eq!(seen[..8], [401; 8]);
        assert_eq!(seen[8], if dedicated { 429 } else { 401 });
        let denied = denied_by_rule(&doors, API, &client);
        assert_eq!(denied, (4, "throttle_unauthenticated".to_owned()));
    }
}

/// B.2
#[test]
fn container_paths_are_no_package_paths() {
    let doors = small_on(&[]);
    for (name, line) in [
        (
            "ann",
            "GET /v2/virtual_registries/container/42/library/alpine/manifests/latest",
        ),
        (
            "bea",
            "GET /v2/acme/dependency_proxy/containers/alpine/manifests/latest",
        ),
        (
            "cora",
            "GET /api/v4/virtual_registries/container/registries/42",
        ),
    ] {
        let denied = denied_by_rule(&doors, line, &user(name));
        assert_eq!(denied, (5, GENERAL.to_owned()), "{line}");
    }
}

/// B.3
#[test]
fn unknown_and_missing_groups_share_one_bucket_of_an_address() {
    let doors = small_on(&[]);
    let mut passed = 0;
    for id in 0..200 {
        let line = format!("GET /api/v4/virtual_registries/packages/maven/9{id:03}/x");
        passed += usize::from(doors.both(&line, &user("ann")).status == 200);
    }
    assert_eq!(passed, 8);
    let missing = "GET /api/v4/virtual_registries/packages/maven";
    assert_eq!(denied_by(&doors, missing, &user("ann")), DEDICATED);
    let rules = doors.json(&format!("/rules?rule={DEDICATED}")).unwrap();
    assert_eq!(rules[0]["live_keys"], 1, "{rules}");
    // Known groups have their own, and ids of one group one together.
    assert_eq!(statuses(&doors, 4, MAVEN, &user("ann")), [200; 4]);
    let sibling = MAVEN.replace("/42/", "/43/");
    assert_eq!(
        statuses(&doors, 5, &sibling, &user("ann")),
        [200, 200, 200, 200, 429]
    );
    assert_eq!(
        denied_by(&doors, &MAVEN.replace("/42/", "/7/"), &user("ann")),
        "passed"
    );
    // Another address is another bucket.
    assert_eq!(
        denied_by(&doors, missing, &[("X-Forwarded-For", "203.0.113.60")]),
        "passed"
    );
}

/// B.4: dry run first, its headroom read from metrics, then enforced.
#[test]
fn the_dedicated_limit_is_rolled_out_in_dry_run() {
    let dry = [("rate: 8r/d", "rate: 8r/d\n  mode: dry_run")];
    let on = [("default: off", "default: on")];
    let mut doors = small(Cluster::Apart, &[&dry[..], &on].concat());
    // Of a dry run the doors tell clients differently: nginx nothing, gabiond what it counts.
    for door in [doors.nginx, doors.envoy] {
        for _ in 0..12 {
            assert_eq!(wire::ask(door, MAVEN, &user("ann")).unwrap().status, 200);
        }
    }
    let metric = |name: &str| {
        let page = doors.admin("GET /metrics").unwrap().body;
        let label = format!("rule=\"{DEDICATED}\"");
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")) && line.contains(&label));
        let line = line.unwrap_or_else(|| panic!("no {name} in {page}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    // What the guide tells to look at: how many it would have denied, and how many were near.
    assert_eq!(metric("gabion_rule_dry_run_denied_total"), 4.0);
    assert_eq!(metric("gabion_rule_limit_hits"), 8.0);
    assert!(metric("gabion_rule_near_limit_total") >= 1.0);
    assert_eq!(metric("gabion_rule_denied_total"), 0.0);
    doors
        .reload(&|text| text.replace("\n  mode: dry_run", ""))
        .unwrap();
    // It counted meanwhile.
    assert_eq!(denied_by(&doors, MAVEN, &user("ann")), DEDICATED);
}

/// B.5: ten jobs as one user. A tenth of the time and of the counts: 200 in 6 s, 400 in 1.5 s.
#[test]
fn ten_jobs_as_one_user() {
    let scaled = [
        ("rate: 2000r/m", "rate: 2000r/m\n  window: 6s"),
        ("window: 15s", "window: 1500ms"),
    ];
    let off = packages(Cluster::Apart, &scaled);
    let on = packages(
        Cluster::Apart,
        &[&scaled[..], &[("default: off", "default: on")]].concat(),
    );
    for door in [off.nginx, off.envoy] {
        let (_, general, _) = ten_jobs(door, 60);
        assert!(
            general > 0,
            "600 requests in a few seconds, and 200 in 6 s may pass"
        );
    }
    for door in [on.nginx, on.envoy] {
        let (passed, general, dedicated) = ten_jobs(door, 120);
        assert_eq!(general, 0);
        assert!(dedicated > 0, "{passed} passed");
    }
}

/// Ten clients send `each` requests; how many pass, and how many each limit denies. In no window of
/// the dedicated limit more may pass than it has.
fn ten_jobs(door: std::net::SocketAddr, each: usize) -> (usize, usize, usize) {
    let (general, dedicated, passed) = Default::default();
    let counts: [&AtomicUsize; 3] = [&general, &dedicated, &passed];
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(move || {
                let mut job = wire::Connection::open(door, [127, 0, 0, 1].into()).unwrap();
                for _ in 0..each {
                    let answer = job.ask(MAVEN, &user("ci")).unwrap();
                    let which = match (answer.status, name(&answer).as_str()) {
                        (429, GENERAL) => 0,
                        (429, DEDICATED) => 1,
                        (200, _) => 2,
                        other => panic!("{other:?}"),
                    };
                    counts[which].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let windows = began.elapsed().as_millis() / Duration::from_millis(1_500).as_millis() + 2;
    let [general, dedicated, passed] = counts.map(|count| count.load(Ordering::Relaxed));
    println!("{passed} passed, denied: general {general}, dedicated {dedicated}");
    assert!(
        (passed as u128) <= 400 * windows,
        "{passed} in {windows} windows"
    );
    (passed, general, dedicated)
}

/// B.5, and one counter for the cluster.
#[test]
fn both_doors_share_the_dedicated_count() {
    let doors = small(
        Cluster::Joined,
        &[
            ("rate: 8r/d", "rate: 100r/d"),
            ("default: off", "default: on"),
        ],
    );
    let statuses: Vec<u16> = (0..150)
        .map(|_| doors.either(MAVEN, &user("ann")).status)
        .collect();
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert!((100..=104).contains(&passed), "{passed}");
}

/// Acceptance: `explain` shows each rule's decision and why.
#[test]
fn explain_says_what_the_flag_does() {
    let off = small(Cluster::Apart, &[]);
    let on = small_on(&[]);
    let path = "/api/v4/virtual_registries/packages/maven/42/x";
    let request = format!("path={path},method=GET,peer=127.0.0.1,user=ann");
    let explain = |doors: &Doors| {
        let output = doors.gabiond(&["explain", "edge", &request]).unwrap();
        let text = crate::common::said(&output);
        println!("{text}");
        text
    };
    let (off, on) = (explain(&off), explain(&on));
    for rule in [GENERAL, DEDICATED, "plan_caps", "throttle_protected_paths"] {
        assert!(off.contains(rule) && on.contains(rule), "{rule}");
    }
    assert!(off.contains(FLAG), "{off}");
    assert!(on.contains("replace"), "{on}");
}
