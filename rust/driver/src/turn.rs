//! The loop: receive, pump, tick, send, look around, wait.
//!
//! I own the order of work and its bounds per turn. I promise that every deadline of the node is
//! served, that no error of a socket ends the loop, and that a frame the kernel had no room for is
//! kept until it has. I never block but in `wait`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use gabion_discovery::{Health, PeerSet, SelfAddress};
use gabion_node::{Effect, Input, Node, Note, Now, PeerView};
use gabion_pump::{Counters, Pump};
use tokio::sync::watch;

use crate::clock::{monotonic_ns, Steering};
use crate::driver::Shared;
use crate::entropy::Entropy;
use crate::limits::{
    BURST_PAUSE_MAX_NS, EFFECTS_PER_TURN, FAREWELL_NS, POLL_MAX_NS, POLL_MIN_NS, RECEIVES_PER_TURN,
    RECEIVE_BUFFER_BYTES, SENDS_PER_TURN, SNAPSHOT_EVERY_NS, TIMER_EARLY_NS,
};
use crate::machine::Machine;
use crate::orders::{Desk, Told};
use crate::port::{Port, Sent, Step};
use crate::socket::{canonical, here, Binder};
use crate::stats::{DriverSnapshot, DriverStats};

/// Why a loop ended by itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to.
    Stopped,
    /// It was told to rest.
    Paused,
}

/// What outlives one life of the loop.
pub(crate) struct Lasting<B> {
    pub(crate) binder: B,
    pub(crate) steering: Steering,
    pub(crate) stats: DriverStats,
    /// The address that the kernel gave first; later sockets ask for the same one.
    pub(crate) bound: Option<SocketAddr>,
    /// The socket, while the loop rests.
    pub(crate) port: Option<Port>,
    /// Where orders of operators arrive.
    pub(crate) desk: Desk,
}

/// One life of the loop.
pub(crate) struct Loop<'a, T: Counters, B> {
    table: &'a T,
    machine: &'a Machine,
    lasting: &'a mut Lasting<B>,
    shared: &'a Shared,
    peers: watch::Receiver<Option<PeerSet>>,
    stopped: watch::Receiver<bool>,
    node: Node,
    told: Told,
    pump: Pump,
    port: Port,
    entropy: Entropy,
    received: Box<[u8]>,
    outgoing: Box<[u8]>,
    /// A frame in `outgoing` that waits for room in the kernel.
    waiting: Option<(SocketAddr, usize)>,
    discovery_ended: bool,
    discovered: Option<usize>,
    pump_due_ns: u64,
    snapshot_due_ns: u64,
}

impl<'a, T: Counters, B: Binder> Loop<'a, T, B> {
    pub(crate) fn new(
        table: &'a T,
        machine: &'a Machine,
        lasting: &'a mut Lasting<B>,
        shared: &'a Shared,
        mut peers: watch::Receiver<Option<PeerSet>>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        peers.mark_changed(); // a restarted loop takes the set that is already known
                              // A fresh node corrects the clock relative to what it is now.
        lasting.steering = Steering::new(machine.clock.offset_ns(), monotonic_ns());
        let port = lasting.port.take();
        let mut node = machine.node();
        let told = Told::start(&mut node, &shared.registers.load());
        Self {
            node,
            told,
            pump: machine.pump(),
            port: port.unwrap_or_else(|| Port::new(lasting.bound.unwrap_or(machine.bind))),
            entropy: machine.entropy(),
            received: vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            outgoing: vec![0; RECEIVE_BUFFER_BYTES].into_boxed_slice(),
            waiting: None,
            discovery_ended: false,
            discovered: None,
            pump_due_ns: 0,
            snapshot_due_ns: 0,
            table,
            machine,
            lasting,
            shared,
            peers,
            stopped,
        }
    }

