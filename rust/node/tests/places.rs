//! Places of strict rules: two live members that have one are reported, by all who hear both.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // tests on small numbers

mod net;

use gabion_node::Note;
use net::{config, minute, Net, SECOND};

/// The places that a member was told are had by two.
fn told(net: &Net, member: usize) -> Vec<(u32, u64)> {
    let notes = net.members[member].notes.iter();
    let places = notes.filter_map(|note| match note {
        Note::DuplicatePlace { place, node, .. } => Some((*place, *node)),
        _ => None,
    });
    places.collect()
}

fn placed(places: &[Option<u32>]) -> Net {
    let mut net = Net::mesh(61, places.len(), &[minute()]);
    for (member, place) in net.members.iter_mut().zip(places) {
        member.node.set_place(*place);
    }
    net
}

// spec: pace-10
#[test]
fn two_members_with_one_place_are_reported_by_everybody_once_a_minute() {
    let mut net = placed(&[Some(0), Some(1), Some(1), None]);
    net.run(10 * SECOND);
    for member in 0..4 {
        let told = told(&net, member);
        let (place, node) = told.first().copied().unwrap();
        assert_eq!(told.len(), 1, "member {member}: {told:?}");
        assert!(place == 1 && (node == 2 || node == 3), "{told:?}");
    }
    let other = net.members[2].notes.iter();
    assert_eq!(
        other
            .filter(|note| matches!(note, Note::DuplicateNode { .. }))
            .count(),
        0
    );
}

#[test]
fn members_with_places_of_their_own_or_none_are_not() {
    let mut net = placed(&[Some(0), Some(65_534), None, None]);
    net.run(10 * SECOND);
    assert!((0..4).all(|member| told(&net, member).is_empty()));
}

#[test]
fn whoever_restarts_at_a_place_is_no_second_member_there_and_another_place_ends_the_matter() {
    let mut net = placed(&[Some(0), Some(1), Some(2)]);
    net.run(5 * SECOND);
    net.restart(1, config(2, 77, &[minute()]));
    net.members[1].node.set_place(Some(1));
    net.run(10 * SECOND);
    assert!((0..3).all(|member| told(&net, member).is_empty()));
    net.members[1].node.set_place(Some(2));
    net.run(5 * SECOND);
    assert!((0..3).all(|member| told(&net, member).len() == 1));
    net.members[1].node.set_place(Some(1));
    net.run(130 * SECOND);
    assert!(
        (0..3).all(|member| told(&net, member).len() == 1),
        "said no more"
    );
}
