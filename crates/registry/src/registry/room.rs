//! The room that entities take while they are in flight.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Inner;
use crate::error::Error;
use crate::limits::Room;
use crate::record::Record;

/// Entities of one owner, or of all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Amount {
    entities: usize,
    bytes: usize,
}

impl Amount {
    fn add(&mut self, other: Self) {
        self.entities += other.entities;
        self.bytes += other.bytes;
    }

    fn remove(&mut self, other: Self) {
        self.entities = self.entities.saturating_sub(other.entities);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// Room for entities in flight; dropping it frees the room, which the entities in memory take from then on.
pub(super) struct Taken {
    inner: Arc<Inner>,
    by_owner: BTreeMap<String, Amount>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut in_flight = self.inner.in_flight();
        for (owner, amount) in &self.by_owner {
            if let Some(held) = in_flight.get_mut(owner) {
                held.remove(*amount);
                if held.entities == 0 {
                    in_flight.remove(owner);
                }
            }
        }
    }
}

impl Inner {
    fn in_flight(&self) -> MutexGuard<'_, HashMap<String, Amount>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the room for what a record publishes, as long as it is in flight. What the record
    /// replaces or removes makes room at once.
    pub(super) fn take_room(
        self: &Arc<Self>,
        record: &Record,
        room: &Room,
    ) -> Result<Option<Taken>, Error> {
        let mut by_owner: BTreeMap<String, Amount> = BTreeMap::new();
        let mut published = Amount::default();
        for entity in record.published() {
            let amount = Amount {
                entities: 1,
                bytes: entity.counted_bytes(),
            };
            by_owner
                .entry(entity.owner.clone())
                .or_default()
                .add(amount);
            published.add(amount);
        }
        if by_owner.is_empty() {
            return Ok(None);
        }
        let state = self.snapshot_of_memory();
        let (mut freed, mut freed_by_owner) = (0, HashMap::<String, Amount>::new());
        for key in record.keys() {
            if let Some((rule, _)) = state.rule_of(key) {
                let bytes = state.bytes_at(key);
                freed += bytes;
                let amount = Amount { entities: 1, bytes };
                freed_by_owner.entry(rule.owner).or_default().add(amount);
            }
        }
        let mut in_flight = self.in_flight();
        for (owner, amount) in &by_owner {
            let (entities, bytes) = state.owned_by(owner);
            let mut used = in_flight.get(owner).copied().unwrap_or_default();
            used.add(Amount { entities, bytes });
            let mut after = used;
            after.remove(freed_by_owner.get(owner).copied().unwrap_or_default());
            after.add(*amount);
            // An entity may always become smaller.
            if after.bytes > room.owner_bytes && after.bytes > used.bytes {
                return Err(Error::NoRoom {
                    whose: format!("the entities of {owner:?}"),
                    bytes: after.bytes,
                    limit: room.owner_bytes,
                    is_owners: true,
                });
            }
            if after.entities > room.owner_entities && after.entities > used.entities {
                return Err(Error::TooManyEntities {
                    owner: owner.clone(),
                    entities: after.entities,
                    limit: room.owner_entities,
                });
            }
        }
        let used = state.bytes() + in_flight.values().map(|held| held.bytes).sum::<usize>();
        let bytes = used.saturating_sub(freed) + published.bytes;
        if bytes > room.total_bytes && bytes > used {
            return Err(Error::NoRoom {
                whose: "all entities".to_owned(),
                bytes,
                limit: room.total_bytes,
                is_owners: false,
            });
        }
        for (owner, amount) in &by_owner {
            in_flight.entry(owner.clone()).or_default().add(*amount);
        }
        drop(in_flight);
        Ok(Some(Taken {
            inner: Arc::clone(self),
            by_owner,
        }))
    }
}
