//! Where everything is: a header, one sub-table per rule, the dirty bitmap.
//!
//! ```text
//! header   64 words: magic, version, digest, rules, drain cursor, statistics
//! per rule tags   8 words a set   (one cache line, two tags a word)
//!          refs   1 word  16 rows (which were asked for lately)
//!          door   1 word  a set   (fingerprints of newcomers)
//!          rows   ways x row_words a set
//! dirty    level 0: a bit per row; level 1: a bit per level-0 word
//! ```

use crate::limits::{
    HEAD_AHEAD_EPOCHS_MIN, HEAD_AHEAD_NS, LARGE_FROM_ROWS, RULES_MAX, SETS_MAX, SLOTS_PERCENT, WAYS,
};
use crate::mem::Mem;
use crate::types::{SubSpec, TableError};
use crate::word::{HeadFormat, NARROW, WIDE};
use gabion_admit::{GcraPlan, Pacing, Plan, WindowPlan};
use gabion_rule::RuleIdx;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"gabiontb");
/// Raise it when the meaning of any word changes.
pub(crate) const VERSION: u64 = 1;

pub(crate) const HEADER_WORDS: usize = 64;
pub(crate) const AT_MAGIC: usize = 0;
pub(crate) const AT_VERSION: usize = 1;
pub(crate) const AT_DIGEST: usize = 2;
pub(crate) const AT_RULES: usize = 3;
pub(crate) const AT_DRAIN: usize = 8;
pub(crate) const AT_SWEEP: usize = 9;
/// Cluster time from which the counters know everything, ns; 0: nobody asked yet. spec: pace-7
pub(crate) const AT_BORN: usize = 10;
/// A [`gabion_admit::Crowd`]. spec: pace-3
pub(crate) const AT_CROWD: usize = 11;
pub(crate) const AT_STATS: usize = 16;

/// Words of a tag line.
pub(crate) const TAG_LINE: usize = 8;

/// Offsets within a row; both kinds have them.
pub(crate) const KEY_A: usize = 0;
pub(crate) const KEY_B: usize = 1;
pub(crate) const HEAD: usize = 2;
pub(crate) const RING: usize = 3;

/// Rows that share a word of references.
pub(crate) const REFS_A_WORD: usize = 16;

/// Limits from here on need the wide head.
const NARROW_LIMIT: u32 = 1 << 23;

/// Sizes chosen by a test instead of the memory's size.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Rows of a set, 1..=16.
    pub ways: usize,
    /// Sets of each rule, at least 1.
    pub sets: u64,
}

/// A sub-table: the counters of one rule.
#[derive(Clone, Debug)]
pub(crate) struct Sub {
    pub(crate) plan: Plan,
    pub(crate) format: HeadFormat,
    /// The plan of a fixed window, which `fast.rs` decides.
    pub(crate) fast: Option<WindowPlan>,
    /// Decisions look at shares.
    pub(crate) shares: bool,
    /// Where a row says what it had when this slice of time began; rules that are `paced`.
    pub(crate) slice_at: Option<usize>,
    /// The sub-table is larger than caches: its lines are asked for early.
    pub(crate) large: bool,
    pub(crate) sets: u64,
    pub(crate) ways: usize,
    /// Tag words in use of a line.
    pub(crate) tag_words: usize,
    pub(crate) row_words: usize,
    /// A head further ahead of now is void: epochs of a window, ticks of a token bucket.
    pub(crate) ahead_max: i64,
    /// Words of closed buckets (windows) or own counts (token buckets).
    pub(crate) ring: usize,
    /// Offset in a row and number of the remote words.
    pub(crate) remote_at: usize,
    pub(crate) remote: usize,
    /// First words.
    pub(crate) tags: usize,
    pub(crate) refs: usize,
    pub(crate) door: usize,
    pub(crate) rows: usize,
    /// Index of its first row in the dirty bitmap.
    pub(crate) first_bit: usize,
    /// The rule of the old table whose counters these go on with.
    pub(crate) heir_of: Option<RuleIdx>,
}

/// A whole table.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) subs: Box<[Sub]>,
    pub(crate) dirty0: usize,
    pub(crate) dirty0_words: usize,
    pub(crate) dirty1: usize,
    pub(crate) dirty1_words: usize,
    pub(crate) digest: u64,
    pub(crate) words: usize,
}

/// What a row of this rule looks like: (ring words, remote words, words of a row).
fn row_shape(plan: &Plan) -> (usize, usize, usize) {
    let (ring, remote) = match plan {
        // One more than counts, so that a closing bucket never overwrites one that does; remote
        // totals of one past and two coming epochs besides those that count.
        Plan::Window(w) => (usize::from(w.closed) + 1, usize::from(w.closed) + 4),
        // Own counts of this epoch and the last; remote totals of the last, this and the next.
        Plan::Gcra(_) => (2, 3),
    };
    let slice = usize::from(plan.pacing() == Pacing::Paced);
    (
        ring,
        remote,
        (RING + ring + remote + slice).next_multiple_of(8),
    )
}

