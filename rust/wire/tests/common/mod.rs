//! An owned model of frames, with strategies that make them, shared by the tests.
#![allow(dead_code, unreachable_pub)] // each test file uses its part of it
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)] // tests on small numbers

use gabion_rule::Key;
use gabion_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

/// A section as plain data, so that what was written can be compared with what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    Ack(Ack),
    Rows(Scope, Vec<(Key, u32)>),
    Hello(Hello),
    Digest(Digest),
    Request(Scope, u8, u32, Vec<u32>),
    NotKept(NotKept),
    Heard(bool, Vec<u64>),
    Limits(Vec<LimitEntry>),
    Leave,
    Eras(Vec<EraEntry>),
    Flags(Vec<FlagEntry>),
    Place(u32),
    Spread(u64, u64, Vec<Origin>, Vec<SpreadRow>),
    WholeDigest(WholeDigest),
    WholeRequest(Scope, u8, u32, Vec<u32>),
}

impl Model {
    pub fn of(section: Section<'_>) -> Model {
        match section {
            Section::Ack(s) => Model::Ack(s),
            Section::Rows(s) => Model::Rows(s.scope, s.rows.map(|r| (r.key, r.count)).collect()),
            Section::Hello(s) => Model::Hello(s),
            Section::Digest(s) => Model::Digest(s),
            Section::DigestRequest(s) => {
                Model::Request(s.scope, s.parts_log2, s.first, s.sums.collect())
            }
            Section::NotKept(s) => Model::NotKept(s),
            Section::Heard(s) => Model::Heard(s.silent, s.ids.collect()),
            Section::Limits(s) => Model::Limits(s.collect()),
            Section::Leave => Model::Leave,
            Section::Eras(s) => Model::Eras(s.collect()),
            Section::Flags(s) => Model::Flags(s.collect()),
            Section::Place(s) => Model::Place(s),
            Section::Spread(s) => Model::Spread(
                s.limiter,
                s.epoch,
                s.origins().collect(),
                s.rows().collect(),
            ),
            Section::WholeDigest(s) => Model::WholeDigest(s),
            Section::WholeRequest(s) => {
                Model::WholeRequest(s.scope, s.parts_log2, s.first, s.sums.collect())
            }
            Section::Unknown { kind, len } => panic!("unknown section {kind} of {len} bytes"),
        }
    }

    /// Writes what fits; gives what was written, `None` for nothing.
    pub fn write(&self, w: &mut FrameWriter<'_>) -> Option<Model> {
        let done = match self {
            Model::Ack(s) => w.ack(s),
            Model::Rows(scope, rows) => return write_rows(w, scope, rows),
            Model::Hello(s) => w.hello(s),
            Model::Digest(s) => w.digest(s),
            Model::Request(scope, log2, first, sums) => {
                w.digest_request(scope, *log2, *first, sums)
            }
            Model::NotKept(s) => w.not_kept(s),
            Model::Heard(silent, ids) => w.heard(*silent, ids),
            Model::Limits(s) => w.limits(s),
            Model::Leave => w.leave(),
            Model::Eras(s) => w.eras(s),
            Model::Flags(s) => w.flags(s),
            Model::Place(s) => w.place(*s),
            Model::Spread(limiter, epoch, origins, rows) => {
                w.spread(*limiter, *epoch, origins, rows)
            }
            Model::WholeDigest(s) => w.whole_digest(s),
            Model::WholeRequest(scope, log2, first, sums) => {
                w.whole_request(scope, *log2, *first, sums)
            }
        };
        match done {
            Ok(()) => Some(self.clone()),
            Err(WriteError::Full) => None,
            Err(other) => panic!("{self:?}: {other}"),
        }
    }
}

fn write_rows(w: &mut FrameWriter<'_>, scope: &Scope, rows: &[(Key, u32)]) -> Option<Model> {
    let mut section = match w.rows(scope) {
        Ok(section) => section,
        Err(WriteError::Full) => return None,
        Err(other) => panic!("{other}"),
    };
    let taken = rows
        .iter()
        .take_while(|(k, c)| section.push(*k, *c).is_ok())
        .count();
    match section.finish() {
        Ok(n) => assert_eq!(n, taken),
        Err(e) => {
            assert_eq!((e, taken), (WriteError::Empty, 0));
            return None;
        }
    }
    Some(Model::Rows(*scope, rows[..taken].to_vec()))
}

