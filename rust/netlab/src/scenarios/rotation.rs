//! New gossip keys without a gap.

use crate::checks::Checks;
use crate::lab::{most_admitted, one, rule, Lab, LabSpec, Programs};
use crate::limits::{HEAL_MAX, PATIENCE};
use crate::LabError;

const LIMIT: u64 = 4_000;
/// The old key and the new one, as a key file says them.
const KEYS: [(u8, &str); 2] = [(1, "5a"), (2, "c3")];
/// What each member's file holds, step by step: indices of [`KEYS`].
const STEPS: [(&str, &[usize]); 3] = [
    ("the new key is accepted", &[0, 1]),
    ("the new key signs", &[1, 0]),
    ("the old key is gone", &[1]),
];
/// Requests per second meanwhile.
const PER_S: f64 = 60.0;
/// Frames to a member that reloads are bound to the session it had: so many may come too late, for
/// each reload and peer.
const LATE_FRAMES: u64 = 10;

/// Frames that member `i` dropped for a key it does not know, and for a signature that does not
/// match. Counters begin anew with a reload.
async fn dropped(lab: &Lab, i: usize) -> Result<(u64, u64), LabError> {
    let member = &lab.members[i];
    let mut strange = 0;
    for cause in ["unknown_key", "not_signed", "unexpected_signature"] {
        strange += member.counter(cause).await?;
    }
    Ok((strange, member.counter("bad_mac").await?))
}

/// Writes a member's key file, lets it reload, and waits until it has.
async fn change_keys(lab: &Lab, i: usize, keys: &[(u8, &str)]) -> Result<(), LabError> {
    lab.set_keys(i, keys)?;
    lab.members[i].reload().await
}

/// Three members, the second of them nginx: old, old and new, new and old, new.
pub(super) async fn keys_change_under_load(
    programs: &Programs,
    checks: &mut Checks,
) -> Result<(), LabError> {
    let rules = [rule("wide", LIMIT, "d", ""), rule("probe", 1_000, "d", "")];
    let mut spec = LabSpec::alike(3, &rules).with_nginx(&[1]);
    spec.signed = Some(KEYS[0].1);
    let mut lab = Lab::start(programs, spec).await?;
    let all = lab.all();
    let (mut strange, mut late, mut probes, mut count) = (0, 0, 3, 0);
    for i in &all {
        // who has a row of the key shows what it hears
        lab.members[*i].ask("probe", "k", 1).await?;
    }
    let (mut admitted, mut denied, mut errors) = (0, 0, 0);
    for (what, keys) in STEPS {
        for i in &all {
            let (a, b) = dropped(&lab, *i).await?;
            (strange, late) = (strange + a, late + b);
            let load = lab.load(&all, ("wide", one("k")), PER_S, 2.0);
            let pairs: Vec<_> = keys.iter().map(|key| KEYS[*key]).collect();
            let change = change_keys(&lab, *i, &pairs);
            let (load, changed) = tokio::join!(load, change);
            changed?;
            let load = load?;
            admitted += load.admitted;
            denied += load.denied;
            errors += load.error_count;
            // both ways: a hit of the one that changed, and one of another
            for by in [*i, (*i + 1) % 3] {
                lab.members[by].ask("probe", "k", 1).await?;
                probes += 1;
                let left = 1_000 - probes;
                lab.wait_left(&all, ("probe", "k"), left, HEAL_MAX).await?;
            }
            count += 1;
        }
        lab.wait_left(&all, ("wide", "k"), LIMIT - admitted, HEAL_MAX)
            .await?;
        checks.holds(format!("{what}: all counts are everywhere"), true, admitted);
    }
    for i in &all {
        let (a, b) = dropped(&lab, *i).await?;
        (strange, late) = (strange + a, late + b);
    }
    checks.holds("nobody met a key it does not know", strange == 0, strange);
    checks.within(
        "frames bound to a session that was over",
        late,
        0,
        count * 2 * LATE_FRAMES,
    );
    checks.holds("nobody was denied under the limit", denied == 0, denied);
    checks.holds("every request was answered", errors == 0, errors);
    lab.wait_connected(2, PATIENCE).await?;
    let rest = lab.load(&all, ("wide", one("k")), 800.0, 6.0).await?;
    let sum = admitted + rest.admitted;
    checks.within("admitted in all", sum, LIMIT, most_admitted(LIMIT, 3));
    no_key_is_shown(&lab, checks).await?;
    lab.check_health(checks).await
}

/// No key stands in any log or state, as bytes, in hexadecimal or in base64.
async fn no_key_is_shown(lab: &Lab, checks: &mut Checks) -> Result<(), LabError> {
    let mut said = String::new();
    for i in lab.all() {
        said += &lab.log(i);
        said += &lab.members[i].snapshot().await?.to_string();
    }
    let mut found = 0;
    // eight bytes of each key: `Wl..` and `w8..` are what base64 makes of them
    for (hex, base64) in [("5a", "WlpaWlpa"), ("c3", "w8PDw8PD")] {
        for form in [
            hex.repeat(8),
            hex.repeat(8).to_uppercase(),
            base64.to_owned(),
        ] {
            found += said.matches(&form).count();
        }
    }
    found += said.matches(&"Z".repeat(8)).count();
    let looked = format!(
        "{found} times in {} characters of logs and states",
        said.len()
    );
    checks.holds("no key is shown", found == 0, looked);
    Ok(())
}
