//! `gabiond top`: a running member, live.
//!
//! I own how two states of a member, some time apart, become a page of rates. I only read.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::escaped;
use super::Member;

/// Rules and peers on one page.
const ROWS_MAX: usize = 20;
/// Keys on one page.
const KEYS_MAX: usize = 10;
/// Longest name on a page, characters.
const NAME_MAX: usize = 32;

/// Show a running member live.
#[derive(Debug, clap::Args)]
pub struct Top {
    /// Seconds between two pages.
    #[arg(long, short = 'd', default_value_t = 1.0, value_name = "SECONDS")]
    delay: f64,
    /// So many pages, then end; without it until Ctrl-C.
    #[arg(long, short = 'n', value_name = "PAGES")]
    pages: Option<u64>,
    #[command(flatten)]
    member: Member,
}

impl Top {
    /// Prints pages.
    ///
    /// # Errors
    /// The member gives no answer.
    pub fn run(self) -> Result<String, String> {
        if !(self.delay >= 0.1 && self.delay <= 3_600.0) {
            return Err("--delay: between 0.1 and 3600 seconds".to_owned());
        }
        let live = std::io::stdout().is_terminal();
        let mut before = self.state()?;
        let mut taken = Instant::now();
        let mut left = self.pages;
        while left != Some(0) {
            std::thread::sleep(Duration::from_secs_f64(self.delay));
            let now = self.state()?;
            let seconds = taken.elapsed().as_secs_f64();
            taken = Instant::now();
            let mut text = page(&before, &now, seconds);
            if let Some(rule) = busiest(&before, &now) {
                let path = format!("/keys?rule={}&top={KEYS_MAX}", escaped(&rule));
                // A member that samples no keys shows none.
                if let Ok(keys) = self.member.json(&path) {
                    text.push_str(&keys_part(&rule, &keys));
                }
            }
            before = now;
            left = left.map(|left| left - 1);
            let start = if live { "\x1b[H\x1b[2J" } else { "" };
            let end = if left == Some(0) { "" } else { "\n" };
            let mut out = std::io::stdout();
            let shown = write!(out, "{start}{text}{end}").and_then(|()| out.flush());
            if shown.is_err() {
                break; // nobody reads any more
            }
        }
        Ok(String::new())
    }

    fn state(&self) -> Result<Value, String> {
        self.member.json("/snapshot").map_err(|e| e.to_string())
    }
}

/// One rule between two states.
struct Line<'v> {
    name: &'v str,
    text: &'v str,
    mode: &'v str,
    allowed: f64,
    denied: f64,
    would_deny: f64,
    /// Over-admission bound, hits; `None`: it counts alone.
    bound: Option<u64>,
}

fn count(state: &Value, path: &str) -> u64 {
    state.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn text<'v>(state: &'v Value, path: &str) -> &'v str {
    state.pointer(path).and_then(Value::as_str).unwrap_or("?")
}

fn list<'v>(state: &'v Value, path: &str) -> &'v [Value] {
    let found = state.pointer(path).and_then(Value::as_array);
    found.map_or(&[], Vec::as_slice)
}

/// Events per second; a counter that went back began anew.
#[allow(clippy::cast_precision_loss)] // a rate for people
fn rate(before: u64, now: u64, seconds: f64) -> f64 {
    now.checked_sub(before).unwrap_or(now) as f64 / seconds.max(0.001)
}

fn lines<'v>(before: &Value, now: &'v Value, seconds: f64) -> Vec<Line<'v>> {
    let same = |a: &Value, b: &Value| a["domain"] == b["domain"] && a["name"] == b["name"];
    let mut lines: Vec<Line> = list(now, "/rules")
        .iter()
        .map(|rule| {
            let old = list(before, "/rules").iter().find(|old| same(old, rule));
            let per_second = |what: &str| {
                let old = old.map_or(0, |old| count(old, what));
                rate(old, count(rule, what), seconds)
            };
            Line {
                name: text(rule, "/name"),
                text: text(rule, "/rule"),
                mode: text(rule, "/mode"),
                allowed: per_second("/counts/allowed"),
                denied: per_second("/counts/denied"),
                would_deny: per_second("/counts/would_deny"),
                bound: rule
                    .pointer("/over_admission/bound_hits")
                    .and_then(Value::as_u64),
            }
        })
        .collect();
    let weight = |line: &Line| line.allowed + line.denied + line.would_deny;
    // Stable: rules at rest stay in the configuration's order.
    lines.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    lines
}

