//! The directives of `http`, `server` and `location`: which rules apply, and how a denial looks.
//!
//! I own their values and how a level inherits from the one above: as in `limit_req`, a level that
//! names rules replaces all of its parent's; each other directive is inherited on its own. I never
//! look names of rules up; that is the catalog's work once the whole file is read.

use gabion_admit::headers::Families;
use gabion_rule::policy::yaml::nearest;

use crate::error::ConfError;
use crate::limits::{REJECT_STATUS_DEFAULT, RULES_PER_REQUEST_MAX};

/// Severity of the line about a rejected request; a dry run's line is one step milder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The default, as with `limit_req`.
    Error,
    /// `warn`.
    Warn,
    /// `notice`.
    Notice,
    /// `info`.
    Info,
}

/// The names that one level gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// `gabion_limit off`.
    Off,
    /// Names, in order.
    Rules(Vec<String>),
}

/// The rules that pick their keys from a request, as one level says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// `gabion_domain off`.
    Off,
    /// All of this domain.
    Of(String),
}

/// The directives of one level; `None`: not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// `gabion on|off`.
    pub on: Option<bool>,
    /// `gabion_limit`.
    pub names: Option<Names>,
    /// `gabion_domain`.
    pub domain: Option<Domain>,
    /// `gabion_reject_status`.
    pub reject_status: Option<u16>,
    /// `gabion_headers`.
    pub headers: Option<Families>,
    /// `gabion_log_level`.
    pub log_level: Option<Severity>,
}

/// The directives that [`Level::apply`] knows, for nginx's table of commands.
pub const DIRECTIVES: [&str; 6] = [
    "gabion",
    "gabion_limit",
    "gabion_domain",
    "gabion_reject_status",
    "gabion_headers",
    "gabion_log_level",
];

impl Level {
    /// Takes one directive.
    ///
    /// # Errors
    /// What is wrong with it; nothing was taken.
    pub fn apply(&mut self, name: &str, args: &[&str]) -> Result<(), ConfError> {
        let bad = |value: &str, why: &str| Err(ConfError::new(name, value, why));
        let twice = match name {
            "gabion" => self.on.is_some(),
            "gabion_domain" => self.domain.is_some(),
            "gabion_reject_status" => self.reject_status.is_some(),
            "gabion_headers" => self.headers.is_some(),
            "gabion_log_level" => self.log_level.is_some(),
            _ => false,
        };
        if twice {
            return bad(
                &args.join(" "),
                "it was given at this level already; keep one of the two",
            );
        }
        match (name, args) {
            ("gabion", ["on"]) => self.on = Some(true),
            ("gabion", ["off"]) => self.on = Some(false),
            ("gabion", _) => return bad(&args.join(" "), "write gabion on or gabion off"),
            ("gabion_limit", _) => return self.limit(args),
            ("gabion_domain", ["off"]) => self.domain = Some(Domain::Off),
            ("gabion_domain", [""]) => {
                return bad("", "a domain of the rules file is expected, or off")
            }
            ("gabion_domain", [name]) => self.domain = Some(Domain::Of((*name).to_owned())),
            ("gabion_headers", _) => self.headers = Some(families(args)?),
            ("gabion_log_level", [word]) => self.log_level = Some(severity(word)?),
            ("gabion_reject_status", [text]) => {
                let digits = text.len() == 3 && text.bytes().all(|b| b.is_ascii_digit());
                let status = text.parse::<u16>().ok().filter(|_| digits);
                let Some(status) = status.filter(|s| (400..=599).contains(s)) else {
                    return bad(text, "a status from 400 to 599 is expected");
                };
                self.reject_status = Some(status);
            }
            _ => return bad(&args.join(" "), "exactly one value is expected"),
        }
        Ok(())
    }

    fn limit(&mut self, args: &[&str]) -> Result<(), ConfError> {
        let bad = |value: &str, why: String| Err(ConfError::new("gabion_limit", value, why));
        let off = args.contains(&"off");
        if off && (args.len() > 1 || self.names.is_some()) || !off && self.names == Some(Names::Off)
        {
            let why = "off stands alone: name rules or switch them off at one level, not both";
            return bad(&args.join(" "), why.into());
        }
        if off {
            self.names = Some(Names::Off);
            return Ok(());
        }
        let mut names = match self.names.take() {
            Some(Names::Rules(names)) => names,
            _ => Vec::new(),
        };
        for name in args {
            if names.iter().any(|known| known == name) {
                return bad(
                    name,
                    "the rule is named twice at this level; once is enough".into(),
                );
            }
            names.push((*name).to_owned());
        }
        if names.len() > RULES_PER_REQUEST_MAX {
            let why = format!("at most {RULES_PER_REQUEST_MAX} rules apply to one request");
            return bad(&args.join(" "), why);
        }
        self.names = Some(Names::Rules(names));
        Ok(())
    }

    /// Takes what this level does not give from the one above.
    pub fn inherit(&mut self, above: &Level) {
        self.on = self.on.or(above.on);
        if self.names.is_none() {
            self.names = above.names.clone();
        }
        if self.domain.is_none() {
            self.domain = above.domain.clone();
        }
        self.reject_status = self.reject_status.or(above.reject_status);
        self.headers = self.headers.or(above.headers);
        self.log_level = self.log_level.or(above.log_level);
    }

