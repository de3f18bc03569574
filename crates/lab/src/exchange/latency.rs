//! Latencies of one process, measured between two times.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_sim::percentile;

/// Maximum number of samples per second: 24 streams of 1,000.
const SAMPLES_MAX: usize = 24_000;

/// Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies(Arc<Mutex<Window>>);

#[derive(Debug, Default)]
struct Window {
    from: i64,
    until: i64,
    /// By seconds.
    seconds: Vec<Vec<u32>>,
}

impl Latencies {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records acknowledged elements between two times.
    pub(crate) fn open(&self, from: i64, until: i64) {
        let mut window = self.window();
        (window.from, window.until) = (from, until);
    }

    /// Records that an element due at `source` has arrived at `now`.
    pub(crate) fn take_one(&self, source: i64, now: i64) {
        let mut window = self.window();
        if now < window.from || now >= window.until {
            return;
        }
        let latency = u32::try_from((now - source) / 1_000).unwrap_or(u32::MAX);
        let second = usize::try_from((now - window.from) / 1_000_000_000).unwrap_or(0);
        if window.seconds.len() <= second {
            window.seconds.resize(second + 1, Vec::new());
        }
        if window.seconds[second].len() < SAMPLES_MAX {
            window.seconds[second].push(latency);
        }
    }

    /// Takes the samples and the 99th percentile of each second, and is empty then.
    pub(crate) fn take(&self) -> (Vec<u32>, Vec<u32>) {
        let window = std::mem::take(&mut *self.window());
        let mut seconds = window.seconds;
        let high = seconds.iter_mut().map(|second| {
            second.sort_unstable();
            percentile(second, 99.0).unwrap_or(0)
        });
        let high = high.collect();
        (seconds.concat(), high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_comes_in_time_is_taken() {
        let latencies = Latencies::default();
        latencies.take_one(0, 1_000_000);
        latencies.open(1_000_000_000, 3_000_000_000);
        latencies.take_one(900_000_000, 1_000_000_000);
        latencies.take_one(900_000_000, 2_900_000_000);
        latencies.take_one(900_000_000, 3_000_000_000);
        assert_eq!(
            latencies.take(),
            (vec![100_000, 2_000_000], vec![100_000, 2_000_000])
        );
    }
}
