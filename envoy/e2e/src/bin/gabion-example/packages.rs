//! Package registries behind general throttles: what a reader should notice.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use gabion_envoy_e2e::doors::{until, wire, Answer, Cluster, Doors, Programs};
use gabion_envoy_e2e::AnyError;

use crate::{explain, introduce, must, named, part, print};

const FLAG: &str = "virtual_registries_skip_authenticated_throttles";
const GENERAL: &str = "throttle_authenticated_api";
const DEDICATED: &str = "virtual_registries_endpoints_api_limit";
const PATH: &str = "/api/v4/virtual_registries/packages/maven/42/com/example/app/1.0/app-1.0.pom";
const USER: [(&str, &str); 3] = [
    ("X-User", "ci"),
    ("X-Plan", "ultimate"),
    ("X-Forwarded-For", "203.0.113.50"),
];

/// Runs the example with the policy as it is shipped, but for the dry run it begins with.
pub(crate) fn show() -> Result<(), AnyError> {
    let dry = |name: &str, text: String| match name {
        "policy.yaml" => text.replace("  window: 15s", "  mode: dry_run\n  window: 15s"),
        _ => text,
    };
    let programs = Programs::find()?;
    let mut doors = Doors::start(programs, "virtual-registries", Cluster::Joined, &dry)?;
    introduce(&doors);
    flag_off(&doors)?;
    flag_on(&doors)?;
    enforced(&mut doors)?;
    one_bucket(&doors)?;
    part("Why: what each rule says to the request");
    let request = format!("path={PATH},method=GET,peer=127.0.0.1,forwarded=203.0.113.50,user=ci");
    let text = explain(&doors, "edge", &request)?;
    must(text.contains(GENERAL), "explain names the rules")
}

fn flag_off(doors: &Doors) -> Result<(), AnyError> {
    part("Flag off: ten jobs of one user fetch packages. The general throttle: 2,000 a minute");
    let (passed, denied) = jobs(doors, 6_000)?;
    println!("{passed} passed, then:");
    let denied = denied.ok_or("none of 6,000 requests was denied")?;
    print("one of the jobs", &format!("GET {PATH}"), &denied);
    must(
        denied.header("ratelimit-name") == Some(GENERAL),
        "the general throttle denies",
    )
}

fn flag_on(doors: &Doors) -> Result<(), AnyError> {
    part("Flag on, for both doors at once; the dedicated limit only watches (dry run)");
    println!("$ curl -X POST '{}/flags/{FLAG}?value=on'", doors.admin);
    let answer = doors.admin(&format!("POST /flags/{FLAG}?value=on"))?;
    println!("{}", answer.body.trim_end());
    for (name, door) in named(doors) {
        until("the flag", || {
            let answer = wire::ask(door, &format!("GET {PATH}"), &USER)?;
            Ok((answer.status == 200).then_some(()))
        })?;
        println!("{name}: the same user -> 200");
    }
    let (passed, denied) = jobs(doors, 6_000)?;
    println!("{passed} of 6,000 passed. What the limit would have done, from /metrics:");
    must(denied.is_none(), "a dry run denies nothing")?;
    let page = doors.admin("GET /metrics")?.body;
    for metric in [
        "gabion_rule_limit_hits",
        "gabion_rule_allowed_total",
        "gabion_rule_near_limit_total",
        "gabion_rule_dry_run_denied_total",
    ] {
        let wanted =
            |line: &&str| line.starts_with(&format!("{metric}{{")) && line.contains(DEDICATED);
        println!("{}", page.lines().find(wanted).ok_or(metric)?);
    }
    Ok(())
}

fn enforced(doors: &mut Doors) -> Result<(), AnyError> {
    part("The dedicated limit is enforced, by a reload of the one file: 4,000 in 15 seconds");
    doors.reload(&|text| text.replace("  mode: dry_run\n", ""))?;
    let (passed, denied) = jobs(doors, 12_000)?;
    println!("{passed} passed, then:");
    let denied = denied.ok_or("none of 12,000 requests was denied")?;
    print("one of the jobs", &format!("GET {PATH}"), &denied);
    must(
        denied.header("ratelimit-name") == Some(DEDICATED),
        "the dedicated limit denies",
    )?;
    println!(
        "The general throttle still counts the user elsewhere; container paths are no packages:"
    );
    for line in [
        "GET /api/v4/projects",
        "GET /v2/virtual_registries/container/42/library/alpine/manifests/latest",
    ] {
        let answer = wire::ask(doors.nginx, line, &USER)?;
        println!("nginx: {line} -> {}", answer.status);
    }
    Ok(())
}

fn one_bucket(doors: &Doors) -> Result<(), AnyError> {
    part("200 made-up registry ids of one address: one bucket, though no id is valid");
    let client = [("X-Forwarded-For", "203.0.113.77"), ("X-Answer", "404")];
    let mut left = u64::MAX;
    for id in 0..200 {
        let line = format!("GET /api/v4/virtual_registries/packages/npm/9{id:03}/left-pad");
        let answer = wire::ask(doors.envoy, &line, &client)?;
        must(answer.status == 404, "the upstream does not know the id")?;
        left = answer.number("x-ratelimit-remaining");
    }
    println!("X-RateLimit-Remaining is {left} after 200 requests with 200 ids");
    must(left <= 3_950, "made-up ids share one bucket")
}

/// Ten jobs send up to `most` requests together, five through each door, and end at a denial: how
/// many passed, and that denial.
fn jobs(doors: &Doors, most: usize) -> Result<(usize, Option<Answer>), AnyError> {
    let (passed, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let denied = std::sync::Mutex::new(None);
    let job = |door| -> Result<(), AnyError> {
        let mut connection = wire::Connection::open(door, Ipv4Addr::LOCALHOST)?;
        for n in 1.. {
            if sent.fetch_add(1, Ordering::Relaxed) >= most {
                break;
            }
            // nginx ends a connection after 1,000 requests.
            if n % 900 == 0 {
                connection = wire::Connection::open(door, Ipv4Addr::LOCALHOST)?;
            }
            let answer = connection.ask(&format!("GET {PATH}"), &USER)?;
            if answer.status == 429 {
                sent.fetch_add(most, Ordering::Relaxed);
                if let Ok(mut denied) = denied.lock() {
                    *denied = Some(answer);
                }
                return Ok(());
            }
            passed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let job = &job;
    std::thread::scope(|scope| -> Result<(), AnyError> {
        let doors = [doors.nginx, doors.envoy].into_iter().cycle().take(10);
        let jobs: Vec<_> = doors.map(|door| scope.spawn(move || job(door))).collect();
        for job in jobs {
            job.join()
                .unwrap_or_else(|_| Err("a job panicked".into()))?;
        }
        Ok(())
    })?;
    let denied = denied.into_inner().unwrap_or_default();
    Ok((passed.into_inner(), denied))
}
