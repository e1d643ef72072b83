//! When a variable counts as true.
//!
//! I own the one reading of conditions (`except_if=$var`). I never fail: a value is one of both.

/// Whether a value is set and none of `0`, `false`, `off`, `no`, in any case.
pub fn is_true(value: &[u8]) -> bool {
    let no: [&[u8]; 5] = [b"", b"0", b"false", b"off", b"no"];
    !no.iter().any(|word| value.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::is_true;

    #[test]
    fn words_of_denial_are_false_in_any_case() {
        for no in ["", "0", "false", "FALSE", "Off", "nO"] {
            assert!(!is_true(no.as_bytes()), "{no:?}");
        }
        for yes in ["1", "true", "on", "00", " ", "none", "\u{fffd}", "10.0.0.1"] {
            assert!(is_true(yes.as_bytes()), "{yes:?}");
        }
    }
}
