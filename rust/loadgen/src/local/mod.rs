//! A cluster on this machine: members, nginx, Envoy and an upstream, for the demo and the tests.
//!
//! Owns: child processes, their files and their ports. Promises: ports come from the kernel,
//! everything is on loopback, a start that fails says why with the child's own last words, and no
//! child outlives the value that owns it. Never: touches a process it did not start.

pub mod envoy;
pub mod http;
pub mod member;
pub mod nginx;
pub mod process;
pub mod upstream;

use std::path::{Path, PathBuf};

/// Why a part of the local cluster is not there. What was started before it is ended on drop.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file could not be written or read.
    #[error("{path}: {source}")]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program could not be started. Install or build it.
    #[error("cannot start {program}: {source}; {fix}")]
    Start {
        /// Which one.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        fix: &'static str,
    },
    /// A child ended, or was not ready in time.
    #[error("{name} {what}; the end of its log:\n{log}")]
    Child {
        /// Which one.
        name: String,
        /// What happened.
        what: String,
        /// Its last lines.
        log: String,
    },
    /// An answer that is not what was asked for.
    #[error("{from}: {what}")]
    Answer {
        /// Who answered.
        from: String,
        /// What is wrong with it.
        what: String,
    },
}

impl LocalError {
    /// For `map_err` on file operations.
    pub fn file(path: &Path) -> impl FnOnce(std::io::Error) -> LocalError + '_ {
        move |source| LocalError::File {
            path: path.to_owned(),
            source,
        }
    }

    fn answer(from: &str, what: impl std::fmt::Display) -> LocalError {
        LocalError::Answer {
            from: from.to_owned(),
            what: what.to_string(),
        }
    }
}

/// A fresh folder for the files of one cluster; removed when dropped, unless kept.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    keep: bool,
}

impl RunDir {
    /// Makes a folder whose name starts with `prefix` in the system's folder for temporary files.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(prefix: &str) -> Result<RunDir, LocalError> {
        let base = std::env::temp_dir();
        for n in 0..1_000u32 {
            let path = base.join(format!("{prefix}-{}-{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(RunDir { path, keep: false }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(LocalError::File { path, source: e }),
            }
        }
        Err(LocalError::answer(
            "the temporary folder",
            "1,000 folders of this process are in it",
        ))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder there for a person to read.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if !self.keep {
            // a folder that cannot be removed is left for the system to clean up
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The root of the source tree this was built from.
pub fn source_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
