//! One timer for all that a task waits for.
//!
//! A task of a connection is woken hundreds of times a second, and its deadlines are mostly far away:
//! a timer that was set anew each time would cost more than the rest of the wake-up. This one is only
//! ever set to something earlier; that it rings too early is harmless.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Later than anything that is waited for.
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
    /// One that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sleep: Box::pin(sleep_until(Instant::now() + FAR)),
            rung: false,
        }
    }

    /// Rings at `at` or before.
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

    /// Returns when it rings. May be dropped and called again.
    pub async fn rings(&mut self) {
        std::future::poll_fn(|context| self.poll(context)).await;
    }
}

/// Something done again and again.
#[derive(Debug)]
pub struct Every {
    /// When it is done next.
    pub next: Instant,
    period: Duration,
}

impl Every {
    /// For the first time after `first`.
    #[must_use]
    pub fn new(first: Duration, period: Duration) -> Self {
        Self {
            next: Instant::now() + first,
            period,
        }
    }

    /// Whether it is to be done now; if so, it is next after the period.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }
}
