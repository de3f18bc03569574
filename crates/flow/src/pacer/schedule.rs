//! Samples at a fixed interval.

use core::time::Duration;

use chappe_machine::Instant;

use super::{LATE_MAX, PERIOD_MAX, Pace};

/// The time when the next is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    due: Instant,
}

impl Schedule {
    /// Records that one was sent; the next is due `period` after it was due, or after now if it was
    /// too late to compensate.
    pub(super) fn sent(&mut self, now: Instant, period: Duration) {
        let late = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(LATE_MAX)));
        self.due = self.due.max(late).min(now + PERIOD_MAX) + period.min(PERIOD_MAX);
    }

    /// Whether the next is due, or when. A clock that was set back delays nobody.
    pub(super) fn pace(&self, now: Instant) -> Pace {
        if self.due <= now {
            Pace::Now
        } else {
            Pace::At(self.due.min(now + PERIOD_MAX))
        }
    }

    /// The next is due at once.
    pub(super) fn reset(&mut self, now: Instant) {
        self.due = now;
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
