//! Detection of duplicate messages.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};

/// The classification of a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// A new message; its identifier is stored.
    New,
    /// A duplicate of an earlier message.
    Duplicate,
    /// The machine's own message, looped back by multicast.
    Own,
}

/// A bounded set of message identifiers that removes the oldest first.
///
/// It stores a seeded 128-bit fingerprint of each, so that long identifiers take no more memory and
/// collisions cannot be prepared.
///
/// ```
/// use chappe_soap::udp::{Arrival, Seen};
/// let mut seen = Seen::new(1_024, 7);
/// seen.sent("urn:uuid:mine");
/// assert_eq!(seen.arrived("urn:uuid:mine"), Arrival::Own);
/// assert_eq!(seen.arrived("urn:uuid:yours"), Arrival::New);
/// assert_eq!(seen.arrived("urn:uuid:yours"), Arrival::Duplicate);
/// ```
#[derive(Debug, Clone)]
pub struct Seen {
    own: HashMap<u128, bool>,
    order: VecDeque<u128>,
    capacity: usize,
    seed: u64,
}

impl Seen {
    /// Creates a set of at most `capacity` identifiers (at least one). `seed` must be secret.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            own: HashMap::new(),
            order: VecDeque::new(),
            capacity: capacity.max(1),
            seed,
        }
    }

    fn fingerprint(&self, id: &str) -> u128 {
        let half = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.seed ^ salt);
            hasher.write(id.as_bytes());
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(u64::MAX)
    }

    fn insert(&mut self, fingerprint: u128, own: bool) {
        if self.own.insert(fingerprint, own).is_some() {
            return;
        }
        self.order.push_back(fingerprint);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.own.remove(&oldest);
        }
    }

    /// Records a sent message.
    pub fn sent(&mut self, id: &str) {
        self.insert(self.fingerprint(id), true);
    }

    /// Classifies a received message without recording it.
    #[must_use]
    pub fn classify(&self, id: &str) -> Arrival {
        match self.own.get(&self.fingerprint(id)) {
            Some(true) => Arrival::Own,
            Some(false) => Arrival::Duplicate,
            None => Arrival::New,
        }
    }

    /// Classifies and records a received message.
    pub fn arrived(&mut self, id: &str) -> Arrival {
        let arrival = self.classify(id);
        if arrival == Arrival::New {
            self.insert(self.fingerprint(id), false);
        }
        arrival
    }

    /// The number of stored identifiers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The limit of identifiers.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_identifier_is_removed_first() {
        let mut seen = Seen::new(3, 0);
        for id in ["a", "b", "c", "d"] {
            assert_eq!(seen.arrived(id), Arrival::New, "{id}");
            assert!(seen.len() <= seen.capacity());
        }
        assert_eq!(seen.arrived("b"), Arrival::Duplicate);
        assert_eq!(seen.arrived("a"), Arrival::New, "the oldest was removed");
        assert_eq!(seen.len(), 3);
    }
}
