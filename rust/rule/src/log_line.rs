//! What a log line about a rule's denials says in the operator's own words.
//!
//! I own the bounds of its message and fields. I promise that a field's name never needs quoting
//! and is none that such lines have anyway. I never write a line.

use arrayvec::ArrayVec;

use crate::duration::shorten;
use crate::error::RuleError;
use crate::limits::{MAX_LOG_FIELDS, MAX_LOG_MESSAGE_BYTES, MAX_LOG_NAME_BYTES};
use crate::request::Values;
use crate::table::{RuleIdx, RuleTable};
use crate::wants::NOTHING;

/// Names and values that a line shows.
pub type LogValues<'v> = ArrayVec<(&'v str, &'v [u8]), MAX_LOG_FIELDS>;

/// Names of what a line says anyway.
const TAKEN: [&str; 15] = [
    "ts",
    "timestamp",
    "level",
    "target",
    "msg",
    "message",
    "rule",
    "domain",
    "key",
    "hits",
    "used",
    "limit",
    "reset_s",
    "suppressed",
    "suppressed_lines",
];

/// A rule's own message and fields, in its lines of the denial log.
// spec: pol-21
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLine {
    /// The message; the front end's own when `None`.
    pub message: Option<String>,
    /// Names of the attributes that are shown first.
    pub fields: Vec<String>,
}

impl LogLine {
    /// All that is wrong with it.
    pub(crate) fn faults(&self) -> Vec<RuleError> {
        let setting = "log";
        let mut faults = Vec::new();
        let mut malformed = |text: &str, why: String, hint| {
            faults.push(RuleError::Malformed {
                setting,
                text: shorten(text),
                why,
                hint,
            });
        };
        if let Some(message) = &self.message {
            let good = (1..=MAX_LOG_MESSAGE_BYTES).contains(&message.len());
            if !good || message.chars().any(char::is_control) {
                let why = format!(
                    "a message has 1 to {MAX_LOG_MESSAGE_BYTES} bytes and no control characters"
                );
                malformed(message, why, "a message like \"rate limit exceeded\"");
            }
        }
        for (at, name) in self.fields.iter().enumerate() {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
            let fits = (1..=MAX_LOG_NAME_BYTES).contains(&name.len());
            if !fits || !name.bytes().all(plain) {
                let why = format!(
                    "a field has a name of 1 to {MAX_LOG_NAME_BYTES} letters, digits, _, - and ."
                );
                malformed(name, why, "a derived attribute with such a name");
            } else if TAKEN.contains(&name.as_str()) || self.fields[..at].contains(name) {
                let why = "the line has a field of this name already".to_owned();
                malformed(
                    name,
                    why,
                    "another attribute, or a derived one of another name",
                );
            }
        }
        if self.fields.len() > MAX_LOG_FIELDS {
            faults.push(RuleError::OutOfRange {
                setting,
                text: format!("{} fields", self.fields.len()),
                why: format!("a rule shows at most {MAX_LOG_FIELDS}"),
            });
        }
        faults
    }
}

