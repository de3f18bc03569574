//! The events of a receiver that change what the subscriber stores, in order. An event that finds no
//! room in the log's queue waits, and every later event waits after it: an event that overtook it would
//! move the read position past elements that are not stored. An event that waits for the definition of
//! its own stream holds only the later events of its channel.

use alloc::collections::{BTreeSet, VecDeque};

use crate::planted::{self, Defect};
use crate::{Channel, ReceiverEvent};

/// Events that wait for room before the program stops reading its connection; reason: credit bounds
/// elements only.
pub const PARKED_MAX: usize = 4_096;

/// Events that wait because the log's queue is full.
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
///
/// parked.hold(lost(1)); // its stream is being defined
/// assert_eq!(parked.take(), None, "the second is of the same channel");
/// parked.release();
/// assert_eq!(parked.take(), Some(lost(1)));
/// ```
#[derive(Debug, Default)]
pub struct Parked {
    events: VecDeque<ReceiverEvent>,
    /// Channels whose events wait even while the queue has room.
    held: BTreeSet<Channel>,
}

impl Parked {
    /// Adds an event after those that wait. True if it waits for none of them: then handle the events
    /// that [`Parked::take`] returns.
    #[must_use]
    pub fn push(&mut self, event: ReceiverEvent) -> bool {
        let is_lost = matches!(event, ReceiverEvent::Lost { .. });
        if is_lost && planted::is(Defect::LostOvertakes) {
            self.events.push_front(event);
            return true;
        }
        let is_next = !self.is_held(&event) && self.events.iter().all(|it| self.is_held(it));
        self.events.push_back(event);
        is_next
    }

    /// Takes the next event to handle.
    pub fn take(&mut self) -> Option<ReceiverEvent> {
        let next = self.events.iter().position(|it| !self.is_held(it))?;
        self.events.remove(next)
    }

    /// Puts back the event taken last, because the log's queue has no room for it.
    pub fn put_back(&mut self, event: ReceiverEvent) {
        self.events.push_front(event);
    }

    /// Puts back the event taken last, and holds its channel: events of other channels continue.
    pub fn hold(&mut self, event: ReceiverEvent) {
        self.held.extend(event.channel());
        self.events.push_front(event);
    }

    /// Releases the held channels.
    pub fn release(&mut self) {
        self.held.clear();
    }

    fn is_held(&self, event: &ReceiverEvent) -> bool {
        event.channel().is_some_and(|it| self.held.contains(&it))
    }

    /// The events that wait, in order within each channel.
    pub fn iter(&self) -> impl Iterator<Item = &ReceiverEvent> {
        self.events.iter()
    }

    /// Whether no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether so many events wait that the program must stop reading the connection
    /// ([`PARKED_MAX`]).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.events.len() >= PARKED_MAX
    }
}
