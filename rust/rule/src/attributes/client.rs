//! Who the client is, behind proxies.
//!
//! I own the walk over a forwarded header. I promise that only trusted hops are believed, read from
//! the right; that what an untrusted peer sends changes nothing; and that the walk is bounded
//! whatever is sent. I never allocate.

use std::net::IpAddr;

use super::address::{is_private, parse_hop, trim};
use super::networks::Networks;
use crate::limits::{MAX_FORWARDED_BYTES, MAX_FORWARDED_HOPS};

/// What the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// The client's address.
    Address(IpAddr),
    /// The peer's own address. It is private, untrusted, and sent a forwarded header.
    PrivatePeer(IpAddr),
    /// The peer is no address.
    Unknown,
}

/// The client of a peer that sent a forwarded header. `forwarded` is asked only when it matters.
// spec: attr-6, attr-7
pub(crate) fn client<'f, E>(
    peer: &[u8],
    trusted: &Networks,
    forwarded: impl FnOnce() -> Result<&'f [u8], E>,
) -> Result<Client, E> {
    let Some(peer) = parse_hop(peer) else {
        return Ok(Client::Unknown);
    };
    if trusted.contains(peer) {
        return Ok(Client::Address(walk(peer, trusted, forwarded()?)));
    }
    let from_private = is_private(peer) && !trim(forwarded()?).is_empty();
    Ok(match from_private {
        true => Client::PrivatePeer(peer),
        false => Client::Address(peer),
    })
}

