//! Noticing that files changed.
//!
//! I own when a change is believed. I look at the files by their paths, again and again, and
//! compare: so it does not matter how they change (written in place, renamed over, a symbolic link
//! that points elsewhere, as a Kubernetes ConfigMap does it), nor on what file system they are. I
//! promise that a change is told once, and only when nothing changed from one look to the next, so
//! that a file is not read while it is being written. I never read what they hold.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::limits::{WATCHED_FILES, WATCH_EMPTY_LOOKS};

/// What one file looks like from outside; `None`: it cannot be looked at.
type Print = (PathBuf, Option<[u64; 6]>);

/// Files and directories, as they looked when their content was taken last.
#[derive(Debug)]
pub(super) struct Watch {
    paths: Vec<PathBuf>,
    taken: Vec<Print>,
    last: Vec<Print>,
    looks_empty: u32,
}

impl Watch {
    /// Watches `paths`; a directory stands for all that is directly in it.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let taken = look(&paths);
        Self {
            last: taken.clone(),
            paths,
            taken,
            looks_empty: 0,
        }
    }

    /// Watches other paths from now on. What changed since it was taken in those that stay is still
    /// told.
    pub(super) fn set_paths(&mut self, paths: &[PathBuf]) {
        if self.paths == paths {
            return;
        }
        let mut watch = Self::new(paths.to_vec());
        for (path, print) in &mut watch.taken {
            if let Some((_, taken)) = self.taken.iter().find(|(known, _)| known == path) {
                *print = *taken;
            }
        }
        *self = watch;
    }

    /// Every file that is watched now.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.last.iter().map(|(path, _)| path.as_path())
    }

    /// Looks; true when something changed since it was taken, and nothing since the last look.
    pub(super) fn is_due(&mut self) -> bool {
        let now = look(&self.paths);
        let quiet = now == self.last;
        self.last = now;
        if self.last == self.taken {
            self.looks_empty = 0;
            return false;
        }
        // Truncated, and not yet written: it gets some time before it is called empty.
        let emptied = |(path, print): &Print| {
            let is_empty = print.is_none_or(|print| print[2] == 0);
            let was = self.taken.iter().find(|(taken, _)| taken == path);
            is_empty && was.is_some_and(|(_, was)| was.is_some_and(|was| was[2] > 0))
        };
        if self.last.iter().any(emptied) && self.looks_empty < WATCH_EMPTY_LOOKS {
            self.looks_empty += 1;
            return false;
        }
        quiet
    }

    /// The files as they looked last count as taken. To be called before they are read: what
    /// changes while they are is told again.
    pub(super) fn take(&mut self) {
        self.taken.clone_from(&self.last);
        self.looks_empty = 0;
    }
}

fn look(paths: &[PathBuf]) -> Vec<Print> {
    let mut prints = Vec::new();
    for path in paths {
        // Links are followed: what counts is the file that would be read.
        let about = std::fs::metadata(path).ok();
        let is_directory = about.as_ref().is_some_and(Metadata::is_dir);
        prints.push((path.clone(), about.as_ref().map(print)));
        if let (true, Ok(entries)) = (is_directory, std::fs::read_dir(path)) {
            let mut files: Vec<PathBuf> = entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .take(WATCHED_FILES)
                .collect();
            files.sort();
            prints.extend(files.into_iter().map(|file| {
                let about = std::fs::metadata(&file).ok();
                (file, about.as_ref().map(print))
            }));
        }
    }
    prints
}

