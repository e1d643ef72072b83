//! Key files: parsing, rotation, and that keys are never printed.

mod common;

use common::*;
use gabion_wire::*;

#[test]
fn the_first_key_signs_and_all_are_accepted_through_a_rotation() {
    let steps = [
        KEY_A.to_string(),
        format!("{KEY_A}{KEY_B}"),
        format!("# now signing with 2\n\n{KEY_B}{KEY_A}"),
        KEY_B.to_string(),
    ];
    let me = Receiver {
        node: 5,
        session: 6,
    };
    let h = Header::new(1, 2, 3, 4);
    for pair in steps.windows(2) {
        let (old, new) = (ring(&pair[0]), ring(&pair[1]));
        for (from, to) in [(&old, &new), (&new, &old), (&old, &old), (&new, &new)] {
            let auth = Auth {
                ring: from,
                receiver: me,
            };
            let (bytes, _) = write_frame(&h, &[Model::Leave], Some(auth));
            assert_eq!(to.verify(&bytes, &me), Ok(from.signing_id()));
        }
    }
    // Leaving out the middle steps breaks, and says how.
    let (first, last) = (ring(&steps[0]), ring(&steps[3]));
    let (bytes, _) = write_frame(
        &h,
        &[],
        Some(Auth {
            ring: &first,
            receiver: me,
        }),
    );
    assert_eq!(last.verify(&bytes, &me), Err(WireError::UnknownKey));
}

#[test]
fn the_mac_is_hmac_sha256_over_receiver_and_frame() {
    use hmac::{Hmac, Mac};
    let key: Vec<u8> = (0..32).collect();
    let me = Receiver {
        node: 0x0102_0304_0506_0708,
        session: 0x0a0b_0c0d,
    };
    let keys = ring(KEY_A);
    let h = Header::new(1, 2, 3, 4);
    let (bytes, _) = write_frame(
        &h,
        &[Model::Leave],
        Some(Auth {
            ring: &keys,
            receiver: me,
        }),
    );
    let (signed, mac) = bytes.split_at(bytes.len() - 16);
    let mut reference = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    reference.update(&[8, 7, 6, 5, 4, 3, 2, 1, 0x0d, 0x0c, 0x0b, 0x0a]);
    reference.update(signed);
    assert_eq!(&reference.finalize().into_bytes()[..16], mac);
    assert_eq!(signed.last(), Some(&1), "the key id is signed too");
}

#[test]
fn case_61_key_files_are_refused_with_the_line_and_without_the_key() {
    let secret = "00112233445566778899aabbccddeeff";
    let table = [
        ("", "holds no key"),
        ("# only a comment\n", "holds no key"),
        ("00112233445566778899aabbccddeeff", "line 1: write `id:hex`"),
        (
            "\n256:00112233445566778899aabbccddeeff",
            "line 2: the key id",
        ),
        ("-1:00112233445566778899aabbccddeeff", "line 1: the key id"),
        (
            "1:00112233445566778899aabbccddeef",
            "even number of hex digits",
        ),
        (
            "1:00112233445566778899aabbccddeefg",
            "even number of hex digits",
        ),
        (
            "1:0011223344556677889\u{e9}abbccddeeff",
            "even number of hex digits",
        ),
        ("1:00112233445566778899aabbccddee", "16 to 64 bytes"),
        ("1:", "16 to 64 bytes"),
    ];
    for (text, wanted) in table {
        let error = KeyRing::parse(text).unwrap_err();
        assert!(error.to_string().contains(wanted), "{text:?}: {error}");
        assert!(!error.to_string().contains("aabb"), "{error}");
        assert!(!format!("{error:?}").contains("aabb"));
    }
    let long = format!("1:{}", "ab".repeat(65));
    assert_eq!(
        KeyRing::parse(&long).unwrap_err(),
        KeyFileError::BadLength { line: 1 }
    );
    let twice = format!("7:{secret}\n7:{secret}");
    assert_eq!(
        KeyRing::parse(&twice).unwrap_err(),
        KeyFileError::DuplicateId { line: 2, id: 7 }
    );
    let nine: String = (0..9).map(|i| format!("{i}:{secret}\n")).collect();
    assert_eq!(
        KeyRing::parse(&nine).unwrap_err(),
        KeyFileError::TooMany { line: 9 }
    );
    let crlf = KeyRing::parse(&format!(
        " 3 : {secret} \r\n4:{}\r\n",
        secret.to_uppercase()
    ));
    assert_eq!(crlf.unwrap().ids().collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn a_key_ring_prints_ids_only() {
    let printed = format!("{:?} {:#?}", ring(KEY_A), ring(KEY_B));
    assert!(printed.contains("KeyRing"));
    assert!(
        !printed.to_lowercase().contains("f0f1") && !printed.contains("240, 241"),
        "{printed}"
    );
    let auth = format!(
        "{:?}",
        Auth {
            ring: &ring(KEY_B),
            receiver: Receiver::UNKNOWN
        }
    );
    assert!(!auth.contains("240, 241"));
}

#[test]
fn every_drop_cause_has_its_own_stable_name_and_place() {
    let mut names = std::collections::BTreeSet::new();
    for (i, e) in WireError::ALL.iter().enumerate() {
        assert_eq!(e.index(), i);
        assert!(names.insert(e.name()));
        assert!(e
            .name()
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'_'));
        assert!(!e.to_string().is_empty());
    }
    assert_eq!(names.len(), WireError::COUNT);
}
