//! A decision allocates nothing but the answer's list of statuses.
#![allow(clippy::unwrap_used)] // a test fails by panicking

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use gabion_driver::ClusterClock;
use gabion_rule::policy::parse_limits;
use gabion_rule::{limiter_name, KeyHasher, Order, RuleTable};
use gabion_server::config::{Answers, Observe, Storage, When};
use gabion_server::engine::Engine;
use gabion_server::observe::Observer;
use gabion_server::orders::Known;
use gabion_server::overrides;
use gabion_server::policy::{Policy, PolicyParts};
use gabion_server::protocol::{
    descriptor, request, Code, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitUnit,
};
use gabion_table::{SubSpec, Table};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: `start` came from `System` with this layout.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn engine() -> Engine {
    let rules = "limits:\n\
        - {name: a, domain: d, rate: 1000r/h, descriptors: [{key: k}], metric_values: [k]}\n\
        - {name: b, domain: d, rate: 90r/s, burst: 900, descriptors: [{key: k}]}\n\
        - {name: c, domain: d, rate: 3r/h, descriptors: [{key: tight}]}\n\
        - {name: e, domain: d, rate: 9r/h, descriptors: [{key: flagged}], if_flag: some}\n\
        - {name: skip, domain: d, match: request, descriptors: [], mode: unlimited,\n\
           only_if: [{path: /skip*}], if_flag: by, replaces: [f]}\n\
        - {name: f, domain: d, match: request,\n\
           descriptors: [{key: ip}, {key: group, fallback: x}],\n\
           rate: 3r/h, only_if: [{path: [/a/*, \"/b/*/c\", /skip*]}, {method: POST}],\n\
           except_if: [{ip: {networks: [10.0.0.0/8]}}], unless_flag: some,\n\
           tiers: {by: plan, rates: {gold: 90r/h, free: 2r/h}}, metric_values: [group]}\n\
        - {name: late, domain: d, match: request, descriptors: [{key: ip}], rate: 50r/h,\n\
           charge: {after: response, status: [4*], unless_flag: by}}\n\
        - {name: g, domain: d, match: request, descriptors: [], rate: 900r/h,\n\
           only_if: [{path: \"*\"}], last: true}\n\
        - {name: h, domain: d, match: request, descriptors: [], rate: 900r/h,\n\
           only_if: [{path: \"*\"}]}\n\
        flags: {some: {default: 50%}, by: {default: 50%, by: group}}\n\
        attributes:\n  ip: {client_address: {trusted_proxies: [127.0.0.1], ipv6_prefix: 64}}\n  \
        id: {capture: {from: path, pattern: \"/a/{}/*\"}}\n  \
        group: {lookup: {from: id, values: {one: acme, two: umbrella}}}\n";
    let read = parse_limits("test", rules).unwrap();
    let orders = Arc::<Known>::default();
    let limiter = limiter_name("d", "e");
    orders.take(Order::Era { limiter, era: 7 });
    let rules = RuleTable::with_attributes(read.rules, &read.attributes).unwrap();
    let mut subs: Vec<SubSpec> = rules.rules().iter().map(SubSpec::of).collect();
    subs.extend(overrides::table_specs(100));
    let counters = Arc::new(Table::private(1 << 20, &subs).unwrap());
    let bounds = Storage {
        table_bytes: 1 << 20,
        override_cardinality: None,
        max_descriptor_count: 8,
        max_descriptor_bytes: 4_096,
        max_key_bytes: 4_096,
    };
    let parts = PolicyParts {
        rules: Arc::new(rules),
        hasher: KeyHasher::new([7; 16]),
        counters: Some(counters),
        overrides: true,
        bounds,
        answers: Answers {
            headers: When::Off,
            metadata: When::Off,
            ..Answers::default()
        },
        flags: read.flags,
        orders,
        value_series: 100,
    };
    // Every decision is sampled, and every denial is written down.
    let observe = Observe {
        sample: 1,
        denials_per_second: 1_000,
        ..Observe::default()
    };
    Engine::new(
        Policy::new(parts, None),
        Arc::new(ClusterClock::from_wall_clock()),
    )
    .watched_by(Arc::new(Observer::new(&observe)))
}

