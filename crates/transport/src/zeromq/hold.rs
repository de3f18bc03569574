//! The memory and the place that a connection holds while it finishes no message.
//!
//! A peer may begin a message and never end it, or send nothing at all. Both are normal for a short time and for a few
//! connections, so a listener bounds the time of a message, and the bytes of unfinished messages of all its
//! connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use chappe_machine::Instant;
use chappe_zmtp::Error;

use crate::http::Place;

/// Bytes of an unfinished message that are not counted; reason: usual messages are never refused for those of others.
const FREE_BYTES: usize = 64 << 10;

/// The bytes of unfinished messages of all connections of a listener.
#[derive(Debug)]
pub(super) struct Budget {
    bound: usize,
    taken: AtomicUsize,
}

impl Budget {
    pub(super) fn new(bound: usize) -> Arc<Self> {
        Arc::new(Self {
            bound,
            taken: AtomicUsize::new(0),
        })
    }
}

/// What one connection holds. The default has no bounds.
#[derive(Debug, Default)]
pub(super) struct Hold {
    time: Option<Duration>,
    budget: Option<Arc<Budget>>,
    /// Moved behind those of other waiting connections with each message.
    place: Weak<Place>,
    counted: usize,
    /// When the unfinished message began.
    since: Option<Instant>,
}

impl Hold {
    pub(super) fn new(
        time: Option<Duration>,
        budget: Option<Arc<Budget>>,
        place: Weak<Place>,
    ) -> Self {
        Self {
            time,
            budget,
            place,
            ..Self::default()
        }
    }

    /// After bytes were received, or time has passed: the bound that was exceeded.
    pub(super) fn update(
        &mut self,
        unfinished: usize,
        has_message: bool,
        now: Instant,
    ) -> Option<Error> {
        if has_message && let Some(place) = self.place.upgrade() {
            place.waits();
        }
        if has_message || unfinished == 0 {
            self.since = None;
        }
        if unfinished > 0 {
            self.since.get_or_insert(now);
        }
        let late = self.deadline().is_some_and(|deadline| deadline <= now);
        if late {
            self.since = None;
            let bound = self.time.map_or(0, |time| time.as_secs());
            return Some(Error::Limit {
                limit: "message_time_s",
                bound: usize::try_from(bound).unwrap_or(usize::MAX),
            });
        }
        let budget = self.budget.as_ref()?;
        let counted = unfinished.saturating_sub(FREE_BYTES);
        budget.taken.fetch_sub(self.counted, Ordering::Relaxed);
        let taken = budget.taken.fetch_add(counted, Ordering::Relaxed) + counted;
        let has_grown = counted > self.counted;
        self.counted = counted;
        (has_grown && taken > budget.bound).then_some(Error::Limit {
            limit: "unfinished_bytes",
            bound: budget.bound,
        })
    }

    /// When the unfinished message has to be complete.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + self.time?)
    }

    /// The connection is read from again, after it was not.
    pub(super) fn resume(&mut self, now: Instant) {
        if let Some(since) = &mut self.since {
            *since = now;
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.taken.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_messages_are_bounded_in_time_and_in_total() {
        let budget = Budget::new(1_000);
        let time = Some(Duration::from_secs(60));
        let new = || Hold::new(time, Some(budget.clone()), Weak::new());
        let at = |s| Instant::ZERO + Duration::from_secs(s);
        let (mut one, mut other) = (new(), new());
        assert_eq!(one.update(FREE_BYTES + 900, false, at(0)), None);
        assert_eq!(one.deadline(), Some(at(60)));
        // A usual message finds room beside it, a large one does not.
        assert_eq!(other.update(FREE_BYTES, false, at(1)), None);
        let full = other.update(FREE_BYTES + 200, false, at(2));
        assert!(matches!(
            full,
            Some(Error::Limit {
                limit: "unfinished_bytes",
                bound: 1_000
            })
        ));
        drop(other);
        // One byte more does not extend its time; a complete message does.
        assert_eq!(one.update(FREE_BYTES + 901, false, at(59)), None);
        assert_eq!(one.update(1, true, at(59)), None);
        assert_eq!(budget.taken.load(Ordering::Relaxed), 0);
        one.resume(at(100));
        assert_eq!(one.update(2, false, at(159)), None);
        let late = one.update(2, false, at(160));
        assert!(matches!(
            late,
            Some(Error::Limit {
                limit: "message_time_s",
                bound: 60
            })
        ));
    }
}