    /// Runs until it is told to stop or to rest.
    pub(crate) async fn run(&mut self, pause: &AtomicBool) -> End {
        loop {
            if *self.stopped.borrow() || self.stopped.has_changed().is_err() {
                self.farewell(Some(Input::Leave)).await;
                return End::Stopped;
            }
            if pause.load(Ordering::Relaxed) {
                self.farewell(None).await;
                let fresh = Port::new(self.lasting.bound.unwrap_or(self.machine.bind));
                self.lasting.port = Some(std::mem::replace(&mut self.port, fresh));
                return End::Paused;
            }
            if self.turn() {
                // Much to do: let discovery's task run, then go on.
                tokio::task::yield_now().await;
            } else {
                self.wait().await;
            }
        }
    }

    fn now(&self) -> Now {
        let mono_ns = monotonic_ns();
        Now {
            mono_ns,
            cluster_ns: self.machine.clock.at(mono_ns),
        }
    }

    /// One bounded round of everything; returns whether more is waiting already.
    fn turn(&mut self) -> bool {
        self.lasting.stats.turns += 1;
        self.shared.turns.fetch_add(1, Ordering::Relaxed);
        self.ensure_port();
        self.take_peers();
        self.take_orders();
        let received = self.receive();
        self.tell_orders();
        let pump_busy = self.pump_if_due(received > 0);
        let now = self.now();
        if self
            .node
            .next_deadline()
            .is_some_and(|due_ns| due_ns <= now.mono_ns)
        {
            self.node.handle(Input::Tick, now);
        }
        let sent = self.transmit();
        self.steer(now.mono_ns);
        self.publish_if_due(now.mono_ns);
        received == RECEIVES_PER_TURN || sent == SENDS_PER_TURN || pump_busy
    }

    fn ensure_port(&mut self) {
        let (binder, stats) = (&mut self.lasting.binder, &mut self.lasting.stats);
        match self.port.ensure(monotonic_ns(), binder, stats) {
            Step::Nothing => return,
            Step::Bound => {}
            Step::Freed => self.move_to_wanted(),
        }
        if self.port.stands_in_for().is_none() {
            self.lasting.bound = self.port.local_addr();
        }
        self.snapshot_due_ns = 0;
        self.peers.mark_changed(); // what is "this member itself" depends on the socket
    }

    /// Peers know a member by its address, so a move is a goodbye and a new session. spec: link-14
    fn move_to_wanted(&mut self) {
        let now = self.now();
        self.node.handle(Input::Leave, now);
        self.transmit();
        self.waiting = None;
        self.machine.next_session();
        self.node.rejoin(self.machine.session(), self.now());
        self.port.take_wanted(&mut self.lasting.stats);
    }

    /// Carries out what operators ordered on this member.
    fn take_orders(&mut self) {
        let now = self.now();
        let (told, machine, shared) = (&mut self.told, self.machine, self.shared);
        self.lasting.desk.serve(&mut self.node, now, &mut |node| {
            tell(told, node, machine, shared)
        });
    }

    /// Tells deciders what peers said was ordered.
    fn tell_orders(&mut self) {
        tell(&mut self.told, &self.node, self.machine, self.shared);
    }

    /// Hands what is ready to the node; returns how many datagrams that were.
    fn receive(&mut self) -> usize {
        for count in 0..RECEIVES_PER_TURN {
            let Some((length, from)) = self
                .port
                .receive(&mut self.received, &mut self.lasting.stats)
            else {
                return count;
            };
            let now = self.now();
            let bytes = self.received.get(..length).unwrap_or_default();
            self.node.handle(Input::Datagram { from, bytes }, now);
        }
        RECEIVES_PER_TURN
    }

    fn pump_if_due(&mut self, active: bool) -> bool {
        let now = self.now();
        if !active && now.mono_ns < self.pump_due_ns {
            return false;
        }
        let turn = self.pump.turn(self.table, &mut self.node, now);
        let pause_ns = turn.next_turn_ns.min(POLL_MAX_NS);
        self.pump_due_ns = now.mono_ns.saturating_add(pause_ns);
        for _ in 0..EFFECTS_PER_TURN {
            let Some(effect) = self.pump.poll_effect() else {
                break;
            };
            self.take_effect(effect, now.mono_ns);
        }
        pause_ns == 0
    }

