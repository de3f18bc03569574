//! The clock of machines on real sockets.

use std::sync::OnceLock;

use chappe_machine::Instant;

/// The process's monotonic clock; its origin is the first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// The clock, shared by the whole process, so that the instants of all machines are comparable.
    #[must_use]
    pub fn process() -> Self {
        static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();
        Self {
            origin: *ORIGIN.get_or_init(tokio::time::Instant::now),
        }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.origin.elapsed()
    }

    /// The same instant of the runtime's clock, for waiting.
    #[must_use]
    pub fn at(&self, instant: Instant) -> tokio::time::Instant {
        self.origin + (instant - Instant::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_agree() {
        let clock = Clock::process();
        let before = clock.now();
        assert!(clock.now() >= before);
        assert!(clock.at(before) <= tokio::time::Instant::now());
        assert_eq!(Clock::process(), clock);
    }
}