/// Numbers at the edges of varints, and any.
fn number(max: u64) -> BoxedStrategy<u64> {
    prop_oneof![
        0..=max.min(130),
        (0u32..64).prop_map(move |s| (1u64 << s).min(max)),
        (0u32..64).prop_map(move |s| ((1u64 << s) - 1).min(max)),
        0..=max,
        Just(max),
    ]
    .boxed()
}

fn number32() -> impl Strategy<Value = u32> {
    number(u64::from(u32::MAX)).prop_map(|n| n as u32)
}

fn scope() -> impl Strategy<Value = Scope> {
    let origin = proptest::option::of((1..=u64::MAX, any::<u64>()));
    (any::<u64>(), number(limits::MAX_EPOCH), origin).prop_map(|(limiter, epoch, origin)| Scope {
        limiter,
        epoch,
        origin: origin.map(|(node, incarnation)| Origin { node, incarnation }),
    })
}

fn key() -> impl Strategy<Value = Key> {
    any::<[u8; 12]>().prop_map(Key::from_bytes)
}

fn request() -> impl Strategy<Value = Model> {
    (scope(), 0..=20u8, any::<u32>(), vec(any::<u32>(), 1..300)).prop_map(
        |(scope, log2, first, mut sums)| {
            sums.truncate(1 << log2);
            let room = (1usize << log2) - sums.len() + 1;
            Model::Request(scope, log2, first % room as u32, sums)
        },
    )
}

/// Rows of up to 40 origins, those of a key together.
fn spread() -> impl Strategy<Value = Model> {
    let origin =
        (1..=u64::MAX, any::<u64>()).prop_map(|(node, incarnation)| Origin { node, incarnation });
    let counts = vec((any::<u16>(), number32().prop_map(|c| c.max(1))), 1..9);
    (
        any::<u64>(),
        number(limits::MAX_EPOCH),
        vec(origin, 0..40),
        vec((key(), counts), 1..20),
    )
        .prop_map(|(limiter, epoch, origins, mut keys)| {
            keys.dedup_by_key(|(key, _)| *key);
            let most = origins.len() as u16 + 1;
            let rows = keys.into_iter().flat_map(|(key, counts)| {
                counts.into_iter().map(move |(origin, count)| SpreadRow {
                    key,
                    origin: origin % most,
                    count,
                })
            });
            Model::Spread(limiter, epoch, origins, rows.collect())
        })
}

fn whole(scope: Scope) -> Scope {
    Scope {
        origin: None,
        ..scope
    }
}

pub fn section() -> impl Strategy<Value = Model> {
    let limit =
        (any::<u64>(), any::<u64>()).prop_map(|(limiter, digest)| LimitEntry { limiter, digest });
    let era = (any::<u64>(), number32()).prop_map(|(limiter, era)| EraEntry {
        limiter,
        era: era.max(1),
    });
    let percent = proptest::option::of(0..=limits::MAX_FLAG_PERCENT);
    let version = number(limits::MAX_FLAG_VERSION).prop_map(|v| v.max(1));
    let flag = (any::<u64>(), version, 1..=u64::MAX, percent).prop_map(
        |(flag, version, node, percent)| FlagEntry {
            flag,
            version,
            node,
            percent,
        },
    );
    prop_oneof![
        (1..=limits::MAX_SEQ, any::<u64>(), number32()).prop_map(|(largest, before, delay_us)| {
            Model::Ack(Ack {
                largest,
                before,
                delay_us,
            })
        }),
        (
            scope(),
            vec((key(), number32().prop_map(|c| c.max(1))), 1..100)
        )
            .prop_map(|(s, r)| Model::Rows(s, r)),
        (any::<u64>(), any::<Option<u64>>(), any::<bool>()).prop_map(
            |(nonce, echo, wants_digests)| Model::Hello(Hello {
                nonce,
                echo,
                wants_digests
            })
        ),
        (scope(), number32(), any::<u64>()).prop_map(|(scope, rows, hash)| Model::Digest(Digest {
            scope,
            rows,
            hash
        })),
        request(),
        (scope(), number32())
            .prop_map(|(scope, backoff_ms)| Model::NotKept(NotKept { scope, backoff_ms })),
        (any::<bool>(), vec(1..=u64::MAX, 0..140)).prop_map(|(s, ids)| Model::Heard(s, ids)),
        vec(limit, 1..73).prop_map(Model::Limits),
        vec(era, 1..97).prop_map(Model::Eras),
        vec(flag, 1..47).prop_map(Model::Flags),
        (0..=limits::MAX_PLACE).prop_map(Model::Place),
        spread(),
        (any::<bool>(), scope(), number32(), any::<u64>()).prop_map(|(answer, s, rows, hash)| {
            let scope = whole(s);
            let digest = Digest { scope, rows, hash };
            Model::WholeDigest(WholeDigest { answer, digest })
        }),
        request().prop_map(|r| match r {
            Model::Request(s, log2, first, sums) => {
                Model::WholeRequest(whole(s), log2, first, sums)
            }
            other => other,
        }),
        Just(Model::Leave),
    ]
}

