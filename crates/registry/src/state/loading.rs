//! Loading a state from a journal. The indexes are built once, after the last record.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::{Indexed, Slot, State, StoredEntity, keys_of};
use crate::dictionary::Dictionary;
use crate::keys::EntityKeys;
use crate::partition::Put;

/// Entities in a batch of keys; reason: large enough that passing it between threads costs little.
const BATCH: usize = 256;
/// Batches that are prepared while an earlier one is indexed; reason: neither thread waits for the other.
const AHEAD: usize = 4;

/// Entities with their keys.
type Keyed = Vec<(Arc<StoredEntity>, EntityKeys)>;

impl State {
    /// An empty state for the records of a journal. Its entities are found after [`State::finish_loading`].
    pub(crate) fn loading() -> Self {
        Self {
            dictionary: Dictionary::loading(),
            is_loading: true,
            ..Self::default()
        }
    }

    /// Indexes all entities at once, which takes a fraction of the time of one by one.
    pub(crate) fn finish_loading(&mut self) {
        if !std::mem::take(&mut self.is_loading) {
            return;
        }
        self.dictionary.finish_loading();
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
            // The system has no thread to spare.
            let indexed = Indexed::of(&self.dictionary);
            for Slot(_, stored) in self.entities.iter() {
                self.index(&stored, &indexed, Put::Load);
            }
        });
        self.groups.order();
    }
}
