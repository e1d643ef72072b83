//! Frames that are cut, changed, invented: a named error or a valid frame, never a panic.

#![allow(clippy::cast_possible_truncation)] // small literals
#![allow(clippy::unwrap_used)] // a failure is a failed test

mod common;

use common::*;
use gabion_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A frame that decodes must also walk, and must encode to the same bytes (but for what this
/// release does not know).
fn check(bytes: &[u8]) -> Result<(), WireError> {
    let frame = decode(bytes)?;
    assert_eq!(peek_header(bytes), Ok(frame.header));
    let mut buf = [0u8; MAX_FRAME_BYTES];
    let mut w = FrameWriter::new(&mut buf, &frame.header, None).unwrap();
    let mut unknown = 0;
    for section in frame.sections() {
        match section {
            Section::Unknown { .. } => unknown += 1,
            known => w.copy(&known).unwrap(),
        }
    }
    assert_eq!(unknown, frame.unknown_sections());
    let n = w.finish();
    let known_flags = FLAG_INTRODUCTION | FLAG_WANT_ACK;
    let flags_known = frame.header.flags & !known_flags == 0;
    let plain = frame.header.version == VERSION && flags_known && unknown == 0;
    if plain {
        assert_eq!(&buf[..n], bytes);
    }
    Ok(())
}

#[test]
fn case_50_frames_cut_at_every_length() {
    for (name, bytes) in varied_frames() {
        check(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let whole = read_count(&bytes);
        for cut in 0..bytes.len() {
            if check(&bytes[..cut]).is_ok() {
                // Only at the end of a section, and then with fewer sections.
                assert!(read_count(&bytes[..cut]) < whole, "{name} cut at {cut}");
            }
        }
    }
}

fn read_count(bytes: &[u8]) -> usize {
    decode(bytes).unwrap().sections().count()
}

#[test]
fn case_50_frames_with_every_bit_flipped() {
    let keys = ring(KEY_A);
    for (name, bytes) in varied_frames() {
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let _ = check(&changed);
            let me = Receiver {
                node: 9,
                session: 2,
            };
            assert!(keys.verify(&changed, &me).is_err(), "{name}, bit {bit}");
        }
    }
}

#[test]
fn case_50_frames_from_a_capture_or_under_another_key_are_refused_by_name() {
    let me = Receiver {
        node: 9,
        session: 2,
    };
    let (a, b) = (ring(KEY_A), ring(&KEY_B.replace("2:", "1:")));
    let frames = varied_frames();
    let find = |n: &str| {
        frames
            .iter()
            .find(|(name, _)| *name == n)
            .unwrap()
            .1
            .clone()
    };
    let (signed, plain) = (find("signed"), find("lone-row"));
    assert_eq!(a.verify(&signed, &me), Ok(1));
    assert_eq!(b.verify(&signed, &me), Err(WireError::BadMac));
    assert_eq!(a.verify(&plain, &me), Err(WireError::NotSigned));
    let header = peek_header(&signed).unwrap();
    let mut window = ReplayWindow::new(header.incarnation, header.session);
    assert_eq!(window.accept(&header), Ok(()));
    assert_eq!(window.accept(&header), Err(WireError::Replayed));
    assert_eq!(
        header.check_cluster(header.cluster ^ 1),
        Err(WireError::WrongCluster)
    );
}

/// A frame with one section of raw bytes.
fn raw(kind: u8, body: &[u8]) -> Vec<u8> {
    let (mut bytes, _) = write_frame(&Header::new(1, 2, 3, 4), &[], None);
    assert!(body.len() < 128);
    bytes.extend([kind, body.len() as u8]);
    bytes.extend(body);
    bytes
}

/// Scope without origin, limiter 1, epoch 1.
const SCOPE: [u8; 10] = [0, 1, 0, 0, 0, 0, 0, 0, 0, 1];

fn scoped(tail: &[u8]) -> Vec<u8> {
    [&SCOPE[..], tail].concat()
}

#[test]
fn case_61_numbers_beyond_their_range_are_refused_never_truncated() {
    let rows = SectionKind::Rows as u8;
    let row = |count: &[u8]| scoped(&[&[9u8; 12][..], count].concat());
    assert_eq!(check(&raw(rows, &row(&[1]))), Ok(()));
    assert_eq!(
        check(&raw(rows, &row(&[0xff, 0xff, 0xff, 0xff, 0x0f]))),
        Ok(())
    );
    assert_eq!(
        check(&raw(rows, &row(&[0x80, 0x80, 0x80, 0x80, 0x10]))),
        Err(WireError::BadCount),
        "count 2^32"
    );
    assert_eq!(
        check(&raw(rows, &row(&[0]))),
        Err(WireError::BadCount),
        "count 0"
    );
    assert_eq!(
        check(&raw(rows, &row(&[0x81, 0]))),
        Err(WireError::BadVarint),
        "padded"
    );
    assert_eq!(
        check(&raw(rows, &SCOPE)),
        Err(WireError::EmptySection),
        "no rows"
    );
    assert_eq!(
        check(&raw(rows, &scoped(&[9; 11]))),
        Err(WireError::BadSection),
        "short key"
    );
    assert_eq!(
        check(&raw(rows, &row(&[]))),
        Err(WireError::BadVarint),
        "no count"
    );
    let mut high = vec![0, 1, 0, 0, 0, 0, 0, 0, 0];
    high.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]); // 2^48
    high.extend([9; 13]);
    assert_eq!(check(&raw(rows, &high)), Err(WireError::BadEpoch));
    let mut origin = scoped(&[0; 8]);
    origin[0] = 1;
    origin.extend([7; 8]);
    origin.extend([9; 13]);
    assert_eq!(
        check(&raw(rows, &origin)),
        Err(WireError::BadOrigin),
        "origin 0"
    );
    let mut flags = row(&[1]);
    flags[0] = 2;
    assert_eq!(
        check(&raw(rows, &flags)),
        Err(WireError::BadSection),
        "unknown scope flag"
    );
}

