//! What a scenario found, for people and machines.
//!
//! Owns: the list of checks and facts of one scenario. Promises: a check that fails is never
//! forgotten. Never: stops a scenario.

use serde::Serialize;

/// One line of a report.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was looked at.
    pub what: String,
    /// What was found.
    pub found: String,
    /// Whether it is right; `None`: only stated.
    pub holds: Option<bool>,
}

/// All lines of one scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checks {
    /// In the order of the scenario.
    pub lines: Vec<Line>,
    /// Why it was not run at all, if it was not.
    pub not_run: Option<String>,
}

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Each check holds.
    Holds,
    /// One does not, or it could not be carried out.
    Fails,
    /// Something that it needs was not given.
    NotRun,
}

impl Checks {
    /// Something that only is stated.
    pub fn fact(&mut self, what: impl Into<String>, found: impl ToString) {
        self.add(what.into(), found.to_string(), None);
    }

    /// Something that must be so; `found` says what was seen.
    pub fn holds(&mut self, what: impl Into<String>, holds: bool, found: impl ToString) {
        self.add(what.into(), found.to_string(), Some(holds));
    }

    /// A number that must lie in a range, both ends included.
    pub fn within(&mut self, what: impl Into<String>, found: u64, least: u64, most: u64) {
        let shown = format!("{found} ({least} to {most})");
        self.add(what.into(), shown, Some((least..=most).contains(&found)));
    }

    /// It is not run, for want of this.
    pub fn not_run(&mut self, why: impl Into<String>) {
        self.not_run = Some(why.into());
    }

    /// How it ended, where nothing kept it from being carried out.
    pub fn end(&self) -> End {
        match (self.failures(), &self.not_run) {
            (0, None) => End::Holds,
            (0, Some(_)) => End::NotRun,
            _ => End::Fails,
        }
    }

    /// How many checks failed.
    pub fn failures(&self) -> usize {
        let failed = self.lines.iter().filter(|line| line.holds == Some(false));
        failed.count()
    }

    fn add(&mut self, what: String, found: String, holds: Option<bool>) {
        self.lines.push(Line { what, found, holds });
    }
}

impl std::fmt::Display for Checks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.lines {
            let mark = match line.holds {
                None => "     ",
                Some(true) => "holds",
                Some(false) => "FAILS",
            };
            writeln!(f, "  {mark}  {}: {}", line.what, line.found)?;
        }
        match &self.not_run {
            Some(why) => writeln!(f, "  not run: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_checks_that_fail_are_failures() {
        let mut checks = Checks::default();
        checks.fact("seed", 7);
        checks.within("admitted", 100, 100, 101);
        assert_eq!((checks.failures(), checks.end()), (0, End::Holds));
        checks.within("admitted", 102, 100, 101);
        checks.within("admitted", 99, 100, 101);
        checks.holds("alive", false, "ended");
        assert_eq!((checks.failures(), checks.end()), (3, End::Fails));
        let shown = checks.to_string();
        assert!(
            shown.contains("FAILS  admitted: 102 (100 to 101)"),
            "{shown}"
        );
        let mut checks = Checks::default();
        checks.not_run("no other release");
        assert_eq!(checks.end(), End::NotRun);
        assert_eq!(checks.to_string(), "  not run: no other release\n");
    }
}
