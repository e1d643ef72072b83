//! Random files and requests against the search that the service's documentation describes,
//! written as a walk over the file, and against the native YAML that says the same.

use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

/// A descriptor of a random file.
#[derive(Clone, Debug)]
struct Node {
    key: String,
    value: String,
    limit: Option<NodeLimit>,
    share: bool,
    below: Vec<Node>,
}

#[derive(Clone, Debug)]
struct NodeLimit {
    /// Requests per unit; its own in the whole file. `None` is unlimited.
    requests: Option<u32>,
    name: Option<String>,
    replaces: Vec<String>,
}

fn any_limit() -> impl Strategy<Value = NodeLimit> {
    let name = proptest::option::weighted(0.4, "[nm]");
    let replaces = proptest::collection::vec("[nmo]", 0..2);
    (0u32..6, name, replaces).prop_map(|(kind, name, mut replaces)| {
        replaces.retain(|other| Some(other) != name.as_ref());
        NodeLimit {
            requests: (kind > 0).then_some(0),
            name,
            replaces,
        }
    })
}

fn any_level() -> impl Strategy<Value = Vec<Node>> {
    let value = "(|x|xy|x\\*|xy\\*|\\*)";
    let node = (
        "[ab]",
        value,
        proptest::option::weighted(0.7, any_limit()),
        any::<bool>(),
    );
    let node = node.prop_map(|(key, value, limit, share)| Node {
        share: share && value.ends_with('*'),
        key,
        value,
        limit,
        below: Vec::new(),
    });
    let node = node.boxed();
    let leaf = proptest::collection::vec(node.clone(), 0..4);
    leaf.prop_recursive(3, 24, 4, move |inner| {
        proptest::collection::vec((node.clone(), inner), 0..5).prop_map(|nodes| {
            let with_below = |(mut node, below): (Node, Vec<Node>)| {
                node.below = below;
                node
            };
            nodes.into_iter().map(with_below).collect()
        })
    })
}

/// Composite keys once per level, and a limit of its own for each node.
fn tidy_up(level: &mut Vec<Node>, next: &mut u32) {
    let mut seen = std::collections::BTreeSet::new();
    level.retain(|node| seen.insert((node.key.clone(), node.value.clone())));
    for node in level {
        if let Some(requests) = node
            .limit
            .as_mut()
            .and_then(|limit| limit.requests.as_mut())
        {
            *next += 1;
            *requests = *next;
        }
        tidy_up(&mut node.below, next);
    }
}

fn write(level: &[Node], indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    for node in level {
        let _ = writeln!(out, "{pad}- key: {}", node.key);
        if !node.value.is_empty() {
            let _ = writeln!(out, "{pad}  value: '{}'", node.value);
        }
        if node.share {
            let _ = writeln!(out, "{pad}  share_threshold: true");
        }
        if let Some(limit) = &node.limit {
            let _ = writeln!(out, "{pad}  rate_limit:");
            let _ = match limit.requests {
                Some(n) => writeln!(out, "{pad}    unit: day\n{pad}    requests_per_unit: {n}"),
                None => writeln!(out, "{pad}    unlimited: true"),
            };
            if let Some(name) = &limit.name {
                let _ = writeln!(out, "{pad}    name: {name}");
            }
            if !limit.replaces.is_empty() {
                let names: Vec<String> = limit
                    .replaces
                    .iter()
                    .map(|n| format!("{{name: {n}}}"))
                    .collect();
                let _ = writeln!(out, "{pad}    replaces: [{}]", names.join(", "));
            }
        }
        if !node.below.is_empty() {
            let _ = writeln!(out, "{pad}  descriptors:");
            write(&node.below, indent + 2, out);
        }
    }
}

/// The descriptor at which a request's entries end, with what counts of each value: level by level
/// the value, then the first wildcard that fits, then the key alone; and back when a branch ends.
fn walk<'n>(
    level: &'n [Node],
    entries: Entries<'_>,
    counted: &mut Vec<String>,
) -> Option<&'n Node> {
    let ((key, value), rest) = entries.split_first()?;
    let of_key = || level.iter().filter(|node| node.key == *key);
    let exact = of_key().filter(|n| !n.value.is_empty() && n.value == *value);
    let wildcards = of_key().filter(|n| {
        n.value
            .strip_suffix('*')
            .is_some_and(|prefix| value.starts_with(prefix))
    });
    let alone = of_key().filter(|n| n.value.is_empty());
    for node in exact.chain(wildcards).chain(alone) {
        counted.push(if node.share {
            node.value.clone()
        } else {
            (*value).to_owned()
        });
        let found = match rest {
            [] => Some(node),
            rest => walk(&node.below, rest, counted),
        };
        if found.is_some() {
            return found;
        }
        counted.pop();
    }
    None
}

