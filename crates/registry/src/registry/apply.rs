//! What a record does to memory.

use crate::entity::Entity;
use crate::feed::{Entry, Side};
use crate::record::{Record, Step};
use crate::rights::OwnedRule;
use crate::state::State;

impl Record {
    /// Changes the state; adds the entries of the change feed to `entries`, if anybody wants them.
    pub(super) fn apply_to(
        &self,
        state: &mut State,
        position: u64,
        entries: Option<&mut Vec<Entry>>,
    ) {
        match self {
            Self::Publish(entity) => publish_in(state, entity, position, entries),
            Self::Keep(entity) => {
                let granted = state.granted_at(&entity.key);
                state.insert(entity);
                state.grant(&entity.key, granted.unwrap_or(position));
            }
            Self::Renew(keys) => {
                for key in keys {
                    state.grant(key, position);
                }
            }
            Self::Leased { key, granted, .. } => state.grant(key, *granted),
            Self::Expire { key, granted } => {
                if state.granted_at(key) == Some(*granted) {
                    remove_in(state, key, entries);
                }
            }
            Self::Tick { .. } => {}
            Self::Remove(key) => remove_in(state, key, entries),
            Self::Batch(steps) => {
                let mut entries = entries;
                for step in steps {
                    match step {
                        Step::Publish(entity) => {
                            publish_in(state, entity, position, entries.as_deref_mut());
                        }
                        Step::Remove(key) => remove_in(state, key, entries.as_deref_mut()),
                    }
                }
            }
        }
    }
}

fn publish_in(state: &mut State, entity: &Entity, position: u64, entries: Option<&mut Vec<Entry>>) {
    let Some(entries) = entries else {
        state.insert(entity);
        return state.grant(&entity.key, position);
    };
    let before = state.side_of(&entity.key);
    let mut predicates = state.predicates_of(&entity.key);
    let rule = OwnedRule::of(entity);
    let is_of_rights = before.as_ref().is_some_and(|before| before.rule != rule)
        && state.get(&entity.key).is_some_and(|known| {
            let (access, rights) = (entity.access.clone(), entity.rights.clone());
            let changed = Entity {
                access,
                rights,
                ..known
            };
            changed == *entity
        });
    state.insert(entity);
    state.grant(&entity.key, position);
    predicates.add(state.predicates_of(&entity.key));
    entries.push(Entry {
        key: entity.key.clone(),
        kind: entity.kind,
        before,
        after: Some(Side {
            name: entity.name.clone(),
            rule,
        }),
        predicates,
        is_of_rights,
    });
}

fn remove_in(state: &mut State, key: &str, entries: Option<&mut Vec<Entry>>) {
    let Some((_, kind)) = state.rule_of(key) else {
        return;
    };
    if let Some(entries) = entries {
        entries.push(Entry {
            key: key.to_owned(),
            kind,
            before: state.side_of(key),
            after: None,
            predicates: state.predicates_of(key),
            is_of_rights: false,
        });
    }
    state.remove(key);
}
