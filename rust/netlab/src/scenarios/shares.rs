//! Rules whose members have fixed parts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::checks::Checks;
use crate::lab::{one, Lab, LabSpec, Programs};
use crate::net::{cut, Fault};
use crate::LabError;

const MEMBERS: usize = 3;
/// Hits per window; each member has a third, rounded down.
const LIMIT: u64 = 100;
const WINDOW_S: u64 = 10;
/// Requests per second, over all members.
const PER_S: f64 = 60.0;
/// A load that is within its window and brings each member more than its part.
const LOAD_S: f64 = 6.0;

/// Waits until a window has just begun, and clocks that are a little apart agree on it.
async fn window_begins() -> Result<(), LabError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_err(LabError::odd)?.as_millis();
    let window_ms = u128::from(WINDOW_S) * 1_000;
    let next_ms = window_ms - now_ms % window_ms + 500;
    let wait = u64::try_from(next_ms).map_err(LabError::odd)?;
    tokio::time::sleep(Duration::from_millis(wait)).await;
    Ok(())
}

/// 30 % loss, then also a cut, then also a member that is killed and started again: in no window
/// more than the limit, and in each all parts of members that did not start in it.
// spec: pace-9
pub(super) async fn strict(programs: &Programs, checks: &mut Checks) -> Result<(), LabError> {
    let per_s = LIMIT / WINDOW_S;
    let rule = format!(
        "{{name: strict, domain: lab, rate: {per_s}r/s, window: {WINDOW_S}s, pace: strict, \
         members: {MEMBERS}, descriptors: [{{key: strict}}]}}"
    );
    let mut lab = Lab::start(programs, LabSpec::alike(MEMBERS, &[rule])).await?;
    let all = lab.all();
    lab.net.set_faults(&[Fault::Loss { percent: 30 }])?;
    for i in &all {
        let passed = lab.members[*i].ask("strict", "other", 1).await?;
        checks.holds(
            format!("member {}, just started, admits nothing yet", i + 1),
            !passed,
            !passed,
        );
    }
    let parts = LIMIT / MEMBERS as u64 * MEMBERS as u64;
    window_begins().await?;
    let lossy = lab_load(&lab, &all).await?;
    checks.within("admitted with 30 % loss", lossy, parts, parts);

    let mut faults = cut(&[0], &[1, 2]);
    faults.push(Fault::Loss { percent: 30 });
    lab.net.set_faults(&faults)?;
    window_begins().await?;
    let apart = lab_load(&lab, &all).await?;
    checks.within("admitted while member 1 is cut off", apart, parts, parts);

    window_begins().await?;
    let before = lab.load(&all, ("strict", one("k")), PER_S, 3.0).await?;
    lab.members[1].kill();
    lab.start_member(1).await?;
    let after = lab.load(&all, ("strict", one("k")), PER_S, 2.0).await?;
    let both = before.admitted + after.admitted;
    checks.within(
        "admitted in a window in which member 2 crashed",
        both,
        parts / 2,
        LIMIT,
    );

    lab.net.set_faults(&[])?;
    window_begins().await?;
    let healed = lab_load(&lab, &all).await?;
    checks.within("admitted once all is well", healed, parts, parts);
    lab.check_health(checks).await
}

async fn lab_load(lab: &Lab, all: &[usize]) -> Result<u64, LabError> {
    let load = lab.load(all, ("strict", one("k")), PER_S, LOAD_S).await?;
    Ok(load.admitted)
}