    /// Whether requests are looked at.
    pub fn is_on(&self) -> bool {
        self.on.unwrap_or(true)
    }

    /// Status of a rejection.
    pub fn status(&self) -> u16 {
        self.reject_status.unwrap_or(REJECT_STATUS_DEFAULT)
    }

    /// Headers that are sent.
    pub fn families(&self) -> Families {
        self.headers.unwrap_or(Families::ALL)
    }

    /// Severity of a rejection's log line.
    pub fn severity(&self) -> Severity {
        self.log_level.unwrap_or(Severity::Error)
    }
}

fn families(words: &[&str]) -> Result<Families, ConfError> {
    let known = ["x", "ietf", "retry_after", "name", "on", "off"];
    let mut sent = Families::NONE;
    for word in words {
        match *word {
            word if sent.add(word) => {}
            "off" if words.len() == 1 => {}
            "on" if words.len() == 1 => sent = Families::ALL,
            "on" | "off" => {
                let why = "it stands alone; or name families: x ietf retry_after name";
                return Err(ConfError::new("gabion_headers", *word, why));
            }
            _ => {
                let near = nearest(word, known);
                let near = near.map_or(String::new(), |n| format!("; did you mean {n}?"));
                let why = format!("it is none of x, ietf, retry_after, name, on, off{near}");
                return Err(ConfError::new("gabion_headers", *word, why));
            }
        }
    }
    Ok(sent)
}

fn severity(word: &str) -> Result<Severity, ConfError> {
    match word {
        "error" => Ok(Severity::Error),
        "warn" => Ok(Severity::Warn),
        "notice" => Ok(Severity::Notice),
        "info" => Ok(Severity::Info),
        _ => {
            let why = "it is none of info, notice, warn, error";
            Err(ConfError::new("gabion_log_level", word, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(lines: &[&str]) -> Result<Level, ConfError> {
        let mut level = Level::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            level.apply(words[0], &words[1..])?;
        }
        Ok(level)
    }

    #[test]
    fn a_level_replaces_its_parents_rules_and_inherits_the_rest() {
        let above = level(&["gabion_limit a b", "gabion_reject_status 503", "gabion off"]).unwrap();
        let mut child = level(&["gabion_limit c", "gabion on"]).unwrap();
        child.inherit(&above);
        assert_eq!(child.names, Some(Names::Rules(vec!["c".into()])));
        assert_eq!((child.status(), child.is_on()), (503, true));
        let domains = level(&["gabion_domain edge"]).unwrap();
        let mut off = level(&["gabion_domain off"]).unwrap();
        off.inherit(&domains);
        assert_eq!(off.domain, Some(Domain::Off));
        child.inherit(&domains);
        assert_eq!(child.domain, Some(Domain::Of("edge".into())));
        let mut other = Level::default();
        other.inherit(&above);
        assert_eq!(other, above);
        let mut off = level(&["gabion_limit off"]).unwrap();
        off.inherit(&above);
        assert_eq!(off.names, Some(Names::Off));
    }

    #[test]
    fn several_lines_of_one_level_add_up() {
        let level = level(&["gabion_limit a", "gabion_limit b c"]).unwrap();
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(level.names, Some(Names::Rules(names)));
    }

    #[test]
    fn families_of_headers() {
        let of = |line: &str| level(&[line]).unwrap().families();
        assert_eq!(of("gabion on"), Families::ALL);
        assert_eq!(of("gabion_headers off"), Families::NONE);
        let some = of("gabion_headers x retry_after");
        assert!(some.x && some.retry_after && !some.ietf && !some.name);
    }

    #[test]
    fn every_wrong_value_is_refused_with_what_to_write() {
        for (lines, says) in [
            (vec!["gabion maybe"], "write gabion on or gabion off"),
            (
                vec!["gabion on", "gabion off"],
                "given at this level already",
            ),
            (vec!["gabion_limit a off"], "off stands alone"),
            (
                vec!["gabion_limit off", "gabion_limit a"],
                "off stands alone",
            ),
            (
                vec!["gabion_limit a", "gabion_limit off"],
                "off stands alone",
            ),
            (vec!["gabion_limit a a"], "named twice"),
            (
                vec!["gabion_limit a b c d e f g h i j k l m n o p q"],
                "at most 16",
            ),
            (vec!["gabion_reject_status 200"], "from 400 to 599"),
            (vec!["gabion_reject_status +42"], "from 400 to 599"),
            (vec!["gabion_reject_status 600"], "from 400 to 599"),
            (vec!["gabion_headers itf"], "did you mean ietf?"),
            (vec!["gabion_headers x off"], "stands alone"),
            (vec!["gabion_log_level debug"], "none of info"),
            (vec!["gabion_domain a b"], "exactly one value"),
            (vec!["gabion_domain a", "gabion_domain off"], "already"),
        ] {
            let error = level(&lines).unwrap_err().to_string();
            assert!(error.contains(says), "{lines:?}: {error}");
            assert!(error.starts_with("\"gabion"), "{error}");
        }
    }
}
