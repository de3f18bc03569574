//! Timeouts from measured round trips, and the least round trip, from which the latency of an idle network
//! is taken.

use core::time::Duration;

use chappe_machine::RoundTripEstimator;

/// Samples after which the least round trip may have become larger by a sixteenth.
const LEAST_SAMPLES: u8 = 64;

/// Estimate and least of the round trips, the peers' dwell times taken off.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    estimator: RoundTripEstimator,
    least: Duration,
    /// Samples since the least was raised.
    samples: u8,
}

impl RoundTrip {
    /// An estimate to begin with.
    pub(crate) fn assume(round_trip: Duration) -> Self {
        Self {
            estimator: RoundTripEstimator::assuming(round_trip, round_trip / 8),
            least: round_trip,
            samples: 0,
        }
    }

    /// Takes a measurement; `first` replaces what was assumed, unless that was right within a quarter.
    pub(crate) fn measured(&mut self, sample: Duration, first: bool) {
        let right = |mean: &Duration| sample.abs_diff(*mean) <= *mean / 4;
        if self.mean().is_none_or(|mean| first && !right(&mean)) {
            *self = Self {
                estimator: RoundTripEstimator::new(),
                least: sample,
                samples: 0,
            };
        }
        self.estimator.sample(sample);
        self.samples += 1;
        if self.samples >= LEAST_SAMPLES {
            self.samples = 0;
            self.least += self.least / 16;
        }
        self.least = self.least.min(sample);
    }

    /// The one-way latency when nothing waits.
    pub(crate) fn latency(&self) -> Duration {
        self.least / 2
    }

    /// The mean, when there is one.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.estimator.mean()
    }

    /// How long to wait for an answer; `floor` is for networks faster than a timer.
    pub(crate) fn timeout(&self, floor: Duration) -> Option<Duration> {
        self.estimator.timeout(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_network_and_keeps_its_floor() {
        let mut round_trip = RoundTrip::default();
        let floor = Duration::from_micros(200);
        assert_eq!(round_trip.timeout(floor), None);
        for _ in 0..100 {
            round_trip.measured(Duration::from_millis(10), false);
        }
        let timeout = round_trip.timeout(floor).unwrap();
        assert!(timeout >= Duration::from_micros(10_190) && timeout < Duration::from_millis(11));
        for _ in 0..100 {
            round_trip.measured(Duration::from_millis(1), false);
            round_trip.measured(Duration::from_millis(21), false);
        }
        assert!(round_trip.timeout(floor).unwrap() > Duration::from_millis(40));
        assert!(round_trip.latency() < Duration::from_micros(600));
    }
}