    fn take_effect(&mut self, effect: Effect, mono_ns: u64) {
        match effect {
            Effect::RemoteTotal { .. } => {} // the pump's own; it hands on none
            Effect::ClockOffset { offset_ns, step } => {
                if step {
                    tracing::info!(
                        offset_ms = offset_ns / 1_000_000,
                        "the cluster clock was stepped to agree with the peers"
                    );
                }
                self.lasting.steering.correct(offset_ns, step, mono_ns);
            }
            Effect::PeerUp {
                addr,
                node,
                incarnation,
            } => {
                tracing::info!(%addr, "peer up: node={node:016x} incarnation={incarnation:016x}");
            }
            Effect::PeerDown { addr, node } => {
                tracing::info!(
                    %addr,
                    "peer down: node={node:016x}. Its counts stay in force until their windows end"
                );
            }
            Effect::Note(note) => {
                self.lasting.stats.notes += 1;
                self.say(note);
            }
        }
    }

    fn say(&self, note: Note) {
        let Note::LimitDiffers {
            node,
            limiter,
            theirs,
        } = note
        else {
            tracing::warn!("gossip: {note:?}: {}", note.advice());
            return;
        };
        let rule = self.machine.names.get(usize::from(limiter));
        let rule = rule.cloned().unwrap_or_default();
        let is_of = |peer: &PeerView| peer.identity.is_some_and(|(n, _)| n == node);
        let peer = self.node.peers().find(is_of);
        let peer = peer.map_or(String::new(), |peer| peer.addr.to_string());
        tracing::warn!(
            "gossip: rule {}: the peer {peer} (node {node:016x}) enforces other numbers (digest \
             {:016x} here, {theirs:016x} there); {}",
            rule.text,
            rule.digest,
            note.advice()
        );
    }

    /// Sends what the node has to say; returns how many frames were handled.
    fn transmit(&mut self) -> usize {
        for count in 0..SENDS_PER_TURN {
            if !self.port.is_open() {
                return count;
            }
            let now = self.now();
            let (to, length) = match self.waiting.take() {
                Some(frame) => frame,
                None => {
                    let entropy = &mut self.entropy;
                    let mut draw = || entropy.next();
                    match self.node.poll_transmit(now, &mut self.outgoing, &mut draw) {
                        Some(frame) => frame,
                        None => return count,
                    }
                }
            };
            let bytes = self.outgoing.get(..length).unwrap_or_default();
            if self.port.send(bytes, to, &mut self.lasting.stats) == Sent::Later {
                self.waiting = Some((to, length));
                return count;
            }
        }
        SENDS_PER_TURN
    }

    fn take_peers(&mut self) {
        match self.peers.has_changed() {
            Ok(false) => return,
            Ok(true) => {}
            Err(_ended) if self.discovery_ended => return,
            Err(_ended) => {
                self.discovery_ended = true;
                self.lasting.stats.discovery_ended += 1;
            }
        }
        let Some(set) = self.peers.borrow_and_update().clone() else {
            return;
        };
        let bound = self.port.local_addr().unwrap_or(self.machine.bind);
        let me = SelfAddress::new(bound, self.machine.self_addr);
        let mut others: Vec<SocketAddr> = set
            .into_iter()
            .map(canonical)
            .filter(|peer| !me.is_self(*peer))
            .collect();
        self.lasting.stats.peer_sets += 1;
        self.discovered = Some(others.len());
        if let Some(wanted) = self.port.stands_in_for() {
            // Who has the address is most likely the instance that this one replaces.
            others.push(here(wanted));
        }
        let now = self.now();
        self.node.handle(Input::Peers(&others), now);
    }

