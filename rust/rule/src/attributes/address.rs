//! Addresses in their strict forms, and their canonical text.
//!
//! I own reading an address from a request. I promise that a text has one meaning or none: no octal
//! or short forms, no zone names, and an IPv4 address written in IPv6 is that IPv4 address. I never
//! allocate.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest text of an address: IPv4 in IPv6, all digits written.
const MAX_ADDRESS_BYTES: usize = 45;
/// Bytes of the longest canonical text: an IPv6 address and `/128`.
const MAX_TEXT_BYTES: usize = 43;

/// An address: dotted IPv4, or IPv6 without brackets. IPv4-mapped IPv6 is IPv4.
// spec: attr-2
pub(crate) fn parse_address(text: &[u8]) -> Option<IpAddr> {
    if text.len() > MAX_ADDRESS_BYTES {
        return None;
    }
    let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(address.to_canonical())
}

/// One element of a forwarded header, or a peer: an address, `IPV4:PORT`, `[IPV6]` or
/// `[IPV6]:PORT`, with spaces and tabs around it.
// spec: attr-2
pub(crate) fn parse_hop(text: &[u8]) -> Option<IpAddr> {
    let text = trim(text);
    if let Some(rest) = text.strip_prefix(b"[") {
        let end = rest.iter().position(|b| *b == b']')?;
        let (inner, port) = (&rest[..end], &rest[end + 1..]);
        let port_is_good = port.is_empty() || port.strip_prefix(b":").is_some_and(is_port);
        return (port_is_good && inner.contains(&b':'))
            .then(|| parse_address(inner))
            .flatten();
    }
    // One colon separates a port: an IPv6 address has two or more.
    let mut colons = text.iter().enumerate().filter(|(_, b)| **b == b':');
    match (colons.next(), colons.next()) {
        (Some((at, _)), None) if is_port(&text[at + 1..]) => parse_address(&text[..at]),
        _ => parse_address(text),
    }
}

fn is_port(text: &[u8]) -> bool {
    let digits = (1..=5).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    digits && text.iter().fold(0u32, |n, b| n * 10 + u32::from(b - b'0')) <= 65_535
}

/// Without spaces and tabs at both ends.
pub(crate) fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Whether an address belongs to somebody's own network: RFC 1918, loopback, unique local and
/// link-local addresses.
// spec: attr-7
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

/// The first and the last address of the network of `length` bits around an address. The length is
/// at most that of the address.
pub(crate) fn network_of(address: IpAddr, length: u8) -> (IpAddr, IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let bits = v4.to_bits();
            let ends = (bits & !host, bits | host);
            (
                IpAddr::V4(Ipv4Addr::from_bits(ends.0)),
                IpAddr::V4(Ipv4Addr::from_bits(ends.1)),
            )
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let bits = v6.to_bits();
            let ends = (bits & !host, bits | host);
            (
                IpAddr::V6(Ipv6Addr::from_bits(ends.0)),
                IpAddr::V6(Ipv6Addr::from_bits(ends.1)),
            )
        }
    }
}

/// The canonical text of an address or of a network, held in place.
#[derive(Clone, Copy)]
pub(crate) struct AddressText {
    bytes: [u8; MAX_TEXT_BYTES],
    len: u8,
}

impl AddressText {
    /// `ADDR`; for an IPv6 address with `ipv6_prefix` below 128 `PREFIX::/len`.
    // spec: attr-8
    pub(crate) fn new(address: IpAddr, ipv6_prefix: u8) -> Self {
        let mut text = AddressText {
            bytes: [0; MAX_TEXT_BYTES],
            len: 0,
        };
        // Writing fails only beyond the bound, which is that of the longest text.
        let written = match address.to_canonical() {
            address @ IpAddr::V6(_) if ipv6_prefix < 128 => {
                let (first, _) = network_of(address, ipv6_prefix);
                write!(text, "{first}/{ipv6_prefix}")
            }
            // Most clients are these, and formatting would cost a decision some 1,000 instructions.
            IpAddr::V4(address) => text.write_octets(address.octets()),
            address => write!(text, "{address}"),
        };
        debug_assert!(written.is_ok());
        text
    }

    /// An IPv4 address in decimals.
    fn write_octets(&mut self, octets: [u8; 4]) -> fmt::Result {
        for (at, octet) in octets.into_iter().enumerate() {
            let digits = [octet / 100, octet / 10 % 10, octet % 10].map(|digit| b'0' + digit);
            let zeros = usize::from(octet < 100) + usize::from(octet < 10);
            if at > 0 {
                self.write_str(".")?;
            }
            let digits = std::str::from_utf8(&digits[zeros..]).map_err(|_| fmt::Error)?;
            self.write_str(digits)?;
        }
        Ok(())
    }

