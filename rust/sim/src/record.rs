//! What a world says of itself while it runs, for who watches it: frames, merges, verdicts.
//!
//! I own the records. I promise: a world that is recorded runs as one that is not, but for what
//! checkers object to, which is noted and stops nothing; what is kept between two looks is bounded.
//! I never: change what is recorded, or cost anything where nobody looks.

use std::net::SocketAddr;

use gabion_rule::RuleIdx;
use gabion_wire::{decode, Section};

use crate::check::Violation;
use crate::network::Copy;
use crate::world::{Answer, World};

/// Frames that are kept until somebody takes them; beyond, the older half is dropped and counted.
pub const FRAMES_MOST: usize = 20_000;
/// Merges that are kept until somebody takes them; beyond, the older half is dropped.
pub const MERGES_MOST: usize = 20_000;
/// Objections of checkers that are kept; more are counted.
pub const OBJECTIONS_MOST: usize = 16;

/// What is in a frame, as bits.
pub mod kind {
    /// Counts.
    pub const ROWS: u32 = 1;
    /// A greeting.
    pub const HELLO: u32 = 2;
    /// An acknowledgement.
    pub const ACK: u32 = 4;
    /// A digest, or what is asked after one.
    pub const DIGEST: u32 = 8;
    /// Anything else.
    pub const OTHER: u32 = 16;
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// It is lost by chance.
    Lost,
    /// The link carries nothing.
    Cut,
    /// A second copy of one that arrives.
    Copy,
    /// It arrives damaged.
    Damaged,
}

/// One frame on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRecord {
    /// When it was sent, true time.
    pub sent_ns: u64,
    /// When it arrives; of one that does not, when it would have, about.
    pub arrives_ns: u64,
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Its length.
    pub bytes: usize,
    /// Counts in it.
    pub rows: u32,
    /// [`kind`] bits.
    pub kind: u32,
    /// What becomes of it.
    pub fate: Fate,
}

/// A frame raised what its receiver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRecord {
    /// When, true time.
    pub at_ns: u64,
    /// Sender.
    pub from: usize,
    /// Receiver.
    pub to: usize,
    /// Counts that were raised.
    pub rows: u64,
}

/// Verdicts, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Admitted and counted.
    pub admitted: u64,
    /// Denied.
    pub denied: u64,
    /// Admitted without being counted.
    pub failed_open: u64,
}

impl Tally {
    fn add(&mut self, answer: &Answer) {
        match (answer.allowed(), answer.fail_open) {
            (false, _) => self.denied += 1,
            (true, Some(_)) => self.failed_open += 1,
            (true, None) => self.admitted += 1,
        }
    }
}

/// What one member sent and heard since the start, over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames sent.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames heard.
    pub heard_frames: u64,
    /// Their bytes.
    pub heard_bytes: u64,
}

/// The records of a world.
#[derive(Debug, Default)]
pub struct Recorder {
    frames: Vec<FrameRecord>,
    merges: Vec<MergeRecord>,
    /// By member and rule: since the start, and since somebody took them.
    tallies: Vec<(Tally, Tally)>,
    sent: Vec<Sent>,
    rules: usize,
    objections: Vec<Violation>,
    /// Objections in all.
    pub objected: u64,
    /// Frames dropped because nobody took them.
    pub frames_dropped: u64,
    /// Counts raised by merges since the start.
    pub merged: u64,
    /// Frames with counts sent since the start.
    pub telling: u64,
    /// When the last of all frames that are under way arrives.
    pub arrived_by_ns: u64,
}

impl Recorder {
    fn new(members: usize, rules: usize) -> Recorder {
        Recorder {
            tallies: vec![Default::default(); members * rules],
            sent: vec![Sent::default(); members],
            rules,
            ..Recorder::default()
        }
    }

    /// Frames since the last call, in the order of sending.
    pub fn take_frames(&mut self) -> Vec<FrameRecord> {
        std::mem::take(&mut self.frames)
    }

    /// Merges since the last call.
    pub fn take_merges(&mut self) -> Vec<MergeRecord> {
        std::mem::take(&mut self.merges)
    }

    /// Verdicts since the last call: member, rule and how many, where there are any.
    pub fn take_verdicts(&mut self) -> Vec<(usize, usize, Tally)> {
        let rules = self.rules.max(1);
        let mut taken = Vec::new();
        for (place, (_, fresh)) in self.tallies.iter_mut().enumerate() {
            if *fresh != Tally::default() {
                taken.push((place / rules, place % rules, std::mem::take(fresh)));
            }
        }
        taken
    }

    /// Verdicts of a rule at a member since the start.
    pub fn tally(&self, member: usize, rule: usize) -> Tally {
        let held = self.tallies.get(member * self.rules + rule);
        held.map_or(Tally::default(), |(all, _)| *all)
    }

