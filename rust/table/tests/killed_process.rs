//! Processes that share one table are killed with SIGKILL at random moments; the others go on,
//! nothing is stuck, nothing is lost and nothing is admitted twice (case 33).
//!
//! The parent runs rounds. In a round three children hammer the same 96 keys until all are
//! exhausted, while the parent kills some of them and starts others in their place. Then everybody
//! pauses and the parent counts.

mod common;

use std::fs::OpenOptions;
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use common::{charge, fixed, key, strict, sub, Random, SECOND_NS, START_NS};
use gabion_admit::Outcome;
use gabion_table::{RawMem, SubSpec, Table};
use memmap2::MmapMut;

const CHILD_FILE: &str = "GABION_TABLE_KILLED_FILE";
const CHILD_PLACE: &str = "GABION_TABLE_KILLED_PLACE";
const PLACES: usize = 3;
const KEYS: u64 = 96;
/// Keys from here on also get a remote total, from whichever child is the driver.
const REMOTE_FROM: u64 = 64;
const REMOTE_TOTAL: u64 = 5;
const LIMIT: u32 = 20;
/// Rounds of the slow tier; the control block has room for as many.
const ROUNDS_MAX: usize = 400;
const CONTROL_BYTES: usize = 1 << 20;
const TABLE_BYTES: usize = 1 << 20;

/// The words beside the table that test and children share.
struct Control<'m> {
    words: &'m [AtomicU64],
}

impl<'m> Control<'m> {
    /// Round number; odd while paused.
    fn phase(&self) -> &'m AtomicU64 {
        &self.words[0]
    }
    /// Hits let through uncounted: there is room, so there must be none.
    fn fail_opens(&self) -> &'m AtomicU64 {
        &self.words[1]
    }
    /// Decisions made by whoever holds this place.
    fn progress(&self, place: usize) -> &'m AtomicU64 {
        &self.words[64 + place * 8]
    }
    /// The last pause this place has stopped for.
    fn paused(&self, place: usize) -> &'m AtomicU64 {
        &self.words[64 + place * 8 + 1]
    }
    /// Hits admitted on a key in a round, counted after the decision.
    fn admitted(&self, round: usize, key: u64) -> &'m AtomicU64 {
        &self.words[1_024 + round * 128 + usize::try_from(key).expect("small")]
    }
}

fn rules() -> [SubSpec; 2] {
    [sub(1, fixed(LIMIT)), sub(2, strict(100_000, 3))]
}

fn control(map: &MmapMut) -> Control<'_> {
    let start = map.as_ptr().cast::<AtomicU64>();
    // SAFETY: the mapping is page-aligned, longer than CONTROL_BYTES and lives as long as the
    // borrow; these words are only ever accessed as atomics, by every process.
    let words = unsafe { std::slice::from_raw_parts(start, CONTROL_BYTES / 8) };
    Control { words }
}

fn table_memory(map: &MmapMut) -> RawMem {
    let start = map
        .as_ptr()
        .cast_mut()
        .wrapping_add(CONTROL_BYTES)
        .cast::<u64>();
    let start = NonNull::new(start).expect("a mapping is not at 0");
    // SAFETY: the words after the control block belong to the table alone, are 8-aligned, and stay
    // mapped until the map is dropped, which every caller does after the table.
    unsafe { RawMem::from_raw(start, TABLE_BYTES / 8) }
}

fn map_file(path: &std::path::Path) -> MmapMut {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("the shared file");
    // SAFETY: the file is private to this test and its children, none of which truncates it, and
    // all of which access it as atomics.
    unsafe { MmapMut::map_mut(&file) }.expect("the shared mapping")
}

fn now_ns(round: u64) -> u64 {
    START_NS + round * 8 * SECOND_NS
}

fn round_key(round: u64, n: u64) -> gabion_rule::Key {
    key(round << 32 | n)
}

