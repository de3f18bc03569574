//! One timer for all that a session waits for.
//!
//! A session is woken hundreds of times a second, and its deadlines are mostly far away: a timer that
//! was set anew each time would cost more than the rest of the wake-up. This one is only ever set to
//! something earlier; that it rings too early is harmless.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Later than anything that a session waits for.
const FAR: Duration = Duration::from_secs(3_600);

/// A timer.
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    rung: bool,
}

impl Alarm {
    pub(super) fn new() -> Self {
        Self {
            sleep: Box::pin(sleep_until(Instant::now() + FAR)),
            rung: false,
        }
    }

    /// Rings at `at` or before.
    pub(super) fn at_latest(&mut self, at: Instant) {
        if self.rung || at < self.sleep.deadline() {
            self.rung = false;
            self.sleep.as_mut().reset(at);
        }
    }

    /// Returns when it rings. May be dropped and called again.
    pub(super) async fn rings(&mut self) {
        self.sleep.as_mut().await;
        self.rung = true;
    }
}

/// Something done again and again.
pub(super) struct Every {
    pub(super) next: Instant,
    period: Duration,
}

impl Every {
    /// For the first time after `first`.
    pub(super) fn new(first: Duration, period: Duration) -> Self {
        Self {
            next: Instant::now() + first,
            period,
        }
    }

    /// Whether it is to be done now.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }
}
