//! The peer file under every way of replacing it. Time is virtual; the files are real.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use tokio::time::timeout;

use super::*;

static DIRS: AtomicU32 = AtomicU32::new(0);

/// A directory of this test, removed at its end.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        let n = DIRS.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("gabion-peers-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).unwrap();
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Said = Arc<Mutex<Vec<String>>>;

fn watch(path: PathBuf) -> (PeerStream, Said) {
    let said = Said::default();
    let sink = said.clone();
    let report: Report = Arc::new(move |error| sink.lock().unwrap().push(error.to_string()));
    (
        Box::new(FilePeers::new(path).reporting(report)).peers(),
        said,
    )
}

fn set(addresses: &[&str]) -> PeerSet {
    addresses.iter().map(|a| a.parse().unwrap()).collect()
}

/// Runs the watch for some virtual seconds in which it must give nothing.
async fn quiet(sets: &mut PeerStream, seconds: u64) {
    let found = timeout(Duration::from_secs(seconds), sets.next()).await;
    assert!(found.is_err(), "unexpected set {found:?}");
}

/// The next set, within some virtual seconds.
async fn next(sets: &mut PeerStream) -> PeerSet {
    timeout(Duration::from_secs(6), sets.next())
        .await
        .expect("no set")
        .expect("the stream ended")
}