    fn steer(&mut self, mono_ns: u64) {
        let offset_ns = self.lasting.steering.advance(mono_ns);
        if offset_ns != self.machine.clock.offset_ns() {
            self.machine.clock.set_offset(offset_ns);
            if let Some(tell) = &self.machine.on_offset {
                tell(offset_ns);
            }
        }
    }

    fn publish_if_due(&mut self, mono_ns: u64) {
        if mono_ns < self.snapshot_due_ns {
            return;
        }
        self.snapshot_due_ns = mono_ns.saturating_add(SNAPSHOT_EVERY_NS);
        let (node, incarnation) = self.machine.identity();
        let bounds = self.node.bounds(self.now());
        self.shared.snapshot.store(Arc::new(DriverSnapshot {
            bounds,
            node,
            incarnation,
            session: self.machine.session(),
            local_addr: self.port.local_addr(),
            rules: self.machine.names.clone(),
            stands_in_for: self.port.stands_in_for(),
            socket_buffers: self.port.buffers(),
            discovered: self.discovered,
            sources: self.machine.sources.iter().map(Health::view).collect(),
            peers: self.node.peers().collect(),
            node_stats: self.node.stats().clone(),
            pump_stats: self.pump.stats(),
            stats: self.lasting.stats,
            clock_correction_ns: self.lasting.steering.applied_ns(),
            taken_mono_ns: mono_ns,
            running: true,
        }));
    }

    /// Sleeps until something is due, ready, or said from outside.
    async fn wait(&mut self) {
        let mono_ns = monotonic_ns();
        let mut due_ns = self.pump_due_ns.min(self.snapshot_due_ns);
        if let Some(deadline_ns) = self.node.next_deadline() {
            // A deadline that is past after a turn waits for the socket, so do not spin on it.
            due_ns = due_ns.min(deadline_ns.max(mono_ns.saturating_add(POLL_MIN_NS)));
        }
        if let Some(retry_ns) = self.port.retry_at_ns() {
            due_ns = due_ns.min(retry_ns);
        }
        let pause_ns = due_ns
            .saturating_sub(mono_ns)
            .saturating_sub(TIMER_EARLY_NS);
        let pause = Duration::from_nanos(pause_ns.max(POLL_MIN_NS - TIMER_EARLY_NS));
        let burst_ns = self.pump_due_ns.saturating_sub(mono_ns);
        if burst_ns < BURST_PAUSE_MAX_NS {
            // A burst of urgent news: the timers here are too coarse for it.
            std::thread::sleep(Duration::from_nanos(burst_ns));
            return tokio::task::yield_now().await;
        }
        let (discovery_ended, full) = (self.discovery_ended, self.waiting.is_some());
        let (port, stopped, peers) = (&self.port, &mut self.stopped, &mut self.peers);
        let desk = &mut self.lasting.desk;
        tokio::select! {
            biased;
            _ = stopped.changed() => {}
            _ = peers.changed(), if !discovery_ended => { peers.mark_changed(); }
            () = desk.wait() => {}
            () = port.readable() => {}
            () = port.writable(), if full => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    /// The last counts, and a goodbye if there is one, as far as they go out at once.
    async fn farewell(&mut self, goodbye: Option<Input<'_>>) {
        let until_ns = monotonic_ns().saturating_add(FAREWELL_NS);
        self.receive();
        self.pump_if_due(true);
        let now = self.now();
        if let Some(goodbye) = goodbye {
            self.node.handle(goodbye, now);
        }
        while monotonic_ns() < until_ns && self.port.is_open() {
            let sent = self.transmit();
            if self.waiting.is_some() {
                let left = Duration::from_nanos(until_ns.saturating_sub(monotonic_ns()));
                let _ = tokio::time::timeout(left, self.port.writable()).await;
            } else if sent < SENDS_PER_TURN {
                return;
            }
        }
    }
}

fn tell(told: &mut Told, node: &Node, machine: &Machine, shared: &Shared) {
    if let Some(registers) = told.tell(node, machine.on_order.as_deref()) {
        shared.registers.store(Arc::new(registers));
    }
}
