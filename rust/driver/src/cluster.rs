//! How a configuration names a cluster, and what follows from the name.
//!
//! I own the one reading of cluster ids that nginx and gabiond share. I promise that the same text
//! gives the same tag on every member, and that no digit of a number is lost silently.

use std::fmt;

use crate::error::ClusterIdError;

/// The cluster a member belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId {
    text: String,
    hash: u64,
}

impl ClusterId {
    /// Reads a cluster id: a number (decimal, or hexadecimal with `0x`) or a name.
    ///
    /// `31` and `0x1f` are the same cluster. A text that starts with a digit must be a number.
    ///
    /// # Errors
    /// [`ClusterIdError`] when it is empty, or looks like a number and is none of 64 bits.
    pub fn parse(text: &str) -> Result<Self, ClusterIdError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ClusterIdError::Empty);
        }
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            return u64::from_str_radix(digits, 16)
                .ok()
                .filter(|_| !digits.starts_with('+'))
                .map(Self::from_hash)
                .ok_or_else(|| ClusterIdError::NotANumber {
                    text: text.to_owned(),
                });
        }
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text
                .parse()
                .map(Self::from_hash)
                .map_err(|_| ClusterIdError::NotANumber {
                    text: text.to_owned(),
                });
        }
        Ok(Self {
            text: text.to_owned(),
            hash: fnv1a(text.as_bytes()),
        })
    }

    /// A cluster named by a number.
    pub fn from_hash(hash: u64) -> Self {
        Self {
            text: format!("0x{hash:x}"),
            hash,
        }
    }

    /// The 32-bit tag of its frames: the number itself when it fits, else folded.
    pub fn tag(&self) -> u32 {
        let [a, b, c, d, e, f, g, h] = self.hash.to_be_bytes();
        u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h])
    }

    /// The canonical text, from which a key secret can be derived.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A number for a name. Not secret: it tells clusters apart, authentication is the MAC's work.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The node id of a seed text: the number itself when it is one and not 0, else a hash of it.
pub fn node_id_from_seed(seed: &str) -> u64 {
    let hash = ClusterId::parse(seed).map_or_else(|_| fnv1a(seed.as_bytes()), |id| id.hash);
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_61_hexadecimal_and_decimal_name_the_same_cluster() {
        assert_eq!(ClusterId::parse("0x1F"), ClusterId::parse("31"));
        assert_eq!(ClusterId::parse("31").unwrap().tag(), 31);
        assert_eq!(ClusterId::parse("4294967295").unwrap().tag(), u32::MAX);
    }

    #[test]
    fn case_61_no_digit_is_lost_silently() {
        let wide = ClusterId::parse("0x1_0000_001f".replace('_', "").as_str()).unwrap();
        assert_ne!(wide.tag(), ClusterId::parse("0x1f").unwrap().tag());
        for bad in [
            "0x",
            "0xzz",
            "18446744073709551616",
            "0x10000000000000000",
            "0x+1",
        ] {
            assert!(
                matches!(
                    ClusterId::parse(bad),
                    Err(ClusterIdError::NotANumber { .. })
                ),
                "{bad}"
            );
        }
        assert_eq!(ClusterId::parse("  "), Err(ClusterIdError::Empty));
    }

    #[test]
    fn names_differ() {
        let (a, b) = (ClusterId::parse("edge-eu"), ClusterId::parse("edge-us"));
        assert_ne!(a.unwrap().tag(), b.unwrap().tag());
    }

    #[test]
    fn a_node_id_is_never_zero() {
        assert_eq!(node_id_from_seed("0"), 1);
        assert_eq!(node_id_from_seed("0x2a"), 42);
        assert_ne!(node_id_from_seed("web-1"), node_id_from_seed("web-2"));
    }
}
