//! Many rows at once.

use std::time::{Duration, Instant};

use crate::checks::Checks;
use crate::lab::{rule, until, Lab, LabSpec, Programs};
use crate::limits::{IDLE_BYTES_PER_S_MAX, PATIENCE};
use crate::net::cut;
use crate::LabError;

/// How long a silence is watched.
const WATCH: Duration = Duration::from_secs(5);

fn keys(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{prefix}{i}")).collect()
}

/// Bytes that all members have sent so far.
async fn sent_bytes(lab: &Lab) -> Result<u64, LabError> {
    let mut sum = 0;
    for member in &lab.members {
        sum += member.counter("bytes_out").await?;
    }
    Ok(sum)
}

/// Waits until each of `members` holds so many cells.
async fn wait_cells(lab: &Lab, members: &[usize], cells: u64) -> Result<(), LabError> {
    for i in members {
        let what = format!("{cells} cells at member {}", i + 1);
        until(&what, PATIENCE, || async {
            let held = lab.members[*i].counter("cells").await?;
            Ok(if held >= cells {
                Ok(())
            } else {
                Err(format!("{held} cells"))
            })
        })
        .await?;
    }
    Ok(())
}

/// Case 58: 20,000 new keys at member 1 reach the two others, and then nobody says much.
pub(super) async fn case_58_twenty_thousand_keys(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    const KEYS: usize = 20_000;
    let mut lab = Lab::start(programs, LabSpec::alike(3, &[rule("ip", 100, "d", "")])).await?;
    let start = Instant::now();
    lab.members[0].ask_each("ip", &keys("k", KEYS)).await?;
    checks.fact(
        "20,000 keys were asked for in",
        format!("{} ms", start.elapsed().as_millis()),
    );
    let start = Instant::now();
    wait_cells(&lab, &[1, 2], KEYS as u64).await?;
    // a snapshot may be 200 ms old
    let took_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    checks.within("then all were everywhere after, ms", took_ms, 0, 5_000);
    let start = Instant::now();
    let links = 6.0;
    let per_s = until("silence", PATIENCE, || async {
        let (before, from) = (sent_bytes(&lab).await?, Instant::now());
        // a rate is bytes over a time: this is the time
        tokio::time::sleep(WATCH).await;
        let bytes = sent_bytes(&lab).await? - before;
        let per_s = bytes as f64 / from.elapsed().as_secs_f64() / links;
        let quiet = per_s <= IDLE_BYTES_PER_S_MAX as f64;
        Ok(if quiet {
            Ok(per_s)
        } else {
            Err(format!("{per_s:.0} bytes/s per link"))
        })
    })
    .await?;
    checks.holds(
        "it is quiet with 20,000 live",
        true,
        format!("{per_s:.0} bytes/s per link"),
    );
    checks.fact(
        "seen after",
        format!("{:.1} s", start.elapsed().as_secs_f64()),
    );
    lab.check_health(checks).await
}

/// 100,000 rows are known to all; while two members are apart from the third, 1,000 new ones come
/// on each side and 1,000 old ones change.
pub(super) async fn heal_100_000_rows(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    const KEYS: usize = 100_000;
    const NEW: usize = 1_000;
    let mut spec = LabSpec::alike(3, &[rule("ip", 100, "d", "")]);
    for member in &mut spec.members {
        member.table_bytes = "32m";
    }
    let mut lab = Lab::start(programs, spec).await?;
    let old = keys("k", KEYS);
    lab.members[0].ask_each("ip", &old).await?;
    wait_cells(&lab, &[0, 1, 2], KEYS as u64).await?;
    lab.net.set_faults(&cut(&[0, 1], &[2]))?;
    lab.wait_peers(&[2], 0, PATIENCE).await?;
    lab.members[0].ask_each("ip", &keys("left", NEW)).await?;
    lab.members[2].ask_each("ip", &keys("right", NEW)).await?;
    // of these the third has rows of its own, and hears later how much more they were used
    lab.members[2].ask_each("ip", &old[..NEW]).await?;
    lab.members[0].ask_each("ip", &old[..NEW]).await?;
    let before = sent_bytes(&lab).await?;
    lab.net.set_faults(&[])?;
    let start = Instant::now();
    let cells = (KEYS + 2 * NEW) as u64;
    wait_cells(&lab, &[0, 1, 2], cells).await?;
    for key in [&old[0], &old[NEW / 2], &old[NEW - 1]] {
        lab.wait_left(&[0, 2], ("ip", key), 97, PATIENCE).await?;
    }
    let took_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    checks.within("healed after, ms", took_ms, 0, 5_000);
    checks.fact(
        "bytes of all members meanwhile",
        sent_bytes(&lab).await? - before,
    );
    lab.check_health(checks).await
}
