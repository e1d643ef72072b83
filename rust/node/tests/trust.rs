//! Who is believed: signatures, replays, forgeries, addresses.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod net;

use gabion_node::{Config, Input, Note};
use gabion_wire::{decode, Header, Section, WireError};
use net::{addr, config, key, keys, minute, Net, MS, SECOND};

const KEY_A: &str = "1:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const KEY_B: &str = "2:ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";

fn signed(n: usize, file: &str) -> Net {
    let mut net = Net::new(50);
    for i in 0..n as u64 {
        net.add(Config {
            keys: keys(file),
            ..config(i + 1, i + 100, &[minute()])
        });
    }
    net.introduce();
    net.run(SECOND);
    net
}

#[test]
fn signed_members_count_together_also_during_a_key_rotation() {
    let mut net = Net::new(5);
    let both_ab = format!("{KEY_A}\n{KEY_B}");
    let both_ba = format!("{KEY_B}\n{KEY_A}");
    net.add(Config {
        keys: keys(&both_ab),
        ..config(1, 1, &[minute()])
    });
    net.add(Config {
        keys: keys(&both_ba),
        ..config(2, 2, &[minute()])
    });
    net.introduce();
    net.run(SECOND);
    let e = net.epoch(&minute());
    net.own(0, 0, key(1), e, 40);
    net.own(1, 0, key(1), e, 5);
    net.run(10 * MS);
    assert!(net.all_see(0, key(1), e, 45));
}

#[test]
fn case_50_replayed_truncated_flipped_and_wrongly_signed_frames_change_nothing() {
    let mut net = signed(2, KEY_A);
    let e = net.epoch(&minute());
    net.own(0, 0, key(1), e, 40);
    net.run(2 * SECOND);
    let frames: Vec<_> = net.tap.iter().filter(|t| t.0 == addr(0)).cloned().collect();
    assert!(frames.len() > 3);
    net.run(10 * MS); // what was under way has arrived
    let before = net.members[1].node.stats().clone();
    let mut sent = 0;
    for (from, _, bytes) in &frames {
        net.handle(1, Input::Datagram { from: *from, bytes });
        for len in 0..bytes.len() {
            net.handle(
                1,
                Input::Datagram {
                    from: *from,
                    bytes: &bytes[..len],
                },
            );
        }
        for bit in 0..bytes.len() * 8 {
            let mut bent = bytes.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            net.handle(
                1,
                Input::Datagram {
                    from: *from,
                    bytes: &bent,
                },
            );
            sent += 1;
        }
        sent += 1 + bytes.len() as u64;
    }
    let after = net.members[1].node.stats().clone();
    assert_eq!(after.rows_in, before.rows_in);
    assert_eq!(after.drop_unproven, before.drop_unproven);
    let dropped =
        |s: &gabion_node::NodeStats| s.wire_drops.iter().sum::<u64>() + s.refused_strangers;
    let hellos = after.hellos_in - before.hellos_in;
    assert_eq!(
        dropped(&after) - dropped(&before) + hellos,
        sent,
        "each one dropped by cause"
    );
    assert!(
        hellos <= frames.len() as u64,
        "only whole, signed hellos are read"
    );
    assert!(after.dropped(WireError::Replayed) > 0 && after.dropped(WireError::BadMac) > 1_000);
    assert_eq!(net.total(1, 0, key(1), e), 40);
    net.own(0, 0, key(1), e, 41);
    net.run(2 * SECOND);
    assert!(net.all_see(0, key(1), e, 41), "the link lives on");
    assert_eq!(net.members[1].downs, 0);
}

#[test]
fn case_50_a_member_with_a_wrong_key_or_none_stays_out_and_is_reported() {
    for file in [Some(KEY_B), None] {
        let mut net = signed(2, KEY_A);
        let outsider = Config {
            keys: file.and_then(keys),
            ..config(9, 9, &[minute()])
        };
        net.add(outsider);
        net.introduce();
        let e = net.epoch(&minute());
        net.own(2, 0, key(1), e, 40);
        net.run(10 * SECOND);
        assert_eq!(net.members[0].node.peers_up(), 1);
        assert_eq!(net.total(0, 0, key(1), e), 0);
        let cause = if file.is_some() {
            WireError::UnknownKey
        } else {
            WireError::NotSigned
        };
        assert!(net.members[0].node.stats().dropped(cause) > 0);
        let told = |n: &&Note| matches!(n, Note::BadSignature { .. });
        assert_eq!(net.members[0].notes.iter().filter(told).count(), 1);
    }
}

