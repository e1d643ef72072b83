//! What is done to a world: faults, and their end.

use gabion_node::limits::FUTURE_EPOCHS_MAX;
use gabion_node::Input;
use gabion_rule::{Key, RuleIdx};

use crate::config::{Fault, Plant, SECOND};
use crate::member::{self, Member};
use crate::world::{Event, World, BATCH_NS};

/// Discovery tells a member of a join or a leave within this time.
const DISCOVERY_NS: u64 = 2 * SECOND;

/// Where members are that discovery lists twice.
pub(crate) const SECOND_PLACE: u32 = 249;

impl World {
    pub(crate) fn tell_peers(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let mut peers = Vec::new();
        if self.members[index].gone {
            return;
        }
        if !self.members[index].no_peers {
            let others = self.members.iter().filter(|m| m.index != index && !m.gone);
            peers.extend(others.map(|member| member.addr));
            let twice = &self.config.two_addresses;
            let seconds = twice.iter().filter(|&&member| member != index);
            peers.extend(seconds.map(|&member| member::address(member, SECOND_PLACE)));
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
            Fault::Apart { one, other } => {
                self.network.set_cut(one, other, true);
                self.network.set_cut(other, one, true);
            }
            Fault::Mend { one, other } => {
                self.network.set_cut(one, other, false);
                self.network.set_cut(other, one, false);
            }
            Fault::Clog { from, to, for_ns } => {
                self.network.clog(from, to, self.now_ns + for_ns);
            }
            Fault::Heal => self.network.heal(),
            Fault::Join { member } => self.join(member),
            _ => {
                // The others are done to one member, and nothing can be done to one that is gone.
                if fault
                    .members()
                    .iter()
                    .all(|&member| !self.members[member].gone)
                {
                    self.apply_to_member(fault);
                }
            }
        }
    }

    fn apply_to_member(&mut self, fault: Fault) {
        match fault {
            Fault::Restart {
                member,
                down_ns,
                moves,
                wall_error_ns,
            } => {
                self.restart(member, down_ns, moves, wall_error_ns);
            }
            Fault::LeaderChange { member } => self.change_leader(member),
            Fault::DriverStops { member, for_ns } => self.stop_driver(member, for_ns),
            Fault::Sleep {
                member,
                for_ns,
                clock_stops,
            } => {
                self.sleep(member, for_ns, clock_stops);
            }
            Fault::Slow {
                member,
                pause_ns,
                for_ns,
            } => {
                let held = &mut self.members[member];
                held.slow_until_ns = self.now_ns + for_ns;
                held.slow_pause_ns = pause_ns;
                self.push(self.now_ns + for_ns, Event::Back(member));
            }
            Fault::ClockStep { member, by_ns } => {
                let before_ns = self.members[member].clock.cluster_ns(self.now_ns);
                self.members[member].step_clock(self.now_ns, by_ns);
                self.clock_changed(member, before_ns);
                self.wake(member, self.now_ns);
            }
            Fault::Leave { member } => self.leave(member),
            Fault::Peers { member, none } => {
                self.members[member].no_peers = none;
                self.tell_peers(member);
            }
            _ => {}
        }
    }

    /// The clock of a member showed `before_ns`, now. If it went back, what it counted in epochs
    /// that no node accepts is void. spec: time-5
    pub(crate) fn clock_changed(&mut self, member: usize, before_ns: u64) {
        let (life, clock) = (self.members[member].life, &self.members[member].clock);
        let cluster_ns = clock.cluster_ns(self.now_ns);
        if cluster_ns >= before_ns {
            return;
        }
        let firsts = self.config.rules.iter().map(|rule| {
            let plan = rule.plan();
            let ahead = self
                .config
                .node
                .max_skew_ns
                .div_ceil(plan.epoch_ns().max(1));
            plan.epoch_of(cluster_ns) + ahead.min(FUTURE_EPOCHS_MAX) + 1
        });
        let firsts: Vec<u64> = firsts.collect();
        self.truth.void_from(&firsts, life);
    }

