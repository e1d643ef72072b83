//! Shows how a run goes on.
//!
//! Owns: standard error. Promises: one line that is redrawn on a terminal, plain lines now and then
//! in a log. Never: writes to standard output, which belongs to the report.

use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::limits::{PROGRESS_LOG_MS, PROGRESS_TTY_MS};
use crate::run::Live;

/// Prints progress until the returned task is aborted or dropped; `extra` adds a few words.
pub fn show(live: Arc<Live>, total: u64) -> Progress {
    let tty = std::io::stderr().is_terminal();
    let task = tokio::spawn(async move {
        let every = Duration::from_millis(if tty {
            PROGRESS_TTY_MS
        } else {
            PROGRESS_LOG_MS
        });
        let start = Instant::now();
        loop {
            tokio::time::sleep(every).await;
            draw(tty, &line(&live, total, start.elapsed()));
        }
    });
    Progress { task, tty }
}

/// A running progress display; ends when dropped.
#[derive(Debug)]
pub struct Progress {
    task: tokio::task::JoinHandle<()>,
    tty: bool,
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.task.abort();
        if self.tty {
            draw(true, "");
        }
    }
}

/// One line of progress.
pub fn line(live: &Live, total: u64, elapsed: Duration) -> String {
    let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (due, admitted, denied, errors) = (
        get(&live.due),
        get(&live.admitted),
        get(&live.denied),
        get(&live.errors),
    );
    let pending = due.saturating_sub(admitted + denied + errors);
    format!(
        "{:5.1} s  due {due}/{total}  admitted {admitted}  denied {denied}  errors {errors}  \
         pending {pending}",
        elapsed.as_secs_f64()
    )
}

fn draw(tty: bool, line: &str) {
    let mut out = std::io::stderr().lock();
    // a closed terminal is no reason to end the run
    let _ = if tty {
        write!(out, "\r\x1b[2K{line}")
    } else {
        writeln!(out, "{line}")
    };
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_pending() {
        let live = Live::default();
        live.due.store(10, Ordering::Relaxed);
        live.admitted.store(6, Ordering::Relaxed);
        live.denied.store(1, Ordering::Relaxed);
        let line = line(&live, 20, Duration::from_millis(1_500));
        assert_eq!(
            line,
            "  1.5 s  due 10/20  admitted 6  denied 1  errors 0  pending 3"
        );
    }
}
