//! A small located YAML reader: text in, a tree with lines and columns out.
//!
//! I own parsing of one document into [`Node`]s. I promise that every node knows where it was
//! written, that aliases and merge keys expand within named bounds, and that bad input of any kind
//! (empty, binary, not UTF-8, huge, an alias bomb) is an error with a place, never a panic. I never
//! guess types: a scalar stays the text that was written, and the reader of a key gives it a type.

use std::borrow::Cow;
use std::collections::BTreeMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{PolicyError, Problems};
use crate::limits::{
    MAX_ALIAS_BYTES, MAX_ALIAS_NODES, MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, MAX_DOCUMENT_NODES,
};

/// A place in a document. Both count from 1; a column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where the value starts; for an alias, where the alias stands.
    pub pos: Pos,
    /// The value.
    pub value: Value,
}

/// What a document can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Any other scalar, as written: `10`, `true` and `"10"` are texts until somebody types them.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order written, keys unique.
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key was written.
    pub pos: Pos,
    /// The value.
    pub value: Node,
}

impl Node {
    /// What the node is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Text(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The text of a scalar.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a sequence.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a mapping.
    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?
            .iter()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.value)
    }

    pub(super) fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// Nodes and text bytes of this node and everything below it.
    fn size(&self) -> Size {
        let own = Size { nodes: 1, bytes: 0 };
        match &self.value {
            Value::Null => own,
            Value::Text(text) => Size {
                nodes: 1,
                bytes: text.len(),
            },
            Value::List(items) => items.iter().map(Node::size).fold(own, Size::plus),
            Value::Map(entries) => entries
                .iter()
                .map(|e| {
                    e.value.size().plus(Size {
                        nodes: 1,
                        bytes: e.key.len(),
                    })
                })
                .fold(own, Size::plus),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    fn plus(self, other: Size) -> Size {
        Size {
            nodes: self.nodes.saturating_add(other.nodes),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Parses the bytes of a file.
///
/// # Errors
/// As [`parse`], and one that names the place of the first byte that is not UTF-8.
pub fn parse_bytes(file: &str, bytes: &[u8]) -> Result<Node, Vec<PolicyError>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse(file, text),
        Err(error) => {
            let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let line_start = good.rfind('\n').map_or(0, |at| at + 1);
            let pos = Pos {
                line: small(good.bytes().filter(|b| *b == b'\n').count() + 1),
                column: small(good[line_start..].chars().count() + 1),
            };
            Err(one(
                file,
                pos,
                "the file is not UTF-8 text; save it as UTF-8".to_owned(),
            ))
        }
    }
}

/// Parses one document. An empty document is [`Value::Null`].
///
/// # Errors
/// One error with its place when the text is not YAML, holds more than one document, repeats a key,
/// uses keys that are not scalars or custom tags, or passes one of the bounds in
/// [`crate::limits`]. Nothing is returned then.
pub fn parse(file: &str, text: &str) -> Result<Node, Vec<PolicyError>> {
    let start = Pos { line: 1, column: 1 };
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = format!(
            "the file has {} bytes, more than the {MAX_DOCUMENT_BYTES} that are read; split it",
            text.len()
        );
        return Err(one(file, start, message));
    }
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder = Builder {
        events: Parser::new_from_str_with_options(text, options),
        anchors: BTreeMap::new(),
        nodes: 0,
        anchored_nodes: 0,
        aliased: Size::default(),
    };
    builder
        .document()
        .map_err(|Fault(pos, message)| one(file, pos, with_hint(text, pos, message)))
}

/// A bare star is an alias in YAML and a wildcard in a rule: whoever writes one is told to quote.
fn with_hint(text: &str, pos: Pos, message: String) -> String {
    let before = |n: u32| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = text.lines().nth(before(pos.line)).unwrap_or_default();
    if line.chars().nth(before(pos.column)) == Some('*') {
        return format!("{message}; write a value that starts with a star in quotes, like \"*\"");
    }
    message
}

fn one(file: &str, pos: Pos, message: String) -> Vec<PolicyError> {
    let problems = Problems::new(file);
    problems.at(pos, "", message);
    problems.into_errors()
}

fn small(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn pos_of(span: &Span) -> Pos {
    Pos {
        line: small(span.start.line()),
        column: small(span.start.col().saturating_add(1)),
    }
}

/// A place and what is wrong there.
struct Fault(Pos, String);

impl From<ScanError> for Fault {
    fn from(error: ScanError) -> Self {
        let at = error.marker();
        let pos = Pos {
            line: small(at.line()),
            column: small(at.col().saturating_add(1)),
        };
        Fault(pos, format!("this is not YAML: {}", error.kind()))
    }
}

/// Builds nodes from the events of the parser.
struct Builder<'i> {
    events: Parser<'i, StrInput<'i>>,
    /// Finished anchored nodes; `None` for one that is too large to be repeated.
    anchors: BTreeMap<usize, Option<Node>>,
    nodes: usize,
    anchored_nodes: usize,
    aliased: Size,
}

impl<'i> Builder<'i> {
    fn next(&mut self) -> Result<(Event<'i>, Span), Fault> {
        match self.events.next() {
            Some(result) => Ok(result?),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Node, Fault> {
        let mut root: Option<Node> = None;
        loop {
            let (event, span) = self.next()?;
            let pos = pos_of(&span);
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
                _ if root.is_some() => {
                    return Err(Fault(
                        pos,
                        "a second document starts; one file is one".into(),
                    ))
                }
                event => root = Some(self.node(event, pos, 0)?),
            }
        }
        let nothing = Node {
            pos: Pos { line: 1, column: 1 },
            value: Value::Null,
        };
        Ok(root.unwrap_or(nothing))
    }

    fn node(&mut self, event: Event<'i>, pos: Pos, depth: usize) -> Result<Node, Fault> {
        self.nodes += 1;
        if self.nodes > MAX_DOCUMENT_NODES {
            return Err(Fault(
                pos,
                format!("more than {MAX_DOCUMENT_NODES} values; split the file"),
            ));
        }
        if depth > MAX_DOCUMENT_DEPTH {
            return Err(Fault(
                pos,
                format!("nested deeper than {MAX_DOCUMENT_DEPTH} levels"),
            ));
        }
        let (value, anchor) = match event {
            Event::Alias(id) => return self.alias(id, pos),
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(text, style, tag.as_deref(), pos)?, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                no_tag(tag.as_deref(), "seq", pos)?;
                (self.list(depth)?, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                no_tag(tag.as_deref(), "map", pos)?;
                (self.map(depth)?, anchor)
            }
            _ => return Err(Fault(pos, "this is not a value".into())),
        };
        let node = Node { pos, value };
        if anchor != 0 {
            self.remember(anchor, &node)?;
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::SequenceEnd => return Ok(Value::List(items)),
                event => items.push(self.node(event, pos_of(&span), depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, Fault> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen: BTreeMap<String, Pos> = BTreeMap::new();
        let mut merges: Vec<Node> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let pos = pos_of(&span);
            let (key, plain) = match event {
                Event::MappingEnd => break,
                Event::Scalar(text, style, _, _) => {
                    (text.into_owned(), matches!(style, ScalarStyle::Plain))
                }
                _ => return Err(Fault(pos, "a key is a single value".into())),
            };
            let (event, span) = self.next()?;
            let value = self.node(event, pos_of(&span), depth + 1)?;
            if plain && key == "<<" {
                merges.push(value);
                continue;
            }
            if let Some(first) = seen.insert(key.clone(), pos) {
                let message = format!(
                    "key {key} is already given at {}:{}",
                    first.line, first.column
                );
                return Err(Fault(pos, message));
            }
            entries.push(Entry { key, pos, value });
        }
        for merge in merges {
            merge_into(&mut entries, &mut seen, merge)?;
        }
        Ok(Value::Map(entries))
    }

    fn remember(&mut self, anchor: usize, node: &Node) -> Result<(), Fault> {
        let size = node.size();
        let fits = size.nodes <= MAX_ALIAS_NODES && size.bytes <= MAX_ALIAS_BYTES;
        if fits {
            self.anchored_nodes += size.nodes;
            if self.anchored_nodes > MAX_DOCUMENT_NODES {
                return Err(Fault(
                    node.pos,
                    "anchors hold too many values; use fewer".into(),
                ));
            }
        }
        self.anchors.insert(anchor, fits.then(|| node.clone()));
        Ok(())
    }

    fn alias(&mut self, id: usize, pos: Pos) -> Result<Node, Fault> {
        let too_large = || {
            Fault(
                pos,
                format!(
                    "aliases expand to more than {MAX_ALIAS_NODES} values or {MAX_ALIAS_BYTES} \
                     bytes; write the values out"
                ),
            )
        };
        let target = self
            .anchors
            .get(&id)
            .ok_or_else(|| Fault(pos, "an alias inside its own anchor never ends".into()))?
            .as_ref()
            .ok_or_else(too_large)?;
        self.aliased = self.aliased.plus(target.size());
        if self.aliased.nodes > MAX_ALIAS_NODES || self.aliased.bytes > MAX_ALIAS_BYTES {
            return Err(too_large());
        }
        Ok(Node {
            pos,
            value: target.value.clone(),
        })
    }
}

/// Adds the entries of a merge key that the mapping does not give itself.
fn merge_into(
    entries: &mut Vec<Entry>,
    seen: &mut BTreeMap<String, Pos>,
    merge: Node,
) -> Result<(), Fault> {
    match merge.value {
        Value::Map(merged) => {
            for entry in merged {
                if !seen.contains_key(&entry.key) {
                    seen.insert(entry.key.clone(), entry.pos);
                    entries.push(entry);
                }
            }
            Ok(())
        }
        Value::List(items) if items.iter().all(|item| item.as_map().is_some()) => items
            .into_iter()
            .try_for_each(|item| merge_into(entries, seen, item)),
        _ => Err(Fault(
            merge.pos,
            "<< merges a mapping or a list of mappings".into(),
        )),
    }
}

fn no_tag(tag: Option<&Tag>, core: &str, pos: Pos) -> Result<(), Fault> {
    match tag {
        Some(tag) if tag.core_suffix() != Some(core) => Err(Fault(
            pos,
            format!("tag {}{} means nothing here", tag.handle(), tag.suffix()),
        )),
        _ => Ok(()),
    }
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    pos: Pos,
) -> Result<Value, Fault> {
    let core = tag.and_then(Tag::core_suffix);
    if !matches!(core, Some("str" | "int" | "float" | "bool" | "null")) {
        no_tag(tag, "str", pos)?;
    }
    let plain = matches!(style, ScalarStyle::Plain) && core != Some("str");
    if plain && matches!(text.as_ref(), "" | "~" | "null" | "Null" | "NULL") {
        return Ok(Value::Null);
    }
    Ok(Value::Text(text.into_owned()))
}

/// The known word nearest to a text, if it is near enough to be a slip of the pen.
pub fn nearest<'w>(text: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if text.len() > 64 {
        return None;
    }
    let plain = text.to_ascii_lowercase().replace('-', "_");
    words
        .into_iter()
        .map(|word| {
            (
                strsim::osa_distance(&plain, &word.to_ascii_lowercase()),
                word,
            )
        })
        .filter(|(distance, word)| *distance <= (word.len().max(3) / 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}
