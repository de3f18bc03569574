//! The subscribed prefixes (37/ZMTP, section The Publish-Subscribe Pattern): subscriptions of a prefix are counted, and
//! each needs its own cancel.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Prefixes with their number of subscriptions.
///
/// ```
/// use chappe_zmtp::Subscriptions;
/// let mut subscriptions = Subscriptions::default();
/// assert!(subscriptions.add("room".into()));
/// assert!(!subscriptions.add("room".into()), "the second is not new");
/// assert!(subscriptions.matches(b"room/7"));
/// assert!(!subscriptions.remove(b"room"), "one is left");
/// assert!(subscriptions.remove(b"room"));
/// assert!(!subscriptions.matches(b"room/7"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subscriptions {
    counts: BTreeMap<Bytes, u64>,
    /// The number of prefixes of each length: a topic is looked up once for each length in use.
    lengths: BTreeMap<usize, usize>,
}

impl Subscriptions {
    /// Adds a subscription. Returns whether the prefix is new.
    pub fn add(&mut self, prefix: Bytes) -> bool {
        if let Some(count) = self.counts.get_mut(&prefix) {
            *count = count.saturating_add(1);
            return false;
        }
        *self.lengths.entry(prefix.len()).or_default() += 1;
        self.counts.insert(prefix, 1);
        true
    }

    /// Removes a subscription. Returns whether it was the last of the prefix. Ignores unknown prefixes.
    pub fn remove(&mut self, prefix: &[u8]) -> bool {
        let Some(count) = self.counts.get_mut(prefix) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.counts.remove(prefix);
        if let Some(used) = self.lengths.get_mut(&prefix.len()) {
            *used -= 1;
            if *used == 0 {
                self.lengths.remove(&prefix.len());
            }
        }
        true
    }

    /// Whether a prefix matches this topic.
    #[must_use]
    pub fn matches(&self, topic: &[u8]) -> bool {
        self.lengths
            .keys()
            .take_while(|length| **length <= topic.len())
            .any(|length| self.counts.contains_key(&topic[..*length]))
    }

    /// Whether this exact prefix is subscribed.
    #[must_use]
    pub fn contains(&self, prefix: &[u8]) -> bool {
        self.counts.contains_key(prefix)
    }

    /// The prefixes in order.
    pub fn prefixes(&self) -> impl Iterator<Item = &Bytes> {
        self.counts.keys()
    }

    /// The number of different prefixes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether there is no subscription.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_prefix_matches_all() {
        let mut subscriptions = Subscriptions::default();
        assert!(!subscriptions.matches(b""));
        subscriptions.add(Bytes::new());
        assert!(subscriptions.matches(b"") && subscriptions.matches(b"a"));
        assert!(!subscriptions.remove(b"a"));
        assert!(subscriptions.remove(b""));
        assert!(subscriptions.is_empty() && !subscriptions.matches(b"a"));
    }
}
