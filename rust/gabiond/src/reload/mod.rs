//! Another configuration for a running member.
//!
//! I own when a configuration is read again, and what is said about it. I promise that a new one is
//! in force whole or not at all, that the same bad content is reported once, that every change is
//! logged rule by rule, and that requests never wait for a file. All of it happens on one thread of
//! its own, one reload after the other.

mod apply;
mod changes;
mod fixed;
mod watch;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{mpsc, Arc, Weak};
use std::time::Instant;

use tokio::sync::oneshot;

pub use apply::{Applied, Counts};
pub use changes::{changes, Change, What};
pub(crate) use fixed::Fixed;

use crate::config::{read_bounded, Config};
use crate::limits::{CHANGES_LOGGED, CONFIG_BYTES, WATCH_EVERY};
use crate::member::Member;
use crate::systemd;
use watch::Watch;

/// Reads the configuration again, as it was read at the start.
///
/// Errors say all faults.
pub type Load = Box<dyn Fn() -> Result<Config, String> + Send>;

/// Where a configuration comes from.
pub struct Origin {
    load: Load,
    watch: Watch,
}

impl Origin {
    /// To be made before the configuration is read for the first time, so that no change is missed.
    /// `watched`: files and directories whose change means another configuration, as far as they
    /// are known yet; those that a configuration names itself come with it.
    pub fn new(watched: Vec<PathBuf>, load: Load) -> Self {
        Self {
            load,
            watch: Watch::new(watched),
        }
    }

    /// Reads the configuration.
    ///
    /// # Errors
    /// All its faults.
    pub fn load(&mut self) -> Result<Config, String> {
        let config = (self.load)()?;
        self.watch.set_paths(&config.watched);
        Ok(config)
    }
}

/// What became of a request to reload, in words.
pub type Outcome = Result<String, String>;

struct Ask {
    why: &'static str,
    answer: Option<oneshot::Sender<Outcome>>,
}

/// Asks for reloads.
#[derive(Clone, Debug)]
pub struct Reloads {
    asks: mpsc::Sender<Ask>,
}

impl Reloads {
    /// Asks for a reload, and does not wait.
    pub fn ask(&self, why: &'static str) {
        let _ = self.asks.send(Ask { why, answer: None }); // gone: the process ends
    }

    /// Asks for a reload, and waits for what becomes of it.
    ///
    /// # Errors
    /// The faults of the configuration; the one in force stays.
    pub async fn ask_and_wait(&self, why: &'static str) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let answer = Some(answer);
        let _ = self.asks.send(Ask { why, answer });
        let ended = "the process is ending, and nothing was changed".to_owned();
        answered.await.unwrap_or(Err(ended))
    }
}

/// Starts the thread that reloads `member`, which ends with it.
///
/// # Errors
/// What the system says when it gives no thread.
pub fn start(member: &Arc<Member>, origin: Origin) -> std::io::Result<Reloads> {
    let (asks, asked) = mpsc::channel();
    let reloader = Reloader {
        member: Arc::downgrade(member),
        origin,
        tried: None,
    };
    std::thread::Builder::new()
        .name("gabiond-reload".to_owned())
        .spawn(move || reloader.run(&asked))?;
    Ok(Reloads { asks })
}

struct Reloader {
    member: Weak<Member>,
    origin: Origin,
    /// Names the content that was tried last.
    tried: Option<u64>,
}

impl Reloader {
    fn run(mut self, asked: &mpsc::Receiver<Ask>) {
        loop {
            match asked.recv_timeout(WATCH_EVERY) {
                Ok(Ask { why, answer }) => {
                    let outcome = self.reload(why, true);
                    if let (Some(answer), Some(outcome)) = (answer, outcome) {
                        let _ = answer.send(outcome); // nobody waits any more
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if self.origin.watch.is_due() {
                        self.reload("its files changed", false);
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            if self.member.strong_count() == 0 {
                return;
            }
        }
    }

    /// Tries the configuration as it is now; `None` when there was nothing to do.
    fn reload(&mut self, why: &'static str, asked: bool) -> Option<Outcome> {
        self.origin.watch.take();
        let content = self.content();
        if !asked && self.tried == Some(content) {
            return None; // touched, or replaced by its equal
        }
        self.tried = Some(content);
        let member = self.member.upgrade()?;
        systemd::reloading();
        let since = Instant::now();
        let applied = self.origin.load().and_then(|config| {
            let read = since.elapsed();
            let mut applied = member.apply(config).map_err(|error| error.to_string())?;
            applied.took += read;
            Ok(applied)
        });
        systemd::ready();
        Some(match applied {
            Ok(applied) => {
                let said = say(why, &applied);
                member.note_reload(None);
                Ok(said)
            }
            Err(faults) => {
                let faults = faults.replace('\n', "; ");
                tracing::error!(
                    "{why}, and the new configuration was refused; the one in force stays: {faults}"
                );
                member.note_reload(Some(faults.clone()));
                Err(faults)
            }
        })
    }

    /// Names what the watched files hold.
    fn content(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        for path in self.origin.watch.files() {
            path.hash(&mut hash);
            // Of what cannot be read, or is a directory, the reason.
            let bytes = read_bounded(path, CONFIG_BYTES);
            bytes.map_err(|why| why.to_string()).hash(&mut hash);
        }
        hash.finish()
    }
}

/// Logs what a reload did; gives its first line.
fn say(why: &str, applied: &Applied) -> String {
    let first = format!("{why}: {applied}");
    tracing::info!(target: crate::logging::UNTHINNED, "{first}");
    for change in applied.changes.iter().take(CHANGES_LOGGED) {
        tracing::info!(target: crate::logging::UNTHINNED, "reload: {change}");
    }
    let more = applied.changes.len().saturating_sub(CHANGES_LOGGED);
    if more > 0 {
        tracing::info!("reload: {more} more rules changed");
    }
    for notice in &applied.notices {
        tracing::info!(target: crate::logging::UNTHINNED, "reload: {notice}");
    }
    if !applied.restart.is_empty() {
        tracing::warn!(
            "reload: what changed here takes effect at the next start only: {}",
            applied.restart.join(", ")
        );
    }
    first
}
