//! What answers mean for the peers, with a scripted resolver and virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use tokio::time::timeout;

use super::*;

/// Gives one answer after the other, and the last one for ever; notes when it was asked.
struct Script {
    answers: VecDeque<Answer>,
    asked: Arc<Mutex<Vec<Instant>>>,
}

impl Resolve for Script {
    fn resolve<'r>(&'r mut self, name: &'r str) -> Resolving<'r> {
        assert_eq!(name, "peers.example");
        self.asked.lock().unwrap().push(Instant::now());
        let answer = match self.answers.len() {
            0 => panic!("an empty script"),
            1 => self.answers[0].clone(),
            _ => self.answers.pop_front().unwrap(),
        };
        Box::pin(async move { answer })
    }
}

fn found(addresses: &[&str], ttl_s: u64) -> Family {
    let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
    Family::Found(addresses, Duration::from_secs(ttl_s))
}

fn failed() -> Family {
    Family::Failed("server failure".into())
}

fn v4(addresses: &[&str], ttl_s: u64) -> Answer {
    Answer {
        v4: found(addresses, ttl_s),
        v6: Family::Nothing,
    }
}

const NOTHING: Answer = Answer {
    v4: Family::Nothing,
    v6: Family::Nothing,
};

struct Run {
    sets: PeerStream,
    asked: Arc<Mutex<Vec<Instant>>>,
    said: Arc<Mutex<Vec<String>>>,
}

fn run(answers: impl IntoIterator<Item = Answer>) -> Run {
    let asked = Arc::default();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = said.clone();
    let report: Report = Arc::new(move |error| sink.lock().unwrap().push(error.to_string()));
    let script = Script {
        answers: answers.into_iter().collect(),
        asked: Arc::clone(&asked),
    };
    let peers = DnsPeers::new("peers.example", 7946)
        .resolving(script)
        .reporting(report);
    Run {
        sets: Box::new(peers).peers(),
        asked,
        said,
    }
}

impl Run {
    async fn quiet(&mut self, seconds: u64) {
        let found = timeout(Duration::from_secs(seconds), self.sets.next()).await;
        assert!(found.is_err(), "unexpected set {found:?}");
    }

    async fn next(&mut self) -> Vec<String> {
        let limit = Duration::from_secs(3600);
        let set = timeout(limit, self.sets.next())
            .await
            .expect("no set")
            .expect("it ended");
        set.iter().map(ToString::to_string).collect()
    }

    /// Milliseconds between the questions so far.
    fn pauses_ms(&self) -> Vec<u128> {
        let asked = self.asked.lock().unwrap();
        asked
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).as_millis())
            .collect()
    }
}

