//! `gabion-example`: starts both doors of an example, sends requests, shows what comes back.
//!
//! Owns: the doors while it runs. Promises: exits 0 only when everything it says held; ends what it
//! started whatever happens. Never: changes a file of the example.
#![forbid(unsafe_code)]

mod packages;
mod registry;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use gabion_envoy_e2e::doors::{wire, Answer, Doors};
use gabion_envoy_e2e::AnyError;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let shown = match name.as_str() {
        "registry" => registry::show(),
        "virtual-registries" => packages::show(),
        _ => Err("which example? registry, or virtual-registries".into()),
    };
    match shown {
        Ok(()) => {
            println!("\nAll of it held.");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("example: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Begins a part.
fn part(title: &str) {
    println!("\n== {title}");
}

/// Says where the doors are.
fn introduce(doors: &Doors) {
    println!("nginx with the module  http://{}", doors.nginx);
    println!("Envoy with gabiond     http://{}", doors.envoy);
    println!("gabiond's admin pages  http://{}", doors.admin);
    println!("configuration and logs {}", doors.folder().display());
}

/// What must hold for the example to end well.
fn must(held: bool, what: &str) -> Result<(), AnyError> {
    if held {
        return Ok(());
    }
    Err(format!("this did not hold: {what}").into())
}

/// Prints an answer as a client sees it, without what is of no interest here.
fn print(door: &str, line: &str, answer: &Answer) {
    println!("{door}: {line} -> {}", answer.status);
    for (name, value) in &answer.headers {
        let told = name.starts_with("ratelimit")
            || name.starts_with("docker-")
            || matches!(name.as_str(), "content-type" | "retry-after");
        if told {
            println!("    {}: {value}", capitals(name));
        }
    }
    println!("    {}", answer.body.trim_end());
}

/// `retry-after` as people know it.
fn capitals(name: &str) -> String {
    let mut start = true;
    let change = |letter: char| {
        let changed = if start {
            letter.to_ascii_uppercase()
        } else {
            letter
        };
        start = letter == '-';
        changed
    };
    name.chars()
        .map(change)
        .collect::<String>()
        .replace("Ratelimit", "RateLimit")
}

/// How many of `count` requests pass, in turn through both doors; and the last denial.
fn burst(
    doors: &Doors,
    count: usize,
    line: &str,
    headers: &[(&str, &str)],
) -> Result<(usize, Option<Answer>), AnyError> {
    let open = |door| wire::Connection::open(door, Ipv4Addr::LOCALHOST);
    let mut both = [open(doors.nginx)?, open(doors.envoy)?];
    let (mut passed, mut denied) = (0, None);
    for n in 0..count {
        let answer = both[n % 2].ask(line, headers)?;
        match answer.status {
            429 => denied = Some(answer),
            _ => passed += 1,
        }
    }
    Ok((passed, denied))
}

/// The two doors by name.
fn named(doors: &Doors) -> [(&'static str, SocketAddr); 2] {
    [("nginx", doors.nginx), ("Envoy", doors.envoy)]
}

/// Prints what `gabiond explain` says of a request.
fn explain(doors: &Doors, domain: &str, request: &str) -> Result<String, AnyError> {
    println!("$ gabiond explain {domain} '{request}'");
    let output = doors.gabiond(&["explain", domain, request])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    must(output.status.success(), "gabiond explain answers")?;
    Ok(text)
}
