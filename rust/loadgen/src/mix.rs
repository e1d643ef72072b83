//! Which key and how many hits each request carries.
//!
//! Owns: the key mixes and their random numbers. Promises: the same seed gives the same sequence on
//! every machine; memory is bounded by [`MAX_ZIPF_KEYS`] and [`MAX_TENANTS`]. Never: asks the
//! system for randomness.

use std::str::FromStr;

use crate::limits::{MAX_TENANTS, MAX_ZIPF_KEYS};

/// SplitMix64: small, seedable, and good enough to choose keys. Not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator whose whole sequence follows from `seed`.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `n - 1`; 0 when `n` is 0. Multiply-shift: the bias is below `n / 2^64`.
    pub fn below(&mut self, n: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(n);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// A number in `[0, 1)` with 53 random bits.
    #[allow(clippy::cast_precision_loss)] // 53 bits fit a double exactly
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// One tenant of a mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Becomes `{key}`.
    pub name: String,
    /// Share of the requests, relative to the other tenants.
    pub weight: u32,
    /// Hits each of its requests asks for.
    pub hits: u32,
}

/// How keys are drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum MixSpec {
    /// Every request has the same key.
    Single(String),
    /// Keys `k0` to `k{n-1}`, all equally likely.
    Uniform(u64),
    /// Keys `k0` to `k{n-1}`; key `r` has a weight of `1 / (r + 1)^s`.
    Zipf {
        /// The exponent; 0 is uniform, 1 is the classic law.
        s: f64,
        /// How many keys.
        n: u64,
    },
    /// Named tenants with weights and hits.
    Tenants(Vec<Tenant>),
}

/// Why a mix cannot be used. Nothing was started.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error(
    "key mix `{given}`: {why}; write single[:KEY], uniform:N, zipf:S:N (N at most \
     {MAX_ZIPF_KEYS}) or tenants:NAME=WEIGHT[xHITS],..."
)]
pub struct MixError {
    given: String,
    why: &'static str,
}

impl FromStr for MixSpec {
    type Err = MixError;

    fn from_str(text: &str) -> Result<MixSpec, MixError> {
        let fail = |why| MixError {
            given: text.to_owned(),
            why,
        };
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "single" if rest.is_empty() => Ok(MixSpec::Single("k0".to_owned())),
            "single" => Ok(MixSpec::Single(rest.to_owned())),
            "uniform" => {
                let n = rest.parse().map_err(|_| fail("N is not a whole number"))?;
                if n == 0 {
                    return Err(fail("N must be at least 1"));
                }
                Ok(MixSpec::Uniform(n))
            }
            "zipf" => {
                let (s, n) = rest
                    .split_once(':')
                    .ok_or_else(|| fail("S and N are needed"))?;
                let s: f64 = s.parse().map_err(|_| fail("S is not a number"))?;
                let n = n.parse().map_err(|_| fail("N is not a whole number"))?;
                if !(0.0..=10.0).contains(&s) {
                    return Err(fail("S must be from 0 to 10"));
                }
                if !(1..=MAX_ZIPF_KEYS).contains(&n) {
                    return Err(fail("N is out of range"));
                }
                Ok(MixSpec::Zipf { s, n })
            }
            "tenants" => parse_tenants(rest).map(MixSpec::Tenants).map_err(fail),
            _ => Err(fail("unknown kind")),
        }
    }
}

fn parse_tenants(text: &str) -> Result<Vec<Tenant>, &'static str> {
    let mut tenants = Vec::new();
    for item in text.split(',') {
        let (name, numbers) = item
            .split_once('=')
            .ok_or("a tenant is NAME=WEIGHT[xHITS]")?;
        let (weight, hits) = numbers.split_once('x').unwrap_or((numbers, "1"));
        let weight = weight
            .parse()
            .map_err(|_| "a weight is not a whole number")?;
        let hits = hits.parse().map_err(|_| "hits is not a whole number")?;
        if name.is_empty() || weight == 0 {
            return Err("a tenant needs a name and a weight of at least 1");
        }
        tenants.push(Tenant {
            name: name.to_owned(),
            weight,
            hits,
        });
        if tenants.len() > MAX_TENANTS {
            return Err("too many tenants");
        }
    }
    Ok(tenants)
}

/// A key for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// What `{key}` becomes.
    pub key: String,
    /// Hits to ask for; `None` leaves the field unset (the server then counts 1).
    pub hits: Option<u32>,
}

/// A mix ready to draw from.
#[derive(Clone, Debug)]
pub struct Mix {
    spec: MixSpec,
    /// Zipf and tenants: cumulated weights, scaled so that the last one is 1.
    cumulated: Vec<f64>,
    rng: SplitMix64,
}

