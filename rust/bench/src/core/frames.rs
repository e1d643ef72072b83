//! Bytes of frames.

use gabion_rule::Key;
use gabion_wire::{Ack, Digest, FrameWriter, Header, Scope, WriteError, MAX_FRAME_BYTES};

use crate::limits::{LONE_ROW_BYTES_MAX, ROW_BYTES_MAX};
use crate::report::{Bar, Figure};
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