fn refused(kind: SectionKind, table: &[(&str, Vec<u8>, WireError)]) {
    for (name, body, error) in table {
        assert_eq!(
            check(&raw(kind as u8, body)),
            Err(*error),
            "{kind:?}, {name}"
        );
    }
}

#[test]
fn sections_that_do_not_parse_are_refused_by_name() {
    use SectionKind as K;
    let bad = WireError::BadSection;
    refused(
        K::Ack,
        &[
            ("largest 0", vec![0, 0, 0], bad),
            ("more behind", vec![1, 0, 0, 0], bad),
            ("delay 2^32", vec![1, 0, 128, 128, 128, 128, 16], bad),
        ],
    );
    refused(
        K::Hello,
        &[
            ("unknown flag", vec![4, 0, 0, 0, 0, 0, 0, 0, 0], bad),
            ("no echo", vec![1, 0, 0, 0, 0, 0, 0, 0, 0], bad),
        ],
    );
    refused(K::Digest, &[("cut", scoped(&[1, 2]), bad)]);
    refused(
        K::DigestRequest,
        &[
            ("no sums", scoped(&[3, 0]), WireError::EmptySection),
            (
                "sums behind the split",
                scoped(&[1, 1, 1, 2, 3, 4, 5, 6, 7, 8]),
                bad,
            ),
            ("part of a sum", scoped(&[3, 0, 1, 2]), bad),
            ("partition 8 of 8", scoped(&[3, 8, 1, 2, 3, 4]), bad),
            ("2^21 partitions", scoped(&[21, 0, 1, 2, 3, 4]), bad),
        ],
    );
    refused(
        K::NotKept,
        &[("no back-off", scoped(&[]), WireError::BadVarint)],
    );
    refused(
        K::Heard,
        &[
            ("unknown flag", vec![2], bad),
            ("id 0", vec![0; 9], WireError::BadOrigin),
            ("part of an id", vec![0, 1], bad),
        ],
    );
    refused(
        K::Limits,
        &[
            ("none", vec![], WireError::EmptySection),
            ("part of one", vec![1; 19], bad),
        ],
    );
    refused(K::Leave, &[("more behind", vec![0], bad)]);
    refused(
        K::Place,
        &[
            ("none", vec![], WireError::BadVarint),
            ("65,535", vec![0xff, 0xff, 3], bad),
            ("more behind", vec![1, 1], bad),
        ],
    );
}

