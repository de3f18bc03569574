//! Samples of a quantity and their percentiles, by the nearest rank: the one histogram of the
//! simulations and of the laboratory. Every sample is kept, so a percentile is exact.

/// Samples of one quantity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution(Vec<f64>);

impl Distribution {
    /// The samples, in any order.
    pub fn of<T: Into<f64>>(samples: impl IntoIterator<Item = T>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().map(Into::into).collect();
        samples.sort_unstable_by(f64::total_cmp);
        Self(samples)
    }

    /// Adds a sample.
    pub fn add(&mut self, sample: f64) {
        let at = self.0.partition_point(|other| *other < sample);
        self.0.insert(at, sample);
    }

    /// The mean; 0 without samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        // The sum of nothing is -0.
        (self.0.iter().sum::<f64>() + 0.0) / self.0.len().max(1) as f64
    }

    /// The value below which `percent` of the samples lie, by the nearest rank; 0 without samples.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.0, percent).unwrap_or(0.0)
    }

    /// The largest; 0 without samples.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or(0.0)
    }

    /// The number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The smallest sample at or below which `percent` of all lie; `None` of none. `sorted` is ascending.
///
/// ```
/// let sorted = [10, 20, 30, 40];
/// assert_eq!(chappe_sim::percentile(&sorted, 50.0), Some(20));
/// assert_eq!(chappe_sim::percentile(&sorted, 99.0), Some(40));
/// ```
#[must_use]
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    // 16.1 % of 1,000 is a little more than 161 in binary, but its rank is 161.
    const ROUNDING: f64 = 1e-12;
    let rank = (percent / 100.0 * sorted.len() as f64 * (1.0 - ROUNDING)).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_sample_of_its_rank() {
        let sorted: Vec<u32> = (1..=1_000).collect();
        for thousandths in 1..=1_000 {
            let percent = f64::from(thousandths) / 10.0;
            assert_eq!(percentile(&sorted, percent), Some(thousandths), "{percent}");
        }
        assert_eq!(percentile(&sorted, 0.0), Some(1));
        assert_eq!(percentile(&[7], 50.0), Some(7));
        assert_eq!(percentile::<u32>(&[], 50.0), None);
    }
}
