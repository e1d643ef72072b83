//! Messages in their bytes.
//!
//! I own how an answer is written: as protobuf says it, field by field, into a small buffer that is
//! handed on when it is full. I promise the bytes that prost gives, at a fraction of its work: for
//! an answer with ten statuses that was as much as deciding. I never read a message.

use bytes::BufMut;
use prost::Message;

use crate::protocol::{
    DescriptorStatus, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse,
};

/// A message that is sent.
pub trait Encode {
    /// Appends its bytes.
    fn encode_to(&self, buffer: &mut impl BufMut);
}

impl Encode for RateLimitRequest {
    fn encode_to(&self, buffer: &mut impl BufMut) {
        self.encode_raw(buffer);
    }
}

impl Encode for RateLimitResponse {
    fn encode_to(&self, buffer: &mut impl BufMut) {
        let mut out = Out::new(buffer);
        out.number(1, signed(self.overall_code.into()));
        for status in &self.statuses {
            out.message(
                2,
                || status_bytes(status),
                STATUS_BYTES_MAX + name_bytes(status),
                |out| {
                    put_status(out, status);
                },
            );
        }
        for (tag, headers) in [
            (3, &self.response_headers_to_add),
            (4, &self.request_headers_to_add),
        ] {
            for header in headers {
                let texts = [&header.key, &header.value, &header.raw_value];
                out.start(tag, texts.iter().map(|text| text_bytes(text)).sum());
                put_header(&mut out, header);
            }
        }
        out.text(5, &self.raw_body);
        out.flush();
        if let Some(metadata) = &self.dynamic_metadata {
            prost::encoding::message::encode(6, metadata, buffer);
        }
    }
}

fn put_header(out: &mut Out<'_, impl BufMut>, header: &HeaderValue) {
    out.text(1, &header.key);
    out.text(2, &header.value);
    out.text(3, &header.raw_value);
}

fn status_bytes(status: &DescriptorStatus) -> usize {
    let limit = status.current_limit.as_ref().map(limit_bytes);
    let until = status.duration_until_reset.as_ref().map(duration_bytes);
    let parts = [limit, until].into_iter().flatten();
    number_bytes(signed(status.code.into()))
        + number_bytes(status.limit_remaining.into())
        + parts
            .map(|bytes| 1 + varint_bytes(bytes as u64) + bytes)
            .sum::<usize>()
}

fn put_status(out: &mut Out<'_, impl BufMut>, status: &DescriptorStatus) {
    out.number(1, signed(status.code.into()));
    if let Some(limit) = &status.current_limit {
        out.start(2, limit_bytes(limit));
        out.number(1, limit.requests_per_unit.into());
        out.number(2, signed(limit.unit.into()));
        out.text(3, &limit.name);
    }
    out.number(3, status.limit_remaining.into());
    if let Some(until) = &status.duration_until_reset {
        out.start(4, duration_bytes(until));
        out.number(1, signed(until.seconds));
        out.number(2, signed(until.nanos.into()));
    }
}

/// A status without the name of its limit: tags, lengths and numbers at their longest.
const STATUS_BYTES_MAX: usize = 11 + 2 + 6 + 11 + 2 + 6 + 2 + 11 + 11;

fn name_bytes(status: &DescriptorStatus) -> usize {
    let limit = status.current_limit.as_ref();
    limit.map_or(0, |limit| limit.name.len())
}

fn limit_bytes(limit: &RateLimit) -> usize {
    number_bytes(limit.requests_per_unit.into())
        + number_bytes(signed(limit.unit.into()))
        + text_bytes(&limit.name)
}

fn duration_bytes(duration: &prost_types::Duration) -> usize {
    number_bytes(signed(duration.seconds)) + number_bytes(signed(duration.nanos.into()))
}

/// A negative number as protobuf writes it: ten bytes of two's complement.
fn signed(number: i64) -> u64 {
    u64::from_le_bytes(number.to_le_bytes())
}

/// Bytes of a number, 1 to 10.
fn varint_bytes(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Bytes of a field with a number; a zero is left out.
fn number_bytes(number: u64) -> usize {
    match number {
        0 => 0,
        number => 1 + varint_bytes(number),
    }
}

/// Bytes of a field with a text; an empty one is left out.
fn text_bytes(text: &[u8]) -> usize {
    match text.len() {
        0 => 0,
        length => 1 + varint_bytes(length as u64) + length,
    }
}

/// Wire types of protobuf.
const VARINT: u8 = 0;
const LENGTH: u8 = 2;
/// What is held before it is handed on: an answer with some statuses.
const HELD_BYTES: usize = 256;
/// A tag and a number at their longest. (Every tag here is below 16: one byte.)
const FIELD_BYTES_MAX: usize = 11;

/// Fields on their way into a buffer.
struct Out<'b, B> {
    buffer: &'b mut B,
    held: [u8; HELD_BYTES],
    length: usize,
}

impl<'b, B: BufMut> Out<'b, B> {
    fn new(buffer: &'b mut B) -> Self {
        Self {
            buffer,
            held: [0; HELD_BYTES],
            length: 0,
        }
    }

    fn flush(&mut self) {
        self.buffer.put_slice(&self.held[..self.length]);
        self.length = 0;
    }

