//! Derived attributes of whole configurations, and requests against them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

fn attribute(name: &str, derivation: Derivation) -> Attribute {
    Attribute {
        name: name.to_owned(),
        derivation,
        place: None,
    }
}

fn client_ip(name: &str, trusted: &[&str], ipv6_prefix: u8) -> Attribute {
    attribute(
        name,
        Derivation::ClientAddress {
            peer: "peer".to_owned(),
            forwarded: "forwarded".to_owned(),
            trusted_proxies: Networks::parse("trusted_proxies", trusted).unwrap(),
            ipv6_prefix,
        },
    )
}

fn capture(name: &str, from: &str, pattern: &str) -> Attribute {
    attribute(name, Derivation::capture(from, pattern).unwrap())
}

fn lookup(name: &str, from: &str, values: &[(&str, &str)]) -> Attribute {
    let values = LookupTable::new(values.iter().copied()).unwrap();
    let from = from.to_owned();
    attribute(name, Derivation::Lookup { from, values })
}

/// A chain of three over a path, and the client.
fn example() -> Attributes {
    Attributes::new(vec![
        client_ip("client_ip", &["127.0.0.1", "preset:private"], 64),
        // Declared before what it is made from.
        lookup(
            "group",
            "registry_id",
            &[("42", "acme"), ("43", "acme"), ("7", "umbrella")],
        ),
        capture(
            "registry_id",
            "path",
            "/api/v4/virtual_registries/packages/*/{}/*",
        ),
        capture("initial", "group", "{}*"),
        capture("first_byte", "client_ip", "{}.*"),
    ])
    .unwrap()
}

/// The value of an attribute of a request; `!` for one that failed.
fn ask(attributes: &Attributes, request: &[(&str, &str)], name: &str) -> Option<String> {
    let mut names = SourceNames::default();
    let bound = BoundAttributes::bind(attributes, &mut names).unwrap();
    let asked = bound.reference(name.as_bytes(), &mut names).unwrap();
    let raw: Vec<Found<'_>> = names
        .iter()
        .map(|name| {
            let entry = request.iter().find(|(key, _)| key.as_bytes() == name);
            match entry {
                Some((_, "!")) => Found::Failed,
                Some((_, value)) => Found::of(value.as_bytes()),
                None => Found::Absent,
            }
        })
        .collect();
    let source = |slot: u16| raw[usize::from(slot)];
    let resolver = Resolver::new(&bound, &source);
    match resolver.value(asked) {
        Found::Value(value) => Some(String::from_utf8(value.to_vec()).unwrap()),
        Found::Absent => None,
        Found::Failed => Some("!".to_owned()),
    }
}

#[test]
fn attributes_derive_from_each_other_whatever_their_order() {
    let path = "/api/v4/virtual_registries/packages/maven/42/com/x.pom";
    let request = [
        ("peer", "127.0.0.1"),
        ("forwarded", "203.0.113.50"),
        ("path", path),
    ];
    let ask = |name| ask(&example(), &request, name);
    assert_eq!(ask("registry_id").as_deref(), Some("42"));
    assert_eq!(ask("group").as_deref(), Some("acme"));
    assert_eq!(ask("initial").as_deref(), Some("a"));
    assert_eq!(ask("client_ip").as_deref(), Some("203.0.113.50"));
    assert_eq!(ask("first_byte").as_deref(), Some("203"));
    assert_eq!(ask("path").as_deref(), Some(path));
    assert_eq!(ask("peer").as_deref(), Some("127.0.0.1"));
    assert_eq!(ask("user"), None);
}

#[test]
fn an_ipv6_client_is_its_network() {
    let request = [("peer", "10.0.0.1"), ("forwarded", "2001:db8:1:2:3:4:5:6")];
    let found = ask(&example(), &request, "client_ip");
    assert_eq!(found.as_deref(), Some("2001:db8:1:2::/64"));
}