#[test]
fn a_capture_replayed_to_a_restarted_receiver_or_to_another_member_is_refused() {
    let mut net = signed(3, KEY_A);
    let e = net.epoch(&minute());
    net.own(0, 0, key(1), e, 40);
    net.run(SECOND);
    let to_one: Vec<_> = net
        .tap
        .iter()
        .filter(|t| (t.0, t.1) == (addr(0), addr(1)))
        .cloned()
        .collect();
    net.members[0].alive = false;
    net.restart(
        1,
        Config {
            session: 2,
            keys: keys(KEY_A),
            ..config(2, 555, &[minute()])
        },
    );
    let down = net.members[2].node.peers_up();
    for target in [1, 2] {
        let before = net.members[target].node.stats().rows_in;
        for (from, _, bytes) in &to_one {
            net.handle(target, Input::Datagram { from: *from, bytes });
        }
        assert_eq!(net.members[target].node.stats().rows_in, before);
    }
    assert!(net.members[1]
        .node
        .peers()
        .all(|p| p.identity.is_none_or(|(node, _)| node != 1)));
    assert_eq!(net.members[2].node.peers_up(), down);
}

fn forged(cluster: u32, node: u64) -> Vec<u8> {
    let mut buf = [0u8; 1200];
    let header = Header::new(cluster, node, 4, 1);
    let mut w = gabion_wire::FrameWriter::new(&mut buf, &header, None).unwrap();
    let scope = gabion_wire::Scope {
        limiter: 0x11,
        epoch: net::START / (60 * SECOND),
        origin: None,
    };
    let mut rows = w.rows(&scope).unwrap();
    rows.push(key(1), 1_000_000).unwrap();
    rows.finish().unwrap();
    let len = w.finish();
    buf[..len].to_vec()
}

#[test]
fn case_59_one_forged_datagram_changes_no_count_with_or_without_authentication() {
    for file in [Some(KEY_A), None] {
        let mut net = Net::new(59);
        for i in 0..2 {
            net.add(Config {
                keys: file.and_then(keys),
                ..config(i + 1, i + 1, &[minute()])
            });
        }
        net.introduce();
        net.run(SECOND);
        let e = net.epoch(&minute());
        for (from, node) in [(addr(1), 2), (addr(1), 77), (addr(200), 2), (addr(200), 77)] {
            net.handle(
                0,
                Input::Datagram {
                    from,
                    bytes: &forged(7, node),
                },
            );
        }
        net.run(8 * SECOND);
        assert_eq!(net.total(0, 0, key(1), e), 0);
        assert_eq!(net.members[0].node.peers_up(), 1);
        assert_eq!(net.members[0].downs, 0);
        assert_eq!(
            net.members[0].node.peers().count(),
            1,
            "no link is left behind"
        );
    }
}

#[test]
fn an_unproven_source_gets_at_most_three_times_what_it_sent() {
    let mut net = Net::mesh(6, 2, &[minute()]);
    net.run(SECOND);
    let mut r = net::Rng(3);
    let (mut sent, victim) = (0, addr(99));
    net.tap.clear();
    for i in 0..2_000u64 {
        let bytes = if r.below(2) == 0 {
            forged(7, 50 + i % 3)
        } else {
            hello(50 + i % 3, r.next())
        };
        sent += bytes.len();
        net.handle(
            0,
            Input::Datagram {
                from: victim,
                bytes: &bytes,
            },
        );
        net.run(r.below(5) * MS);
        let got: usize = net
            .tap
            .iter()
            .filter(|t| t.1 == victim)
            .map(|t| t.2.len())
            .sum();
        assert!(got <= 3 * sent, "{got} bytes for {sent}");
    }
    let got = net.tap.iter().filter(|t| t.1 == victim).count();
    assert!(got > 0, "a newcomer is answered");
    assert_eq!(net.members[0].node.peers_up(), 1);
}

fn hello(node: u64, nonce: u64) -> Vec<u8> {
    let mut buf = [0u8; 1200];
    let flags = gabion_wire::FLAG_INTRODUCTION;
    let header = Header {
        flags,
        ..Header::new(7, node, 4, 1)
    };
    let mut w = gabion_wire::FrameWriter::new(&mut buf, &header, None).unwrap();
    w.hello(&gabion_wire::Hello {
        nonce,
        echo: None,
        wants_digests: true,
    })
    .unwrap();
    let len = w.finish();
    buf[..len].to_vec()
}

