//! Replays recorded elements at the pace at which they were recorded.

use std::time::{Duration, Instant};

use chappe_stream::Timestamp;

/// When recorded elements are due.
#[derive(Debug)]
pub(super) struct Replay {
    /// Recorded seconds that pass in one second.
    speed: f64,
    /// The time of the first element, and when it was due.
    begun: Option<(Timestamp, Instant)>,
}

impl Replay {
    pub(super) fn new(speed: f64) -> Self {
        Self { speed, begun: None }
    }

    /// When an element of this time is due. The first one is due at once; one whose time is before that
    /// of the first one, too.
    pub(super) fn due(&mut self, time: Timestamp, now: Instant) -> Instant {
        let (first, begun) = *self.begun.get_or_insert((time, now));
        let recorded = time.0.saturating_sub(first.0).max(0);
        let seconds = recorded as f64 / 1e9 / self.speed;
        // A pause of a century ends no earlier than the node.
        begun + Duration::from_secs_f64(seconds.min(3e9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_due_as_they_were_recorded() {
        let (mut replay, now) = (Replay::new(2.0), Instant::now());
        let mut after = |time| replay.due(Timestamp(time), now) - now;
        assert_eq!(after(1_000_000_000), Duration::ZERO);
        assert_eq!(after(3_000_000_000), Duration::from_secs(1));
        assert_eq!(after(0), Duration::ZERO);
        assert_eq!(after(i64::MIN), Duration::ZERO);
        assert!(after(i64::MAX) > Duration::from_secs(1 << 30));
    }
}
