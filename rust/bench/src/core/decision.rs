//! One decision: instructions, allocations, system calls, and what a rejection writes.
//!
//! Counts come from valgrind, as the difference between N and 2N decisions of one program, so that
//! nothing but the decision itself is in them.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{fence, AtomicU64, Ordering};

use gabion_admit::Outcome;
use gabion_rule::{CounterIdentity, KeyHasher, Mode};
use gabion_table::{Charge, Mem, Table};

use crate::limits::{COUNTED_DECISIONS, DECISION_INSTRUCTIONS_MAX};
use crate::report::{Bar, Figure};
use crate::rig::{self, SECOND_NS};
use crate::BenchError;

/// Runs a program under valgrind; gives everything valgrind said.
fn valgrind(tool: &[&str], program: &Path, args: &[&str]) -> Result<String, BenchError> {
    let fail = |what: String| BenchError::Tool {
        program: "valgrind".to_owned(),
        what,
    };
    let mut command = Command::new("valgrind");
    command.args(tool).arg(program).args(args);
    let output = command
        .output()
        .map_err(|e| fail(format!("{e}; install it (`apt-get install valgrind`)")))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(fail(format!(
            "{} ended with {}: {said}",
            program.display(),
            output.status
        )))
    }
}

/// The first number behind `mark`, thousands separators skipped.
fn number_behind(text: &str, mark: &str) -> Option<f64> {
    let behind = text[text.find(mark)? + mark.len()..].trim_start();
    let digits: String = behind
        .chars()
        .take_while(|c| c.is_ascii_digit() || *c == ',')
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

pub(super) const CALLGRIND: [&str; 2] = ["--tool=callgrind", "--callgrind-out-file=/dev/null"];
const MEMCHECK: [&str; 2] = ["--tool=memcheck", "--leak-check=no"];
const SYSCALLS: [&str; 2] = ["--tool=none", "--trace-syscalls=yes"];

/// What one more operation of `program` costs: the difference of two runs, divided.
pub(super) fn per_operation(
    tool: &[&str],
    program: &Path,
    args: impl Fn(u64) -> Vec<String>,
    read: impl Fn(&str) -> Option<f64>,
) -> Result<f64, BenchError> {
    let mut counts = [0.0; 2];
    for (count, n) in counts
        .iter_mut()
        .zip([COUNTED_DECISIONS, 2 * COUNTED_DECISIONS])
    {
        let owned = args(n);
        let borrowed: Vec<&str> = owned.iter().map(String::as_str).collect();
        let said = valgrind(tool, program, &borrowed)?;
        *count = read(&said).ok_or_else(|| {
            BenchError::Void(format!("valgrind's answer is not understood: {said}"))
        })?;
    }
    Ok((counts[1] - counts[0]) / COUNTED_DECISIONS as f64)
}

pub(super) fn instructions(said: &str) -> Option<f64> {
    number_behind(said, "Collected :")
}

fn allocations(said: &str) -> Option<f64> {
    number_behind(said, "total heap usage:")
}

#[allow(clippy::unnecessary_wraps)] // one shape for all readers
fn system_calls(said: &str) -> Option<f64> {
    Some(said.matches("SYSCALL[").count() as f64)
}

/// Warm decisions of the table's own example, key already hashed.
///
/// # Errors
/// Valgrind or the example is missing or failed.
pub fn measure(example: &Path) -> Result<Vec<Figure>, BenchError> {
    if !example.exists() {
        let what = "not built: cargo build --release -p gabion-table --example callgrind_decide";
        return Err(BenchError::Tool {
            program: example.display().to_string(),
            what: what.to_owned(),
        });
    }
    let args = |kind: &str| {
        let kind = kind.to_owned();
        move |n: u64| vec![n.to_string(), kind.clone()]
    };
    // The example's own loop: everything but the decision, as the same code in this program.
    let program = std::env::current_exe()?;
    let loops = |n: u64| vec!["work-loop".to_owned(), n.to_string()];
    let own = per_operation(&CALLGRIND, &program, loops, instructions)?;
    let mut figures = vec![Figure::stated(
        "loop of the example, taken off",
        own,
        "instructions",
    )];
    for (kind, name) in [
        (
            "admit",
            "decision, fixed window, admitted, warm, key hashed",
        ),
        ("deny", "decision, fixed window, denied"),
        ("sliding", "decision, sliding window of 6 closed buckets"),
        ("bucket", "decision, token bucket"),
    ] {
        let cost = per_operation(&CALLGRIND, example, args(kind), instructions)? - own;
        let bar = Bar::AtMost(DECISION_INSTRUCTIONS_MAX);
        figures.push(match kind {
            "admit" | "deny" => Figure::barred(name, cost, "instructions", bar),
            _ => Figure::stated(name, cost, "instructions"),
        });
    }
    for kind in ["admit", "deny", "sliding", "bucket"] {
        let count = per_operation(&MEMCHECK, example, args(kind), allocations)?;
        let name = format!("heap allocations per decision, {kind}");
        figures.push(Figure::barred(name, count, "", Bar::Exactly(0.0)));
        let count = per_operation(&SYSCALLS, example, args(kind), system_calls)?;
        let name = format!("system calls per decision, {kind}");
        figures.push(Figure::barred(name, count, "", Bar::Exactly(0.0)));
    }
    Ok(figures)
}

/// What the example does around each decision: `n` charges made, and their verdicts looked at.
pub fn loop_work(n: u64) -> u64 {
    let (mut allowed, key) = (0u64, rig::key(1));
    for i in 0..n {
        let mut charges = [Charge::new(0, key, 1, Mode::Enforce, 0)];
        let seen = std::hint::black_box(&mut charges);
        let now_ns = std::hint::black_box(SECOND_NS + i * 1_000);
        allowed += u64::from(seen[0].verdict.outcome == Outcome::Allowed && now_ns > 0);
    }
    allowed
}

/// The keyed hash of one descriptor of a 15-byte address, reported apart from the decision.
///
/// # Errors
/// Valgrind is missing or failed.
pub fn measure_hash() -> Result<Vec<Figure>, BenchError> {
    let program = std::env::current_exe()?;
    let args = |n: u64| vec!["work-hash".to_owned(), n.to_string()];
    let cost = per_operation(&CALLGRIND, &program, args, instructions)?;
    Ok(vec![Figure::stated(
        "key hash, one descriptor of 15 bytes",
        cost,
        "instructions",
    )])
}

/// The work of [`measure_hash`]: `n` key hashes.
pub fn hash_work(n: u64) -> u64 {
    let hasher = KeyHasher::new([5; 16]);
    let identity = CounterIdentity([7; 16]);
    let mut sum = 0u64;
    for _ in 0..n {
        let entries: [(&[u8], &[u8]); 1] = [(b"remote_address", b"203.000.113.007")];
        let key = hasher.key(std::hint::black_box(&identity), &entries, 0);
        sum = sum.wrapping_add(key.a);
    }
    sum
}

/// Memory that counts what is written to it.
struct WatchedMem {
    words: Vec<AtomicU64>,
    writes: AtomicU64,
    statistics: AtomicU64,
}

impl WatchedMem {
    fn wrote(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed); // read by the same thread
    }
}