pub fn header() -> impl Strategy<Value = Header> {
    (
        any::<u32>(),
        1..=u64::MAX,
        any::<u64>(),
        number32(),
        number(limits::MAX_SEQ).prop_map(|n| n.max(1)),
        number(limits::MAX_SENT_AT_US),
        any::<bool>(),
    )
        .prop_map(
            |(cluster, node, incarnation, session, seq, sent_at_us, ack)| Header {
                flags: if ack { FLAG_WANT_ACK } else { 0 },
                seq,
                sent_at_us,
                ..Header::new(cluster, node, incarnation, session)
            },
        )
}

/// A frame of what fits of the sections; bytes and what they should read as.
pub fn write_frame(
    header: &Header,
    sections: &[Model],
    auth: Option<Auth<'_>>,
) -> (Vec<u8>, Vec<Model>) {
    let mut buf = [0xa5u8; 2000];
    let mut w = FrameWriter::new(&mut buf, header, auth).unwrap();
    let mut written = Vec::new();
    for s in sections {
        let before = w.remaining();
        match s.write(&mut w) {
            Some(m) => written.push(m),
            None => assert_eq!(w.remaining(), before, "a refused section left a trace"),
        }
    }
    let n = w.finish();
    assert!(n <= MAX_FRAME_BYTES);
    assert!(
        buf[MAX_FRAME_BYTES..].iter().all(|b| *b == 0xa5),
        "wrote behind the frame"
    );
    (buf[..n].to_vec(), written)
}

pub fn read_frame(bytes: &[u8]) -> Result<(Header, Vec<Model>), WireError> {
    let frame = decode(bytes)?;
    Ok((frame.header, frame.sections().map(Model::of).collect()))
}

pub fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).unwrap()
}

pub const KEY_A: &str = "1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
pub const KEY_B: &str = "2:f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\n";

const OWN: Scope = Scope {
    limiter: 0xfeed_beef_0123_4567,
    epoch: 29_933_333,
    origin: None,
};
const RELAYED: Scope = Scope {
    origin: Some(Origin {
        node: 5,
        incarnation: 6,
    }),
    ..OWN
};
const ACK: Model = Model::Ack(Ack {
    largest: 69_000,
    before: u64::MAX ^ 5,
    delay_us: 900,
});
const HELLO: Model = Model::Hello(Hello {
    nonce: 77,
    echo: Some(88),
    wants_digests: true,
});
const FIRST: Model = Model::Hello(Hello {
    nonce: 1,
    echo: None,
    wants_digests: true,
});
const DIGEST: Model = Model::Digest(Digest {
    scope: OWN,
    rows: 1000,
    hash: 0x1234_5678_9abc,
});
const LIMIT: LimitEntry = LimitEntry {
    limiter: OWN.limiter,
    digest: 42,
};
const NOT_KEPT: Model = Model::NotKept(NotKept {
    scope: RELAYED,
    backoff_ms: 30_000,
});

fn rows(scope: Scope, n: u64) -> Model {
    let row = |n: u64| (Key::from_bytes([n as u8; 12]), (n as u32 + 1) * 300);
    Model::Rows(scope, (0..n).map(row).collect())
}

const WHOLE: Model = Model::WholeDigest(WholeDigest {
    answer: true,
    digest: Digest {
        scope: OWN,
        rows: 7,
        hash: 99,
    },
});

