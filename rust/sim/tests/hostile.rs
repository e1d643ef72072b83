//! Case 50: frames that were replayed, cut, damaged or signed with another key.
#![allow(clippy::unwrap_used)] // helpers of tests

use std::net::SocketAddr;

use gabion_sim::config::{WorldConfig, MS, SECOND};
use gabion_sim::member::key;
use gabion_sim::swarm::fixed;
use gabion_sim::World;

const HOUR: u64 = 3_600 * SECOND;

/// A world in which member 0 admitted 30 hits, all views equal, and frames of it.
fn captured(authenticated: bool) -> (World, Vec<(SocketAddr, usize, Vec<u8>)>) {
    let mut config = WorldConfig::calm(1, 3, vec![fixed(1_000, HOUR)]);
    config.authenticated = authenticated;
    let mut world = World::new(config);
    world.run_for(2 * SECOND);
    world.capture(60);
    for n in 0..30u32 {
        assert!(world.request(0, 0, n % 5, 20).unwrap().allowed());
        world.run_for(2 * MS);
    }
    world.run_for(4 * SECOND);
    let frames = world.captured().to_vec();
    assert_eq!(frames.len(), 60);
    (world, frames)
}

fn totals(world: &World) -> Vec<u64> {
    let epoch = gabion_sim::clock::WORLD_UNIX_NS / HOUR;
    let total = |member: usize, n| world.member(member).remote(0, key(0, n), epoch);
    (0..3)
        .flat_map(|member| (0..5).map(move |n| (member, n)))
        .map(|(m, n)| total(m, n))
        .collect()
}

#[test]
fn case_50_replayed_frames_change_nothing() {
    for authenticated in [false, true] {
        let (mut world, frames) = captured(authenticated);
        let before = totals(&world);
        for (from, to, bytes) in frames.iter().chain(frames.iter().rev()) {
            world.inject(*from, *to, bytes);
        }
        world.run_for(SECOND);
        assert_eq!(totals(&world), before);
        assert!(world.settle(), "{:?}", world.violation());
    }
}

#[test]
fn case_50_frames_cut_at_every_length_change_nothing() {
    for authenticated in [false, true] {
        let (mut world, frames) = captured(authenticated);
        let before = totals(&world);
        for (from, to, bytes) in &frames {
            for length in 0..bytes.len() {
                world.inject(*from, *to, &bytes[..length]);
            }
        }
        world.run_for(SECOND);
        assert_eq!(totals(&world), before);
        assert!(world.settle(), "{:?}", world.violation());
    }
}

#[test]
fn case_50_every_flipped_bit_is_caught_by_the_signature() {
    let (mut world, frames) = captured(true);
    let before = totals(&world);
    for (from, to, bytes) in frames.iter().take(20) {
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            world.inject(*from, *to, &damaged);
        }
    }
    world.run_for(SECOND);
    assert_eq!(totals(&world), before);
    assert!(world.settle(), "{:?}", world.violation());
}

#[test]
fn case_50_a_member_with_a_wrong_key_is_not_believed() {
    let mut config = WorldConfig::calm(1, 3, vec![fixed(1_000, HOUR)]);
    config.authenticated = true;
    config.wrong_key = vec![2];
    let mut world = World::new(config);
    world.run_for(2 * SECOND);
    for _ in 0..10 {
        for member in 0..3 {
            assert!(world.request(member, 0, 1, 1).unwrap().allowed());
        }
    }
    world.run_for(5 * SECOND);
    let views: Vec<u64> = (0..3).map(|member| world.known(member, 0, 1)).collect();
    assert_eq!(views, [20, 20, 10]);
}

#[test]
fn case_59_a_forged_datagram_with_the_right_cluster_changes_nothing() {
    // Good frames of another cluster with the same tag, from a source the members know, from one
    // they do not know, and from a member's own address.
    let mut other = WorldConfig::calm(77, 3, vec![fixed(1_000, HOUR)]);
    other.starve_ns = 0;
    let mut other = World::new(other);
    other.run_for(2 * SECOND);
    other.capture(40);
    for n in 0..40u32 {
        other.request(0, 0, n % 5, 200);
        other.run_for(2 * MS);
    }
    let forged = other.captured().to_vec();
    for authenticated in [true, false] {
        let (mut world, _) = captured(authenticated);
        let before = totals(&world);
        for (_, to, bytes) in &forged {
            for (member, place) in [((to + 1) % 3, 0), (*to, 0), (9, 9)] {
                world.inject(gabion_sim::member::address(member, place), *to, bytes);
            }
        }
        world.run_for(SECOND);
        assert_eq!(totals(&world), before, "authenticated: {authenticated}");
        assert!(world.settle(), "{:?}", world.violation());
    }
}

#[test]
fn garbage_from_strangers_is_dropped() {
    let (mut world, _) = captured(false);
    let before = totals(&world);
    let mut rng = gabion_sim::rng::Rng::new(5);
    for _ in 0..2_000 {
        let length = rng.index(1_400);
        let bytes: Vec<u8> = (0..length)
            .map(|_| rng.next_u64().to_le_bytes()[0])
            .collect();
        let from = gabion_sim::member::address(rng.index(300), 3);
        world.inject(from, rng.index(3), &bytes);
    }
    world.run_for(SECOND);
    assert_eq!(totals(&world), before);
    assert!(world.settle(), "{:?}", world.violation());
}
