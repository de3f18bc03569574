//! Which messages were seen before.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher as _};

/// What a message identifier says of the message that carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Not seen before; it is remembered from now on.
    New,
    /// A repeat of a message that arrived before.
    Duplicate,
    /// One's own message, looped back by multicast.
    Own,
}

/// A bounded set of message identifiers: the oldest is forgotten when a new one needs its place.
///
/// Only a seeded fingerprint of 128 bits is kept, so that long identifiers cost no memory and
/// colliding ones cannot be prepared.
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
    /// A set of at most `capacity` identifiers (at least one); `seed` is kept from strangers.
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

    fn remember(&mut self, fingerprint: u128, own: bool) {
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

    /// Remembers a message of one's own.
    pub fn sent(&mut self, id: &str) {
        self.remember(self.fingerprint(id), true);
    }

    /// Tells what a message is that arrived, and remembers it.
    pub fn arrived(&mut self, id: &str) -> Arrival {
        let fingerprint = self.fingerprint(id);
        match self.own.get(&fingerprint) {
            Some(true) => Arrival::Own,
            Some(false) => Arrival::Duplicate,
            None => {
                self.remember(fingerprint, false);
                Arrival::New
            }
        }
    }

    /// How many identifiers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many identifiers fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_the_bound_holds() {
        let mut seen = Seen::new(3, 0);
        for id in ["a", "b", "c", "d"] {
            assert_eq!(seen.arrived(id), Arrival::New, "{id}");
            assert!(seen.len() <= seen.capacity());
        }
        assert_eq!(seen.arrived("b"), Arrival::Duplicate);
        assert_eq!(seen.arrived("a"), Arrival::New, "forgotten");
        assert_eq!(seen.len(), 3);
    }
}
