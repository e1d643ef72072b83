//! Forms of values that several directives share.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use gabion_rule::parse_duration_ns;

use crate::error::ConfError;

pub(super) fn one<'a>(name: &str, args: &[&'a str]) -> Result<&'a str, ConfError> {
    match args {
        [only] => Ok(only),
        _ => Err(ConfError::new(
            name,
            args.join(" "),
            "exactly one value is expected",
        )),
    }
}

pub(super) type Range = std::ops::RangeInclusive<u64>;

pub(super) fn number(name: &str, text: &str, range: Range) -> Result<u64, ConfError> {
    let digits = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let within = digits
        .ok()
        .filter(|n| range.contains(n) && !text.contains('+'));
    within.ok_or_else(|| {
        let why = format!(
            "a whole number from {} to {} is expected",
            range.start(),
            range.end()
        );
        ConfError::new(name, text, why)
    })
}

/// `64m`, `16k`, `1g`, or plain digits.
pub(super) fn size_of(name: &str, text: &str, range: Range) -> Result<u64, ConfError> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let bytes = digits.parse::<u64>().ok().filter(|_| plain);
    let bytes = bytes.and_then(|n| n.checked_mul(1 << shift));
    bytes.filter(|n| range.contains(n)).ok_or_else(|| {
        let why = format!(
            "a number from {} to {} is expected, such as 64k or 64m",
            range.start(),
            range.end()
        );
        ConfError::new(name, text, why)
    })
}

pub(super) fn duration(name: &str, text: &str, range: Range) -> Result<u64, ConfError> {
    match parse_duration_ns("duration", text) {
        Ok(ns) if range.contains(&ns) => Ok(ns),
        Ok(_) => {
            let (least, most) = (range.start() / 1_000, range.end() / 1_000);
            let why = format!("it is not between {least} us and {most} us");
            Err(ConfError::new(name, text, why))
        }
        Err(error) => Err(ConfError::new(name, text, error.to_string())),
    }
}

/// `127.0.0.1:7946`, `[::1]:7946`, `:7946`, `localhost:7946` or `*:7946`.
pub(super) fn address(name: &str, text: &str) -> Result<SocketAddr, ConfError> {
    let with = |ip: std::net::IpAddr, port: &str| Some(SocketAddr::new(ip, port.parse().ok()?));
    let parsed = if let Some(port) = text.strip_prefix(':') {
        with(Ipv4Addr::UNSPECIFIED.into(), port)
    } else if let Some(port) = text.strip_prefix("localhost:") {
        with(Ipv4Addr::LOCALHOST.into(), port)
    } else if let Some(port) = text.strip_prefix("*:") {
        with(Ipv6Addr::UNSPECIFIED.into(), port)
    } else {
        text.parse().ok()
    };
    parsed.ok_or_else(|| {
        let why = "it is no address with a port from 0 to 65535; write 0.0.0.0:7946 or [::]:7946";
        ConfError::new(name, text, why)
    })
}