/// `keys` keys, each counted by the sender and by `origins` others.
fn spread_of(keys: u8, origins: u16) -> Model {
    let name = |n: u16| Origin {
        node: u64::from(n) << 48 | 1,
        incarnation: u64::from(n),
    };
    let row = |key: u8, origin: u16| SpreadRow {
        key: Key::from_bytes([key; 12]),
        origin,
        count: 300 + u32::from(origin),
    };
    let rows = (0..keys).flat_map(|k| (0..=origins).map(move |o| row(k, o)));
    let origins = (1..=origins).map(name).collect();
    Model::Spread(OWN.limiter, OWN.epoch, origins, rows.collect())
}

fn era(n: u32) -> EraEntry {
    EraEntry {
        limiter: u64::from(n) << 40 | 5,
        era: n,
    }
}

fn flag(n: u8) -> FlagEntry {
    FlagEntry {
        flag: u64::from(n) << 50 | 3,
        version: 1_796_000_000_000 + u64::from(n),
        node: u64::from(n),
        percent: (n % 4 > 0).then_some(n),
    }
}

fn varied_sections() -> Vec<(&'static str, Vec<Model>)> {
    vec![
        ("empty", vec![]),
        ("ack", vec![ACK]),
        ("lone-row", vec![ACK, rows(OWN, 1)]),
        ("full-rows", vec![ACK, rows(OWN, 100)]),
        ("relayed", vec![rows(RELAYED, 9)]),
        ("hello", vec![HELLO]),
        ("hello-first", vec![FIRST]),
        ("heartbeat", vec![ACK, DIGEST]),
        (
            "request-all",
            vec![Model::Request(OWN, 0, 0, vec![u32::MAX])],
        ),
        (
            "request-parts",
            vec![Model::Request(RELAYED, 20, 70_000, (0..200).collect())],
        ),
        ("not-kept", vec![NOT_KEPT]),
        ("heard", vec![Model::Heard(false, (1..=140).collect())]),
        ("silent", vec![Model::Heard(true, vec![])]),
        ("limits", vec![Model::Limits(vec![LIMIT; 40])]),
        ("leave", vec![ACK, DIGEST, Model::Leave]),
        ("spread-burst", vec![ACK, spread_of(60, 0)]),
        ("spread-hot", vec![spread_of(1, 50)]),
        ("whole-digest", vec![ACK, WHOLE]),
        (
            "whole-request",
            vec![Model::WholeRequest(OWN, 20, 70_000, (0..200).collect())],
        ),
        ("eras", vec![ACK, Model::Eras((1..=90).map(era).collect())]),
        ("flags", vec![Model::Flags((1..=40).map(flag).collect())]),
        ("place", vec![ACK, DIGEST, Model::Place(300)]),
        (
            "orders",
            vec![
                Model::Eras(vec![era(7)]),
                Model::Flags(vec![flag(9)]),
                rows(OWN, 3),
            ],
        ),
    ]
}

/// One frame of each kind and of typical mixtures, always the same; seeds the fuzz corpus.
pub fn varied_frames() -> Vec<(&'static str, Vec<u8>)> {
    let header = Header {
        seq: 70_000,
        sent_at_us: 1_796_000_000_000_000,
        ..Header::new(0x7f00_1234, 0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00, 3)
    };
    let plain = varied_sections().into_iter();
    let mut out: Vec<_> = plain
        .map(|(n, s)| (n, write_frame(&header, &s, None).0))
        .collect();
    let ring = ring(KEY_A);
    let auth = Auth {
        ring: &ring,
        receiver: Receiver {
            node: 9,
            session: 2,
        },
    };
    out.push((
        "signed",
        write_frame(&header, &[ACK, rows(OWN, 100)], Some(auth)).0,
    ));
    let auth = Auth {
        receiver: Receiver::UNKNOWN,
        ..auth
    };
    out.push(("introduction", write_frame(&header, &[HELLO], Some(auth)).0));
    let plain = Header {
        flags: FLAG_INTRODUCTION | FLAG_WANT_ACK,
        ..header
    };
    out.push(("introduction-plain", write_frame(&plain, &[HELLO], None).0));
    let mut unknown = write_frame(&header, &[ACK], None).0;
    unknown.extend_from_slice(&[200, 3, 1, 2, 3]);
    out.push(("unknown-section", unknown));
    out
}
