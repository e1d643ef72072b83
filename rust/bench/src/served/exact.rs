//! One member, one key, many clients: exactly the limit is admitted.

use std::net::SocketAddr;

use tokio::task::JoinSet;

use super::{load, members, ServedOptions};
use crate::limits::{EXACT_CALLS, EXACT_CLIENTS, EXACT_LIMIT, EXACT_ROOM_S, EXACT_TIMES};
use crate::report::{Bar, Figure};
use crate::BenchError;

/// Windows that a run may lose to an edge before it is given up.
const ATTEMPTS: u64 = 5;

/// Waits until the server's own window has room; asks with a key that is not measured.
pub(super) async fn wait_for_room(
    client: &mut load::Client,
    room_s: u64,
) -> Result<u64, BenchError> {
    loop {
        let reset_s = load::ask(client, "clock").await?.reset_s;
        if reset_s >= room_s {
            return Ok(reset_s);
        }
        tokio::time::sleep(std::time::Duration::from_millis(100 + reset_s * 1_000)).await;
    }
}

/// 64 clients share the calls; gives how many were admitted.
async fn burst(addr: SocketAddr, key: &str) -> Result<u64, BenchError> {
    let mut clients = JoinSet::new();
    let shared = load::connect(addr).await?;
    for n in 0..EXACT_CLIENTS {
        // A connection each for every fourth client; the others share one.
        let mut client = if n % 4 == 0 {
            load::connect(addr).await?
        } else {
            shared.clone()
        };
        let calls = EXACT_CALLS / EXACT_CLIENTS + u64::from(n < EXACT_CALLS % EXACT_CLIENTS);
        let key = key.to_owned();
        clients.spawn(async move {
            let mut admitted = 0;
            for _ in 0..calls {
                admitted += u64::from(load::ask(&mut client, &key).await?.admitted);
            }
            Ok::<u64, BenchError>(admitted)
        });
    }
    let mut sum = 0;
    while let Some(ended) = clients.join_next().await {
        sum += ended.map_err(|e| BenchError::Void(e.to_string()))??;
    }
    Ok(sum)
}

/// One run within one window of the server's clock.
async fn once(client: &mut load::Client, addr: SocketAddr, n: u64) -> Result<u64, BenchError> {
    for attempt in 0..ATTEMPTS {
        let before = wait_for_room(client, EXACT_ROOM_S).await?;
        let admitted = burst(addr, &format!("exact-{n}-{attempt}")).await?;
        let after = load::ask(client, "clock").await?.reset_s;
        // The rest of a window only shrinks; more is left only when another one began.
        if after <= before && after > 0 {
            return Ok(admitted);
        }
    }
    Err(BenchError::Void(format!(
        "each of {ATTEMPTS} runs met the end of a window"
    )))
}

/// Runs it several times, each with a fresh key.
///
/// # Errors
/// The member does not start or answer.
pub async fn measure(options: &ServedOptions) -> Result<Vec<Figure>, BenchError> {
    let (_dir, gabiond) = members(options, 1, EXACT_LIMIT).await?;
    let addr = gabiond[0].envoy;
    let mut client = load::connect(addr).await?;
    let mut figures = Vec::new();
    for n in 1..=EXACT_TIMES {
        let admitted = once(&mut client, addr, n).await?;
        figures.push(Figure::barred(
            format!("admitted of 5,000 calls by 64 clients, 1000r/m, run {n}"),
            admitted as f64,
            "hits",
            Bar::Exactly(EXACT_LIMIT as f64),
        ));
    }
    Ok(figures)
}
