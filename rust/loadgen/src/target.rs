//! Where requests go, in which order.
//!
//! Owns: the list of targets and their weights. Promises: over `sum(weights)` consecutive requests
//! each target gets exactly its weight, spread evenly. Never: looks at answers.

use std::str::FromStr;

use crate::limits::{MAX_TARGETS, MAX_WEIGHT};

/// One destination: `http://host:port` and how large its share is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Scheme, host and port, without a trailing slash.
    pub url: String,
    /// Requests it gets for each round of all targets.
    pub weight: u32,
}

/// Why a target cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum TargetError {
    /// The text is not a target.
    #[error("target `{0}`: write http://HOST:PORT or http://HOST:PORT@WEIGHT (1 to {MAX_WEIGHT})")]
    Text(String),
    /// There are none, or too many.
    #[error("{0} targets: from 1 to {MAX_TARGETS} can be used in one run")]
    Count(usize),
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let fail = || TargetError::Text(text.to_owned());
        let (url, weight) = match text.rsplit_once('@') {
            Some((url, weight)) => (url, weight.parse().map_err(|_| fail())?),
            None => (text, 1),
        };
        let url = if url.contains("://") {
            url.to_owned()
        } else {
            format!("http://{url}")
        };
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(fail)?
            .trim_end_matches('/');
        let port = rest.rsplit_once(':').and_then(|(host, port)| {
            let ok = !host.is_empty() && !rest.contains('/');
            ok.then(|| port.parse::<u16>().ok()).flatten()
        });
        if port.is_none() || !(1..=MAX_WEIGHT).contains(&weight) {
            return Err(fail());
        }
        Ok(Target {
            url: format!("http://{rest}"),
            weight,
        })
    }
}

/// Smooth weighted round robin.
#[derive(Clone, Debug)]
pub struct Rotation {
    weights: Vec<i64>,
    credit: Vec<i64>,
    total: i64,
}

impl Rotation {
    /// A rotation over `targets`, starting at the first.
    ///
    /// # Errors
    /// No target, or more than [`MAX_TARGETS`].
    pub fn new(targets: &[Target]) -> Result<Rotation, TargetError> {
        if targets.is_empty() || targets.len() > MAX_TARGETS {
            return Err(TargetError::Count(targets.len()));
        }
        let weights: Vec<i64> = targets.iter().map(|t| i64::from(t.weight)).collect();
        let total = weights.iter().sum();
        Ok(Rotation {
            credit: vec![0; weights.len()],
            weights,
            total,
        })
    }

    /// Index of the target of the next request.
    pub fn next_target(&mut self) -> usize {
        let mut best = 0;
        for i in 0..self.credit.len() {
            self.credit[i] += self.weights[i];
            if self.credit[i] > self.credit[best] {
                best = i;
            }
        }
        self.credit[best] -= self.total;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_weights_are_round_robin() {
        let targets: Vec<Target> = ["a:1", "b:2", "c:3"]
            .iter()
            .map(|t| t.parse().unwrap())
            .collect();
        let mut rotation = Rotation::new(&targets).unwrap();
        let order: Vec<usize> = (0..6).map(|_| rotation.next_target()).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn weights_hold_exactly_in_each_round_and_are_spread() {
        let targets: Vec<Target> = ["http://a:1@5", "http://b:2", "c:3@2"]
            .iter()
            .map(|t| t.parse().unwrap())
            .collect();
        let mut rotation = Rotation::new(&targets).unwrap();
        for _ in 0..10 {
            let order: Vec<usize> = (0..8).map(|_| rotation.next_target()).collect();
            let count = |i| order.iter().filter(|x| **x == i).count();
            assert_eq!([count(0), count(1), count(2)], [5, 1, 2]);
            let longest = order.split(|i| *i != 0).map(<[usize]>::len).max();
            assert!(longest.unwrap() <= 3, "{order:?}");
        }
    }

    #[test]
    fn bad_targets_are_refused() {
        for text in [
            "",
            "host",
            "http://host",
            "https://h:1",
            "h:70000",
            "h:1@0",
            "h:1@x",
            ":1",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
        assert_eq!(Rotation::new(&[]).err(), Some(TargetError::Count(0)));
        let target: Target = "http://127.0.0.1:80/".parse().unwrap();
        assert_eq!(target.url, "http://127.0.0.1:80");
    }
}
