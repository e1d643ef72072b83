//! What the service answers, asked over real gRPC.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use common::{codes, Member};
use gabion_server::protocol::{
    descriptor, request, Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    Unit,
};

const RULES: &str = "
limits:
- {name: ip, domain: edge, rate: 3r/h, descriptors: [{key: ip}]}
- {name: path, domain: edge, rate: 100r/h, descriptors: [{key: path}]}
- {name: minute, domain: two, rate: 60r/m, window: 1h, limiter: wide, descriptors: [{key: k}]}
- {name: hour, domain: two, rate: 3r/h, limiter: narrow, window: 2h, descriptors: [{key: k}]}
- {name: watched, domain: dry, rate: 2r/h, mode: dry_run, descriptors: [{key: k}]}
- {name: enforced, domain: dry, rate: 5r/d, descriptors: [{key: k}]}
- {name: closed, domain: deny, mode: deny, descriptors: [{key: k}]}
- {name: off, domain: off, rate: 1r/h, mode: disabled, descriptors: [{key: k}]}
- {name: bucket, domain: tokens, rate: 50r/s, burst: 2, descriptors: [{key: k}]}
";

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

fn one(domain: &str, key: &str, value: &str) -> RateLimitRequest {
    request(domain, vec![descriptor(&[(key, value)])])
}

fn remaining(response: &RateLimitResponse) -> Vec<u32> {
    response
        .statuses
        .iter()
        .map(|status| status.limit_remaining)
        .collect()
}

fn limit_name(response: &RateLimitResponse, index: usize) -> Vec<u8> {
    response.statuses[index]
        .current_limit
        .as_ref()
        .unwrap()
        .name
        .to_vec()
}

#[tokio::test]
async fn a_limit_is_a_limit_and_says_so() {
    let member = Member::start(RULES);
    for left in [2, 1, 0] {
        let answer = member.ask(one("edge", "ip", "1.2.3.4")).await;
        assert_eq!(
            (answer.overall_code(), remaining(&answer)),
            (OK, vec![left])
        );
        assert!(answer.response_headers_to_add.is_empty());
    }
    let answer = member.ask(one("edge", "ip", "1.2.3.4")).await;
    assert_eq!(answer.overall_code(), OVER);
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit()), (3, Unit::Hour));
    assert_eq!(&limit.name[..], b"ip");
    let reset = status.duration_until_reset.unwrap();
    assert!(
        (1..=3_600).contains(&reset.seconds) && reset.nanos == 0,
        "{reset:?}"
    );
    let header = |name: &str| {
        let found = answer
            .response_headers_to_add
            .iter()
            .find(|header| header.key == name.as_bytes());
        String::from_utf8(found.unwrap().value.to_vec()).unwrap()
    };
    assert_eq!(header("x-ratelimit-limit"), "3");
    assert_eq!(header("x-ratelimit-remaining"), "0");
    assert_eq!(header("retry-after"), reset.seconds.to_string());
    assert_eq!(
        member
            .ask(one("edge", "ip", "5.6.7.8"))
            .await
            .overall_code(),
        OK,
        "another key"
    );
}

#[tokio::test]
async fn case_12_one_over_its_limit_leaves_the_other_uncharged() {
    let member = Member::start(RULES);
    let both = |hits| RateLimitRequest {
        hits_addend: hits,
        ..request(
            "edge",
            vec![descriptor(&[("ip", "a")]), descriptor(&[("path", "/")])],
        )
    };
    let answer = member.ask(both(3)).await;
    assert_eq!(
        (answer.overall_code(), remaining(&answer)),
        (OK, vec![0, 97])
    );
    for _ in 0..5 {
        let answer = member.ask(both(1)).await;
        assert_eq!(
            (answer.overall_code(), codes(&answer)),
            (OVER, vec![OVER, OK])
        );
        assert_eq!(remaining(&answer), [0, 97]);
    }
    let answer = member.ask(one("edge", "path", "/")).await;
    assert_eq!(remaining(&answer), [96]);
}

#[tokio::test]
async fn case_13_zero_on_a_descriptor_only_reads_and_unset_on_the_request_is_one() {
    let member = Member::start(RULES);
    let hits = |n| RateLimitDescriptor {
        hits_addend: Some(n),
        ..descriptor(&[("ip", "a")])
    };
    let ask = |descriptor, addend| RateLimitRequest {
        hits_addend: addend,
        ..request("edge", vec![descriptor])
    };
    assert_eq!(
        remaining(&member.ask(ask(hits(0), 7)).await),
        [3],
        "0 overrides the request's 7"
    );
    assert_eq!(
        remaining(&member.ask(ask(hits(2), 7)).await),
        [1],
        "so does 2"
    );
    assert_eq!(
        remaining(&member.ask(ask(descriptor(&[("ip", "a")]), 0)).await),
        [0],
        "0 is 1"
    );
    let answer = member.ask(ask(hits(0), 0)).await;
    assert_eq!(
        (answer.overall_code(), remaining(&answer)),
        (OK, vec![0]),
        "reading never denies"
    );
}

