//! The key `attributes`: derived attributes as text and back.
//!
//! I own its grammar in a policy file. I promise that every fault is reported at its place, down to
//! the entry of a list, and that what is printed reads as the same attributes.

use std::fmt::Write as _;

use super::print::scalar;
use super::yaml::{Entry, Node, Pos};
use super::{MapReader, Problems};
use crate::attributes::{Attribute, Attributes, Derivation, LookupTable, Networks};
use crate::duration::shorten;
use crate::error::RuleError;

const KINDS: &str = "client_address, capture, lookup";
/// Bits of a whole IPv6 address.
const WHOLE_IPV6: u8 = 128;

/// Reads `attributes: {NAME: {client_address|capture|lookup: {..}}}`. Faults go to `problems`; what
/// is returned is only of use when there are none.
// spec: attr-1
pub(super) fn read_attributes(map: &mut MapReader<'_, '_>, problems: &Problems) -> Attributes {
    let path = map.path_of("attributes");
    let Some(node) = map.node("attributes") else {
        return Attributes::default();
    };
    let Some(entries) = node.as_map() else {
        let message = format!(
            "{} stands here; a mapping of attributes is expected",
            node.kind()
        );
        problems.at(node.pos, &path, message);
        return Attributes::default();
    };
    let mut read: Vec<(Pos, Attribute)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let path = format!("{path}.{}", shorten(&entry.key));
        if let Some(derivation) = read_derivation(&entry.value, &path, problems) {
            let attribute = Attribute {
                name: entry.key.clone(),
                derivation,
                place: Some(problems.place(entry.pos)),
            };
            read.push((entry.pos, attribute));
        }
    }
    let list = read
        .iter()
        .map(|(_, attribute)| attribute.clone())
        .collect();
    Attributes::new(list).unwrap_or_else(|errors| {
        for (index, error) in errors {
            let at = read.get(index);
            let pos = at.map_or(node.pos, |(pos, _)| *pos);
            let name = at.map_or(String::new(), |(_, a)| format!(".{}", shorten(&a.name)));
            fault(problems, pos, &format!("{path}{name}"), &error);
        }
        Attributes::default()
    })
}

fn read_derivation(node: &Node, path: &str, problems: &Problems) -> Option<Derivation> {
    let mut map = MapReader::new(node, path, problems)?;
    let known = ["client_address", "capture", "lookup"].map(|kind| (kind, map.has(kind)));
    let given: Vec<&'static str> = known.iter().filter(|k| k.1).map(|k| k.0).collect();
    let derivation = match given[..] {
        [kind] => {
            let inner = map.map(kind);
            if inner.is_none() && map.node(kind).is_none() {
                map.problem(kind, "it is empty; a mapping of keys is expected");
            }
            inner.and_then(|inner| match kind {
                "client_address" => read_client_address(inner, problems),
                "capture" => read_capture(inner, problems),
                _ => read_lookup(inner, problems),
            })
        }
        [] => {
            map.problem(
                "",
                format!("it says not how it is derived: write one of {KINDS}"),
            );
            None
        }
        [_, second, ..] => {
            map.problem(second, format!("an attribute has one of {KINDS}"));
            None
        }
    };
    map.finish();
    derivation
}

// spec: attr-6, attr-8
fn read_client_address(mut map: MapReader<'_, '_>, problems: &Problems) -> Option<Derivation> {
    let mut name = |key, default: &str| map.text(key).unwrap_or(default).to_owned();
    let (peer, forwarded) = (name("peer", "peer"), name("forwarded", "forwarded"));
    let trusted = read_networks(&mut map, "trusted_proxies", problems);
    let prefix = map.u64_in("ipv6_prefix", 1..=u64::from(WHOLE_IPV6));
    let prefix = prefix.and_then(|prefix| u8::try_from(prefix).ok());
    map.finish();
    Some(Derivation::ClientAddress {
        peer,
        forwarded,
        trusted_proxies: trusted?,
        ipv6_prefix: prefix.unwrap_or(WHOLE_IPV6),
    })
}

