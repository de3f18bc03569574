//! Timeouts from measured round trips, and the shortest round trip, which gives the latency of an idle network.

use core::time::Duration;

use chappe_machine::RoundTripEstimator;

/// Samples after which the shortest round trip grows by a sixteenth, so that it follows a slower network.
const LEAST_SAMPLES: u8 = 64;

/// Round trips without the peers' dwell times: their estimate and their minimum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrip {
    estimator: RoundTripEstimator,
    least: Duration,
    /// Samples since the minimum was raised.
    samples: u8,
    is_measured: bool,
}

impl RoundTrip {
    /// Starts with an assumption, which the first sample replaces.
    pub(crate) fn assume(round_trip: Duration) -> Self {
        Self {
            estimator: RoundTripEstimator::assuming(round_trip, round_trip / 8),
            least: round_trip,
            samples: 0,
            is_measured: false,
        }
    }

    /// Adds a sample. The first one replaces the assumption, unless it is within a quarter of it.
    pub(crate) fn sample(&mut self, sample: Duration) {
        let is_near = |mean: &Duration| sample.abs_diff(*mean) <= *mean / 4;
        let is_first = !self.is_measured;
        if self.mean().is_none_or(|mean| is_first && !is_near(&mean)) {
            self.estimator = RoundTripEstimator::new();
            self.least = sample;
            self.samples = 0;
        }
        self.is_measured = true;
        self.estimator.sample(sample);
        self.samples += 1;
        if self.samples >= LEAST_SAMPLES {
            self.samples = 0;
            self.least += self.least / 16;
        }
        self.least = self.least.min(sample);
    }

    /// The one-way latency of an idle network.
    pub(crate) fn latency(&self) -> Duration {
        self.least / 2
    }

    /// The mean, assumed or measured.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.estimator.mean()
    }

    /// The mean, once a round trip was measured.
    pub(crate) fn measured_mean(&self) -> Option<Duration> {
        self.mean().filter(|_| self.is_measured)
    }

    /// How long to wait for an answer. Until a round trip is measured it is `advised`, the timeout of the node
    /// that sent the range, unless that is zero. Never less than `floor`.
    pub(crate) fn timeout(&self, floor: Duration, advised: Duration) -> Duration {
        match self.estimator.timeout(floor) {
            Some(own) if self.is_measured || advised.is_zero() => own,
            _ => advised,
        }
        .max(floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_network_and_keeps_its_floor() {
        let mut round_trip = RoundTrip::default();
        let floor = Duration::from_micros(200);
        let timeout = |it: &RoundTrip| it.timeout(floor, Duration::ZERO);
        assert_eq!(timeout(&round_trip), floor);
        for _ in 0..100 {
            round_trip.sample(Duration::from_millis(10));
        }
        let near = Duration::from_micros(10_190)..Duration::from_millis(11);
        assert!(near.contains(&timeout(&round_trip)));
        for _ in 0..100 {
            round_trip.sample(Duration::from_millis(1));
            round_trip.sample(Duration::from_millis(21));
        }
        assert!(timeout(&round_trip) > Duration::from_millis(40));
        assert!(round_trip.latency() < Duration::from_micros(600));
    }

    #[test]
    fn advice_counts_until_a_round_trip_is_measured() {
        let [floor, own, advised] = [1, 10, 50].map(Duration::from_millis);
        let mut round_trip = RoundTrip::assume(own);
        assert_eq!(round_trip.measured_mean(), None);
        assert_eq!(round_trip.timeout(floor, advised), advised);
        assert!(round_trip.timeout(floor, Duration::ZERO) < advised);
        round_trip.sample(own);
        assert!(round_trip.timeout(floor, advised) < advised);
        assert_eq!(round_trip.measured_mean(), Some(own));
    }
}