fn print(about: &Metadata) -> [u64; 6] {
    // A directory's size and times change with files that are no part of the configuration.
    if about.is_dir() {
        return [about.dev(), about.ino(), 1, 0, 0, 0];
    }
    [
        about.dev(),
        about.ino(),
        about.size(),
        about.mtime().unsigned_abs(),
        about.mtime_nsec().unsigned_abs(),
        about.ctime_nsec().unsigned_abs() ^ about.ctime().unsigned_abs().rotate_left(32),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("gabiond-watch-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).expect("a scratch directory");
            Scratch(path)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).expect("a scratch file");
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Looks until it is due, and how many looks that took.
    fn looks_until_due(watch: &mut Watch) -> u32 {
        (1..100).find(|_| watch.is_due()).expect("it is never due")
    }

    #[test]
    fn case_05_a_change_is_told_once_and_when_it_has_settled() {
        let scratch = Scratch::new("settled");
        let path = scratch.write("a.yaml", "one");
        let mut watch = Watch::new(vec![path]);
        assert!(!watch.is_due());
        scratch.write("a.yaml", "tw");
        assert!(!watch.is_due(), "it may still be written");
        scratch.write("a.yaml", "two");
        assert!(!watch.is_due(), "it was");
        assert!(watch.is_due());
        watch.take();
        assert!((0..5).all(|_| !watch.is_due()), "told once");
        let other = scratch.write("b.yaml", "three");
        std::fs::rename(other, scratch.0.join("a.yaml")).expect("renamed");
        assert_eq!(looks_until_due(&mut watch), 2);
    }

    #[test]
    fn case_05_a_truncated_file_gets_time_to_be_written() {
        let scratch = Scratch::new("truncated");
        let path = scratch.write("a.yaml", "one");
        let mut watch = Watch::new(vec![path]);
        scratch.write("a.yaml", "");
        assert!((0..WATCH_EMPTY_LOOKS).all(|_| !watch.is_due()));
        scratch.write("a.yaml", "two");
        assert_eq!(looks_until_due(&mut watch), 2);
        watch.take();
        scratch.write("a.yaml", "");
        assert_eq!(looks_until_due(&mut watch), WATCH_EMPTY_LOOKS + 1);
    }

    #[test]
    fn case_04_a_config_map_is_swapped_by_a_link_to_a_link() {
        let scratch = Scratch::new("configmap");
        let link = |to: &str, name: &str| {
            let part = scratch.0.join("part");
            std::os::unix::fs::symlink(to, &part).expect("a link");
            std::fs::rename(&part, scratch.0.join(name)).expect("renamed");
        };
        for (version, text) in [("..1", "one"), ("..2", "two")] {
            std::fs::create_dir(scratch.0.join(version)).expect("a version");
            scratch.write(&format!("{version}/gabiond.yaml"), text);
        }
        link("..1", "..data");
        link("..data/gabiond.yaml", "gabiond.yaml");
        let mut watch = Watch::new(vec![scratch.0.join("gabiond.yaml")]);
        assert!(!watch.is_due());
        link("..2", "..data");
        std::fs::remove_dir_all(scratch.0.join("..1")).expect("the old version is removed");
        assert_eq!(looks_until_due(&mut watch), 2);
        watch.take();
        assert!(!watch.is_due() && !watch.is_due());
    }

    #[test]
    fn a_directory_stands_for_its_files() {
        let scratch = Scratch::new("directory");
        scratch.write("a.yaml", "one");
        let mut watch = Watch::new(vec![scratch.0.clone()]);
        for change in 0..3 {
            match change {
                0 => drop(scratch.write("b.yaml", "new")),
                1 => drop(scratch.write("a.yaml", "changed")),
                _ => std::fs::remove_file(scratch.0.join("b.yaml")).expect("removed"),
            }
            looks_until_due(&mut watch);
            watch.take();
            assert!(!watch.is_due(), "change {change} is told once");
        }
    }

    #[test]
    fn a_change_is_not_missed_when_other_paths_are_watched() {
        let scratch = Scratch::new("paths");
        let (a, b) = (scratch.write("a.yaml", "one"), scratch.write("b.yaml", "1"));
        let mut watch = Watch::new(vec![a.clone()]);
        scratch.write("a.yaml", "three");
        watch.set_paths(&[a, b]);
        looks_until_due(&mut watch);
        watch.take();
        assert!(!watch.is_due());
        scratch.write("b.yaml", "22");
        looks_until_due(&mut watch);
    }

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_waited_for() {
        let scratch = Scratch::new("gone");
        let path = scratch.write("a.yaml", "one");
        let mut watch = Watch::new(vec![path.clone()]);
        std::fs::remove_file(&path).expect("removed");
        assert!(!watch.is_due() && !watch.is_due());
        scratch.write("a.yaml", "two");
        assert_eq!(looks_until_due(&mut watch), 2);
    }
}
