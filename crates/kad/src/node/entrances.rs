//! The entrances of a node: contacts through which it enters the network.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Contact;
use crate::types::Entrance;

/// The first wait before entrances are tried again.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait before entrances are tried again.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Entrances that are kept; a further one replaces the one tried longest ago.
const ENTRANCES_MAX: usize = 64;
/// Entrances tried at a time.
pub(super) const ENTER_AT_ONCE: usize = 8;

/// The entrances, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Entrances {
    entrances: VecDeque<Entrance>,
    wait: Duration,
    /// Entrances that have answered while others are awaited.
    answered: Vec<Contact>,
}

impl Default for Entrances {
    fn default() -> Self {
        Self {
            entrances: VecDeque::new(),
            wait: WAIT_MIN,
            answered: Vec::new(),
        }
    }
}

impl Entrances {
    pub(super) fn is_empty(&self) -> bool {
        self.entrances.is_empty()
    }

    pub(super) fn add(&mut self, entrances: Vec<Entrance>) {
        for entrance in entrances {
            if self.entrances.contains(&entrance) {
                continue;
            }
            if self.entrances.len() >= ENTRANCES_MAX {
                self.entrances.pop_front();
            }
            self.entrances.push_back(entrance);
        }
    }

    /// The next entrances to try, at most `count`.
    pub(super) fn next(&mut self, count: usize) -> Vec<Entrance> {
        let count = count.min(self.entrances.len());
        let next = self.entrances.iter().take(count).copied().collect();
        self.entrances.rotate_left(count);
        next
    }

    /// The wait before entrances are tried again.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Sets the wait back to the shortest.
    pub(super) fn reset_wait(&mut self) {
        self.wait = WAIT_MIN;
    }

    /// Doubles the wait; returns it less up to a half, so that nodes do not enter at the same time.
    pub(super) fn back_off(&mut self, random: &mut fastrand::Rng) -> Duration {
        self.wait = (self.wait * 2).min(WAIT_MAX);
        self.wait.mul_f64(1.0 - random.f64() / 2.0)
    }

    /// Remembers an entrance that has answered.
    pub(super) fn on_answer(&mut self, contact: Contact) {
        self.answered.push(contact);
    }

    /// Removes and returns the entrances that have answered.
    pub(super) fn take_answered(&mut self) -> Vec<Contact> {
        std::mem::take(&mut self.answered)
    }
}
