//! Whether two doors gave the same answer.
//!
//! Owns: what "the same" means. Promises: statuses, every header that Gabion is the author of, and
//! the bodies of denials are compared; moments may differ by what lies between two requests. Never:
//! looks at what only one proxy adds for itself (`server`, `date`, `x-envoy-*`).

use super::Answer;

/// Headers whose text must be equal.
const EQUAL: [&str; 7] = [
    "content-type",
    "docker-distribution-api-version",
    "ratelimit-name",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "ratelimit",
];
/// Headers that count seconds.
const SECONDS: [&str; 2] = ["retry-after", "x-ratelimit-reset"];
/// How far apart the seconds of two requests may be that were sent one after the other.
const BETWEEN_S: u64 = 2;
/// A token bucket keeps time in ticks that make its rate exact to 0.1 %: at a bound between two of
/// them the wait of a slow bucket changes by that share (9 s of 10,000).
const TICK_SHARE: u64 = 1000;

/// Compares two answers.
///
/// # Errors
/// What differs.
pub fn same(one: &Answer, other: &Answer) -> Result<(), String> {
    if one.status != other.status {
        return Err(format!("status {} and {}", one.status, other.status));
    }
    for name in EQUAL {
        let limited = one.status == 429;
        if name == "content-type" && !limited {
            continue;
        }
        let (a, b) = (without_time(one, name), without_time(other, name));
        if a != b {
            return Err(format!("{name}: {a:?} and {b:?}"));
        }
    }
    for name in SECONDS {
        let seconds = |answer: &Answer| answer.header(name).map(|text| text.parse::<u64>());
        match (seconds(one), seconds(other)) {
            (None, None) => {}
            (Some(Ok(a)), Some(Ok(b))) if a.abs_diff(b) <= BETWEEN_S + a.max(b) / TICK_SHARE => {}
            (a, b) => return Err(format!("{name}: {a:?} and {b:?}")),
        }
    }
    if one.status == 429 && one.body != other.body {
        return Err(format!("body {:?} and {:?}", one.body, other.body));
    }
    Ok(())
}

/// A header without the seconds in it (`ratelimit: "rule";r=4;t=30`).
fn without_time<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let text = answer.header(name)?;
    match name {
        "ratelimit" => Some(text.split(";t=").next().unwrap_or(text)),
        _ => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, name: &str, value: &str, body: &str) -> Answer {
        Answer {
            status,
            headers: vec![(name.to_owned(), value.to_owned())],
            body: body.to_owned(),
        }
    }

    #[test]
    fn what_may_differ_and_what_may_not() {
        let one = answer(429, "retry-after", "30", "later");
        assert_eq!(
            same(&one, &answer(429, "retry-after", "29", "later")),
            Ok(())
        );
        assert!(same(&one, &answer(429, "retry-after", "20", "later")).is_err());
        assert!(same(&one, &answer(429, "retry-after", "30", "now")).is_err());
        assert!(same(&one, &answer(200, "retry-after", "30", "later")).is_err());
        let named = answer(429, "ratelimit-name", "a", "");
        assert!(same(&named, &answer(429, "ratelimit-name", "b", "")).is_err());
        assert!(same(&named, &answer(429, "x-other", "b", "")).is_err());
        let left = answer(200, "ratelimit", "\"a\";r=4;t=30", "");
        assert_eq!(
            same(&left, &answer(200, "ratelimit", "\"a\";r=4;t=29", "")),
            Ok(())
        );
        assert!(same(&left, &answer(200, "ratelimit", "\"a\";r=3;t=30", "")).is_err());
    }
}