    /// A part of another text.
    pub(crate) fn part(of: &[u8]) -> Option<Self> {
        let mut text = AddressText {
            bytes: [0; MAX_TEXT_BYTES],
            len: 0,
        };
        text.write_str(std::str::from_utf8(of).ok()?).ok()?;
        Some(text)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Write for AddressText {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let start = usize::from(self.len);
        let room = self.bytes.get_mut(start..start + piece.len());
        room.ok_or(fmt::Error)?.copy_from_slice(piece.as_bytes());
        self.len = u8::try_from(start + piece.len()).map_err(|_| fmt::Error)?;
        Ok(())
    }
}

impl fmt::Debug for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hop(text: &str) -> Option<String> {
        parse_hop(text.as_bytes()).map(|a| a.to_string())
    }

    #[test]
    fn every_form_of_a_hop_is_read() {
        for (text, address) in [
            ("203.0.113.50", "203.0.113.50"),
            (" \t203.0.113.50 ", "203.0.113.50"),
            ("203.0.113.50:65535", "203.0.113.50"),
            ("2001:DB8:0:0::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:203.0.113.50", "203.0.113.50"),
            ("::FFFF:cb00:7132", "203.0.113.50"),
            ("[::ffff:203.0.113.50]:80", "203.0.113.50"),
            ("::1", "::1"),
            ("0000:0000:0000:0000:0000:ffff:203.000.113.50", ""),
            ("0000:0000:0000:0000:0000:ffff:203.0.113.50", "203.0.113.50"),
        ] {
            let address = (!address.is_empty()).then(|| address.to_owned());
            assert_eq!(hop(text), address, "{text}");
        }
    }

    #[test]
    fn what_has_two_meanings_has_none() {
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "010.0.0.1",
            "10.1",
            "0x0a000001",
            "167772161",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.4:",
            "1.2.3.4:65536",
            "1.2.3.4:http",
            "1.2.3.4:123456",
            "[1.2.3.4]",
            "[1.2.3.4]:80",
            "[::1",
            "[::1]x",
            "[::1]:",
            "::1]",
            "fe80::1%eth0",
            "1:2:3:4:5:6:7:8:9",
            "12345::",
            "\"1.2.3.4\"",
            "for=1.2.3.4",
            "1.2.3.4 5.6.7.8",
            "１.2.3.4",
        ] {
            assert_eq!(hop(text), None, "{text:?}");
        }
    }

    #[test]
    fn private_is_what_the_guides_call_private() {
        for (text, private) in [
            ("10.0.0.1", true),
            ("172.16.0.1", true),
            ("172.32.0.1", false),
            ("192.168.1.1", true),
            ("127.9.9.9", true),
            ("169.254.1.1", true),
            ("100.64.0.1", false),
            ("203.0.113.1", false),
            ("::1", true),
            ("fd00::1", true),
            ("fe80::1", true),
            ("2001:db8::1", false),
            ("::ffff:10.0.0.1", true),
        ] {
            assert_eq!(is_private(text.parse().unwrap()), private, "{text}");
        }
    }

    #[test]
    fn a_network_is_named_by_its_first_address() {
        let text = |address: &str, prefix| {
            let text = AddressText::new(address.parse().unwrap(), prefix);
            String::from_utf8(text.bytes().to_vec()).unwrap()
        };
        assert_eq!(text("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::/64");
        assert_eq!(text("2001:db8:1:2:3:4:5:6", 0), "::/0");
        assert_eq!(text("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
        assert_eq!(text("203.0.113.50", 64), "203.0.113.50");
        assert_eq!(text("::ffff:203.0.113.50", 64), "203.0.113.50");
        let longest = "1111:2222:3333:4444:5555:6666:7777:8888";
        assert_eq!(text(longest, 127), format!("{longest}/127"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_address_or_nothing(
            text in proptest::collection::vec(any::<u8>(), 0..60)
        ) {
            if let Some(address) = parse_hop(&text) {
                prop_assert_eq!(address.to_canonical(), address);
            }
        }

        #[test]
        fn the_text_of_an_address_reads_as_itself(
            bits in any::<u128>(), low in any::<u32>(), v4 in any::<bool>()
        ) {
            let address = match v4 {
                true => IpAddr::V4(Ipv4Addr::from_bits(low)),
                false => IpAddr::V6(Ipv6Addr::from_bits(bits)),
            }
            .to_canonical();
            let text = AddressText::new(address, 128);
            prop_assert_eq!(parse_hop(text.bytes()), Some(address));
            let shown = address.to_string();
            prop_assert_eq!(text.bytes(), shown.as_bytes());
        }

        #[test]
        fn an_address_is_inside_its_network(
            bits in any::<u128>(), low in any::<u32>(), length in 0u8..=128
        ) {
            let address = IpAddr::V6(Ipv6Addr::from_bits(bits));
            let (first, last) = network_of(address, length);
            prop_assert!(first <= address && address <= last);
            let v4 = IpAddr::V4(Ipv4Addr::from_bits(low));
            let (first, last) = network_of(v4, length.min(32));
            prop_assert!(first <= v4 && v4 <= last);
        }
    }
}
