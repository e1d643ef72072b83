//! Signing and checking frames.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use thiserror::Error;

use crate::error::WireError;
use crate::header::{peek_header, FLAG_INTRODUCTION};
use crate::limits::{MAC_BYTES, MAX_KEYS, MAX_KEY_BYTES, MIN_KEY_BYTES, TRAILER_BYTES};

type HmacSha256 = Hmac<Sha256>;

/// Whom a frame is for. Covered by the MAC, not sent: a frame replayed to another member, or to a
/// later session of the same one, does not verify. spec: wire-52
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// Node id.
    pub node: u64,
    /// Session.
    pub session: u32,
}

impl Receiver {
    /// Nobody heard yet at that address: the frame is an introduction. spec: wire-53
    pub const UNKNOWN: Receiver = Receiver {
        node: 0,
        session: 0,
    };

    /// Is it [`Receiver::UNKNOWN`]?
    pub fn is_unknown(&self) -> bool {
        self.node == 0
    }
}

/// What a writer needs to sign.
#[derive(Clone, Copy, Debug)]
pub struct Auth<'k> {
    /// The keys; the first signs.
    pub ring: &'k KeyRing,
    /// Whom the frame is for.
    pub receiver: Receiver,
}

/// The keys of a cluster: the first signs, all are accepted. Keys are never printed.
///
/// Rotation: add the new key behind the old one on every member, then put it first on every member,
/// then remove the old one. spec: wire-54
#[derive(Clone)]
pub struct KeyRing {
    /// Id and keyed, unused HMAC state. Never empty.
    keys: Vec<(u8, HmacSha256)>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<u8> = self.keys.iter().map(|(id, _)| *id).collect();
        f.debug_struct("KeyRing")
            .field("ids", &ids)
            .finish_non_exhaustive()
    }
}

/// Why a key file was refused. Never holds key material. The file changes nothing until it parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyFileError {
    /// A line is not `id:hex`.
    #[error("key file line {line}: write `id:hex`, for example `1:` and 64 hex digits")]
    NotIdHex {
        /// Line, from 1.
        line: usize,
    },
    /// The id is not a number from 0 to 255.
    #[error("key file line {line}: the key id must be a number from 0 to 255")]
    BadId {
        /// Line, from 1.
        line: usize,
    },
    /// Something that is not a hex digit, or an odd number of them.
    #[error("key file line {line}: the key must be an even number of hex digits")]
    BadHex {
        /// Line, from 1.
        line: usize,
    },
    /// Fewer than 16 or more than 64 bytes.
    #[error("key file line {line}: the key must be 16 to 64 bytes (32 to 128 hex digits)")]
    BadLength {
        /// Line, from 1.
        line: usize,
    },
    /// Two keys with one id.
    #[error("key file line {line}: key id {id} is already used above; give each key its own")]
    DuplicateId {
        /// Line, from 1.
        line: usize,
        /// The id.
        id: u8,
    },
    /// More than 8 keys.
    #[error("key file line {line}: at most 8 keys; remove those no member signs with")]
    TooMany {
        /// Line, from 1.
        line: usize,
    },
    /// No key at all.
    #[error("key file holds no key; add a line `id:hex`")]
    NoKey,
}

impl KeyRing {
    /// Parses a key file: lines `id:hex`, the first signs, all are accepted; blank lines and lines
    /// that start with `#` are skipped. spec: wire-54
    ///
    /// # Errors
    /// [`KeyFileError`] with the line; it never quotes the line.
    pub fn parse(text: &str) -> Result<KeyRing, KeyFileError> {
        let mut keys: Vec<(u8, HmacSha256)> = Vec::new();
        for (i, raw) in text.lines().enumerate() {
            let (line, text) = (i + 1, raw.trim());
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (id, hex) = text
                .split_once(':')
                .ok_or(KeyFileError::NotIdHex { line })?;
            let id: u8 = id
                .trim()
                .parse()
                .map_err(|_| KeyFileError::BadId { line })?;
            let key = parse_hex(hex.trim()).ok_or(KeyFileError::BadHex { line })?;
            if !(MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&key.len()) {
                return Err(KeyFileError::BadLength { line });
            }
            if keys.iter().any(|(other, _)| *other == id) {
                return Err(KeyFileError::DuplicateId { line, id });
            }
            if keys.len() == MAX_KEYS {
                return Err(KeyFileError::TooMany { line });
            }
            let mac =
                HmacSha256::new_from_slice(&key).map_err(|_| KeyFileError::BadLength { line })?;
            keys.push((id, mac));
        }
        if keys.is_empty() {
            return Err(KeyFileError::NoKey);
        }
        Ok(KeyRing { keys })
    }

    /// Id of the key that signs.
    pub fn signing_id(&self) -> u8 {
        self.keys[0].0
    }

    /// Ids of all accepted keys, the signing one first.
    pub fn ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.keys.iter().map(|(id, _)| *id)
    }

    fn keyed(base: &HmacSha256, receiver: &Receiver, bytes: &[u8]) -> HmacSha256 {
        let mut mac = base.clone();
        mac.update(&receiver.node.to_le_bytes());
        mac.update(&receiver.session.to_le_bytes());
        mac.update(bytes);
        mac
    }

    /// The MAC of everything up to and including the key id. spec: wire-51
    pub(crate) fn mac(&self, receiver: &Receiver, signed: &[u8]) -> [u8; MAC_BYTES] {
        let full = Self::keyed(&self.keys[0].1, receiver, signed)
            .finalize()
            .into_bytes();
        let mut out = [0u8; MAC_BYTES];
        out.copy_from_slice(&full[..MAC_BYTES]);
        out
    }

    /// Fourth check of a receiver: the MAC, in constant time. `me` is the receiver itself; it is
    /// ignored for an introduction ([`crate::Header::is_introduction`]). Gives the id of the key.
    ///
    /// # Errors
    /// [`WireError::NotSigned`], [`WireError::UnknownKey`], [`WireError::BadMac`], and those of
    /// [`peek_header`].
    pub fn verify(&self, bytes: &[u8], me: &Receiver) -> Result<u8, WireError> {
        let header = peek_header(bytes)?;
        if !header.is_signed() {
            return Err(WireError::NotSigned);
        }
        let trailer = bytes
            .len()
            .checked_sub(TRAILER_BYTES)
            .ok_or(WireError::TooShort)?;
        let (signed, mac) = bytes.split_at(trailer + 1);
        let id = signed[trailer];
        let (_, base) = self
            .keys
            .iter()
            .find(|(known, _)| *known == id)
            .ok_or(WireError::UnknownKey)?;
        let intro = header.flags & FLAG_INTRODUCTION != 0;
        let receiver = if intro { &Receiver::UNKNOWN } else { me };
        Self::keyed(base, receiver, signed)
            .verify_truncated_left(mac)
            .map_err(|_| WireError::BadMac)?;
        Ok(id)
    }
}

fn parse_hex(hex: &str) -> Option<Vec<u8>> {
    if hex.len() % 2 != 0 {
        return None;
    }
    let digit = |b: u8| {
        char::from(b)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    hex.as_bytes()
        .chunks_exact(2)
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}
