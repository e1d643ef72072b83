//! What is written is what is read, and a frame has one encoding.

mod common;

use common::*;
use gabion_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn written_frames_read_back_as_written(h in header(), sections in vec(section(), 0..6)) {
        let (bytes, written) = write_frame(&h, &sections, None);
        let (header, read) = read_frame(&bytes).unwrap();
        prop_assert_eq!(header, h);
        prop_assert_eq!(&read, &written);
        prop_assert_eq!(peek_header(&bytes).unwrap(), h);
        // And again from what was read: the same bytes.
        prop_assert_eq!(write_frame(&header, &read, None).0, bytes);
    }

    #[test]
    fn copied_sections_are_the_same_bytes(h in header(), sections in vec(section(), 0..4)) {
        let (bytes, _) = write_frame(&h, &sections, None);
        let mut buf = [0u8; MAX_FRAME_BYTES];
        let mut w = FrameWriter::new(&mut buf, &h, None).unwrap();
        for s in decode(&bytes).unwrap().sections() {
            w.copy(&s).unwrap();
        }
        let n = w.finish();
        prop_assert_eq!(&buf[..n], &bytes[..]);
    }

    #[test]
    fn signed_frames_verify_for_their_receiver_and_for_nobody_else(
        h in header(),
        sections in vec(section(), 0..4),
        node in 1..=u64::MAX,
        session in any::<u32>(),
        flip in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        let (signer, other) = (ring(KEY_A), ring(KEY_B));
        let me = Receiver { node, session };
        let auth = Auth { ring: &signer, receiver: me };
        let (bytes, written) = write_frame(&h, &sections, Some(auth));
        let (header, read) = read_frame(&bytes).unwrap();
        prop_assert!(header.is_signed() && !header.is_introduction());
        prop_assert_eq!(read, written);
        prop_assert_eq!(signer.verify(&bytes, &me), Ok(1));
        let both = ring(&format!("{KEY_B}{KEY_A}"));
        prop_assert_eq!(both.verify(&bytes, &me), Ok(1));
        prop_assert_eq!(other.verify(&bytes, &me), Err(WireError::UnknownKey));
        for wrong in [
            Receiver { node: node ^ 1, session },
            Receiver { node, session: session ^ 1 },
            Receiver::UNKNOWN,
        ] {
            prop_assert_eq!(signer.verify(&bytes, &wrong), Err(WireError::BadMac));
        }
        let mut changed = bytes.clone();
        changed[flip.index(bytes.len())] ^= 1 << bit;
        prop_assert!(signer.verify(&changed, &me).is_err());
    }
}

#[test]
fn an_introduction_holds_a_hello_and_nothing_else() {
    let keys = ring(KEY_A);
    let auth = Auth {
        ring: &keys,
        receiver: Receiver::UNKNOWN,
    };
    let h = Header::new(1, 2, 3, 4);
    let hello = Model::Hello(Hello {
        nonce: 5,
        echo: None,
        wants_digests: true,
    });
    let (bytes, _) = write_frame(&h, std::slice::from_ref(&hello), Some(auth));
    assert!(peek_header(&bytes).unwrap().is_introduction());
    // Any member can verify it, because it is bound to none.
    assert_eq!(
        keys.verify(
            &bytes,
            &Receiver {
                node: 77,
                session: 1
            }
        ),
        Ok(1)
    );
    assert_eq!(read_frame(&bytes).unwrap().1, vec![hello.clone()]);
    let (bytes, _) = write_frame(&h, &[hello, Model::Leave], Some(auth));
    assert_eq!(decode(&bytes), Err(WireError::NotIntroduced));
}

#[test]
fn a_full_buffer_refuses_sections_and_keeps_the_frame() {
    let h = Header::new(1, 2, 3, 4);
    for size in 0..200usize {
        let mut buf = vec![0u8; size];
        let Ok(mut w) = FrameWriter::new(&mut buf, &h, None) else {
            assert!(size < limits::MIN_FRAME_BYTES);
            continue;
        };
        let mut written = Vec::new();
        for i in 0..20usize {
            let heard = Model::Heard(false, vec![7; i]);
            written.extend(heard.write(&mut w));
        }
        let n = w.finish();
        assert!(n <= size);
        assert_eq!(read_frame(&buf[..n]).unwrap().1, written);
    }
}