#[test]
fn what_is_absent_or_failed_stays_so() {
    let example = example();
    assert_eq!(ask(&example, &[("path", "/x")], "group"), None);
    let unknown = "/api/v4/virtual_registries/packages/maven/99/x";
    assert_eq!(ask(&example, &[("path", unknown)], "group"), None);
    assert_eq!(ask(&example, &[("path", "")], "path"), None);
    let failed = Some("!".to_owned());
    assert_eq!(ask(&example, &[("path", "!")], "initial"), failed);
    assert_eq!(ask(&example, &[("peer", "!")], "client_ip"), failed);
    assert_eq!(ask(&example, &[("peer", "unix:")], "client_ip"), None);
    assert_eq!(ask(&example, &[], "client_ip"), None);
    let request = [("peer", "10.0.0.1"), ("forwarded", "!")];
    assert_eq!(ask(&example, &request, "client_ip"), failed);
    // Nobody reads what an untrusted public peer sends.
    let request = [("peer", "203.0.113.1"), ("forwarded", "!")];
    assert_eq!(
        ask(&example, &request, "client_ip").as_deref(),
        Some("203.0.113.1")
    );
}

#[test]
fn each_is_computed_once_and_only_when_asked() {
    let mut names = SourceNames::default();
    let bound = BoundAttributes::bind(&example(), &mut names).unwrap();
    let group = bound.reference(b"group", &mut names).unwrap();
    let asked = RefCell::new(Vec::new());
    let path = names.find(b"path").unwrap();
    let source = |slot: u16| {
        asked.borrow_mut().push(slot);
        Found::Value(b"/api/v4/virtual_registries/packages/npm/7/x")
    };
    let resolver = Resolver::new(&bound, &source);
    let (first, second) = (resolver.value(group), resolver.value(group));
    assert_eq!(
        (first, second),
        (Found::Value(b"umbrella"), Found::Value(b"umbrella"))
    );
    assert_eq!(*asked.borrow(), [path]);
    assert_eq!(resolver.untrusted_peer(), None);
}

#[test]
fn an_untrusted_private_peer_is_reported_to_the_caller() {
    let attributes = Attributes::new(vec![client_ip("client_ip", &["10.0.0.1"], 128)]).unwrap();
    let mut names = SourceNames::default();
    let bound = BoundAttributes::bind(&attributes, &mut names).unwrap();
    let client = bound.reference(b"client_ip", &mut names).unwrap();
    let peer = names.find(b"peer").unwrap();
    let source = |slot: u16| match slot == peer {
        true => Found::Value(b"10.0.0.2"),
        false => Found::Value(b"203.0.113.50"),
    };
    let resolver = Resolver::new(&bound, &source);
    assert_eq!(resolver.untrusted_peer(), None);
    assert_eq!(resolver.value(client), Found::Value(b"10.0.0.2"));
    assert_eq!(resolver.untrusted_peer(), "10.0.0.2".parse().ok());
}

#[test]
fn a_circle_is_refused_with_its_way() {
    let list = vec![
        capture("a", "path", "/{}"),
        lookup("b", "d", &[("x", "y")]),
        capture("c", "b", "{}"),
        capture("d", "c", "{}"),
        capture("behind", "d", "{}"),
    ];
    let errors = Attributes::new(list).unwrap_err();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].0, 1);
    let text = errors[0].1.to_string();
    assert!(
        text.contains("derives from itself: b from d from c from b"),
        "{text}"
    );
    let errors = Attributes::new(vec![capture("path", "path", "/{}")]).unwrap_err();
    assert!(errors[0].1.to_string().contains("path from path"));
}

#[test]
fn names_and_numbers_are_bounded() {
    let errors = Attributes::new(vec![capture("a", "x", "{}"), capture("a", "y", "{}")]);
    assert!(errors.unwrap_err()[0]
        .1
        .to_string()
        .contains("has this name"));
    for name in ["", "a\nb"] {
        let errors = Attributes::new(vec![capture(name, "x", "{}")]).unwrap_err();
        assert_eq!(errors[0].0, 0, "{name:?}");
    }
    let many = |n: usize| {
        (0..n)
            .map(|i| capture(&format!("a{i}"), "path", "{}"))
            .collect()
    };
    assert!(Attributes::new(many(MAX_DERIVED_ATTRIBUTES)).is_ok());
    assert!(Attributes::new(many(MAX_DERIVED_ATTRIBUTES + 1)).is_err());
    // The longest chain there can be is derived.
    let chain: Vec<Attribute> = (0..MAX_DERIVED_ATTRIBUTES)
        .map(|i| match i {
            0 => capture("a0", "path", "{}"),
            i => capture(&format!("a{i}"), &format!("a{}", i - 1), "{}"),
        })
        .rev()
        .collect();
    let chain = Attributes::new(chain).unwrap();
    assert_eq!(ask(&chain, &[("path", "x")], "a63").as_deref(), Some("x"));
    assert_eq!(chain.sources_of("a63"), ["path"]);
}

