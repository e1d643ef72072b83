//! What somebody types who comes from the Envoy project's reference service.
//!
//! I own `import` and the translation of that service's environment to settings. I promise that a
//! variable of it that would change answers is taken or refused, and the others are named. I read
//! no file myself.

use std::path::PathBuf;

use gabion_rule::policy::to_yaml;
use gabion_rule::reference::Options;

use crate::config::{read_directory, Reading};

/// Print the files of a directory of the reference service as native YAML.
#[derive(Debug, clap::Args)]
pub(super) struct Import {
    /// The directory that holds the YAML files.
    directory: PathBuf,
    #[command(flatten)]
    how: super::ReferenceArgs,
}

impl Import {
    /// The YAML, with what an operator should know as comments before it.
    ///
    /// # Errors
    /// All faults, each with its place.
    pub(super) fn run(self) -> Result<String, String> {
        let reading = Reading {
            ignore_dot_files: self.how.ignore_dot_files,
            options: Options {
                merge_domains: self.how.merge_domains,
                ..Options::default()
            },
        };
        let found = read_directory(&self.directory, reading).map_err(|e| e.to_string())?;
        let said = found.policy.notices.iter().map(ToString::to_string);
        let notes: String = found
            .notices
            .into_iter()
            .chain(said)
            .map(|note| format!("# note: {}\n", note.replace(char::is_control, " ")))
            .collect();
        Ok(notes + &to_yaml(&found.policy.rules))
    }
}

/// Names of the reference service that say what the settings of other names say here.
const NO_MEANING: [&str; 12] = [
    "REDIS_",
    "MEMCACHE_",
    "BACKEND_TYPE",
    "USE_STATSD",
    "STATSD_",
    "USE_PROMETHEUS",
    "PROMETHEUS_",
    "LOCAL_CACHE_SIZE_IN_BYTES",
    "NEAR_LIMIT_RATIO",
    "TRACING_",
    "DEBUG_",
    "EXPIRATION_JITTER_MAX_SECONDS",
];

/// [`settings`] of the environment of this process.
///
/// # Errors
/// As [`settings`].
pub(super) fn settings_of_process() -> Result<Settings, String> {
    let names: Vec<String> = std::env::vars_os()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    let value = |name: &str| {
        let value = std::env::var_os(name)?;
        Some(value.to_string_lossy().into_owned())
    };
    settings(&value, &names)
}

/// Variables of settings with their values, and notes.
type Settings = (Vec<(String, String)>, Vec<String>);

/// Settings that say what the reference service's environment says, and notes.
///
/// # Errors
/// Variables that ask for what this program cannot do, and switches that are none.
pub(super) fn settings(
    environment: &dyn Fn(&str) -> Option<String>,
    names: &[String],
) -> Result<Settings, String> {
    let text = |name: &str, default: &str| {
        let text = environment(name).filter(|text| !text.is_empty());
        text.unwrap_or_else(|| default.to_owned())
    };
    let switch = |name: &str| match text(name, "false").as_str() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("environment variable {name}: {other} is no switch")),
    };
    if text("CONFIG_TYPE", "FILE") != "FILE" {
        return Err(
            "environment variable CONFIG_TYPE: only FILE is read; write the limits to files"
                .to_owned(),
        );
    }
    if switch("GRPC_SERVER_USE_TLS")? {
        return Err(
            "environment variable GRPC_SERVER_USE_TLS: certificates are set by \
             GABION_TLS_CERT_FILE and GABION_TLS_KEY_FILE; set these and take it away"
                .to_owned(),
        );
    }
    let mut directory = PathBuf::from(text("RUNTIME_ROOT", "/srv/runtime_data/current"));
    directory.push(text("RUNTIME_SUBDIRECTORY", ""));
    directory.push(text("RUNTIME_APPDIRECTORY", "config"));
    let address = |host: &str, port: &str, default: &str| {
        let host = text(host, "0.0.0.0");
        let colons = host.contains(':') && !host.starts_with('[');
        let host = if colons { format!("[{host}]") } else { host };
        format!("{host}:{}", text(port, default))
    };
    let headers = switch("LIMIT_RESPONSE_HEADERS_ENABLED")?;
    let metadata = switch("RESPONSE_DYNAMIC_METADATA")?;
    let mut settings = vec![
        ("reference_directory", directory.display().to_string()),
        ("envoy_bind", address("GRPC_HOST", "GRPC_PORT", "8081")),
        ("json_bind", address("HOST", "PORT", "8080")),
        (
            "response_headers",
            if headers { "always" } else { "off" }.to_owned(),
        ),
        (
            "dynamic_metadata",
            if metadata { "always,reference" } else { "off" }.to_owned(),
        ),
    ];
    for (setting, name) in [
        ("reference_ignore_dot_files", "RUNTIME_IGNOREDOTFILES"),
        ("reference_merge_domains", "MERGE_DOMAIN_CONFIG"),
        ("reference_shadow_mode", "SHADOW_MODE"),
        ("reference_quota_mode", "QUOTA_MODE"),
    ] {
        settings.push((setting, switch(name)?.to_string()));
    }
    let own = |(setting, text): (&str, String)| {
        let name = format!("GABION_{}", setting.to_ascii_uppercase());
        (name, text)
    };
    let notes = notes_on(names);
    Ok((settings.into_iter().map(own).collect(), notes))
}

