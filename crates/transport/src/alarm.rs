//! One timer for all deadlines of a task.
//!
//! A connection's task wakes hundreds of times a second, and its deadlines are mostly far away. Resetting a timer
//! each time would cost more than the rest of the wake-up, so this one is only ever set to an earlier time; an
//! early ring is harmless.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Later than any deadline.
const FAR: Duration = Duration::from_secs(3_600);

/// A timer.
#[derive(Debug)]
pub struct Alarm {
    sleep: Pin<Box<Sleep>>,
    rung: bool,
}

impl Default for Alarm {
    fn default() -> Self {
        Self::new()
    }
}

impl Alarm {
    /// An alarm that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sleep: Box::pin(sleep_until(Instant::now() + FAR)),
            rung: false,
        }
    }

    /// Rings at `at` or earlier.
    pub fn at_latest(&mut self, at: Instant) {
        if self.rung || at < self.sleep.deadline() {
            self.rung = false;
            self.sleep.as_mut().reset(at);
        }
    }

    /// Ready when it rings.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let rings = self.sleep.as_mut().poll(context);
        self.rung |= rings.is_ready();
        rings
    }

    /// Waits until it rings. Cancel-safe.
    pub async fn rings(&mut self) {
        std::future::poll_fn(|context| self.poll(context)).await;
    }
}

/// A periodic action.
#[derive(Debug)]
pub struct Every {
    /// The next time.
    pub next: Instant,
    period: Duration,
}

impl Every {
    /// Starts after `first`.
    #[must_use]
    pub fn new(first: Duration, period: Duration) -> Self {
        Self {
            next: Instant::now() + first,
            period,
        }
    }

    /// Whether the action is due; if so, the next one is due after the period.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }
}