/// From the right: the first address that is not trusted, or the last one before something that is
/// no address, before the bounds, or before the end.
fn walk(peer: IpAddr, trusted: &Networks, forwarded: &[u8]) -> IpAddr {
    let mut client = peer;
    // An element that begins before the bound is cut by it: it would be read as something else.
    let cut = forwarded.len().saturating_sub(MAX_FORWARDED_BYTES);
    let bounded = &forwarded[cut..];
    let whole = match (cut, bounded.iter().position(|b| *b == b',')) {
        (0, _) => bounded,
        (_, Some(comma)) => &bounded[comma + 1..],
        (_, None) => return client,
    };
    for element in whole.rsplit(|b| *b == b',').take(MAX_FORWARDED_HOPS) {
        // Empty elements of a list mean nothing (RFC 9110, 5.6.1).
        if trim(element).is_empty() {
            continue;
        }
        let Some(hop) = parse_hop(element) else {
            break;
        };
        client = hop;
        if !trusted.contains(hop) {
            break;
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRUSTED: [&str; 4] = ["127.0.0.1", "::1", "10.0.0.0/8", "2001:db8:f::/48"];

    fn trusted() -> Networks {
        Networks::parse("trusted_proxies", &TRUSTED).unwrap()
    }

    fn of(peer: &str, forwarded: &str) -> Client {
        let forwarded = forwarded.as_bytes();
        client(peer.as_bytes(), &trusted(), || Ok::<_, ()>(forwarded)).unwrap()
    }

    fn address(text: &str) -> Client {
        Client::Address(text.parse().unwrap())
    }

    #[test]
    fn case_31_only_hops_from_trusted_proxies_are_believed() {
        for (peer, forwarded, expected) in [
            // The proxy appends who it saw; what stands left of it is the client's own claim.
            ("127.0.0.1", "203.0.113.50", "203.0.113.50"),
            ("127.0.0.1", "1.1.1.1, 203.0.113.50", "203.0.113.50"),
            (
                "127.0.0.1",
                "1.1.1.1, 203.0.113.50, 10.1.2.3",
                "203.0.113.50",
            ),
            ("::ffff:127.0.0.1", "203.0.113.50", "203.0.113.50"),
            ("[::1]:5000", "2001:db8::7", "2001:db8::7"),
            ("::1", "[2001:db8::7]:443", "2001:db8::7"),
            ("10.0.0.1", "203.0.113.50:8080,10.0.0.2:80", "203.0.113.50"),
            // All are trusted: the leftmost.
            ("127.0.0.1", "10.0.0.9, 10.0.0.8", "10.0.0.9"),
            ("127.0.0.1", "", "127.0.0.1"),
            // Garbage ends the walk: the last good hop is the client.
            ("127.0.0.1", "unknown", "127.0.0.1"),
            ("127.0.0.1", "203.0.113.50, unknown, 10.0.0.8", "10.0.0.8"),
            ("127.0.0.1", "203.0.113.50, 010.0.0.8", "127.0.0.1"),
            // Empty elements mean nothing.
            ("127.0.0.1", "203.0.113.50, , 10.0.0.8,", "203.0.113.50"),
            // A public peer that nobody trusts is the client, whatever it claims.
            ("203.0.113.9", "10.0.0.1, 127.0.0.1", "203.0.113.9"),
            ("2001:db8:e::1", "127.0.0.1", "2001:db8:e::1"),
        ] {
            assert_eq!(of(peer, forwarded), address(expected), "{peer} {forwarded}");
        }
    }

    #[test]
    fn an_untrusted_private_peer_is_told_apart() {
        let private = |peer: &str| Client::PrivatePeer(peer.parse().unwrap());
        assert_eq!(of("192.168.1.1", "1.1.1.1"), private("192.168.1.1"));
        assert_eq!(of("fd00::1", "1.1.1.1"), private("fd00::1"));
        assert_eq!(of("192.168.1.1", " "), address("192.168.1.1"));
        assert_eq!(of("203.0.113.1", "1.1.1.1"), address("203.0.113.1"));
        assert_eq!(of("unix:", "1.1.1.1"), Client::Unknown);
        assert_eq!(of("", ""), Client::Unknown);
    }

    #[test]
    fn the_header_is_not_read_when_it_does_not_matter() {
        let found = client(b"203.0.113.1", &trusted(), || Err::<&[u8], _>("read"));
        assert_eq!(found, Ok(address("203.0.113.1")));
        let found = client(b"10.0.0.1", &trusted(), || Err::<&[u8], _>("read"));
        assert_eq!(found, Err("read"));
    }

    #[test]
    fn the_walk_is_bounded() {
        let hops = |n: usize| vec!["10.0.0.9"; n].join(",");
        let most = MAX_FORWARDED_HOPS;
        let forwarded = format!("203.0.113.50,{}", hops(most - 1));
        assert_eq!(of("10.0.0.1", &forwarded), address("203.0.113.50"));
        let forwarded = format!("203.0.113.50,{}", hops(most));
        assert_eq!(of("10.0.0.1", &forwarded), address("10.0.0.9"));
        // An element that the bound of bytes would cut is not read at all: 3.0.113.50 is nobody.
        let spaces = " ".repeat(MAX_FORWARDED_BYTES - "3.0.113.50,10.0.0.9".len());
        let forwarded = format!("203.0.113.50,{spaces}10.0.0.9");
        assert_eq!(of("10.0.0.1", &forwarded), address("10.0.0.9"));
        let forwarded = format!("203.0.113.50,{}10.0.0.9", &spaces[2..]);
        assert_eq!(of("10.0.0.1", &forwarded), address("203.0.113.50"));
        let long = "1".repeat(MAX_FORWARDED_BYTES + 1);
        assert_eq!(of("10.0.0.1", &long), address("10.0.0.1"));
    }

    /// The same in the words of the clause, over lists and with no regard for work.
    fn oracle(peer: &str, forwarded: &str) -> Client {
        let trusted = trusted();
        let Some(peer) = parse_hop(peer.as_bytes()) else {
            return Client::Unknown;
        };
        if !trusted.contains(peer) {
            let sent = !trim(forwarded.as_bytes()).is_empty();
            return match is_private(peer) && sent {
                true => Client::PrivatePeer(peer),
                false => Client::Address(peer),
            };
        }
        let mut chain: Vec<Option<IpAddr>> = forwarded
            .split(',')
            .filter(|element| !trim(element.as_bytes()).is_empty())
            .map(|element| parse_hop(element.as_bytes()))
            .collect();
        chain.push(Some(peer));
        let good: Vec<IpAddr> = chain.into_iter().rev().map_while(|hop| hop).collect();
        let first_untrusted = good.iter().find(|hop| !trusted.contains(**hop));
        Client::Address(*first_untrusted.or(good.last()).expect("the peer is good"))
    }

    fn hop() -> impl Strategy<Value = String> {
        const GOOD: [&str; 10] = [
            "127.0.0.1",
            "10.1.2.3",
            "10.1.2.3:80",
            "203.0.113.50",
            "198.51.100.1",
            "[2001:db8:f::1]:1",
            "2001:db8::1",
            "::1",
            "::ffff:10.0.0.1",
            "192.168.1.1",
        ];
        prop_oneof![
            6 => proptest::sample::select(&GOOD[..]).prop_map(str::to_owned),
            1 => "\\PC{0,12}",
            1 => "[0-9.:\\[\\] ]{0,20}",
        ]
    }

    proptest! {
        #[test]
        fn the_walk_agrees_with_the_clause(
            peer in hop(),
            hops in proptest::collection::vec(hop(), 0..8),
            comma in proptest::sample::select(&[",", ", ", " ,\t"][..])
        ) {
            let forwarded = hops.join(comma);
            prop_assert_eq!(of(&peer, &forwarded), oracle(&peer, &forwarded));
        }

        #[test]
        fn nobody_untrusted_changes_who_it_is(
            bits in any::<u128>(), low in any::<u32>(), v4 in any::<bool>(), forged in "\\PC{0,60}"
        ) {
            let peer = match v4 {
                true => IpAddr::V4(low.into()),
                false => IpAddr::V6(bits.into()),
            }
            .to_canonical();
            prop_assume!(!trusted().contains(peer));
            let text = peer.to_string();
            match of(&text, &forged) {
                Client::Address(found) | Client::PrivatePeer(found) => {
                    prop_assert_eq!(found, peer);
                }
                Client::Unknown => prop_assert!(false, "the peer is an address"),
            }
        }

        #[test]
        fn a_forged_beginning_changes_nothing(
            forged in "\\PC{0,60}", seen in "203\\.0\\.113\\.[1-9]", proxies in 0usize..3
        ) {
            let behind = ", 10.0.0.9".repeat(proxies);
            let forwarded = format!("{forged}, {seen}{behind}");
            prop_assert_eq!(of("127.0.0.1", &forwarded), address(&seen));
        }

        #[test]
        fn any_bytes_end(
            peer in proptest::collection::vec(any::<u8>(), 0..50),
            forwarded in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let _ = client(&peer, &trusted(), || Ok::<_, ()>(&forwarded[..]));
            let _ = client(b"10.0.0.1", &trusted(), || Ok::<_, ()>(&forwarded[..]));
        }
    }
}
