//! Figures and how they are shown.

use std::io::Write;
use std::path::Path;

use serde::Serialize;

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured, and under which conditions.
    pub name: String,
    /// The value; `None` when it could not be measured.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: &'static str,
    /// The bar, such as `<= 250`; `None` for a figure that is only stated.
    pub bar: Option<String>,
    /// Whether the bar holds; `None` without a bar.
    pub holds: Option<bool>,
}

/// The direction of a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Exactly this.
    Exactly(f64),
}

impl Figure {
    /// A figure that is only stated.
    pub fn stated(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure {
            name: name.into(),
            value: Some(value),
            unit,
            bar: None,
            holds: None,
        }
    }

    /// A figure held against a bar.
    pub fn barred(name: impl Into<String>, value: f64, unit: &'static str, bar: Bar) -> Figure {
        let (text, holds) = match bar {
            Bar::AtMost(max) => (format!("<= {}", plain(max)), value <= max),
            Bar::AtLeast(min) => (format!(">= {}", plain(min)), value >= min),
            #[allow(clippy::float_cmp)] // counts
            Bar::Exactly(want) => (format!("= {}", plain(want)), value == want),
        };
        let (bar, holds) = (Some(text), Some(holds));
        Figure {
            name: name.into(),
            value: Some(value),
            unit,
            bar,
            holds,
        }
    }

    /// A figure that could not be measured: its bar does not hold.
    pub fn missing(name: impl Into<String>, why: &impl std::fmt::Display) -> Figure {
        let bar = Some(format!("not measured: {why}"));
        Figure {
            name: name.into(),
            value: None,
            unit: "",
            bar,
            holds: Some(false),
        }
    }
}

fn plain(value: f64) -> String {
    if value.abs() >= 1e6 {
        format!("{value:.3e}")
    } else {
        format!("{value}")
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{value:.3e}"),
        v if v >= 100.0 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// All figures of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Takes a figure and prints it at once, so that a long run shows its progress.
    pub fn add(&mut self, figure: Figure) {
        let value = figure.value.map_or_else(|| "-".to_owned(), shown);
        let verdict = match figure.holds {
            Some(true) => "holds",
            Some(false) => "FAILS",
            None => "",
        };
        let bar = figure.bar.as_deref().unwrap_or("");
        println!(
            "{:<66} {value:>10} {:<14} {bar:<12} {verdict}",
            figure.name, figure.unit
        );
        let _ = std::io::stdout().flush();
        self.figures.push(figure);
    }

    /// Takes the figures of one measurement, or says why there are none.
    pub fn take(&mut self, name: &str, figures: Result<Vec<Figure>, crate::BenchError>) {
        match figures {
            Ok(figures) => figures.into_iter().for_each(|figure| self.add(figure)),
            Err(why) => self.add(Figure::missing(name, &why)),
        }
    }

    /// How many bars do not hold.
    pub fn failures(&self) -> usize {
        self.figures
            .iter()
            .filter(|figure| figure.holds == Some(false))
            .count()
    }

    /// Writes all figures as a JSON list.
    ///
    /// # Errors
    /// What the system says about the file.
    pub fn write_json(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(&self.figures).map_err(std::io::Error::other)?;
        std::fs::write(path, text + "\n")
    }
}

/// The value below which `share` (0 to 1) of the samples lie; `None` for no samples. Sorts them.
pub fn percentile<T: Ord + Copy>(samples: &mut [T], share: f64) -> Option<T> {
    samples.sort_unstable();
    let last = samples.len().checked_sub(1)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 0..=last
    let at = (share.clamp(0.0, 1.0) * last as f64).round() as usize;
    samples.get(at).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_holds_at_its_edge_and_fails_beyond_it() {
        let holds = |value, bar| Figure::barred("x", value, "", bar).holds;
        assert_eq!(holds(250.0, Bar::AtMost(250.0)), Some(true));
        assert_eq!(holds(250.1, Bar::AtMost(250.0)), Some(false));
        assert_eq!(holds(0.85, Bar::AtLeast(0.85)), Some(true));
        assert_eq!(holds(0.84, Bar::AtLeast(0.85)), Some(false));
        assert_eq!(holds(1000.0, Bar::Exactly(1000.0)), Some(true));
        assert_eq!(holds(1001.0, Bar::Exactly(1000.0)), Some(false));
        assert_eq!(holds(f64::NAN, Bar::AtMost(1.0)), Some(false));
    }

    #[test]
    fn what_was_not_measured_is_a_failure_and_shows_why() {
        let mut report = Report::default();
        report.take("speed", Err(crate::BenchError::Void("no room".to_owned())));
        report.add(Figure::stated("size", 3.0, "bytes"));
        assert_eq!(report.failures(), 1);
        assert!(report.figures[0]
            .bar
            .as_deref()
            .unwrap()
            .contains("no room"));
        assert_eq!(report.figures[0].value, None);
    }

    #[test]
    fn percentiles_are_of_the_samples() {
        let mut samples: Vec<u32> = (0..=100).rev().collect();
        assert_eq!(percentile(&mut samples, 0.99), Some(99));
        assert_eq!(percentile(&mut samples, 0.0), Some(0));
        assert_eq!(percentile(&mut samples, 1.0), Some(100));
        assert_eq!(percentile::<u32>(&mut [], 0.5), None);
    }
}
