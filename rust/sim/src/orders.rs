//! Eras and flags in a world: given at one member, compared at all.
//!
//! I own what operators ordered, and the checker `orders`: once faults end every member has the
//! same eras and flags, and whatever was ordered at a member that still lives is in force.

use gabion_rule::Share;
use gabion_wire::{decode, EraEntry, FlagEntry, FrameWriter, Section, MAX_FRAME_BYTES};
use serde::{Deserialize, Serialize};

use crate::config::Plant;
use crate::member::Member;
use crate::truth::Life;
use crate::world::World;

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Resets a limiter.
    Raise {
        /// At which member.
        member: usize,
        /// Its name.
        limiter: u64,
    },
    /// Sets a flag.
    Set {
        /// At which member.
        member: usize,
        /// Its name.
        flag: u64,
        /// What to, per cent; `None`: as declared.
        percent: Option<u8>,
    },
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    life: Life,
    what: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Era(EraEntry),
    Flag(FlagEntry),
}

impl World {
    /// Gives an order now; nothing happens at a member that is away.
    pub fn order(&mut self, order: Order) {
        let (Order::Raise { member, .. } | Order::Set { member, .. }) = order;
        if !self.members[member].driving(self.now_ns) {
            return;
        }
        let now = self.members[member].now(self.now_ns);
        let authenticated = self.config.authenticated;
        let held = &mut self.members[member];
        let what = match order {
            Order::Raise { limiter, .. } => {
                let Ok(era) = held.node.raise_era(limiter, now) else {
                    return;
                };
                Some(Value::Era(EraEntry { limiter, era }))
            }
            Order::Set { flag, percent, .. } => {
                let share = percent.and_then(Share::percent);
                if held.node.set_flag(flag, share, now).is_err() {
                    return;
                }
                let set = held.node.flags().find(|entry| entry.flag == flag);
                // Without authentication it is meant for this member alone.
                set.filter(|_| authenticated).map(Value::Flag)
            }
        };
        let life = held.life;
        self.given.extend(what.map(|what| Given { life, what }));
        self.wake(member, self.now_ns);
    }

    /// `orders`: equal everywhere, and nothing that a living member was told is lost.
    pub(crate) fn compare_orders(&mut self) {
        let authenticated = self.config.authenticated;
        let view = |member: &Member| {
            let eras: Vec<EraEntry> = member.node.eras().collect();
            let flags: Vec<FlagEntry> = member.node.flags().filter(|_| authenticated).collect();
            (eras, flags)
        };
        let there: Vec<&Member> = self.members.iter().filter(|m| !m.gone).collect();
        let views: Vec<_> = there.iter().map(|member| view(member)).collect();
        let Some(first) = views.first() else { return };
        self.report.views_compared += u64::try_from(views.len()).unwrap_or(0);
        let lives: Vec<Life> = there.iter().map(|member| member.life).collect();
        if let Some(other) = views.iter().position(|view| view != first) {
            let (one, other_index) = (there[0].index, there[other].index);
            let detail = format!("member {one} has {first:?}, this one {:?}", views[other]);
            return self.violate("orders", other_index, detail);
        }
        let lost = |given: &&Given| {
            lives.contains(&given.life)
                && match given.what {
                    Value::Era(era) => {
                        let mut all = first.0.iter();
                        !all.any(|held| held.limiter == era.limiter && held.era >= era.era)
                    }
                    Value::Flag(flag) => {
                        let rank = |entry: &FlagEntry| (entry.version, entry.node, entry.percent);
                        let mut all = first.1.iter();
                        !all.any(|held| held.flag == flag.flag && rank(held) >= rank(&flag))
                    }
                }
        };
        if let Some(lost) = self.given.iter().find(lost) {
            let detail = format!("{lost:?} was ordered, and is not in force: {first:?}");
            self.violate("orders", 0, detail);
        }
    }

    /// The planted fault: member 1 takes a frame's rows and acknowledges it, and not its orders.
    pub(crate) fn without_orders(&self, to: usize, bytes: &mut Vec<u8>) {
        if self.config.plant != Plant::DeafToOrders || to != 1 {
            return;
        }
        let Ok(frame) = decode(bytes) else { return };
        let mut buffer = [0u8; MAX_FRAME_BYTES];
        let Ok(mut writer) = FrameWriter::new(&mut buffer, &frame.header, None) else {
            return;
        };
        for section in frame.sections() {
            if !matches!(section, Section::Eras(_) | Section::Flags(_)) {
                let _ = writer.copy(&section); // what fitted fits
            }
        }
        let length = writer.finish();
        *bytes = buffer[..length].to_vec();
    }
}