impl RuleTable {
    /// What the log shows of a request that a rule denied: the attributes that are there, in the
    /// order of the rule. Allocates nothing.
    // spec: pol-21
    pub fn log_values<'v>(&'v self, index: RuleIdx, values: &'v impl Values) -> LogValues<'v> {
        let mut shown = LogValues::new();
        let line = self.rule(index).and_then(|rule| rule.log.as_ref());
        let wants = self.mark(index).and_then(|mark| mark.wants.as_ref());
        for (at, name) in line.iter().flat_map(|line| &line.fields).enumerate() {
            // Rules that are asked with entries have none: these are found by their names.
            let found = wants.and_then(|wants| wants.log.get(at));
            let attribute = found.copied().unwrap_or(NOTHING);
            if let Some(value) = values.value(name.as_bytes(), attribute).value() {
                let room = shown.try_push((name, value));
                debug_assert!(room.is_ok(), "the fields of a rule are bounded");
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Found, Resolver};
    use crate::policy::{parse_limits, policy_to_yaml, Policy};
    use crate::request::Entries;

    const RULES: &str = r#"
attributes:
  client_ip: {client_address: {trusted_proxies: [127.0.0.1]}}
limits:
- name: request
  domain: d
  match: request
  descriptors: []
  rate: 1r/s
  log: {message: rate limit exceeded, fields: [client_ip, user, path]}
- {name: entries, domain: d, descriptors: [{key: path}], rate: 1r/s, log: {fields: [path]}}
- {name: silent, domain: d, descriptors: [{key: x}], rate: 1r/s, log: {message: no}}
"#;

    #[test]
    fn a_rule_shows_what_is_there_in_its_order() {
        let read = parse_limits("p.yaml", RULES).unwrap();
        let printed = parse_limits("p.yaml", &policy_to_yaml(&read)).unwrap();
        let lines = |policy: &Policy| {
            let rules = policy.rules.iter();
            rules.map(|rule| rule.log.clone()).collect::<Vec<_>>()
        };
        assert_eq!(lines(&printed), lines(&read));
        assert_eq!(
            read.rules[2].log.as_ref().unwrap().message.as_deref(),
            Some("no")
        );
        let table = RuleTable::with_attributes(read.rules, &read.attributes).unwrap();
        let source = |slot: u16| match table.sources().iter().nth(usize::from(slot)).unwrap() {
            b"peer" => Found::Value(b"127.0.0.1"),
            b"forwarded" => Found::Value(b"203.0.113.50"),
            b"path" => Found::Value(b"/v2/"),
            _ => Found::Absent,
        };
        let values = Resolver::new(table.attributes(), &source);
        let expected: [(&str, &[u8]); 2] = [("client_ip", b"203.0.113.50"), ("path", b"/v2/")];
        assert_eq!(table.log_values(0, &values)[..], expected);
        let entries: [(&[u8], &[u8]); 1] = [(b"path", b"/x?y")];
        let entries = Entries {
            entries: &entries,
            has_query: true,
        };
        assert_eq!(table.log_values(1, &entries)[..], [("path", &b"/x"[..])]);
        assert!(table.log_values(2, &entries).is_empty());
    }

    #[test]
    fn a_rule_cannot_show_what_it_never_sees() {
        let yaml = "limits:\n- {name: a, domain: d, descriptors: [{key: path}], rate: 1r/s, \
                    log: {fields: [paht]}}\n- {name: b, domain: d, match: request, rate: 1r/s, \
                    descriptors: [], log: {fields: [rule], mesage: x}}\n";
        let errors = parse_limits("p.yaml", yaml).unwrap_err();
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(errors.len(), 3, "{errors:#?}");
        assert!(
            errors[0].starts_with("p.yaml:2:79: limits[0].log: "),
            "{errors:#?}"
        );
        assert!(errors[0].contains("did you mean path?"), "{errors:#?}");
        assert!(
            errors.iter().any(|e| e.contains("did you mean message?")),
            "{errors:#?}"
        );
    }

    #[test]
    fn a_line_stays_one_line_with_each_field_once() {
        let line = |message: Option<&str>, fields: &[&str]| LogLine {
            message: message.map(str::to_owned),
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        };
        let good = line(
            Some("rate limit exceeded"),
            &["client_ip", "path", "x-y", "a.b"],
        );
        assert_eq!(good.faults(), []);
        for bad in [
            line(Some(""), &[]),
            line(Some("a\nb"), &[]),
            line(Some(&"x".repeat(MAX_LOG_MESSAGE_BYTES + 1)), &[]),
            line(None, &["rule"]),
            line(None, &["a b"]),
            line(None, &["a=b"]),
            line(None, &[""]),
            line(None, &["a", "a"]),
            line(None, &["a", "b", "c", "d", "e"]),
        ] {
            let faults = bad.faults();
            assert_eq!(faults.len(), 1, "{bad:?}: {faults:?}");
            assert_eq!(faults[0].setting(), "log");
        }
    }
}
