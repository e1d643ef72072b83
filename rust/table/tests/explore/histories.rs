//! What workers do next, by history.
//!
//! A history is: program, outcomes of the operations that ended, responses within the running one.
//! Each is run once; after that the search only looks it up. It also carries what may be written
//! later from there on, which the reduction in [`super::search`] relies on.

use std::collections::HashMap;

use super::hash::MixedMap;
use super::mem::{replay, Op, Replayed};
use super::search::Program;

/// How a history goes on.
#[derive(Clone)]
pub enum Next {
    /// With this step.
    Wants(Op),
    /// Not at all: the program is at its end.
    Done,
    /// Not at all: the code panicked.
    Panicked(String),
}

/// One history of a program.
pub struct Node {
    /// Which program.
    pub program: u32,
    /// Index of the running operation.
    pub operation: u32,
    /// Outcomes so far, by number.
    pub outcomes: u32,
    parent: u32,
    response: u64,
    /// Responses within the running operation.
    pub length: u32,
    /// What comes next.
    pub next: Next,
    /// Words that may be written from here on, as far as is known.
    writes_later: Words,
    /// Words thought unwritable from here on when the reduction was used.
    relied_on: Words,
}

/// Words that one search may write.
const MAX_WRITTEN_WORDS: usize = 256;

/// A set of written words, by order of discovery.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Words([u64; MAX_WRITTEN_WORDS / 64]);

