//! Counts of numbered elements: each origin numbers its own from 1, and a receiver detects missing,
//! duplicated and late ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::latency::Latencies;
use super::message::{Counted, Role};
use super::station::{Due, now};

/// The numbers of one origin, in order of arrival. A number is marked once it has arrived.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    seen: Vec<u64>,
    highest: u64,
    received: u64,
    doubled: u64,
    reordered: u64,
}

impl Tally {
    /// Takes a number.
    pub(crate) fn take(&mut self, number: u64) {
        self.received += 1;
        let (word, bit) = ((number / 64) as usize, number % 64);
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & (1 << bit) != 0 {
            self.doubled += 1;
            return;
        }
        self.seen[word] |= 1 << bit;
        if number < self.highest {
            self.reordered += 1;
        }
        self.highest = self.highest.max(number);
    }

    /// Adds the outcome of the numbers after `before` up to `produced`.
    pub(crate) fn count(&self, before: u64, produced: u64, counted: &mut Counted) {
        let marked = |number: &u64| {
            let word = self.seen.get((number / 64) as usize);
            word.is_some_and(|word| word & (1 << (number % 64)) != 0)
        };
        let there = (before + 1..=produced).filter(marked).count() as u64;
        counted.received += there;
        counted.lost += produced.saturating_sub(before) - there;
        counted.doubled += self.doubled;
        counted.reordered += self.reordered;
    }
}

/// The elements received by a client of a peer, by origin. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    tallies: Arc<Mutex<Vec<Tally>>>,
    latencies: Latencies,
    timed: Vec<usize>,
}

/// An element as carried by a peer: its time, and its number as the first of three doubles.
pub(crate) const ELEMENT_BYTES: usize = 32;

impl Received {
    /// Nothing yet, of `role.nodes` origins.
    pub(crate) fn new(role: &Role, latencies: Latencies) -> Self {
        let tallies = std::iter::repeat_with(Tally::default).take(role.nodes);
        Self {
            tallies: Arc::new(Mutex::new(tallies.collect())),
            latencies,
            timed: role.timed.clone(),
        }
    }

    /// Encodes a due element for a peer.
    pub(crate) fn encode(due: Due) -> [u8; ELEMENT_BYTES] {
        let number = due.number as f64;
        let mut bytes = [0; ELEMENT_BYTES];
        bytes[..8].copy_from_slice(&due.time.to_le_bytes());
        for (place, value) in [number, number * 0.1, -number].into_iter().enumerate() {
            bytes[8 * (place + 1)..8 * (place + 2)].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Decodes an element of the origin `index`; malformed bytes are skipped.
    pub(crate) fn take(&self, index: usize, bytes: &[u8]) {
        let word = |place: usize| -> Option<[u8; 8]> {
            bytes.get(8 * place..8 * (place + 1))?.try_into().ok()
        };
        let (Some(time), Some(number)) = (word(0), word(1)) else {
            return;
        };
        let mut tallies = self.tallies();
        let Some(tally) = tallies.get_mut(index) else {
            return;
        };
        tally.take(f64::from_le_bytes(number) as u64);
        if self.timed.contains(&index) {
            self.latencies.take_one(i64::from_le_bytes(time), now());
        }
    }

    /// Number of elements that arrived, by origin.
    pub(crate) fn outputs(&self) -> Vec<u64> {
        self.tallies().iter().map(|tally| tally.received).collect()
    }

    /// The highest number, for each origin.
    pub(crate) fn reached(&self) -> Vec<u64> {
        self.tallies().iter().map(|tally| tally.highest).collect()
    }

    /// The counts of all origins together.
    pub(crate) fn count(&self, before: &[u64], produced: &[u64]) -> Counted {
        let mut counted = Counted::default();
        let ranges = before.iter().zip(produced);
        for (tally, (before, produced)) in self.tallies().iter().zip(ranges) {
            tally.count(*before, *produced, &mut counted);
        }
        counted
    }

    fn tallies(&self) -> MutexGuard<'_, Vec<Tally>> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_reordered_are_told_apart() {
        let mut tally = Tally::default();
        for number in [1, 2, 3, 5, 4, 4, 200] {
            tally.take(number);
        }
        let mut counted = Counted::default();
        tally.count(1, 201, &mut counted);
        let expected = Counted {
            received: 5,
            lost: 195,
            doubled: 1,
            reordered: 1,
        };
        assert_eq!((counted, tally.highest), (expected, 200));
    }
}
