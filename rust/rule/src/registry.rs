//! The block with which a container registry configures its rate limits.
//!
//! I own its keys and the rules they stand for. I promise that these are rules like any other: what
//! `to_yaml` prints of them loads as the same policy. I never read a file: the edge hands me its
//! text.

use crate::attributes::{Attribute, Attributes, Derivation, Glob, Networks};
use crate::condition::{Alternative, Clause, Test};
use crate::denial::Denial;
use crate::duration::shorten;
use crate::error::{Place, RuleError};
use crate::log_line::LogLine;
use crate::policy::yaml::{nearest, Node};
use crate::policy::{read_networks, toml, MapReader, Policy, PolicyError, Problems};
use crate::rule::{Matching, Mode, Rule};
use crate::spec::{DescriptorSpec, RuleSpec};

/// The domain of the rules.
pub const DOMAIN: &str = "registry";
/// The attribute that is the client.
const CLIENT: &str = "client_ip";
const KEYS: [&str; 5] = [
    "enabled",
    "global_rps",
    "per_ip_rps",
    "burst",
    "trusted_proxies",
];

const DEFAULT_GLOBAL_RPS: &str = "500";
const DEFAULT_PER_IP_RPS: &str = "50";
const DEFAULT_BURST: u64 = 100;

const MESSAGE: &str = "rate limit exceeded";
const JSON: &str = "application/json";
/// What clients of the distribution API read as "slow down".
const API_BODY: &str = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"rate limit exceeded"}]}"#;
const API_HEADER: (&str, &str) = ("Docker-Distribution-API-Version", "registry/2.0");
const ADMIN_BODY: &str = r#"{"error":"rate limit exceeded"}"#;

/// Reads a TOML document that is the block, or has it as `[api.rate_limit]` beside other tables,
/// which are not looked at.
///
/// # Errors
/// Every fault that can be found at once, each with its place.
// spec: attr-11, attr-12
pub fn parse(file: &str, text: &str) -> Result<Policy, Vec<PolicyError>> {
    let root = toml::parse(file, text)?;
    let problems = Problems::new(file);
    let policy = block(&root, &problems).and_then(|(node, path)| {
        let mut map = MapReader::new(node, path, &problems)?;
        let policy = read(&mut map, text, &problems);
        map.finish();
        policy
    });
    match policy {
        Some(policy) if problems.is_empty() => Ok(policy),
        _ => Err(problems.into_errors()),
    }
}

/// Where the block is in a document.
fn block<'d>(root: &'d Node, problems: &Problems) -> Option<(&'d Node, &'static str)> {
    let entries = root.as_map().unwrap_or_default();
    if let Some(api) = root.get("api") {
        if let Some(block) = api.get("rate_limit") {
            return Some((block, "api.rate_limit"));
        }
        let mut inner = api.as_map().unwrap_or_default().iter();
        let slip = inner.find(|entry| nearest(&entry.key, ["rate_limit"]).is_some());
        if let Some(slip) = slip {
            let path = format!("api.{}", shorten(&slip.key));
            problems.at_with(slip.pos, &path, "this table is not known", "rate_limit");
            return None;
        }
    } else if entries
        .iter()
        .any(|entry| nearest(&entry.key, KEYS).is_some())
    {
        return Some((root, ""));
    }
    let message = format!(
        "there is no table [api.rate_limit] and none of its keys: {}; write [api.rate_limit] alone \
         for their defaults",
        KEYS.join(", ")
    );
    problems.at(root.pos, "", message);
    None
}

/// What the block says.
struct Block {
    enabled: bool,
    global: String,
    per_ip: String,
    burst: String,
    burst_is_written: bool,
    place: Place,
}

