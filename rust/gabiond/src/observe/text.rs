//! Descriptors as short texts, made without allocating.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;

use arrayvec::ArrayString;

use crate::protocol::RateLimitDescriptor;

/// Bytes of a descriptor's text.
pub(crate) const TEXT_BYTES: usize = 120;
const MORE: &str = "...";

/// A descriptor's text, at most [`TEXT_BYTES`] long.
pub(crate) type Text = ArrayString<TEXT_BYTES>;

/// Writes descriptors, with their values or with a hash in their place.
#[derive(Debug)]
pub(crate) struct Shower {
    /// `Some`: values are hidden behind a hash that differs from process to process.
    hashed: Option<RandomState>,
}

impl Shower {
    pub(crate) fn new(values_shown: bool) -> Self {
        Self {
            hashed: (!values_shown).then(RandomState::new),
        }
    }

    /// `key=value,key=value`; what does not fit is cut and marked with `...`.
    pub(crate) fn descriptor(&self, descriptor: &RateLimitDescriptor) -> Text {
        let mut text = Text::new();
        let whole = descriptor.entries.iter().enumerate().all(|(index, entry)| {
            let comma = if index > 0 { "," } else { "" };
            put(&mut text, comma)
                && bytes(&mut text, &entry.key)
                && put(&mut text, "=")
                && match &self.hashed {
                    None => bytes(&mut text, &entry.value),
                    Some(hasher) => write!(text, "#{:016x}", hasher.hash_one(&entry.value)).is_ok(),
                }
        });
        if !whole {
            cut(&mut text);
        }
        text
    }
}

/// As much of a name as fits.
pub(crate) fn name<const N: usize>(of: &str) -> ArrayString<N> {
    let mut text = ArrayString::new();
    let whole = of.chars().all(|c| text.try_push(c).is_ok());
    if !whole {
        cut(&mut text);
    }
    text
}

fn cut<const N: usize>(text: &mut ArrayString<N>) {
    while text.remaining_capacity() < MORE.len() && text.pop().is_some() {}
    let _ = text.try_push_str(MORE); // there is room now
}

fn put(text: &mut Text, part: &str) -> bool {
    text.try_push_str(part).is_ok()
}

/// Text as it is; control characters and what is not UTF-8 as `\x1f`.
fn bytes(text: &mut Text, of: &[u8]) -> bool {
    of.utf8_chunks().all(|chunk| {
        let valid = chunk.valid().chars().all(|c| {
            if c.is_control() {
                let mut code = [0; 4];
                escaped(text, c.encode_utf8(&mut code).as_bytes())
            } else {
                text.try_push(c).is_ok()
            }
        });
        valid && escaped(text, chunk.invalid())
    })
}

fn escaped(text: &mut Text, of: &[u8]) -> bool {
    of.iter()
        .all(|byte| text.remaining_capacity() >= 4 && write!(text, "\\x{byte:02x}").is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::descriptor;

    #[test]
    fn a_text_names_keys_and_values_and_nothing_breaks_a_line() {
        let shower = Shower::new(true);
        let plain = shower.descriptor(&descriptor(&[("ip", "10.0.0.1"), ("path", "/a b")]));
        assert_eq!(plain.as_str(), "ip=10.0.0.1,path=/a b");
        let mut odd = descriptor(&[("k", "a\nb\u{85}")]);
        odd.entries[0].value = [&odd.entries[0].value[..], &[0xff]].concat().into();
        assert_eq!(shower.descriptor(&odd).as_str(), "k=a\\x0ab\\xc2\\x85\\xff");
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let long = "ü".repeat(500);
        let text = Shower::new(true).descriptor(&descriptor(&[("k", &long)]));
        assert!(
            text.ends_with("ü...") && text.len() > TEXT_BYTES - 4,
            "{text}"
        );
        let name: ArrayString<8> = name("abcdefghij");
        assert_eq!(name.as_str(), "abcde...");
    }

    #[test]
    fn hidden_values_are_told_apart_and_not_shown() {
        let shower = Shower::new(false);
        let text = |value| shower.descriptor(&descriptor(&[("token", value)]));
        assert!(text("secret").starts_with("token=#") && !text("secret").contains("secret"));
        assert_eq!(text("secret"), text("secret"));
        assert_ne!(text("secret"), text("other"));
    }
}
