//! Sets of networks: addresses, CIDR blocks and presets.
//!
//! I own their grammar and the search. I promise that an entry that could mean two things is
//! refused with what to write, and that a search is one binary search whatever the number of
//! entries. I never allocate while searching.

use std::net::IpAddr;
use std::sync::Arc;

use super::address::{network_of, parse_address};
use super::presets::{preset, PRESETS};
use crate::duration::shorten;
use crate::error::RuleError;
use crate::limits::MAX_NETWORKS;
use crate::policy::yaml::nearest;

const HINT: &str = "an address (192.0.2.1, 2001:db8::1), a network (10.0.0.0/8) or preset:NAME";
const PRESET_WORDS: &str = "preset:private, preset:loopback, preset:link-local, preset:cloudflare";

/// A set of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Networks {
    entries: Arc<[String]>,
    v4: Ranges<u32>,
    v6: Ranges<u128>,
}

impl Networks {
    /// The set of these entries. `setting` is the name of the list, for messages.
    ///
    /// # Errors
    /// Each bad entry with its index, and one (at the index after the last) when the entries are
    /// more than [`MAX_NETWORKS`] networks.
    // spec: attr-3
    pub fn parse<T: AsRef<str>>(
        setting: &'static str,
        entries: &[T],
    ) -> Result<Networks, Vec<(usize, RuleError)>> {
        let (mut v4, mut v6, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            match networks_of(setting, entry.as_ref()) {
                Ok(ranges) => ranges.into_iter().for_each(|range| match range {
                    (IpAddr::V4(a), IpAddr::V4(b)) => v4.push((a.to_bits(), b.to_bits())),
                    (IpAddr::V6(a), IpAddr::V6(b)) => v6.push((a.to_bits(), b.to_bits())),
                    _ => debug_assert!(false, "both ends are of one family"),
                }),
                Err(error) => errors.push((index, error)),
            }
        }
        let count = v4.len() + v6.len();
        if count > MAX_NETWORKS || entries.len() > MAX_NETWORKS {
            let error = RuleError::OutOfRange {
                setting,
                text: format!("{count} networks"),
                why: format!("a list holds at most {MAX_NETWORKS}; write wider networks"),
            };
            errors.push((entries.len(), error));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Networks {
            entries: entries.iter().map(|e| e.as_ref().to_owned()).collect(),
            v4: Ranges::new(v4),
            v6: Ranges::new(v6),
        })
    }

    /// The entries as they were written.
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// The presets in the list that go stale: name, and day on which their owner published them.
    // spec: attr-4
    pub fn dated_presets(&self) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
        let names = self
            .entries
            .iter()
            .filter_map(|e| e.strip_prefix("preset:"));
        let presets = names.filter_map(preset).filter(|p| !p.as_of.is_empty());
        presets.map(|preset| (preset.name, preset.as_of))
    }

    /// Whether the address is inside one of the networks. IPv4-mapped IPv6 counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.contains_range(address.to_canonical(), address.to_canonical())
    }

    /// Whether the text is an address, or a network written `ADDR/len`, that is inside the
    /// networks as a whole. Any other text is outside.
    // spec: attr-3
    pub fn contains_text(&self, text: &[u8]) -> bool {
        let Some(slash) = text.iter().position(|b| *b == b'/') else {
            return parse_address(text).is_some_and(|address| self.contains(address));
        };
        parse_block(&text[..slash], &text[slash + 1..]).is_some_and(|(address, length)| {
            let (first, last) = network_of(address, length);
            self.contains_range(first, last)
        })
    }

    fn contains_range(&self, first: IpAddr, last: IpAddr) -> bool {
        match (first, last) {
            (IpAddr::V4(a), IpAddr::V4(b)) => self.v4.contains(a.to_bits(), b.to_bits()),
            (IpAddr::V6(a), IpAddr::V6(b)) => self.v6.contains(a.to_bits(), b.to_bits()),
            _ => false,
        }
    }
}

/// Disjoint ranges in rising order, with a gap between each two.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges<T>(Arc<[(T, T)]>);

impl<T: Copy + Ord + num::Next> Ranges<T> {
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                // Overlapping, or beginning where the other ends.
                Some(open) if first <= open.1 || open.1.next() == Some(first) => {
                    open.1 = open.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        Ranges(merged.into())
    }

    fn contains(&self, first: T, last: T) -> bool {
        let after = self.0.partition_point(|range| range.0 <= first);
        after > 0 && last <= self.0[after - 1].1
    }
}

mod num {
    /// The number after this one, if there is one.
    pub(super) trait Next: Sized {
        fn next(self) -> Option<Self>;
    }

