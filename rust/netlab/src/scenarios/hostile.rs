//! Somebody who can send from the address of a member, and has listened.

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, until, Lab, LabSpec, Programs};
use crate::limits::PATIENCE;
use crate::relay::LinkFaults;
use crate::LabError;

const LIMIT: u64 = 1_000;

fn spec(key: Option<&'static str>) -> LabSpec {
    let mut spec = LabSpec::alike(3, &[rule("wide", LIMIT, "d", "")]);
    spec.links = Some(LinkFaults::default());
    spec.signed = key;
    spec
}

/// What member 1 tells member 2 in a cluster of the same name with another key, or none: frames
/// with 300 hits in them, well formed, that no member of the signed cluster has sent.
async fn foreign(programs: &Programs, key: Option<&'static str>) -> Result<Vec<Vec<u8>>, LabError> {
    let lab = Lab::start(programs, spec(key)).await?;
    lab.members[0].ask("wide", "k", 300).await?;
    lab.wait_left(&[1], ("wide", "k"), LIMIT - 300, PATIENCE)
        .await?;
    let relay = lab
        .relay
        .as_ref()
        .ok_or_else(|| LabError::odd("no relay"))?;
    relay.captured(0, 1)
}

/// Every frame, as it is, cut at some lengths, and with bits flipped.
fn spoilt(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut all = frames.to_vec();
    for frame in frames.iter().take(20) {
        for length in (0..frame.len()).step_by(3) {
            all.push(frame[..length].to_vec());
        }
        for byte in (0..frame.len()).step_by(2) {
            let mut flipped = frame.clone();
            flipped[byte] ^= 1 << (byte / 2 % 8);
            all.push(flipped);
        }
    }
    all
}

/// Sends `frames` to member 2 in the name of member 1, in portions that its socket holds.
async fn pour(lab: &Lab, frames: &[Vec<u8>]) -> Result<(), LabError> {
    let relay = lab
        .relay
        .as_ref()
        .ok_or_else(|| LabError::odd("no relay"))?;
    for some in frames.chunks(100) {
        let before = lab.members[1].counter("frames_in").await?;
        for frame in some {
            relay.forge(0, 1, frame).await?;
        }
        until("member 2 has read what was sent", PATIENCE, || async {
            let read = lab.members[1].counter("frames_in").await? - before;
            Ok(if read >= some.len() as u64 {
                Ok(())
            } else {
                Err(read.to_string())
            })
        })
        .await?;
    }
    Ok(())
}

/// Cases 50 and 59, with authentication: nothing changes, and each is counted.
pub(super) async fn case_50_59_forged_and_replayed(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let unsigned = foreign(programs, None).await?;
    let wrong_key = foreign(programs, Some("77")).await?;
    let mut lab = Lab::start(programs, spec(Some("5a"))).await?;
    let all = lab.all();
    let first = lab.load(&all, ("wide", one("k")), 100.0, 2.0).await?;
    let left = LIMIT - first.admitted;
    lab.wait_left(&all, ("wide", "k"), left, PATIENCE).await?;
    let relay = lab
        .relay
        .as_ref()
        .ok_or_else(|| LabError::odd("no relay"))?;
    let own = relay.captured(0, 1)?;
    for (what, frames, causes) in [
        (
            "frames without a signature",
            spoilt(&unsigned),
            &["not_signed"][..],
        ),
        (
            "frames signed with a wrong key",
            spoilt(&wrong_key),
            &["bad_mac"][..],
        ),
        (
            "replayed, cut and flipped frames",
            spoilt(&own),
            &["bad_mac", "replayed"][..],
        ),
    ] {
        pour(&lab, &frames).await?;
        checks.fact(what, frames.len());
        for cause in causes {
            let counted = lab.members[1].counter(cause).await?;
            checks.holds(
                format!("{what} are counted as {cause}"),
                counted > 0,
                counted,
            );
        }
        for i in &all {
            let now = lab.members[*i].left("wide", "k").await?;
            let what = format!("{what} change nothing at member {}", i + 1);
            checks.holds(what, now == left, format!("{now} left, as before: {left}"));
        }
    }
    lab.wait_connected(2, PATIENCE).await?;
    let rest = lab.load(&all, ("wide", one("k")), 400.0, 4.0).await?;
    let admitted = first.admitted + rest.admitted;
    checks.within("admitted in all", admitted, LIMIT, most_admitted(LIMIT, 3));
    lab.check_health(checks).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spoilt_frames_differ_from_the_real_ones() {
        let real = vec![vec![0xabu8; 60]];
        let all = spoilt(&real);
        assert_eq!(all[0], real[0]);
        assert_eq!(all.iter().filter(|frame| **frame == real[0]).count(), 1);
        assert_eq!(all.len(), 1 + 20 + 30);
    }
}
