//! Measures the cost of a send: `o` of the postal model, by which a source divides its sinks.

use std::time::Duration;

use chappe_machine::Instant;

/// The divisor of a new sample's weight in the mean.
///
/// Reason: a node sends to a hundred heads or more for one event, and outliers should not dominate.
const WEIGHT_DIVISOR: u32 = 16;

/// The least cost of a send: from zero the mean could not grow.
const SEND_COST_MIN: Duration = Duration::from_nanos(100);

/// The mean time of a send.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendCost {
    mean: Duration,
    /// The value set in the machine.
    reported: Duration,
}

impl SendCost {
    /// Starts with the assumption of the machine.
    pub(super) fn assume(send_cost: Duration) -> Self {
        Self {
            mean: send_cost,
            reported: send_cost,
        }
    }

    /// Times a send with `clock`.
    pub(super) fn time<T>(&mut self, clock: impl Fn() -> Instant, send: impl FnOnce() -> T) -> T {
        let began = clock();
        let result = send();
        // A preemption may take as long as a thousand sends: one sample counts for two at most.
        let took = clock().saturating_since(began).min(self.mean * 2);
        let mean = (self.mean * (WEIGHT_DIVISOR - 1) + took) / WEIGHT_DIVISOR;
        self.mean = mean.max(SEND_COST_MIN);
        result
    }

    /// The mean, if it differs from the last reported value by half.
    pub(super) fn changed_mean(&mut self) -> Option<Duration> {
        let (mean, reported) = (self.mean, self.reported);
        let changed = mean * 2 > reported * 3 || reported * 2 > mean * 3;
        changed.then(|| {
            self.reported = mean;
            mean
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Sends with these durations, in sequence; returns the reported means.
    fn sends(cost: &mut SendCost, took: impl IntoIterator<Item = Duration>) -> Vec<Duration> {
        let now = Cell::new(Instant::ZERO);
        let mut reported = Vec::new();
        for took in took {
            cost.time(|| now.get(), || now.set(now.get() + took));
            reported.extend(cost.changed_mean());
        }
        reported
    }

    #[test]
    fn the_mean_follows_a_slow_and_a_fast_socket() {
        let mut cost = SendCost::assume(5 * MICROSECOND);
        let reported = sends(&mut cost, [300 * MICROSECOND; 200]);
        assert!(reported.is_sorted() && !reported.is_empty(), "{reported:?}");
        assert!(reported.len() <= 11, "by half each time: {reported:?}");
        let slow = reported[reported.len() - 1];
        assert!((200..=300).contains(&slow.as_micros()), "{slow:?}");
        let reported = sends(&mut cost, [2 * MICROSECOND; 200]);
        let quick = reported[reported.len() - 1];
        assert!((2..=3).contains(&quick.as_micros()), "{quick:?}");
    }

    #[test]
    fn rare_outliers_are_not_reported() {
        let mut cost = SendCost::assume(5 * MICROSECOND);
        let send = |number: u32| match number % 10 {
            // The thread was preempted.
            3 => 10_000 * MICROSECOND,
            even if even % 2 == 0 => 4 * MICROSECOND,
            _ => 6 * MICROSECOND,
        };
        assert_eq!(sends(&mut cost, (0..1_000).map(send)), []);
    }

    #[test]
    fn a_stopped_clock_does_not_end_the_measurement() {
        let mut cost = SendCost::assume(Duration::ZERO);
        sends(&mut cost, [Duration::ZERO; 1_000]);
        let reported = sends(&mut cost, [20 * MICROSECOND; 300]);
        assert!(
            reported[reported.len() - 1] > 12 * MICROSECOND,
            "{reported:?}"
        );
    }
}
