//! What the tests of both examples use.

use std::process::{Command, Output};

use gabion_envoy_e2e::doors::{Answer, Cluster, Doors, Programs};
use gabion_loader::local::process::without_settings;

pub(crate) const OCI_BODY: &str =
    r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"rate limit exceeded"}]}"#;

/// The registry's doors with these lines of `[api.rate_limit]`.
pub(crate) fn registry(cluster: Cluster, settings: &str) -> Doors {
    registry_at(cluster, "info", settings)
}

/// The same, with another level of gabiond's log.
pub(crate) fn registry_at(cluster: Cluster, level: &str, settings: &str) -> Doors {
    let change = |name: &str, text: String| match name {
        "rate-limit.toml" => format!("[api.rate_limit]\n{settings}\n"),
        "gabiond.arguments" => format!("--log {level}"),
        _ => text,
    };
    Doors::start(Programs::find().unwrap(), "registry", cluster, &change).unwrap()
}

/// The doors of the package registries, with these replacements in the policy.
pub(crate) fn packages(cluster: Cluster, replace: &[(&str, &str)]) -> Doors {
    let change = |name: &str, text: String| match name {
        "policy.yaml" => replaced(text, replace),
        _ => text,
    };
    let programs = Programs::find().unwrap();
    Doors::start(programs, "virtual-registries", cluster, &change).unwrap()
}

/// The same doors with another policy, in the domain `edge`.
pub(crate) fn policy(cluster: Cluster, yaml: &str) -> Doors {
    let change = |name: &str, text: String| match name {
        "policy.yaml" => yaml.to_owned(),
        _ => text,
    };
    let programs = Programs::find().unwrap();
    Doors::start(programs, "virtual-registries", cluster, &change).unwrap()
}

/// Replaces each text, which must be there.
pub(crate) fn replaced(mut text: String, replace: &[(&str, &str)]) -> String {
    for (old, new) in replace {
        assert!(text.contains(old), "not in the policy: {old}");
        text = text.replace(old, new);
    }
    text
}

/// Statuses of `count` requests, each sent to both doors.
pub(crate) fn statuses(
    doors: &Doors,
    count: usize,
    line: &str,
    headers: &[(&str, &str)],
) -> Vec<u16> {
    (0..count)
        .map(|_| doors.both(line, headers).status)
        .collect()
}

/// Asks both doors; the rule that denied, or "passed".
pub(crate) fn denied_by(doors: &Doors, line: &str, headers: &[(&str, &str)]) -> String {
    let answer = doors.both(line, headers);
    match answer.status {
        429 => name(&answer),
        _ => "passed".to_owned(),
    }
}

/// `RateLimit-Name`.
pub(crate) fn name(answer: &Answer) -> String {
    answer
        .header("ratelimit-name")
        .unwrap_or("nobody")
        .to_owned()
}

/// What a run printed, both streams.
pub(crate) fn said(output: &Output) -> String {
    let said = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8_lossy(&said).into_owned()
}

/// What `gabiond check` and `nginx -t` say of a policy file of this name and content, and whether
/// each takes it.
pub(crate) fn checked(file: &str, content: &str) -> [(bool, String); 2] {
    let programs = Programs::find().unwrap();
    let dir = gabion_loader::local::RunDir::new("gabion-example-check").unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(file, content);
    write(
        "nginx.conf",
        &format!(
            "load_module {}; pid nginx.pid; events {{}}\nhttp {{ gabion_limit_zone zone=z:1m;\n\
             gabion_rules_file {file};\n\
             server {{ listen 127.0.0.1:1; location / {{ root /nowhere; }} }} }}\n",
            programs.module.display()
        ),
    );
    let mut check = without_settings(&programs.gabiond);
    check.arg("check").arg(file).current_dir(dir.path());
    let mut test = Command::new(&programs.nginx);
    test.args(["-t", "-e", "stderr", "-p"]).arg(dir.path());
    test.arg("-c").arg(dir.path().join("nginx.conf"));
    [check, test].map(|mut command| {
        let output = command.output().unwrap();
        (output.status.success(), said(&output))
    })
}
