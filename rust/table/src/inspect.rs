//! Looking at a table from outside: for tests, explorers and traces. Loads only.

use crate::layout::{
    Sub, AT_DRAIN, AT_STATS, HEAD, HEADER_WORDS, KEY_A, KEY_B, REFS_A_WORD, RING, TAG_LINE,
};
use crate::mem::Mem;
use crate::word::{key_word, tagged_count, tagged_epoch, tagged_is_of, State, KEY_MASK, TAT_MASK};
use crate::Table;
use gabion_rule::{Key, RuleIdx};

/// What a row is.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowState {
    /// Free.
    Free,
    /// Being claimed; its key is not complete.
    Claiming,
    /// Being claimed; its key is complete.
    Pending,
    /// Live.
    Live,
}

/// A row, word by word. Epochs are the stored 22 bits.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowView {
    /// Rule.
    pub rule: RuleIdx,
    /// Row of the rule.
    pub row: u32,
    /// Generation of the head.
    pub generation: u64,
    /// State.
    pub state: RowState,
    /// The key words' key, whatever their generation.
    pub key: Key,
    /// Head epoch (windows).
    pub epoch: u64,
    /// Head count (windows).
    pub count: u64,
    /// TAT (token buckets).
    pub tat: u64,
    /// Closed buckets, or own counts of a token bucket, of this generation: (epoch, count).
    pub ring: Vec<(u64, u32)>,
    /// Remote totals of this generation.
    pub remote: Vec<(u64, u32)>,
    /// Marked for the driver.
    pub dirty: bool,
}

impl<M: Mem> Table<M> {
    /// Every row.
    #[doc(hidden)]
    pub fn inspect(&self, f: &mut dyn FnMut(RowView)) {
        for (rule, sub) in self.layout.subs.iter().enumerate() {
            for slot in 0..sub.row_count() {
                f(self.row_view(u16::try_from(rule).unwrap_or(u16::MAX), sub, slot));
            }
        }
    }

    fn row_view(&self, rule: RuleIdx, sub: &Sub, slot: usize) -> RowView {
        let base = sub.row(slot);
        let head = self.mem.load(base + HEAD);
        let generation = sub.format.generation(head);
        let (a, b) = (self.mem.load(base + KEY_A), self.mem.load(base + KEY_B));
        let key = Key {
            a: a & KEY_MASK,
            b: b & KEY_MASK,
        };
        let whole = a == key_word(generation, key.a) && b == key_word(generation, key.b);
        let words = |from: usize, n: usize| -> Vec<(u64, u32)> {
            (from..from + n)
                .map(|i| self.mem.load(base + i))
                .filter(|&w| tagged_is_of(w, generation))
                .map(|w| (tagged_epoch(w), tagged_count(w)))
                .collect()
        };
        RowView {
            rule,
            row: u32::try_from(slot).unwrap_or(u32::MAX),
            generation,
            state: match sub.format.state(head) {
                State::Empty => RowState::Free,
                State::Pending if whole => RowState::Pending,
                State::Pending => RowState::Claiming,
                State::Live => RowState::Live,
            },
            key,
            epoch: sub.format.epoch(head),
            count: sub.format.count(head),
            tat: head & TAT_MASK,
            ring: words(RING, sub.ring),
            remote: words(sub.remote_at, sub.remote),
            dirty: self.is_dirty(sub, slot),
        }
    }

    /// What word `i` is, such as `rule0.row1.head`.
    #[doc(hidden)]
    pub fn describe(&self, i: usize) -> String {
        let layout = &self.layout;
        if i < HEADER_WORDS {
            return match i {
                AT_DRAIN => "header.drain".into(),
                _ if i >= AT_STATS => format!("stats[{}]", i - AT_STATS),
                _ => format!("header[{i}]"),
            };
        }
        for (level, at, n) in [
            (0, layout.dirty0, layout.dirty0_words),
            (1, layout.dirty1, layout.dirty1_words),
        ] {
            if (at..at + n).contains(&i) {
                return format!("dirty.l{level}[{}]", i - at);
            }
        }
        let found = layout
            .subs
            .iter()
            .enumerate()
            .find_map(|(n, s)| within(n, s, i));
        found.unwrap_or_else(|| format!("padding[{i}]"))
    }

    /// Puts a free row into a generation, for tests near the wrap; nobody else may use the table.
    #[doc(hidden)]
    pub fn set_generation(&self, rule: RuleIdx, row: u32, generation: u64) {
        if let Some(sub) = self.sub(rule) {
            let fmt = sub.format;
            let head = fmt.make(generation & fmt.generation_mask(), State::Empty, 0);
            self.mem.swap(sub.row(row as usize) + HEAD, head);
        }
    }

    /// (generation, state bits, epoch22, count) of a head word; token buckets: epoch and count
    /// together are the TAT.
    #[doc(hidden)]
    pub fn decode_head(&self, rule: RuleIdx, word: u64) -> Option<(u64, u64, u64, u64)> {
        let fmt = self.sub(rule)?.format;
        let state = fmt.state(word) as u64;
        Some((
            fmt.generation(word),
            state,
            fmt.epoch(word),
            fmt.count(word),
        ))
    }
}

fn within(rule: usize, sub: &Sub, i: usize) -> Option<String> {
    let sets = sub.row_count() / sub.ways;
    let at = |start: usize, n: usize| (start..start + n).contains(&i).then(|| i - start);
    if let Some(k) = at(sub.tags, sets * TAG_LINE) {
        return Some(format!(
            "rule{rule}.set{}.tag[{}]",
            k / TAG_LINE,
            k % TAG_LINE
        ));
    }
    if let Some(k) = at(sub.refs, sub.row_count().div_ceil(REFS_A_WORD)) {
        return Some(format!("rule{rule}.refs[{k}]"));
    }
    if let Some(k) = at(sub.door, sets) {
        return Some(format!("rule{rule}.set{k}.door"));
    }
    let k = at(sub.rows, sub.row_count() * sub.row_words)?;
    let (row, word) = (k / sub.row_words, k % sub.row_words);
    let name = match word {
        KEY_A => "key_a".into(),
        KEY_B => "key_b".into(),
        HEAD => "head".into(),
        w if w < sub.remote_at => format!("ring[{}]", w - RING),
        w if w < sub.remote_at + sub.remote => format!("remote[{}]", w - sub.remote_at),
        w => format!("pad[{w}]"),
    };
    Some(format!("rule{rule}.row{row}.{name}"))
}
