//! The key `flags`: which flags there are, and what holds until somebody sets them.
//!
//! I own their declaration and the check that a rule names a declared one. I promise that a
//! misspelt flag is an error with the one that was probably meant, never a rule that is always on.

use super::yaml::nearest;
use super::{MapReader, Problems};
use crate::duration::shorten;
use crate::error::Place;
use crate::limits::{MAX_FLAGS, MAX_NAME_BYTES};
use crate::operator::{Flag, Share};

/// A declared flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagSpec {
    /// Its name.
    pub name: String,
    /// What holds until it is set.
    pub default: Share,
    /// Where it was declared.
    pub place: Option<Place>,
}

/// The declared flag of a name.
///
/// # Errors
/// Why there is none, and the one that was probably meant.
// spec: ord-7
pub fn declared<'f>(flag: &str, flags: &'f [FlagSpec]) -> Result<Flag, (String, Option<&'f str>)> {
    if let Some(found) = flags.iter().find(|declared| declared.name == flag) {
        return Ok(Flag {
            name: found.name.clone(),
            default: found.default,
        });
    }
    let near = nearest(flag, flags.iter().map(|declared| declared.name.as_str()));
    let flag = shorten(flag);
    let message = format!("flag {flag} is not declared; declare it under flags");
    Err((message, near))
}

/// Reads `flags: {NAME: {default: on|off|N%}}`; `NAME:` alone is on by default.
pub(super) fn read_flags(map: &mut MapReader<'_, '_>, problems: &Problems) -> Vec<FlagSpec> {
    let path = map.path_of("flags");
    let Some(node) = map.node("flags") else {
        return Vec::new();
    };
    let Some(entries) = node.as_map() else {
        let message = format!(
            "{} stands here; a mapping of flags is expected",
            node.kind()
        );
        problems.at(node.pos, &path, message);
        return Vec::new();
    };
    if entries.len() > MAX_FLAGS {
        let message = format!(
            "{} flags, more than the {MAX_FLAGS} there may be",
            entries.len()
        );
        problems.at(node.pos, &path, message);
    }
    let mut flags = Vec::with_capacity(entries.len().min(MAX_FLAGS));
    for entry in entries.iter().take(MAX_FLAGS) {
        let path = format!("{path}.{}", shorten(&entry.key));
        let bad = entry.key.is_empty()
            || entry.key.len() > MAX_NAME_BYTES
            || entry.key.chars().any(char::is_control);
        if bad {
            let message =
                format!("a flag's name has 1 to {MAX_NAME_BYTES} bytes and no control characters");
            problems.at(entry.pos, &path, message);
        }
        let mut default = Share::ON;
        if !entry.value.is_null() {
            let Some(mut inner) = MapReader::new(&entry.value, &path, problems) else {
                continue;
            };
            if let Some(text) = inner.text("default") {
                match text.parse() {
                    Ok(share) => default = share,
                    Err(error) => inner.problem("default", format!("{error}")),
                }
            }
            inner.finish();
        }
        flags.push(FlagSpec {
            name: entry.key.clone(),
            default,
            place: Some(problems.place(entry.pos)),
        });
    }
    flags
}

/// A rule's flag. One that is not declared is reported.
pub(super) fn read_flag(
    map: &mut MapReader<'_, '_>,
    flags: &[FlagSpec],
    problems: &Problems,
) -> Option<Flag> {
    let flag = map.text("flag")?;
    let pos = map.node("flag")?.pos;
    match declared(flag, flags) {
        Ok(flag) => Some(flag),
        Err((message, near)) => {
            let path = map.path_of("flag");
            match near {
                Some(near) => problems.at_with(pos, &path, message, near),
                None => problems.at(pos, &path, message),
            }
            None
        }
    }
}