fn expected(tree: &[Node], descriptors: &[Entries<'_>]) -> Vec<Meets> {
    let limit_of = |entries: &Entries<'_>| {
        walk(tree, entries, &mut Vec::new()).and_then(|node| node.limit.as_ref())
    };
    let limits: Vec<Option<&NodeLimit>> = descriptors.iter().map(limit_of).collect();
    let replaced: Vec<&String> = limits.iter().flatten().flat_map(|l| &l.replaces).collect();
    let one = |limit: &Option<&NodeLimit>| match limit {
        // An unlimited entry answers as such whatever replaces it.
        Some(NodeLimit { requests: None, .. }) => Meets::Unlimited,
        Some(NodeLimit {
            name: Some(name), ..
        }) if replaced.contains(&name) => Meets::Nothing,
        Some(NodeLimit {
            requests: Some(n), ..
        }) => Meets::Limit(*n),
        None => Meets::Nothing,
    };
    limits.iter().map(one).collect()
}

/// "Let through" by an entry and by the lack of one are one answer but for `limit_remaining`.
fn limits_only(meets: Vec<Meets>) -> Vec<Option<u32>> {
    let limit = |meets: Meets| match meets {
        Meets::Limit(n) => Some(n),
        _ => None,
    };
    meets.into_iter().map(limit).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn every_request_meets_what_the_documented_search_finds(
        mut tree in any_level(),
        requests in proptest::collection::vec(
            proptest::collection::vec(
                proptest::collection::vec(("[abc]", "(|x|xy|xyz|y)"), 1..4), 1..4),
            1..8),
    ) {
        tidy_up(&mut tree, &mut 0);
        let mut text = String::from("domain: d\n");
        if !tree.is_empty() {
            text += "descriptors:\n";
            write(&tree, 0, &mut text);
        }
        let policy = load(&text);
        let table = table(&policy);
        let printed = to_yaml(&policy.rules);
        let native = parse_limits("n.yaml", &printed)
            .unwrap_or_else(|errors| panic!("{errors:#?}\n{printed}"));
        let native = RuleTable::build(native.rules).unwrap();
        prop_assert_eq!(table.identities(), native.identities());
        prop_assert_eq!(table.digests(), native.digests());
        for descriptors in &requests {
            let pairs: Vec<Vec<(&str, &str)>> = descriptors
                .iter()
                .map(|d| d.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect())
                .collect();
            let entries: Vec<Entries<'_>> = pairs.iter().map(Vec::as_slice).collect();
            let found = request(&table, "d", &entries);
            prop_assert_eq!(&found, &request(&native, "d", &entries));
            prop_assert_eq!(
                limits_only(found), limits_only(expected(&tree, &entries)),
                "{}\n{:?}\n{}", text, entries, printed
            );
            // Two descriptors are counted together exactly when the same entry counts them and
            // what counts of their values is equal.
            for (a, b) in entries.iter().zip(entries.iter().skip(1)) {
                let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
                let (at, bt) = (walk(&tree, a, &mut of_a), walk(&tree, b, &mut of_b));
                let both = at.zip(bt).filter(|(a, b)| a.limit.is_some() && b.limit.is_some());
                if let Some((at, bt)) = both {
                    let same = std::ptr::eq(at, bt) && of_a == of_b;
                    prop_assert_eq!(counter(&table, "d", a) == counter(&table, "d", b), same);
                }
            }
        }
    }

    #[test]
    fn any_cut_or_flip_of_a_file_is_read_or_refused(
        mut tree in any_level(),
        cut in any::<prop::sample::Index>(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        tidy_up(&mut tree, &mut 0);
        let mut text = String::from("domain: d\ndescriptors:\n");
        write(&tree, 0, &mut text);
        let mut bytes = text.into_bytes();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let file = SourceFile { name: "f.yaml".to_owned(), bytes };
        if let Err(errors) = read(&[file], Options::default()) {
            prop_assert!(!errors.is_empty());
            prop_assert!(errors.iter().all(|error| &*error.place.file == "f.yaml"));
        }
    }
}
