//! The attributes of one request, derived when they are asked for.
//!
//! I own the names that a front end is asked for, and deriving during a request. I promise that
//! each derived attribute is computed at most once a request, only when somebody asks, and that
//! nothing is allocated. I never keep anything beyond the request.

use std::cell::{Cell, OnceCell};
use std::net::IpAddr;

use arrayvec::ArrayVec;

use super::address::AddressText;
use super::client::{client, Client};
use super::{Attributes, Derivation, Glob, LookupTable, Networks};
use crate::error::RuleError;
use crate::limits::{MAX_DERIVED_ATTRIBUTES, MAX_SOURCE_ATTRIBUTES};

/// What is known of an attribute of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// Its value, never empty.
    Value(&'a [u8]),
    /// It has none.
    Absent,
    /// It could not be evaluated.
    Failed,
}

impl<'a> Found<'a> {
    /// A value; an empty one is an absent attribute.
    pub fn of(value: &'a [u8]) -> Found<'a> {
        match value.is_empty() {
            true => Found::Absent,
            false => Found::Value(value),
        }
    }

    /// The value; `None` when it is absent or could not be evaluated.
    pub fn value(self) -> Option<&'a [u8]> {
        match self {
            Found::Value(value) => Some(value),
            Found::Absent | Found::Failed => None,
        }
    }
}

/// What a front end knows of a request whose data lives for `'r`.
pub trait Source<'r> {
    /// The raw attribute in a slot of [`SourceNames`]. It may be asked several times.
    fn raw(&self, slot: u16) -> Found<'r>;
}

impl<'r, F: Fn(u16) -> Found<'r>> Source<'r> for F {
    fn raw(&self, slot: u16) -> Found<'r> {
        self(slot)
    }
}

/// The raw attributes that a configuration asks a front end for. A slot is an index here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNames(Vec<Box<[u8]>>);

impl SourceNames {
    /// The slot of a name, a new one if it has none yet.
    ///
    /// # Errors
    /// More than [`MAX_SOURCE_ATTRIBUTES`] names.
    pub fn slot(&mut self, name: &[u8]) -> Result<u16, RuleError> {
        if let Some(slot) = self.find(name) {
            return Ok(slot);
        }
        let slot = u16::try_from(self.0.len()).unwrap_or(u16::MAX);
        if usize::from(slot) >= MAX_SOURCE_ATTRIBUTES {
            return Err(RuleError::OutOfRange {
                setting: "attributes",
                text: String::from_utf8_lossy(name).into_owned(),
                why: format!("rules name more than {MAX_SOURCE_ATTRIBUTES} attributes"),
            });
        }
        self.0.push(name.into());
        Ok(slot)
    }

    /// The slot of a name that has one.
    pub fn find(&self, name: &[u8]) -> Option<u16> {
        let at = self.0.iter().position(|known| &**known == name)?;
        u16::try_from(at).ok()
    }

    /// The name of a slot; empty for one that there is not.
    #[inline]
    pub fn name(&self, slot: u16) -> &[u8] {
        self.0.get(usize::from(slot)).map_or(&[], |name| name)
    }

    /// The names, by slot.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.iter().map(|name| &**name)
    }
}

/// An attribute as a rule of a bound configuration names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AttributeRef {
    /// What the front end sends: a slot of [`SourceNames`].
    Source(u16),
    /// A derived one, by its place in the configuration.
    Derived(u8),
}

/// Derived attributes, ready for requests.
#[derive(Clone, Debug, Default)]
pub struct BoundAttributes {
    attributes: Attributes,
    steps: Vec<Step>,
}

/// A derivation with its inputs found.
#[derive(Clone, Debug)]
enum Step {
    Client {
        peer: AttributeRef,
        forwarded: AttributeRef,
        trusted: Networks,
        ipv6_prefix: u8,
    },
    Capture(AttributeRef, Glob),
    Lookup(AttributeRef, LookupTable),
}

impl BoundAttributes {
    /// Binds the inputs of all derivations; raw ones get a slot in `names`.
    ///
    /// # Errors
    /// As [`SourceNames::slot`].
    pub fn bind(attributes: &Attributes, names: &mut SourceNames) -> Result<Self, RuleError> {
        let mut bound = BoundAttributes {
            attributes: attributes.clone(),
            steps: Vec::with_capacity(attributes.iter().len()),
        };
        for attribute in attributes.iter() {
            let mut input = |name: &String| bound.reference(name.as_bytes(), names);
            let step = match &attribute.derivation {
                Derivation::ClientAddress {
                    peer,
                    forwarded,
                    trusted_proxies,
                    ipv6_prefix,
                } => Step::Client {
                    peer: input(peer)?,
                    forwarded: input(forwarded)?,
                    trusted: trusted_proxies.clone(),
                    ipv6_prefix: *ipv6_prefix,
                },
                Derivation::Capture { from, pattern } => {
                    Step::Capture(input(from)?, pattern.clone())
                }
                Derivation::Lookup { from, values } => Step::Lookup(input(from)?, values.clone()),
            };
            bound.steps.push(step);
        }
        Ok(bound)
    }

    /// What a name stands for; a raw attribute gets a slot in `names`.
    ///
    /// # Errors
    /// As [`SourceNames::slot`].
    pub fn reference(
        &self,
        name: &[u8],
        names: &mut SourceNames,
    ) -> Result<AttributeRef, RuleError> {
        let derived = self
            .attributes
            .iter()
            .position(|a| a.name.as_bytes() == name);
        if let Some(index) = derived.and_then(|at| u8::try_from(at).ok()) {
            return Ok(AttributeRef::Derived(index));
        }
        let slot = names.slot(name)?;
        Ok(AttributeRef::Source(slot))
    }