    #[inline]
    fn tagged(&mut self, tag: u8, kind: u8, number: u64) {
        if self.length > HELD_BYTES - FIELD_BYTES_MAX {
            self.flush();
        }
        let tag = tag << 3 | kind;
        match number.to_le_bytes() {
            [number @ ..=0x7f, 0, 0, 0, 0, 0, 0, 0] => {
                self.held[self.length] = tag;
                self.held[self.length + 1] = number;
                self.length += 2;
            }
            _ => self.tagged_long(tag, number),
        }
    }

    #[inline(never)]
    fn tagged_long(&mut self, tag: u8, mut number: u64) {
        if number >> 35 == 0 {
            // Seven bits to a byte, and a mark on each byte but the last, all at once.
            let spread = number & 0x7f
                | (number & 0x3f80) << 1
                | (number & 0x1f_c000) << 2
                | (number & 0xfe0_0000) << 3
                | (number & 0x7_f000_0000) << 4;
            let bytes = varint_bytes(number);
            let marks = 0x80_8080_8080 & ((1 << (8 * (bytes - 1))) - 1);
            let word = (spread | marks) << 8 | u64::from(tag);
            self.held[self.length..self.length + 8].copy_from_slice(&word.to_le_bytes());
            self.length += 1 + bytes;
            return;
        }
        self.held[self.length] = tag;
        let mut at = self.length + 1;
        while number >= 0x80 {
            self.held[at] = number.to_le_bytes()[0] | 0x80;
            number >>= 7;
            at += 1;
        }
        self.held[at] = number.to_le_bytes()[0];
        self.length = at + 1;
    }

    /// A message of `bytes`, and of `most` at most, put by `put`. A short one needs not be measured
    /// first: its length is one byte, filled in when it is known.
    fn message(
        &mut self,
        tag: u8,
        bytes: impl FnOnce() -> usize,
        most: usize,
        put: impl FnOnce(&mut Self),
    ) {
        if most >= 0x80 {
            self.start(tag, bytes());
            return put(self);
        }
        if self.length + most > HELD_BYTES - 2 * FIELD_BYTES_MAX {
            self.flush();
        }
        self.start(tag, 0);
        let start = self.length;
        put(self);
        self.held[start - 1] = (self.length - start).to_le_bytes()[0];
    }

    /// Begins a message of so many bytes.
    fn start(&mut self, tag: u8, bytes: usize) {
        self.tagged(tag, LENGTH, bytes as u64);
    }

    fn number(&mut self, tag: u8, number: u64) {
        if number != 0 {
            self.tagged(tag, VARINT, number);
        }
    }

    fn text(&mut self, tag: u8, text: &[u8]) {
        if text.is_empty() {
            return;
        }
        self.start(tag, text.len());
        if text.len() > HELD_BYTES - self.length {
            self.flush();
        }
        let end = self.length + text.len();
        match self.held.get_mut(self.length..end) {
            Some(place) => {
                place.copy_from_slice(text);
                self.length = end;
            }
            None => self.buffer.put_slice(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use prost_types::value::Kind;

    use super::*;

    fn number() -> impl Strategy<Value = u32> {
        // Every length of a varint, and both ends.
        prop_oneof![
            Just(0),
            Just(u32::MAX),
            (0u32..32, any::<u32>()).prop_map(|(bits, number)| number >> bits)
        ]
    }

    fn text() -> impl Strategy<Value = Bytes> {
        let length = prop_oneof![0usize..20, 120usize..136, 250usize..262, Just(20_000)];
        (length, any::<u8>()).prop_map(|(length, byte)| Bytes::from(vec![byte; length]))
    }

    fn status() -> impl Strategy<Value = DescriptorStatus> {
        let limit =
            (number(), 0i32..8, text()).prop_map(|(requests_per_unit, unit, name)| RateLimit {
                requests_per_unit,
                unit,
                name,
            });
        let until = (any::<i64>(), any::<i32>())
            .prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos });
        let limit = proptest::option::of(limit);
        let until = proptest::option::of(until);
        (any::<i32>(), limit, number(), until).prop_map(|(code, limit, left, until)| {
            DescriptorStatus {
                code,
                current_limit: limit,
                limit_remaining: left,
                duration_until_reset: until,
            }
        })
    }

    fn headers() -> impl Strategy<Value = Vec<HeaderValue>> {
        let header = (text(), text(), text()).prop_map(|(key, value, raw_value)| HeaderValue {
            key,
            value,
            raw_value,
        });
        proptest::collection::vec(header, 0..4)
    }

    fn metadata(number: u32) -> prost_types::Struct {
        let value = prost_types::Value {
            kind: Some(Kind::NumberValue(number.into())),
        };
        prost_types::Struct {
            fields: [("limit".to_owned(), value)].into(),
        }
    }

    proptest! {
        #[test]
        fn an_answer_has_the_bytes_that_prost_gives(
            code in any::<i32>(),
            statuses in proptest::collection::vec(status(), 0..24),
            response_headers_to_add in headers(),
            request_headers_to_add in headers(),
            raw_body in text(),
            with_metadata in proptest::option::of(number()),
        ) {
            let answer = RateLimitResponse {
                overall_code: code,
                statuses,
                response_headers_to_add,
                request_headers_to_add,
                raw_body,
                dynamic_metadata: with_metadata.map(metadata),
            };
            let mut bytes = Vec::new();
            answer.encode_to(&mut bytes);
            prop_assert!(bytes == answer.encode_to_vec());
        }
    }

    #[test]
    fn an_empty_answer_is_no_bytes() {
        let mut bytes = Vec::new();
        RateLimitResponse::default().encode_to(&mut bytes);
        assert!(bytes.is_empty());
    }
}
