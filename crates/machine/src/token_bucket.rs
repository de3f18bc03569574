//! A limit on the frequency of an action.

use core::time::Duration;

use crate::Instant;

const NANOS_PER_S: u64 = 1_000_000_000;

/// The rate of new tokens, and the capacity of a bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenRate {
    /// Tokens a second.
    pub per_s: u64,
    /// Maximum number of tokens in a bucket.
    pub burst: u64,
}

impl TokenRate {
    const fn capacity(self) -> u64 {
        self.burst.saturating_mul(NANOS_PER_S)
    }
}

/// A token bucket: it refills at a rate up to a limit, and each use takes tokens.
///
/// The rate is an argument of each call, so that thousands of buckets share one.
///
/// ```
/// use chappe_machine::{Instant, TokenBucket, TokenRate};
/// use std::time::Duration;
///
/// let rate = TokenRate { per_s: 10, burst: 2 };
/// let mut bucket = TokenBucket::full(Instant::ZERO, rate);
/// assert!(bucket.take(Instant::ZERO, 2, rate).is_ok());
/// let again_at = bucket.take(Instant::ZERO, 1, rate).unwrap_err();
/// assert!(again_at >= Instant::ZERO + Duration::from_millis(100));
/// assert!(bucket.take(again_at, 1, rate).is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Billionths of a token.
    level: u64,
    filled_at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub const fn full(now: Instant, rate: TokenRate) -> Self {
        Self {
            level: rate.capacity(),
            filled_at: now,
        }
    }

    fn level_at(&self, now: Instant, rate: TokenRate) -> u64 {
        let elapsed = now.saturating_since(self.filled_at).as_nanos();
        let fresh = elapsed.saturating_mul(u128::from(rate.per_s));
        let fresh = u64::try_from(fresh).unwrap_or(u64::MAX);
        self.level.saturating_add(fresh).min(rate.capacity())
    }

    /// Whether it is full.
    #[must_use]
    pub fn is_full(&self, now: Instant, rate: TokenRate) -> bool {
        self.level_at(now, rate) == rate.capacity()
    }

    /// Takes `wanted` tokens; more than the burst counts as the burst.
    ///
    /// # Errors
    /// There are too few tokens, and none is taken. The error is the time at which there will be enough.
    pub fn take(&mut self, now: Instant, wanted: u64, rate: TokenRate) -> Result<(), Instant> {
        let level = self.level_at(now, rate);
        let wanted = wanted.saturating_mul(NANOS_PER_S).min(rate.capacity());
        match level.checked_sub(wanted) {
            Some(level) => {
                *self = Self {
                    level,
                    filled_at: now,
                };
                Ok(())
            }
            None => {
                let nanos = (wanted - level).div_ceil(rate.per_s.max(1));
                Err(now + Duration::from_nanos(nanos))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_passes_its_rate() {
        let rate = TokenRate {
            per_s: 50,
            burst: 100,
        };
        let mut bucket = TokenBucket::full(Instant::ZERO, rate);
        let mut passed = 0;
        for step in 0..10_000 {
            let now = Instant::ZERO + Duration::from_millis(step);
            passed += u32::from(bucket.take(now, 1, rate).is_ok());
        }
        // The burst, and 10 s at 50 a second.
        assert!((598..=600).contains(&passed), "{passed}");
        assert!(!bucket.is_full(Instant::ZERO + Duration::from_secs(10), rate));
        assert!(bucket.is_full(Instant::ZERO + Duration::from_secs(13), rate));
    }

    #[test]
    fn a_rate_of_zero_passes_the_burst_and_no_more() {
        let rate = TokenRate { per_s: 0, burst: 1 };
        let mut bucket = TokenBucket::full(Instant::ZERO, rate);
        assert!(bucket.take(Instant::ZERO, 1, rate).is_ok());
        let later = Instant::ZERO + Duration::from_secs(1 << 30);
        assert!(bucket.take(later, 1, rate).is_err());
    }

    proptest::proptest! {
        #[test]
        fn the_time_that_is_named_is_the_first_with_enough(
            per_s in 1_u64..1_000_000_000_000, burst in 1_u64..1_000_000, wanted in 1_u64..2_000_000,
        ) {
            let rate = TokenRate { per_s, burst };
            let mut bucket = TokenBucket::full(Instant::ZERO, rate);
            bucket.take(Instant::ZERO, burst, rate).unwrap();
            let at = bucket.take(Instant::ZERO, wanted, rate).unwrap_err();
            let before = at.saturating_since(Instant::ZERO) - Duration::from_nanos(1);
            proptest::prop_assert!(bucket.take(Instant::ZERO + before, wanted, rate).is_err());
            proptest::prop_assert!(bucket.take(at, wanted, rate).is_ok());
        }
    }
}