#[tokio::test(start_paused = true)]
async fn addresses_comments_and_blank_lines_are_read() {
    let dir = Dir::new();
    dir.write(
        "peers",
        "# peers\n10.0.0.1:7946 # one\r\n\n  [fd00::1]:7946\n10.0.0.1:7946\n",
    );
    let (mut sets, said) = watch(dir.path("peers"));
    let start = Instant::now();
    assert_eq!(
        next(&mut sets).await,
        set(&["10.0.0.1:7946", "[fd00::1]:7946"])
    );
    assert_eq!(
        start.elapsed().as_millis(),
        0,
        "the first whole file is taken at once"
    );
    quiet(&mut sets, 10).await;
    assert!(said.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_44_one_address_in_two_forms_is_one_peer() {
    let dir = Dir::new();
    dir.write("peers", "10.0.0.1:7946\n[::ffff:10.0.0.1]:7946\n");
    let (mut sets, _) = watch(dir.path("peers"));
    assert_eq!(next(&mut sets).await, set(&["10.0.0.1:7946"]));
}

#[tokio::test(start_paused = true)]
async fn case_05_a_rename_over_the_file_is_picked_up_once() {
    let dir = Dir::new();
    dir.write("peers", "10.0.0.1:1\n");
    let (mut sets, _) = watch(dir.path("peers"));
    assert_eq!(next(&mut sets).await, set(&["10.0.0.1:1"]));
    dir.write("new", "10.0.0.2:1\n10.0.0.3:1\n");
    std::fs::rename(dir.path("new"), dir.path("peers")).unwrap();
    let start = Instant::now();
    assert_eq!(next(&mut sets).await, set(&["10.0.0.2:1", "10.0.0.3:1"]));
    assert!(
        start.elapsed() <= Duration::from_millis(1_300),
        "{:?}",
        start.elapsed()
    );
    quiet(&mut sets, 10).await;
}

#[tokio::test(start_paused = true)]
async fn case_05_a_symlink_swap_is_picked_up_once() {
    // The way a mounted ConfigMap changes: peers -> ..data/peers, ..data -> one of two directories.
    let dir = Dir::new();
    for (version, content) in [("v1", "10.0.0.1:1\n"), ("v2", "10.0.0.2:1\n")] {
        std::fs::create_dir(dir.path(version)).unwrap();
        dir.write(&format!("{version}/peers"), content);
    }
    std::os::unix::fs::symlink("v1", dir.path("..data")).unwrap();
    std::os::unix::fs::symlink("..data/peers", dir.path("peers")).unwrap();
    let (mut sets, said) = watch(dir.path("peers"));
    assert_eq!(next(&mut sets).await, set(&["10.0.0.1:1"]));
    std::os::unix::fs::symlink("v2", dir.path("..tmp")).unwrap();
    std::fs::rename(dir.path("..tmp"), dir.path("..data")).unwrap();
    std::fs::remove_dir_all(dir.path("v1")).unwrap();
    assert_eq!(next(&mut sets).await, set(&["10.0.0.2:1"]));
    quiet(&mut sets, 10).await;
    assert!(said.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn case_05_truncate_and_write_in_two_writes_is_picked_up_once_and_whole() {
    let dir = Dir::new();
    dir.write("peers", "10.0.0.1:1\n");
    let (mut sets, said) = watch(dir.path("peers"));
    assert_eq!(next(&mut sets).await, set(&["10.0.0.1:1"]));
    dir.write("peers", "");
    quiet(&mut sets, 2).await;
    dir.write("peers", "10.0.0.1:1\n10.0.0.2:1\n10.0.0.3:79");
    quiet(&mut sets, 2).await;
    dir.write("peers", "10.0.0.1:1\n10.0.0.2:1\n10.0.0.3:7946\n");
    let whole = set(&["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:7946"]);
    assert_eq!(next(&mut sets).await, whole);
    quiet(&mut sets, 10).await;
    assert!(said.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_taken_back_is_no_change() {
    let dir = Dir::new();
    dir.write("peers", "10.0.0.1:1\n");
    let (mut sets, _) = watch(dir.path("peers"));
    next(&mut sets).await;
    dir.write("peers", "10.0.0.2:1\n");
    quiet(&mut sets, 1).await;
    dir.write("peers", "10.0.0.1:1\n");
    quiet(&mut sets, 10).await;
    // Another comment is no change either.
    dir.write("peers", "# new words\n10.0.0.1:1\n");
    quiet(&mut sets, 10).await;
}

#[tokio::test(start_paused = true)]
async fn an_emptied_file_or_one_without_a_last_newline_is_believed_when_it_stays() {
    let dir = Dir::new();
    dir.write("peers", "10.0.0.1:1\n");
    let (mut sets, _) = watch(dir.path("peers"));
    next(&mut sets).await;
    dir.write("peers", "# nobody\n");
    assert_eq!(next(&mut sets).await, PeerSet::new());
    dir.write("peers", "10.0.0.9:1");
    assert_eq!(next(&mut sets).await, set(&["10.0.0.9:1"]));
}

#[tokio::test(start_paused = true)]
async fn a_bad_line_is_reported_once_with_its_place_and_the_old_set_stays() {
    let dir = Dir::new();
    dir.write("peers", "10.0.0.1:1\n");
    let (mut sets, said) = watch(dir.path("peers"));
    next(&mut sets).await;
    dir.write(
        "peers",
        "10.0.0.2:1\n# fine\n10.0.0.3\nlocalhost:1\n0.0.0.0:1\n",
    );
    quiet(&mut sets, 30).await;
    {
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("peers:3: \"10.0.0.3\""), "{said:?}");
        assert!(said[0].contains("2 more such lines"), "{said:?}");
    }
    dir.write("peers", "10.0.0.2:1\n");
    assert_eq!(next(&mut sets).await, set(&["10.0.0.2:1"]));
}

#[tokio::test(start_paused = true)]
async fn case_45_a_file_that_is_away_is_tried_again_and_keeps_the_old_set() {
    let dir = Dir::new();
    let (mut sets, said) = watch(dir.path("peers"));
    quiet(&mut sets, 30).await;
    assert_eq!(said.lock().unwrap().len(), 1, "thinned");
    dir.write("peers", "10.0.0.1:1\n");
    assert_eq!(next(&mut sets).await, set(&["10.0.0.1:1"]));
    std::fs::remove_file(dir.path("peers")).unwrap();
    quiet(&mut sets, 30).await;
    assert_eq!(said.lock().unwrap().len(), 2, "a new problem is said");
    dir.write("peers", "10.0.0.1:1\n");
    quiet(&mut sets, 5).await;
    dir.write("peers", "10.0.0.2:1\n");
    assert_eq!(next(&mut sets).await, set(&["10.0.0.2:1"]));
}

#[tokio::test(start_paused = true)]
async fn case_06_directories_binaries_and_huge_files_give_a_clear_error() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path("folder")).unwrap();
    dir.write("binary", [0xFF, 0xFE, b'\n']);
    dir.write("huge", "#".repeat((1 << 20) + 1));
    let expected = [
        ("folder", "it is not a regular file"),
        ("binary", "it is not UTF-8 text"),
        ("huge", "at most 1048576 bytes"),
        ("absent", "No such file"),
    ];
    for (name, words) in expected {
        let (mut sets, said) = watch(dir.path(name));
        quiet(&mut sets, 10).await;
        let said = said.lock().unwrap();
        assert!(
            said.len() == 1 && said[0].contains(words),
            "{name}: {said:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn more_peers_than_the_bound_are_cut_and_reported() {
    let dir = Dir::new();
    let lines: String = (0..MAX_PEERS + 5)
        .map(|i| format!("10.1.{}.{}:1\n", i >> 8, i & 255))
        .collect();
    dir.write("peers", lines);
    let (mut sets, said) = watch(dir.path("peers"));
    assert_eq!(next(&mut sets).await.len(), MAX_PEERS);
    assert!(said.lock().unwrap()[0].contains("4101 peers are more than 4096"));
}
