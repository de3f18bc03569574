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
}

impl RoundTrip {
    pub(crate) const fn new(bounds: (Duration, Duration)) -> Self {
        Self {
            bounds,
            estimate: None,
        }
    }

    /// An answer came after so long. Only answers that cannot be those to an earlier question count
    /// (Karn's rule): each question has its own token.
    pub(crate) fn sample(&mut self, sample: Duration) {
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
        base.clamp(self.bounds.0, self.bounds.1)
    }

    /// The same after so many questions that brought no news: twice as long for each.
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
