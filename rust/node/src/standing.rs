//! Where this member stands among the live ones, and how long news takes.

use gabion_wire::Origin;

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