/// The rule that was asked most; `None` when none was.
fn busiest(before: &Value, now: &Value) -> Option<String> {
    let lines = lines(before, now, 1.0);
    let first = lines.first()?;
    (first.allowed + first.denied + first.would_deny > 0.0).then(|| first.name.to_owned())
}

fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['~']).collect(),
        false => text.to_owned(),
    }
}

/// The page of what happened from one state to the next.
fn page(before: &Value, now: &Value, seconds: f64) -> String {
    let mut page = String::new();
    let per_second = |path: &str| rate(count(before, path), count(now, path), seconds);
    let fail_open = |state: &Value| -> u64 {
        let causes = state["fail_open"].as_object();
        causes.map_or(0, |causes| causes.values().filter_map(Value::as_u64).sum())
    };
    let undecided = rate(fail_open(before), fail_open(now), seconds);
    let _ = writeln!(
        page,
        "gabiond {}  {}  up {}\nrequests/s: {:.0} allowed, {:.0} denied; {:.0} causes to fail \
         open or refuse; {} rows live",
        text(now, "/version"),
        text(now, "/state"),
        span(count(now, "/uptime_ms")),
        per_second("/decisions/allowed"),
        per_second("/decisions/denied"),
        undecided,
        count(now, "/table/live"),
    );
    let lines = lines(before, now, seconds);
    let _ = writeln!(
        page,
        "\n{:<NAME_MAX$} {:>10} {:>9} {:>9} {:>7}  MODE     RULE",
        "NAME", "ALLOWED/s", "DENIED/s", "DRY RUN/s", "BOUND"
    );
    for line in lines.iter().take(ROWS_MAX) {
        let _ = writeln!(
            page,
            "{:<NAME_MAX$} {:>10.0} {:>9.0} {:>9.0} {:>7}  {:<8} {}",
            shortened(line.name, NAME_MAX),
            line.allowed,
            line.denied,
            line.would_deny,
            line.bound.map_or("-".to_owned(), |hits| hits.to_string()),
            line.mode,
            shortened(line.text, 60),
        );
    }
    if lines.len() > ROWS_MAX {
        let _ = writeln!(page, "and {} rules more", lines.len() - ROWS_MAX);
    }
    page.push_str(&peers_part(now));
    page
}

fn peers_part(now: &Value) -> String {
    if now["gossip"].is_null() {
        return "\nno gossip: this member counts alone\n".to_owned();
    }
    let mut part = format!(
        "\n{:<24} {:<6} {:>9} {:>12}\n",
        "PEER", "STATE", "RTT ms", "STALENESS ms"
    );
    let peers = list(now, "/gossip/peers");
    #[allow(clippy::cast_precision_loss)] // times for people
    let ms = |peer: &Value, what: &str| match peer[what].as_u64() {
        Some(ns) => format!("{:.2}", ns as f64 / 1e6),
        None => "-".to_owned(),
    };
    for peer in peers.iter().take(ROWS_MAX) {
        let both = peer["up"] == true && peer["hears_us"] == true;
        let state = match (both, peer["up"] == true) {
            (true, _) => "up",
            (false, true) => "deaf",
            (false, false) => "down",
        };
        let _ = writeln!(
            part,
            "{:<24} {:<6} {:>9} {:>12}",
            text(peer, "/address"),
            state,
            ms(peer, "rtt_ns"),
            ms(peer, "staleness_ns"),
        );
    }
    if peers.is_empty() {
        part.push_str("none known yet\n");
    } else if peers.len() > ROWS_MAX {
        let _ = writeln!(part, "and {} peers more", peers.len() - ROWS_MAX);
    }
    part
}

