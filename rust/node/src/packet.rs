//! Counts of many origins into packets: sections that several frames carry as they are.
//!
//! I promise: a packet fits a frame beside header, ack and trailer; what it holds is what is known
//! when it is made. spec: dis-3

use gabion_wire::{encode_spread, Origin, SpreadRow, MAX_FRAME_BYTES};

use crate::node::Node;
use crate::origins::{OriginIdx, NO_ORIGIN};
use crate::spread::News;

/// Bytes of sections in a packet: what is left of a frame after header, ack and trailer.
const PACKET_BYTES: usize = MAX_FRAME_BYTES - 42 - 23 - gabion_wire::limits::TRAILER_BYTES;
/// Bytes of the head of a section, of an origin, of a key, and of a number of an origin, at most.
const SECTION_BYTES: usize = 3 + 8 + 7 + 2;
const ORIGIN_BYTES: usize = 16;
const KEY_BYTES: usize = 12 + 2;
const NUMBER_BYTES: usize = 1;
/// Origins in one section: their numbers take a byte.
const ORIGINS_MAX: usize = 64;
/// Sections in one packet.
const SECTIONS_MAX: usize = 32;

/// Sections as they are sent, and when they were made.
#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) sections: usize,
    pub(crate) at_ns: u64,
}

impl Node {
    /// Packets of a few rows, sorted by shelf and cell, for one link: their numbers.
    pub(crate) fn packets_of(&mut self, rows: &[News]) -> std::ops::Range<u64> {
        self.spread.forget_old(self.now.mono_ns);
        let from = self.spread.end();
        self.encode(rows, usize::MAX);
        from..self.spread.end()
    }

    /// Appends packets of rows, sorted by shelf and cell; gives how many rows that took.
    pub(crate) fn encode(&mut self, rows: &[News], most: usize) -> usize {
        let mut builder = Builder::new(self.now.mono_ns);
        let mut counts = Vec::new();
        let mut done = 0;
        for run in rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            if builder.packets.len() >= most {
                break;
            }
            done += run.len();
            self.build_cell(&mut builder, run, &mut counts);
        }
        builder.close_packet();
        self.stats.rows_forwarded += builder.foreign;
        self.stats.rows_out += builder.rows_all;
        self.spread.packets.extend(builder.packets);
        done
    }

    fn build_cell(&self, builder: &mut Builder, run: &[News], counts: &mut Vec<(OriginIdx, u32)>) {
        let (at, id, _) = run[0];
        // An id may have been given to another cell since: its own shelf is what counts.
        let Some(at) = self.cells.shelf_of(id).filter(|held| *held == at) else {
            return;
        };
        let Some(shelf) = self.cells.shelf(at) else {
            return;
        };
        let Some(spec) = self.limiters.get(usize::from(shelf.limiter)) else {
            return;
        };
        let cell = self.cells.cell(id);
        if run.iter().any(|(_, _, origin)| *origin != NO_ORIGIN) {
            self.cells.counts_of(id, counts);
        }
        for (_, _, origin) in run {
            let (name, count) = if *origin == NO_ORIGIN {
                (None, cell.emitted)
            } else {
                let Ok(i) = counts.binary_search_by_key(origin, |c| c.0) else {
                    continue;
                };
                let Some(name) = self.cells.origins.name(*origin) else {
                    continue;
                };
                (Some(name), counts[i].1)
            };
            if count > 0 {
                builder.push((spec.short, shelf.epoch), cell.key(), name, count);
            }
        }
    }
}

/// Fills packets with rows, section by section. spec: dis-3
struct Builder {
    packets: Vec<Packet>,
    now_ns: u64,
    bytes: Vec<u8>,
    sections: usize,
    /// The open section: (limiter, epoch), origins, rows, and the most bytes it may take.
    scope: (u64, u64),
    origins: Vec<Origin>,
    rows: Vec<SpreadRow>,
    most: usize,
    rows_all: u64,
    foreign: u64,
}

impl Builder {
    fn new(now_ns: u64) -> Builder {
        Builder {
            packets: Vec::new(),
            now_ns,
            bytes: Vec::new(),
            sections: 0,
            scope: (0, 0),
            origins: Vec::new(),
            rows: Vec::new(),
            most: 0,
            rows_all: 0,
            foreign: 0,
        }
    }