#[tokio::test]
async fn case_14_every_descriptor_has_a_status_in_order() {
    let member = Member::start(RULES);
    let answer = member
        .ask(request(
            "edge",
            vec![
                descriptor(&[("nobody", "knows")]),
                descriptor(&[("path", "/")]),
                descriptor(&[("ip", "a"), ("path", "/")]),
                descriptor(&[("ip", "a")]),
                RateLimitDescriptor::default(),
            ],
        ))
        .await;
    assert_eq!(codes(&answer), [OK; 5]);
    let named: Vec<bool> = answer
        .statuses
        .iter()
        .map(|s| s.current_limit.is_some())
        .collect();
    assert_eq!(named, [false, true, false, true, false]);
    assert_eq!(
        (limit_name(&answer, 1), limit_name(&answer, 3)),
        (b"path".into(), b"ip".into())
    );
}

#[tokio::test]
async fn case_15_of_two_rules_the_one_that_denies_is_described() {
    let member = Member::start(RULES);
    for left in [5, 4, 3, 2, 1, 0] {
        let answer = member.ask(one("two", "k", "v")).await;
        assert_eq!(
            (answer.overall_code(), remaining(&answer)),
            (OK, vec![left])
        );
        assert_eq!(
            limit_name(&answer, 0),
            b"hour",
            "the one with the least left"
        );
    }
    let answer = member.ask(one("two", "k", "v")).await;
    assert_eq!(
        (answer.overall_code(), limit_name(&answer, 0)),
        (OVER, b"hour".to_vec())
    );
    let wait = answer.statuses[0].duration_until_reset.unwrap().seconds;
    let retry = answer
        .response_headers_to_add
        .iter()
        .find(|h| h.key == "retry-after".as_bytes())
        .unwrap();
    assert_eq!(retry.value, wait.to_string().into_bytes());
    assert!((1..=7_200).contains(&wait));
}

