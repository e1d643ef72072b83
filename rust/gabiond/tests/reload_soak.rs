//! Many reloads under load: for every key exactly the limit is admitted, and no request fails.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gabion_server::config::{Config, Variables};
use gabion_server::member::Member;
use gabion_server::protocol::{descriptor, request, Code};
use gabion_server::reload::Counts;
use gabion_server::tally::Cause;

const KEYS: usize = 300;
const LIMIT: u64 = 1_000;
const THREADS: usize = 4;
const RELOADS: usize = 50;

/// Five layouts of the same two rules: other rules before, between and behind them, another size of
/// the table, other limits beside them. Of the rules that are counted nothing changes: a fixed
/// window, and a sliding one.
fn config(variant: usize) -> Config {
    let fixed =
        format!("{{name: fixed, domain: d, rate: {LIMIT}r/d, descriptors: [{{key: fixed}}]}}");
    let sliding = format!(
        "{{name: sliding, domain: d, rate: {LIMIT}r/d, bucket: 30m, \
         descriptors: [{{key: sliding}}]}}"
    );
    let other = |name: &str, rate: usize| {
        format!("{{name: {name}, domain: d, rate: {rate}r/h, descriptors: [{{key: {name}}}]}}")
    };
    let rules = match variant % 5 {
        0 => [fixed, sliding].join(", "),
        1 => [other("x", 5), sliding, fixed].join(", "),
        2 => [other("x", 9), sliding, fixed].join(", "), // the same layout as before
        3 => [sliding, other("y", 4), other("z", 3), fixed].join(", "),
        _ => [fixed, other("x", 7), sliding].join(", "),
    };
    let mebibytes = if variant % 10 < 5 { 16 } else { 24 };
    let text = format!("limits: [{rules}]\nstorage: {{table_bytes: {mebibytes}MiB}}\n");
    Config::parse("soak", &text, &Variables::default()).unwrap()
}

struct Load<'m> {
    member: &'m Member,
    admitted: Vec<AtomicU64>,
    denied: AtomicU64,
    stop: AtomicBool,
}

impl Load<'_> {
    fn answers(&self) -> u64 {
        let admitted = self.admitted.iter().map(|a| a.load(Ordering::Relaxed));
        admitted.sum::<u64>() + self.denied.load(Ordering::Relaxed)
    }

    /// One hit for counter `i`; whether it passed.
    fn hit(&self, i: usize) -> bool {
        let key = if i % 2 == 0 { "fixed" } else { "sliding" };
        let value = (i / 2).to_string();
        let answer = self
            .member
            .engine()
            .answer(&request("d", vec![descriptor(&[(key, &value)])]));
        assert_eq!(answer.statuses.len(), 1);
        let passed = answer.overall_code() == Code::Ok;
        if passed {
            self.admitted[i].fetch_add(1, Ordering::Relaxed);
        } else {
            self.denied.fetch_add(1, Ordering::Relaxed);
        }
        passed
    }

    /// Hits counters in an order of its own. Once one denied, it denies for ever.
    fn run(&self, seed: usize) {
        let mut spent = vec![false; 2 * KEYS];
        let mut i = seed * 97;
        while !self.stop.load(Ordering::Relaxed) {
            i = (i + 7 + seed) % (2 * KEYS);
            let passed = self.hit(i);
            assert!(
                !(passed && spent[i]) || self.member_raced(),
                "counter {i} was exhausted and is open again"
            );
            spent[i] |= !passed;
        }
    }

    fn member_raced(&self) -> bool {
        self.member.engine().tally().of_cause(Cause::ReloadRace) > 0
    }
}

/// What the reloads did.
#[derive(Default)]
struct Done {
    kept: usize,
    carried: usize,
    longest: Duration,
}

/// Reloads again and again, with some hits between any two.
fn reload(load: &Load<'_>) -> Done {
    let mut done = Done::default();
    for variant in 1..=RELOADS {
        let (before, start) = (load.answers(), Instant::now());
        while load.answers() < before + 5_000 && start.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        let applied = load.member.apply(config(variant)).unwrap();
        done.longest = done.longest.max(applied.took);
        match applied.counts {
            Counts::Kept => done.kept += 1,
            Counts::Carried(rows) => {
                done.carried += 1;
                assert_eq!(rows.left_rows, 0, "{rows:?}");
            }
            Counts::Fresh => panic!("nothing was kept"),
        }
    }
    done
}