/// A child: decides, and in between acts as a driver, until it is killed.
#[test]
fn killed_child() {
    let Some(path) = std::env::var_os(CHILD_FILE) else {
        return;
    };
    // SAFETY: prctl with PR_SET_PDEATHSIG takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let place: usize = std::env::var(CHILD_PLACE)
        .expect("a place")
        .parse()
        .expect("a number");
    let map = map_file(path.as_ref());
    let shared = control(&map);
    let table = Table::attach(table_memory(&map), &rules()).expect("the parent's table");
    let mut random = Random(u64::from(std::process::id()));
    loop {
        let phase = shared.phase().load(SeqCst);
        if phase % 2 == 1 {
            shared.paused(place).store(phase, SeqCst);
            std::thread::yield_now();
            continue;
        }
        let round = phase / 2;
        let n = random.below(KEYS);
        decide_one(&table, &shared, round, n);
        if random.below(8) == 0 {
            drive(&table, round, &mut random);
        }
        shared.progress(place).fetch_add(1, SeqCst);
    }
}

fn decide_one(table: &Table<RawMem>, shared: &Control<'_>, round: u64, n: u64) {
    let k = round_key(round, n);
    let mut charges = [charge(0, k, 1), charge(1, k, 1)];
    let allowed = table.decide(&mut charges, now_ns(round)).outcome == Outcome::Allowed;
    if charges.iter().any(|c| c.fail_open.is_some()) {
        shared.fail_opens().fetch_add(1, SeqCst);
    } else if allowed {
        shared
            .admitted(usize::try_from(round).expect("small"), n)
            .fetch_add(1, SeqCst);
    }
}

fn drive(table: &Table<RawMem>, round: u64, random: &mut Random) {
    let now = now_ns(round);
    table.drain_dirty(16, now, &mut |row| {
        std::hint::black_box(row);
    });
    let k = round_key(round, REMOTE_FROM + random.below(KEYS - REMOTE_FROM));
    table.publish_remote_or_claim(0, k, now / SECOND_NS, REMOTE_TOTAL, now);
    let mut cursor = random.next();
    table.scrub(&mut cursor, 4, now, &mut |row| {
        std::hint::black_box(row);
    });
}

struct Family<'m> {
    path: std::path::PathBuf,
    shared: Control<'m>,
    children: Vec<Child>,
}

impl Family<'_> {
    fn start(&self, place: usize) -> Child {
        Command::new(std::env::current_exe().expect("this binary"))
            .args(["killed_child", "--exact", "--test-threads=1"])
            .env(CHILD_FILE, &self.path)
            .env(CHILD_PLACE, place.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child")
    }

    /// Waits until `done`, or fails: a child that makes no progress for a minute is stuck.
    #[allow(clippy::disallowed_methods, reason = "a test's deadline is wall time")]
    fn wait(&mut self, what: &str, done: impl Fn(&Control<'_>) -> bool) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !done(&self.shared) {
            for (place, child) in self.children.iter_mut().enumerate() {
                let gone = child.try_wait().expect("a status");
                assert!(gone.is_none(), "child {place} ended by itself: {gone:?}");
            }
            assert!(std::time::Instant::now() < deadline, "stuck: {what}");
            std::thread::yield_now();
        }
    }

    fn kill_one(&mut self, random: &mut Random) {
        let place = usize::try_from(random.below(PLACES as u64)).expect("small");
        let target = self.shared.progress(place).load(SeqCst) + 1 + random.below(3_000);
        self.wait("before a kill", |s| {
            s.progress(place).load(SeqCst) >= target
        });
        // Some more, not counted in decisions: the kill lands anywhere in one.
        for _ in 0..random.below(2_000) {
            std::hint::spin_loop();
        }
        self.children[place].kill().expect("SIGKILL");
        self.children[place].wait().expect("a status");
        self.children[place] = self.start(place);
    }

    fn progress(shared: &Control<'_>) -> u64 {
        (0..PLACES).map(|p| shared.progress(p).load(SeqCst)).sum()
    }
}

