//! From one file to a tree of descriptors.
//!
//! I own the keys of the file format and where they may stand. I promise that no key passes unread:
//! it is taken, refused, or named in a notice.

use super::tree::{Branch, BranchValue, Domain, Limit};
use super::{Options, SourceFile};
use crate::error::{Notice, NoticeKind, Place};
use crate::policy::yaml::{self, nearest, Node};
use crate::policy::{MapReader, PolicyError, Problems};

/// Units with their letters in a native rate. A month has 30 days and a year 365, as there.
const UNITS: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "w"),
    ("month", "mo"),
    ("year", "y"),
];

/// Keys of a descriptor that stand in `rate_limit` by mistake: the service reads over them.
const BESIDE_KEY: [&str; 5] = [
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
];
/// Keys of `rate_limit` that stand in the descriptor by mistake.
const IN_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];

/// The run over one file.
struct Reading<'p, 'n> {
    problems: &'p Problems,
    options: Options,
    notices: &'n mut Vec<Notice>,
}

/// The domain of one file.
///
/// # Errors
/// Every fault of the file that can be found at once.
pub(super) fn domain(
    file: &SourceFile,
    options: Options,
    notices: &mut Vec<Notice>,
) -> Result<Domain, Vec<PolicyError>> {
    let root = yaml::parse_bytes(&file.name, &file.bytes)?;
    let problems = Problems::new(&file.name);
    let mut reading = Reading {
        problems: &problems,
        options,
        notices,
    };
    let domain = reading.domain(&root);
    match domain {
        Some(domain) if problems.is_empty() => Ok(domain),
        _ => Err(problems.into_errors()),
    }
}

impl Reading<'_, '_> {
    fn domain(&mut self, root: &Node) -> Option<Domain> {
        let mut map = MapReader::new(root, "", self.problems)?;
        let name = required(&mut map, "domain").unwrap_or_default().to_owned();
        let place = self.place_of(root.get("domain").unwrap_or(root));
        let branches = self.branches(&mut map);
        map.finish();
        Some(Domain {
            name,
            place,
            branches,
        })
    }

    fn branches(&mut self, map: &mut MapReader<'_, '_>) -> Vec<Branch> {
        let path = map.path_of("descriptors");
        let items = map.list("descriptors").unwrap_or_default();
        let items = items.iter().enumerate();
        items
            .filter_map(|(at, node)| self.branch(node, format!("{path}[{at}]")))
            .collect()
    }

    fn branch(&mut self, node: &Node, path: String) -> Option<Branch> {
        let mut map = MapReader::new(node, &path, self.problems)?;
        let key = required(&mut map, "key").unwrap_or_default().to_owned();
        let value = map.text("value").unwrap_or_default();
        let value = match value.strip_suffix('*') {
            Some(prefix) => BranchValue::Wildcard(prefix.to_owned()),
            None if value.is_empty() => BranchValue::Absent,
            None => BranchValue::Exact(value.to_owned()),
        };
        if key.ends_with('*') && value == BranchValue::Absent {
            map.problem(
                "key",
                "a key that ends in * matches nothing by its beginning here; only values do. \
                 Write the keys out",
            );
        }
        let limit = self.limit(&mut map, &key);
        let shared = flag(&mut map, "share_threshold");
        if shared && !matches!(value, BranchValue::Wildcard(_)) {
            map.problem(
                "share_threshold",
                "only the values of a wildcard share a threshold; write a value that ends in *, \
                 or remove this key",
            );
        }
        let (watch, quota) = (flag(&mut map, "shadow_mode"), flag(&mut map, "quota_mode"));
        let detailed = flag(&mut map, "detailed_metric");
        let measured = flag(&mut map, "value_to_metric");
        let branches = self.branches(&mut map);
        misplaced(&mut map, &IN_LIMIT, "rate_limit");
        map.finish();
        let counts = limit.as_ref().is_some_and(|limit| limit.rate.is_some());
        if (watch || quota) && !counts {
            self.say(
                &key,
                node,
                "shadow_mode and quota_mode say nothing without a limit",
            );
        }
        let place = self.place_of(node);
        Some(Branch {
            key,
            value,
            shared,
            limit,
            watch: watch || self.options.shadow_mode,
            quota: quota || self.options.quota_mode,
            detailed,
            measured,
            branches,
            place,
            path,
        })
    }

