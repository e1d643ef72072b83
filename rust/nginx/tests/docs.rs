//! docs/nginx.md says of every directive what the code says, and its runbook quotes real lines.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gabion_admit::headers::Families;
use gabion_nginx::level::{self, Level};
use gabion_nginx::limits;
use gabion_nginx::settings::{self, Settings};
use gabion_rule::Place;

/// The two directives that nginx's table of commands adds to those of `http` and of a level.
const OWN: [(&str, &str); 2] = [("gabion_reject_body", "H S L"), ("gabion_status", "L")];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn guide() -> String {
    fs::read_to_string(root().join("docs/nginx.md")).expect("the guide")
}

/// Cells of the rows of a section's table, without backticks.
fn rows(section: &str) -> Vec<Vec<String>> {
    let guide = guide();
    let (_, rest) = guide
        .split_once(&format!("\n## {section}\n"))
        .expect(section);
    let end = rest.find("\n## ").unwrap_or(rest.len());
    let lines = rest[..end].lines().filter(|line| line.starts_with('|'));
    lines
        .skip(2) // the head
        .map(|line| {
            let line = line.replace("\\|", "\u{1}");
            let cells = line.trim_matches('|').split('|');
            cells
                .map(|cell| cell.replace('\u{1}', "|").trim().to_owned())
                .collect()
        })
        .collect()
}

struct Row {
    words: String,
    default: String,
    contexts: String,
}

fn reference() -> BTreeMap<String, Row> {
    let mut all = BTreeMap::new();
    for cells in rows("Directives") {
        let [syntax, default, contexts, _] = &cells[..] else {
            panic!("four cells: {cells:?}");
        };
        let syntax = syntax.trim_matches('`');
        let (name, words) = syntax.split_once(' ').expect("a directive with its words");
        let row = Row {
            words: words.to_owned(),
            default: default.trim_matches('`').to_owned(),
            contexts: contexts.clone(),
        };
        assert!(
            all.insert(name.to_owned(), row).is_none(),
            "{name} stands there twice"
        );
    }
    all
}

