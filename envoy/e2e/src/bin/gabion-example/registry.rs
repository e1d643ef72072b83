//! The container registry: what a reader should notice.

use std::time::Duration;

use gabion_envoy_e2e::doors::{until, wire, Cluster, Doors, Programs};
use gabion_envoy_e2e::AnyError;

use crate::{burst, explain, introduce, must, named, part, print};

const MANIFEST: &str = "GET /v2/myapp/manifests/latest";
const CLIENT: [(&str, &str); 1] = [("X-Forwarded-For", "203.0.113.50")];

/// Runs the example with the policy as it is shipped.
pub(crate) fn show() -> Result<(), AnyError> {
    let as_shipped = |_: &str, text: String| text;
    let doors = Doors::start(Programs::find()?, "registry", Cluster::Joined, &as_shipped)?;
    introduce(&doors);
    one_address(&doors)?;
    others(&doors)?;
    strangers(&doors)?;
    two_seconds(&doors)?;
    reasons(&doors)
}

fn one_address(doors: &Doors) -> Result<(), AnyError> {
    part("One address sends 400 requests, in turn to both doors. 100 at once, then 50 a second");
    let (passed, denied) = burst(doors, 400, MANIFEST, &CLIENT)?;
    println!("{passed} passed: the burst of 100, and what came back meanwhile. One count for both");
    must(denied.is_some(), "some of 400 requests at once are denied")?;
    must(passed >= 100, "a burst of 100 passes")?;
    part("A denial, at each door: the same answer, in the registry's own words");
    for (name, door) in named(doors) {
        // A request may have come back meanwhile.
        let denied = until("a denial", || {
            let answer = wire::ask(door, MANIFEST, &CLIENT)?;
            Ok((answer.status == 429).then_some(answer))
        })?;
        print(name, MANIFEST, &denied);
        must(
            denied.body.contains("TOOMANYREQUESTS"),
            "the body is the registry's",
        )?;
        must(
            denied.number("retry-after") >= 1,
            "Retry-After is at least 1",
        )?;
    }
    Ok(())
}

fn others(doors: &Doors) -> Result<(), AnyError> {
    part("Meanwhile: another address, and /admin, which is counted for itself");
    let other = [("X-Forwarded-For", "203.0.113.51")];
    for (line, headers) in [(MANIFEST, &other), ("GET /admin/gc", &CLIENT)] {
        for (name, door) in named(doors) {
            let answer = wire::ask(door, line, headers)?;
            println!("{name}: {line} of {} -> {}", headers[0].1, answer.status);
            must(answer.status == 200, "others pass")?;
        }
    }
    Ok(())
}

fn strangers(doors: &Doors) -> Result<(), AnyError> {
    part("A peer that is no trusted proxy (127.0.0.2) writes X-Forwarded-For: it is not believed");
    let stranger = [127, 0, 0, 2].into();
    let answer = wire::ask_from(stranger, doors.envoy, MANIFEST, &CLIENT)?;
    println!(
        "Envoy: {MANIFEST} -> {}: counted as 127.0.0.2",
        answer.status
    );
    must(answer.status == 200, "the header of a stranger is ignored")?;
    let line = until("the warning", || Ok(log_line(doors, "untrusted peer")))?;
    println!("gabiond's log: {line}");
    Ok(())
}

fn two_seconds(doors: &Doors) -> Result<(), AnyError> {
    part("After two seconds the address has its 100 again");
    // The passing of time is what is shown.
    std::thread::sleep(Duration::from_secs(2));
    let (passed, _) = burst(doors, 100, MANIFEST, &CLIENT)?;
    println!("{passed} of 100 passed");
    must(passed >= 98, "100 are back after two seconds")
}

fn reasons(doors: &Doors) -> Result<(), AnyError> {
    part("Why: the log line of a denial, and what each rule says to a request");
    burst(doors, 200, MANIFEST, &CLIENT)?;
    let line = until("the line", || Ok(log_line(doors, "rate limit exceeded")))?;
    println!("{line}\n");
    let text = explain(
        doors,
        "registry",
        "path=/v2/myapp/manifests/latest,peer=127.0.0.1,forwarded=203.0.113.50",
    )?;
    must(text.contains("registry_per_ip"), "explain names the rules")
}

fn log_line(doors: &Doors, words: &str) -> Option<String> {
    let log = doors.log("gabiond");
    let line = log.lines().find(|line| line.contains(words));
    line.map(str::to_owned)
}