#[test]
fn a_flood_of_introductions_is_bounded_in_links_and_answers() {
    let mut net = Net::mesh(7, 2, &[minute()]);
    net.run(SECOND);
    for i in 0..5_000u64 {
        let from = addr(1_000 + i as usize);
        net.handle(
            0,
            Input::Datagram {
                from,
                bytes: &hello(1_000 + i, i + 1),
            },
        );
    }
    let links = net.members[0].node.peers().count();
    assert!(links <= 1 + 64, "{links} links");
    let stats = net.members[0].node.stats();
    let refused = stats.refused_provisional + stats.refused_strangers;
    assert!(refused > 4_000, "{refused} refused");
    net.run(10 * SECOND);
    assert_eq!(net.members[0].node.peers().count(), 1);
    assert_eq!(net.members[0].node.peers_up(), 1, "the real peer stays");
}

#[test]
fn a_member_that_only_knows_others_is_accepted_unless_that_is_switched_off() {
    for accept in [true, false] {
        let mut net = Net::new(8);
        let mut first = config(1, 1, &[minute()]);
        first.tunables.accept_unknown_sources = accept;
        net.add(first);
        net.add(config(2, 2, &[minute()]));
        // Only the second is told of the first: as behind a NAT or a stale list.
        net.handle(1, Input::Peers(&[addr(0)]));
        net.run(2 * SECOND);
        let e = net.epoch(&minute());
        net.own(0, 0, key(1), e, 40);
        net.own(1, 0, key(1), e, 5);
        net.run(SECOND);
        assert_eq!(net.all_see(0, key(1), e, 45), accept);
        let drops = net.members[0]
            .node
            .stats()
            .dropped(WireError::UnknownSource);
        assert_eq!(drops > 0, !accept);
    }
}

#[test]
fn case_44_a_member_behind_two_addresses_is_one_member() {
    let mut net = Net::mesh(44, 2, &[minute()]);
    // A second address that leads to the same member (dual stack, two endpoint slices).
    net.alias.insert(addr(77), 1);
    net.handle(0, Input::Peers(&[addr(1), addr(77)]));
    net.run(3 * SECOND);
    assert_eq!(net.members[0].node.peers_up(), 1);
    let e = net.epoch(&minute());
    net.own(0, 0, key(1), e, 40);
    net.own(1, 0, key(1), e, 5);
    net.run(SECOND);
    assert!(net.all_see(0, key(1), e, 45));
    let rows = net.members[1].node.stats().rows_in;
    assert!(rows <= 2, "not sent twice: {rows}");
    // The first address goes away: the second takes over.
    net.handle(0, Input::Peers(&[addr(77)]));
    net.run(3 * SECOND);
    net.own(0, 0, key(1), e, 50);
    net.run(SECOND);
    assert_eq!(net.members[0].node.peers_up(), 1);
    assert!(
        net.all_see(0, key(1), e, 55),
        "{:?}",
        net.members[1].node.stats()
    );
}

#[test]
fn peers_that_come_and_go_keep_their_counts() {
    let mut net = Net::mesh(9, 2, &[minute()]);
    net.run(SECOND);
    let e = net.epoch(&minute());
    for round in 1..=5u32 {
        net.handle(0, Input::Peers(&[]));
        net.own(0, 0, key(1), e, round * 10);
        net.run(200 * MS);
        net.handle(0, Input::Peers(&[addr(1)]));
        net.run(2 * SECOND);
        assert!(
            net.all_see(0, key(1), e, u64::from(round) * 10),
            "round {round}"
        );
    }
}

#[test]
fn a_peer_with_other_numbers_is_noted_and_still_counts_together() {
    let mut net = Net::new(10);
    net.add(config(1, 1, &[minute()]));
    let other = gabion_node::LimiterSpec {
        digest: 0xd2,
        limit: 200,
        ..minute()
    };
    net.add(config(2, 2, &[other]));
    net.introduce();
    net.run(2 * SECOND);
    let e = net.epoch(&minute());
    net.own(0, 0, key(1), e, 40);
    net.run(SECOND);
    assert_eq!(net.total(1, 0, key(1), e), 40);
    for (m, node, theirs) in [(0, 2, 0xd2), (1, 1, minute().digest)] {
        let limiter = 0;
        let note = Note::LimitDiffers {
            node,
            limiter,
            theirs,
        };
        assert!(net.members[m].notes.contains(&note));
        let peer = net.members[m].node.peers().next().unwrap();
        assert_eq!(peer.differences.differing, [(limiter, theirs)]);
    }
}

