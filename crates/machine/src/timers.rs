//! A set of deadlines, for machines that wait for several events at once.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::Instant;

/// At most one deadline for each key, ordered by time and then by key, hence deterministic.
///
/// ```
/// use chappe_machine::{Instant, Timers};
/// let mut timers = Timers::default();
/// timers.set("renew", Instant::from_nanos(5));
/// timers.set("renew", Instant::from_nanos(9));
/// assert_eq!(timers.next(), Some(Instant::from_nanos(9)));
/// assert_eq!(timers.pop(Instant::from_nanos(8)), None);
/// assert_eq!(timers.pop(Instant::from_nanos(9)), Some("renew"));
/// ```
#[derive(Debug, Clone)]
pub struct Timers<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: BTreeMap<K, Instant>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets the deadline of `key`; replaces a previous one.
    pub fn set(&mut self, key: K, at: Instant) {
        self.cancel(&key);
        self.by_key.insert(key.clone(), at);
        self.by_time.insert((at, key));
    }

    /// Removes the deadline of `key`; returns whether there was one.
    pub fn cancel(&mut self, key: &K) -> bool {
        match self.by_key.remove(key) {
            Some(at) => self.by_time.remove(&(at, key.clone())),
            None => false,
        }
    }

    /// Whether `key` has a deadline.
    #[must_use]
    pub fn is_set(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Takes one key whose deadline is not after `now`.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// The number of deadlines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether no deadline is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}
