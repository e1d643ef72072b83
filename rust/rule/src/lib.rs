//! Rules: rates, windows, matching, counter identity, keys, and the policy file.
//!
//! I own what a rule *is*: its grammar, its validated form, the identity of its counters, the index
//! that finds it for a descriptor, the keyed hash of a counter, and the policy file. I promise that
//! the same configuration gives the same identities and digests on every member and version, that
//! matching and hashing never allocate, and that every refusal says where and what to write. I
//! never count, decide, or touch a clock, a file or the network.
//!
//! The clauses cited as `spec: rule-N` are in `docs/spec/rules.md`.

#![forbid(unsafe_code)]

pub mod attributes;
mod canonical;
mod condition;
mod conflicts;
mod denial;
mod duration;
mod error;
mod explain;
mod identity;
mod key;
pub mod limits;
mod log_line;
mod marks;
mod operator;
mod override_unit;
mod pace;
pub mod policy;
mod rate;
pub mod reference;
pub mod registry;
mod request;
mod rule;
mod silence;
mod spec;
mod table;
mod tier;
mod wants;

pub use condition::{Alternative, Clause, Test};
pub use denial::Denial;
pub use duration::{parse_duration_ns, DurationText};
pub use error::{Notice, NoticeKind, Place, RuleError};
pub use explain::{Behind, Miss};
pub use identity::{CounterIdentity, LimitDigest};
pub use key::{Key, KeyHasher};
pub use limits::MAX_MATCHED_RULES;
pub use log_line::{LogLine, LogValues};
pub use operator::{
    applied, concerns, flag_name, limiter_name, Flag, Order, Orders, Share, ShareError, Switch,
};
pub use override_unit::OverrideUnit;
pub use pace::Pace;
pub use rate::Rate;
pub use request::{
    without_query, Applies, Aside, Context, Counted, Dropped, Entries, FlagIdx, FlagStates,
    KeyEntries, Values,
};
pub use rule::{
    Algorithm, DescriptorPattern, Fallback, Matching, Mode, Rule, Sliding, ValuePattern,
};
pub use spec::{DescriptorSpec, RuleSpec, TiersSpec};
pub use table::{MatchReport, Matches, RuleIdx, RuleTable};
pub use tier::{ChargeAfter, Tier, Tiers};
