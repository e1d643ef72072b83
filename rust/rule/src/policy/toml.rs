//! A TOML document as located nodes.
//!
//! I own the step from text to the nodes that [`crate::policy::MapReader`] reads. I promise that
//! numbers are the text that was written, that every node has a place, and that all faults of a
//! document are told at once. I never interpret a value: the reader of a key gives it a type.

use ::toml::de::{DeTable, DeValue};

use super::yaml::{Entry, Node, Pos, Value};
use super::{PolicyError, Problems};
use crate::limits::MAX_DOCUMENT_BYTES;

/// Parses one document.
///
/// # Errors
/// Every fault of the text with its place, and one when it is longer than [`MAX_DOCUMENT_BYTES`].
// spec: attr-11
pub fn parse(file: &str, text: &str) -> Result<Node, Vec<PolicyError>> {
    let problems = Problems::new(file);
    let places = Places::of(text);
    if text.len() > MAX_DOCUMENT_BYTES {
        let message = format!(
            "the file has {} bytes, more than the {MAX_DOCUMENT_BYTES} that are read; split it",
            text.len()
        );
        problems.at(places.at(0), "", message);
        return Err(problems.into_errors());
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        problems.at(
            places.at(at),
            "",
            format!("this is not TOML: {}", error.message()),
        );
    }
    if !problems.is_empty() {
        return Err(problems.into_errors());
    }
    Ok(Node {
        pos: places.at(root.span().start),
        value: Value::Map(table(root.get_ref(), &places)),
    })
}

/// Whether the value at a place of a document is a text in quotes, and no number or truth.
pub fn is_quoted(text: &str, pos: Pos) -> bool {
    let before = |n: u32| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let line = text.split('\n').nth(before(pos.line)).unwrap_or("");
    matches!(line.chars().nth(before(pos.column)), Some('"' | '\''))
}

/// From offsets to places.
struct Places<'t> {
    text: &'t str,
    /// Where each line starts.
    lines: Vec<usize>,
}

impl<'t> Places<'t> {
    fn of(text: &'t str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Places {
            text,
            lines: std::iter::once(0).chain(starts).collect(),
        }
    }

    fn at(&self, offset: usize) -> Pos {
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines.get(line.saturating_sub(1)).copied();
        let before = self.text.get(start.unwrap_or(0)..offset).unwrap_or("");
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Pos {
            line: small(line),
            column: small(before.chars().count() + 1),
        }
    }
}

/// The parser bounds the depth of a document.
fn table(table: &DeTable<'_>, places: &Places<'_>) -> Vec<Entry> {
    let entries = table.iter().map(|(key, value)| Entry {
        key: key.get_ref().clone().into_owned(),
        pos: places.at(key.span().start),
        value: node(value.get_ref(), places.at(value.span().start), places),
    });
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_by_key(|entry| entry.pos);
    entries
}

fn node(value: &DeValue<'_>, pos: Pos, places: &Places<'_>) -> Node {
    let value = match value {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Float(number) => Value::Text(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Value::Text(truth.to_string()),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Integer(number) => {
            let whole = i128::from_str_radix(number.as_str(), number.radix());
            Value::Text(whole.map_or_else(|_| number.to_string(), |whole| whole.to_string()))
        }
        DeValue::Array(items) => {
            let items = items.iter();
            let nodes = items.map(|item| {
                let pos = places.at(item.span().start);
                node(item.get_ref(), pos, places)
            });
            Value::List(nodes.collect())
        }
        DeValue::Table(inner) => Value::Map(table(inner, places)),
    };
    Node { pos, value }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_texts_with_places() {
        let text = "a = 1_000\n# é\n[b.c]\nd = 0.50 # x\ne = ['é', \"y\"]\nf = true\ng = 0x1F\n\
                    h = 5e-1\ni = -1\n[[b.l]]\nz = 1979-05-27\n";
        let root = parse("f.toml", text).unwrap();
        let (b, place) = (root.get("b").unwrap(), |n: &Node| {
            (n.pos.line, n.pos.column)
        });
        let c = b.get("c").unwrap();
        let text = |key: &str| c.get(key).unwrap().as_text().unwrap();
        assert_eq!(root.get("a").unwrap().as_text(), Some("1000"));
        assert_eq!(
            (text("d"), text("f"), text("g"), text("h")),
            ("0.50", "true", "31", "5e-1")
        );
        assert_eq!(text("i"), "-1");
        assert_eq!(place(c.get("d").unwrap()), (4, 5));
        let list = c.get("e").unwrap().as_list().unwrap();
        assert_eq!(
            (list[0].as_text(), list[1].as_text()),
            (Some("é"), Some("y"))
        );
        assert_eq!(place(&list[1]), (5, 11));
        assert_eq!(b.get("l").unwrap().as_list().unwrap().len(), 1);
    }

    #[test]
    fn texts_are_told_from_numbers() {
        let text = "# é\na = 'é'\nb = 5\nc = [\"x\", 1]\nd = '''\nx'''\n";
        let root = parse("f.toml", text).unwrap();
        let quoted = |node: &Node| is_quoted(text, node.pos);
        assert!(quoted(root.get("a").unwrap()) && quoted(root.get("d").unwrap()));
        assert!(!quoted(root.get("b").unwrap()) && !quoted(root.get("c").unwrap()));
        let items = root.get("c").unwrap().as_list().unwrap();
        assert!(quoted(&items[0]) && !quoted(&items[1]));
    }

    #[test]
    fn faults_have_places_and_come_at_once() {
        let errors = parse("f.toml", "a = 1\na = 2\nb = \n[c\n").unwrap_err();
        let lines: Vec<u32> = errors.iter().map(|error| error.place.line).collect();
        assert!(
            lines.contains(&2) && lines.contains(&3) && lines.contains(&4),
            "{errors:#?}"
        );
        assert!(errors[0]
            .to_string()
            .starts_with("f.toml:2:1: this is not TOML: "));
        let long = " ".repeat(MAX_DOCUMENT_BYTES + 1);
        assert_eq!(parse("f.toml", &long).unwrap_err().len(), 1);
        let deep = format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse("f.toml", &deep).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_document_or_a_list_of_faults(text in "[a-c=\\[\\]{}\"'.0-9 ,\n#é]{0,60}") {
            match parse("f.toml", &text) {
                Ok(root) => prop_assert!(root.as_map().is_some()),
                Err(errors) => prop_assert!(!errors.is_empty()),
            }
        }
    }
}
