//! Matching and hashing on the path of a request allocate nothing, whatever the number of rules,
//! matches and entries. Counted by the allocator of this program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use gabion_rule::attributes::{AttributeRef, Found, Resolver};
use gabion_rule::policy::parse_limits;
use gabion_rule::reference::{read, Options, SourceFile};
use gabion_rule::{DescriptorSpec, KeyHasher, Matches, Rule, RuleSpec, RuleTable};

thread_local! {
    /// Allocations of this thread, so that the test harness's own threads do not count.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // Fails only while the thread is being torn down, when nothing is measured.
    let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: every call is handed to `System` unchanged, which upholds the contract of `GlobalAlloc`;
// counting touches a constant-initialised thread-local cell and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` through this allocator, with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: `ptr` came from `System` through this allocator, with this layout.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

fn rule(name: String, entries: &[(&str, &str)]) -> Rule {
    let descriptors = entries
        .iter()
        .map(|(key, value)| DescriptorSpec {
            key: key.as_bytes().to_vec(),
            value: Some(value.as_bytes().to_vec()),
            ..DescriptorSpec::default()
        })
        .collect();
    let (domain, rate) = (Some("d".to_owned()), Some("10r/s".to_owned()));
    RuleSpec {
        name,
        domain,
        rate,
        descriptors,
        ..RuleSpec::default()
    }
    .build()
    .expect("a valid rule")
    .0
}

fn table(rules: usize) -> RuleTable {
    let mut all: Vec<Rule> = (0..rules)
        .map(|i| rule(format!("r{i}"), &[("path", &format!("/{i}")), ("ip", "*")]))
        .collect();
    // More matches than are kept, over three signatures.
    all.extend((0..20).map(|i| rule(format!("any{i}"), &[("path", "*"), ("ip", "*")])));
    all.extend((0..20).map(|i| rule(format!("pre{i}"), &[("path", "/*"), ("ip", "1*")])));
    RuleTable::build(all).expect("a valid rule")
}

#[test]
fn the_counter_counts() {
    assert_eq!(
        allocations_of(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(9)))),
        1
    );
}

#[test]
fn a_match_and_its_keys_allocate_nothing() {
    for rules in [1, 1_000, 20_000] {
        let table = table(rules);
        let hasher = KeyHasher::derived_from_cluster("c");
        let long = vec![b'x'; 5_000];
        let wide: Vec<(&[u8], &[u8])> = vec![(b"k", &long); 40];
        let mut matches = Matches::new();
        let mut seen = 0usize;
        let allocations = allocations_of(|| {
            let requests: [&[(&[u8], &[u8])]; 5] = [
                &[(b"path", b"/0"), (b"ip", b"1.2.3.4")],
                &[(b"ip", b"1.2.3.4"), (b"path", b"/0")],
                &[(b"ip", &long), (b"path", &long)],
                &[(b"unknown", b"")],
                &wide,
            ];
            for entries in requests {
                let report = table.match_descriptor(b"d", entries, &mut matches);
                seen += report.matched as usize;
                for rule in matches.iter() {
                    let identity = &table.identities()[usize::from(rule)];
                    std::hint::black_box(hasher.key(identity, entries, 0));
                }
                std::hint::black_box(hasher.key(&table.identities()[0], entries, 7));
            }
        });
        assert_eq!(allocations, 0, "{rules} rules");
        assert_eq!(seen, 41 + 41 + 20, "{rules} rules: the requests matched");
    }
}

