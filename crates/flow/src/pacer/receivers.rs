//! One to many: the progress of the receivers that the sender waits for.
//!
//! A reliable sender with several receivers goes at the pace of the slowest, unless its policy
//! differs: one that has died or stalled would stall the others. This counts the acknowledgements
//! of each receiver, and returns the amount in flight to the slowest that is waited for.

use alloc::collections::BTreeMap;

use chappe_machine::Instant;

use super::InFlight;
use core::time::Duration;

/// The receivers that a sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// For all.
    All,
    /// Those that acknowledged something within this time, or have had nothing outstanding for
    /// longer; a silent one is left behind until it acknowledges again.
    Silence(Duration),
    /// Those that are at most this many elements behind the fastest.
    Behind(u64),
}

/// The state of one receiver.
#[derive(Debug, Clone, Copy)]
struct Receiver {
    elements: u64,
    bytes: u64,
    /// Since when it has been silent with data in flight to it.
    since: Instant,
}

/// The receivers of one sender, by a key of the caller's.
#[derive(Debug, Clone)]
pub struct Receivers<Key> {
    waits: Waits,
    receivers: BTreeMap<Key, Receiver>,
    /// Sent since the beginning.
    elements: u64,
    bytes: u64,
}

impl<Key: Ord + Copy> Receivers<Key> {
    /// None yet.
    #[must_use]
    pub const fn new(waits: Waits) -> Self {
        Self {
            waits,
            receivers: BTreeMap::new(),
            elements: 0,
            bytes: 0,
        }
    }

    /// Adds a receiver; earlier samples do not concern it.
    pub fn add(&mut self, now: Instant, key: Key) {
        let (elements, bytes) = (self.elements, self.bytes);
        self.receivers.entry(key).or_insert(Receiver {
            elements,
            bytes,
            since: now,
        });
    }

    /// A receiver went.
    pub fn remove(&mut self, key: &Key) {
        self.receivers.remove(key);
    }

    /// Records that this much was sent to all.
    pub fn sent(&mut self, now: Instant, bytes: u64, elements: u64) {
        for receiver in self.receivers.values_mut() {
            if receiver.elements == self.elements {
                receiver.since = now;
            }
        }
        self.elements = self.elements.saturating_add(elements);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Records a receiver's acknowledgement. Samples that were never sent to it do not count.
    pub fn acknowledged(&mut self, now: Instant, key: &Key, bytes: u64, elements: u64) {
        if let Some(receiver) = self.receivers.get_mut(key) {
            receiver.elements = receiver
                .elements
                .saturating_add(elements)
                .min(self.elements);
            receiver.bytes = receiver.bytes.saturating_add(bytes).min(self.bytes);
            receiver.since = now;
        }
    }

    /// Whether the sender waits for this receiver now.
    #[must_use]
    pub fn is_waited_for(&self, now: Instant, key: &Key) -> bool {
        let fastest = self.receivers.values().map(|one| one.elements).max();
        let receiver = self.receivers.get(key);
        receiver.is_some_and(|one| self.waits_for(now, one, fastest.unwrap_or_default()))
    }

    /// The amount in flight to the slowest that is waited for; nothing if there is none.
    #[must_use]
    pub fn in_flight(&self, now: Instant) -> InFlight {
        let fastest = self.receivers.values().map(|one| one.elements).max();
        let fastest = fastest.unwrap_or_default();
        let mut in_flight = InFlight::default();
        for receiver in self.receivers.values() {
            if self.waits_for(now, receiver, fastest) {
                let elements = self.elements - receiver.elements;
                in_flight.elements = in_flight.elements.max(elements);
                in_flight.bytes = in_flight.bytes.max(self.bytes - receiver.bytes);
            }
        }
        in_flight
    }

    /// The number of receivers, and of those currently left behind.
    #[must_use]
    pub fn counts(&self, now: Instant) -> (usize, usize) {
        let fastest = self.receivers.values().map(|one| one.elements).max();
        let fastest = fastest.unwrap_or_default();
        let waited = self.receivers.values();
        let waited = waited.filter(|one| self.waits_for(now, one, fastest));
        let all = self.receivers.len();
        (all, all - waited.count())
    }

    fn waits_for(&self, now: Instant, receiver: &Receiver, fastest: u64) -> bool {
        match self.waits {
            Waits::All => true,
            Waits::Silence(time) => {
                receiver.elements == self.elements || now - receiver.since <= time
            }
            Waits::Behind(elements) => fastest - receiver.elements <= elements,
        }
    }
}