    fn push(&mut self, scope: (u64, u64), key: gabion_rule::Key, name: Option<Origin>, count: u32) {
        if self.rows.is_empty() || self.scope != scope || self.origins.len() >= ORIGINS_MAX {
            self.close_section();
            self.scope = scope;
        }
        let cost = self.cost(key, name, count);
        if self.bytes.len() + self.most + cost > PACKET_BYTES || self.sections >= SECTIONS_MAX {
            self.close_packet();
            self.scope = scope;
        }
        self.most += self.cost(key, name, count);
        let origin = name.map_or(0, |name| match self.number(name) {
            Some(number) => number,
            None => {
                self.origins.push(name);
                self.origins.len()
            }
        });
        self.rows.push(SpreadRow {
            key,
            origin: u16::try_from(origin).unwrap_or(0),
            count,
        });
        self.rows_all += 1;
        self.foreign += u64::from(name.is_some());
    }

    fn number(&self, name: Origin) -> Option<usize> {
        self.origins.iter().position(|o| *o == name).map(|i| i + 1)
    }

    /// The most bytes a row adds.
    fn cost(&self, key: gabion_rule::Key, name: Option<Origin>, count: u32) -> usize {
        let new_section = self.rows.is_empty();
        let new_key = self.rows.last().is_none_or(|row| row.key != key);
        let new_origin = name.is_some_and(|name| self.number(name).is_none());
        let count_bytes = (u32::BITS - (count | 1).leading_zeros()).div_ceil(7) as usize;
        usize::from(new_section) * SECTION_BYTES
            + usize::from(new_key) * KEY_BYTES
            + usize::from(new_origin) * ORIGIN_BYTES
            + NUMBER_BYTES
            + count_bytes
    }

    fn close_section(&mut self) {
        if !self.rows.is_empty() {
            let (limiter, epoch) = self.scope;
            let written = encode_spread(&mut self.bytes, limiter, epoch, &self.origins, &self.rows);
            debug_assert_eq!(written, Ok(()), "a section that was counted fits");
            self.sections += usize::from(written.is_ok());
        }
        self.rows.clear();
        self.origins.clear();
        self.most = 0;
    }

    fn close_packet(&mut self) {
        self.close_section();
        if self.sections > 0 {
            self.packets.push(Packet {
                bytes: std::mem::take(&mut self.bytes).into_boxed_slice(),
                sections: self.sections,
                at_ns: self.now_ns,
            });
        }
        self.bytes.clear();
        self.sections = 0;
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;
    use gabion_rule::Key;
    use gabion_wire::{decode, FrameWriter, Header, Section};

    #[test]
    fn every_packet_fits_a_signed_frame_with_an_ack_and_nothing_is_lost() {
        let mut x = 9u64;
        let mut draw = |n: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (x >> 33) % n
        };
        for round in 0..200 {
            let mut builder = Builder::new(0);
            let mut rows = Vec::new();
            for i in 0..draw(2_000) {
                let node = draw(1 + round) + 1;
                let name = Origin {
                    node,
                    incarnation: u64::MAX,
                };
                let origin = (node > 1).then_some(name);
                let scope = ((i / (1 + round * 10)) << 60, (1 << 48) - 1);
                let key = Key::new(draw(1 + round * 5), i / 7);
                let count = (u64::from(u32::MAX) >> draw(32)) as u32;
                builder.push(scope, key, origin, count);
                rows.push((scope, key, origin, count));
            }
            builder.close_packet();
            let mut read = Vec::new();
            for packet in &builder.packets {
                assert!(packet.bytes.len() <= PACKET_BYTES, "{}", packet.bytes.len());
                let mut buf = [0u8; MAX_FRAME_BYTES];
                let mut w = FrameWriter::new(&mut buf, &Header::new(1, 2, 3, 4), None).unwrap();
                w.encoded(packet.sections, &packet.bytes).unwrap();
                let n = w.finish();
                for section in decode(&buf[..n]).unwrap().sections() {
                    let Section::Spread(s) = section else {
                        panic!("{section:?}")
                    };
                    let names: Vec<Origin> = s.origins().collect();
                    read.extend(s.rows().map(|row| {
                        let name = usize::from(row.origin).checked_sub(1).map(|i| names[i]);
                        ((s.limiter, s.epoch), row.key, name, row.count)
                    }));
                }
            }
            assert_eq!(read, rows);
        }
    }
}
