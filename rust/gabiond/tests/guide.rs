//! Every command and every configuration that the documents show is run, as a reader would, with
//! the ports and paths of this test in place of theirs. A command that this test does not know how
//! to run fails it.
#![allow(clippy::unwrap_used)] // a test fails by panicking

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{gabiond, http, http_get, signal, text, until, Member, Scratch};
use rcgen::{generate_simple_self_signed, CertifiedKey};

const DOCUMENTS: [&str; 3] = ["operating.md", "reference-service.md", "envoy.md"];
/// What commands begin with, where they stand in a line of text.
const STARTS: [&str; 9] = [
    "gabiond ",
    "curl ",
    "systemctl ",
    "openssl ",
    "source ",
    "kill ",
    "./tools/",
    "GET ",
    "POST ",
];
/// The commands of gabiond beside serving.
const COMMANDS: [&str; 7] = [
    "check",
    "explain",
    "import",
    "top",
    "reset",
    "completions",
    "man",
];
const RULES: &str = "limits:
- {name: ip, domain: edge, rate: 100r/m, descriptors: [{key: ip}], if_flag: some}
flags: {some: {default: on}}
json_bind: 127.0.0.1:0
";
const REFERENCE: &str = "domain: mail
descriptors:
- {key: to, rate_limit: {unit: day, requests_per_unit: 3}}
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// A fenced block: its language and its lines.
type Block = (String, String);

/// The fenced blocks of a document, and the text beside them.
fn blocks(document: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut text) = (Vec::<Block>::new(), String::new());
    let mut inside = false;
    for line in document.lines() {
        match (line.strip_prefix("```"), inside) {
            (Some(language), false) => {
                blocks.push((language.to_owned(), String::new()));
                inside = true;
            }
            (Some(_), true) => inside = false,
            (None, true) => blocks.last_mut().unwrap().1 += &format!("{line}\n"),
            (None, false) => text += &format!("{line}\n"),
        }
    }
    assert!(!inside, "a block does not end");
    (blocks, text)
}

/// Spans of code in a text.
fn spans(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Each command of a document once.
fn commands(document: &str) -> BTreeSet<String> {
    let (blocks, text) = blocks(document);
    let mut found = BTreeSet::new();
    for (language, lines) in blocks {
        match &*language {
            "" | "sh" | "bash" => {
                found.extend(lines.replace("\\\n", "").lines().map(str::to_owned))
            }
            "yaml" | "text" => {}
            other => panic!("a block of {other}: say here what becomes of it"),
        }
    }
    let is_command = |span: &&str| {
        let starts = STARTS.iter().any(|start| span.starts_with(start));
        starts && !span.starts_with("gabiond ... ") // a log line
    };
    found.extend(spans(&text).filter(is_command).map(str::to_owned));
    found.retain(|command| !command.trim().is_empty());
    found
}

/// What a synopsis stands for: without its optional parts, and with each form of each of them.
fn forms(command: &str) -> Vec<String> {
    let mut all = Vec::new();
    let program = command.split(' ').next().unwrap();
    for (at, one) in command.split(" | ").enumerate() {
        let one = match at {
            0 => one.to_owned(),
            _ => format!("{program} {one}"),
        };
        let (mut plain, mut optional, mut rest) = (String::new(), Vec::new(), &*one);
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, after) = after.split_once(']').unwrap();
            plain += before;
            optional.push(inside.to_owned());
            rest = after;
        }
        plain += rest;
        all.push(plain.trim().to_owned());
        for part in optional {
            let (option, words) = part.split_once(' ').unwrap_or((&part, ""));
            for word in words.split('|') {
                all.push(
                    format!("{} {option} {word}", plain.trim())
                        .trim()
                        .to_owned(),
                );
            }
        }
    }
    all
}

/// What the documents' commands are run against.
struct World {
    member: Member,
    json: SocketAddr,
    scratch: Scratch,
}