/// What an operator should know about variables that have no meaning here.
fn notes_on(names: &[String]) -> Vec<String> {
    let unused = |name: &&String| NO_MEANING.iter().any(|start| name.starts_with(start));
    let unused: Vec<&str> = names.iter().filter(unused).map(String::as_str).collect();
    let mut notes = Vec::new();
    if !unused.is_empty() {
        let unused = unused.join(", ");
        notes.push(format!("these variables have no meaning here: {unused}"));
    }
    if names
        .iter()
        .any(|name| name.starts_with("LIMIT_") && name.ends_with("_HEADER"))
    {
        notes.push(
            "headers keep their own names; LIMIT_*_HEADER have no meaning here, see \
             response_headers"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = Vec<(String, String)>;

    fn of(environment: &[(&str, &str)]) -> Result<Settings, String> {
        let names: Vec<String> = environment.iter().map(|(n, _)| (*n).to_owned()).collect();
        let value = |name: &str| {
            let found = environment.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        settings(&value, &names)
    }

    fn value(pairs: &Pairs, name: &str) -> String {
        let found = pairs.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    #[test]
    fn the_defaults_are_those_of_the_reference_service() {
        let (pairs, notes) = of(&[]).unwrap();
        let of = |name: &str| value(&pairs, name);
        assert_eq!(
            of("GABION_REFERENCE_DIRECTORY"),
            "/srv/runtime_data/current/config"
        );
        assert_eq!(of("GABION_ENVOY_BIND"), "0.0.0.0:8081");
        assert_eq!(of("GABION_JSON_BIND"), "0.0.0.0:8080");
        assert_eq!(of("GABION_RESPONSE_HEADERS"), "off");
        assert_eq!(of("GABION_REFERENCE_MERGE_DOMAINS"), "false");
        assert_eq!(of("GABION_DYNAMIC_METADATA"), "off");
        assert_eq!(of("GABION_REFERENCE_QUOTA_MODE"), "false");
        assert!(notes.is_empty());
    }

    #[test]
    fn its_variables_are_taken_refused_or_named() {
        let (pairs, notes) = of(&[
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "1"),
            ("MERGE_DOMAIN_CONFIG", "true"),
            ("GRPC_HOST", "::1"),
            ("GRPC_PORT", "7"),
            ("SHADOW_MODE", "true"),
            ("QUOTA_MODE", "1"),
            ("RESPONSE_DYNAMIC_METADATA", "true"),
            ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
            ("LIMIT_RESET_HEADER", "x-reset"),
            ("REDIS_URL", "localhost:6379"),
        ])
        .unwrap();
        let taken = |name: &str| value(&pairs, name);
        assert_eq!(
            taken("GABION_REFERENCE_DIRECTORY"),
            "/data/ratelimit/config"
        );
        assert_eq!(taken("GABION_REFERENCE_IGNORE_DOT_FILES"), "true");
        assert_eq!(taken("GABION_REFERENCE_MERGE_DOMAINS"), "true");
        assert_eq!(taken("GABION_REFERENCE_SHADOW_MODE"), "true");
        assert_eq!(taken("GABION_REFERENCE_QUOTA_MODE"), "true");
        assert_eq!(taken("GABION_DYNAMIC_METADATA"), "always,reference");
        assert_eq!(taken("GABION_ENVOY_BIND"), "[::1]:7");
        assert_eq!(taken("GABION_RESPONSE_HEADERS"), "always");
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("REDIS_URL") && notes[1].contains("LIMIT_*_HEADER"));
        assert!(of(&[("CONFIG_TYPE", "GRPC_XDS_SOTW")]).is_err());
        assert!(of(&[("SHADOW_MODE", "perhaps")]).is_err());
        assert!(of(&[("GRPC_SERVER_USE_TLS", "true")]).is_err());
    }
}
