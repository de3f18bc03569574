//! The queue of future events: ordered by virtual time, then by insertion.
//!
//! A binary heap of 24-byte entries over a slab of events: insertion and removal cost O(log n), and
//! an event is moved twice however many others wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use chappe_machine::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: Instant,
    /// The order of insertion, for events of one instant.
    order: u64,
    slot: u32,
}

/// Events in the order in which they happen.
///
/// ```
/// use chappe_machine::Instant;
/// use chappe_sim::network::Queue;
/// let mut queue = Queue::default();
/// queue.put(Instant::from_nanos(9), "later");
/// queue.put(Instant::from_nanos(4), "first");
/// queue.put(Instant::from_nanos(4), "second");
/// assert_eq!(queue.next(), Some(Instant::from_nanos(4)));
/// assert_eq!(queue.take().map(|(_, event)| event), Some("first"));
/// assert_eq!(queue.take().map(|(_, event)| event), Some("second"));
/// assert_eq!(queue.len(), 1);
/// ```
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Entry>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    order: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
            order: 0,
        }
    }
}

impl<E> Queue<E> {
    /// Schedules an event.
    ///
    /// # Panics
    /// If four thousand million events wait: memory ends before.
    pub fn put(&mut self, at: Instant, event: E) {
        let slot = match self.free.pop() {
            Some(slot) => {
                self.events[slot as usize] = Some(event);
                slot
            }
            None => {
                let slot = u32::try_from(self.events.len()).expect("fewer than 2^32 events wait");
                self.events.push(Some(event));
                slot
            }
        };
        let order = self.order;
        self.order += 1;
        self.heap.push(Reverse(Entry { at, order, slot }));
    }

    /// When the next event happens.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event.
    pub fn take(&mut self) -> Option<(Instant, E)> {
        let Reverse(entry) = self.heap.pop()?;
        self.free.push(entry.slot);
        let event = self.events[entry.slot as usize].take()?;
        Some((entry.at, event))
    }

    /// The number of waiting events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no event waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}