    /// What a member sent and heard since the start.
    pub fn sent(&self, member: usize) -> Sent {
        self.sent.get(member).copied().unwrap_or_default()
    }

    /// What checkers objected to: the first [`OBJECTIONS_MOST`].
    pub fn objections(&self) -> &[Violation] {
        &self.objections
    }

    pub(crate) fn objected(&mut self, violation: Violation) {
        self.objected += 1;
        if self.objections.len() < OBJECTIONS_MOST {
            self.objections.push(violation);
        }
    }

    fn keep(&mut self, frame: FrameRecord) {
        if self.frames.len() >= FRAMES_MOST {
            self.frames.drain(..FRAMES_MOST / 2);
            self.frames_dropped += FRAMES_MOST as u64 / 2;
        }
        if frame.fate != Fate::Lost && frame.fate != Fate::Cut {
            self.arrived_by_ns = self.arrived_by_ns.max(frame.arrives_ns);
        }
        self.frames.push(frame);
    }
}

/// Counts in a frame, and [`kind`] bits.
fn contents(bytes: &[u8]) -> (u32, u32) {
    let Ok(frame) = decode(bytes) else {
        return (0, kind::OTHER);
    };
    let (mut rows, mut bits) = (0usize, 0);
    for section in frame.sections() {
        bits |= match section {
            Section::Rows(held) => {
                rows += held.rows.count();
                kind::ROWS
            }
            Section::Spread(spread) => {
                rows += spread.rows().count();
                kind::ROWS
            }
            Section::Hello(_) => kind::HELLO,
            Section::Ack(_) => kind::ACK,
            Section::Digest(_)
            | Section::DigestRequest(_)
            | Section::WholeDigest(_)
            | Section::WholeRequest(_) => kind::DIGEST,
            _ => kind::OTHER,
        };
    }
    (u32::try_from(rows).unwrap_or(u32::MAX), bits)
}

impl World {
    /// From now on the world records what happens, and checkers stop nothing.
    pub fn record(&mut self) {
        let recorder = Recorder::new(self.members.len(), self.config.rules.len());
        self.recorder = Some(Box::new(recorder));
    }

    /// The records, once [`World::record`] was called.
    pub fn recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut()
    }

    /// The records, to look at.
    pub fn records(&self) -> Option<&Recorder> {
        self.recorder.as_deref()
    }

    /// A datagram is read from the socket of a member.
    pub(crate) fn hear(&mut self, to: usize, from: SocketAddr, bytes: &[u8]) {
        let raised = self.members[to].node.stats().rows_raised;
        self.members[to].hear(from, bytes, self.now_ns);
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let rows = self.members[to].node.stats().rows_raised - raised;
        if let Some(sent) = recorder.sent.get_mut(to) {
            sent.heard_frames += 1;
            sent.heard_bytes += bytes.len() as u64;
        }
        recorder.merged += rows;
        let Some(&from) = self.places.get(&from).filter(|_| rows > 0) else {
            return;
        };
        if recorder.merges.len() >= MERGES_MOST {
            recorder.merges.drain(..MERGES_MOST / 2);
        }
        recorder.merges.push(MergeRecord {
            at_ns: self.now_ns,
            from,
            to,
            rows,
        });
    }

    /// A datagram was given to the network.
    pub(crate) fn record_sent(
        &mut self,
        (from, to): (usize, usize),
        bytes: &[u8],
        cut: bool,
        copies: &[Copy],
    ) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        if let Some(sent) = recorder.sent.get_mut(from) {
            sent.frames += 1;
            sent.bytes += bytes.len() as u64;
        }
        let (rows, kind) = contents(bytes);
        recorder.telling += u64::from(rows > 0);
        let usual = self.network.fault;
        let usual_ns = usual.delay_min_ns.midpoint(usual.delay_max_ns);
        let mut frame = FrameRecord {
            sent_ns: self.now_ns,
            arrives_ns: self.now_ns.saturating_add(usual_ns),
            from,
            to,
            bytes: bytes.len(),
            rows,
            kind,
            fate: if cut { Fate::Cut } else { Fate::Lost },
        };
        if copies.is_empty() {
            recorder.keep(frame);
        }
        for (number, copy) in copies.iter().enumerate() {
            frame.arrives_ns = self.now_ns.saturating_add(copy.delay_ns);
            frame.fate = match number {
                0 if copy.bytes != bytes => Fate::Damaged,
                0 => Fate::Arrives,
                _ => Fate::Copy,
            };
            recorder.keep(frame);
        }
    }

    /// A request was answered.
    pub(crate) fn record_answer(&mut self, member: usize, rule: RuleIdx, answer: &Answer) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let place = member * recorder.rules + usize::from(rule);
        if let Some((all, fresh)) = recorder.tallies.get_mut(place) {
            all.add(answer);
            fresh.add(answer);
        }
    }
}