/// A list of networks, or a single one; each bad entry is reported at its place. An absent list is
/// an empty one.
// spec: attr-3
pub(crate) fn read_networks(
    map: &mut MapReader<'_, '_>,
    key: &'static str,
    problems: &Problems,
) -> Option<Networks> {
    let path = map.path_of(key);
    let node = map.node(key);
    let texts = map.texts(key).unwrap_or_default();
    let items = node.and_then(Node::as_list).unwrap_or_default();
    if !items.is_empty() && items.len() != texts.len() {
        return None; // An entry of the wrong kind was reported.
    }
    let errors = match Networks::parse(key, &texts) {
        Ok(networks) => return Some(networks),
        Err(errors) => errors,
    };
    for (index, error) in errors {
        let item = items.get(index);
        let pos = item.or(node).map_or_else(|| map.pos(), |node| node.pos);
        let path = item.map_or(path.clone(), |_| format!("{path}[{index}]"));
        fault(problems, pos, &path, &error);
    }
    None
}

fn read_capture(mut map: MapReader<'_, '_>, problems: &Problems) -> Option<Derivation> {
    let from = map.required_text("from");
    let pattern = map.required_text("pattern");
    let pos = map
        .node("pattern")
        .map_or_else(|| map.pos(), |node| node.pos);
    let path = map.path_of("pattern");
    map.finish();
    match Derivation::capture(from.unwrap_or("-"), pattern?) {
        Ok(capture) => from.map(|_| capture),
        Err(error) => {
            fault(problems, pos, &path, &error);
            None
        }
    }
}

// spec: attr-10
fn read_lookup(mut map: MapReader<'_, '_>, problems: &Problems) -> Option<Derivation> {
    let from = map.required_text("from");
    let path = map.path_of("values");
    let node = map.node("values");
    if node.is_none() {
        map.problem("values", "this key is required");
    }
    map.finish();
    let node = node?;
    let Some(entries) = node.as_map() else {
        let message = format!(
            "{} stands here; a mapping of values is expected",
            node.kind()
        );
        problems.at(node.pos, &path, message);
        return None;
    };
    let pairs: Vec<Option<(&str, &str)>> = entries
        .iter()
        .map(|entry| pair(entry, &path, problems))
        .collect();
    let pairs = pairs.into_iter().collect::<Option<Vec<_>>>()?;
    match LookupTable::new(pairs) {
        Ok(values) => Some(Derivation::Lookup {
            from: from?.to_owned(),
            values,
        }),
        Err(error) => {
            fault(problems, node.pos, &path, &error);
            None
        }
    }
}

fn pair<'e>(entry: &'e Entry, path: &str, problems: &Problems) -> Option<(&'e str, &'e str)> {
    let path = || format!("{path}.{}", shorten(&entry.key));
    let Some(value) = entry.value.as_text() else {
        let message = format!(
            "{} stands here; a single value is expected",
            entry.value.kind()
        );
        problems.at(entry.value.pos, &path(), message);
        return None;
    };
    match LookupTable::check_pair(&entry.key, value) {
        Ok(()) => Some((&entry.key, value)),
        Err(error) => {
            fault(problems, entry.pos, &path(), &error);
            None
        }
    }
}

/// Reports a fault of a text at its place, with what was probably meant.
fn fault(problems: &Problems, pos: Pos, path: &str, error: &RuleError) {
    let (message, suggestion) = match error {
        RuleError::UnknownWord {
            text,
            known,
            suggestion,
            ..
        } => (format!("{text} is none of: {known}"), suggestion.clone()),
        _ => (error.to_string(), None),
    };
    problems.report(problems.place(pos), path, message, suggestion);
}

