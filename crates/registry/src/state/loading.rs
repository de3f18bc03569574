//! A state that is read from a journal: its indexes are built at the end, all at once.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::{Indexed, Slot, State, StoredEntity, keys_of};
use crate::keys::EntityKeys;
use crate::partition::Put;

/// Entities whose keys are made together; reason: passing them to the other thread costs little then.
const BATCH: usize = 256;
/// Batches made while an earlier one is put into the indexes; reason: neither waits for the other.
const AHEAD: usize = 4;

/// Entities with their keys.
type Keyed = Vec<(Arc<StoredEntity>, EntityKeys)>;

impl State {
    /// An empty state for the records of a journal. Its entities are found after [`State::finish_loading`].
    pub(crate) fn loading() -> Self {
        Self {
            is_loading: true,
            ..Self::default()
        }
    }

    /// Indexes all entities at once, which takes a fraction of the time of one by one.
    pub(crate) fn finish_loading(&mut self) {
        if !std::mem::take(&mut self.is_loading) {
            return;
        }
        let (sender, batches) = sync_channel::<Keyed>(AHEAD);
        let (dictionary, entities) = (self.dictionary.clone(), self.entities.clone());
        let make = move || {
            let indexed = Indexed::of(&dictionary);
            let mut entities = entities.iter();
            loop {
                let next = entities.by_ref().take(BATCH).map(|Slot(_, stored)| {
                    let keys = keys_of(&dictionary, &stored, &indexed);
                    (stored, keys)
                });
                let batch: Keyed = next.collect();
                if batch.is_empty() || sender.send(batch).is_err() {
                    return;
                }
            }
        };
        thread::scope(|scope| {
            let making = thread::Builder::new().name("chappe-registry".to_owned());
            if making.spawn_scoped(scope, make).is_ok() {
                for (stored, keys) in batches.into_iter().flatten() {
                    self.put_keys(&stored, &keys, Put::Load);
                }
                return;
            }
            // Without another thread it takes longer.
            let indexed = Indexed::of(&self.dictionary);
            for Slot(_, stored) in self.entities.iter() {
                self.index(&stored, &indexed, Put::Load);
            }
        });
        self.groups.order();
    }
}
