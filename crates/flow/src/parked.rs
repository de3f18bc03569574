//! The events of a receiver that change what the subscriber stores, in order. An event that finds no
//! room in the log's queue waits, and every later event waits after it: an event that overtook it would
//! move the read position past elements that are not stored.

use alloc::collections::VecDeque;

use crate::ReceiverEvent;
use crate::planted::{self, Defect};

/// Events that wait for room before the program stops reading its connection; reason: credit bounds
/// elements only.
pub const PARKED_MAX: usize = 4_096;

/// Events that a log whose queue is full does not take yet, in order.
///
/// ```
/// # use chappe_flow::{Channel, LossReason, Parked, ReceiverEvent};
/// # let lost = |from| ReceiverEvent::Lost {
/// #     channel: Channel(0), epoch: 1, from, next: from + 1, reason: LossReason::Corrupt,
/// # };
/// let mut parked = Parked::default();
/// assert!(parked.push(lost(1)), "nothing waits before it");
/// let event = parked.take().expect("it is next");
/// parked.put_back(event); // the log's queue is full
/// assert!(!parked.push(lost(2)), "it waits after the first");
/// assert_eq!(parked.take(), Some(lost(1)));
/// ```
#[derive(Debug, Default)]
pub struct Parked {
    events: VecDeque<ReceiverEvent>,
}

impl Parked {
    /// Adds an event after those that wait. True if nothing waits before it: then handle the events
    /// that [`Parked::take`] returns.
    #[must_use]
    pub fn push(&mut self, event: ReceiverEvent) -> bool {
        let is_lost = matches!(event, ReceiverEvent::Lost { .. });
        if is_lost && planted::is(Defect::LostOvertakes) {
            self.events.push_front(event);
            return true;
        }
        self.events.push_back(event);
        self.events.len() == 1
    }

    /// The next event to handle.
    pub fn take(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    /// Puts back the event taken last, because the log's queue has no room for it.
    pub fn put_back(&mut self, event: ReceiverEvent) {
        self.events.push_front(event);
    }

    /// The events that wait, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ReceiverEvent> {
        self.events.iter()
    }

    /// Whether no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether so many events wait that the connection is not to be read ([`PARKED_MAX`]).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.events.len() >= PARKED_MAX
    }
}