    /// The attributes that were bound.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

/// A derived value.
#[derive(Debug)]
enum Derived<'r> {
    Bytes(Found<'r>),
    Address(AddressText),
}

/// The attributes of one request.
#[derive(Debug)]
pub struct Resolver<'r, S> {
    bound: &'r BoundAttributes,
    source: &'r S,
    derived: ArrayVec<OnceCell<Derived<'r>>, MAX_DERIVED_ATTRIBUTES>,
    untrusted_peer: Cell<Option<IpAddr>>,
}

impl<'r, S: Source<'r>> Resolver<'r, S> {
    /// A request of which nothing was asked yet.
    #[inline]
    pub fn new(bound: &'r BoundAttributes, source: &'r S) -> Self {
        let steps = bound.steps.iter().take(MAX_DERIVED_ATTRIBUTES);
        Resolver {
            bound,
            source,
            derived: steps.map(|_| OnceCell::new()).collect(),
            untrusted_peer: Cell::new(None),
        }
    }

    /// The value of an attribute.
    // spec: attr-1
    pub fn value(&self, attribute: AttributeRef) -> Found<'_> {
        match attribute {
            AttributeRef::Source(slot) => self.raw(slot),
            AttributeRef::Derived(index) => match self.derived(index) {
                Some(Derived::Bytes(found)) => *found,
                Some(Derived::Address(text)) => Found::of(text.bytes()),
                None => Found::Failed,
            },
        }
    }

    /// The peer of this request that is private, not trusted, and sent a forwarded header; known
    /// once a client's address was asked for. The front end warns, thinned, and counts.
    // spec: attr-7
    pub fn untrusted_peer(&self) -> Option<IpAddr> {
        self.untrusted_peer.get()
    }

    fn raw(&self, slot: u16) -> Found<'r> {
        match self.source.raw(slot) {
            Found::Value(value) => Found::of(value),
            missing => missing,
        }
    }

    /// A derived attribute, computed now if it was not yet. `None` only for a reference of another
    /// configuration.
    fn derived(&self, index: u8) -> Option<&Derived<'r>> {
        let (cell, step) = (
            self.derived.get(usize::from(index)),
            self.bound.steps.get(usize::from(index)),
        );
        debug_assert!(step.is_some(), "the reference is of this configuration");
        let (cell, step) = (cell?, step?);
        if cell.get().is_none() {
            // Nobody sets it meanwhile: no attribute derives from itself.
            let _ = cell.set(self.derive(step));
        }
        cell.get()
    }

    fn derive(&self, step: &'r Step) -> Derived<'r> {
        match step {
            Step::Client {
                peer,
                forwarded,
                trusted,
                ipv6_prefix,
            } => match self.client(*peer, *forwarded, trusted) {
                Ok(address) => Derived::Address(AddressText::new(address, *ipv6_prefix)),
                Err(missing) => Derived::Bytes(missing.into()),
            },
            Step::Capture(from, pattern) => self.capture(*from, pattern),
            Step::Lookup(from, values) => Derived::Bytes(match self.value(*from) {
                Found::Value(value) => match values.get(value) {
                    Some(found) => Found::of(found.as_bytes()),
                    None => Found::Absent,
                },
                Found::Absent => Found::Absent,
                Found::Failed => Found::Failed,
            }),
        }
    }

    fn capture(&self, from: AttributeRef, pattern: &Glob) -> Derived<'r> {
        let found = match from {
            AttributeRef::Source(slot) => self.raw(slot),
            AttributeRef::Derived(index) => match self.derived(index) {
                Some(Derived::Bytes(found)) => *found,
                // A part of an address lives no longer than its text: it is copied.
                Some(Derived::Address(text)) => {
                    let part = pattern.capture(text.bytes());
                    return match part.and_then(AddressText::part) {
                        Some(part) => Derived::Address(part),
                        None => Derived::Bytes(Found::Absent),
                    };
                }
                None => Found::Failed,
            },
        };
        Derived::Bytes(match found {
            Found::Value(value) => pattern.capture(value).map_or(Found::Absent, Found::of),
            other => other,
        })
    }

    fn client(
        &self,
        peer: AttributeRef,
        forwarded: AttributeRef,
        trusted: &Networks,
    ) -> Result<IpAddr, Missing> {
        let peer = match self.value(peer) {
            Found::Value(peer) => peer,
            Found::Absent => return Err(Missing::Absent),
            Found::Failed => return Err(Missing::Failed),
        };
        let found = client(peer, trusted, || match self.value(forwarded) {
            Found::Value(text) => Ok(text),
            Found::Absent => Ok(&[][..]),
            Found::Failed => Err(Missing::Failed),
        })?;
        match found {
            Client::Address(address) => Ok(address),
            Client::PrivatePeer(peer) => {
                self.untrusted_peer.set(Some(peer));
                Ok(peer)
            }
            Client::Unknown => Err(Missing::Absent),
        }
    }
}

/// Why an address is not known.
enum Missing {
    Absent,
    Failed,
}

impl From<Missing> for Found<'_> {
    fn from(missing: Missing) -> Self {
        match missing {
            Missing::Absent => Found::Absent,
            Missing::Failed => Found::Failed,
        }
    }
}
