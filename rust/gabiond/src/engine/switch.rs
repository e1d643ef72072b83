//! One policy takes the place of another.
//!
//! I own the moment between the last decision by the old policy and the first by the new one. I
//! promise that the two do not overlap where counters move, or that it is counted. Whoever waits
//! lets others run, also the decision that it waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::limits::SWITCH_PATIENCE;
use crate::policy::Policy;
use crate::tally::Cause;

/// Looks in which one that waits only gives way; what is waited for takes microseconds as a rule.
const GIVE_WAY: u32 = 64;
/// Time between later looks. On a busy machine those who only give way keep the processor from the
/// decision that they wait for.
const REST: Duration = Duration::from_micros(50);

/// The policy in force. Only decisions hold it, each for as long as it takes, so that whoever
/// replaced it can tell when the last of them is over; everybody else holds the policy itself.
#[derive(Debug)]
pub(super) struct InForce {
    policy: Arc<Policy>,
    /// Decisions may begin: none by an earlier policy is under way that would be missed.
    open: AtomicBool,
}

impl InForce {
    pub(super) fn new(policy: Arc<Policy>, open: bool) -> Self {
        let open = AtomicBool::new(open);
        Self { policy, open }
    }

    pub(super) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Acquire: pairs with the store in [`Engine::replace`].
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }
}

impl Engine {
    /// Decides by `policy` from now on. With `alone`, no decision by it begins before the last one
    /// by the policy before has ended and `when_alone` was called; requests wait for that, mostly
    /// some microseconds and at most [`SWITCH_PATIENCE`]. Returns whether it was so; if not, it is
    /// counted as [`Cause::ReloadRace`].
    pub(crate) fn replace(&self, policy: Policy, alone: bool, when_alone: impl FnOnce()) -> bool {
        let next = Arc::new(InForce::new(Arc::new(policy), !alone));
        let mut before = self.policy.swap(Arc::clone(&next));
        if !alone {
            return true;
        }
        // The swap turned every guard of a decision under way into a count of its own. `get_mut`
        // sees the last of them go, with all that its decision wrote.
        let quiet = wait(SWITCH_PATIENCE, || Arc::get_mut(&mut before).is_some());
        if !quiet {
            self.tally.cause(Cause::ReloadRace, 1);
        }
        when_alone();
        // Release: whoever sees it open decides after all of the above.
        next.open.store(true, Ordering::Release);
        quiet
    }

    /// In the middle of a reload: waits for the last decision by the policy before.
    #[cold]
    pub(super) fn wait_until_open(&self, in_force: &InForce) {
        if !wait(2 * SWITCH_PATIENCE, || in_force.is_open()) {
            self.tally.cause(Cause::ReloadRace, 1);
        }
    }
}

/// Waits until something `is` so, but not longer than `patience`. Returns whether it is.
fn wait(patience: Duration, mut is: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + patience;
    let mut looks = 0;
    loop {
        if is() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        if looks < GIVE_WAY {
            looks += 1;
            std::thread::yield_now();
        } else {
            std::thread::sleep(REST);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test fails by panicking

    use super::*;
    use crate::config::{Config, Variables};
    use crate::member::Member;

    fn config(rules: &str) -> Config {
        let text = format!("limits: [{rules}]\n");
        Config::parse("switch", &text, &Variables::default()).unwrap()
    }

    /// A hit that may be missing in the new table is never a silent one.
    #[test]
    fn a_decision_that_outlasts_the_patience_of_a_reload_is_counted() {
        let a = "{name: a, domain: d, rate: 5r/d, descriptors: [{key: a}]}";
        let b = "{name: b, domain: d, rate: 5r/d, descriptors: [{key: b}]}";
        let member = Member::start(config(a)).unwrap();
        let raced = || member.engine().tally().of_cause(Cause::ReloadRace);

        let under_way = member.engine().policy.load();
        member.apply(config(&format!("{b}, {a}"))).unwrap();
        assert_eq!(raced(), 1);
        drop(under_way);

        member.apply(config(a)).unwrap();
        assert_eq!(raced(), 1, "nobody decided");
    }
}
