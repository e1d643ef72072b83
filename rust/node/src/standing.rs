//! Where this member stands among the live ones, how long news takes, and who has which place.

use std::collections::BTreeMap;

use gabion_wire::Origin;

use crate::api::Note;
use crate::link::Link;
use crate::node::Node;

/// Where a member stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Live members, this one included.
    pub members: usize,
    /// How many of them sort before this one, by node id and incarnation: all members that see the
    /// same ones agree on it.
    pub place: usize,
    /// A hit that is noticed leaves with the next round and arrives after half a round trip: how
    /// long that takes to the furthest live member, nanoseconds.
    pub news_ns: u64,
}

impl Node {
    /// Says which part of strict rules this member has; told to all peers. spec: pace-6
    pub fn set_place(&mut self, place: Option<u32>) {
        self.place = place.filter(|place| *place <= gabion_wire::limits::MAX_PLACE);
    }

    pub(crate) fn on_place(&mut self, at: usize, place: u32) {
        if let Some(link) = self.links[at].as_mut() {
            link.place = Some(place);
        }
    }

    /// Members that are alive at the same time and have one place. spec: pace-10
    pub(crate) fn find_shared_places(&mut self) {
        let mut seen: BTreeMap<u32, Origin> = BTreeMap::new();
        seen.extend(self.place.map(|place| (place, self.me)));
        let mut found = Vec::new();
        for link in self.each_link().filter(|link| self.is_settled(link)) {
            let (Some(place), Some(origin)) = (link.place, link.origin()) else {
                continue;
            };
            if *seen.entry(place).or_insert(origin) != origin {
                let (node, addr) = (origin.node, link.addr);
                found.push(Note::DuplicatePlace { place, node, addr });
            }
        }
        found.into_iter().for_each(|note| self.note(note));
    }

    /// Where this member stands now. Looks at every link.
    pub fn standing(&self) -> Standing {
        let me = (self.me.node, self.me.incarnation);
        let live = |link: &&Link| link.up && link.alias_of.is_none();
        let mut standing = Standing {
            members: 1,
            ..Standing::default()
        };
        let mut trip_ns = 0;
        for link in self.each_link().filter(live) {
            standing.members += 1;
            let before = |origin: Origin| (origin.node, origin.incarnation) < me;
            standing.place += usize::from(link.origin().is_some_and(before));
            trip_ns = trip_ns.max(link.tx.srtt_ns);
        }
        standing.news_ns = self.floor_ns().saturating_add(trip_ns / 2);
        standing
    }
}