/// How far ahead of now a head still counts. spec: adm-23
fn ahead_max(plan: &Plan) -> i64 {
    let max = match plan {
        Plan::Window(w) => HEAD_AHEAD_NS
            .div_ceil(w.bucket_ns)
            .max(HEAD_AHEAD_EPOCHS_MIN),
        Plan::Gcra(g) => g.debt_max_ticks() + g.ticks(HEAD_AHEAD_NS).min(1 << 44),
    };
    i64::try_from(max).unwrap_or(i64::MAX)
}

impl Sub {
    fn new(spec: &SubSpec, ways: usize) -> Sub {
        let (ring, remote, row_words) = row_shape(&spec.plan);
        let wide = matches!(spec.plan, Plan::Window(w) if w.limit >= NARROW_LIMIT);
        Sub {
            plan: spec.plan,
            format: if wide { WIDE } else { NARROW },
            fast: match spec.plan {
                Plan::Window(w) if w.closed == 0 && !w.pacing.shares() => Some(w),
                _ => None,
            },
            shares: spec.plan.pacing().shares(),
            slice_at: (spec.plan.pacing() == Pacing::Paced).then_some(RING + ring + remote),
            large: false,
            sets: 1,
            ways,
            tag_words: ways.div_ceil(2),
            row_words,
            ahead_max: ahead_max(&spec.plan),
            ring,
            remote_at: RING + ring,
            remote,
            tags: 0,
            refs: 0,
            door: 0,
            rows: 0,
            first_bit: 0,
            heir_of: None,
        }
    }

    /// 64ths of a word that one more set costs, dirty bits and rounding included.
    fn set_cost_64ths(&self) -> u64 {
        ((self.ways * self.row_words + TAG_LINE + 2) * 64 + self.ways + 1) as u64
    }

    pub(crate) fn row_count(&self) -> usize {
        usize::try_from(self.sets)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.ways)
    }

    /// First word of row `slot`.
    #[inline(always)]
    pub(crate) fn row(&self, slot: usize) -> usize {
        self.rows + slot * self.row_words
    }

    #[inline(always)]
    pub(crate) fn gcra(&self) -> Option<&GcraPlan> {
        match &self.plan {
            Plan::Gcra(g) => Some(g),
            Plan::Window(_) => None,
        }
    }
}

impl Layout {
    /// Lays `rules` out over `words` words. Pure: the same arguments give the same layout in every
    /// process.
    pub(crate) fn plan(
        words: usize,
        rules: &[SubSpec],
        geometry: Option<Geometry>,
    ) -> Result<Layout, TableError> {
        if rules.is_empty() {
            return Err(TableError::NoRules);
        }
        if rules.len() > RULES_MAX {
            return Err(TableError::TooManyRules {
                rules: rules.len(),
                max: RULES_MAX,
            });
        }
        let ways = geometry.map_or(WAYS, |g| g.ways.clamp(1, WAYS));
        let mut subs: Vec<Sub> = rules.iter().map(|r| Sub::new(r, ways)).collect();
        match geometry {
            Some(g) => subs
                .iter_mut()
                .for_each(|s| s.sets = g.sets.clamp(1, SETS_MAX)),
            None => share(words, rules, &mut subs)?,
        }
        let layout = place(subs, rules, words);
        if layout.words > words {
            return Err(too_small(words, layout.words, rules.len()));
        }
        Ok(layout)
    }
}

fn too_small(have: usize, need: usize, rules: usize) -> TableError {
    TableError::TooSmall {
        have_bytes: have as u64 * 8,
        need_bytes: need as u64 * 8,
        rules,
    }
}

/// Gives declared cardinalities what they need and shares the rest equally, by bytes.
fn share(words: usize, rules: &[SubSpec], subs: &mut [Sub]) -> Result<(), TableError> {
    // Each area is rounded up to a line (8 words), six areas and two bitmaps.
    let fixed_64ths = (HEADER_WORDS + 24 * subs.len() + 32) as u64 * 64;
    let have_64ths = words as u64 * 64;
    let least: u64 = subs.iter().map(Sub::set_cost_64ths).sum::<u64>() + fixed_64ths;
    if least > have_64ths {
        let need = usize::try_from(least.div_ceil(64)).unwrap_or(usize::MAX);
        return Err(too_small(words, need, rules.len()));
    }
    let mut spent = fixed_64ths;
    let mut sharers = 0u64;
    for (rule, sub) in rules.iter().zip(subs.iter_mut()) {
        match rule.cardinality {
            Some(keys) => {
                let slots = (u64::from(keys) * SLOTS_PERCENT).div_ceil(100);
                sub.sets = slots.div_ceil(sub.ways as u64).clamp(1, SETS_MAX);
                spent = spent.saturating_add(sub.sets.saturating_mul(sub.set_cost_64ths()));
            }
            None => sharers += 1,
        }
    }
    let sharers_least: u64 = rules
        .iter()
        .zip(subs.iter())
        .filter(|(r, _)| r.cardinality.is_none())
        .map(|(_, s)| s.set_cost_64ths())
        .sum();
    if spent.saturating_add(sharers_least) > have_64ths {
        return Err(TableError::CardinalityTooLarge {
            have_bytes: have_64ths / 8,
            need_bytes: spent.saturating_add(sharers_least).div_ceil(8),
        });
    }
    if sharers > 0 {
        // A rule with longer rows may need more than an equal share for its one set: then the
        // others share what is left.
        let mut left = have_64ths - spent;
        let mut order: Vec<usize> = (0..subs.len())
            .filter(|&i| rules[i].cardinality.is_none())
            .collect();
        order.sort_by_key(|&i| std::cmp::Reverse(subs[i].set_cost_64ths()));
        for (done, &i) in order.iter().enumerate() {
            let cost = subs[i].set_cost_64ths();
            let part = left / (order.len() - done) as u64;
            subs[i].sets = (part / cost).clamp(1, SETS_MAX);
            left = left.saturating_sub(subs[i].sets * cost);
        }
    }
    Ok(())
}

