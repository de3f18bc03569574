//! Limits on what others may ask: token buckets, and windows against replay.

use chappe_machine::Instant;

/// So many a second, twice as many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    /// Nanoseconds' worth of what is left.
    left: u64,
    at: Instant,
}

const SECOND: u64 = 1_000_000_000;

impl Bucket {
    pub(crate) const fn full(now: Instant) -> Self {
        Self {
            left: 2 * SECOND,
            at: now,
        }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, now: Instant, per_s: u32) -> bool {
        let passed = u64::try_from((now - self.at).as_nanos()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_add(passed).min(2 * SECOND);
        self.at = now;
        let price = SECOND / u64::from(per_s.max(1));
        match self.left.checked_sub(price) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// Numbers seen: the highest and the 64 up to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    high: u64,
    seen: u64,
}

impl Window {
    /// Whether `number` is new; it is not any more.
    pub(crate) fn accept(&mut self, number: u64) -> bool {
        if number > self.high {
            let ahead = number - self.high;
            self.seen = match u32::try_from(ahead) {
                Ok(ahead) if ahead < 64 => self.seen << ahead | 1,
                _ => 1,
            };
            self.high = number;
            return true;
        }
        let behind = self.high - number;
        if behind >= 64 || number == 0 {
            return false;
        }
        let bit = 1 << behind;
        let new = self.seen & bit == 0;
        self.seen |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_lets_through_its_rate() {
        let mut bucket = Bucket::full(Instant::ZERO);
        let mut through = 0;
        for step in 0..10_000 {
            let now = Instant::ZERO + Duration::from_millis(step);
            through += u32::from(bucket.take(now, 50));
        }
        // 10 s at 50 a second, and the 100 at once.
        assert!((598..=600).contains(&through), "{through}");
    }

    #[test]
    fn each_number_passes_once_and_old_ones_never() {
        let mut window = Window::default();
        assert!(!window.accept(0));
        for number in [5, 3, 4, 70, 69, 8] {
            assert!(window.accept(number), "{number}");
            assert!(!window.accept(number), "{number} again");
        }
        assert!(!window.accept(6), "64 behind");
        assert!(window.accept(1 << 32), "a new boot");
        assert!(!window.accept(71));
    }

    proptest::proptest! {
        #[test]
        fn no_number_passes_twice(numbers in proptest::collection::vec(1_u64..200, 0..300)) {
            let mut window = Window::default();
            let mut passed = std::collections::BTreeSet::new();
            for number in numbers {
                if window.accept(number) {
                    proptest::prop_assert!(passed.insert(number));
                }
            }
        }
    }
}
