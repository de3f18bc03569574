//! Pauses between attempts, which grow.

use std::time::Duration;

/// The first pause; reason: a peer that restarts is back soon.
const FIRST: Duration = Duration::from_millis(500);
/// The longest pause; reason: a peer that is gone for days is found within a minute of its return.
const LONGEST: Duration = Duration::from_secs(60);

/// The pause before the next attempt.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Pause {
    /// The pause before the next attempt; the one after it is twice as long.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute() {
        let mut pause = Pause::default();
        assert_eq!(pause.next(), FIRST);
        assert_eq!(pause.next(), 2 * FIRST);
        for _ in 0..100 {
            pause.next();
        }
        assert_eq!(pause.next(), LONGEST);
    }
}