    fn change_leader(&mut self, member: usize) {
        if self.members[member].here(self.now_ns) {
            self.members[member].change_leader(&self.config, self.now_ns);
            self.tell_peers(member);
        }
    }

    fn stop_driver(&mut self, member: usize, for_ns: u64) {
        let until = self.now_ns + for_ns;
        let held = &mut self.members[member].stopped_until_ns;
        *held = (*held).max(until);
        self.push(until, Event::Back(member));
    }

    /// A member starts that was not there; the others hear of it from discovery, each in its time.
    fn join(&mut self, index: usize) {
        let started = !self.config.later.contains(&index)
            || self.places.contains_key(&self.members[index].addr);
        if started || !self.members[index].gone {
            return;
        }
        let mut member = self.fresh_member(index, None, 0);
        member.gone = false;
        self.places.insert(member.addr, index);
        self.members[index] = member;
        self.tell_peers(index);
        self.rediscover(index);
    }

    /// An orderly stop. What it still has to say is on its way when it is gone.
    fn leave(&mut self, index: usize) {
        if !self.members[index].driving(self.now_ns) {
            return;
        }
        let mut out = Vec::new();
        self.members[index].leave(self.config.plant, self.now_ns, &mut out);
        for (to, bytes) in out {
            self.send(index, to, bytes);
        }
        self.rediscover(index);
    }

    fn rediscover(&mut self, but: usize) {
        for other in (0..self.members.len()).filter(|&other| other != but) {
            let at_ns = self.now_ns + self.rng.between(0, DISCOVERY_NS);
            self.push(at_ns, Event::Discover(other));
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
        // Its clocks may have stood still, and ages with them.
        self.lately.stepped(self.now_ns);
        if !self.members[index].gone {
            self.wake(index, self.now_ns);
        }
    }

    /// Whether something is wrong now: with the network, or with a member that is there.
    pub fn troubled(&self) -> bool {
        let now = self.now_ns;
        let mut there = self.members.iter().filter(|m| !m.gone);
        let wrong =
            |m: &Member| !m.driving(now) || m.no_peers || m.slow(now) || m.identity.cluster != 1;
        there.any(wrong) || self.network.troubled(now)
    }

    /// Keeps the time at which something was last wrong.
    pub(crate) fn note_trouble(&mut self) {
        if self.troubled() {
            self.troubled_ns = self.now_ns;
        }
    }

    /// Ends all faults, lets the world settle, compares views. True when nothing was found.
    pub fn settle(&mut self) -> bool {
        let well = |m: &Member| m.away_until_ns.max(m.stopped_until_ns).max(m.slow_until_ns);
        let there = self.members.iter().filter(|m| !m.gone);
        let well_ns = there.map(well).max().unwrap_or(0);
        let free_ns = self.network.clogged_until_ns();
        self.run_until(well_ns.max(free_ns).max(self.now_ns));
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

    /// The planted lies, each time a hit is admitted.
    pub(crate) fn plant_lie(&mut self, member: usize, rule: RuleIdx, key: Key, epoch: u64) {
        let truth = self.truth.epoch(rule, key, epoch);
        let now = self.members[member].now(self.now_ns);
        let held = &mut self.members[member];
        let Some(rule) = held.local(rule) else { return };
        match self.config.plant {
            Plant::DoubleAnnounce => {
                let count = u32::try_from(truth.of(held.life) * 2).unwrap_or(u32::MAX);
                held.node.handle(
                    Input::Own {
                        limiter: rule,
                        key,
                        epoch,
                        count,
                    },
                    now,
                );
            }
            Plant::CorruptTotals => {
                let total = truth.others(held.life) + 1;
                held.table
                    .publish_remote(rule, key, epoch, total, now.cluster_ns);
            }
            Plant::Hoard => {
                for made_up in 1..20u64 {
                    let key = Key {
                        a: key.a ^ made_up,
                        b: key.b ^ truth.total(),
                    };
                    held.node.handle(
                        Input::Own {
                            limiter: rule,
                            key,
                            epoch,
                            count: 1,
                        },
                        now,
                    );
                }
            }
            _ => {}
        }
    }
}