/// Counts what a round left behind.
fn verify(table: &Table<RawMem>, shared: &Control<'_>, round: u64, kills: u64) {
    let now = now_ns(round);
    let mut unaccounted = 0;
    let mut own = std::collections::HashMap::new();
    let mut rows = 0;
    let mut cursor = 0;
    let capacity = usize::try_from(table.capacity(0) + table.capacity(1)).expect("small");
    table.scrub(&mut cursor, capacity, now, &mut |row| {
        if row.rule == 0 && row.counts[0].0 == now / SECOND_NS {
            rows += 1;
            own.insert(row.key, u64::from(row.counts[0].1));
        }
    });
    assert_eq!(rows, own.len(), "a key has two live rows");
    for n in 0..KEYS {
        let k = round_key(round, n);
        let reading = table.read(0, k, now);
        let admitted = shared
            .admitted(usize::try_from(round).expect("small"), n)
            .load(SeqCst);
        let own = own.get(&k).copied().unwrap_or(0);
        assert!(admitted <= u64::from(LIMIT), "key {n}: {admitted} admitted");
        assert!(
            admitted <= own,
            "key {n}: admitted {admitted}, counted {own}"
        );
        assert_eq!(reading.remaining, 0, "key {n} has hits left: {reading:?}");
        if n < REMOTE_FROM {
            assert_eq!(reading.used, u64::from(LIMIT), "key {n}");
            assert_eq!(own, u64::from(LIMIT), "key {n}");
        } else {
            assert!(
                (own..=own + REMOTE_TOTAL).contains(&reading.used),
                "key {n}: {reading:?}"
            );
        }
        unaccounted += own - admitted;
    }
    assert!(
        unaccounted <= kills,
        "{unaccounted} hits counted but not admitted, {kills} kills"
    );
}

fn stress(rounds: usize, kills_per_round: u64) {
    let seed = u64::from(std::process::id()) << 20 | 0x5_1d;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let path = std::env::temp_dir().join(format!("gabion-killed-{}-{rounds}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    file.expect("a new file")
        .set_len((CONTROL_BYTES + TABLE_BYTES) as u64)
        .expect("its size");
    let map = map_file(&path);
    let table = Table::format(table_memory(&map), &rules()).expect("a table");
    let mut family = Family {
        path,
        shared: control(&map),
        children: Vec::new(),
    };
    for place in 0..PLACES {
        let child = family.start(place);
        family.children.push(child);
    }
    for round in 0..rounds as u64 {
        for _ in 0..kills_per_round {
            family.kill_one(&mut random);
        }
        let target = Family::progress(&family.shared) + 40_000;
        family.wait("after the kills", |s| {
            let exhausted =
                (0..KEYS).all(|n| table.read(0, round_key(round, n), now_ns(round)).remaining == 0);
            exhausted && Family::progress(s) >= target
        });
        let pause = round * 2 + 1;
        family.shared.phase().store(pause, SeqCst);
        family.wait("pause", |s| {
            (0..PLACES).all(|p| s.paused(p).load(SeqCst) == pause)
        });
        verify(&table, &family.shared, round, kills_per_round);
        family.shared.phase().store(pause + 1, SeqCst);
    }
    for child in &mut family.children {
        child.kill().expect("SIGKILL");
        child.wait().expect("a status");
    }
    std::fs::remove_file(&family.path).expect("the file goes");
    println!(
        "{rounds} rounds, {kills_per_round} kills each: {:?}",
        table.stats()
    );
    assert_eq!(
        family.shared.fail_opens().load(SeqCst),
        0,
        "there was room for every key"
    );
}

#[test]
fn case_33_survivors_go_on_after_sigkill() {
    stress(12, 4);
}

#[test]
#[ignore = "slow tier: minutes"]
fn case_33_survivors_go_on_after_a_thousand_sigkills() {
    stress(ROUNDS_MAX, 4);
}
