//! Following one counter through a replayed seed, on standard output.

use std::collections::BTreeMap;

use gabion_rule::{Key, RuleIdx};

use crate::world::{Answer, World};

/// A counter to follow, and what was last shown of it by each member and epoch.
#[derive(Debug)]
pub(crate) struct Watch {
    rule: RuleIdx,
    key_a: u64,
    shown: BTreeMap<(usize, u64), (u64, u64)>,
}

impl World {
    /// Prints whatever happens to the counter of `rule` whose key's first half is `key_a`.
    pub fn watch(&mut self, rule: RuleIdx, key_a: u64) {
        self.watch = Some(Watch {
            rule,
            key_a,
            shown: BTreeMap::new(),
        });
    }

    pub(crate) fn watch_answer(&self, member: usize, rule: RuleIdx, key: Key, answer: &Answer) {
        let watched = self
            .watch
            .as_ref()
            .is_some_and(|w| w.rule == rule && w.key_a == key.a);
        if watched {
            let held = &self.members[member];
            let epoch = self.plan(rule).epoch_of(held.clock.cluster_ns(self.now_ns));
            let at = self.now_ns;
            println!(
                "{at:>12} member {member} life {} epoch {epoch}: {answer:?}",
                held.life
            );
        }
    }

    /// Prints what the node of `member` knows of the watched counter, when that changed.
    pub(crate) fn watch_views(&mut self, member: usize) {
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        let found = self
            .truth
            .counters()
            .find(|&(r, k)| r == watch.rule && k.a == watch.key_a);
        if let Some((rule, key)) = found {
            let held = &self.members[member];
            let plan = self.plan(rule);
            let now = plan.epoch_of(held.clock.cluster_ns(self.now_ns));
            let oldest = now.saturating_sub(u64::from(plan.live_epochs()));
            for epoch in oldest..=now + 2 {
                let view = (held.own(rule, key, epoch), held.remote(rule, key, epoch));
                if watch.shown.insert((member, epoch), view).unwrap_or((0, 0)) != view {
                    let (own, remote) = view;
                    println!(
                        "{:>12} member {member} now {now} knows epoch {epoch}: own {own} remote \
                         {remote}; {:?}",
                        self.now_ns,
                        self.truth.epoch(rule, key, epoch)
                    );
                }
            }
        }
        self.watch = Some(watch);
    }
}