#[tokio::test(start_paused = true)]
async fn both_families_are_peers_and_only_changes_are_given() {
    let both = |v4: &[&str]| Answer {
        v4: found(v4, 30),
        v6: found(&["fd00::1"], 20),
    };
    let mut run = run([
        both(&["10.0.0.1"]),
        both(&["10.0.0.1"]),
        both(&["10.0.0.2"]),
    ]);
    assert_eq!(run.next().await, ["10.0.0.1:7946", "[fd00::1]:7946"]);
    assert_eq!(run.next().await, ["10.0.0.2:7946", "[fd00::1]:7946"]);
    assert_eq!(
        run.pauses_ms(),
        [20_000, 20_000],
        "the shorter life decides"
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_to_live_is_bounded_on_both_sides() {
    let mut run = run([v4(&["10.0.0.1"], 0), v4(&["10.0.0.1"], 86_400)]);
    run.next().await;
    run.quiet(150).await;
    // Virtual timers have a grain of one millisecond.
    assert_eq!(run.pauses_ms(), [1_000, 60_000, 60_000]);
}

#[tokio::test(start_paused = true)]
async fn case_45_failures_are_tried_again_in_seconds_and_keep_the_old_peers() {
    let away = Answer {
        v4: failed(),
        v6: failed(),
    };
    let mut script = vec![away.clone(); 5];
    script.push(v4(&["10.0.0.1"], 5));
    script.extend(vec![away; 3]);
    script.push(v4(&["10.0.0.2"], 5));
    let mut run = run(script);
    assert_eq!(run.next().await, ["10.0.0.1:7946"]);
    assert_eq!(run.next().await, ["10.0.0.2:7946"]);
    assert_eq!(
        run.pauses_ms(),
        [1_000, 2_000, 4_000, 5_000, 5_000, 5_000, 1_000, 2_000, 4_000]
    );
    let said = run.said.lock().unwrap();
    assert_eq!(said.len(), 2, "once per outage: {said:?}");
    assert!(
        said[0].contains("peers.example: server failure"),
        "{said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_family_that_fails_never_hides_or_forgets_the_other() {
    let mut run = run([
        Answer {
            v4: found(&["10.0.0.1"], 10),
            v6: failed(),
        },
        Answer {
            v4: found(&["10.0.0.1"], 10),
            v6: found(&["fd00::1"], 10),
        },
        Answer {
            v4: found(&["10.0.0.2"], 10),
            v6: failed(),
        },
        Answer {
            v4: failed(),
            v6: Family::Nothing,
        },
        Answer {
            v4: found(&["10.0.0.2"], 10),
            v6: Family::Nothing,
        },
    ]);
    assert_eq!(run.next().await, ["10.0.0.1:7946"]);
    assert_eq!(run.next().await, ["10.0.0.1:7946", "[fd00::1]:7946"]);
    assert_eq!(
        run.next().await,
        ["10.0.0.2:7946", "[fd00::1]:7946"],
        "the old v6 stays"
    );
    assert_eq!(
        run.next().await,
        ["10.0.0.2:7946"],
        "a clear no is believed beside an answer"
    );
    assert_eq!(run.asked.lock().unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_answers_nothing_is_given_up_only_after_a_while() {
    let mut short = vec![v4(&["10.0.0.1"], 1)];
    short.extend(vec![NOTHING; 4]);
    short.push(v4(&["10.0.0.1"], 60));
    let mut run = run(short);
    assert_eq!(run.next().await, ["10.0.0.1:7946"]);
    run.quiet(100).await;
    assert_eq!(run.said.lock().unwrap().len(), 1);
    let mut run = self::run([v4(&["10.0.0.1"], 1), NOTHING]);
    run.next().await;
    let start = Instant::now();
    assert_eq!(run.next().await, [] as [&str; 0]);
    let waited = start.elapsed().as_secs();
    assert!((30..=36).contains(&waited), "{waited}");
    assert!(run.said.lock().unwrap()[0].contains("it has no address"));
}

#[tokio::test(start_paused = true)]
async fn case_45_a_name_without_addresses_at_start_is_an_empty_set_at_once() {
    let mut run = run([NOTHING, NOTHING, v4(&["10.0.0.1"], 1)]);
    let start = Instant::now();
    assert_eq!(run.next().await, [] as [&str; 0]);
    assert_eq!(start.elapsed().as_millis(), 0);
    assert_eq!(run.next().await, ["10.0.0.1:7946"]);
    assert_eq!(run.pauses_ms(), [1_000, 2_000]);
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_never_answers_is_given_up_in_time() {
    struct Silent;
    impl Resolve for Silent {
        fn resolve<'r>(&'r mut self, _: &'r str) -> Resolving<'r> {
            Box::pin(std::future::pending())
        }
    }
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = said.clone();
    let report: Report = Arc::new(move |error| sink.lock().unwrap().push(error.to_string()));
    let peers = DnsPeers::new("peers.example", 1)
        .resolving(Silent)
        .reporting(report);
    let mut sets = Box::new(peers).peers();
    assert!(timeout(Duration::from_secs(25), sets.next()).await.is_err());
    assert!(said.lock().unwrap()[0].contains("no answer within 10 s"));
}

#[tokio::test(start_paused = true)]
async fn case_44_mapped_and_unusable_addresses_collapse() {
    let answer = Answer {
        v4: found(&["10.0.0.1", "0.0.0.0"], 60),
        v6: found(&["::ffff:10.0.0.1", "ff02::1"], 60),
    };
    let mut run = run([answer]);
    assert_eq!(run.next().await, ["10.0.0.1:7946"]);
}

#[tokio::test(start_paused = true)]
async fn an_address_in_place_of_a_name_is_that_address() {
    let mut sets = Box::new(DnsPeers::new("fd00::7", 9)).peers();
    assert_eq!(
        sets.next().await,
        Some(PeerSet::from(["[fd00::7]:9".parse().unwrap()]))
    );
}

#[test]
fn texts_are_names_with_a_port_or_refused() {
    for good in [
        "gabion.default.svc:7946",
        "gabion.:1",
        "a-b_c:65535",
        "10.0.0.1:1",
    ] {
        assert!(DnsPeers::parse(good).is_ok(), "{good}");
    }
    let long = format!("{}:1", "a".repeat(255));
    for bad in [
        "",
        "name",
        "name:",
        ":7946",
        "name:0",
        "name:65536",
        "na me:1",
        "n/a:1",
        &long,
    ] {
        assert!(DnsPeers::parse(bad).is_err(), "{bad}");
    }
}
