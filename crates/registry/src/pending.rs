//! Changes in flight: they have a position in the journal and are not yet in memory.
//!
//! Each publication asks for the owner of its key once the changes before it are applied. The keys
//! that are changed are counted, so that thousands of other changes need not be read for that.

use std::collections::{HashMap, VecDeque};

use crate::entity::Entity;
use crate::record::Record;

/// The changes in flight, in the order of their positions.
#[derive(Default)]
pub(crate) struct Pending {
    records: VecDeque<(u64, Record)>,
    /// The number of records that change each key.
    changes: HashMap<String, usize>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = (u64, &Record)> {
        let records = self.records.iter();
        records.map(|(position, record)| (*position, record))
    }

    /// The position of the last change.
    pub(crate) fn last(&self) -> Option<u64> {
        self.records.back().map(|(position, _)| *position)
    }

    /// Whether the entity `key` is changed.
    pub(crate) fn changes(&self, key: &str) -> bool {
        self.changes.contains_key(key)
    }

    /// The owner of `key` after all changes, `Some(None)` if they remove it; `None` if they leave it
    /// as it is.
    pub(crate) fn owner_of(&self, key: &str) -> Option<Option<&str>> {
        let effect = self.effect_on(key)?;
        Some(effect.map(|entity| entity.owner.as_str()))
    }

    /// What the changes do to the entity `key`, as [`Record::effect_on`] says it.
    pub(crate) fn effect_on(&self, key: &str) -> Option<Option<&Entity>> {
        if !self.changes(key) {
            return None;
        }
        let mut latest = self.records.iter().rev();
        latest.find_map(|(_, record)| record.effect_on(key))
    }

    /// The keys of the leases that are renewed, with the positions.
    pub(crate) fn renewals(&self) -> impl Iterator<Item = (&str, u64)> {
        let records = self.records.iter();
        records.flat_map(|(position, record)| {
            let keys = match record {
                Record::Renew(keys) => keys.as_slice(),
                _ => &[],
            };
            keys.iter().map(|key| (key.as_str(), *position))
        })
    }

    /// Whether the lease of the entity `key` is renewed.
    pub(crate) fn renews(&self, key: &str) -> bool {
        self.renewals().any(|(renewed, _)| renewed == key)
    }

    pub(crate) fn push(&mut self, position: u64, record: Record) {
        for key in record.keys() {
            *self.changes.entry(key.to_owned()).or_default() += 1;
        }
        self.records.push_back((position, record));
    }

    /// Takes the first change if it has this position.
    pub(crate) fn take(&mut self, position: u64) -> Option<Record> {
        let is_first = self
            .records
            .front()
            .is_some_and(|(first, _)| *first == position);
        let (_, record) = is_first.then(|| self.records.pop_front()).flatten()?;
        self.forget(&record);
        Some(record)
    }

    /// Drops all changes.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.changes.clear();
    }

    /// Drops the changes after a position.
    pub(crate) fn truncate_after(&mut self, last: u64) {
        while self.last().is_some_and(|position| position > last)
            && let Some((_, record)) = self.records.pop_back()
        {
            self.forget(&record);
        }
    }

    /// Drops the changes up to a position.
    pub(crate) fn drop_through(&mut self, last: u64) {
        let is_through = |records: &VecDeque<(u64, Record)>| {
            records
                .front()
                .is_some_and(|(position, _)| *position <= last)
        };
        while is_through(&self.records)
            && let Some((_, record)) = self.records.pop_front()
        {
            self.forget(&record);
        }
    }

    fn forget(&mut self, record: &Record) {
        for key in record.keys() {
            if let Some(count) = self.changes.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.changes.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Step;
    use crate::{Entity, EntityKind};

    fn publish(key: u8, owner: u8) -> Entity {
        let mut entity = Entity::new(format!("urn:{key}"), EntityKind::Other, "name");
        entity.owner = owner.to_string();
        entity
    }

    fn record() -> impl Strategy<Value = Record> {
        let key = 0..4_u8;
        let step = prop_oneof![
            (key.clone(), 0..3_u8).prop_map(|(key, owner)| Step::Publish(publish(key, owner))),
            key.clone()
                .prop_map(|key| Step::Remove(format!("urn:{key}"))),
        ];
        prop_oneof![
            (key.clone(), 0..3_u8).prop_map(|(key, owner)| Record::Publish(publish(key, owner))),
            key.prop_map(|key| Record::Remove(format!("urn:{key}"))),
            prop::collection::vec(step, 0..4).prop_map(Record::Batch),
        ]
    }

    proptest! {
        /// Owners are those that reading all changes gives, whatever came and went.
        #[test]
        fn owners_are_those_of_all_changes(
            steps in prop::collection::vec((0..6_u8, record()), 0..40),
        ) {
            let (mut pending, mut model) = (Pending::default(), Vec::<(u64, Record)>::new());
            let mut position = 0;
            for (step, record) in steps {
                let first = model.first().map_or(0, |(position, _)| *position);
                match step {
                    0 => {
                        let taken = pending.take(first).is_some();
                        prop_assert_eq!(taken, !model.is_empty());
                        model.retain(|(at, _)| *at != first);
                    }
                    1 => {
                        pending.truncate_after(position / 2);
                        model.retain(|(at, _)| *at <= position / 2);
                    }
                    3 if position % 16 == 15 => {
                        position += 1;
                        pending.clear();
                        model.clear();
                    }
                    2 => {
                        pending.drop_through(first + 1);
                        model.retain(|(at, _)| *at > first + 1);
                    }
                    _ => {
                        position += 1;
                        pending.push(position, record.clone());
                        model.push((position, record));
                    }
                }
                prop_assert_eq!(pending.len(), model.len());
                prop_assert_eq!(pending.last(), model.last().map(|(at, _)| *at));
                for key in 0..4 {
                    let key = format!("urn:{key}");
                    let mut latest = model.iter().rev();
                    let effect = latest.find_map(|(_, record)| record.effect_on(&key));
                    let owner = effect.map(|entity| entity.map(|entity| entity.owner.as_str()));
                    prop_assert_eq!(pending.owner_of(&key), owner);
                    prop_assert_eq!(pending.changes(&key), owner.is_some());
                }
            }
        }
    }
}
