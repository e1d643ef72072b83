//! Windows that slide and buckets of tokens, in real nginx, by the instance's own clock.

use crate::clock::{in_time, Clock, SECOND_NS};
use crate::server::Nginx;

fn one(rules: &str, location: &str) -> Nginx {
    let http = format!(
        "gabion_limit_zone zone=z:1m; {rules}
         server {{ listen 127.0.0.1:PORT; root DIR/html;
             location = /state {{ gabion off; gabion_status; }}
             location / {{ {location} gabion_log_level info; try_files /x.txt =404; }} }}"
    );
    Nginx::start("2", &http)
}

/// How many of so many requests were admitted; the admitted ones come first.
fn admitted(nginx: &Nginx, path: &str, count: usize) -> usize {
    let statuses = nginx.statuses(path, count);
    let admitted = statuses.iter().take_while(|status| **status == 200).count();
    assert!(
        statuses[admitted..].iter().all(|status| *status == 429),
        "{path}: {statuses:?}"
    );
    admitted
}

#[test]
fn a_live_window_lets_each_bucket_go_when_it_has_left() {
    let nginx = one(
        "gabion_limit_rule live k:$arg_k rate=2r/s window=4s bucket=1s;",
        "gabion_limit live;",
    );
    let clock = Clock::of(&nginx);
    in_time("live", |attempt| {
        let path = format!("/?k={attempt}");
        let first = clock.bucket(SECOND_NS) + 1;
        let ask = |after: u64, count: usize| {
            clock.within(first + after, SECOND_NS, || admitted(&nginx, &path, count))
        };
        // Eight in four seconds: five in the first bucket, three in the second, and it is full.
        assert_eq!(ask(0, 5)?, 5);
        assert_eq!(ask(1, 5)?, 3);
        assert_eq!(ask(3, 1)?, 0);
        assert_eq!(ask(4, 6)?, 5, "the first bucket has left");
        assert_eq!(ask(5, 4)?, 3, "the second, too");
        Some(())
    });
}

#[test]
fn a_strict_window_counts_its_oldest_bucket_whole_and_a_weighted_one_by_its_share() {
    let nginx = one(
        "gabion_limit_rule strict s:$arg_s rate=2r/s window=2s bucket=1s sliding=strict;
         gabion_limit_rule weighted w:$arg_w rate=2r/s window=2s bucket=1s sliding=weighted;
         gabion_limit_rule live l:$arg_l rate=2r/s window=2s bucket=1s sliding=live;",
        "gabion_limit strict weighted live;",
    );
    let clock = Clock::of(&nginx);
    in_time("strict, weighted, live", |attempt| {
        let ask = |key: &str, count| admitted(&nginx, &format!("/?{key}={attempt}"), count);
        let first = clock.bucket(SECOND_NS) + 1;
        let filled = clock.within(first, SECOND_NS, || ["s", "w", "l"].map(|key| ask(key, 5)))?;
        assert_eq!(filled, [4, 4, 4]);
        let full = clock.within(first + 1, SECOND_NS, || {
            ["s", "w", "l"].map(|key| ask(key, 1))
        })?;
        assert_eq!(full, [0, 0, 0]);
        // Two buckets later: live has let it go, strict has not. Weighted counts of four hits the
        // share that is within two seconds, rounded down: at 0.8 of the bucket none, at 0.3 two.
        let third = (first + 2) * SECOND_NS;
        let (strict, live) = clock.within(first + 2, SECOND_NS, || (ask("s", 1), ask("l", 1)))?;
        assert_eq!((strict, live), (0, 1));
        clock.wait_until(third + SECOND_NS * 3 / 10);
        let before = clock.now_ns();
        let weighted = ask("w", 5);
        let after = clock.now_ns();
        if before >= third + SECOND_NS / 2 || after >= third + SECOND_NS / 2 {
            return None;
        }
        // From 0.3 to 0.5 of the bucket, the oldest weighs 2.8 to 2.0: two are counted.
        assert_eq!(weighted, 2);
        let strict = clock.within(first + 3, SECOND_NS, || ask("s", 5))?;
        assert_eq!(strict, 4);
        Some(())
    });
}

