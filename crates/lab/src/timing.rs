//! The closed-loop load generator: each piece of work starts when the previous one has ended.
//!
//! The open-loop generator, which starts work at a rate whether or not the previous piece has
//! ended, is that of the exchange (`exchange::worker`).

use std::time::{Duration, Instant};

use chappe_sim::Distribution;

use crate::Error;

/// The duration of each round.
pub(crate) fn each(
    rounds: usize,
    mut work: impl FnMut(usize) -> Result<(), Error>,
) -> Result<Vec<Duration>, Error> {
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let start = Instant::now();
        work(round)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// Seconds per run: the median over batches of runs, for work that is too short to be timed
/// individually.
pub(crate) fn median_s(batches: usize, runs: u32, mut work: impl FnMut()) -> f64 {
    let batch = |_| {
        let start = Instant::now();
        (0..runs).for_each(|_| work());
        start.elapsed().as_secs_f64() / f64::from(runs)
    };
    median((0..batches).map(batch))
}

/// The median of some values; 0 if there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Distribution::of(values).percentile(50.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_has_its_time_and_an_error_ends_them() {
        let times = each(3, |_| Ok(())).expect("three rounds");
        assert_eq!(times.len(), 3);
        let mut begun = 0;
        let failed = each(3, |round| {
            begun += 1;
            match round {
                1 => Err(Error::Failed("no".to_owned())),
                _ => Ok(()),
            }
        });
        assert!(failed.is_err() && begun == 2);
    }

    #[test]
    fn every_batch_runs_whole() {
        let mut runs = 0;
        assert!(median_s(5, 7, || runs += 1) >= 0.0);
        assert_eq!(runs, 35);
    }
}
