//! Orders of operators: from a handle to the node, and from the node to deciders.
//!
//! I own what is said between the two threads. I promise that this member's deciders know of an
//! order before whoever gave it has the answer, and that orders outlive a restart of the loop. I
//! never decide which of two orders wins: that is the node's.

use std::fmt;

use gabion_node::{Node, Now, Reach};
use gabion_rule::{Order, Share};
use gabion_wire::{EraEntry, FlagEntry};
use thiserror::Error;
use tokio::sync::oneshot;

use crate::limits::ORDERS_PER_TURN;

/// Why an order was not carried out. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrderError {
    /// The protocol refused it.
    #[error(transparent)]
    Refused(#[from] gabion_node::OrderError),
    /// Gossip does not run, or began anew while it was asked.
    #[error("gossip does not run at this moment, and nothing was changed; try again")]
    NotRunning,
}

/// The eras and flags a member knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    eras: Vec<EraEntry>,
    flags: Vec<FlagEntry>,
}

impl Registers {
    /// Registers from elsewhere, such as memory that outlives a driver. Of two of one name the
    /// later one counts.
    pub fn new(
        eras: impl IntoIterator<Item = EraEntry>,
        flags: impl IntoIterator<Item = FlagEntry>,
    ) -> Registers {
        let mut registers = Registers {
            eras: eras.into_iter().filter(|entry| entry.era > 0).collect(),
            flags: flags.into_iter().collect(),
        };
        registers
            .eras
            .sort_by_key(|entry| (entry.limiter, entry.era));
        registers
            .flags
            .sort_by_key(|entry| (entry.flag, entry.version));
        registers
    }

    fn of(node: &Node) -> Registers {
        Registers::new(node.eras(), node.flags())
    }

    /// The era of a limiter (`gabion_rule::limiter_name`); 0 before its first reset.
    pub fn era(&self, limiter: u64) -> u32 {
        let end = self.eras.partition_point(|entry| entry.limiter <= limiter);
        let last = end.checked_sub(1).and_then(|at| self.eras.get(at));
        last.filter(|entry| entry.limiter == limiter)
            .map_or(0, |entry| entry.era)
    }

    /// What a flag (`gabion_rule::flag_name`) was set to; `None`: its declared default holds.
    pub fn flag(&self, flag: u64) -> Option<Share> {
        let end = self.flags.partition_point(|entry| entry.flag <= flag);
        let last = end.checked_sub(1).and_then(|at| self.flags.get(at));
        last.filter(|entry| entry.flag == flag)?
            .percent
            .and_then(Share::percent)
    }

    /// All eras, by name.
    pub fn eras(&self) -> &[EraEntry] {
        &self.eras
    }

    /// All flags that were set, by name.
    pub fn flags(&self) -> &[FlagEntry] {
        &self.flags
    }
}

/// What a driver starts with, and whom it tells.
#[derive(Default)]
pub struct StandingOrders {
    /// What is known already: from a zone, or from the driver before.
    pub kept: Registers,
    /// Told of each order that is known at the start, and of each that changes, on the driver's
    /// thread. Quick, and without waiting: deciders read what it writes.
    pub on_order: Option<Box<dyn Fn(Order) + Send>>,
}

impl fmt::Debug for StandingOrders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StandingOrders")
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

/// What a handle asks of the loop.
pub(crate) enum Command {
    Raise {
        limiter: u64,
        answer: oneshot::Sender<Result<u32, OrderError>>,
    },
    Set {
        flag: u64,
        share: Option<Share>,
        answer: oneshot::Sender<Result<Reach, OrderError>>,
    },
}

/// The loop's end of it.
pub(crate) struct Desk {
    commands: tokio::sync::mpsc::Receiver<Command>,
    next: Option<Command>,
}

impl Desk {
    pub(crate) fn new(commands: tokio::sync::mpsc::Receiver<Command>) -> Desk {
        Desk {
            commands,
            next: None,
        }
    }

    /// Waits for a command; for ever when nobody can give one any more.
    pub(crate) async fn wait(&mut self) {
        if self.next.is_none() {
            match self.commands.recv().await {
                Some(command) => self.next = Some(command),
                None => std::future::pending().await,
            }
        }
    }

    /// Carries out what waits. `tell` is called after each, before its answer.
    pub(crate) fn serve(&mut self, node: &mut Node, now: Now, tell: &mut dyn FnMut(&Node)) {
        for _ in 0..ORDERS_PER_TURN {
            let next = self.next.take();
            let Some(command) = next.or_else(|| self.commands.try_recv().ok()) else {
                return;
            };
            // Whoever asked may have gone meanwhile; the order holds all the same.
            match command {
                Command::Raise { limiter, answer } => {
                    let raised = node.raise_era(limiter, now).map_err(OrderError::from);
                    tell(node);
                    let _ = answer.send(raised);
                }
                Command::Set {
                    flag,
                    share,
                    answer,
                } => {
                    let set = node.set_flag(flag, share, now).map_err(OrderError::from);
                    tell(node);
                    let _ = answer.send(set);
                }
            }
        }
    }
}

/// What deciders and readers were told.
pub(crate) struct Told {
    place: u64,
}

impl Told {
    /// A fresh node learns what is known; everything is told once more.
    pub(crate) fn start(node: &mut Node, known: &Registers) -> Told {
        node.remember(known.eras(), known.flags());
        Told { place: 0 }
    }

    /// Tells what changed; gives all registers when something did.
    pub(crate) fn tell(
        &mut self,
        node: &Node,
        on_order: Option<&(dyn Fn(Order) + Send)>,
    ) -> Option<Registers> {
        if node.orders_head() == self.place {
            return None;
        }
        if let Some(on_order) = on_order {
            node.orders_since(self.place).for_each(on_order);
        }
        self.place = node.orders_head();
        Some(Registers::of(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_by_name() {
        let era = |limiter, era| EraEntry { limiter, era };
        let flag = |flag, version, percent| FlagEntry {
            flag,
            version,
            node: 1,
            percent,
        };
        let flags = [flag(9, 2, Some(0)), flag(9, 1, None), flag(3, 1, None)];
        let known = Registers::new([era(7, 3), era(2, 9), era(7, 5), era(8, 0)], flags);
        assert_eq!(
            [2, 7, 8, 1, 99].map(|name| known.era(name)),
            [9, 5, 0, 0, 0]
        );
        assert_eq!(known.flag(9), Some(Share::OFF));
        assert_eq!([3, 1, 99].map(|name| known.flag(name)), [None; 3]);
        assert_eq!(Registers::default().era(1), 0);
    }
}