#[test]
fn case_18_a_strict_window_never_admits_more_in_any_second() {
    let nginx = one(
        "gabion_limit_rule leaky k:$server_port rate=3r/s window=1s bucket=100ms sliding=strict;",
        "gabion_limit leaky;",
    );
    let clock = Clock::of(&nginx);
    let start_ns = clock.now_ns();
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    for step in 0..40 {
        clock.wait_until(start_ns + step * SECOND_NS / 10);
        let before_ns = clock.now_ns();
        if nginx.get("/").status == 200 {
            admitted.push((before_ns, clock.now_ns()));
        }
    }
    assert!(admitted.len() >= 6, "{admitted:?}");
    for four in admitted.windows(4) {
        // Decided somewhere between: the first not before it was sent, the last not after it came.
        let span_ns = four[3].1 - four[0].0;
        assert!(span_ns >= SECOND_NS, "four within {span_ns} ns");
    }
}

#[test]
fn case_20_a_drained_bucket_gives_back_what_time_has_brought_and_never_more_than_its_depth() {
    let nginx = one(
        "gabion_limit_rule tokens k:$arg_k rate=30r/m burst=5;
         gabion_limit_rule quick q:$arg_q rate=2r/s burst=5;",
        "gabion_limit tokens quick;",
    );
    let clock = Clock::of(&nginx);
    in_time("a token each two seconds", |attempt| {
        let path = format!("/?k={attempt}");
        let before_ns = clock.now_ns();
        assert_eq!(nginx.get(&path).status, 200);
        let after_ns = clock.now_ns();
        let at_once = admitted(&nginx, &path, 5);
        if clock.now_ns() >= before_ns + 2 * SECOND_NS {
            return None;
        }
        assert_eq!(at_once, 4, "five at once");
        // The first hit began the debt of five intervals: two are paid after four seconds.
        clock.wait_until(after_ns + 4 * SECOND_NS);
        let given = admitted(&nginx, &path, 3);
        (clock.now_ns() < before_ns + 6 * SECOND_NS).then(|| assert_eq!(given, 2))
    });
    in_time("idle for long", |attempt| {
        let path = format!("/?q={attempt}");
        assert!(admitted(&nginx, &path, 6) >= 5);
        clock.wait_until(clock.now_ns() + 4 * SECOND_NS);
        let before_ns = clock.now_ns();
        let given = admitted(&nginx, &path, 6);
        (clock.now_ns() < before_ns + SECOND_NS / 2).then(|| assert_eq!(given, 5))
    });
}

#[test]
fn case_51_two_windows_on_one_key_are_two_counters() {
    let nginx = one(
        "gabion_limit_rule long k:$arg_k rate=50r/w; gabion_limit_rule short k:$arg_k rate=40r/d;",
        "gabion_limit long short;",
    );
    assert_eq!(admitted(&nginx, "/?k=x", 45), 40);
    let denied = nginx.get("/?k=x");
    assert_eq!(denied.header("RateLimit-Name"), Some("short"));
    assert_eq!(
        (
            nginx.count("long", "passed"),
            nginx.count("short", "passed")
        ),
        (40, 40)
    );
}

#[test]
fn case_22_the_wait_of_a_denied_burst_is_that_of_one_token() {
    let nginx = one(
        "gabion_limit_rule wide k:$arg_k rate=60r/m burst=50;",
        "gabion_limit wide;",
    );
    let mut denied = None;
    for _ in 0..5_000 {
        let response = nginx.get("/?k=x");
        if response.status == 429 {
            denied = Some(response);
            break;
        }
    }
    // A token comes each second, though the bucket is fifty of them deep.
    assert_eq!(denied.expect("a denial").number("Retry-After"), 1);
}
