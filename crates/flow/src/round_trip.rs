//! When a session asks again.

use core::time::Duration;

use chappe_machine::RoundTripEstimator;

/// Before the first sample (RFC 6298, 2.1).
const FIRST: Duration = Duration::from_secs(1);

/// Timeouts between bounds, from the round trips of a session.
#[derive(Debug, Clone)]
pub(crate) struct RoundTrip {
    bounds: (Duration, Duration),
    estimator: RoundTripEstimator,
}

impl RoundTrip {
    pub(crate) const fn new(bounds: (Duration, Duration)) -> Self {
        Self {
            bounds,
            estimator: RoundTripEstimator::new(),
        }
    }

    /// Adds a sample; each question has its own token, so an answer is always that to its question.
    pub(crate) fn sample(&mut self, sample: Duration) {
        self.estimator.sample(sample);
    }

    /// The smoothed round trip.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.estimator.mean()
    }

    /// How long to wait for an answer before the question is repeated.
    pub(crate) fn timeout(&self) -> Duration {
        let timeout = self.estimator.timeout(Duration::ZERO);
        timeout.unwrap_or(FIRST).clamp(self.bounds.0, self.bounds.1)
    }

    /// The same after so many unanswered questions: it doubles with each.
    pub(crate) fn timeout_after(&self, questions: u32) -> Duration {
        let doubled = self.timeout().saturating_mul(1 << questions.min(16));
        doubled.min(self.bounds.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_samples_and_doubles() {
        let milliseconds = Duration::from_millis;
        let mut round_trip = RoundTrip::new((milliseconds(10), milliseconds(2_000)));
        assert_eq!(round_trip.timeout(), FIRST);
        round_trip.sample(milliseconds(100));
        assert_eq!(round_trip.timeout(), milliseconds(300));
        for _ in 0..100 {
            round_trip.sample(milliseconds(100));
        }
        assert!(round_trip.timeout() < milliseconds(102));
        assert!(round_trip.timeout_after(1) > milliseconds(199));
        assert_eq!(round_trip.timeout_after(40), milliseconds(2_000));
        round_trip.sample(milliseconds(1));
        assert!(round_trip.timeout() < milliseconds(300));
        for _ in 0..100 {
            round_trip.sample(Duration::ZERO);
        }
        assert_eq!(round_trip.timeout(), milliseconds(10));
    }
}