impl Mix {
    /// Prepares `spec`; the whole sequence of draws follows from `seed`.
    pub fn new(spec: MixSpec, seed: u64) -> Mix {
        let weights: Vec<f64> = match &spec {
            MixSpec::Single(_) | MixSpec::Uniform(_) => Vec::new(),
            MixSpec::Zipf { s, n } => (1..=*n).map(|rank| rank_weight(rank, *s)).collect(),
            MixSpec::Tenants(list) => list.iter().map(|t| f64::from(t.weight)).collect(),
        };
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let cumulated = weights
            .iter()
            .map(|w| {
                sum += w;
                sum / total
            })
            .collect();
        Mix {
            spec,
            cumulated,
            rng: SplitMix64::new(seed),
        }
    }

    /// The next key.
    pub fn draw(&mut self) -> Draw {
        match &self.spec {
            MixSpec::Single(key) => Draw {
                key: key.clone(),
                hits: None,
            },
            MixSpec::Uniform(n) => Draw {
                key: format!("k{}", self.rng.below(*n)),
                hits: None,
            },
            MixSpec::Zipf { .. } => Draw {
                key: format!("k{}", self.pick()),
                hits: None,
            },
            MixSpec::Tenants(_) => {
                let i = self.pick();
                let MixSpec::Tenants(list) = &self.spec else {
                    return Draw {
                        key: String::new(),
                        hits: None,
                    };
                };
                Draw {
                    key: list[i].name.clone(),
                    hits: Some(list[i].hits),
                }
            }
        }
    }

    fn pick(&mut self) -> usize {
        let u = self.rng.unit();
        // rounding can leave the last sum a hair below 1
        self.cumulated
            .partition_point(|c| *c <= u)
            .min(self.cumulated.len().saturating_sub(1))
    }
}

#[allow(clippy::cast_precision_loss)] // ranks are at most 2^22
fn rank_weight(rank: u64, s: f64) -> f64 {
    (rank as f64).powf(-s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn counts(spec: &str, seed: u64, n: u32) -> BTreeMap<String, u32> {
        println!("mix {spec} seed {seed}");
        let mut mix = Mix::new(spec.parse().unwrap(), seed);
        let mut counts = BTreeMap::new();
        for _ in 0..n {
            *counts.entry(mix.draw().key).or_insert(0) += 1;
        }
        counts
    }

    #[test]
    fn zipf_follows_its_law() {
        let n = 400_000;
        let counts = counts("zipf:1.1:1000", 20_261_129, n);
        let norm: f64 = (1..=1000u64).map(|r| rank_weight(r, 1.1)).sum();
        for rank in [1u64, 2, 3, 10, 50] {
            let want = f64::from(n) * rank_weight(rank, 1.1) / norm;
            let got = f64::from(counts[&format!("k{}", rank - 1)]);
            // five standard deviations of a binomial count
            assert!(
                (got - want).abs() < 5.0 * want.sqrt(),
                "rank {rank}: {got} for {want}"
            );
        }
    }

    #[test]
    fn uniform_is_even_and_stays_in_range() {
        let counts = counts("uniform:16", 7, 160_000);
        assert_eq!(counts.len(), 16);
        for (key, got) in counts {
            assert!((f64::from(got) - 10_000.0).abs() < 500.0, "{key}: {got}");
        }
    }

    #[test]
    fn tenants_carry_their_share_and_hits() {
        let mut mix = Mix::new("tenants:big=9x5,small=1".parse().unwrap(), 3);
        let mut big = 0u32;
        for _ in 0..100_000 {
            let draw = mix.draw();
            match draw.key.as_str() {
                "big" => {
                    assert_eq!(draw.hits, Some(5));
                    big += 1;
                }
                other => assert_eq!((other, draw.hits), ("small", Some(1))),
            }
        }
        assert!((f64::from(big) - 90_000.0).abs() < 600.0, "{big}");
    }

    #[test]
    fn same_seed_same_keys() {
        let draws = |seed| {
            let mut mix = Mix::new("zipf:1.0:5000".parse().unwrap(), seed);
            (0..100).map(|_| mix.draw().key).collect::<Vec<_>>()
        };
        assert_eq!(draws(11), draws(11));
        assert_ne!(draws(11), draws(12));
    }

    #[test]
    fn bad_mixes_are_refused() {
        for text in [
            "",
            "zip:1:2",
            "uniform:0",
            "uniform:x",
            "zipf:1",
            "zipf:nan:3",
            "zipf:1:0",
        ] {
            assert!(text.parse::<MixSpec>().is_err(), "{text}");
        }
        for text in [
            "tenants:",
            "tenants:a",
            "tenants:a=0",
            "tenants:=1",
            "tenants:a=1xq",
        ] {
            assert!(text.parse::<MixSpec>().is_err(), "{text}");
        }
        assert!("zipf:1:99999999999".parse::<MixSpec>().is_err());
        assert_eq!("single".parse(), Ok(MixSpec::Single("k0".into())));
        assert_eq!("single:a:b".parse(), Ok(MixSpec::Single("a:b".into())));
    }
}
