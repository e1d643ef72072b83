//! Fixed and sliding windows over per-epoch counts.

use crate::divide::{clamp_u32, clamp_u64, Divisor};
use crate::limits::BUCKETS_MAX;
use crate::{Pacing, Reading};
use gabion_rule::Sliding;

/// A window, made ready to decide. Counts are given by *age*: age 0 is the current epoch, age a the
/// epoch a before it; only ages 0..=`closed` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowPlan {
    /// Hits a window admits, at least 1.
    pub limit: u32,
    /// Grain, ns, at least 1; the epoch of replication.
    pub bucket_ns: u64,
    /// Horizon, ns, at least `bucket_ns`.
    pub window_ns: u64,
    /// Closed buckets that count beside the current one; 0 for a fixed window. spec: adm-4
    pub closed: u8,
    /// How buckets are summed.
    pub sliding: Sliding,
    /// How members share the limit.
    pub pacing: Pacing,
    divisor: Divisor,
    /// window - (B - 1) * bucket: what of the oldest bucket is inside the window when the current
    /// one starts; in 1..=bucket.
    head_room_ns: u64,
}

impl WindowPlan {
    /// Zeroes are read as 1, `bucket_ns` is held to `window_ns / 64 ..= window_ns`.
    pub fn new(limit: u32, window_ns: u64, bucket_ns: u64, sliding: Sliding) -> WindowPlan {
        let window_ns = window_ns.max(1);
        let bucket_ns = bucket_ns
            .max(window_ns.div_ceil(BUCKETS_MAX))
            .min(window_ns);
        let buckets = window_ns.div_ceil(bucket_ns);
        let closed = match sliding {
            Sliding::Live => buckets - 1,
            Sliding::Strict | Sliding::Weighted => buckets,
        };
        WindowPlan {
            limit: limit.max(1),
            bucket_ns,
            window_ns,
            closed: u8::try_from(closed).unwrap_or(u8::MAX),
            sliding,
            pacing: Pacing::Fast,
            divisor: Divisor::new(bucket_ns),
            head_room_ns: window_ns - (buckets - 1) * bucket_ns,
        }
    }

    /// The same window with another limit, which may be 0: then nothing passes.
    pub fn with_limit(self, limit: u32) -> WindowPlan {
        WindowPlan { limit, ..self }
    }

    /// The same window, shared like this.
    pub fn with_pacing(self, pacing: Pacing) -> WindowPlan {
        WindowPlan { pacing, ..self }
    }

    /// Epoch of `now_ns`, and the ns since it began.
    #[inline]
    pub fn split(&self, now_ns: u64) -> (u64, u64) {
        self.divisor.divide(now_ns)
    }

    /// Hits of the oldest counted bucket that still count `into_ns` after the current epoch began:
    /// all of them, but for `weighted` the share of that bucket still inside the window, rounded
    /// down. spec: adm-5
    #[inline]
    pub fn oldest_share(&self, oldest: u64, into_ns: u64) -> u64 {
        if self.sliding != Sliding::Weighted {
            return oldest;
        }
        let inside_ns = self.head_room_ns.saturating_sub(into_ns);
        clamp_u64(u128::from(oldest) * u128::from(inside_ns) / u128::from(self.bucket_ns))
    }

    /// The sum of counts given by age. Ages past `closed` are not counted.
    pub fn sum(&self, by_age: &[u64], into_ns: u64) -> u64 {
        let closed = usize::from(self.closed);
        let mut used = 0u64;
        for (age, &count) in by_age.iter().enumerate().take(closed + 1) {
            let counts = if age == closed {
                self.oldest_share(count, into_ns)
            } else {
                count
            };
            used = used.saturating_add(counts);
        }
        used
    }

    /// Whether `hits` more fit beside `used`. spec: adm-3
    #[inline]
    pub fn fits(&self, used: u64, hits: u32) -> bool {
        used.saturating_add(u64::from(hits)) <= u64::from(self.limit)
    }

    /// What a counter with `used` hits shows; `reset_ns` is the end of the current epoch, when a
    /// bucket stops counting.
    #[inline]
    pub fn reading(&self, used: u64, into_ns: u64) -> Reading {
        let remaining = clamp_u32(u64::from(self.limit).saturating_sub(used));
        let reset_ns = if used == 0 {
            0
        } else {
            self.bucket_ns - into_ns.min(self.bucket_ns - 1)
        };
        Reading {
            limit: self.limit,
            remaining,
            reset_ns,
            used,
        }
    }

    /// [`WindowPlan::reading`] of a counter in use, with `into_ns` as [`WindowPlan::split`] gave
    /// it.
    #[inline]
    pub fn reading_within(&self, used: u64, into_ns: u64) -> Reading {
        let remaining = clamp_u32(u64::from(self.limit).saturating_sub(used));
        let reset_ns = self.bucket_ns.wrapping_sub(into_ns);
        Reading {
            limit: self.limit,
            remaining,
            reset_ns,
            used,
        }
    }

    /// Nanoseconds until `hits` fit if nobody else hits: at least 1. More hits than the limit wait
    /// for the end of the window, which is when the answer can be asked for anew. spec: adm-8
    pub fn wait_ns(&self, by_age: &[u64], into_ns: u64, hits: u32) -> u64 {
        let closed = usize::from(self.closed);
        let into_ns = into_ns.min(self.bucket_ns - 1);
        let at = |age: usize| by_age.get(age).copied().unwrap_or(0);
        let step_start_ns = |step: usize| match step {
            0 => 0,
            _ => self.bucket_ns.saturating_mul(step as u64) - into_ns,
        };
        // After `step` bucket ends the oldest that counts had age `closed - step` today; what is
        // younger counts whole until then.
        for step in 0..=closed {
            let oldest_age = closed - step;
            let younger = (0..oldest_age).fold(0u64, |sum, age| sum.saturating_add(at(age)));
            let Some(room) =
                u64::from(self.limit).checked_sub(younger.saturating_add(u64::from(hits)))
            else {
                continue;
            };
            let start_ns = step_start_ns(step);
            let into_step_ns = if step == 0 { into_ns } else { 0 };
            let oldest = at(oldest_age);
            if self.oldest_share(oldest, into_step_ns) <= room {
                return start_ns.max(1);
            }
            if self.sliding == Sliding::Weighted {
                return self
                    .fade_ns(oldest, into_step_ns, room)
                    .saturating_add(start_ns)
                    .max(1);
            }
        }
        step_start_ns(closed + 1).max(1)
    }

    /// Nanoseconds until the weighted share of `oldest` has fallen to `room`, which is below what
    /// it is `into_ns` after the epoch began.
    fn fade_ns(&self, oldest: u64, into_ns: u64, room: u64) -> u64 {
        // floor(oldest * inside / bucket) <= room  <=>  inside <= ((room + 1) * bucket - 1) /
        // oldest
        let inside_ns = clamp_u64(
            ((u128::from(room) + 1) * u128::from(self.bucket_ns) - 1) / u128::from(oldest.max(1)),
        );
        self.head_room_ns
            .saturating_sub(into_ns)
            .saturating_sub(inside_ns)
    }
}
