//! Attributes of a request: what a front end sends, and what is derived from it.
//!
//! I own derived attributes: who the client is behind proxies, a part of a path, a value looked up
//! in a table. I promise that both front ends derive the same value from the same request, that a
//! configuration whose attributes derive from each other in a circle is refused, and that deriving
//! is bounded and never allocates. I never decide what an attribute is used for.
//!
//! The clauses cited as `spec: attr-N` are in `docs/spec/attributes.md`.

mod address;
mod client;
mod glob;
mod networks;
mod presets;
mod resolve;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use glob::Glob;
pub use networks::Networks;
pub use resolve::{AttributeRef, BoundAttributes, Found, Resolver, Source, SourceNames};

use crate::duration::shorten;
use crate::error::{Place, RuleError};
use crate::limits::{MAX_DERIVED_ATTRIBUTES, MAX_LOOKUP_VALUES, MAX_NAME_BYTES};

/// How an attribute is derived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// The client's address, by a walk over a forwarded header.
    ClientAddress {
        /// Attribute with the address of the connection.
        peer: String,
        /// Attribute with the forwarded header.
        forwarded: String,
        /// Proxies that are believed.
        trusted_proxies: Networks,
        /// Bits of an IPv6 address that make a client, 1 to 128.
        ipv6_prefix: u8,
    },
    /// The part of a value that stands at the place of `{}`.
    Capture {
        /// Attribute with the value.
        from: String,
        /// The pattern, with one `{}`.
        pattern: Glob,
    },
    /// Another value for each of a list of values.
    Lookup {
        /// Attribute with the value that is looked up.
        from: String,
        /// The table.
        values: LookupTable,
    },
}

impl Derivation {
    /// A capture.
    ///
    /// # Errors
    /// A pattern that is too long or has not one `{}`.
    pub fn capture(from: &str, pattern: &str) -> Result<Derivation, RuleError> {
        Ok(Derivation::Capture {
            from: from.to_owned(),
            pattern: Glob::parse_capture("pattern", pattern.as_bytes())?,
        })
    }

    /// The attributes it is made from.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Derivation::ClientAddress {
                peer, forwarded, ..
            } => (peer, Some(forwarded.as_str())),
            Derivation::Capture { from, .. } | Derivation::Lookup { from, .. } => (from, None),
        };
        std::iter::once(first.as_str()).chain(second)
    }
}

/// The table of a lookup: sorted, searched by halves, shared by all copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupTable(Arc<[(Box<str>, Box<str>)]>);

impl LookupTable {
    /// The table of these pairs.
    ///
    /// # Errors
    /// No pairs or more than [`MAX_LOOKUP_VALUES`], a text that is empty or longer than
    /// [`MAX_NAME_BYTES`], or a key that comes twice.
    // spec: attr-10
    pub fn new<'t>(
        pairs: impl IntoIterator<Item = (&'t str, &'t str)>,
    ) -> Result<LookupTable, RuleError> {
        let setting = "values";
        let mut all: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (key, value) in pairs {
            Self::check_pair(key, value)?;
            all.push((key.into(), value.into()));
        }
        if all.is_empty() || all.len() > MAX_LOOKUP_VALUES {
            return Err(RuleError::OutOfRange {
                setting,
                text: format!("{} values", all.len()),
                why: format!("a lookup has 1 to {MAX_LOOKUP_VALUES}"),
            });
        }
        all.sort_unstable();
        if let Some(two) = all.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(RuleError::Malformed {
                setting,
                text: shorten(&two[0].0),
                why: "it is there twice".to_owned(),
                hint: "each value once",
            });
        }
        Ok(LookupTable(all.into()))
    }

    /// Whether a pair may stand in a table.
    pub(crate) fn check_pair(key: &str, value: &str) -> Result<(), RuleError> {
        let good = |text: &str| (1..=MAX_NAME_BYTES).contains(&text.len());
        if good(key) && good(value) {
            return Ok(());
        }
        Err(RuleError::OutOfRange {
            setting: "values",
            text: shorten(&format!("{key}: {value}")),
            why: format!("both texts have 1 to {MAX_NAME_BYTES} bytes"),
        })
    }

    /// What is written for a value.
    pub fn get(&self, value: &[u8]) -> Option<&str> {
        let found = self.0.binary_search_by(|pair| pair.0.as_bytes().cmp(value));
        found.ok().map(|at| &*self.0[at].1)
    }

    /// The pairs in the order of their keys.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// One derived attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name. It hides what a front end sends under this name.
    pub name: String,
    /// How it is derived.
    pub derivation: Derivation,
    /// Where it was written, for messages.
    pub place: Option<Place>,
}

