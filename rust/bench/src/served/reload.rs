//! Reloads of many rules under load: how long they take, and how late answers are meanwhile.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use gabion_loader::local::RunDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{load, single, ServedOptions};
use crate::limits::{
    MANY_RULES, RELOADS, RELOAD_ANSWER_MS_MAX, RELOAD_CLIENTS, RELOAD_MS_MAX, RELOAD_PAUSE,
};
use crate::report::{Bar, Figure};
use crate::BenchError;

/// `n` rules, of which the first is asked for.
fn rules(n: u64, rate: u64) -> String {
    let rule = |i: u64| {
        let key = if i == 0 {
            "key".to_owned()
        } else {
            format!("k{i}")
        };
        format!("- {{name: r{i}, domain: bench, rate: {rate}r/d, descriptors: [{{key: {key}}}]}}\n")
    };
    let rules: String = (0..n).map(rule).collect();
    format!("limits:\n{rules}")
}

async fn post_reload(admin: SocketAddr) -> Result<f64, BenchError> {
    let mut stream = tokio::net::TcpStream::connect(admin).await?;
    let ask = format!("POST /reload HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let ms = answer.split("reloaded in ").nth(1);
    let ms = ms.and_then(|rest| rest.split(' ').next()?.parse().ok());
    ms.ok_or_else(|| BenchError::Void(format!("no time in {answer}")))
}

/// Asks again and again; gives the longest time to an answer.
async fn client(addr: SocketAddr, name: String, stop: Arc<AtomicBool>) -> Result<f64, BenchError> {
    let mut client = load::connect(addr).await?;
    let mut longest = Duration::ZERO;
    // Relaxed: a flag that carries no other memory.
    while !stop.load(Ordering::Relaxed) {
        let since = Instant::now();
        load::ask(&mut client, &name).await?;
        longest = longest.max(since.elapsed());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(longest.as_secs_f64() * 1e3)
}

fn put(file: &Path, head: &str, rules: &str) -> Result<(), BenchError> {
    let part = file.with_extension("part");
    std::fs::write(&part, format!("{head}{rules}"))?;
    Ok(std::fs::rename(&part, file)?)
}

/// Reloads of both kinds: other limits alone, and another number of rules.
///
/// # Errors
/// The member does not start, answer, or reload.
pub async fn measure(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    let dir = RunDir::new("gabion-bench")?;
    let (_gabiond, addr) = single(options, &dir, "reload", &rules(MANY_RULES, 1_000_000)).await?;
    let ports = std::fs::read_to_string(dir.path().join("reload.ports.json"))?;
    let ports: serde_json::Value = serde_json::from_str(&ports).map_err(std::io::Error::other)?;
    let admin = ports["admin"].as_str().and_then(|text| text.parse().ok());
    let admin = admin.ok_or_else(|| BenchError::Void("no admin address".to_owned()))?;
    let file = dir.path().join("reload.yaml");
    let text = std::fs::read_to_string(&file)?;
    let head = text.split("limits:").next().unwrap_or_default().to_owned();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for n in 0..RELOAD_CLIENTS {
        clients.spawn(client(addr, format!("client-{n}"), Arc::clone(&stop)));
    }
    let (mut same, mut other) = (0f64, 0f64);
    for round in 0..RELOADS {
        put(&file, &head, &rules(MANY_RULES, 1_000_001 + round))?;
        same = same.max(post_reload(admin).await?);
        tokio::time::sleep(RELOAD_PAUSE).await;
        put(&file, &head, &rules(MANY_RULES + 1 + round, 1_000_000))?;
        other = other.max(post_reload(admin).await?);
        tokio::time::sleep(RELOAD_PAUSE).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut longest = 0f64;
    while let Some(ended) = clients.join_next().await {
        longest = longest.max(ended.map_err(|e| BenchError::Void(e.to_string()))??);
    }
    let barred = |what: &str, value| {
        let name = format!("{MANY_RULES} rules: {what}, longest of {RELOADS}");
        Figure::barred(name, value, "ms", Bar::AtMost(RELOAD_MS_MAX))
    };
    Ok(vec![
        barred("reload of other limits", same),
        barred("reload of other rules, into a new table", other),
        Figure::barred(
            "latest answer to a steady client meanwhile",
            longest,
            "ms",
            Bar::AtMost(RELOAD_ANSWER_MS_MAX),
        ),
    ])
}
