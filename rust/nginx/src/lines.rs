//! Text of log lines that holds what clients sent.
//!
//! I promise that no value ends a line, begins a field or grows it without bound.

use std::fmt::Write as _;

use crate::limits::LOGGED_VALUE_BYTES_MAX;

/// ` name=value` for each value. Bytes that are no plain visible character are written `\xNN`; a
/// value longer than [`LOGGED_VALUE_BYTES_MAX`] ends in `...`.
pub fn fields<'v>(values: impl IntoIterator<Item = (&'v str, &'v [u8])>) -> String {
    let mut text = String::new();
    for (name, value) in values {
        // Writing into a string cannot fail.
        let _ = write!(text, " {name}=");
        for &byte in value.iter().take(LOGGED_VALUE_BYTES_MAX) {
            let _ = match byte {
                b'"' | b'\\' | b' ' => write!(text, "\\x{byte:02x}"),
                _ if byte.is_ascii_graphic() => write!(text, "{}", char::from(byte)),
                _ => write!(text, "\\x{byte:02x}"),
            };
        }
        if value.len() > LOGGED_VALUE_BYTES_MAX {
            text.push_str("...");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_within_its_field_and_its_line() {
        let values: [(&str, &[u8]); 2] = [("ip", b"2001:db8::/64"), ("path", b"/a b\n\"\xff\\")];
        let expected = r#" ip=2001:db8::/64 path=/a\x20b\x0a\x22\xff\x5c"#;
        assert_eq!(fields(values), expected);
        let long = vec![b'x'; LOGGED_VALUE_BYTES_MAX + 1];
        assert!(fields([("k", &long[..])]).ends_with("x..."));
        assert_eq!(fields([]), "");
    }
}
