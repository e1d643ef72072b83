//! How the members share a limit: `pace=` and `members=`.
//!
//! I own the words and what they exclude. I promise that a strict rule leaves each member a part
//! worth having. What the parts are is in `admit`. spec: pace-1

use crate::error::RuleError;
use crate::rule::Algorithm;
use crate::spec::RuleSpec;

/// Members of a strict rule must be able to have at least this many hits each.
const HITS_PER_MEMBER_MIN: u64 = 4;
/// Members that a strict rule may have.
const MEMBERS_MAX: u32 = 65_535;

/// How the members share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Pace {
    /// Every member admits against what it knows of the whole; never denies on a share.
    #[default]
    Fast,
    /// Each member may take a part of what is left, so that members which do not know of each
    /// other's last hits hardly admit too much.
    Paced,
    /// Each member has a fixed part of the limit; nothing is ever admitted beyond it.
    Strict {
        /// Parts of the limit: the members that have one. At least 1.
        members: u32,
        /// Which part this member has, from 0: a setting of the member, not of the rule, so it is
        /// neither printed nor in the digest. Without one it admits nothing. spec: pace-6
        place: Option<u32>,
    },
}

impl Pace {
    /// The words of a configuration.
    pub const WORDS: [&'static str; 3] = ["fast", "paced", "strict"];

    /// The word of a configuration.
    pub fn word(self) -> &'static str {
        match self {
            Pace::Fast => "fast",
            Pace::Paced => "paced",
            Pace::Strict { .. } => "strict",
        }
    }

    /// The same pace at the member of this place.
    pub fn at(self, place: Option<u32>) -> Pace {
        match self {
            Pace::Strict { members, .. } => Pace::Strict { members, place },
            other => other,
        }
    }

    /// `members=` of a strict rule.
    pub fn members(self) -> Option<u32> {
        match self {
            Pace::Strict { members, .. } => Some(members),
            Pace::Fast | Pace::Paced => None,
        }
    }
}

/// What `pace` (a word that is one of [`Pace::WORDS`], or absent) and `members` mean together.
// spec: rule-33
pub(crate) fn pace_of(spec: &RuleSpec, members: Option<u32>) -> Result<Pace, RuleError> {
    match (spec.pace.as_deref(), &spec.members) {
        (Some("strict"), None) => Err(RuleError::Missing {
            setting: "members",
            hint: "how many members share the limit, like members=4; pace=strict needs it",
        }),
        (Some("strict"), Some(text)) => match members {
            Some(members) if members <= MEMBERS_MAX => Ok(Pace::Strict {
                members,
                place: None,
            }),
            _ => Err(RuleError::OutOfRange {
                setting: "members",
                text: text.clone(),
                why: format!("it is 1 to {MEMBERS_MAX}"),
            }),
        },
        (_, Some(_)) => Err(RuleError::Conflict {
            first: "pace",
            second: "members",
            why: "only pace=strict has a fixed number of members; leave members= out",
        }),
        (Some("paced"), None) => Ok(Pace::Paced),
        _ => Ok(Pace::Fast),
    }
}

/// What a rule with shares cannot have.
// spec: rule-33
pub(crate) fn check_pace(
    pace: Pace,
    spec: &RuleSpec,
    algorithm: Option<&Algorithm>,
) -> Option<RuleError> {
    if pace == Pace::Fast {
        return None;
    }
    if spec.burst.is_some() {
        return Some(RuleError::Conflict {
            first: "burst",
            second: "pace",
            why: "a token bucket has no window to share; use window= instead of burst=, or \
                  pace=fast",
        });
    }
    let members = pace.members()?;
    if spec.tiers.is_some() {
        return Some(RuleError::Conflict {
            first: "tiers",
            second: "pace",
            why:
                "a strict rule has one limit to divide; use pace=fast or paced, or a rule per tier",
        });
    }
    let limit = u64::from(algorithm?.limit());
    let least = HITS_PER_MEMBER_MIN * u64::from(members);
    (limit < least).then(|| RuleError::OutOfRange {
        setting: "members",
        text: members.to_string(),
        why: format!(
            "a strict rule needs {HITS_PER_MEMBER_MIN} hits for each member, which are {least}, \
             and its limit is {limit}; raise the rate or the window, or use pace=paced"
        ),
    })
}
