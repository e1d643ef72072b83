//! Peers from a watched file.
//!
//! I own the grammar of the peer file (an address with its port per line, `#` starts a comment) and
//! the watch over it. I promise that a change by rename, by symlink swap or by truncate-and-write
//! is taken once and whole, and that a file that is away, unreadable or wrong leaves the last peers
//! in force. I never block the runtime: reading happens on its blocking threads.

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream;
use tokio::time::Instant;

use crate::error::{to_log, DiscoveryError, Report, Thinned};
use crate::limits::{FILE_POLL_MS, FILE_SETTLE_MS, FILE_UNFINISHED_MS, MAX_FILE_BYTES, MAX_PEERS};
use crate::{canonical, usable, Health, PeerDiscovery, PeerSet, PeerStream};

/// A file that names the peers, watched.
///
/// The content is compared every second, so that neither the way it is replaced nor the precision
/// of its times matters. A change is believed when a second look finds the same; a file that looks
/// unfinished must stay as it is for three seconds.
pub struct FilePeers {
    path: PathBuf,
    report: Report,
    health: Health,
}

impl FilePeers {
    /// Watches the file at `path`. It need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        FilePeers {
            path: path.into(),
            report: to_log(),
            health: Health::new("file", &["file", "line", "not_text", "too_many"]),
        }
    }

    /// Reports problems to `report` instead of the log.
    pub fn reporting(mut self, report: Report) -> Self {
        self.report = report;
        self
    }
}

impl PeerDiscovery for FilePeers {
    fn peers(self: Box<Self>) -> PeerStream {
        let watch = Watch {
            path: self.path,
            thinned: Thinned::new(self.report, self.health.clone()),
            health: self.health,
            good: false,
            judged: None,
            fresh: None,
            last: None,
            pause: Duration::ZERO,
        };
        Box::pin(stream::unfold(watch, |mut watch| async move {
            let set = watch.next().await;
            Some((set, watch))
        }))
    }

    fn health(&self) -> Vec<Health> {
        vec![self.health.clone()]
    }
}

/// The state of one watch.
struct Watch {
    path: PathBuf,
    thinned: Thinned,
    health: Health,
    /// Whether the content that was judged is in force.
    good: bool,
    /// The content that was last judged, good or bad.
    judged: Option<Vec<u8>>,
    /// Content that differs from it, and when it was first seen.
    fresh: Option<(Vec<u8>, Instant)>,
    /// The set last given.
    last: Option<PeerSet>,
    pause: Duration,
}

impl Watch {
    async fn next(&mut self) -> PeerSet {
        loop {
            tokio::time::sleep(self.pause).await;
            self.pause = Duration::from_millis(FILE_POLL_MS);
            match read(self.path.clone()).await {
                Ok(content) => {
                    if let Some(set) = self.look(content) {
                        return set;
                    }
                }
                Err(error) => {
                    self.fresh = None;
                    // The same content coming back is news after this.
                    self.judged = self.judged.take().filter(|_| self.last.is_some());
                    self.thinned.report(error);
                }
            }
        }
    }

    /// Judges what was read; gives a set when it is new.
    fn look(&mut self, content: Vec<u8>) -> Option<PeerSet> {
        if self.judged.as_ref() == Some(&content) {
            self.fresh = None;
            if self.good {
                self.health.fresh();
            }
            return None;
        }
        let now = Instant::now();
        let first_seen = match self.fresh.take() {
            Some((fresh, since)) if fresh == content => Some(since),
            _ => None,
        };
        let needed = match (looks_finished(&content), self.judged.is_none()) {
            // Nothing is in force yet: a whole file is taken at once.
            (true, true) => Duration::ZERO,
            (true, false) => Duration::from_millis(FILE_SETTLE_MS),
            (false, _) => Duration::from_millis(FILE_UNFINISHED_MS),
        };
        let since = first_seen.unwrap_or(now);
        if now.duration_since(since) < needed {
            self.fresh = Some((content, since));
            self.pause = Duration::from_millis(FILE_SETTLE_MS);
            return None;
        }
        let parsed = parse(&self.path, &content);
        self.judged = Some(content);
        self.good = parsed.is_ok();
        match parsed {
            Ok(set) => {
                self.thinned.clear();
                let set = self.bounded(set);
                self.health.fresh();
                self.health.found(set.len());
                let changed = self.last.as_ref() != Some(&set);
                self.last = Some(set.clone());
                changed.then_some(set)
            }
            Err(error) => {
                self.thinned.report(error);
                None
            }
        }
    }

    fn bounded(&mut self, set: PeerSet) -> PeerSet {
        if set.len() <= MAX_PEERS {
            return set;
        }
        self.thinned
            .report(DiscoveryError::TooMany { found: set.len() });
        set.into_iter().take(MAX_PEERS).collect()
    }
}

/// A file that another program is still writing often has no address yet, or half a last line.
fn looks_finished(content: &[u8]) -> bool {
    let written = |line: &[u8]| !matches!(line.trim_ascii_start().first(), None | Some(b'#'));
    content.ends_with(b"\n") && content.split(|b| *b == b'\n').any(written)
}

async fn read(path: PathBuf) -> Result<Vec<u8>, DiscoveryError> {
    let shown = path.clone();
    let result = tokio::task::spawn_blocking(move || read_bounded(&path)).await;
    result.unwrap_or_else(|_| {
        Err(DiscoveryError::File {
            path: shown,
            why: "the read was broken off".to_owned(),
        })
    })
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, DiscoveryError> {
    let failed = |why: String| DiscoveryError::File {
        path: path.to_owned(),
        why,
    };
    let metadata = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?;
    if !metadata.is_file() {
        // Opening a pipe would wait for its writer.
        return Err(failed("it is not a regular file".to_owned()));
    }
    let file = File::open(path).map_err(|e| failed(e.to_string()))?;
    let mut content = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content);
    read.map_err(|e| failed(e.to_string()))?;
    if content.len() as u64 > MAX_FILE_BYTES {
        return Err(DiscoveryError::NotText {
            path: path.to_owned(),
        });
    }
    Ok(content)
}

fn parse(path: &Path, content: &[u8]) -> Result<PeerSet, DiscoveryError> {
    let Ok(text) = std::str::from_utf8(content) else {
        return Err(DiscoveryError::NotText {
            path: path.to_owned(),
        });
    };
    let mut set = PeerSet::new();
    let mut bad: Option<(usize, &str)> = None;
    let mut others = 0;
    for (line, written) in (1usize..).zip(text.lines()) {
        let entry = written.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        match entry.parse::<SocketAddr>().map(canonical) {
            Ok(addr) if usable(&addr) => {
                set.insert(addr);
            }
            _ if bad.is_some() => others += 1,
            _ => bad = Some((line, entry)),
        }
    }
    match bad {
        None => Ok(set),
        Some((line, entry)) => Err(DiscoveryError::Line {
            path: path.to_owned(),
            line,
            text: entry.chars().take(64).collect(),
            others,
        }),
    }
}

#[cfg(test)]
mod tests;