    impl Next for u32 {
        fn next(self) -> Option<u32> {
            self.checked_add(1)
        }
    }

    impl Next for u128 {
        fn next(self) -> Option<u128> {
            self.checked_add(1)
        }
    }
}

/// An address and the length of its network. A mapped IPv4 network is an IPv4 network.
fn parse_block(address: &[u8], length: &[u8]) -> Option<(IpAddr, u8)> {
    let digits = (1..=3).contains(&length.len()) && length.iter().all(u8::is_ascii_digit);
    if !digits || (length.len() > 1 && length[0] == b'0') {
        return None;
    }
    let length = length
        .iter()
        .fold(0u16, |n, b| n * 10 + u16::from(b - b'0'));
    let length = u8::try_from(length).ok()?;
    // Which of the two lengths is meant depends on how the address is written.
    let mapped = address.contains(&b':');
    match parse_address(address)? {
        IpAddr::V4(_) if mapped && !(96..=128).contains(&length) => None,
        address @ IpAddr::V4(_) if mapped => Some((address, length - 96)),
        IpAddr::V4(_) if length > 32 => None,
        IpAddr::V6(_) if length > 128 => None,
        address => Some((address, length)),
    }
}

/// First and last address of each network that an entry stands for.
fn networks_of(setting: &'static str, entry: &str) -> Result<Vec<(IpAddr, IpAddr)>, RuleError> {
    if let Some(name) = entry.strip_prefix("preset:") {
        let Some(preset) = preset(name) else {
            let near = nearest(name, PRESETS.iter().map(|preset| preset.name));
            return Err(RuleError::UnknownWord {
                setting,
                text: shorten(entry),
                suggestion: near.map(|name| format!("preset:{name}")),
                known: PRESET_WORDS,
            });
        };
        let networks = preset.networks.iter();
        return networks.map(|network| one(setting, network)).collect();
    }
    Ok(vec![one(setting, entry)?])
}