#[test]
fn spread_sections_that_do_not_parse_are_refused_by_name() {
    use SectionKind as K;
    let bad = WireError::BadSection;
    let head = |origins: &[u8]| [&[7; 8][..], &[9], origins].concat();
    let with = |origins: &[u8], rest: &[u8]| [&head(origins)[..], rest].concat();
    let key = |tail: &[u8]| [&[5; 12][..], tail].concat();
    let one = [&[1, 3, 0, 0, 0, 0, 0, 0, 0][..], &[4; 8]].concat();
    let good = with(&one, &key(&[2, 0, 1, 1, 2]));
    assert_eq!(check(&raw(K::Spread as u8, &good)), Ok(()));
    let nobody = [&[1][..], &[0; 16]].concat();
    let twice = [key(&[1, 0, 1]), key(&[1, 1, 1])].concat();
    refused(
        K::Spread,
        &[
            ("no rows", head(&[0]), WireError::EmptySection),
            ("fewer origins than said", head(&[2, 1, 1]), bad),
            (
                "node 0",
                with(&nobody, &key(&[1, 0, 1])),
                WireError::BadOrigin,
            ),
            (
                "origin 2 of 1",
                with(&one, &key(&[1, 2, 1])),
                WireError::BadOrigin,
            ),
            ("count 0", with(&one, &key(&[1, 1, 0])), WireError::BadCount),
            ("no counts", with(&one, &key(&[0])), WireError::EmptySection),
            ("half a key", with(&one, &[1, 2, 3]), bad),
            ("a key twice", with(&one, &twice), bad),
        ],
    );
    let digest =
        |flag: u8, scope_flag: u8| [&[flag, scope_flag][..], &[7; 8], &[9], &[3], &[1; 8]].concat();
    assert_eq!(check(&raw(K::WholeDigest as u8, &digest(1, 0))), Ok(()));
    refused(
        K::WholeDigest,
        &[
            ("unknown flag", digest(2, 0), bad),
            (
                "an origin",
                [&[0, 1][..], &[7; 8], &[9], &[1; 16], &[3], &[1; 8]].concat(),
                bad,
            ),
        ],
    );
    let origin = [&[1][..], &[7; 8], &[9], &[1; 16], &[0, 0, 1, 2, 3, 4]].concat();
    refused(K::WholeRequest, &[("an origin", origin, bad)]);
}

#[test]
fn kind_0_is_refused() {
    let bad = WireError::BadSection;
    assert_eq!(check(&raw(0, &[])), Err(bad), "kind 0");
}