/// Assigns addresses.
fn place(mut subs: Vec<Sub>, rules: &[SubSpec], words: usize) -> Layout {
    let mut at = HEADER_WORDS;
    let mut take = |n: usize| {
        let start = at;
        at = at.saturating_add(n).next_multiple_of(8);
        start
    };
    let mut bit = 0usize;
    for sub in &mut subs {
        let sets = sub.row_count() / sub.ways;
        sub.tags = take(sets.saturating_mul(TAG_LINE));
        sub.refs = take(sub.row_count().div_ceil(REFS_A_WORD));
        sub.door = take(sets);
        sub.rows = take(sub.row_count().saturating_mul(sub.row_words));
        sub.first_bit = bit;
        sub.large = sub.row_count() >= LARGE_FROM_ROWS;
        bit = bit.saturating_add(sub.row_count());
    }
    let dirty0_words = bit.div_ceil(64);
    let dirty1_words = dirty0_words.div_ceil(64);
    let dirty0 = take(dirty0_words);
    let dirty1 = take(dirty1_words);
    let digest = digest(&subs, rules, words);
    Layout {
        subs: subs.into(),
        dirty0,
        dirty0_words,
        dirty1,
        dirty1_words,
        digest,
        words: at,
    }
}

/// Names a layout and what the rows in it mean: two processes may share memory only when they
/// agree. Limits of windows are not in it (a reload may change them, SEMANTICS 1), but the rate of
/// a token bucket is: it is the unit of its TAT.
fn digest(subs: &[Sub], rules: &[SubSpec], words: usize) -> u64 {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    hash.eat(VERSION);
    hash.eat(words as u64);
    for (sub, rule) in subs.iter().zip(rules) {
        rule.identity.0.iter().for_each(|&b| hash.eat(u64::from(b)));
        hash.eat(sub.sets);
        hash.eat(sub.ways as u64);
        hash.eat(sub.row_words as u64);
        hash.eat(u64::from(sub.format == WIDE));
        hash.eat(sub.plan.epoch_ns());
        hash.eat(u64::from(sub.plan.live_epochs()));
        if let Plan::Gcra(g) = &sub.plan {
            let (multiplier, shift) = g.rate();
            hash.eat(multiplier);
            hash.eat(u64::from(shift));
            hash.eat(u64::from(g.tick_shift()));
        }
    }
    hash.0
}

/// FNV-1a over 64-bit words: tells layouts apart, protects against nothing.
struct Fnv(u64);

impl Fnv {
    fn eat(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// Writes the header over zeroed memory; the magic last, so that a half-made table is none.
pub(crate) fn write_header<M: Mem>(mem: &M, layout: &Layout, rules: usize) {
    if (0..HEADER_WORDS).any(|i| mem.load(i) != 0) {
        // Not fresh: everything has to be wiped.
        for i in 0..mem.len() {
            if mem.load(i) != 0 {
                mem.swap(i, 0);
            }
        }
    }
    mem.swap(AT_VERSION, VERSION);
    mem.swap(AT_DIGEST, layout.digest);
    mem.swap(AT_RULES, rules as u64);
    mem.swap(AT_MAGIC, MAGIC);
}

/// Checks that the memory holds a table of this layout.
pub(crate) fn check_header<M: Mem>(mem: &M, layout: &Layout) -> Result<(), TableError> {
    if mem.load(AT_MAGIC) != MAGIC {
        return Err(TableError::NotATable);
    }
    let found = mem.load(AT_VERSION);
    if found != VERSION {
        return Err(TableError::OtherVersion {
            found,
            ours: VERSION,
        });
    }
    if mem.load(AT_DIGEST) != layout.digest {
        return Err(TableError::OtherLayout);
    }
    Ok(())
}
