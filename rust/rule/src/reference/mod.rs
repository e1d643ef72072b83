//! The configuration files of the Envoy project's reference rate-limit service.
//!
//! I own reading them and saying them in native rules. I promise that a set of files is taken whole
//! or refused whole, that each setting is honoured, refused at its place or named in a notice, and
//! that a descriptor gets the one limit that the service's documentation gives it. I never read a
//! directory: the edge hands me names and bytes.
//!
//! What is honoured and what differs is in `docs/reference-service.md`.

use crate::conflicts::check_conflicts;
use crate::error::Place;
use crate::limits::MAX_REPORTED_ERRORS;
use crate::policy::{Policy, PolicyError};

mod flatten;
mod read;
mod tree;

/// One file, as the edge found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its name, for messages.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What the service has as settings of its process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether files may add to a domain that another file began (`MERGE_DOMAIN_CONFIG`).
    pub merge_domains: bool,
    /// Whether no limit denies, and all only watch (`SHADOW_MODE`).
    pub shadow_mode: bool,
    /// Whether no limit denies, and metadata list what is beyond one (`QUOTA_MODE`).
    pub quota_mode: bool,
}

/// The rules of a set of files: by file, and within a domain from the most specific to the least.
///
/// # Errors
/// Every fault of every file that can be found at once.
// spec: rule-24
pub fn read(files: &[SourceFile], options: Options) -> Result<Policy, Vec<PolicyError>> {
    let (mut domains, mut errors, mut notices) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        match read::domain(file, options, &mut notices) {
            Ok(domain) => tree::add(&mut domains, domain, options, &mut errors),
            Err(found) => errors.extend(found),
        }
    }
    domains
        .iter()
        .for_each(|domain| tree::find_doubles(domain, &mut errors));
    if !errors.is_empty() {
        return Err(bounded(errors));
    }
    let mut rules = Vec::new();
    for domain in &domains {
        flatten::domain(domain, &mut rules, &mut notices, &mut errors);
    }
    let start = || Place::new(files.first().map_or("", |file| file.name.as_str()), 0, 0);
    errors.extend(
        check_conflicts(&rules)
            .into_iter()
            .map(|error| PolicyError {
                place: error.place().cloned().unwrap_or_else(start),
                key: String::new(),
                message: error.to_string(),
                suggestion: None,
            }),
    );
    if !errors.is_empty() {
        return Err(bounded(errors));
    }
    Ok(Policy {
        rules,
        notices,
        ..Policy::default()
    })
}

/// The first errors in full, and how many there are beyond them.
fn bounded(mut errors: Vec<PolicyError>) -> Vec<PolicyError> {
    let more = errors.len().saturating_sub(MAX_REPORTED_ERRORS);
    errors.truncate(MAX_REPORTED_ERRORS);
    if let (true, Some(last)) = (more > 0, errors.last()) {
        errors.push(PolicyError {
            place: last.place.clone(),
            key: String::new(),
            message: format!("{more} more errors after this one are not shown"),
            suggestion: None,
        });
    }
    errors
}

#[cfg(test)]
mod tests;