#[test]
fn eras_and_flags_outside_their_bounds_are_refused_by_name() {
    use SectionKind as K;
    let bad = WireError::BadSection;
    let era = |era: u8| [&[7; 8][..], &[era, 0, 0, 0]].concat();
    assert_eq!(check(&raw(K::Eras as u8, &era(1))), Ok(()));
    refused(
        K::Eras,
        &[
            ("none", vec![], WireError::EmptySection),
            ("cut", era(1)[..11].to_vec(), bad),
            ("era 0", [era(2), era(0)].concat(), WireError::BadCount),
        ],
    );
    let flag = |version: [u8; 8], node: u8, percent: u8| {
        let node = [node, 0, 0, 0, 0, 0, 0, 0];
        [&[7; 8][..], &version, &node, &[percent]].concat()
    };
    let (one, late) = ([1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(check(&raw(K::Flags as u8, &flag(one, 1, 100))), Ok(()));
    assert_eq!(check(&raw(K::Flags as u8, &flag(one, 1, 0xff))), Ok(()));
    refused(
        K::Flags,
        &[
            ("none", vec![], WireError::EmptySection),
            ("cut", flag(one, 1, 1)[..24].to_vec(), bad),
            ("version 0", flag([0; 8], 1, 1), bad),
            ("version 2^48", flag(late, 1, 1), bad),
            ("more than 100 per cent", flag(one, 1, 101), bad),
            ("node 0", flag(one, 0, 1), WireError::BadOrigin),
        ],
    );
}

#[test]
fn a_section_of_a_later_release_is_skipped_and_counted() {
    let mut bytes = raw(SectionKind::Leave as u8, &[]);
    bytes.extend([200, 2, 0, 0]); // of a later release
    bytes.extend([255, 0]);
    bytes.extend([SectionKind::Ack as u8, 3, 1, 0, 0]);
    bytes[0] |= 0x0f; // a later revision of this layout
    bytes[1] |= 0x08; // a flag that may be ignored
    let frame = decode(&bytes).unwrap();
    assert_eq!(frame.unknown_sections(), 2);
    let sections: Vec<_> = frame.sections().collect();
    assert_eq!(sections[1], Section::Unknown { kind: 200, len: 2 });
    assert!(matches!(
        (sections[0], sections[3]),
        (Section::Leave, Section::Ack(_))
    ));
    assert_eq!(sections.len(), 4);
}

#[test]
fn headers_outside_their_bounds_are_refused_by_name() {
    let (good, _) = write_frame(&Header::new(1, 2, 3, 4), &[], None);
    assert_eq!(good.len(), limits::MIN_FRAME_BYTES);
    let with = |at: usize, v: u8| {
        let mut b = good.clone();
        b[at] = v;
        peek_header(&b)
    };
    assert_eq!(with(0, 0x20), Err(WireError::BadVersion));
    assert_eq!(with(0, 0x00), Err(WireError::BadVersion));
    assert_eq!(with(1, 0x10), Err(WireError::UnknownFlag));
    assert_eq!(
        with(1, 0x01),
        Err(WireError::TooShort),
        "signed, but no room for a trailer"
    );
    assert_eq!(with(6, 0), Err(WireError::BadHeader), "node 0");
    assert_eq!(with(23, 0), Err(WireError::BadHeader), "seq 0");
    assert_eq!(with(24, 0x80), Err(WireError::BadVarint));
    assert_eq!(peek_header(&good[1..]), Err(WireError::TooShort));
    assert_eq!(peek_header(&[]), Err(WireError::TooShort));
    let mut long = good.clone();
    long.resize(MAX_FRAME_BYTES + 1, 0);
    assert_eq!(decode(&long), Err(WireError::TooLong));
    let mut session = good[..22].to_vec();
    session.extend([0x80, 0x80, 0x80, 0x80, 0x10, 1, 0]); // session 2^32
    assert_eq!(peek_header(&session), Err(WireError::BadHeader));
    let mut many = good;
    many.extend([255u8, 0].repeat(limits::MAX_SECTIONS_PER_FRAME + 1));
    assert_eq!(decode(&many), Err(WireError::TooManySections));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn case_50_random_bytes_never_panic(bytes in vec(any::<u8>(), 0..1300)) {
        let _ = check(&bytes);
        let _ = ring(KEY_A).verify(&bytes, &Receiver { node: 1, session: 1 });
    }

    #[test]
    fn case_50_random_sections_behind_a_good_header_never_panic(
        sections in vec((0..14u8, vec(any::<u8>(), 0..60)), 0..6)
    ) {
        let (mut bytes, _) = write_frame(&Header::new(1, 2, 3, 4), &[], None);
        for (kind, body) in sections {
            bytes.extend([kind, body.len() as u8]);
            bytes.extend(body);
        }
        let _ = check(&bytes);
    }

    #[test]
    fn case_50_several_random_changes_never_panic(
        which in any::<prop::sample::Index>(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let frames = varied_frames();
        let mut bytes = which.get(&frames).1.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = check(&bytes);
    }
}
