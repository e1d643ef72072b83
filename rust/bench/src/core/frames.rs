//! Frames: their bytes, and the time that they take to write, read, sign and verify.

use std::hint::black_box;
use std::time::Instant;

use gabion_rule::Key;
use gabion_wire::{
    decode, Ack, Auth, Digest, FrameWriter, Header, KeyRing, Receiver, Scope, Section, WriteError,
    MAX_FRAME_BYTES,
};

use crate::limits::{LONE_ROW_BYTES_MAX, ROW_BYTES_MAX};
use crate::report::{percentile, Bar, Figure};
use crate::BenchError;

/// A header as after a day at 100 frames per second, in 2026.
fn header() -> Header {
    let new = Header::new(u32::MAX, u64::MAX, u64::MAX, 3);
    Header {
        seq: 8_640_000,
        sent_at_us: 1_796_000_000_000_000,
        ..new
    }
}

/// A 1 s bucket of 2026.
const SCOPE: Scope = Scope {
    limiter: u64::MAX,
    epoch: 1_796_000_000,
    origin: None,
};
const ACK: Ack = Ack {
    largest: 8_640_000,
    before: u64::MAX,
    delay_us: 20_000,
};

fn written(fill: impl FnOnce(&mut FrameWriter<'_>) -> Result<usize, WriteError>) -> (usize, usize) {
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let Ok(mut writer) = FrameWriter::new(&mut buf, &header(), None) else {
        return (0, 0);
    };
    let rows = fill(&mut writer).unwrap_or(0);
    (writer.finish(), rows)
}

fn rows(writer: &mut FrameWriter<'_>, most: usize, count: u32) -> Result<usize, WriteError> {
    writer.ack(&ACK)?;
    let mut section = writer.rows(&SCOPE)?;
    for _ in 0..most {
        if section.push(Key::from_bytes([255; 12]), count).is_err() {
            break;
        }
    }
    section.finish()
}

/// Frames as members send them, not signed (a signature is 17 bytes).
///
/// # Errors
/// [`BenchError::Void`] when a frame could not be written.
pub fn measure() -> Result<Vec<Figure>, BenchError> {
    let (lone, one) = written(|w| rows(w, 1, 10_000));
    let (full, many) = written(|w| rows(w, usize::MAX, 10_000));
    let digest = Digest {
        scope: SCOPE,
        rows: 100_000,
        hash: u64::MAX,
    };
    let (heartbeat, _) = written(|w| w.digest(&digest).and_then(|()| w.ack(&ACK)).map(|()| 0));
    if one != 1 || many == 0 {
        return Err(BenchError::Void(format!(
            "frames of {one} and {many} rows were written"
        )));
    }
    let bar = Bar::AtMost(LONE_ROW_BYTES_MAX);
    let each = full as f64 / many as f64;
    Ok(vec![
        Figure::barred("frame with one row and an ack", lone as f64, "bytes", bar),
        Figure::barred(
            "full frame, counts of 10,000",
            each,
            "bytes/row",
            Bar::AtMost(ROW_BYTES_MAX),
        ),
        Figure::stated(
            "heartbeat with ack and one digest",
            heartbeat as f64,
            "bytes",
        ),
    ])
}

const TIMED: usize = 20_000;

/// Median nanoseconds of one call.
fn median_ns<T>(mut work: impl FnMut() -> T) -> f64 {
    let mut times: Vec<u64> = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let from = Instant::now();
        black_box(work());
        times.push(u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    percentile(&mut times, 0.5).unwrap_or(0) as f64
}

fn full_frame(auth: Option<Auth<'_>>, buf: &mut [u8]) -> Result<usize, WriteError> {
    let mut writer = FrameWriter::new(buf, &header(), auth)?;
    rows(&mut writer, usize::MAX, 10_000)?;
    Ok(writer.finish())
}

/// Times of full frames; only stated.
///
/// # Errors
/// [`BenchError::Void`] when a frame could not be written.
pub fn measure_times() -> Result<Vec<Figure>, BenchError> {
    let void = |e: &dyn std::fmt::Display| BenchError::Void(e.to_string());
    let me = Receiver {
        node: 1,
        session: 1,
    };
    let ring = KeyRing::parse(&format!("1:{}", "5a".repeat(32))).map_err(|e| void(&e))?;
    let auth = Auth {
        ring: &ring,
        receiver: me,
    };
    let (mut plain, mut signed) = ([0u8; MAX_FRAME_BYTES], [0u8; MAX_FRAME_BYTES]);
    let n = full_frame(None, &mut plain).map_err(|e| void(&e))?;
    let signed_n = full_frame(Some(auth), &mut signed).map_err(|e| void(&e))?;
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let write = median_ns(|| full_frame(None, &mut buf));
    let write_signed = median_ns(|| full_frame(Some(auth), &mut buf));
    let read = median_ns(|| {
        let Ok(frame) = decode(black_box(&plain[..n])) else {
            return;
        };
        for section in frame.sections() {
            if let Section::Rows(rows) = section {
                black_box(
                    rows.rows
                        .fold(0u64, |sum, row| sum ^ row.key.a ^ u64::from(row.count)),
                );
            }
        }
    });
    let verify = median_ns(|| ring.verify(black_box(&signed[..signed_n]), &me));
    Ok(vec![
        Figure::stated("full frame: write", write, "ns"),
        Figure::stated("full frame: write and sign", write_signed, "ns"),
        Figure::stated("full frame: read all rows", read, "ns"),
        Figure::stated("full frame: verify the signature", verify, "ns"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_hold_their_bars() {
        let figures = measure().unwrap();
        assert!(
            figures.iter().all(|figure| figure.holds != Some(false)),
            "{figures:?}"
        );
    }
}
