//! An API server that fails, in virtual time.

use tokio::time::Instant;

use super::fake::Answer;
use super::*;

fn one(ip: &str) -> serde_json::Value {
    slice("edge", "gossip", 7946, &[(ip, ip)])
}

/// A fake with one peer, and a member that has found it.
async fn settled() -> (Fake, Member) {
    let fake = Fake::default();
    fake.put("here", "edge-1", one("10.0.0.2"));
    let mut member = Member::new(&fake, services(&["edge"]));
    assert_eq!(member.set().await, ["10.0.0.2:7946"]);
    member.quiet(10 * SECOND).await;
    (fake, member)
}

/// Requests since then, by seconds.
fn asked_after(fake: &Fake, then: Instant) -> Vec<f64> {
    let world = fake.world();
    let later = world.asked.iter().filter(|(at, ..)| *at >= then);
    later
        .map(|(at, ..)| at.duration_since(then).as_secs_f64())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn case_45_a_server_away_at_start_is_tried_again_in_seconds() {
    let fake = Fake::default();
    fake.put("here", "edge-1", one("10.0.0.2"));
    fake.world().always = Some(Answer::Refused);
    let mut member = Member::new(&fake, services(&["edge"]));
    member.quiet(60 * SECOND).await;
    let view = member.health.view();
    assert_eq!((view.peers, view.age_s), (None, None));
    let said = member.said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("https://127.0.0.1/, namespace here: no answer: "),
        "{}",
        said[0]
    );
    assert!(said[0].contains("refused"), "{}", said[0]);
    fake.world().always = None;
    let back = Instant::now();
    assert_eq!(member.set().await, ["10.0.0.2:7946"]);
    assert!(back.elapsed() <= 15 * SECOND, "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_hour_without_the_server_loses_no_peer_and_asks_seldom() {
    let (fake, mut member) = settled().await;
    let away = Instant::now();
    fake.world().always = Some(Answer::Refused);
    fake.cut(Some(std::io::ErrorKind::ConnectionReset));
    member.quiet(3_600 * SECOND).await;
    let age_s = member.health.view().age_s.unwrap();
    assert!((3_600.0..3_700.0).contains(&age_s), "{age_s}");
    assert_eq!(member.health.view().peers, Some(1));
    let asked = asked_after(&fake, away);
    assert!((240..=500).contains(&asked.len()), "{}", asked.len());
    let pauses: Vec<f64> = asked.windows(2).map(|two| two[1] - two[0]).collect();
    let long = pauses[8..].iter();
    assert!(
        long.clone().all(|pause| (7.4..=15.1).contains(pause)),
        "{pauses:?}"
    );
    assert!(long.clone().any(|pause| *pause < 9.0), "no jitter");
    assert!(member.said().len() <= 62, "{}", member.said().len());
    // What happened meanwhile counts when the server is back, and its memory is gone.
    fake.remove("here", "edge-1");
    fake.put("here", "edge-2", one("10.0.0.3"));
    let version = fake.world().version;
    fake.world().oldest = version;
    fake.world().always = None;
    let back = Instant::now();
    assert_eq!(member.set().await, ["10.0.0.3:7946"]);
    assert!(back.elapsed() <= 16 * SECOND, "{:?}", back.elapsed());
    assert!(member.health.view().age_s.unwrap() < 1.0);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_the_place_and_say_that_nothing_is_missing() {
    let (fake, mut member) = settled().await;
    // Others change what is not ours; versions are forgotten as they go.
    for _ in 0..40 {
        fake.put("elsewhere", "x", one("10.5.0.1"));
        member.quiet(90 * SECOND).await;
        assert!(member.health.view().age_s.unwrap() <= 61.0);
        let version = fake.world().version;
        fake.world().oldest = version.saturating_sub(3);
    }
    let world = fake.world();
    let watches = world.asked.iter().filter(|(_, watch, _)| *watch).count();
    assert!(watches > 10, "watches end and are opened again: {watches}");
    assert!(world.asked.iter().all(|(.., query)| {
        !query.contains("watch=") || query.contains("allowWatchBookmarks=true")
    }));
    drop(world);
    assert_eq!(fake.lists(), 1, "no version was too old");
    assert_eq!(member.errors("expired"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_is_listed_anew_and_loses_no_peer() {
    let (fake, mut member) = settled().await;
    fake.world().oldest = u64::MAX;
    fake.line(&super::fake::gone());
    fake.cut(None);
    member.quiet(60 * SECOND).await;
    assert!(member.errors("expired") >= 1);
    assert!(member.said().is_empty(), "{:?}", member.said());
    fake.world().oldest = 0;
    // As a status of the answer, too: the same version is not asked for for ever.
    let expired = Answer::status(410, "Expired", "too old");
    fake.world().next.push_back(expired);
    fake.cut(None);
    let lists = fake.lists();
    member.quiet(60 * SECOND).await;
    assert!(fake.lists() > lists);
    fake.put("here", "edge-2", one("10.0.0.3"));
    assert_eq!(member.set().await, ["10.0.0.2:7946", "10.0.0.3:7946"]);
}

#[tokio::test(start_paused = true)]
async fn a_throttling_server_is_given_the_time_it_asks_for() {
    let (fake, mut member) = settled().await;
    let later = Instant::now();
    let slowly = vec![("retry-after", "40")];
    let plain = Answer::Status(
        429,
        slowly,
        "Too many requests, please try again later.".into(),
    );
    fake.world().next.push_back(plain);
    fake.cut(None);
    member.quiet(50 * SECOND).await;
    let asked = asked_after(&fake, later);
    let pause = asked[1] - asked[0];
    assert!((40.0..=44.1).contains(&pause), "{asked:?}");
    assert_eq!(member.errors("throttled"), 1);
    assert!(
        member.said()[0].contains("429 Too many requests"),
        "{:?}",
        member.said()
    );
    // The same in the Status, as for a server that has just started.
    let status = serde_json::json!({
        "kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "storage is (re)initializing", "details": { "retryAfterSeconds": 30 },
    });
    let later = Instant::now();
    let answer = Answer::Status(429, Vec::new(), status.to_string());
    fake.world().next.push_back(answer);
    fake.cut(None);
    member.quiet(40 * SECOND).await;
    let asked = asked_after(&fake, later);
    assert!((30.0..=33.1).contains(&(asked[1] - asked[0])), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn missing_rights_are_told_once_with_the_role_to_create() {
    let (fake, mut member) = settled().await;
    let message = "endpointslices.discovery.k8s.io is forbidden: User \
                   \"system:serviceaccount:here:gabion\" cannot watch resource \"endpointslices\" \
                   in API group \"discovery.k8s.io\" in the namespace \"here\"";
    fake.world().always = Some(Answer::status(403, "Forbidden", message));
    fake.cut(None);
    member.quiet(600 * SECOND).await;
    let said = member.said();
    assert_eq!(said.len(), 1, "{said:?}");
    for part in [
        "namespace here",
        "kind: Role\n",
        "resources: [endpointslices]",
        "verbs: [get, list, watch]",
        "kind: RoleBinding\n",
        "- kind: ServiceAccount\n  name: gabion\n  namespace: here",
    ] {
        assert!(said[0].contains(part), "{part}: {}", said[0]);
    }
    assert!(member.errors("forbidden") > 20);
    assert_eq!(member.health.view().peers, Some(1), "the last peers stay");
    fake.world().always = None;
    fake.put("here", "edge-2", one("10.0.0.3"));
    let given_back = Instant::now();
    assert_eq!(member.set().await, ["10.0.0.2:7946", "10.0.0.3:7946"]);
    assert!(given_back.elapsed() <= 16 * SECOND);
    member.quiet(10 * SECOND).await;
    // Taken away again: that is news.
    fake.world().always = Some(Answer::status(403, "Forbidden", message));
    fake.cut(None);
    member.quiet(10 * SECOND).await;
    assert_eq!(member.said().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn server_errors_and_garbage_are_survived_and_named() {
    let html = "<html>502 Bad Gateway</html>".to_owned();
    let half = "{\"kind\":\"EndpointSliceList\",\"metadata\":{\"resourceVersion\":\"9\"".to_owned();
    let odd = r#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[7]}"#.to_owned();
    let lists = [
        (
            Answer::status(500, "InternalError", "etcd is down"),
            "server_error",
            "500 etcd is down",
        ),
        (
            Answer::Status(503, Vec::new(), String::new()),
            "server_error",
            "503",
        ),
        (
            Answer::Status(502, Vec::new(), html.clone()),
            "server_error",
            "502 <html>",
        ),
        (
            Answer::Status(200, Vec::new(), html),
            "garbage",
            "is this an API server",
        ),
        (
            Answer::Status(200, Vec::new(), half),
            "garbage",
            "is this an API server",
        ),
        (
            Answer::Status(200, Vec::new(), odd),
            "garbage",
            "is this an API server",
        ),
        (Answer::Nothing, "garbage", "is this an API server"),
        (Answer::Endless(b'{'), "unreachable", "a list of more than"),
        (
            Answer::status(403, "Forbidden", "User \"system:anonymous\" cannot list"),
            "unauthorized",
            "the request had no credentials",
        ),
        (
            Answer::status(404, "NotFound", "page not found"),
            "not_found",
            "1.21",
        ),
    ];
    for (answer, kind, part) in lists {
        let fake = Fake::default();
        fake.put("here", "edge-1", one("10.0.0.2"));
        fake.world().next.push_back(answer.clone());
        let mut member = Member::new(&fake, services(&["edge"]));
        assert_eq!(member.set().await, ["10.0.0.2:7946"], "{answer:?}");
        assert_eq!(
            member.errors(kind),
            1,
            "{answer:?}: {:?}",
            member.health.view()
        );
        assert!(
            member.said()[0].contains(part),
            "{answer:?}: {:?}",
            member.said()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn garbage_in_a_watch_is_survived() {
    let (fake, mut member) = settled().await;
    let endless = "x".repeat(5 << 20);
    for (at, line) in [
        "nonsense\n",
        "{\"type\":\"ADDED\",\"object\":7}\n",
        &endless,
    ]
    .iter()
    .enumerate()
    {
        fake.line(line);
        member.quiet(60 * SECOND).await;
        let ip = format!("10.0.0.{}", at + 3);
        fake.put("here", "edge-1", one(&ip));
        assert_eq!(member.set().await, [format!("{ip}:7946")], "{at}");
    }
    assert!(member.errors("garbage") >= 2, "{:?}", member.health.view());
    let long = member
        .said()
        .iter()
        .any(|said| said.contains("an event of more than"));
    assert!(long, "{:?}", member.said());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_off_goes_on_where_it_was() {
    let (fake, mut member) = settled().await;
    for (at, fault) in [
        None,
        Some(std::io::ErrorKind::ConnectionReset),
        Some(std::io::ErrorKind::UnexpectedEof),
        Some(std::io::ErrorKind::TimedOut),
    ]
    .into_iter()
    .enumerate()
    {
        fake.cut(fault);
        let ip = format!("10.0.0.{}", at + 3);
        fake.put("here", "edge-1", one(&ip));
        let cut = Instant::now();
        assert_eq!(member.set().await, [format!("{ip}:7946")], "{fault:?}");
        assert!(cut.elapsed() <= SECOND, "{fault:?}: {:?}", cut.elapsed());
        member.quiet(10 * SECOND).await;
    }
    assert_eq!(fake.lists(), 1);
    assert_eq!(member.errors("reset"), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_is_asked_seldom() {
    let (fake, mut member) = settled().await;
    let later = Instant::now();
    fake.world().always = Some(Answer::Nothing);
    fake.cut(None);
    member.quiet(600 * SECOND).await;
    let asked = asked_after(&fake, later).len();
    assert!((35..=100).contains(&asked), "{asked}");
    fake.world().always = None;
    fake.put("here", "edge-2", one("10.0.0.3"));
    assert_eq!(member.set().await, ["10.0.0.2:7946", "10.0.0.3:7946"]);
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_asks_at_the_same_times() {
    let run = || async {
        let fake = Fake::default();
        fake.world().always = Some(Answer::Refused);
        let began = Instant::now();
        let mut member = Member::new(&fake, services(&["edge"]));
        member.quiet(300 * SECOND).await;
        asked_after(&fake, began)
    };
    assert_eq!(run().await, run().await);
}
