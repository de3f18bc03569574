//! How long an answer takes: smoothed round trip and variance, by RFC 6298.

use core::time::Duration;

/// Before the first sample (RFC 6298, 2.1).
const FIRST: Duration = Duration::from_secs(1);

/// The estimator.
#[derive(Debug, Clone)]
pub(crate) struct RoundTrip {
    bounds: (Duration, Duration),
    /// Smoothed round trip and its variance.
    estimate: Option<(Duration, Duration)>,
    /// How often in a row no answer came.
    doublings: u32,
}

impl RoundTrip {
    pub(crate) const fn new(bounds: (Duration, Duration)) -> Self {
        Self {
            bounds,
            estimate: None,
            doublings: 0,
        }
    }

    /// An answer came after so long. Only answers that cannot be those to an earlier question count
    /// (Karn's rule): each question has its own token.
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.doublings = 0;
        self.estimate = Some(match self.estimate {
            None => (sample, sample / 2),
            Some((smoothed, variance)) => {
                let error = smoothed.abs_diff(sample);
                ((smoothed * 7 + sample) / 8, (variance * 3 + error) / 4)
            }
        });
    }

    /// The smoothed round trip.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.estimate.map(|(smoothed, _)| smoothed)
    }

    /// After how long without an answer one asks again.
    pub(crate) fn timeout(&self) -> Duration {
        let base = match self.estimate {
            None => FIRST,
            Some((smoothed, variance)) => smoothed + variance * 4,
        };
        let base = base.clamp(self.bounds.0, self.bounds.1);
        base.saturating_mul(1 << self.doublings.min(16))
            .min(self.bounds.1)
    }

    /// News came without having been asked for.
    pub(crate) fn alive(&mut self) {
        self.doublings = 0;
    }

    /// No answer came: the next is waited for twice as long.
    pub(crate) fn back_off(&mut self) {
        self.doublings = self.doublings.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_samples_and_backs_off() {
        let milliseconds = Duration::from_millis;
        let mut round_trip = RoundTrip::new((milliseconds(10), milliseconds(2_000)));
        assert_eq!(round_trip.timeout(), FIRST);
        round_trip.sample(milliseconds(100));
        assert_eq!(round_trip.timeout(), milliseconds(300));
        for _ in 0..100 {
            round_trip.sample(milliseconds(100));
        }
        assert!(round_trip.timeout() < milliseconds(102));
        round_trip.back_off();
        assert!(round_trip.timeout() > milliseconds(199));
        for _ in 0..40 {
            round_trip.back_off();
        }
        assert_eq!(round_trip.timeout(), milliseconds(2_000));
        round_trip.sample(milliseconds(1));
        assert!(round_trip.timeout() < milliseconds(300));
        for _ in 0..100 {
            round_trip.sample(Duration::ZERO);
        }
        assert_eq!(round_trip.timeout(), milliseconds(10));
    }
}
