//! Bytes on the wire, against the bars.

mod common;

use common::*;
use gabion_rule::Key;
use gabion_wire::*;

/// A header as it is after a day at 100 frames per second, today.
fn header() -> Header {
    Header {
        seq: 8_640_000,
        sent_at_us: 1_796_000_000_000_000,
        ..Header::new(u32::MAX, u64::MAX, u64::MAX, 3)
    }
}

fn ack() -> Model {
    Model::Ack(Ack {
        largest: 8_640_000,
        before: u64::MAX,
        delay_us: 20_000,
    })
}

/// Epoch of a 1 s bucket, today: five bytes.
fn scope() -> Scope {
    Scope {
        limiter: u64::MAX,
        epoch: 1_796_000_000,
        origin: None,
    }
}

#[test]
fn a_lone_row_takes_at_most_80_bytes_with_its_ack() {
    let rows = Model::Rows(scope(), vec![(Key::from_bytes([255; 12]), 10_000)]);
    let (alone, _) = write_frame(&header(), std::slice::from_ref(&rows), None);
    let (bytes, written) = write_frame(&header(), &[ack(), rows], None);
    println!(
        "lone row {} bytes, with an ack {} bytes",
        alone.len(),
        bytes.len()
    );
    assert_eq!(written.len(), 2);
    assert!(bytes.len() <= 80, "{}", bytes.len());
}

#[test]
fn a_full_frame_takes_at_most_16_bytes_per_row() {
    let keys = ring(KEY_A);
    let auth = Auth {
        ring: &keys,
        receiver: Receiver {
            node: 1,
            session: 1,
        },
    };
    for (count, bar) in [(100, 15.0), (10_000, 16.0), (u32::MAX, 20.0)] {
        for auth in [None, Some(auth)] {
            let rows = vec![(Key::from_bytes([255; 12]), count); 100];
            let (bytes, written) =
                write_frame(&header(), &[ack(), Model::Rows(scope(), rows)], auth);
            let Model::Rows(_, fitted) = &written[1] else {
                panic!("no rows")
            };
            let each = bytes.len() as f64 / fitted.len() as f64;
            println!(
                "count {count}, signed {}: {} rows in {} bytes, {each:.2} per row",
                auth.is_some(),
                fitted.len(),
                bytes.len()
            );
            assert!(each <= bar, "{each}");
        }
    }
}

#[test]
fn a_forwarded_burst_takes_16_bytes_per_row_and_a_hot_key_19_per_member() {
    let spread = |keys: u8, others: u16| {
        let origin = |n: u16| Origin {
            node: u64::from(n),
            incarnation: u64::MAX,
        };
        let rows = (0..keys).flat_map(|k| {
            (0..=others).map(move |origin| SpreadRow {
                key: Key::from_bytes([k; 12]),
                origin,
                count: 10_000,
            })
        });
        let origins = (1..=others).map(origin).collect();
        Model::Spread(u64::MAX, 1_796_000_000, origins, rows.collect())
    };
    for (keys, others, bar) in [(64, 0, 17.0), (1, 54, 21.0)] {
        let (bytes, written) = write_frame(&header(), &[ack(), spread(keys, others)], None);
        let rows = usize::from(keys) * (usize::from(others) + 1);
        let each = bytes.len() as f64 / rows as f64;
        println!("{rows} rows in {} bytes, {each:.2} per row", bytes.len());
        assert_eq!(written.len(), 2);
        assert!(each <= bar, "{each}");
    }
}

#[test]
fn a_heartbeat_with_a_digest_takes_about_60_bytes() {
    let digest = Model::Digest(Digest {
        scope: scope(),
        rows: 100_000,
        hash: u64::MAX,
    });
    let (bare, _) = write_frame(&header(), &[], None);
    let (with_digest, _) = write_frame(&header(), std::slice::from_ref(&digest), None);
    let (all, _) = write_frame(&header(), &[ack(), digest], None);
    println!(
        "header {} bytes, heartbeat with digest {}, with an ack too {}",
        bare.len(),
        with_digest.len(),
        all.len()
    );
    assert!(bare.len() <= 36 && with_digest.len() <= 64 && all.len() <= 80);
}