impl World {
    fn new() -> Self {
        let member = Member::start(RULES);
        let ports = std::fs::read_to_string(member.scratch.0.join("ports.json")).unwrap();
        let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
        let scratch = Scratch::new();
        std::fs::create_dir_all(scratch.0.join("ratelimit/config")).unwrap();
        std::fs::create_dir_all(scratch.0.join("man")).unwrap();
        scratch.file("ratelimit/config/mail.yaml", REFERENCE);
        scratch.file("CONFIG.yaml", &format!("{}{RULES}", common::PORTS));
        scratch.file("FILE.toml", "[api.rate_limit]\nglobal_rps = 500\n");
        scratch.file("OLD.yaml", &format!("{}{RULES}", common::PORTS));
        World {
            json: ports["json"].as_str().unwrap().parse().unwrap(),
            member,
            scratch,
        }
    }

    fn path(&self, name: &str) -> String {
        text(&self.scratch.0.join(name)).to_owned()
    }

    /// A word of a document as this test has it.
    fn word(&self, word: &str) -> String {
        match word {
            "CONFIG.yaml" | "OLD.yaml" | "FILE.toml" => self.path(word),
            "DIR" | "/srv/runtime_data/current/ratelimit/config" => self.path("ratelimit/config"),
            "FILE" => self.path("ports.json"),
            "FOLDER" => self.path("man"),
            "LEVEL" => "debug".to_owned(),
            "LIMITER" => "ip".to_owned(),
            "DOMAIN" => "edge".to_owned(),
            "KEY=VALUE" | "key=value,key=value..." => "ip=1.2.3.4".to_owned(),
            plain => {
                let marker = plain.len() > 1 && plain.chars().all(|c| c.is_ascii_uppercase());
                assert!(
                    !marker,
                    "the guide says {plain}: say here what stands for it"
                );
                plain.to_owned()
            }
        }
    }

    fn gabiond(&self, form: &str) {
        let mut words: Vec<String> = form
            .split_whitespace()
            .skip(1)
            .map(|w| self.word(w))
            .collect();
        let first = words[0].clone();
        if form.starts_with("gabiond check FILE ") {
            words[1] = self.path("CONFIG.yaml");
        }
        if words
            .iter()
            .any(|word| word == "--help" || word == "--version")
        {
            return self.runs(form, &words);
        }
        match &*first {
            "top" => words.extend(["-n".to_owned(), "1".to_owned()]),
            "explain" | "reset" => {}
            "check" | "import" | "completions" | "man" => return self.runs(form, &words),
            _ => return self.serves(form, &words),
        }
        words.extend(["--member".to_owned(), self.member.admin.to_string()]);
        self.runs(form, &words);
    }

    /// A command that ends, with a result.
    fn runs(&self, form: &str, words: &[String]) {
        let output = gabiond().args(words).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{form}: {said}");
        let folder = words[0] == "man" && words.len() > 1;
        assert!(folder || !output.stdout.is_empty(), "{form} prints nothing");
    }

    /// A command that serves until it is told to end.
    fn serves(&self, form: &str, words: &[String]) {
        let ports = self.path("ports.json");
        let _ = std::fs::remove_file(&ports);
        let mut command = gabiond();
        command.args(words).stdin(Stdio::null());
        if !words.iter().any(|word| word == "--ports-file") {
            command.args(["--ports-file", &ports]);
        }
        let log = std::fs::File::create(self.scratch.0.join("log")).unwrap();
        let mut child = command
            .envs([
                ("RUNTIME_ROOT", self.path("")),
                ("RUNTIME_SUBDIRECTORY", "ratelimit".into()),
            ])
            .envs(
                ["ENVOY", "ADMIN", "JSON"]
                    .map(|port| (format!("GABION_{port}_BIND"), "127.0.0.1:0")),
            )
            .stderr(log)
            .spawn()
            .unwrap();
        let log = || std::fs::read_to_string(self.scratch.0.join("log")).unwrap();
        let text = until(form, || {
            assert!(
                child.try_wait().unwrap().is_none(),
                "{form} ended: {}",
                log()
            );
            std::fs::read_to_string(&ports).ok()
        });
        let bound: serde_json::Value = serde_json::from_str(&text).unwrap();
        let admin = bound["admin"].as_str().unwrap().parse().unwrap();
        until("it is ready", || {
            (http_get(admin, "/readyz").0 == 200).then_some(())
        });
        signal(&child, "TERM");
        let ended = until("it ends", || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(0), "{form}: {}", log());
    }