const PATHS: &str = r#"
domain: d
descriptors:
- key: a
  rate_limit: {unit: day, requests_per_unit: 3, name: n}
  descriptors:
  - {key: b, value: 'x*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 2, replaces: [{name: n}]}}
- {key: a, value: free, rate_limit: {unlimited: true}}
"#;

#[test]
fn paths_shields_replacements_and_shared_counters_allocate_nothing() {
    let file = SourceFile {
        name: "p.yaml".to_owned(),
        bytes: PATHS.into(),
    };
    let mut rules = read(&[file], Options::default())
        .expect("a valid file")
        .rules;
    // Rules that match in any order, one of them behind the unlimited one.
    rules.extend([
        rule("any".to_owned(), &[("a", "*")]),
        rule("b".to_owned(), &[("b", "*")]),
    ]);
    let table = RuleTable::build(rules).expect("valid rules");
    let hasher = KeyHasher::derived_from_cluster("c");
    let mut matches = Matches::new();
    let (mut seen, mut shielded, mut replaced) = (0, 0, 0usize);
    let allocations = allocations_of(|| {
        let requests: [&[(&[u8], &[u8])]; 5] = [
            &[(b"a", b"1"), (b"b", b"xyz")],
            &[(b"a", b"1"), (b"b", b"y")],
            &[(b"a", b"free")],
            &[(b"a", b"1")],
            &[(b"b", b"1"), (b"a", b"1")],
        ];
        for entries in requests {
            let report = table.match_descriptor(b"d", entries, &mut matches);
            seen += report.matched;
            shielded += report.shielded;
            for rule in matches.iter() {
                std::hint::black_box(table.key(&hasher, rule, entries, 0));
                let others = 0..u16::try_from(table.rules().len()).unwrap_or(0);
                replaced += others.filter(|other| table.replaces(rule, *other)).count();
            }
        }
    });
    assert_eq!(allocations, 0);
    assert_eq!(
        (seen, shielded, replaced),
        (6, 1, 1),
        "the requests matched"
    );
}

const DERIVED: &str = r#"
attributes:
  client_ip:
    client_address:
      trusted_proxies: [127.0.0.1, "preset:private", "preset:cloudflare"]
      ipv6_prefix: 56
  registry_id: {capture: {from: path, pattern: "/a/*/{}/*"}}
  group: {lookup: {from: registry_id, values: {"42": acme}}}
  first: {capture: {from: client_ip, pattern: "{}:*"}}
limits:
- name: all
  domain: d
  match: request
  descriptors: [{key: client_ip}, {key: group, fallback: none}, {key: first}]
  rate: 1r/s
  log: {message: no, fields: [client_ip, path, user]}
"#;

#[test]
fn deriving_attributes_and_showing_them_allocates_nothing() {
    let read = parse_limits("p.yaml", DERIVED).expect("a valid policy");
    let table = RuleTable::with_attributes(read.rules, &read.attributes).expect("valid rules");
    let derived: Vec<AttributeRef> = (0..4).map(AttributeRef::Derived).collect();
    let many = format!("2001:db8::1{}", ", 10.0.0.1".repeat(60));
    let garbage = "x,".repeat(50_000);
    let requests: [[&str; 3]; 4] = [
        ["10.0.0.1", &many, "/a/x/42/y"],
        ["[::ffff:10.0.0.1]:80", &garbage, "/a/x/43/y"],
        ["192.0.2.1", &many, ""],
        ["192.168.0.1", "", "/a"],
    ];
    let (mut values_seen, mut shown) = (0, 0);
    let allocations = allocations_of(|| {
        for [peer, forwarded, path] in &requests {
            let source = |slot| {
                Found::of(
                    match table
                        .sources()
                        .iter()
                        .nth(usize::from(slot))
                        .unwrap_or_default()
                    {
                        b"peer" => peer.as_bytes(),
                        b"forwarded" => forwarded.as_bytes(),
                        b"path" => path.as_bytes(),
                        _ => b"",
                    },
                )
            };
            let values = Resolver::new(table.attributes(), &source);
            for attribute in &derived {
                values_seen += usize::from(values.value(*attribute).value().is_some());
            }
            shown += table.log_values(0, &values).len();
        }
    });
    assert_eq!(allocations, 0);
    assert_eq!((values_seen, shown), (8, 7), "values were derived");
}
