//! Descriptors as short texts, made without allocating.

use std::collections::hash_map::RandomState;
use std::fmt::Write as _;
use std::hash::BuildHasher as _;

use arrayvec::ArrayString;

use crate::protocol::Entry;
#[cfg(test)]
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
    #[cfg(test)]
    pub(crate) fn descriptor(&self, descriptor: &RateLimitDescriptor) -> Text {
        self.entries(descriptor.entries.iter().map(pair)).0
    }

    /// The same of some entries, with a hash of all of them: by it a cut text is told apart.
    pub(crate) fn entries<'e>(
        &self,
        entries: impl Iterator<Item = (&'e [u8], &'e [u8])>,
    ) -> (Text, u64) {
        let (mut text, mut whole, mut hash) = (Text::new(), true, FNV_START);
        for (index, entry) in entries.enumerate() {
            hash = fnv1a(fnv1a(hash, entry.0), b"=");
            hash = fnv1a(fnv1a(hash, entry.1), b",");
            whole = whole && self.one(&mut text, index, entry);
        }
        if !whole {
            cut(&mut text);
        }
        (text, hash)
    }

    /// A value alone.
    pub(crate) fn value(&self, of: &[u8]) -> Text {
        let mut text = Text::new();
        let whole = match &self.hashed {
            None => bytes(&mut text, of),
            Some(hasher) => write!(text, "#{:016x}", hasher.hash_one(of)).is_ok(),
        };
        if !whole {
            cut(&mut text);
        }
        text
    }

    fn one(&self, text: &mut Text, index: usize, (key, value): (&[u8], &[u8])) -> bool {
        let comma = if index > 0 { "," } else { "" };
        put(text, comma)
            && bytes(text, key)
            && put(text, "=")
            && match &self.hashed {
                None => bytes(text, value),
                Some(hasher) => write!(text, "#{:016x}", hasher.hash_one(value)).is_ok(),
            }
    }
}

/// An entry's key and value.
pub(crate) fn pair(entry: &Entry) -> (&[u8], &[u8]) {
    (&entry.key, &entry.value)
}

/// Where a hash of nothing stands.
pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a of more bytes: the same on every member.
pub(crate) fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
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
