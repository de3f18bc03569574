//! Which notifications of a subscription were handed out.

use std::collections::{BTreeSet, VecDeque};

/// Hashes of the identifiers of the last notifications.
#[derive(Debug, Default)]
pub(super) struct Seen {
    order: VecDeque<u64>,
    all: BTreeSet<u64>,
}

impl Seen {
    /// Notes one, and forgets the oldest beyond `most`; says whether it is new.
    pub(super) fn note(&mut self, hash: u64, most: usize) -> bool {
        if self.all.contains(&hash) {
            return false;
        }
        if most == 0 {
            return true;
        }
        while self.order.len() >= most {
            if let Some(oldest) = self.order.pop_front() {
                self.all.remove(&oldest);
            }
        }
        self.order.push_back(hash);
        self.all.insert(hash);
        true
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn clear(&mut self) {
        self.order.clear();
        self.all.clear();
    }
}