fn keys_part(rule: &str, keys: &Value) -> String {
    let mut part = format!("\nKEYS of {rule}\n");
    // Rules of one name in several domains are one list here.
    let keys = list(keys, "/rules")
        .iter()
        .flat_map(|rule| list(rule, "/keys"));
    for key in keys.take(KEYS_MAX) {
        let _ = writeln!(
            part,
            "{:<48} {:>9} of {}",
            shortened(text(key, "/key"), 48),
            count(key, "/used"),
            count(key, "/limit"),
        );
    }
    part
}

fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, rest) = (seconds / 60 % 60, seconds % 60);
    match days {
        0 => format!("{hours}:{minutes:02}:{rest:02}"),
        _ => format!("{days}d {hours}:{minutes:02}:{rest:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn state(uptime_ms: u64, api: (u64, u64), login: u64) -> Value {
        let rule = |name: &str, allowed: u64, denied: u64| {
            json!({
                "name": name, "domain": "edge", "rule": "edge: route, 10 per 1m",
                "mode": "enforce",
                "counts": {"allowed": allowed, "denied": denied, "would_deny": 0},
                "over_admission": {"bound_hits": 17},
            })
        };
        json!({
            "version": "1.2.3", "state": "ready", "uptime_ms": uptime_ms,
            "decisions": {"allowed": api.0 + login, "denied": api.1},
            "fail_open": {"table_full": 0},
            "table": {"live": 7},
            "rules": [rule("login", login, 0), rule("api", api.0, api.1)],
            "gossip": {"peers": [
                {"address": "10.0.0.2:7946", "up": true, "hears_us": true, "rtt_ns": 1_500_000,
                 "staleness_ns": 2_000_000},
                {"address": "10.0.0.3:7946", "up": true, "hears_us": false},
            ]},
        })
    }

    #[test]
    fn a_page_shows_rates_the_busiest_rule_first() {
        let (before, now) = (state(0, (10, 0), 5), state(93_784_000, (30, 40), 9));
        let page = page(&before, &now, 2.0);
        assert!(
            page.contains("gabiond 1.2.3  ready  up 1d 2:03:04"),
            "{page}"
        );
        assert!(page.contains("12 allowed, 20 denied"), "{page}");
        let lines: Vec<&str> = page.lines().collect();
        let api = lines.iter().position(|line| line.starts_with("api "));
        let login = lines.iter().position(|line| line.starts_with("login "));
        assert!(api < login, "{page}");
        let words: Vec<&str> = lines[api.unwrap()].split_whitespace().collect();
        assert_eq!(words[..5], ["api", "10", "20", "0", "17"]);
        assert!(
            page.contains("10.0.0.2:7946            up          1.50         2.00"),
            "{page}"
        );
        assert!(page.contains("10.0.0.3:7946            deaf"), "{page}");
        assert_eq!(busiest(&before, &now).as_deref(), Some("api"));
        assert_eq!(busiest(&now, &now), None);
    }

    #[test]
    fn a_member_that_began_anew_or_says_little_still_gives_a_page() {
        let (before, now) = (state(9_000, (1_000, 5), 5), state(1_000, (6, 0), 0));
        assert!(page(&before, &now, 1.0).contains("6 allowed, 0 denied"));
        let page = page(&json!({}), &json!({"gossip": null}), 1.0);
        assert!(page.contains("counts alone"), "{page}");
    }

    #[test]
    fn keys_are_shown_as_the_member_names_them() {
        let keys = json!([{"key": "user=alice", "used": 9, "limit": 10}]);
        let keys = json!({"rules": [{"rule": "api", "keys": keys}]});
        let part = keys_part("api", &keys);
        assert!(
            part.contains("user=alice") && part.contains("9 of 10"),
            "{part}"
        );
    }
}
