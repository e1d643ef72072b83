//! Division by a number known when the rule is loaded: one multiplication and one correction.

/// Divides `u64` by a fixed divisor, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    by: u64,
    /// floor((2^64 - 1) / by): the estimate it gives is the quotient or one less.
    reciprocal: u64,
}

impl Divisor {
    /// A divisor of 0 is read as 1.
    pub(crate) fn new(by: u64) -> Divisor {
        let by = by.max(1);
        Divisor {
            by,
            reciprocal: u64::MAX / by,
        }
    }

    pub(crate) fn by(self) -> u64 {
        self.by
    }

    /// Quotient and remainder.
    ///
    /// With r = 2^64/by - reciprocal <= 1, the estimate is short of n/by by n*r/2^64 < 1, so its
    /// floor is the quotient or one less.
    #[inline]
    pub(crate) fn divide(self, n: u64) -> (u64, u64) {
        let estimate = high(n, self.reciprocal);
        let rest = n - estimate * self.by;
        if rest >= self.by {
            (estimate + 1, rest - self.by)
        } else {
            (estimate, rest)
        }
    }
}

/// Upper half of the product.
#[inline]
fn high(a: u64, b: u64) -> u64 {
    low((u128::from(a) * u128::from(b)) >> 64)
}

/// The low 64 bits, meant.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn low(wide: u128) -> u64 {
    wide as u64
}

/// The value, or the largest that fits.
#[inline]
pub(crate) fn clamp_u64(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

/// The value, or the largest that fits.
#[inline]
pub(crate) fn clamp_u32(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn divides_the_edges() {
        let edges = [0, 1, 2, 3, 1_000_000, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for by in edges {
            for n in edges {
                let by_real = by.max(1);
                assert_eq!(
                    Divisor::new(by).divide(n),
                    (n / by_real, n % by_real),
                    "{n} / {by}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn divides_like_the_machine(n: u64, by in 1u64..) {
            prop_assert_eq!(Divisor::new(by).divide(n), (n / by, n % by));
        }

        #[test]
        fn divides_near_multiples(by in 1u64..1 << 40, q in 0u64..1 << 23, off in 0u64..3) {
            let n = (by * q + off).saturating_sub(1);
            prop_assert_eq!(Divisor::new(by).divide(n), (n / by, n % by));
        }
    }
}