#[tokio::test]
async fn case_16_a_dry_run_never_denies_and_later_rules_still_do() {
    let member = Member::start(RULES);
    for _ in 0..5 {
        let answer = member.ask(one("dry", "k", "v")).await;
        assert_eq!(
            (answer.overall_code(), limit_name(&answer, 0)),
            (OK, b"enforced".to_vec())
        );
    }
    assert_eq!(member.ask(one("dry", "k", "v")).await.overall_code(), OVER);
    let snapshot = member.snapshot();
    let rule = |name: &str| {
        let rules = snapshot["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["name"] == name).unwrap()["counts"].clone()
    };
    assert_eq!(rule("watched")["allowed"], 2);
    assert_eq!(rule("watched")["would_deny"], 4);
    assert_eq!(
        (
            rule("enforced")["allowed"].clone(),
            rule("enforced")["denied"].clone()
        ),
        (5.into(), 1.into())
    );
}

#[tokio::test]
async fn case_10_deny_denies_all_and_disabled_is_off() {
    let member = Member::start(RULES);
    let answer = member.ask(one("deny", "k", "v")).await;
    assert_eq!((answer.overall_code(), codes(&answer)), (OVER, vec![OVER]));
    for _ in 0..3 {
        let answer = member.ask(one("off", "k", "v")).await;
        assert_eq!(answer.overall_code(), OK);
        assert!(answer.statuses[0].current_limit.is_none());
    }
}

#[tokio::test]
async fn case_21_more_hits_than_the_limit_can_give_change_nothing() {
    let member = Member::start(RULES);
    for hits in [4, 4_000_000_000, u64::from(u32::MAX) + 1, u64::MAX] {
        let greedy = RateLimitDescriptor {
            hits_addend: Some(hits),
            ..descriptor(&[("ip", "a")])
        };
        let modest = descriptor(&[("path", "/")]);
        let answer = member.ask(request("edge", vec![greedy, modest])).await;
        assert_eq!(codes(&answer), [OVER, OK], "{hits}");
        assert_eq!(remaining(&answer), [3, 100], "{hits}");
    }
}

#[tokio::test]
async fn identical_descriptors_in_one_request_are_charged_together() {
    let member = Member::start(RULES);
    let twice = request("edge", vec![descriptor(&[("ip", "a")]); 2]);
    assert_eq!(member.ask(twice.clone()).await.overall_code(), OK);
    assert_eq!(member.ask(twice).await.overall_code(), OVER, "2 + 2 of 3");
    assert_eq!(remaining(&member.ask(one("edge", "ip", "a")).await), [0]);
}

#[tokio::test]
async fn a_token_bucket_denies_for_at_least_a_second() {
    let member = Member::start(RULES);
    let two = RateLimitRequest {
        hits_addend: 2,
        ..one("tokens", "k", "v")
    };
    assert_eq!(member.ask(two.clone()).await.overall_code(), OK);
    let three = RateLimitRequest {
        hits_addend: 3,
        ..two
    };
    let answer = member.ask(three).await;
    assert_eq!(answer.overall_code(), OVER);
    assert!(
        answer.statuses[0].duration_until_reset.unwrap().seconds >= 1,
        "case 19"
    );
}

#[tokio::test]
async fn case_57_bytes_of_any_kind_are_counted_like_any_other_key() {
    let member = Member::start(RULES);
    let long = vec![b'x'; 64 << 10];
    for value in [&b""[..], b"\0", b"a\nb", b"\xff\xfe", &long] {
        let entry = Entry {
            key: "ip".into(),
            value: bytes::Bytes::copy_from_slice(value),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            ..Default::default()
        };
        for expected in [OK, OK, OK, OVER] {
            let answer = member.ask(request("edge", vec![descriptor.clone()])).await;
            assert_eq!(answer.overall_code(), expected, "{} bytes", value.len());
        }
    }
}

#[tokio::test]
async fn order_of_entries_never_matters() {
    let member = Member::start(
        "limits:\n- {name: r, domain: d, rate: 2r/h, descriptors: [{key: a}, {key: b}]}\n",
    );
    let forth = request("d", vec![descriptor(&[("a", "1"), ("b", "2")])]);
    let back = request("d", vec![descriptor(&[("b", "2"), ("a", "1")])]);
    assert_eq!(remaining(&member.ask(forth).await), [1]);
    assert_eq!(remaining(&member.ask(back).await), [0]);
}

#[tokio::test]
async fn what_is_too_much_is_let_through_and_counted_but_for_its_bytes() {
    let bounds =
        "storage: {max_descriptor_count: 2, max_descriptor_bytes: 2k, max_key_bytes: 1k}\n";
    let member = Member::start(&format!("{RULES}{bounds}"));
    let ip = descriptor(&[("ip", "a")]);
    let answer = member.ask(request("edge", vec![ip.clone(); 5])).await;
    assert_eq!((answer.overall_code(), codes(&answer)), (OK, vec![OK; 5]));
    assert_eq!(
        remaining(&member.ask(request("edge", vec![ip.clone()])).await),
        [0],
        "2 counted"
    );
    let long = "x".repeat(1_500);
    for _ in 0..5 {
        let answer = member.ask(one("edge", "ip", &long)).await;
        assert_eq!(
            answer.overall_code(),
            OK,
            "longer than max_key_bytes is skipped"
        );
    }
    let answer = member.ask(one("edge", "ip", &"x".repeat(2_048))).await;
    assert_eq!((answer.overall_code(), codes(&answer)), (OVER, vec![OVER]));
    let many: Vec<(String, String)> = (0..40).map(|i| (format!("k{i}"), "v".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(
        member
            .ask(request("edge", vec![descriptor(&many)]))
            .await
            .overall_code(),
        OK
    );
    let causes = member.snapshot()["fail_open"].clone();
    for (name, count) in [
        ("too_many_descriptors", 3),
        ("key_too_long", 5),
        ("too_large", 1),
        ("too_many_entries", 1),
    ] {
        assert_eq!(causes[name], count, "{name}");
    }
}

#[tokio::test]
async fn a_request_without_domain_or_descriptors_is_an_error_of_the_call() {
    let member = Member::start(RULES);
    let mut client = member.client().await;
    for request in [
        request("", vec![descriptor(&[("ip", "a")])]),
        request("edge", vec![]),
    ] {
        let status = client.should_rate_limit(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
    let causes = member.snapshot()["fail_open"].clone();
    assert_eq!(
        (
            causes["no_domain"].clone(),
            causes["no_descriptors"].clone()
        ),
        (1.into(), 1.into())
    );
}

#[tokio::test]
async fn without_rules_everything_passes() {
    let member = Member::start("limits: []\n");
    assert_eq!(member.ask(one("edge", "ip", "a")).await.overall_code(), OK);
    assert_eq!(member.snapshot()["decisions"]["unmatched_descriptors"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_24_thousands_of_open_calls_are_answered_and_never_too_many_pass() {
    let member = Member::start(RULES);
    let client = member.client().await;
    let calls: Vec<_> = (0..3_000)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                client
                    .should_rate_limit(one("edge", "path", "/"))
                    .await
                    .unwrap()
                    .into_inner()
            })
        })
        .collect();
    let mut allowed = 0;
    for call in calls {
        allowed += u32::from(call.await.unwrap().overall_code() == OK);
    }
    assert_eq!(allowed, 100);
}
