//! Bad links.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::checks::Checks;
use crate::lab::{one, rule, Lab, LabSpec, Programs};
use crate::limits::HEAL_MAX;
use crate::net::Fault;
use crate::relay::LinkFaults;
use crate::LabError;

const LIMIT: u64 = 2_000;
/// Requests per second, over all members.
const PER_S: u32 = 200;
/// How old the news of others may be: two lost frames, their repeats and the way, milliseconds.
const STALE_MS: u64 = 400;

/// 30 % loss (packet filter), 5 to 55 ms of delay, duplicates and late frames (relay).
pub(super) async fn lossy(programs: &Programs, checks: &mut Checks) -> Result<(), LabError> {
    let mut spec = LabSpec::alike(4, &[rule("wide", LIMIT, "d", "")]).with_nginx(&[1, 2]);
    spec.links = Some(LinkFaults {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(50),
        late_percent: 5,
        twice_percent: 5,
    });
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    lab.net.set_faults(&[Fault::Loss { percent: 30 }])?;
    let load = lab
        .load(&all, ("wide", one("k")), f64::from(PER_S), 15.0)
        .await?;
    // What others admit within the age of the news is not seen: three quarters of the load.
    let unseen = u64::from(PER_S) * 3 / 4 * STALE_MS / 1_000;
    checks.within("admitted", load.admitted, LIMIT, LIMIT + unseen);
    checks.holds(
        "every request was answered",
        load.error_count == 0,
        load.error_count,
    );
    let took = lab.wait_left(&all, ("wide", "k"), 0, HEAL_MAX).await?;
    checks.fact(
        "all show it used up after",
        format!("{} ms", took.as_millis()),
    );
    let fresh = lab.load(&all, ("wide", one("fresh")), 100.0, 3.0).await?;
    checks.holds(
        "nobody is denied under the limit",
        fresh.denied == 0,
        fresh.denied,
    );
    let took = lab
        .wait_left(&all, ("wide", "fresh"), LIMIT - fresh.admitted, HEAL_MAX)
        .await?;
    checks.fact(
        "while frames are lost, all agree after",
        format!("{} ms", took.as_millis()),
    );
    if let Some(relay) = &lab.relay {
        let taken = relay.counts.taken.load(Ordering::Relaxed);
        let full = relay.counts.full.load(Ordering::Relaxed);
        checks.holds("the relay carried the frames", taken > 0, taken);
        checks.holds("its queues were long enough", full == 0, full);
    }
    let lost = lab.members[0].counter("frames_lost").await?;
    checks.holds("member 1 noticed lost frames", lost > 0, lost);
    lab.check_health(checks).await
}