    /// A line for a shell that has the binary in its path.
    fn shell(&self, line: &str) -> String {
        let binary = Path::new(env!("CARGO_BIN_EXE_gabiond")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
        let output = Command::new("bash")
            .args(["-c", line])
            .env("PATH", path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A request in the words of the documents, such as `GET /keys?rule=NAME`.
    fn asks(&self, span: &str) {
        let (method, path) = span.split_once(' ').unwrap();
        let path = [
            ("rule=NAME", "rule=ip"),
            ("/flags/NAME", "/flags/some"),
            ("value=V", "value=on"),
            ("limiter=L", "limiter=ip"),
            ("override:UNIT", "override:minute"),
            ("requests=N", "requests=3"),
            ("domain=D", "domain=edge"),
            ("entry=KEY=VALUE", "entry=ip=1.2.3.4"),
        ]
        .iter()
        .fold(path.to_owned(), |path, (from, to)| path.replace(from, to));
        if path == "/json" {
            return; // with a body: the command below it
        }
        let at = if path == "/healthcheck" {
            self.json
        } else {
            self.member.admin
        };
        let (status, _, body) = http(at, method, &path, "");
        assert_eq!(status, 200, "{span}: {body}");
    }

    /// `curl -d BODY HOST:PORT/PATH`, sent by this test.
    fn curl(&self, command: &str) {
        let (_, rest) = command.split_once("-d '").unwrap();
        let (body, url) = rest.split_once("' ").unwrap();
        let (host, path) = url.split_once('/').unwrap();
        assert_eq!(
            host, "localhost:8080",
            "the port that the document gives to {command}"
        );
        let (status, answer) = common::http_post(self.json, &format!("/{path}"), body);
        assert_eq!(status, 200, "{command}: {answer}");
    }

    fn run(&self, command: &str) {
        let first = command.split(' ').next().unwrap();
        match first {
            "gabiond" => forms(command).iter().for_each(|form| self.gabiond(form)),
            "GET" | "POST" => self.asks(command),
            "curl" => self.curl(command),
            "source" => {
                let known = self.shell(&format!("{command} && complete -p gabiond"));
                assert!(known.contains("gabiond"), "{known}");
            }
            "openssl" if Command::new("openssl").arg("version").output().is_err() => {
                println!("not run, as openssl is not here: {command}");
            }
            "openssl" => {
                let bytes: usize = command.rsplit(' ').next().unwrap().parse().unwrap();
                assert_eq!(self.shell(command).trim().len(), 2 * bytes, "{command}");
            }
            "systemctl" => {
                assert_eq!(command, "systemctl reload gabiond");
                let unit = root().join("deploy/systemd/gabiond.service");
                let unit = std::fs::read_to_string(unit).unwrap();
                assert!(unit.contains("ExecReload=") || unit.contains("Type=notify-reload"));
            }
            tool if tool.starts_with("./tools/") => {
                let script = std::fs::read_to_string(root().join(tool)).unwrap();
                let words = command.split(' ').skip(1);
                words.for_each(|word| assert!(script.contains(word), "{command}"));
            }
            other => panic!("the guide says {command}: say here how {other} is run"),
        }
    }
}

#[test]
fn every_command_of_the_documents_does_what_it_says() {
    let world = World::new();
    for name in DOCUMENTS {
        let all = commands(&document(name));
        assert!(name == "envoy.md" || all.len() > 3, "{name}: {all:?}");
        for command in all {
            println!("{name}: {command}");
            world.run(&command);
        }
    }
    let guide = commands(&document("operating.md"));
    for command in COMMANDS {
        let shown = guide
            .iter()
            .any(|line| line.starts_with(&format!("gabiond {command}")));
        assert!(shown, "operating.md does not show gabiond {command}");
    }
}

#[test]
fn every_option_of_the_documents_is_known_to_the_binary() {
    let help = |words: &[&str]| {
        let output = gabiond().args(words).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut known = help(&[]);
    for command in COMMANDS {
        known += &help(&[command]);
    }
    // The guide names those of the benchmarks as well; the script begins with its synopsis.
    known += &std::fs::read_to_string(root().join("tools/bench")).unwrap();
    for name in ["operating.md", "reference-service.md"] {
        let (_, text) = blocks(&document(name));
        for span in spans(&text).filter(|span| span.starts_with("--")) {
            let option = span.split([' ', '=']).next().unwrap();
            let is_known =
                known.contains(&format!("{option} ")) || known.contains(&format!("{option}\n"));
            assert!(is_known, "{name}: {span}");
        }
    }
}

/// Files that configurations in the documents name.
fn files(scratch: &Scratch) -> Vec<(&'static str, String)> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let gossip = format!("1:{}\n", "ab".repeat(32));
    let secret = "0123456789abcdef".repeat(2);
    [
        ("/etc/gabion/gossip.keys", "gossip.keys", gossip),
        ("/etc/gabion/counters.secret", "counters.secret", secret),
        ("/etc/gabion/tls/tls.crt", "tls.crt", cert.pem()),
        (
            "/etc/gabion/tls/tls.key",
            "tls.key",
            signing_key.serialize_pem(),
        ),
        ("/etc/gabion/tls/ca.crt", "ca.crt", cert.pem()),
    ]
    .map(|(path, name, content)| (path, text(&scratch.file(name, &content)).to_owned()))
    .to_vec()
}

/// YAML that is another program's, by its first word.
const NOT_OURS: [&str; 5] = [
    "apiVersion:",
    "scrape_configs:",
    "load_assignment:",
    "transport_socket:",
    "rule:",
];

#[test]
fn every_configuration_of_the_documents_is_served() {
    let scratch = Scratch::new();
    let files = files(&scratch);
    let mut served = 0;
    for name in DOCUMENTS {
        for (language, yaml) in blocks(&document(name)).0 {
            let first = yaml.trim_start().split([' ', '\n']).next().unwrap();
            if language != "yaml" || NOT_OURS.contains(&first) {
                continue;
            }
            let whole = match first {
                "-" => format!("limits:\n{yaml}"),
                _ => yaml.clone(),
            };
            let mut config: String = whole
                .lines()
                .filter(|line| !line.contains("_bind:"))
                .map(|line| format!("{line}\n"))
                .collect();
            for (path, here) in &files {
                config = config.replace(path, here);
            }
            config = config.replace("bind: 0.0.0.0:7946", "bind: 127.0.0.1:0");
            assert!(
                !config.contains("/etc/"),
                "{name}: say here what this file is:\n{config}"
            );
            let member = Member::start(&config);
            until("it is ready", || {
                (member.get("/readyz").0 == 200).then_some(())
            });
            served += 1;
        }
    }
    assert!(served >= 5, "{served}");
}

#[test]
fn what_is_read_from_a_document_is_what_a_reader_sees() {
    let text =
        "Say `gabiond top` or `x`.\n```\ngabiond a [--b C|D] | --e\n```\n```yaml\nk: v\n```\n";
    let found = commands(text);
    assert!(
        found.contains("gabiond top") && found.len() == 2,
        "{found:?}"
    );
    assert_eq!(
        forms("gabiond a [--b C|D] | --e"),
        [
            "gabiond a",
            "gabiond a --b C",
            "gabiond a --b D",
            "gabiond --e"
        ]
    );
    assert_eq!(blocks(text).0[1], ("yaml".to_owned(), "k: v\n".to_owned()));
}