#[test]
fn the_reference_has_every_directive_with_its_contexts_and_no_other() {
    let mut known: BTreeMap<&str, &str> = BTreeMap::from(OWN);
    known.extend(settings::DIRECTIVES.map(|name| (name, "H")));
    known.extend(level::DIRECTIVES.map(|name| (name, "H S L")));
    let reference = reference();
    for (name, contexts) in &known {
        let row = reference
            .get(*name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(row.contexts, *contexts, "{name}");
    }
    for name in reference.keys() {
        assert!(known.contains_key(name.as_str()), "{name} is no directive");
    }
}

#[test]
fn the_reference_says_which_directives_take_several_words() {
    for (name, row) in reference() {
        if OWN.iter().any(|(own, _)| *own == name) {
            continue; // nginx counts their words
        }
        let two = ["\u{1}", "\u{2}"]; // no value of any directive
        let said = match settings::DIRECTIVES.contains(&name.as_str()) {
            true => Settings::default().apply(&name, &two, Place::new("f", 1, 0)),
            false => Level::default().apply(&name, &two),
        };
        let said = said.err().map(|e| e.to_string()).unwrap_or_default();
        let one = said.contains("exactly one value") || said.contains("write gabion on");
        let pair = row.words == "KEY TEXT";
        let several = pair || row.words.contains("...") || row.words.contains('[');
        assert_eq!(one, !several, "{name} {}: {said}", row.words);
    }
}

/// A size or a number as nginx users write it.
fn short(bytes: u64) -> String {
    match bytes {
        _ if bytes % 1_024 != 0 => bytes.to_string(),
        _ => format!("{}k", bytes >> 10),
    }
}

#[test]
fn the_defaults_of_the_reference_are_those_of_the_code() {
    let (settings, level) = (Settings::default(), Level::default());
    let ms = |ns: u64| format!("{}ms", ns / 1_000_000);
    let tunables = &settings.tunables;
    let on = |on: bool| if on { "on" } else { "off" }.to_owned();
    let bps = gabion_rule::limits::DEFAULT_ERROR_BUDGET_PPM / 100;
    let expected = BTreeMap::from([
        ("gabion", on(level.is_on())),
        ("gabion_limit", on(level.names.is_some())),
        ("gabion_domain", on(level.domain.is_some())),
        ("gabion_headers", on(level.families() == Families::ALL)),
        (
            "gabion_reject_status",
            limits::REJECT_STATUS_DEFAULT.to_string(),
        ),
        (
            "gabion_log_level",
            format!("{:?}", level.severity()).to_lowercase(),
        ),
        (
            "gabion_gossip_cluster",
            settings.cluster().text().to_owned(),
        ),
        (
            "gabion_gossip_fanout",
            format!("{:?}", tunables.fanout).to_lowercase(),
        ),
        ("gabion_gossip_target_err_bps", bps.to_string()),
        (
            "gabion_gossip_min_emit_interval",
            ms(tunables.min_emit_interval_ns),
        ),
        (
            "gabion_gossip_heartbeat_interval",
            ms(tunables.heartbeat_ns),
        ),
        (
            "gabion_gossip_packets_per_second",
            tunables.packets_per_second.to_string(),
        ),
        (
            "gabion_discovery_kubernetes",
            on(settings.kubernetes.is_on()),
        ),
        (
            "gabion_discovery_gossip_port",
            gabion_discovery::kubernetes::GossipPort::default().to_string(),
        ),
        (
            "gabion_storage_peer_capacity",
            gabion_node::limits::MAX_PEERS.to_string(),
        ),
        ("gabion_storage_max_cells", tunables.max_cells.to_string()),
        (
            "gabion_storage_max_key_bytes",
            short(settings.key_bytes_max),
        ),
        (
            "gabion_storage_max_descriptor_bytes",
            short(settings.descriptor_bytes_max),
        ),
        ("gabion_status", "json".to_owned()), // what nginx's callback takes for no word
    ]);
    for (name, row) in reference() {
        let default = expected.get(name.as_str()).cloned().unwrap_or_default();
        assert_eq!(row.default, default, "{name}");
    }
}

#[test]
fn every_setting_of_a_rule_stands_in_the_guide() {
    let guide = guide();
    let (_, words) = guide
        .split_once("Words of `gabion_limit_rule`")
        .expect("the words");
    let words = &words[..words.find("\n\n").expect("its end")];
    for setting in gabion_nginx::words::SETTINGS {
        let written =
            words.contains(&format!("`{setting}`")) || words.contains(&format!("`{setting}="));
        assert!(written, "{setting} is missing in: {words}");
    }
}

/// All Rust text of some folders, with line continuations joined.
fn sources(folders: &[&str]) -> String {
    let mut text = String::new();
    let mut open: Vec<PathBuf> = folders.iter().map(|name| root().join(name)).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                text += &fs::read_to_string(&path).expect("a file");
            }
        }
    }
    let mut joined = String::new();
    for line in text.lines() {
        match line.strip_suffix('\\') {
            Some(start) => joined += start.trim_start(),
            None => joined = joined + line.trim_start() + "\n",
        }
    }
    joined.replace("\\\"", "\"")
}

#[test]
fn every_line_of_the_runbook_is_one_that_the_code_writes() {
    let sources = sources(&[
        "rust/nginx/src",
        "rust/driver/src",
        "rust/node/src",
        "rust/table/src",
        "rust/discovery/src",
    ]);
    let runbook = rows("Runbook");
    assert!(runbook.len() > 10, "{runbook:?}");
    for cells in runbook {
        // The parts in backticks; names in quotes and what follows a blank are filled in.
        let quoted = cells[0].split('`').skip(1).step_by(2);
        for part in quoted {
            let fixed = part.split('"').next().unwrap_or(part).trim();
            assert!(sources.contains(fixed), "no such line: {part}");
        }
    }
}

#[test]
fn every_warning_of_a_request_and_of_gossip_stands_in_the_runbook() {
    let runbook: String = rows("Runbook")
        .into_iter()
        .map(|cells| cells[0].clone())
        .collect();
    let sources = sources(&["rust/nginx/src"]);
    let mut found = 0;
    for start in ["self.seldom(", "self.line(\n", " say(\""] {
        for (at, _) in sources.match_indices(start) {
            let rest = &sources[at..(at + 400).min(sources.len())];
            let text = rest.split('"').nth(1).unwrap_or_default();
            if text.starts_with('{') {
                continue; // a text that was made elsewhere
            }
            // The first words; the runbook may leave out how it goes on.
            let words: Vec<&str> = text.split(' ').take(5).collect();
            let words = words.join(" ");
            found += 1;
            assert!(runbook.contains(&words), "the runbook lacks: {text}");
        }
    }
    assert!(found >= 5, "only {found} lines were found");
}
