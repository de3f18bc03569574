//! What the registry holds, in numbers.

use super::Registry;

/// Size and state of the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Entities.
    pub entities: usize,
    /// Triples, counted once for each entity that brings them.
    pub triples: usize,
    /// Distinct terms.
    pub terms: usize,
    /// Bytes of the entities, as [`crate::Entity::counted_bytes`] counts them.
    pub bytes: usize,
    /// Distinct access rules.
    pub access_groups: usize,
    /// Bytes of the indexes and the dictionary, computed from their capacities.
    pub memory_bytes: usize,
    /// Position of the last change in memory.
    pub revision: u64,
    /// Records in the journal since its newest snapshot started.
    pub records_since_snapshot: u64,
    /// Number of changes that the feed no longer remembers.
    pub feed_forgotten: u64,
}

impl Registry {
    /// The number of an owner's entities.
    #[must_use]
    pub fn entities_of(&self, owner: &str) -> usize {
        self.inner.snapshot_of_memory().owned_by(owner).0
    }

    /// Bytes of the entities of an owner, as [`crate::Entity::counted_bytes`] counts them.
    #[must_use]
    pub fn bytes_of(&self, owner: &str) -> usize {
        self.inner.snapshot_of_memory().owned_by(owner).1
    }

    /// Sizes and counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let state = self.snapshot();
        let records_since_snapshot = self.inner.writer().since_snapshot;
        Statistics {
            entities: state.len(),
            triples: state.triples(),
            terms: state.terms(),
            bytes: state.bytes(),
            access_groups: state.access_groups(),
            memory_bytes: state.memory_bytes(),
            revision: self.inner.feed.last(),
            records_since_snapshot,
            feed_forgotten: self.inner.feed.forgotten(),
        }
    }
}
