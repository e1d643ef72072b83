//! What gabiond costs and how late it is, against the echo server and against itself with more
//! rules.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gabion_loader::local::process::Process;
use gabion_loader::local::RunDir;

use super::side::{in_turns, paced_in_turns, Side};
use super::{load, single, ServedOptions};
use crate::limits::{
    ECHO_RATIO_MANY_MIN, ECHO_RATIO_MIN, MANY_RULES, MANY_RULES_COST_MAX, P99_RATIO_MAX,
    PACED_ROUNDS, RATIO_ROUND, RATIO_ROUNDS,
};
use crate::report::{Bar, Figure};
use crate::BenchError;

/// A rule that admits all: the echo server admits all, too.
fn rule(name: &str, key: &str) -> String {
    format!(
        "- {{name: {name}, domain: bench, rate: 4000000000r/m, window: 60s, \
         descriptors: [{{key: {key}}}]}}\n"
    )
}

/// One rule that the request matches.
pub(super) fn one_rule() -> String {
    format!("response_headers: off\nlimits:\n{}", rule("bench", "key"))
}

/// Ten rules that it matches, and headers in every answer: all on one descriptor, or one on each.
fn matched_rules(descriptors: usize) -> String {
    let mut text = String::from("response_headers: always\nlimits:\n");
    for (i, key) in load::DESCRIPTOR_KEYS.iter().enumerate() {
        let key = if descriptors == 1 { "key" } else { key };
        // Another rate each: rules that are equal in all but their name would be one.
        let rate = (4_000_000_000 - i).to_string();
        text.push_str(&rule(&format!("bench{i}"), key).replace("4000000000", &rate));
    }
    text
}

/// The one rule among [`MANY_RULES`] of its domain.
fn many_rules() -> String {
    let mut text = one_rule();
    for i in 1..MANY_RULES {
        let _ = write!(text, "{}", rule(&format!("other{i}"), &format!("key{i}")));
    }
    text
}

/// The echo server, with headers in its answers or without.
async fn echo(dir: &Path, has_headers: bool) -> Result<(Process, SocketAddr), BenchError> {
    let name = if has_headers { "echo-headers" } else { "echo" };
    let file = dir.join(name).with_extension("addr");
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("work-echo").arg(&file);
    if has_headers {
        command.arg("--headers");
    }
    let mut process = Process::start(name, command, dir, "it is this very program")?;
    let address = || std::fs::read_to_string(&file).ok()?.parse().ok();
    let addr = process.wait_until(Duration::from_secs(10), address).await?;
    Ok((process, addr))
}

/// gabiond with a configuration against an echo server; the bar is on the ratio.
async fn against_echo(
    options: &ServedOptions,
    what: &str,
    config: &str,
    descriptors: usize,
    bar: f64,
) -> Result<Vec<Figure>, BenchError> {
    let dir = RunDir::new("gabion-bench")?;
    let gabiond = single(options, &dir, "gabiond", config).await?;
    let has_headers = config.contains("always");
    let (process, addr) = echo(dir.path(), has_headers).await?;
    let limiter = Side::new(gabiond.1, vec![gabiond.0.id()]);
    let mut limiter = limiter.with_descriptors(descriptors);
    let mut echo = Side::new(addr, vec![process.id()]).with_descriptors(descriptors);
    let ratio = in_turns(&mut limiter, &mut echo, RATIO_ROUNDS, RATIO_ROUND).await?;
    let per_s = paced_in_turns(&mut limiter, &mut echo, PACED_ROUNDS).await?;
    let name = |text: &str| format!("{what}: {text}");
    let stated = |text, value, unit| Figure::stated(name(text), value, unit);
    Ok(vec![
        stated("echo, requests per CPU second", echo.per_cpu_s(), "1/s"),
        stated(
            "gabiond, requests per CPU second",
            limiter.per_cpu_s(),
            "1/s",
        ),
        stated("echo, requests per second, 64 open", echo.per_s(), "1/s"),
        stated(
            "gabiond, requests per second, 64 open",
            limiter.per_s(),
            "1/s",
        ),
        stated("against echo, worst pair of rounds", ratio.worst, "x"),
        Figure::barred(
            name("against echo per CPU second, median of pairs"),
            ratio.median,
            "x",
            Bar::AtLeast(bar),
        ),
        stated("half of saturation, both offered", per_s, "1/s"),
        stated("echo, p99 at half of saturation", echo.p99_us(), "us"),
        stated("gabiond, p99 at half of saturation", limiter.p99_us(), "us"),
        Figure::barred(
            name("p99 against echo's"),
            limiter.p99_us() / echo.p99_us(),
            "x",
            Bar::AtMost(P99_RATIO_MAX),
        ),
    ])
}

/// One rule against the echo server.
///
/// # Errors
/// One of them does not start or does not answer.
pub async fn one(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    against_echo(options, "1 rule", &one_rule(), 1, ECHO_RATIO_MIN).await
}

/// Ten matched rules and headers against the echo server with headers: a rule on each of ten
/// descriptors, as routes make them, and all ten on one.
///
/// # Errors
/// One of them does not start or does not answer.
pub async fn matched(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    let mut all = Vec::new();
    for (what, descriptors) in [
        ("10 rules, 10 descriptors, headers", 10),
        ("10 rules, 1 descriptor, headers", 1),
    ] {
        let rules = matched_rules(descriptors);
        let figures = against_echo(options, what, &rules, descriptors, ECHO_RATIO_MANY_MIN);
        all.extend(figures.await?);
    }
    Ok(all)
}

/// One rule of many against one rule alone.
///
/// # Errors
/// One of them does not start or does not answer.
pub async fn many(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    let dir = RunDir::new("gabion-bench")?;
    let one = single(options, &dir, "one-rule", &one_rule()).await?;
    let many = single(options, &dir, "many-rules", &many_rules()).await?;
    let mut alone = Side::new(one.1, vec![one.0.id()]);
    let mut among = Side::new(many.1, vec![many.0.id()]);
    let ratio = in_turns(&mut alone, &mut among, RATIO_ROUNDS, RATIO_ROUND).await?;
    let what = format!("{MANY_RULES} rules: cost of a request against 1 rule, median of pairs");
    Ok(vec![
        Figure::stated(
            format!("{MANY_RULES} rules: requests per CPU second"),
            among.per_cpu_s(),
            "1/s",
        ),
        Figure::barred(what, ratio.median, "x", Bar::AtMost(MANY_RULES_COST_MAX)),
    ])
}
