//! What all scenarios check in the same words.
//!
//! Owns: the shared rule, and what was answered. Promises: what was sent in any
//! part of a scenario counts. Never: decides when a scenario is over.

use std::cell::Cell;
use std::future::Future;

use gabion_loader::report::Report;
use gabion_netlab::checks::Checks;
use gabion_netlab::lab::{most_admitted, one, rule, LabSpec, Loader};
use gabion_netlab::limits::{HEAL_MAX, MEMBERS_MAX};

use crate::cluster::Cluster;
use crate::limits::{CONVERGED_MS_MAX, PEER_MS_MAX, SILENT_MS_MAX};
use crate::moments::ms;
use crate::report::{ADMITTED, COUNTS, DENIED, ERRORS, PEER, SILENT};
use crate::SuiteError;

/// The rule that all members share.
pub(super) const RULE: &str = "wide";
/// Its hits a day.
pub(super) const LIMIT: u64 = 4_000;
const KEY: &str = "k";
/// How long the limit is exceeded at the end of a scenario.
const OVERLOAD_S: f64 = 4.0;

/// Members with one rule of a day.
pub(super) fn alike(members: usize) -> LabSpec {
    let rules = [rule(RULE, LIMIT, "d", ""), rule("few", 100, "d", "")];
    LabSpec::alike(members, &rules)
}

/// What was answered so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) admitted: u64,
    denied: u64,
    errors: u64,
}

impl Tally {
    /// Adds a load that is under the limit.
    pub(super) fn add(&mut self, load: &Report) {
        self.admitted += load.admitted;
        self.denied += load.denied;
        self.errors += load.error_count;
    }

    /// Load on some members that is under the limit.
    pub(super) async fn load(
        &mut self,
        cluster: &Cluster<'_>,
        members: &[usize],
        (per_s, seconds): (f64, f64),
    ) -> Result<(), SuiteError> {
        let keys = (RULE, one(KEY));
        let load = cluster.lab.load(members, keys, per_s, seconds).await?;
        self.add(&load);
        Ok(())
    }

    /// Load on some members, under the limit, for as long as `work` takes.
    pub(super) async fn during<T>(
        &mut self,
        loader: Loader,
        (members, per_s): (&[usize], f64),
        work: impl Future<Output = Result<T, SuiteError>>,
    ) -> Result<T, SuiteError> {
        let is_done = Cell::new(false);
        let load = async {
            while !is_done.get() {
                let part = loader.load(members, (RULE, one(KEY)), per_s, 1.0);
                self.add(&part.await?);
            }
            Ok::<_, SuiteError>(())
        };
        let work = async {
            let worked = work.await;
            is_done.set(true);
            worked
        };
        let (loaded, worked) = tokio::join!(load, work);
        loaded?;
        worked
    }

    /// Nobody was denied, nothing failed.
    pub(super) fn check(&self, checks: &mut Checks) {
        checks.holds(DENIED, self.denied == 0, self.denied);
        checks.holds(ERRORS, self.errors == 0, self.errors);
    }

    /// All members come to show the same count; then twice what is left is offered to them, and at
    /// most the stated part of it is admitted.
    pub(super) async fn finish(
        mut self,
        cluster: &mut Cluster<'_>,
        checks: &mut Checks,
        members: &[usize],
    ) -> Result<(), SuiteError> {
        let (key, lab) = ((RULE, KEY), &mut cluster.lab);
        // a member that was never asked has no row, and shows others' counts only when they are
        // many (docs/operating.md)
        for i in members {
            match lab.members[*i].ask(RULE, KEY, 1).await? {
                true => self.admitted += 1,
                false => self.denied += 1,
            }
        }
        let left = LIMIT.saturating_sub(self.admitted);
        let same = lab.wait_left(members, key, left, HEAL_MAX).await;
        let found = same
            .as_ref()
            .map_or_else(ToString::to_string, |_| left.to_string());
        checks.holds("all show the same count", same.is_ok(), found);
        let per_s = 2.0 * left.max(MEMBERS_MAX as u64 * 10) as f64 / OVERLOAD_S;
        let rest = lab.load(members, (RULE, one(KEY)), per_s, OVERLOAD_S);
        let rest = rest.await?;
        let most = most_admitted(LIMIT, members.len());
        let all = self.admitted + rest.admitted;
        checks.within(ADMITTED, all, LIMIT, most);
        self.errors += rest.error_count;
        self.check(checks);
        lab.check_health(checks).await?;
        cluster.world.plane.check()
    }
}

/// From the slice to the peer.
pub(super) fn joined(checks: &mut Checks, after: std::time::Duration) {
    checks.within(PEER, ms(after), 0, PEER_MS_MAX);
}

/// From the peer to the counts.
pub(super) fn converged(checks: &mut Checks, after: std::time::Duration) {
    checks.within(COUNTS, ms(after), 0, CONVERGED_MS_MAX);
}

/// From the slice to silence.
pub(super) fn silent(checks: &mut Checks, after: std::time::Duration) {
    checks.within(SILENT, ms(after), 0, SILENT_MS_MAX);
}
