//! A recent rate.

use std::time::{Duration, Instant};

/// The time over which a rate is measured.
const WINDOW: Duration = Duration::from_secs(5);

/// Counts events, and returns their rate over the last window.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    since: Option<Instant>,
    count: u64,
    rate: f64,
}

impl Meter {
    /// Adds events.
    pub(crate) fn add(&mut self, count: u64) {
        self.roll();
        self.count += count;
    }

    /// Events per second.
    pub(crate) fn rate_per_s(&mut self) -> f64 {
        self.roll();
        (self.rate * 100.0).round() / 100.0
    }

    fn roll(&mut self) {
        let since = *self.since.get_or_insert_with(Instant::now);
        let elapsed = since.elapsed();
        if elapsed >= WINDOW {
            self.rate = self.count as f64 / elapsed.as_secs_f64();
            (self.since, self.count) = (Some(Instant::now()), 0);
        } else if self.rate == 0.0 && elapsed >= Duration::from_secs(1) {
            // A new link has a rate before its first window ends.
            self.rate = self.count as f64 / elapsed.as_secs_f64();
        }
    }
}