fn read(map: &mut MapReader<'_, '_>, text: &str, problems: &Problems) -> Option<Policy> {
    let mut plain = |key, like: &str| is_plain(map, text, key, like);
    let plain_enabled = plain("enabled", "true");
    let plain_global = plain("global_rps", DEFAULT_GLOBAL_RPS);
    let plain_per_ip = plain("per_ip_rps", DEFAULT_PER_IP_RPS);
    let plain_burst = plain("burst", &DEFAULT_BURST.to_string());
    let enabled = plain_enabled.then(|| map.bool("enabled")).flatten();
    let global = plain_global.then(|| rate(map, "global_rps", DEFAULT_GLOBAL_RPS));
    let per_ip = plain_per_ip.then(|| rate(map, "per_ip_rps", DEFAULT_PER_IP_RPS));
    let burst = plain_burst.then(|| map.u64_in("burst", 1..=u64::from(u32::MAX)));
    let burst = burst.flatten();
    let trusted = read_networks(map, "trusted_proxies", problems);
    let block = Block {
        enabled: enabled.unwrap_or(true),
        global: global.flatten()?,
        per_ip: per_ip.flatten()?,
        burst: burst.unwrap_or(DEFAULT_BURST).to_string(),
        burst_is_written: burst.is_some(),
        place: problems.place(map.pos()),
    };
    let attributes = attributes(trusted?, &block);
    let rules = rules(&block, map);
    Some(Policy {
        attributes: attributes
            .map_err(|error| map.problem("", error.to_string()))
            .ok()?,
        rules: rules?,
        ..Policy::default()
    })
}

/// Whether a value stands without quotes, or is absent. One in quotes is a text, which other
/// readers of the same file refuse, and so is reported.
// spec: attr-12
fn is_plain(map: &mut MapReader<'_, '_>, text: &str, key: &'static str, like: &str) -> bool {
    let quoted = map
        .node(key)
        .is_some_and(|node| toml::is_quoted(text, node.pos));
    if quoted {
        let written = shorten(map.text(key).unwrap_or_default());
        let message = format!(
            "\"{written}\" stands in quotes, which makes it a text; write it without them, like \
             {key} = {like}"
        );
        map.problem(key, message);
    }
    !quoted
}

/// A number of requests per second in the grammar of rates, exactly as written.
// spec: attr-12
fn rate(map: &mut MapReader<'_, '_>, key: &'static str, default: &str) -> Option<String> {
    let written = map.text(key);
    if written.is_none() && map.node(key).is_some() {
        return None; // Of the wrong kind, and reported.
    }
    match plain_decimal(written.unwrap_or(default)) {
        Ok(number) => Some(format!("{number}r/s")),
        Err(why) => {
            map.problem(
                key,
                format!("{}: {why}", shorten(written.unwrap_or(default))),
            );
            None
        }
    }
}

/// A number of TOML without its sign and its exponent.
fn plain_decimal(text: &str) -> Result<String, &'static str> {
    const NO_NUMBER: &str = "it is no number; write requests per second, like 50.0";
    const MOST_EXPONENT: i32 = 30;
    let number = text.strip_prefix('+').unwrap_or(text).to_ascii_lowercase();
    let (minus, number) = match number.strip_prefix('-') {
        Some(number) => (true, number.to_owned()),
        None => (false, number),
    };
    let (mantissa, exponent) = number.split_once('e').unwrap_or((&number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(NO_NUMBER);
    }
    let exponent: i32 = exponent.parse().map_err(|_| NO_NUMBER)?;
    let all = format!("{whole}{fraction}");
    if minus || all.bytes().all(|b| b == b'0') {
        return Err(
            "it admits nothing; write a number above 0, or enabled = false to limit nothing",
        );
    }
    if !(-MOST_EXPONENT..=MOST_EXPONENT).contains(&exponent) {
        return Err("it is out of range; write it without an exponent");
    }
    // Where the point stands in the row of digits, with zeros added on either side.
    let wide = usize::try_from(exponent.unsigned_abs()).unwrap_or(0);
    let zeros = "0".repeat(wide);
    let row = format!("{zeros}{all}{zeros}");
    let point = match exponent < 0 {
        true => whole.len(),
        false => wide + whole.len() + wide,
    };
    let (whole, fraction) = row.split_at(point);
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Ok(match fraction.is_empty() {
        true => whole.to_owned(),
        false => format!("{whole}.{fraction}"),
    })
}