fn has_no_reader<T>(done: Result<T, WriteError>) {
    assert!(matches!(done.map(|_| ()), Err(WriteError::OutOfBounds(_))));
}

#[test]
fn case_61_a_header_that_no_reader_would_take_is_not_written() {
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let good = Header::new(1, 2, 3, 4);
    has_no_reader(FrameWriter::new(
        &mut buf,
        &Header { node: 0, ..good },
        None,
    ));
    has_no_reader(FrameWriter::new(&mut buf, &Header { seq: 0, ..good }, None));
    let seq = limits::MAX_SEQ + 1;
    has_no_reader(FrameWriter::new(&mut buf, &Header { seq, ..good }, None));
    let sent_at_us = limits::MAX_SENT_AT_US + 1;
    has_no_reader(FrameWriter::new(
        &mut buf,
        &Header { sent_at_us, ..good },
        None,
    ));
}

#[test]
fn case_61_sections_that_no_reader_would_take_are_not_written() {
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let ok = Scope {
        limiter: 1,
        epoch: 1,
        origin: None,
    };
    let late = Scope {
        epoch: limits::MAX_EPOCH + 1,
        ..ok
    };
    let nobody = Scope {
        origin: Some(Origin {
            node: 0,
            incarnation: 1,
        }),
        ..ok
    };
    let mut w = FrameWriter::new(&mut buf, &Header::new(1, 2, 3, 4), None).unwrap();
    let empty = w.remaining();
    for scope in [late, nobody] {
        has_no_reader(w.rows(&scope));
        has_no_reader(w.digest(&Digest {
            scope,
            rows: 1,
            hash: 1,
        }));
        has_no_reader(w.digest_request(&scope, 0, 0, &[1]));
        has_no_reader(w.not_kept(&NotKept {
            scope,
            backoff_ms: 1,
        }));
    }
    has_no_reader(w.heard(true, &[1, 0]));
    has_no_reader(w.digest_request(&ok, 1, 1, &[1, 2]));
    has_no_reader(w.digest_request(&ok, 21, 0, &[1]));
    has_no_reader(w.digest_request(&ok, 0, 1, &[1]));
    has_no_reader(w.ack(&Ack {
        largest: 0,
        before: 0,
        delay_us: 0,
    }));
    assert_eq!(w.digest_request(&ok, 4, 0, &[]), Err(WriteError::Empty));
    assert_eq!(w.limits(&[]), Err(WriteError::Empty));
    assert_eq!(w.eras(&[]), Err(WriteError::Empty));
    assert_eq!(w.flags(&[]), Err(WriteError::Empty));
    has_no_reader(w.eras(&[EraEntry { limiter: 1, era: 0 }]));
    let flag = FlagEntry {
        flag: 1,
        version: 1,
        node: 1,
        percent: Some(100),
    };
    let percent = Some(101);
    has_no_reader(w.flags(&[flag, FlagEntry { percent, ..flag }]));
    has_no_reader(w.flags(&[FlagEntry { node: 0, ..flag }]));
    has_no_reader(w.flags(&[FlagEntry { version: 0, ..flag }]));
    let version = limits::MAX_FLAG_VERSION + 1;
    has_no_reader(w.flags(&[FlagEntry { version, ..flag }]));
    let mut rows = w.rows(&ok).unwrap();
    has_no_reader(rows.push(gabion_rule::Key::from_bytes([1; 12]), 0));
    assert_eq!(rows.finish(), Err(WriteError::Empty));
    assert!(w.is_empty() && w.remaining() == empty);
}

#[test]
fn a_frame_takes_a_bounded_number_of_sections() {
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let mut w = FrameWriter::new(&mut buf, &Header::new(1, 2, 3, 4), None).unwrap();
    for _ in 0..limits::MAX_SECTIONS_PER_FRAME {
        w.leave().unwrap();
    }
    assert_eq!(w.leave(), Err(WriteError::TooManySections));
    let scope = Scope {
        limiter: 1,
        epoch: 1,
        origin: None,
    };
    assert_eq!(w.rows(&scope).map(|_| ()), Err(WriteError::TooManySections));
    let n = w.finish();
    let frame = decode(&buf[..n]).unwrap();
    assert_eq!(frame.sections().count(), limits::MAX_SECTIONS_PER_FRAME);
}
