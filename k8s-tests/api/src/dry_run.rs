//! Manifests against a real API server, without making anything of them.
//!
//! Owns: the namespaces and the kinds of other projects that manifests need to be judged. Promises:
//! the server's words are shown for each refusal; unknown fields are refused. Never: makes an
//! object of a manifest.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use serde_json::{json, Value};

use crate::cluster::late;
use crate::limits::{LOOK_EVERY, PATIENCE};
use crate::plane::Plane;
use crate::SuiteError;

/// Every manifest under the paths, folders by name.
fn manifests(paths: &[PathBuf]) -> Result<Vec<PathBuf>, SuiteError> {
    let mut found = Vec::new();
    for path in paths {
        if !path.is_dir() {
            found.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path)? {
            inside.push(entry?.path());
        }
        inside.sort();
        let is_manifest = |path: &PathBuf| {
            let end = path.extension().unwrap_or_default();
            path.is_dir() || end == "yaml" || end == "yml" || end == "json"
        };
        inside.retain(is_manifest);
        found.extend(manifests(&inside)?);
    }
    Ok(found)
}

/// The namespaces that a manifest names, or makes.
fn namespaces(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for document in text.split("\n---") {
        let makes = document.lines().any(|line| line == "kind: Namespace");
        for line in document.lines() {
            let line = line.trim_start_matches([' ', '-']);
            let name = line.strip_prefix("namespace:");
            let name = name.or_else(|| line.strip_prefix("name:").filter(|_| makes));
            let name = name.map(|name| name.trim().trim_matches(['"', '\'']));
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if let Some(name) = name.filter(|name| !name.is_empty() && name.chars().all(is_name)) {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

fn kubectl(plane: &Plane, arguments: &[&str], file: &Path) -> Result<Output, SuiteError> {
    let mut command = Command::new(plane.programs().join("kubectl"));
    command.arg("--kubeconfig").arg(plane.kubeconfig());
    command.args(["--cache-dir", "/run/netlab/kubectl"]);
    command.args(arguments).arg("-f").arg(file);
    Ok(command.output()?)
}

/// Both outputs, a line each.
fn words(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).trim().replace('\n', "\n    ")
}

/// Makes the kinds of other projects known.
async fn add_kinds(plane: &Plane, folder: &Path) -> Result<(), SuiteError> {
    for file in manifests(&[folder.to_owned()])? {
        let output = kubectl(plane, &["create"], &file)?;
        if !output.status.success() {
            let why = format!("{}: {}", file.display(), words(&output));
            return Err(SuiteError::Odd(why));
        }
    }
    let start = Instant::now();
    loop {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let list = plane.api.get(path).await?;
        let kinds = list["items"].as_array().cloned().unwrap_or_default();
        let is_there = |kind: &Value| {
            let conditions = kind["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
        };
        if kinds.iter().all(is_there) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(late("kinds of other projects".to_owned()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Lets the API server judge every manifest under `paths`, beside the kinds in `kinds`.
///
/// # Errors
/// It refuses one; its words were printed. Or the control plane fails.
pub async fn run(plane: &Plane, kinds: &Path, paths: &[PathBuf]) -> Result<(), SuiteError> {
    let files = manifests(paths)?;
    if files.is_empty() {
        return Err(SuiteError::odd("no manifest is there (.yaml, .yml, .json)"));
    }
    if kinds.is_dir() {
        add_kinds(plane, kinds).await?;
    }
    let mut names = BTreeSet::new();
    for file in &files {
        names.extend(namespaces(&std::fs::read_to_string(file)?));
    }
    for name in names {
        // what kubectl would leave there; without it there is a warning for each
        let applied = json!({ "kubectl.kubernetes.io/last-applied-configuration": "{}" });
        let object = json!({ "metadata": { "name": name, "annotations": applied } });
        match plane.api.create("/api/v1/namespaces", &object).await {
            Err(error) if !error.is_status(409) => return Err(error),
            _ => {}
        }
    }
    let mut refused = 0;
    for file in &files {
        let arguments = ["apply", "--dry-run=server", "--validate=strict"];
        let output = kubectl(plane, &arguments, file)?;
        let mark = if output.status.success() {
            "holds"
        } else {
            "FAILS"
        };
        refused += usize::from(!output.status.success());
        println!("  {mark}  {}\n    {}", file.display(), words(&output));
    }
    println!("{} passed, {refused} failed", files.len() - refused);
    match refused {
        0 => Ok(()),
        _ => Err(SuiteError::Refused {
            refused,
            all: files.len(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_those_named_and_those_made() {
        let text = "kind: Namespace\nmetadata:\n  name: made\n---\nkind: Pod\nmetadata:\n  \
                    name: p\n  namespace: \"used\"\n---\nsubjects:\n- namespace: {{ no }}";
        let found: Vec<String> = namespaces(text).into_iter().collect();
        assert_eq!(found, ["made", "used"]);
    }

    #[test]
    fn folders_are_read_by_name_and_only_manifests() {
        let dir = gabion_loader::local::RunDir::new("gabion-dry-run").unwrap();
        for name in ["b.yaml", "a.json", "note.md"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = manifests(&[dir.path().to_owned()]).unwrap();
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["a.json", "b.yaml"]);
    }
}
