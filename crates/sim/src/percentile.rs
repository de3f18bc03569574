//! Percentiles of samples, by the nearest rank.

/// The smallest sample at or below which `percent` of all lie; `None` of none. `sorted` is ascending.
///
/// ```
/// let sorted = [10, 20, 30, 40];
/// assert_eq!(chappe_sim::percentile(&sorted, 50.0), Some(20));
/// assert_eq!(chappe_sim::percentile(&sorted, 99.0), Some(40));
/// ```
#[must_use]
pub fn percentile<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    // 16.1 % of 1,000 is a little more than 161 in binary, and its rank is 161 all the same.
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