fn attributes(trusted: Networks, block: &Block) -> Result<Attributes, RuleError> {
    let client = Attribute {
        name: CLIENT.to_owned(),
        derivation: Derivation::ClientAddress {
            peer: "peer".to_owned(),
            forwarded: "forwarded".to_owned(),
            trusted_proxies: trusted,
            ipv6_prefix: 128,
        },
        place: Some(block.place.clone()),
    };
    Attributes::new(vec![client]).map_err(|mut errors| errors.swap_remove(0).1)
}

/// The four rules. Faults are reported at the key they come from, once: the rules of `/admin` have
/// the same numbers as the others.
// spec: attr-12
fn rules(block: &Block, map: &MapReader<'_, '_>) -> Option<Vec<Rule>> {
    let api = ["/v2/*", "/auth/*"].as_slice();
    let admin = ["/admin/*"].as_slice();
    let parts = [
        ("registry_global", "global_rps", false, api),
        ("registry_per_ip", "per_ip_rps", true, api),
        ("admin_global", "global_rps", false, admin),
        ("admin_per_ip", "per_ip_rps", true, admin),
    ];
    let mut rules = Vec::with_capacity(parts.len());
    for (at, (name, key, per_ip, paths)) in parts.into_iter().enumerate() {
        let built = spec(block, name, per_ip, paths).and_then(|spec| match spec.build_all() {
            Ok((rule, _)) => Ok(rule),
            Err(mut errors) => Err(errors.swap_remove(0)),
        });
        match built {
            Ok(rule) => rules.push(rule),
            Err(error) if at < 2 => {
                let of_burst = block.burst_is_written && error.setting() == "burst";
                let key = if of_burst { "burst" } else { key };
                map.problem(key, error.to_string());
            }
            Err(_) => {}
        }
    }
    (rules.len() == parts.len()).then_some(rules)
}

fn spec(block: &Block, name: &str, per_ip: bool, paths: &[&str]) -> Result<RuleSpec, RuleError> {
    let patterns = paths
        .iter()
        .map(|path| Glob::parse("only_if", path.as_bytes()));
    let clause = Clause {
        key: b"path".to_vec(),
        test: Test::Like(patterns.collect::<Result<_, _>>()?),
    };
    let client = DescriptorSpec {
        key: CLIENT.as_bytes().to_vec(),
        ..DescriptorSpec::default()
    };
    let rate = if per_ip { &block.per_ip } else { &block.global };
    // What is off has no numbers, and its printed form neither.
    let number = |text: &String| block.enabled.then(|| text.clone());
    Ok(RuleSpec {
        name: name.to_owned(),
        domain: Some(DOMAIN.to_owned()),
        matching: Some(Matching::Request.word().to_owned()),
        descriptors: per_ip.then_some(client).into_iter().collect(),
        only_if: vec![Alternative {
            clauses: vec![clause],
        }],
        rate: number(rate),
        burst: number(&block.burst),
        mode: (!block.enabled).then(|| Mode::Disabled.word().to_owned()),
        denial: Some(denial(paths.contains(&"/v2/*"))?),
        log: Some(LogLine {
            message: Some(MESSAGE.to_owned()),
            fields: vec![CLIENT.to_owned(), "path".to_owned()],
        }),
        place: Some(block.place.clone()),
        ..RuleSpec::default()
    })
}

fn denial(api: bool) -> Result<Denial, RuleError> {
    if !api {
        return Denial::new(ADMIN_BODY, Some(JSON));
    }
    let mut denial = Denial::new(API_BODY, Some(JSON))?;
    denial.add_header(API_HEADER.0, API_HEADER.1)?;
    Ok(denial)
}

#[cfg(test)]
mod tests;