// One thread uses it, so the strongest order is simply the easiest to be right with.
impl Mem for WatchedMem {
    fn load(&self, i: usize) -> u64 {
        self.words[i].load(Ordering::SeqCst)
    }
    fn load_seq(&self, i: usize) -> u64 {
        self.words[i].load(Ordering::SeqCst)
    }
    fn cas(&self, i: usize, old: u64, new: u64) -> Result<u64, u64> {
        self.wrote();
        self.words[i].compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
    }
    fn fetch_or(&self, i: usize, bits: u64) -> u64 {
        self.wrote();
        self.words[i].fetch_or(bits, Ordering::SeqCst)
    }
    fn swap(&self, i: usize, v: u64) -> u64 {
        self.wrote();
        self.words[i].swap(v, Ordering::SeqCst)
    }
    fn fetch_add(&self, i: usize, v: u64) -> u64 {
        self.statistics.fetch_add(1, Ordering::Relaxed);
        self.words[i].fetch_add(v, Ordering::SeqCst)
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
    fn len(&self) -> usize {
        self.words.len()
    }
}

/// Counts what 1,000 rejections of one exhausted key write.
///
/// # Errors
/// [`BenchError`] when there is no table, or the key was not rejected.
pub fn measure_rejection() -> Result<Vec<Figure>, BenchError> {
    const TIMES: u64 = 1_000;
    let (rule, _) = rig::fixed_rule(1, 5, 3_600 * SECOND_NS);
    let words = (0..1 << 16).map(|_| AtomicU64::new(0)).collect();
    let mem = WatchedMem {
        words,
        writes: AtomicU64::new(0),
        statistics: AtomicU64::new(0),
    };
    let table = Table::format(mem, &[rule]).map_err(BenchError::start("table"))?;
    let now_ns = 500_000 * 3_600 * SECOND_NS;
    let decide = |n: u64| {
        let mut charges = [Charge::new(0, rig::key(1), 1, Mode::Enforce, 0)];
        table.decide(&mut charges, now_ns + n).outcome
    };
    // The limit, and the rejection that may leave its mark for this epoch.
    let admitted = (0..6).filter(|n| decide(*n) == Outcome::Allowed).count();
    let before = table.mem().writes.load(Ordering::Relaxed);
    let counted = table.mem().statistics.load(Ordering::Relaxed);
    let denied = (0..TIMES)
        .filter(|n| decide(10 + n) == Outcome::Denied)
        .count() as u64;
    if admitted != 5 || denied != TIMES {
        return Err(BenchError::Void(format!(
            "{admitted} of 5 admitted, {denied} denied"
        )));
    }
    let writes = table.mem().writes.load(Ordering::Relaxed) - before;
    let counted = table.mem().statistics.load(Ordering::Relaxed) - counted;
    let name = "writes to rows by 1,000 rejections";
    Ok(vec![
        Figure::barred(name, writes as f64, "", Bar::Exactly(0.0)),
        Figure::stated("statistics raised by 1,000 rejections", counted as f64, ""),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valgrinds_answers_are_read() {
        assert_eq!(
            number_behind("==1== Collected : 1234", "Collected :"),
            Some(1234.0)
        );
        let heap = "==1==   total heap usage: 1,010 allocs, 9 frees, 1 bytes allocated";
        assert_eq!(allocations(heap), Some(1010.0));
        assert_eq!(
            system_calls("SYSCALL[1,1](0) x\nSYSCALL[1,1](1)"),
            Some(2.0)
        );
        assert_eq!(instructions("nothing"), None);
    }

    #[test]
    fn loops_and_hashes_are_made() {
        assert_eq!(loop_work(7), 7);
        assert_ne!(hash_work(3), 0);
        assert_ne!(hash_work(3), hash_work(4));
    }
}