impl Words {
    fn has(&self, bit: u32) -> bool {
        self.0[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    fn add(&mut self, bit: u32) {
        self.0[bit as usize / 64] |= 1 << (bit % 64);
    }

    /// Adds all of `more`; whether that changed anything.
    fn add_all(&mut self, more: &Words) -> bool {
        let before = *self;
        self.0.iter_mut().zip(more.0).for_each(|(a, b)| *a |= b);
        *self != before
    }

    fn meets(&self, other: &Words) -> bool {
        self.0.iter().zip(other.0).any(|(a, b)| a & b != 0)
    }
}

const NO_PARENT: u32 = u32::MAX;

/// Histories of workers and what each does next.
pub struct Histories {
    /// All of them; a node is known by its index.
    pub nodes: Vec<Node>,
    children: MixedMap<(u32, u64), u32>,
    starts: HashMap<(u32, u32, u32), u32>,
    /// Lists of outcomes, by number.
    pub outcomes: Vec<Vec<Vec<u64>>>,
    outcome_ids: HashMap<Vec<Vec<u64>>, u32>,
    /// Nodes whose last step leads to this start of an operation.
    before: MixedMap<u32, Vec<u32>>,
    /// Bit of each word that is written or was asked about.
    bits: MixedMap<u32, u32>,
    /// The reduction left out a word that turned out to be written.
    pub relied_wrongly: bool,
}

impl Histories {
    /// None yet.
    pub fn new() -> Histories {
        Histories {
            nodes: Vec::new(),
            children: MixedMap::default(),
            starts: HashMap::new(),
            outcomes: vec![Vec::new()],
            outcome_ids: HashMap::from([(Vec::new(), 0)]),
            before: MixedMap::default(),
            bits: MixedMap::default(),
            relied_wrongly: false,
        }
    }

    /// The history before the first step of an operation.
    pub fn start(
        &mut self,
        programs: &[Program],
        program: u32,
        operation: u32,
        outcomes: u32,
    ) -> u32 {
        if let Some(id) = self.starts.get(&(program, operation, outcomes)) {
            return *id;
        }
        let node = Node {
            program,
            operation,
            outcomes,
            parent: NO_PARENT,
            response: 0,
            length: 0,
            next: Next::Done,
            writes_later: Words::default(),
            relied_on: Words::default(),
        };
        let id = self.grow(programs, node);
        self.starts.insert((program, operation, outcomes), id);
        id
    }

    /// The history after one more response.
    pub fn child(&mut self, programs: &[Program], parent: u32, response: u64) -> u32 {
        if let Some(id) = self.children.get(&(parent, response)) {
            return *id;
        }
        let p = &self.nodes[parent as usize];
        let node = Node {
            program: p.program,
            operation: p.operation,
            outcomes: p.outcomes,
            parent,
            response,
            length: p.length + 1,
            next: Next::Done,
            writes_later: Words::default(),
            relied_on: Words::default(),
        };
        let id = self.grow(programs, node);
        self.children.insert((parent, response), id);
        if self.nodes[id as usize].length == 0 {
            self.before.entry(id).or_default().push(parent);
        }
        let later = self.nodes[id as usize].writes_later;
        self.spread(parent, later);
        id
    }

    /// Finds what comes next after a history and keeps it; returns the node to continue with.
    fn grow(&mut self, programs: &[Program], mut node: Node) -> u32 {
        let operations = &programs[node.program as usize].operations;
        if let Some((_, code)) = operations.get(node.operation as usize) {
            let mut responses = Vec::with_capacity(node.length as usize);
            if node.length > 0 {
                responses.push(node.response);
                let mut at = node.parent;
                while at != NO_PARENT && self.nodes[at as usize].length > 0 {
                    responses.push(self.nodes[at as usize].response);
                    at = self.nodes[at as usize].parent;
                }
                responses.reverse();
            }
            node.next = match replay(&responses, code.as_ref()) {
                Replayed::Wants(op) => {
                    if op.writes() {
                        node.writes_later.add(self.bit(op.word()));
                    }
                    Next::Wants(op)
                }
                Replayed::Panicked(text) => Next::Panicked(text),
                Replayed::Done(outcome) => {
                    let mut all = self.outcomes[node.outcomes as usize].clone();
                    all.push(outcome);
                    let known = u32::try_from(self.outcomes.len()).expect("few outcomes");
                    let id = *self.outcome_ids.entry(all.clone()).or_insert(known);
                    if id == known {
                        self.outcomes.push(all);
                    }
                    return self.start(programs, node.program, node.operation + 1, id);
                }
            };
        }
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("histories fit 32 bits")
    }

    /// Tells a node, and all that lead to it, what may be written later.
    fn spread(&mut self, node: u32, later: Words) {
        let mut open = vec![node];
        while let Some(id) = open.pop() {
            let node = &mut self.nodes[id as usize];
            if !node.writes_later.add_all(&later) {
                continue;
            }
            self.relied_wrongly |= node.writes_later.meets(&node.relied_on);
            if node.length > 0 {
                open.push(node.parent);
            } else if let Some(before) = self.before.get(&id) {
                open.extend(before);
            }
        }
    }

    fn bit(&mut self, word: u32) -> u32 {
        let next = u32::try_from(self.bits.len()).expect("few words");
        assert!(
            (next as usize) < MAX_WRITTEN_WORDS,
            "more words than MAX_WRITTEN_WORDS"
        );
        *self.bits.entry(word).or_insert(next)
    }

    /// The worker whose next step need not be interleaved, if there is one.
    pub fn lone_step(&mut self, workers: &[u32]) -> Option<usize> {
        for (i, id) in workers.iter().enumerate() {
            let Next::Wants(Op::Load { word }) = self.nodes[*id as usize].next else {
                continue;
            };
            let bit = self.bit(word);
            let others = || workers.iter().enumerate().filter(|(j, _)| *j != i);
            if others().any(|(_, other)| self.nodes[*other as usize].writes_later.has(bit)) {
                continue;
            }
            for (_, other) in others() {
                self.nodes[*other as usize].relied_on.add(bit);
            }
            return Some(i);
        }
        None
    }

    /// Forgets what the last pass relied on, and keeps what it learnt.
    pub fn rely_on_nothing(&mut self) {
        self.relied_wrongly = false;
        self.nodes
            .iter_mut()
            .for_each(|node| node.relied_on = Words::default());
    }
}