fn one(setting: &'static str, entry: &str) -> Result<(IpAddr, IpAddr), RuleError> {
    let malformed = |why: String| RuleError::Malformed {
        setting,
        text: shorten(entry),
        why,
        hint: HINT,
    };
    let Some((address, length)) = entry.split_once('/') else {
        let address = parse_address(entry.as_bytes())
            .ok_or_else(|| malformed("it is no address".to_owned()))?;
        return Ok((address, address));
    };
    let (address, length) = parse_block(address.as_bytes(), length.as_bytes())
        .ok_or_else(|| malformed("it is no address with a length from 0 to 32 or 128".into()))?;
    let (first, last) = network_of(address, length);
    if first != address {
        return Err(RuleError::Malformed {
            setting,
            text: shorten(entry),
            why: format!(
                "{address} is not the first address of a network; its network is {first}/{length}, \
                 its address {address}"
            ),
            hint: "the one that is meant",
        });
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn set(entries: &[&str]) -> Networks {
        Networks::parse("networks", entries).unwrap_or_else(|e| panic!("{e:?}"))
    }

    #[test]
    fn addresses_and_networks_of_both_families_are_found() {
        let set = set(&[
            "127.0.0.1",
            "10.0.0.0/8",
            "2001:db8::/32",
            "::1",
            "192.0.2.0/31",
        ]);
        for inside in [
            "127.0.0.1",
            "10.255.255.255",
            "::ffff:10.1.2.3",
            "2001:db8:ffff::",
            "::1",
            "192.0.2.1",
            "10.1.0.0/16",
            "2001:db8:1::/64",
            "::ffff:10.1.0.0/112",
        ] {
            assert!(set.contains_text(inside.as_bytes()), "{inside}");
        }
        for outside in [
            "127.0.0.2",
            "11.0.0.0",
            "9.255.255.255",
            "2001:db9::",
            "::2",
            "192.0.2.2",
            "8.0.0.0/7",
            "10.0.0.0/7",
            "2001:db8::/31",
            "::",
            "",
            "x",
            "10.0.0.1:80",
            "10.0.0.0/08",
            "10.0.0.0/33",
            "10.0.0.0/",
        ] {
            assert!(!set.contains_text(outside.as_bytes()), "{outside}");
        }
        assert_eq!(set.entries().len(), 5);
    }

    #[test]
    fn presets_are_lists_and_each_of_their_networks_loads() {
        let all: Vec<String> = PRESETS
            .iter()
            .map(|p| format!("preset:{}", p.name))
            .collect();
        assert_eq!(all.len(), PRESET_WORDS.split(", ").count());
        for (preset, name) in PRESETS.iter().zip(&all) {
            assert!(PRESET_WORDS.contains(name.as_str()), "{name}");
            let set = set(&[name]);
            for network in preset.networks {
                assert!(set.contains_text(network.as_bytes()), "{name}: {network}");
            }
            let fixed = ["private", "loopback", "link-local"].contains(&preset.name);
            assert_eq!(fixed, preset.as_of.is_empty(), "{name}: a list is dated");
        }
        assert!(set(&["preset:cloudflare"]).contains_text(b"104.16.0.9"));
        assert!(set(&["preset:cloudflare"]).contains_text(b"2606:4700::1"));
        assert!(!set(&["preset:private"]).contains_text(b"127.0.0.1"));
        let dated = set(&["preset:private", "::1", "preset:cloudflare"]);
        assert_eq!(dated.dated_presets().count(), 1);
    }

    #[test]
    fn a_bad_entry_is_named_with_what_to_write() {
        let entries = [
            "10.0.0.1/8",
            "10.0.0.0/33",
            "010.0.0.1",
            "proxy.example",
            "preset:cloudfare",
            "2001:db8::1/64",
            "10.0.0.0/8 ",
            "",
            "10.0.0.0/8",
        ];
        let errors = Networks::parse("trusted_proxies", &entries).unwrap_err();
        let at: Vec<usize> = errors.iter().map(|(index, _)| *index).collect();
        assert_eq!(at, [0, 1, 2, 3, 4, 5, 6, 7]);
        let text = |at: usize| errors[at].1.to_string();
        assert!(
            text(0).starts_with("trusted_proxies=10.0.0.1/8: "),
            "{}",
            text(0)
        );
        assert!(text(0).contains("its network is 10.0.0.0/8, its address 10.0.0.1; write the one"));
        assert!(
            text(4).contains("did you mean preset:cloudflare?"),
            "{}",
            text(4)
        );
        assert!(text(5).contains("2001:db8::/64"), "{}", text(5));
    }

    #[test]
    fn too_many_are_refused() {
        let most: Vec<String> = (0..MAX_NETWORKS)
            .map(|n| Ipv4Addr::from_bits(u32::try_from(2 * n).unwrap()).to_string())
            .collect();
        let set = Networks::parse("networks", &most).unwrap();
        assert!(set.contains_text(b"0.0.0.2") && !set.contains_text(b"0.0.0.3"));
        let more = [most, vec!["::1".to_owned()]].concat();
        let errors = Networks::parse("networks", &more).unwrap_err();
        assert_eq!(errors[0].0, MAX_NETWORKS + 1);
    }

    /// Few bits differ, so that networks overlap, touch and hold each other.
    fn near() -> impl Strategy<Value = (u32, u8)> {
        (0u32..64, 26u8..=32).prop_map(|(low, length)| {
            let address = 0x0a00_0000 | low;
            (address & (u32::MAX << (32 - length)), length)
        })
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_looking_at_each_entry(
            blocks in proptest::collection::vec(near(), 0..12), low in 0u32..70, length in 26u8..=32
        ) {
            for v6 in [false, true] {
                let wide = |bits: u32| Ipv6Addr::from_bits(u128::from(bits) << 2 | 0x2001 << 112);
                let text: Vec<String> = blocks
                    .iter()
                    .map(|(bits, length)| match v6 {
                        false => format!("{}/{length}", Ipv4Addr::from_bits(*bits)),
                        true => format!("{}/{}", wide(*bits), length + 94),
                    })
                    .collect();
                let set = Networks::parse("networks", &text).unwrap();
                let address = 0x0a00_0000 | low;
                let found = match v6 {
                    false => set.contains(IpAddr::V4(Ipv4Addr::from_bits(address))),
                    true => set.contains(IpAddr::V6(wide(address))),
                };
                let inside = |bits: u32| {
                    blocks.iter().any(|(at, length)| bits & (u32::MAX << (32 - length)) == *at)
                };
                prop_assert_eq!(found, inside(address));
                // A network is inside when each of its addresses is.
                let block = address & (u32::MAX << (32 - length));
                let text = match v6 {
                    false => format!("{}/{length}", Ipv4Addr::from_bits(block)),
                    true => format!("{}/{}", wide(block), length + 94),
                };
                let all = (0..1u32 << (32 - length)).all(|n| inside(block + n));
                prop_assert_eq!(set.contains_text(text.as_bytes()), all, "{}", text);
            }
        }

        #[test]
        fn never_panics(
            text in "\\PC{0,24}", address in proptest::collection::vec(any::<u8>(), 0..50)
        ) {
            let _ = Networks::parse("networks", &[&text]);
            set(&["preset:private"]).contains_text(&address);
        }
    }
}