    fn limit(&mut self, map: &mut MapReader<'_, '_>, key: &str) -> Option<Limit> {
        if map.has("rate_limit") && map.node("rate_limit").is_none() {
            map.problem(
                "rate_limit",
                "this block is empty; fill it, or remove it to let the descriptor through",
            );
        }
        let node = map.node("rate_limit")?;
        let mut map = map.map("rate_limit")?;
        let unlimited = flag(&mut map, "unlimited");
        let unit = map.text("unit");
        let requests = map.u64_in("requests_per_unit", 0..=u64::from(u32::MAX));
        let name = map.text("name").filter(|name| !name.is_empty());
        let replaces = replaces(&mut map, self.problems, name);
        misplaced(&mut map, &BESIDE_KEY, "the descriptor, beside key");
        let rate = if unlimited {
            if unit.is_some() {
                map.problem(
                    "unit",
                    "an unlimited entry has no unit; remove one of the two",
                );
            }
            if requests.is_some() {
                self.say(
                    key,
                    node,
                    "unlimited: requests_per_unit says nothing beside it",
                );
            }
            None
        } else {
            let unit = unit_of(&mut map, self.problems, unit);
            if map.node("requests_per_unit").is_none() {
                map.problem(
                    "requests_per_unit",
                    "this key is required; 0 denies all, unlimited: true lets all through",
                );
            }
            // What is wrong was reported; the numbers here are never used then.
            let requests = requests.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
            Some((requests, unit.unwrap_or("s")))
        };
        map.finish();
        Some(Limit {
            rate,
            name: name.map(str::to_owned),
            replaces,
        })
    }

    fn say(&mut self, key: &str, node: &Node, what: &str) {
        self.notices.push(Notice {
            rule: key.to_owned(),
            place: Some(self.place_of(node)),
            kind: NoticeKind::Reference {
                what: what.to_owned(),
            },
        });
    }

    fn place_of(&self, node: &Node) -> Place {
        self.problems.place(node.pos)
    }
}

/// A text that must be there and must not be empty.
fn required<'d>(map: &mut MapReader<'d, '_>, key: &'static str) -> Option<&'d str> {
    let text = map.required_text(key);
    if text == Some("") {
        map.problem(key, "it is empty; write a name");
    }
    text
}

/// A switch, in the words that YAML 1.1 has for it.
fn flag(map: &mut MapReader<'_, '_>, key: &'static str) -> bool {
    let Some(text) = map.text(key) else {
        return false;
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" => true,
        "false" | "no" | "off" | "n" => false,
        _ => {
            map.problem(key, "it is neither true nor false");
            false
        }
    }
}

fn unit_of(
    map: &mut MapReader<'_, '_>,
    problems: &Problems,
    text: Option<&str>,
) -> Option<&'static str> {
    let Some(text) = text else {
        if map.node("unit").is_none() {
            map.problem("unit", "this key is required, such as unit: second");
        }
        return None;
    };
    let plain = text.to_ascii_lowercase();
    let found = UNITS.iter().find(|(word, _)| *word == plain);
    if found.is_none() {
        let words = UNITS.map(|(word, _)| word);
        let message = format!("{text} is none of: {}", words.join(", "));
        let pos = map.node("unit").map_or_else(|| map.pos(), |node| node.pos);
        match nearest(&plain, words) {
            Some(near) => problems.at_with(pos, &map.path_of("unit"), message, near),
            None => problems.at(pos, &map.path_of("unit"), message),
        }
    }
    found.map(|(_, letters)| *letters)
}

fn replaces(map: &mut MapReader<'_, '_>, problems: &Problems, own: Option<&str>) -> Vec<String> {
    let path = map.path_of("replaces");
    let mut names = Vec::new();
    let items = map.list("replaces").unwrap_or_default();
    for (at, item) in items.iter().enumerate() {
        let Some(mut map) = MapReader::new(item, &format!("{path}[{at}]"), problems) else {
            continue;
        };
        let name = required(&mut map, "name");
        if name.is_some() && name == own {
            map.problem("name", "a limit cannot replace itself; name another one");
        }
        map.finish();
        names.extend(name.map(str::to_owned));
    }
    names
}

/// Reports keys that the format knows and that have no meaning where they stand.
fn misplaced(map: &mut MapReader<'_, '_>, keys: &[&'static str], home: &str) {
    for key in keys {
        if map.has(key) {
            map.problem(
                key,
                format!("this key has no meaning here; it belongs in {home}"),
            );
        }
    }
}