/// The `attributes:` of a policy file; nothing when there are none. Presets that go stale are named
/// with their date.
pub fn attributes_to_yaml(attributes: &Attributes) -> String {
    let mut out = String::new();
    if !attributes.is_empty() {
        out.push_str("attributes:\n");
    }
    for attribute in attributes.iter() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {}:", scalar(&attribute.name));
        match &attribute.derivation {
            Derivation::ClientAddress {
                peer,
                forwarded,
                trusted_proxies,
                ipv6_prefix,
            } => {
                let _ = writeln!(out, "    client_address:");
                let _ = writeln!(out, "      peer: {}", scalar(peer));
                let _ = writeln!(out, "      forwarded: {}", scalar(forwarded));
                for (name, as_of) in trusted_proxies.dated_presets() {
                    let _ = writeln!(out, "      # preset:{name} as published on {as_of}");
                }
                let entries = trusted_proxies.entries().iter();
                let entries: Vec<String> = entries.map(|entry| scalar(entry)).collect();
                let _ = writeln!(out, "      trusted_proxies: [{}]", entries.join(", "));
                if *ipv6_prefix != WHOLE_IPV6 {
                    let _ = writeln!(out, "      ipv6_prefix: {ipv6_prefix}");
                }
            }
            Derivation::Capture { from, pattern } => {
                let pattern = String::from_utf8_lossy(&pattern.text()).into_owned();
                let (from, pattern) = (scalar(from), scalar(&pattern));
                let _ = writeln!(out, "    capture: {{from: {from}, pattern: {pattern}}}");
            }
            Derivation::Lookup { from, values } => {
                let _ = writeln!(out, "    lookup:\n      from: {}", scalar(from));
                let _ = writeln!(out, "      values:");
                for (key, value) in values.pairs() {
                    let _ = writeln!(out, "        {}: {}", scalar(key), scalar(value));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::parse_limits;
    use proptest::prelude::*;

    const EXAMPLE: &str = r#"
attributes:
  client_ip:
    client_address:
      trusted_proxies: [127.0.0.1, "::1", 10.0.0.0/8, "preset:cloudflare"]
      ipv6_prefix: 64
  peer_ip:
    client_address: {peer: other, forwarded: xff, trusted_proxies: 127.0.0.1}
  registry_id:
    capture: {from: path, pattern: "/packages/*/{}/*"}
  group:
    lookup: {from: registry_id, values: {"42": acme, "43": acme, 7: "umbrella: x"}}
limits: []
"#;

    fn attributes(yaml: &str) -> Attributes {
        let read = parse_limits("p.yaml", yaml);
        read.unwrap_or_else(|e| panic!("{e:?}")).attributes
    }

    fn without_places(attributes: &Attributes) -> Vec<Attribute> {
        let all = attributes.iter().cloned();
        all.map(|one| Attribute { place: None, ..one }).collect()
    }

    #[test]
    fn every_kind_is_read_and_printed_back() {
        let read = attributes(EXAMPLE);
        let names: Vec<&str> = read.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["client_ip", "peer_ip", "registry_id", "group"]);
        let place = read.iter().next().unwrap().place.clone().unwrap();
        assert_eq!(place.to_string(), "p.yaml:3:3");
        let printed = attributes_to_yaml(&read);
        assert!(
            printed.contains("# preset:cloudflare as published on 20"),
            "{printed}"
        );
        let again = attributes(&format!("{printed}limits: []\n"));
        assert_eq!(without_places(&again), without_places(&read), "{printed}");
        assert_eq!(attributes_to_yaml(&Attributes::default()), "");
    }

    fn errors(yaml: &str) -> Vec<String> {
        let read = parse_limits("p.yaml", &format!("limits: []\nattributes:\n{yaml}"));
        read.unwrap_err().iter().map(ToString::to_string).collect()
    }

    const FAULTS: [(&str, &str); 21] = [
        (
            "  a: {client_address: {trusted_proxies: [::1, 10.0.0.1/8]}}",
            "p.yaml:3:47: attributes.a.client_address.trusted_proxies[1]: \
                 trusted_proxies=10.0.0.1/8: 10.0.0.1 is not the first address of a network; its \
                 network is 10.0.0.0/8, its address 10.0.0.1; write the one that is meant",
        ),
        (
            "  a: {client_address: {trusted_proxies: ['preset:cloudflair']}}",
            "did you mean preset:cloudflare?",
        ),
        (
            "  a: {client_address: {trusted_proxy: []}}",
            "p.yaml:3:24: attributes.a.client_address.trusted_proxy: this key is not known; \
                 did you mean trusted_proxies?",
        ),
        (
            "  a: {client_address: {ipv6_prefix: 0}}",
            "attributes.a.client_address.ipv6_prefix: 0 is outside 1 to 128",
        ),
        (
            "  a: {client_address: {trusted_proxies: [{}]}}",
            "a single value is expected",
        ),
        (
            "  a: {client_address: }",
            "attributes.a.client_address: it is empty",
        ),
        (
            "  a: {capture: {from: path}}",
            "attributes.a.capture.pattern: this key is required",
        ),
        (
            "  a: {capture: {pattern: '{}'}}",
            "attributes.a.capture.from: this key is required",
        ),
        (
            "  a: {capture: {from: path, pattern: '/x'}}",
            "write {} once",
        ),
        (
            "  a: {capture: {from: a, pattern: '{}'}}",
            "p.yaml:3:3: attributes.a: ",
        ),
        (
            "  a: {lookup: {from: path}}",
            "attributes.a.lookup.values: this key is required",
        ),
        (
            "  a: {lookup: {from: path, values: {}}}",
            "a lookup has 1 to 100000",
        ),
        (
            "  a: {lookup: {from: path, values: {x: }}}",
            "attributes.a.lookup.values.x: nothing stands here",
        ),
        (
            "  a: {lookup: {from: path, values: {x: ''}}}",
            "p.yaml:3:37: attributes.a.lookup.values.x: ",
        ),
        (
            "  a: {lookup: {from: path, values: [x]}}",
            "a mapping of values is expected",
        ),
        ("  a: {}", "write one of client_address, capture, lookup"),
        ("  a: {captures: {}}", "did you mean capture?"),
        (
            "  a: {lookup: {from: x, values: {a: b}}, capture: {}}",
            "an attribute has one of",
        ),
        ("  a:", "attributes.a: "),
        ("  - a", "a mapping of attributes is expected"),
        (
            "  '': {capture: {from: path, pattern: '{}'}}",
            "a name has 1 to 1024 bytes",
        ),
    ];

    #[test]
    fn every_fault_has_its_place_and_advice() {
        for (yaml, expected) in FAULTS {
            let found = errors(yaml);
            assert!(
                found.iter().any(|e| e.contains(expected)),
                "{yaml}: {found:#?}"
            );
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let found = errors(
            "  a: {client_address: {trusted_proxies: [x, ::1, y]}}\n  b: {capture: {from: a}}",
        );
        assert_eq!(found.len(), 3, "{found:#?}");
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_as_the_same(
            name in "[ -~é]{1,8}", from in "[ -~]{1,8}", before in "[ -~é]{0,8}",
            key in "[ -~\u{85}]{1,8}", value in "\\PC{1,8}"
        ) {
            let pattern = format!("{}/{{}}/*", before.replace("{}", ""));
            let Ok(capture) = Derivation::capture(&from, &pattern) else { return Ok(()) };
            let lookup = Derivation::Lookup {
                from: from.clone(),
                values: LookupTable::new([(&*key, &*value)]).unwrap(),
            };
            let list = [(name.clone(), capture), (format!("{name}2"), lookup)]
                .map(|(name, derivation)| Attribute { name, derivation, place: None })
                .to_vec();
            let Ok(built) = Attributes::new(list) else { return Ok(()) };
            let printed = attributes_to_yaml(&built);
            let again = attributes(&format!("{printed}limits: []\n"));
            prop_assert_eq!(without_places(&again), without_places(&built), "{}", printed);
        }
    }
}