#[test]
fn hellos_never_hold_anything_else_and_carry_no_secret() {
    let mut net = signed(2, KEY_A);
    net.run(SECOND);
    for (_, _, bytes) in net.tap.iter().take(20) {
        let frame = decode(bytes).unwrap();
        if frame.header.is_introduction() {
            assert!(frame.sections().all(|s| matches!(s, Section::Hello(_))));
        }
    }
}

/// Well formed, for this cluster, of a session that nobody has: it fails at its signature.
fn badly_signed(node: u64) -> Vec<u8> {
    let mut buf = [0u8; 1200];
    let flags = gabion_wire::FLAG_INTRODUCTION;
    let header = Header {
        flags,
        ..Header::new(7, node, 4, 1)
    };
    let ring = keys(KEY_B).unwrap();
    let auth = gabion_wire::Auth {
        ring: &ring,
        receiver: gabion_wire::Receiver::UNKNOWN,
    };
    let mut w = gabion_wire::FrameWriter::new(&mut buf, &header, Some(auth)).unwrap();
    w.hello(&gabion_wire::Hello {
        nonce: 9,
        echo: None,
        wants_digests: true,
    })
    .unwrap();
    let len = w.finish();
    buf[..len].to_vec()
}

#[test]
fn a_flood_that_asks_for_signatures_gets_few_and_keeps_no_peer_out() {
    let mut net = Net::new(15);
    for i in 0..3 {
        net.add(Config {
            keys: keys(KEY_A),
            ..config(i + 1, i + 100, &[minute()])
        });
    }
    // member 3 is listed, and comes into a flood from one host, and one from many
    for m in 0..2 {
        net.handle(m, Input::Peers(&[addr(0), addr(1), addr(2)]));
    }
    net.run(SECOND);
    let before = net.members[0].node.stats().clone();
    let bytes = badly_signed(77);
    let mut sent = 0u64;
    for ms in 0..2_000u64 {
        if ms == 500 {
            net.handle(2, Input::Peers(&[addr(0), addr(1)]));
        }
        for n in 0..20u64 {
            let from = addr(if n % 2 == 0 {
                5_000
            } else {
                6_000 + (ms * 20 + n) as usize
            });
            net.handle(
                0,
                Input::Datagram {
                    from,
                    bytes: &bytes,
                },
            );
            sent += 1;
        }
        net.run(MS);
    }
    let stats = net.members[0].node.stats();
    let tried = stats.dropped(WireError::UnknownKey) - before.dropped(WireError::UnknownKey);
    let unread = stats.refused_strangers - before.refused_strangers;
    assert!(tried + unread >= sent, "{tried} + {unread} of {sent}");
    // two seconds' budget and the one that was saved
    let most = 3 * gabion_node::limits::UNLISTED_FRAMES_PER_S;
    assert!(tried <= most, "{tried} signatures were looked at");
    assert_eq!(
        net.members[0].node.peers_up(),
        2,
        "the listed member is there"
    );
    let e = net.epoch(&minute());
    net.own(2, 0, key(1), e, 40);
    net.run(SECOND);
    assert!(net.all_see(0, key(1), e, 40));
}

#[test]
fn a_frame_sent_back_to_its_sender_is_dropped_as_its_own() {
    for file in [Some(KEY_A), None] {
        let mut net = Net::new(16);
        for i in 0..2 {
            net.add(Config {
                keys: file.and_then(keys),
                ..config(i + 1, i + 100, &[minute()])
            });
        }
        net.introduce();
        net.run(SECOND);
        let e = net.epoch(&minute());
        net.own(0, 0, key(1), e, 40);
        net.run(SECOND);
        let own: Vec<_> = net.tap.iter().filter(|t| t.0 == addr(0)).cloned().collect();
        let before = net.members[0].node.stats().dropped(WireError::OwnNode);
        for (_, to, bytes) in &own {
            net.handle(0, Input::Datagram { from: *to, bytes });
        }
        let dropped = net.members[0].node.stats().dropped(WireError::OwnNode) - before;
        assert_eq!(dropped, own.len() as u64);
        net.run(SECOND);
        assert_eq!(net.total(0, 0, key(1), e), 40);
        assert!(net.all_see(0, key(1), e, 40));
    }
}