#[test]
fn lookups_are_bounded() {
    assert!(LookupTable::new([]).is_err());
    assert!(LookupTable::new([("", "x")]).is_err());
    assert!(LookupTable::new([("x", "")]).is_err());
    let error = LookupTable::new([("x", "1"), ("y", "1"), ("x", "2")]).unwrap_err();
    assert!(error.to_string().contains("twice"), "{error}");
    let keys: Vec<String> = (0..=MAX_LOOKUP_VALUES).map(|n| n.to_string()).collect();
    let pairs = || keys.iter().map(|key| (key.as_str(), "v"));
    assert!(LookupTable::new(pairs()).is_err());
    let table = LookupTable::new(pairs().skip(1)).unwrap();
    assert!(pairs()
        .skip(1)
        .all(|(key, _)| table.get(key.as_bytes()) == Some("v")));
    assert_eq!(table.get(b"0"), None);
}

#[test]
fn files_of_one_configuration_may_declare_the_same_attribute_alike() {
    let client = |trusted: &str| Attributes::new(vec![client_ip("c", &[trusted], 128)]).unwrap();
    let merged = client("10.0.0.1").merge(&client("10.0.0.1")).unwrap();
    assert_eq!(merged, client("10.0.0.1"));
    let errors = client("10.0.0.1").merge(&client("10.0.0.2")).unwrap_err();
    assert_eq!(errors[0].0, 1);
    let merged = example().merge(&client("10.0.0.1")).unwrap();
    assert_eq!(merged.iter().len(), 6);
    assert!(merged.is_derived("c") && !merged.is_derived("peer"));
}

proptest! {
    #[test]
    fn a_lookup_finds_what_was_written(
        pairs in proptest::collection::btree_map("[a-c]{1,3}", "[a-z]{1,3}", 1..20),
        key in "[a-c]{1,3}"
    ) {
        let pairs: BTreeMap<String, String> = pairs;
        let all = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let table = LookupTable::new(all.clone()).unwrap();
        prop_assert_eq!(table.get(key.as_bytes()), pairs.get(&key).map(String::as_str));
        prop_assert!(table.pairs().eq(all));
    }

    #[test]
    fn any_request_is_answered(
        peer in "\\PC{0,20}", forwarded in "\\PC{0,60}", path in "\\PC{0,60}"
    ) {
        let request = [("peer", &*peer), ("forwarded", &*forwarded), ("path", &*path)];
        for name in ["client_ip", "group", "registry_id", "initial", "first_byte", "path"] {
            let found = ask(&example(), &request, name);
            prop_assert!(found.is_none_or(|value| !value.is_empty()));
        }
    }

    /// Any graph of derivations is either refused or ends.
    #[test]
    fn only_circles_are_refused(edges in proptest::collection::vec(0usize..8, 1..8)) {
        let name = |i: usize| format!("a{i}");
        let list: Vec<Attribute> = edges
            .iter()
            .enumerate()
            .map(|(i, to)| capture(&name(i), &name(*to), "{}"))
            .collect();
        // Each has one input: following it for as many steps as there are attributes ends outside,
        // or there is a circle.
        let ends = |mut at: usize| {
            (0..=edges.len()).any(|_| match edges.get(at) {
                Some(to) => {
                    at = *to;
                    false
                }
                None => true,
            })
        };
        let all_end = (0..edges.len()).all(ends);
        let built = Attributes::new(list);
        prop_assert_eq!(built.is_ok(), all_end);
        if let Ok(attributes) = built {
            for i in 0..edges.len() {
                let request: Vec<(String, &str)> = (0..8).map(|i| (name(i), "x")).collect();
                let request: Vec<(&str, &str)> = request.iter().map(|(k, v)| (&**k, *v)).collect();
                let found = ask(&attributes, &request, &name(i));
                prop_assert_eq!(found.as_deref(), Some("x"));
            }
        }
    }
}
