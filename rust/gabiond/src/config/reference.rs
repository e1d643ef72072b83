//! Directories of files in the format of the Envoy project's reference service.
//!
//! I own the section `reference` and the walk over a directory. I promise that each file is read
//! once, however many links lead to it, and that what is not read is named. I never look into a
//! file: that is for `gabion_rule::reference`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gabion_rule::policy::{MapReader, Policy, PolicyError, Problems};
use gabion_rule::reference::{self, Options, SourceFile};
use gabion_rule::Place;

use super::files::read_config;
use super::ConfigError;
use crate::limits::{REFERENCE_DEPTH, REFERENCE_FILES};

/// How a directory is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Whether names that begin with a point are skipped.
    pub ignore_dot_files: bool,
    /// How the files are taken.
    pub options: Options,
}

/// What a directory holds.
#[derive(Debug)]
pub struct Directory {
    /// Its rules.
    pub policy: Policy,
    /// What was not read, and why.
    pub notices: Vec<String>,
    /// It and every directory in it: a change in one of them is another configuration.
    pub watched: Vec<PathBuf>,
}

/// Reads a directory of files as they are deployed for the reference service.
///
/// # Errors
/// Every fault of every file that can be found at once.
pub fn read_directory(path: &Path, reading: Reading) -> Result<Directory, ConfigError> {
    read(path, reading).map_err(ConfigError::Faults)
}

fn read(path: &Path, reading: Reading) -> Result<Directory, Vec<PolicyError>> {
    let mut walk = Walk {
        reading,
        files: Vec::new(),
        seen: BTreeSet::new(),
        notices: Vec::new(),
        watched: Vec::new(),
        errors: Vec::new(),
    };
    walk.directory(path, 0);
    if walk.files.is_empty() && walk.errors.is_empty() {
        let why = "no file in it ends in .yaml or .yml; name the directory that holds them";
        walk.errors.push(fault(path, why.to_owned()));
    }
    let policy = reference::read(&walk.files, reading.options);
    match (policy, walk.errors.is_empty()) {
        (Ok(policy), true) => Ok(Directory {
            policy,
            notices: walk.notices,
            watched: walk.watched,
        }),
        (policy, _) => {
            walk.errors.extend(policy.err().unwrap_or_default());
            Err(walk.errors)
        }
    }
}

/// The section `reference`; `None` when it is absent or faults were reported.
pub(super) fn section(map: &mut MapReader<'_, '_>, problems: &Problems) -> Option<Directory> {
    let mut map = map.map("reference")?;
    let mut switch = |key| map.bool(key).unwrap_or(false);
    let reading = Reading {
        ignore_dot_files: switch("ignore_dot_files"),
        options: Options {
            merge_domains: switch("merge_domains"),
            shadow_mode: switch("shadow_mode"),
            quota_mode: switch("quota_mode"),
        },
    };
    let path = map.required_text("directory").map(PathBuf::from);
    map.finish();
    match read(&path?, reading) {
        Ok(directory) => Some(directory),
        Err(errors) => {
            errors.into_iter().for_each(|error| problems.add(error));
            None
        }
    }
}

fn fault(path: &Path, message: String) -> PolicyError {
    PolicyError {
        place: Place::new(path.display().to_string(), 0, 0),
        key: String::new(),
        message,
        suggestion: None,
    }
}

/// The run over one directory.
struct Walk {
    reading: Reading,
    files: Vec<SourceFile>,
    /// Where the files really are.
    seen: BTreeSet<PathBuf>,
    notices: Vec<String>,
    watched: Vec<PathBuf>,
    errors: Vec<PolicyError>,
}

impl Walk {
    fn directory(&mut self, path: &Path, depth: usize) {
        if depth > REFERENCE_DEPTH {
            let why = format!("directories are nested deeper than {REFERENCE_DEPTH}");
            return self.errors.push(fault(path, why));
        }
        self.watched.push(path.to_owned());
        let names = std::fs::read_dir(path).and_then(|entries| {
            let names = entries.map(|entry| Ok(entry?.file_name()));
            names.collect::<std::io::Result<BTreeSet<_>>>()
        });
        match names {
            Ok(names) => names
                .iter()
                .for_each(|name| self.entry(path.join(name), &name.to_string_lossy(), depth)),
            Err(error) => {
                let why = format!(
                    "the directory cannot be read: {error}. Name the directory that holds the \
                     files, and check who may read it"
                );
                self.errors.push(fault(path, why));
            }
        }
    }

    fn entry(&mut self, path: PathBuf, name: &str, depth: usize) {
        // `..data` and its kin are how Kubernetes swaps all files of a mounted ConfigMap at once:
        // the files are reached by the links beside them.
        if name.starts_with("..") || self.reading.ignore_dot_files && name.starts_with('.') {
            return;
        }
        let about = match std::fs::metadata(&path) {
            Ok(about) => about,
            Err(error) => {
                let why = format!("it cannot be read: {error}. Check the file and who may read it");
                return self.errors.push(fault(&path, why));
            }
        };
        let skipped = if !about.is_dir() {
            match path.extension().and_then(|end| end.to_str()) {
                Some("yaml" | "yml") => return self.file(&path),
                _ => "its name does not end in .yaml or .yml",
            }
        } else if path.is_symlink() {
            "a link to a directory is not followed"
        } else {
            return self.directory(&path, depth + 1);
        };
        let path = path.display();
        self.notices.push(format!("{path}: not read: {skipped}"));
    }

    fn file(&mut self, path: &Path) {
        let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !self.seen.insert(real) {
            return;
        }
        if self.files.len() >= REFERENCE_FILES {
            let why = format!("more than {REFERENCE_FILES} files; join some of them");
            return self.errors.push(fault(path, why));
        }
        match read_config(path) {
            Ok(bytes) => self.files.push(SourceFile {
                name: path.display().to_string(),
                bytes,
            }),
            Err(error) => {
                let said = error.to_string();
                let own = format!("{}: ", path.display());
                let why = said.strip_prefix(&own).unwrap_or(&said).to_owned();
                self.errors.push(fault(path, why));
            }
        }
    }
}
