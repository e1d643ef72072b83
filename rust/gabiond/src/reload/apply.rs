//! The swap: from the policy in force to the next one, without losing a count.
//!
//! I own the order of steps. The counters of rules that stay are the same memory when the layout
//! is the same; else a new table becomes the heir of the old one, gossip rests, the policy is
//! swapped, the last decision by the old policy ends, and only then the first decision by the new
//! one begins and rows are taken over: so no hit is charged to a row that was already copied. Then
//! gossip goes on. I promise that an error changes nothing.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gabion_driver::Next;
use gabion_table::Carried;

use super::{changes, Change, Fixed};
use crate::config::{Config, Gossip};
use crate::discovery;
use crate::limits::GOSSIP_REST;
use crate::member::{InForce, Link, Member, StartError};
use crate::policy::{Policy, PolicyParts};
use crate::specs::{self, Made, Specs};
use crate::Counters;

/// What became of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// They stay where they are.
    Kept,
    /// They were carried into a new table.
    Carried(Carried),
    /// There were none, or there are none any more.
    Fresh,
}

/// What a reload did.
#[derive(Clone, Debug)]
pub struct Applied {
    /// What changed, rule by rule.
    pub changes: Vec<Change>,
    /// Settings that changed and are not in force.
    pub restart: Vec<&'static str>,
    /// What an operator should know about the new configuration.
    pub notices: Vec<String>,
    /// What became of the counters.
    pub counts: Counts,
    /// Rules in force.
    pub rules: usize,
    /// Time until it was in force: that of reading it, too, when it was read for this.
    pub took: Duration,
    /// Time that gossip rested, while counts were carried; `None`: it did not.
    pub gossip_rested: Option<Duration>,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the configuration was reloaded in {:.1} ms: {} rules in force, {} changed",
            self.took.as_secs_f64() * 1e3,
            self.rules,
            self.changes.len()
        )?;
        match self.counts {
            Counts::Kept => f.write_str("; all counters stay"),
            Counts::Fresh => Ok(()),
            Counts::Carried(carried) => {
                write!(f, "; the counts of {} keys were carried", carried.rows)?;
                if carried.left_rows > 0 {
                    write!(
                        f,
                        ", those of {} ({} exhausted, {} hits) found no room",
                        carried.left_rows, carried.left_exhausted, carried.left_hits
                    )?;
                }
                Ok(())
            }
        }?;
        match self.gossip_rested {
            Some(rested) => write!(f, "; gossip rested {:.1} ms", rested.as_secs_f64() * 1e3),
            None => Ok(()),
        }
    }
}

impl Member {
    /// Puts another configuration in force. One at a time; takes as long as carrying counts does.
    ///
    /// # Errors
    /// [`StartError`]; nothing has changed then.
    pub fn apply(&self, config: Config) -> Result<Applied, StartError> {
        let started = Instant::now();
        let mut in_force = self.in_force();
        let restart = in_force.fixed.differences(&Fixed::of(&config));
        let before = self.engine().policy();
        let rules = Arc::new(specs::placed(
            config.rules,
            config.gossip.as_ref(),
            config.runtime.member_place,
        ));
        let changes = changes(before.rules(), &rules);
        let mut notices = config.notices;
        let old = before.counters().map(|old| (old, &*in_force.specs));
        let made = specs::counters(&rules, &config.storage, &mut notices, old)?;
        let unchanged = made.kept && made.specs == in_force.specs;
        let next = match (&made.counters, config.gossip) {
            (None, _) => None,
            (Some(counters), gossip) if in_force.replacer.is_some() => {
                in_force.next(gossip, unchanged, &made.specs, counters)
            }
            (Some(counters), Some(gossip)) if !restart.contains(&"gossip") => {
                let gossip = (gossip, &config.runtime);
                self.start_gossip(&mut in_force, gossip, &made.specs, counters)?;
                None
            }
            (Some(_), _) => None,
        };
        self.guard().set_token(config.admin_token);
        in_force.specs = Arc::clone(&made.specs);
        let parts = PolicyParts {
            rules: Arc::clone(&rules),
            // Another secret would start all counters anew: that takes a restart.
            hasher: before.hasher.clone(),
            counters: made.counters.clone(),
            overrides: made.specs.overrides,
            bounds: config.storage,
            answers: config.answers,
            flags: config.flags,
            orders: Arc::clone(self.orders()),
            value_series: self.observe().value_series,
        };
        let policy = Policy::new(parts, Some(&before));
        let since = Instant::now();
        let replacer = in_force.replacer.as_ref().filter(|_| next.is_some());
        if replacer.is_some_and(|replacer| !replacer.pause(GOSSIP_REST)) {
            tracing::warn!("gossip did not rest in time; peers say again what is missed now");
        }
        self.switch(policy, &made);
        let took = started.elapsed();
        drop(before);
        let counts = self.finish(made);
        // Only now: the pump takes a row that appears under its eyes for one that begins at 0.
        let gossip_rested = replacer.map(|replacer| {
            replacer.resume(next);
            since.elapsed()
        });
        self.set_notices(notices.clone());
        Ok(Applied {
            changes,
            restart,
            notices,
            counts,
            rules: rules.rules().len(),
            took,
            gossip_rested,
        })
    }

    /// The swap itself.
    fn switch(&self, policy: Policy, made: &Made) {
        let pair = made.heir_of.as_ref().zip(made.counters.as_ref());
        let quiet = self.engine().replace(policy, pair.is_some(), || {
            if let Some((old, new)) = pair {
                new.inherit_stats(old);
            }
        });
        if !quiet {
            tracing::warn!(
                "a decision by the configuration before did not end in time: its hits may be \
                 missing"
            );
        }
    }

    /// Carries what is to be carried, while requests go on.
    fn finish(&self, made: Made) -> Counts {
        match (made.kept, made.heir_of, made.counters) {
            (true, ..) => Counts::Kept,
            (false, Some(old), Some(new)) => {
                let now = || self.engine().now_ns();
                Counts::Carried(new.take_over(&old, &now, &mut std::thread::yield_now))
            }
            _ => Counts::Fresh,
        }
    }
}

impl InForce {
    /// What gossip goes on with; `None` when nothing changes for it.
    fn next(
        &mut self,
        gossip: Option<Gossip>,
        unchanged: bool,
        specs: &Specs,
        counters: &Arc<Counters>,
    ) -> Option<Next<Counters>> {
        let before = self.gossip.as_ref()?;
        // A configuration without gossip takes a restart; until then it goes on as it was.
        let link = gossip.map_or_else(|| before.clone(), |gossip| Link::of(&gossip));
        let other_peers = link.discovery != before.discovery;
        let same = format!("{:?}", link.tunables) == format!("{:?}", before.tunables);
        // Keys are not compared: their files may say something else under the same names.
        if unchanged && same && !other_peers && link.keys.is_none() && before.keys.is_none() {
            return None;
        }
        let next = Next {
            table: Arc::clone(counters),
            limiters: specs.limiters.clone(),
            rules: specs.pump.clone(),
            rule_names: specs.names.clone(),
            keys: link.keys.clone(),
            node_tunables: link.tunables.clone(),
            members_hint: u32::try_from(link.discovery.addresses.len()).unwrap_or(u32::MAX),
            discovery: other_peers.then(|| discovery::from(link.discovery.clone(), before.bind)),
        };
        self.gossip = Some(link);
        Some(next)
    }
}
