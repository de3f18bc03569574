//! Detects duplicate notifications of a subscription.

use std::collections::{BTreeSet, VecDeque};

/// Hashes of the latest message identifiers.
#[derive(Debug, Default)]
pub(super) struct Seen {
    order: VecDeque<u64>,
    hashes: BTreeSet<u64>,
}

impl Seen {
    /// Adds a hash and removes the oldest beyond `capacity`. False for a duplicate.
    pub(super) fn insert(&mut self, hash: u64, capacity: usize) -> bool {
        if self.hashes.contains(&hash) {
            return false;
        }
        if capacity == 0 {
            return true;
        }
        while self.order.len() >= capacity {
            if let Some(oldest) = self.order.pop_front() {
                self.hashes.remove(&oldest);
            }
        }
        self.order.push_back(hash);
        self.hashes.insert(hash);
        true
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.hashes.clear();
    }
}
