//! What a denied client reads.
//!
//! I own the bounds of a rule's own body and headers. I promise that no value holds anything that
//! could end a header or begin another. I never send anything.

use crate::duration::shorten;
use crate::error::RuleError;
use crate::limits::{
    MAX_CONTENT_TYPE_BYTES, MAX_RAW_BODY_BYTES, MAX_RAW_HEADERS, MAX_RAW_HEADER_BYTES,
};

/// What a rule's denials carry: at least one of body and headers.
// spec: rule-31, pol-18
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// The text, 1 to [`MAX_RAW_BODY_BYTES`]; the front end's own page when `None`.
    pub body: Option<String>,
    /// Value of `content-type`, visible ASCII and spaces; the front end's choice when `None`.
    pub content_type: Option<String>,
    /// Names and values of headers, in the order written: names are tokens, values visible ASCII,
    /// spaces and tabs.
    pub headers: Vec<(String, String)>,
}

/// Headers that the body, the connection or the limiter itself decides.
const NOT_OURS: [&str; 7] = [
    "connection",
    "content-length",
    "content-type",
    "retry-after",
    "server",
    "transfer-encoding",
    "upgrade",
];

impl Denial {
    /// Checks a body and its type.
    ///
    /// # Errors
    /// What is wrong, with the setting that says so.
    pub fn new(body: &str, content_type: Option<&str>) -> Result<Denial, RuleError> {
        if body.is_empty() || body.len() > MAX_RAW_BODY_BYTES {
            return Err(RuleError::OutOfRange {
                setting: "raw_body",
                text: shorten(body),
                why: format!("it is 1 to {MAX_RAW_BODY_BYTES} bytes; leave it out for no body"),
            });
        }
        let plain = |text: &str| {
            let good = |b: u8| b == b' ' || b.is_ascii_graphic();
            (1..=MAX_CONTENT_TYPE_BYTES).contains(&text.len()) && text.bytes().all(good)
        };
        if let Some(text) = content_type.filter(|text| !plain(text)) {
            return Err(RuleError::Malformed {
                setting: "raw_body_type",
                text: shorten(text),
                why: format!("it is not 1 to {MAX_CONTENT_TYPE_BYTES} visible ASCII characters"),
                hint: "a media type like application/json",
            });
        }
        Ok(Denial {
            body: Some(body.to_owned()),
            content_type: content_type.map(str::to_owned),
            headers: Vec::new(),
        })
    }

    /// Adds a header.
    ///
    /// # Errors
    /// What is wrong with it; nothing was added.
    // spec: pol-18
    pub fn add_header(&mut self, name: &str, value: &str) -> Result<(), RuleError> {
        let bad = |text: &str, why: String, hint| RuleError::Malformed {
            setting: "raw_headers",
            text: shorten(text),
            why,
            hint,
        };
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let fits = |text: &str| (1..=MAX_RAW_HEADER_BYTES).contains(&text.len());
        if !fits(name) || !name.bytes().all(token) {
            let why = "it is no name of a header".to_owned();
            return Err(bad(name, why, "a name like X-Registry"));
        }
        let lower = name.to_ascii_lowercase();
        if NOT_OURS.contains(&lower.as_str()) {
            let why = "this header is not a rule's to set".to_owned();
            return Err(bad(name, why, "another header; a body has raw_body_type"));
        }
        let good = |b: u8| b == b' ' || b == b'\t' || b.is_ascii_graphic();
        let is_padded = value.trim_matches([' ', '\t']) != value;
        if !fits(value) || is_padded || !value.bytes().all(good) {
            let why = format!("it is not 1 to {MAX_RAW_HEADER_BYTES} visible ASCII characters");
            return Err(bad(
                value,
                why,
                "a value on one line, without spaces around it",
            ));
        }
        if self
            .headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
        {
            let why = "it is given already".to_owned();
            return Err(bad(name, why, "each header once"));
        }
        if self.headers.len() == MAX_RAW_HEADERS {
            let why = format!("there are {MAX_RAW_HEADERS} already");
            return Err(bad(name, why, "fewer headers"));
        }
        self.headers.push((name.to_owned(), value.to_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_held() {
        assert!(Denial::new("slow down", None).is_ok());
        assert!(Denial::new("{}", Some("application/json; charset=utf-8")).is_ok());
        assert!(Denial::new(&"x".repeat(MAX_RAW_BODY_BYTES), None).is_ok());
        assert!(Denial::new(&"x".repeat(MAX_RAW_BODY_BYTES + 1), None).is_err());
        assert!(Denial::new("", None).is_err());
        for bad in ["", "text/plain\r\nx: y", "t\u{e4}xt"] {
            let error = Denial::new("x", Some(bad)).unwrap_err();
            assert_eq!(error.setting(), "raw_body_type");
        }
    }

    #[test]
    fn headers_are_one_line_each_and_not_those_that_others_decide() {
        let mut denial = Denial::default();
        denial
            .add_header("Docker-Distribution-API-Version", "registry/2.0")
            .unwrap();
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("x", ""),
            ("x", "a\r\nb: c"),
            ("x", " a"),
            ("x", "\u{e4}"),
            ("Content-Length", "3"),
            ("retry-after", "3"),
            ("docker-distribution-api-version", "registry/2.0"),
        ] {
            let error = denial.add_header(name, value).unwrap_err();
            assert_eq!(error.setting(), "raw_headers", "{name}: {value}");
        }
        assert_eq!(denial.headers.len(), 1);
        for n in 1..MAX_RAW_HEADERS {
            denial.add_header(&format!("x-{n}"), "y z").unwrap();
        }
        assert!(denial.add_header("x-more", "y").is_err());
    }
}
