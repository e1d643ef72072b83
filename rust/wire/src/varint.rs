//! Varints (LEB128, shortest form only) and the cursor that reads a frame.

use crate::error::WireError;

/// Longest varint of a `u64`.
pub(crate) const MAX_VARINT_BYTES: usize = 10;

/// Bytes that `v` takes.
pub(crate) fn varint_len(v: u64) -> usize {
    let bits = (64 - v.leading_zeros()).max(1) as usize;
    bits.div_ceil(7)
}

/// Reads forward over borrowed bytes; every read is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes, or `short` when there are fewer.
    pub(crate) fn bytes(&mut self, n: usize, short: WireError) -> Result<&'a [u8], WireError> {
        if self.rest.len() < n {
            return Err(short);
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self, short: WireError) -> Result<[u8; N], WireError> {
        let mut out = [0u8; N];
        out.copy_from_slice(self.bytes(N, short)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self, short: WireError) -> Result<u8, WireError> {
        Ok(self.array::<1>(short)?[0])
    }

    pub(crate) fn u32(&mut self, short: WireError) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array(short)?))
    }

    pub(crate) fn u64(&mut self, short: WireError) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(short)?))
    }

    /// A varint in its shortest form. spec: wire-3
    pub(crate) fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(MAX_VARINT_BYTES).enumerate() {
            let low = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit; anything more would be lost.
            if i == MAX_VARINT_BYTES - 1 && low > 1 {
                return Err(WireError::BadVarint);
            }
            value |= low << (7 * i);
            if byte & 0x80 == 0 {
                if byte == 0 && i > 0 {
                    return Err(WireError::BadVarint);
                }
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(WireError::BadVarint)
    }

    /// A varint that fits a `u32`, else `above`.
    pub(crate) fn varint_u32(&mut self, above: WireError) -> Result<u32, WireError> {
        u32::try_from(self.varint()?).map_err(|_| above)
    }
}

/// Writes forward into a borrowed buffer; a write that does not fit writes nothing more and is
/// reported once, by [`Sink::finish`].
#[derive(Debug)]
pub(crate) struct Sink<'b> {
    buf: &'b mut [u8],
    at: usize,
    overflow: bool,
}

impl<'b> Sink<'b> {
    pub(crate) fn new(buf: &'b mut [u8]) -> Self {
        Sink {
            buf,
            at: 0,
            overflow: false,
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match self.buf.get_mut(self.at..self.at + bytes.len()) {
            Some(room) if !self.overflow => {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            _ => self.overflow = true,
        }
    }

    pub(crate) fn u8(&mut self, v: u8) {
        self.bytes(&[v]);
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.bytes(&v.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.bytes(&v.to_le_bytes());
    }

    pub(crate) fn varint(&mut self, v: u64) {
        let mut out = [0u8; MAX_VARINT_BYTES];
        let n = varint_len(v);
        let mut left = v;
        for (i, slot) in out.iter_mut().take(n).enumerate() {
            let low = (left & 0x7f) as u8;
            left >>= 7;
            *slot = if i + 1 == n { low } else { low | 0x80 };
        }
        self.bytes(&out[..n]);
    }

    /// Bytes written, or nothing when something did not fit.
    pub(crate) fn finish(self) -> Option<usize> {
        if self.overflow {
            None
        } else {
            Some(self.at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(v: u64) -> Vec<u8> {
        let mut buf = [0u8; 16];
        let mut sink = Sink::new(&mut buf);
        sink.varint(v);
        let n = sink.finish().unwrap();
        buf[..n].to_vec()
    }

    #[test]
    fn every_edge_round_trips_in_its_shortest_form() {
        for shift in 0..64 {
            for v in [
                1u64 << shift,
                (1u64 << shift) - 1,
                (1u64 << shift) | 1,
                u64::MAX,
            ] {
                let bytes = encode(v);
                assert_eq!(bytes.len(), varint_len(v));
                let mut c = Cursor::new(&bytes);
                assert_eq!(c.varint(), Ok(v));
                assert!(c.is_empty());
            }
        }
    }

    #[test]
    fn padded_long_and_cut_varints_are_refused() {
        for bytes in [
            &[0x80u8, 0x00][..],                                           // 0 in two bytes
            &[0xff, 0x00],                                                 // 127 in two bytes
            &[0x80],                                                       // cut
            &[],                                                           // nothing
            &[0xff; 10],                                                   // never ends
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], // 65 bits
            &[
                0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01,
            ],
        ] {
            assert_eq!(
                Cursor::new(bytes).varint(),
                Err(WireError::BadVarint),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_short_varint_string_decodes_to_one_value_or_to_none() {
        // All strings of up to three bytes: what decodes encodes back to itself.
        for len in 1..=3usize {
            for n in 0..1u32 << (8 * len) {
                let bytes = &n.to_le_bytes()[..len];
                let mut c = Cursor::new(bytes);
                if let Ok(v) = c.varint() {
                    let used = len - c.rest().len();
                    assert_eq!(encode(v), &bytes[..used]);
                }
            }
        }
    }
}
