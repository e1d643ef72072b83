//! What scenarios found, in one table.
//!
//! Owns: the words of the checks that all scenarios share. Promises: of several times in a scenario
//! the table has the longest. Never: judges.

use std::fmt::Write as _;

use gabion_netlab::checks::{Checks, End};

/// From the slice to the peer.
pub const PEER: &str = "a new pod is everyone's peer after its slice, ms";
/// From the peer to the counts.
pub const COUNTS: &str = "then counts are the same after, ms";
/// From the slice to silence.
pub const SILENT: &str = "a pod that left is last sent to after, ms";
/// In all, of the limit.
pub const ADMITTED: &str = "admitted in all";
/// Requests that were denied although there was room.
pub const DENIED: &str = "denied under the limit";
/// Requests without an answer.
pub const ERRORS: &str = "requests in error";
/// The whole scenario.
pub const TOOK: &str = "took";

/// The largest number that lines of this name begin with.
fn most(checks: &Checks, what: &str) -> String {
    let lines = checks.lines.iter().filter(|line| line.what == what);
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse::<u64>().ok()
    };
    let most = lines.filter_map(|line| number(&line.found)).max();
    most.map_or_else(|| "-".to_owned(), |most| most.to_string())
}

/// One row for each scenario, as Markdown.
pub fn table(found: &[(&str, Checks, End)]) -> String {
    let mut text = String::from(
        "| scenario | peer after, ms | counts after, ms | silent after, ms | admitted | \
         denied wrongly | errors | took, s | |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, checks, end) in found {
        let _ = write!(text, "| {name} |");
        for what in [PEER, COUNTS, SILENT, ADMITTED, DENIED, ERRORS, TOOK] {
            let _ = write!(text, " {} |", most(checks, what));
        }
        text.push_str(match end {
            End::Holds => " holds |\n",
            End::Fails => " FAILS |\n",
            End::NotRun => " not run |\n",
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_a_scenario_is_in_its_row() {
        let mut checks = Checks::default();
        checks.within(PEER, 12, 0, 1_000);
        checks.within(PEER, 40, 0, 1_000);
        checks.fact(TOOK, "3.4 s");
        let text = table(&[("mixed", checks, End::Holds)]);
        let row = "| mixed | 40 | - | - | - | - | - | 3 | holds |";
        assert!(text.ends_with(&format!("{row}\n")), "{text}");
    }
}
