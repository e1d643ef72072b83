//! What a service manager is told: ready, reloading, stopping, alive.
//!
//! I own the messages of `sd_notify(3)`. Without `NOTIFY_SOCKET` I do nothing. I never fail: a
//! message that cannot be sent is gone, and the manager's own time-outs hold.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use gabion_driver::monotonic_ns;

/// The service serves.
pub fn ready() {
    send("READY=1");
}

/// The configuration is being read again; [`ready`] ends it.
pub fn reloading() {
    let now_us = monotonic_ns() / 1_000;
    send(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
}

/// The service ends.
pub fn stopping() {
    send("STOPPING=1");
}

/// Says that the process lives, as often as the manager wants to hear it; for ever. To be run where
/// requests are: when those threads stand still, so does this.
pub async fn keep_alive() {
    let Some(every) = watchdog(
        std::env::var("WATCHDOG_USEC").ok().as_deref(),
        std::env::var("WATCHDOG_PID").ok().as_deref(),
    ) else {
        return;
    };
    let mut ticks = tokio::time::interval(every);
    loop {
        ticks.tick().await;
        send("WATCHDOG=1");
    }
}

/// How often a watchdog wants to hear of this process: half its time, as its manual says.
fn watchdog(usec: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    let for_us = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let usec: u64 = usec?.parse().ok()?;
    (for_us && usec > 1).then(|| Duration::from_micros(usec / 2))
}

fn send(text: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").and_then(address) else {
        return;
    };
    let sent = UnixDatagram::unbound()
        .and_then(|socket| socket.send_to_addr(text.as_bytes(), &address).map(drop));
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager could not be told {text:?}");
    }
}

/// A path, or an abstract name after an `@`.
fn address(name: OsString) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        _ => SocketAddr::from_pathname(name).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_fed_twice_in_its_time_by_its_own_process() {
        let me = std::process::id().to_string();
        let half = Some(Duration::from_secs(5));
        assert_eq!(watchdog(Some("10000000"), None), half);
        assert_eq!(watchdog(Some("10000000"), Some(&me)), half);
        assert_eq!(watchdog(Some("10000000"), Some("1")), None);
        for usec in [None, Some("0"), Some("1"), Some("soon"), Some("-5")] {
            assert_eq!(watchdog(usec, None), None, "{usec:?}");
        }
    }

    #[test]
    fn abstract_names_and_paths_are_addresses() {
        assert!(address("@gabiond-test".into()).is_some());
        assert!(address("/run/systemd/notify".into()).is_some());
        assert!(address("x".repeat(300).into()).is_none());
    }
}
