//! An estimator of response times.

use core::time::Duration;

/// The round-trip estimator of RFC 6298: a smoothed mean of the samples and their mean deviation.
///
/// ```
/// use chappe_machine::RoundTripEstimator;
/// use std::time::Duration;
///
/// let mut estimator = RoundTripEstimator::default();
/// assert_eq!(estimator.timeout(Duration::ZERO), None);
/// estimator.sample(Duration::from_millis(100));
/// assert_eq!(estimator.timeout(Duration::ZERO), Some(Duration::from_millis(300)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundTripEstimator {
    /// Mean and deviation.
    estimate: Option<(Duration, Duration)>,
}

impl RoundTripEstimator {
    /// Without a sample.
    #[must_use]
    pub const fn new() -> Self {
        Self { estimate: None }
    }

    /// Starts from an assumption instead of a first sample.
    #[must_use]
    pub const fn assuming(mean: Duration, deviation: Duration) -> Self {
        Self {
            estimate: Some((mean, deviation)),
        }
    }

    /// Adds a sample. By Karn's rule a sample is the time between a request and its own answer: an
    /// answer that may belong to an earlier request is not one.
    pub fn sample(&mut self, sample: Duration) {
        self.estimate = Some(match self.estimate {
            None => (sample, sample / 2),
            Some((mean, deviation)) => (
                (mean * 7 + sample) / 8,
                (deviation * 3 + mean.abs_diff(sample)) / 4,
            ),
        });
    }

    /// The smoothed round trip (`SRTT`), once there is a sample.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.estimate.map(|(mean, _)| mean)
    }

    /// The retransmission timeout (`RTO`), once there is a sample: the mean and four deviations, at least
    /// `granularity` (`G`) above the mean.
    #[must_use]
    pub fn timeout(&self, granularity: Duration) -> Option<Duration> {
        let (mean, deviation) = self.estimate?;
        Some(mean + (deviation * 4).max(granularity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_samples() {
        let milliseconds = Duration::from_millis;
        let mut estimator = RoundTripEstimator::default();
        for _ in 0..100 {
            estimator.sample(milliseconds(100));
        }
        assert_eq!(estimator.mean(), Some(milliseconds(100)));
        let steady = estimator.timeout(Duration::ZERO).unwrap();
        assert!(steady < milliseconds(101), "{steady:?}");
        assert_eq!(
            estimator.timeout(milliseconds(5)),
            Some(milliseconds(105)),
            "the granularity is a floor"
        );
        for _ in 0..100 {
            estimator.sample(milliseconds(50));
            estimator.sample(milliseconds(150));
        }
        let unsteady = estimator.timeout(Duration::ZERO).unwrap();
        assert!(unsteady > milliseconds(250), "{unsteady:?}");
    }

    #[test]
    fn an_assumption_counts_as_the_estimate() {
        let second = Duration::from_secs(1);
        let estimator = RoundTripEstimator::assuming(second, second / 8);
        assert_eq!(estimator.mean(), Some(second));
        assert_eq!(estimator.timeout(Duration::ZERO), Some(second + second / 2));
    }
}