/// The derived attributes of a configuration, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes(Arc<Vec<Attribute>>);

impl Attributes {
    /// These attributes together.
    ///
    /// # Errors
    /// Each fault, with the index of the attribute it is about: a name that is empty, too long or
    /// taken, a circle, or more than [`MAX_DERIVED_ATTRIBUTES`].
    // spec: attr-1
    pub fn new(list: Vec<Attribute>) -> Result<Attributes, Vec<(usize, RuleError)>> {
        let mut errors = Vec::new();
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, attribute) in list.iter().enumerate() {
            let inputs = attribute.derivation.inputs();
            for name in std::iter::once(attribute.name.as_str()).chain(inputs) {
                if let Err(error) = check_name(name) {
                    errors.push((index, error));
                }
            }
            if names.insert(&attribute.name, index).is_some() {
                let why = "another derived attribute has this name".to_owned();
                errors.push((index, malformed(&attribute.name, why, "another name")));
            }
        }
        if list.len() > MAX_DERIVED_ATTRIBUTES {
            let error = RuleError::OutOfRange {
                setting: "attributes",
                text: format!("{} attributes", list.len()),
                why: format!("a configuration has at most {MAX_DERIVED_ATTRIBUTES}"),
            };
            errors.push((MAX_DERIVED_ATTRIBUTES, error));
        } else {
            errors.extend(circle(&list, &names));
        }
        if errors.is_empty() {
            Ok(Attributes(Arc::new(list)))
        } else {
            Err(errors)
        }
    }

    /// These and those of another file of the same configuration. An attribute that both declare
    /// alike is one.
    ///
    /// # Errors
    /// As [`Attributes::new`], the index counted over both in their order.
    pub fn merge(&self, other: &Attributes) -> Result<Attributes, Vec<(usize, RuleError)>> {
        let mut list = self.0.to_vec();
        let alike = |one: &Attribute| {
            let same = |two: &&Attribute| two.name == one.name;
            let declared = self.0.iter().find(same);
            declared.is_some_and(|two| two.derivation == one.derivation)
        };
        list.extend(other.0.iter().filter(|one| !alike(one)).cloned());
        Attributes::new(list)
    }

    /// The attributes in the order of the configuration.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Attribute> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a name is that of a derived attribute.
    pub fn is_derived(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// What a front end must send for an attribute: the attribute itself, or, for a derived one,
    /// what it is made from in the end. In no special order, each once.
    pub fn sources_of(&self, name: &str) -> Vec<String> {
        let (mut sources, mut open) = (Vec::new(), vec![name.to_owned()]);
        let mut seen = Vec::new();
        while let Some(name) = open.pop() {
            if seen.contains(&name) {
                continue;
            }
            match self.position(&name) {
                Some(at) => open.extend(self.0[at].derivation.inputs().map(str::to_owned)),
                None => sources.push(name.clone()),
            }
            seen.push(name);
        }
        sources
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|attribute| attribute.name == name)
    }
}

fn malformed(name: &str, why: String, hint: &'static str) -> RuleError {
    RuleError::Malformed {
        setting: "attributes",
        text: shorten(name),
        why,
        hint,
    }
}

fn check_name(name: &str) -> Result<(), RuleError> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let why = format!("a name has 1 to {MAX_NAME_BYTES} bytes and no control characters");
    Err(malformed(name, why, "a name of letters, digits, - and _"))
}

/// The first attribute that derives from itself, through others or directly.
fn circle(list: &[Attribute], names: &BTreeMap<&str, usize>) -> Option<(usize, RuleError)> {
    // An attribute is settled once all it is made from is; the open rest is in or behind a circle.
    let mut settled = vec![false; list.len()];
    let inputs = |at: usize| {
        let derived = list[at].derivation.inputs();
        derived.filter_map(|name| names.get(name).copied())
    };
    for _ in 0..list.len() {
        for at in 0..list.len() {
            settled[at] = settled[at] || inputs(at).all(|input| settled[input]);
        }
    }
    let open = settled.iter().position(|settled| !settled)?;
    // Going from an open one to an open input, again and again, ends in a circle.
    let mut way = vec![open];
    let first = loop {
        let last = *way.last()?;
        let next = inputs(last).find(|input| !settled[*input])?;
        if let Some(first) = way.iter().position(|at| *at == next) {
            way.push(next);
            break first;
        }
        way.push(next);
    };
    let path: Vec<&str> = way[first..].iter().map(|at| &*list[*at].name).collect();
    let why = format!("it derives from itself: {}", path.join(" from "));
    let hint = "another name for it, or derive it from what the front end sends";
    Some((way[first], malformed(&list[way[first]].name, why, hint)))
}

#[cfg(test)]
mod tests;