/// Allocations of one answer, not counting those that it gives back at its end.
fn allocations(engine: &Engine, request: &RateLimitRequest, expected: Code) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    let answer = engine.answer(request);
    let after = ALLOCATIONS.with(Cell::get);
    assert_eq!(answer.overall_code(), expected);
    after - before
}

#[test]
fn an_answer_allocates_its_statuses_and_nothing_else() {
    let engine = engine();
    drop(engine.policy()); // a thread's first look at the policy takes a slot of its own, for good
    let many: Vec<_> = (0..8)
        .map(|i| descriptor(&[("k", &i.to_string())]))
        .collect();
    let requests = [
        (request("d", vec![descriptor(&[("k", "new")])]), Code::Ok),
        (request("d", vec![descriptor(&[("k", "new")])]), Code::Ok),
        (
            request("d", vec![descriptor(&[("unknown", "x")])]),
            Code::Ok,
        ),
        (request("d", many), Code::Ok),
    ];
    for (request, expected) in &requests {
        assert_eq!(allocations(&engine, request, *expected), 1, "{request:?}");
    }
    for n in 0..20 {
        let value = n.to_string();
        let flagged = request("d", vec![descriptor(&[("flagged", &value)])]);
        assert_eq!(allocations(&engine, &flagged, Code::Ok), 1);
    }
    let own = |hits: u32| {
        let limit = RateLimitOverride {
            requests_per_unit: hits,
            unit: RateLimitUnit::Hour.into(),
        };
        let own = RateLimitDescriptor {
            limit: Some(limit),
            ..descriptor(&[("own", "limit"), ("k", "x")])
        };
        request("d", vec![own])
    };
    for expected in [Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit] {
        assert_eq!(allocations(&engine, &own(2), expected), 1);
    }
    assert_eq!(allocations(&engine, &own(0), Code::OverLimit), 1);
    let tight = request("d", vec![descriptor(&[("tight", "x")])]);
    for expected in [
        Code::Ok,
        Code::Ok,
        Code::Ok,
        Code::OverLimit,
        Code::OverLimit,
    ] {
        assert_eq!(allocations(&engine, &tight, expected), 1);
    }
    let sampled: u64 = engine.observer().latency().read().0.iter().sum();
    assert!(sampled >= 9, "{sampled}: all of these were sampled");
    assert!(
        engine.observer().denials_logged().0 >= 2,
        "and denials noted"
    );
}

#[test]
fn a_policy_with_everything_in_it_allocates_no_more() {
    let engine = engine();
    drop(engine.policy());
    let (mut applied, mut denied) = (0, 0);
    for n in 0..200u32 {
        let path = ["/a/one/x?q", "/a/two/y", "/b/z/c", "/skip/it", "/else"][n as usize % 5];
        let peer = ["127.0.0.1", "192.0.2.1", "2001:db8::1", "10.2.3.4"][n as usize % 4];
        let plan = ["gold", "free", "other"][n as usize % 3];
        let status = ["", "", "404"][n as usize % 3];
        let entries = [
            ("path", path),
            ("peer", peer),
            ("forwarded", "192.0.2.7, 2001:db8:1::7"),
            ("plan", plan),
            ("method", "GET"),
            ("status", status),
        ];
        let asked = request("d", vec![descriptor(&entries)]);
        let before = ALLOCATIONS.with(Cell::get);
        let answer = engine.answer(&asked);
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 1, "{asked:?}");
        applied += u32::from(answer.statuses[0].current_limit.is_some());
        denied += u32::from(answer.overall_code() == Code::OverLimit);
    }
    assert!(applied > 100 && denied > 5, "{applied} {denied}");
}

#[test]
fn the_counter_counts() {
    let before = ALLOCATIONS.with(Cell::get);
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 1);
}
