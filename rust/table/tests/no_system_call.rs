//! The decision path makes no system call. The test runs itself under `strace`; two `getppid` calls
//! mark the stretch that is looked at.

mod common;

use std::process::Command;

use common::{charge, fixed, key, strict, sub, START_NS};
use gabion_table::Table;

const CHILD: &str = "GABION_TABLE_TRACED_CHILD";

fn mark() {
    // SAFETY: getppid takes nothing, touches no memory and cannot fail.
    unsafe { libc::getppid() };
}

/// What is traced: 20,000 decisions, warm, new, denied.
fn decide_between_marks() {
    let rules = [sub(1, fixed(100)), sub(2, strict(100, 6))];
    let table = Table::private(1 << 20, &rules).expect("1 MiB holds two rules");
    let run = |from: u64| {
        for n in from..from + 20_000 {
            let k = key(n % 5_000);
            let mut charges = [charge(0, k, 1), charge(1, k, 1)];
            std::hint::black_box(table.decide(&mut charges, START_NS + n * 10_000));
        }
    };
    mark();
    run(0);
    mark();
}

#[test]
fn traced_child() {
    if std::env::var_os(CHILD).is_some() {
        decide_between_marks();
    }
}

#[test]
fn a_decision_makes_no_system_call() {
    let dir = std::env::temp_dir().join(format!("gabion-strace-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the trace");
    let log = dir.join("trace");
    let child = std::env::current_exe().expect("this binary");
    let status = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&log)
        .arg(child)
        .args(["traced_child", "--exact", "--test-threads=1"])
        .env(CHILD, "1")
        .stdout(std::process::Stdio::null())
        .status();
    let status = match status {
        Ok(status) => status,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIPPED: strace is not installed, so system calls were not counted");
            return;
        }
        Err(e) => panic!("strace: {e}"),
    };
    assert!(status.success(), "{status}");
    let text = std::fs::read_to_string(&log).expect("a trace");
    std::fs::remove_dir_all(&dir).expect("the directory goes");

    let lines: Vec<&str> = text.lines().collect();
    let marks: Vec<usize> = (0..lines.len())
        .filter(|i| lines[*i].contains("getppid("))
        .collect();
    assert_eq!(marks.len(), 2, "two marks in the trace");
    // Other threads of the test harness may wake up; only the deciding thread counts.
    let thread = lines[marks[0]].split(' ').next().expect("a thread id");
    let calls: Vec<&&str> = lines[marks[0] + 1..marks[1]]
        .iter()
        .filter(|line| line.split(' ').next() == Some(thread))
        .collect();
    assert!(
        calls.is_empty(),
        "system calls on the decision path: {calls:?}"
    );
}
