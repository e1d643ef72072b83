//! The key `flags`: which flags there are, and what holds until somebody sets them.
//!
//! I own their declaration and the check that a rule names a declared one. I promise that a
//! misspelt flag is an error with the one that was probably meant, never a rule that is always on.

use super::yaml::nearest;
use super::{MapReader, Problems};
use crate::duration::shorten;
use crate::error::Place;
use crate::limits::{MAX_FLAGS, MAX_NAME_BYTES};
use crate::operator::{Flag, Share, Switch};

/// A declared flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagSpec {
    /// Its name.
    pub name: String,
    /// What holds until it is set.
    pub default: Share,
    /// The attribute whose values a share is a share of; each rule's keys when `None`.
    pub by: Option<String>,
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
            by: found.by.as_ref().map(|by| by.clone().into_bytes()),
        });
    }
    let near = nearest(flag, flags.iter().map(|declared| declared.name.as_str()));
    let flag = shorten(flag);
    let message = format!("flag {flag} is not declared; declare it under flags");
    Err((message, near))
}

/// Reads `flags: {NAME: {default: on|off|N%, by: ATTRIBUTE}}`; `NAME:` alone is on by default.
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
        let (mut default, mut by) = (Share::ON, None);
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
            by = inner.text("by").map(str::to_owned);
            if by
                .as_ref()
                .is_some_and(|by| by.is_empty() || by.len() > MAX_NAME_BYTES)
            {
                let message = format!("an attribute's name has 1 to {MAX_NAME_BYTES} bytes");
                inner.problem("by", message);
            }
            inner.finish();
        }
        flags.push(FlagSpec {
            name: entry.key.clone(),
            default,
            by,
            place: Some(problems.place(entry.pos)),
        });
    }
    flags
}

/// The flag that switches something: `if_flag` or `unless_flag`. One that is not declared, and both
/// at once, are reported.
// spec: ord-7
pub(super) fn read_switch(
    map: &mut MapReader<'_, '_>,
    flags: &[FlagSpec],
    problems: &Problems,
) -> Option<Switch> {
    map.renamed(
        "flag",
        "write if_flag, which applies the rule while the flag is on, or unless_flag",
    );
    let words = [("if_flag", true), ("unless_flag", false)];
    if words.iter().filter(|(word, _)| map.has(word)).count() == 2 {
        map.problem(
            "unless_flag",
            "if_flag and unless_flag exclude each other; keep one of the two",
        );
    }
    let (word, on) = words.into_iter().find(|(word, _)| map.has(word))?;
    let name = map.text(word)?;
    let pos = map.node(word)?.pos;
    match declared(name, flags) {
        Ok(flag) => Some(Switch { flag, on }),
        Err((message, near)) => {
            let path = map.path_of(word);
            match near {
                Some(near) => problems.at_with(pos, &path, message, near),
                None => problems.at(pos, &path, message),
            }
            None
        }
    }
}
