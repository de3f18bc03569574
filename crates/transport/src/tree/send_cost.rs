//! What a send costs this node: `o` of the postal model, by which a source divides its sinks.

use std::time::Duration;

use chappe_machine::Instant;

/// The mean follows one send by so many parts of the difference.
///
/// Reason: a node sends to a hundred heads or more for one event, and what is rare should not decide.
const WEIGHT: u32 = 16;

/// What no send costs less than: from nothing the mean could not grow.
const LEAST: Duration = Duration::from_nanos(100);

/// The mean time of a send.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendCost {
    mean: Duration,
    /// What the machine goes by.
    told: Duration,
}

impl SendCost {
    /// Begins with what the machine assumes.
    pub(super) fn assume(send_cost: Duration) -> Self {
        Self {
            mean: send_cost,
            told: send_cost,
        }
    }

    /// Does a send and takes its time by `clock`.
    pub(super) fn time<T>(&mut self, clock: impl Fn() -> Instant, send: impl FnOnce() -> T) -> T {
        let began = clock();
        let result = send();
        // A scheduler may take the processor away for a thousand sends: one counts for two at most.
        let took = clock().saturating_since(began).min(self.mean * 2);
        let mean = (self.mean * (WEIGHT - 1) + took) / WEIGHT;
        self.mean = mean.max(LEAST);
        result
    }

    /// The mean, when it is half as much again as what was last told, or the other way round.
    pub(super) fn news(&mut self) -> Option<Duration> {
        let (mean, told) = (self.mean, self.told);
        let changed = mean * 2 > told * 3 || told * 2 > mean * 3;
        changed.then(|| {
            self.told = mean;
            mean
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Sends that take so long, one after the other; what was told.
    fn sends(cost: &mut SendCost, took: impl IntoIterator<Item = Duration>) -> Vec<Duration> {
        let now = Cell::new(Instant::ZERO);
        let mut told = Vec::new();
        for took in took {
            cost.time(|| now.get(), || now.set(now.get() + took));
            told.extend(cost.news());
        }
        told
    }

    #[test]
    fn a_slow_socket_is_found_out_and_a_quick_one_again() {
        let mut cost = SendCost::assume(5 * MICROSECOND);
        let told = sends(&mut cost, [300 * MICROSECOND; 200]);
        assert!(told.is_sorted() && !told.is_empty(), "{told:?}");
        assert!(told.len() <= 11, "by half each time: {told:?}");
        let slow = told[told.len() - 1];
        assert!((200..=300).contains(&slow.as_micros()), "{slow:?}");
        let told = sends(&mut cost, [2 * MICROSECOND; 200]);
        let quick = told[told.len() - 1];
        assert!((2..=3).contains(&quick.as_micros()), "{quick:?}");
    }

    #[test]
    fn who_stumbles_now_and_then_tells_nothing() {
        let mut cost = SendCost::assume(5 * MICROSECOND);
        let send = |number: u32| match number % 10 {
            // The processor was somebody else's.
            3 => 10_000 * MICROSECOND,
            even if even % 2 == 0 => 4 * MICROSECOND,
            _ => 6 * MICROSECOND,
        };
        assert_eq!(sends(&mut cost, (0..1_000).map(send)), []);
    }

    #[test]
    fn a_clock_that_stands_still_does_not_end_the_measuring() {
        let mut cost = SendCost::assume(Duration::ZERO);
        sends(&mut cost, [Duration::ZERO; 1_000]);
        let told = sends(&mut cost, [20 * MICROSECOND; 300]);
        assert!(told[told.len() - 1] > 12 * MICROSECOND, "{told:?}");
    }
}
