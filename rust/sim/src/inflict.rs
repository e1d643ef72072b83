//! What is done to a world: faults, and their end.

use gabion_node::Input;

use crate::config::Fault;
use crate::member::{self, Member};
use crate::world::{Event, World, BATCH_NS};

impl World {
    pub(crate) fn tell_peers(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let mut peers = Vec::new();
        if !self.members[index].no_peers {
            let others = self.members.iter().filter(|member| member.index != index);
            peers.extend(others.map(|member| member.addr));
        }
        let member = &mut self.members[index];
        let now = member.now(now_ns);
        member.node.handle(Input::Peers(&peers), now);
        self.wake(index, now_ns + BATCH_NS);
    }

    /// Does something to the world, now.
    pub fn apply(&mut self, fault: Fault) {
        self.troubled_ns = self.now_ns;
        match fault {
            Fault::Network(fault) => self.network.fault = fault,
            Fault::Partition { side } => self.partition(side),
            Fault::OneWay { from, to } => self.network.set_cut(from, to, true),
            Fault::Heal => self.network.heal(),
            Fault::Restart {
                member,
                down_ns,
                moves,
                wall_error_ns,
            } => {
                self.restart(member, down_ns, moves, wall_error_ns);
            }
            Fault::LeaderChange { member } => {
                if self.members[member].here(self.now_ns) {
                    self.members[member].change_leader(&self.config, self.now_ns);
                    self.tell_peers(member);
                }
            }
            Fault::DriverStops { member, for_ns } => {
                let until = self.now_ns + for_ns;
                let held = &mut self.members[member].stopped_until_ns;
                *held = (*held).max(until);
                self.push(until, Event::Back(member));
            }
            Fault::Sleep {
                member,
                for_ns,
                clock_stops,
            } => {
                self.sleep(member, for_ns, clock_stops);
            }
            Fault::Peers { member, none } => {
                self.members[member].no_peers = none;
                self.tell_peers(member);
            }
        }
    }

    fn sleep(&mut self, member: usize, for_ns: u64, clock_stops: bool) {
        if !self.members[member].here(self.now_ns) {
            return;
        }
        let until = self.now_ns + for_ns;
        self.members[member].away_until_ns = until;
        if clock_stops {
            // Nobody reads it before it wakes.
            self.members[member].clock.lose(until, for_ns);
        }
        self.push(until, Event::Back(member));
    }

    fn partition(&mut self, side: u64) {
        for from in 0..self.members.len() {
            for to in 0..self.members.len() {
                if (side >> (from % 64)) & 1 != (side >> (to % 64)) & 1 {
                    self.network.set_cut(from, to, true);
                }
            }
        }
    }

    fn restart(&mut self, index: usize, down_ns: u64, moves: bool, wall_error_ns: i64) {
        let identity = self.members[index].identity;
        let addr = self.members[index].addr;
        let no_peers = self.members[index].no_peers;
        let mut member = self.fresh_member(index, Some(identity), wall_error_ns);
        member.addr = if moves {
            member::address(index, self.lives)
        } else {
            addr
        };
        member.no_peers = no_peers;
        member.away_until_ns = self.now_ns + down_ns;
        self.places.remove(&addr);
        self.places.insert(member.addr, index);
        self.members[index] = member;
        for other in 0..self.members.len() {
            if moves || other == index {
                self.tell_peers(other);
            }
        }
        self.push(self.now_ns + down_ns, Event::Back(index));
    }

    /// The address of `index` is taken over by a process of another cluster, and back again.
    pub fn set_cluster(&mut self, index: usize, cluster: u32) {
        self.members[index].identity.cluster = cluster;
        self.restart(index, 0, false, 0);
    }

    pub(crate) fn on_back(&mut self, index: usize) {
        self.troubled_ns = self.now_ns;
        self.wake(index, self.now_ns);
    }

    /// Keeps the time at which something was last wrong.
    pub(crate) fn note_trouble(&mut self) {
        let now = self.now_ns;
        let absent = self.members.iter().any(|m| !m.driving(now) || m.no_peers);
        let apart = self.members.iter().any(|m| m.identity.cluster != 1);
        if absent || apart || self.network.troubled() {
            self.troubled_ns = now;
        }
    }

    /// Ends all faults, lets the world settle, compares views. True when nothing was found.
    pub fn settle(&mut self) -> bool {
        let here = |m: &Member| m.away_until_ns.max(m.stopped_until_ns);
        let back_ns = self.members.iter().map(here).max().unwrap_or(0);
        self.run_until(back_ns.max(self.now_ns));
        self.apply(Fault::Heal);
        for index in 0..self.members.len() {
            if self.members[index].no_peers {
                self.apply(Fault::Peers {
                    member: index,
                    none: false,
                });
            }
        }
        self.run_for(self.config.settle_ns);
        if self.violation.is_none() {
            self.sweep();
            self.compare_views();
            self.compare_orders();
        }
        self.violation.is_none()
    }
}