#[test]
fn fifty_reloads_under_load_admit_exactly_the_limit() {
    let member = Member::start(config(0)).unwrap();
    let load = Load {
        member: &member,
        admitted: (0..2 * KEYS).map(|_| AtomicU64::new(0)).collect(),
        denied: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let done = std::thread::scope(|scope| {
        for seed in 0..THREADS {
            let load = &load;
            scope.spawn(move || load.run(seed));
        }
        // Also when it fails: or the others would go on for ever.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reload(&load)));
        load.stop.store(true, Ordering::Relaxed);
        done.unwrap()
    });
    // What is left of each counter, alone.
    for i in 0..2 * KEYS {
        while load.hit(i) {}
    }
    assert!(done.kept >= 9 && done.carried >= 39, "{} kept", done.kept);
    let tally = member.engine().tally();
    let undecided = Cause::ALL
        .into_iter()
        .filter(|cause| *cause != Cause::ReloadRace);
    for cause in undecided {
        assert_eq!(tally.of_cause(cause), 0, "{}", cause.name());
    }
    // On a machine that stops a thread for 20 ms in the middle of a decision, its hit may be lost.
    let raced = tally.of_cause(Cause::ReloadRace);
    let admitted = || load.admitted.iter().map(|a| a.load(Ordering::Relaxed));
    assert!(admitted().all(|admitted| admitted >= LIMIT));
    let excess: u64 = admitted().map(|admitted| admitted - LIMIT).sum();
    println!(
        "{} kept, {} carried, longest {:?}, {raced} raced, {excess} in excess, {} denied",
        done.kept,
        done.carried,
        done.longest,
        load.denied.load(Ordering::Relaxed)
    );
    let most = if raced == 0 { 0 } else { RELOADS * THREADS };
    assert!(excess <= most as u64, "{excess} too many; {raced} raced");
}

/// The same over gRPC: 1,000 rules, reloads of both kinds, and no call that fails. How late answers
/// are meanwhile, `tools/bench gabiond --only reload` measures.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_of_a_thousand_rules_fail_no_call() {
    let rules = |n: usize, rate: usize| {
        let rules: Vec<String> = (0..n)
            .map(|i| {
                format!(
                    "{{name: r{i}, domain: d, rate: {}r/d, descriptors: [{{key: k{i}}}]}}",
                    rate + i
                )
            })
            .collect();
        format!("limits: [{}]\n", rules.join(", "))
    };
    let member = common::Member::start(&rules(1_000, 1_000_000));
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let shared = std::sync::Arc::new((stop, asked));
    let mut clients = Vec::new();
    for seed in 0..4u64 {
        let (mut client, shared) = (member.client().await, std::sync::Arc::clone(&shared));
        clients.push(tokio::spawn(async move {
            let (stop, asked) = &*shared;
            while !stop.load(Ordering::Relaxed) {
                let at = asked.fetch_add(1, Ordering::Relaxed);
                let key = format!("k{}", (at * 13 + seed) % 1_000);
                let value = (at % 50).to_string();
                let ask = request("d", vec![descriptor(&[(&key, &value)])]);
                client.should_rate_limit(ask).await.unwrap();
            }
        }));
    }
    let path = member.scratch.0.join("gabiond.yaml");
    let (stop, asked) = &*shared;
    for round in 0..10usize {
        let n = if round % 2 == 0 { 1_001 } else { 1_000 };
        let text = format!("{}{}", common::PORTS, rules(n, 1_000_000 + round));
        std::fs::write(path.with_extension("part"), text).unwrap();
        std::fs::rename(path.with_extension("part"), &path).unwrap();
        let (status, _, said) = member.send("POST", "/reload", "");
        assert_eq!(status, 200, "{said}");
        let before = asked.load(Ordering::Relaxed);
        while asked.load(Ordering::Relaxed) < before + 100 {
            let ended = clients.iter().any(|client| client.is_finished());
            assert!(!ended, "a call failed");
            tokio::task::yield_now().await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
}
