//! A schedule of samples at a given interval.

use core::time::Duration;

use chappe_machine::Instant;

use super::{LATE_MAX, PERIOD_MAX, Pace};

/// The time at which the next sample is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    due: Instant,
}

impl Schedule {
    /// Notes a sample; the next is due `period` after this one was due, or after now if it was
    /// later than can be made up for.
    pub(super) fn sent(&mut self, now: Instant, period: Duration) {
        let late = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(LATE_MAX)));
        self.due = self.due.max(late).min(now + PERIOD_MAX) + period.min(PERIOD_MAX);
    }

    /// Whether the next is due, or when it is. If the clock went back, it is due.
    pub(super) fn pace(&self, now: Instant) -> Pace {
        if self.due <= now {
            Pace::Now
        } else {
            Pace::At(self.due.min(now + PERIOD_MAX))
        }
    }

    /// Makes the next due immediately.
    pub(super) fn reset(&mut self, now: Instant) {
        self.due = now;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
