//! Writes the registry; refused changes are counted and shown as notices.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_registry::{Entity, EntityKind, Error, Principal, Publication, Registry, Search};
use chappe_transport::Hop;
use tokio::sync::watch;

use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::tasks::take_turns;

/// Pause before a refused change is tried again; reason: a few syncs.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Attempts in a row, a minute together, after which a change is given up; reason: a full disk may stay
/// full, and the caller has more to do.
const RETRIES_MAX: u32 = 1_200;

/// A change of the registry.
enum Change {
    Publish(Box<Entity>),
    Remove(String),
}

/// A change on its way, none when nothing has to change, or why the registry does not take it.
type Begun = Result<Option<Publication>, Error>;

/// Writes the registry for the parts of the node.
pub(crate) struct Registrar {
    registry: Registry,
    /// The revision at which each entity was registered in this run.
    registered: Mutex<HashMap<String, u64>>,
    observability: Arc<Observability>,
    /// True when the node ends: changes are not tried again.
    drain: watch::Receiver<bool>,
}

impl Registrar {
    pub(crate) fn new(
        registry: Registry,
        observability: Arc<Observability>,
        drain: watch::Receiver<bool>,
    ) -> Self {
        Self {
            registry,
            registered: Mutex::default(),
            observability,
            drain,
        }
    }

    /// Publishes entities, except those that the registry already has as they are. Waits while too many
    /// changes are on their way.
    pub(crate) async fn publish(&self, entities: Vec<Entity>) {
        let changes = entities.into_iter().map(Box::new).map(Change::Publish);
        self.make_all(changes).await;
    }

    /// Removes entities, as far as they are there.
    pub(crate) async fn remove(&self, keys: Vec<String>) {
        for key in &keys {
            self.registered().remove(key);
        }
        self.make_all(keys.into_iter().map(Change::Remove)).await;
    }

    /// Removes the devices, services, streams and sensors of an earlier run: those that are there are
    /// published again.
    pub(crate) async fn remove_former(&self) {
        for kind in [
            EntityKind::Stream,
            EntityKind::VirtualSensor,
            EntityKind::Service,
            EntityKind::Device,
        ] {
            let search = Search {
                kind: Some(kind),
                limit: Some(chappe_registry::MAX_SEARCH_LIMIT),
                ..Search::default()
            };
            let found = self.registry.search(&search, &Principal::Operator);
            let keys = found.entities.into_iter().map(|entity| entity.key);
            self.remove(keys.collect()).await;
        }
    }

    /// Whether an entity was published in this run and not removed.
    pub(crate) fn is_registered(&self, key: &str) -> bool {
        self.registered().contains_key(key)
    }

    /// The revision at which an entity was published first in this run; the last one if it was not.
    pub(crate) fn registered_at(&self, key: &str) -> u64 {
        self.registered().get(key).copied().unwrap_or(u64::MAX)
    }

    fn registered(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn make_all(&self, changes: impl Iterator<Item = Change>) {
        let mut retries = 0;
        // As many as possible are on their way before the first is awaited: one sync serves many.
        let mut underway = VecDeque::new();
        for (index, change) in changes.enumerate() {
            take_turns(index).await;
            let mut begun = self.begin(&change);
            while let Err(Error::Busy { .. }) = begun
                && let Some((first, begun_first)) = underway.pop_front()
            {
                self.finish(first, begun_first, &mut retries).await;
                begun = self.begin(&change);
            }
            match begun {
                Ok(Some(_)) => underway.push_back((change, begun)),
                _ => self.finish(change, begun, &mut retries).await,
            }
        }
        for (index, (change, begun)) in underway.into_iter().enumerate() {
            take_turns(index).await;
            self.finish(change, begun, &mut retries).await;
        }
    }

    fn begin(&self, change: &Change) -> Begun {
        match change {
            Change::Publish(entity) => {
                let known = self.registry.get(&entity.key, &Principal::Operator);
                if known.as_ref() == Some(entity) {
                    return Ok(None);
                }
                self.registry.publish(Entity::clone(entity)).map(Some)
            }
            Change::Remove(key) => match self.registry.remove(key) {
                Err(Error::Unknown(_)) => Ok(None),
                begun => begun.map(Some),
            },
        }
    }

    /// Waits until a change is made or refused. One that has no room yet is tried again until the node
    /// ends; `retries` counts the attempts in a row that failed.
    async fn finish(&self, change: Change, mut begun: Begun, retries: &mut u32) {
        loop {
            let outcome = match begun {
                Ok(Some(publication)) => publication.await,
                Ok(None) => Ok(self.registry.revision()),
                Err(error) => Err(error),
            };
            match outcome {
                Ok(revision) => {
                    *retries = 0;
                    if let Change::Publish(entity) = change {
                        self.registered().entry(entity.key).or_insert(revision);
                    }
                    return;
                }
                Err(error)
                    if error.is_transient() && *retries < RETRIES_MAX && !*self.drain.borrow() =>
                {
                    *retries += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                    begun = self.begin(&change);
                }
                Err(error) => return self.refused(&change, &error),
            }
        }
    }

    fn refused(&self, change: &Change, error: &Error) {
        let (key, text) = match change {
            Change::Publish(entity) => (&entity.key, "could not be registered"),
            Change::Remove(key) => (key, "could not be removed from the registry"),
        };
        let Observability { drops, notices, .. } = &*self.observability;
        let (reason, detail) = ("not registered", error.to_string());
        drops.record(Hop::Metadata, reason, key, detail, None);
        notices.tell(NoticeKind::Health, key, format!("{text}: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::tests::on_node;

    /// More than the changes that the registry has on their way.
    const MANY: usize = 5_000;

    #[test]
    fn more_changes_at_once_than_the_registry_takes_are_all_made() {
        on_node(
            |_| {},
            async |app| {
                let keys: Vec<String> = (0..MANY)
                    .map(|number| format!("urn:many:{number}"))
                    .collect();
                let entity = |key: &String| Entity::new(key.clone(), EntityKind::Other, "one");
                app.registrar
                    .publish(keys.iter().map(entity).collect())
                    .await;
                let is_there =
                    |key: &&String| app.registry.get(key, &Principal::Operator).is_some();
                assert_eq!(keys.iter().filter(is_there).count(), MANY);
                assert!(keys.iter().all(|key| app.registrar.is_registered(key)));
                app.registrar.remove(keys.clone()).await;
                assert_eq!(keys.iter().filter(is_there).count(), 0);
                assert_eq!(
                    app.observability
                        .drops
                        .total(Hop::Metadata, "not registered"),
                    0
                );
            },
        );
    }
}
