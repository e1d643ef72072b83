//! Waits for a window with enough room.
//!
//! Owns: the countdown. Promises: the load that follows falls into one minute of UTC, so that the
//! limit is met once and not twice. Never: waits longer than is missing.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The window of the limit.
const WINDOW_MS: u64 = 60_000;
/// What the load needs of it: 10 s of sending, and some room.
pub(crate) const NEEDED_MS: u64 = 14_000;
/// Past the turn of the minute, so that every member has seen it.
const AFTER_TURN_MS: u64 = 300;

/// Milliseconds left of the window at `now_ms`.
fn left_ms(now_ms: u64) -> u64 {
    WINDOW_MS - now_ms % WINDOW_MS
}

/// How long to wait at `now_ms` until a load fits into one window.
fn wait_ms(now_ms: u64) -> u64 {
    let left = left_ms(now_ms);
    if left >= NEEDED_MS {
        0
    } else {
        left + AFTER_TURN_MS
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

pub(crate) async fn wait_for_room() {
    let wait = wait_ms(now_ms());
    if wait == 0 {
        return;
    }
    let tty = std::io::stderr().is_terminal();
    eprintln!(
        "The limit counts by the minute of UTC, and this one is nearly over: waiting {} s for the \
         next, so that all requests fall into one.",
        wait.div_ceil(1_000)
    );
    let end = tokio::time::Instant::now() + Duration::from_millis(wait);
    while tty && tokio::time::Instant::now() + Duration::from_secs(1) < end {
        let left = end.duration_since(tokio::time::Instant::now()).as_secs();
        eprint!("\r\x1b[2K{left} s");
        let _ = std::io::stderr().flush();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep_until(end).await;
    if tty {
        eprint!("\r\x1b[2K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_only_when_the_rest_of_the_minute_is_too_short() {
        assert_eq!(wait_ms(0), 0);
        assert_eq!(wait_ms(WINDOW_MS - NEEDED_MS), 0);
        assert_eq!(
            wait_ms(WINDOW_MS - NEEDED_MS + 1),
            NEEDED_MS - 1 + AFTER_TURN_MS
        );
        assert_eq!(wait_ms(WINDOW_MS - 1), 1 + AFTER_TURN_MS);
        assert_eq!(wait_ms(7 * WINDOW_MS), 0);
    }
}
