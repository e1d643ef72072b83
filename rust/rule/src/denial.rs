//! What a denied client reads.
//!
//! I own the bounds of a rule's own body. Programs whose front end makes its own pages ignore it.

use crate::duration::shorten;
use crate::error::RuleError;
use crate::limits::{MAX_CONTENT_TYPE_BYTES, MAX_RAW_BODY_BYTES};

/// The body of a rule's denials.
// spec: rule-31
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The text, at most [`MAX_RAW_BODY_BYTES`].
    pub body: String,
    /// Value of `content-type`, visible ASCII and spaces; the front end's choice when `None`.
    pub content_type: Option<String>,
}

impl Denial {
    /// Checks both.
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
            body: body.to_owned(),
            content_type: content_type.map(str::to_owned),
        })
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
}
