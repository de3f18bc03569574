//! Writing into the registry; what is refused is told and counted.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chappe_registry::{Entity, EntityKind, Principal, Search};
use chappe_transport::Hop;

use crate::notices::NoticeKind;
use crate::shared::{App, take_turns};

/// When each entity of this run was registered first: its revision.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Mutex<HashMap<String, u64>>);

impl Registrations {
    /// The revision by which an entity came.
    pub(crate) fn of(&self, key: &str) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).copied().unwrap_or(u64::MAX)
    }

    fn came(&self, key: String, revision: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(key).or_insert(revision);
    }

    fn left(&self, key: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(key);
    }
}

/// Publishes entities, except those that the registry already has as they are.
pub(crate) async fn publish(app: &App, entities: Vec<Entity>) {
    // All are on their way before the first is waited for: one sync serves many.
    let mut underway = Vec::new();
    for (index, entity) in entities.into_iter().enumerate() {
        take_turns(index).await;
        let key = entity.key.clone();
        let known = app.registry.get(&key, &Principal::Operator);
        if known.as_ref() == Some(&entity) {
            app.registrations.came(key, app.registry.revision());
        } else {
            underway.push((key, app.registry.publish(entity)));
        }
    }
    for (index, (key, publication)) in underway.into_iter().enumerate() {
        take_turns(index).await;
        let published = match publication {
            Ok(publication) => publication.await,
            Err(error) => Err(error),
        };
        match published {
            Ok(revision) => app.registrations.came(key, revision),
            Err(error) => {
                let reason = "not registered";
                app.drops
                    .record(Hop::Metadata, reason, &key, error.to_string(), None);
                let text = format!("could not be registered: {error}");
                app.notices.tell(NoticeKind::Health, &key, text);
            }
        }
    }
}

/// Removes entities, as far as they are there.
pub(crate) async fn remove(app: &App, keys: Vec<String>) {
    let mut underway = Vec::new();
    for (index, key) in keys.into_iter().enumerate() {
        take_turns(index).await;
        app.registrations.left(&key);
        underway.push((app.registry.remove(&key), key));
    }
    for (removal, key) in underway {
        let removed = match removal {
            Ok(publication) => publication.await.map(|_| ()),
            Err(chappe_registry::Error::Unknown(_)) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            let text = format!("could not be removed from the registry: {error}");
            app.notices.tell(NoticeKind::Health, &key, text);
        }
    }
}

/// Takes out of the registry what an earlier run knew of devices, streams and sensors: who is there
/// says so again.
pub(crate) async fn forget(app: &App) {
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
        let found = app.registry.search(&search, &Principal::Operator);
        let keys = found.entities.into_iter().map(|entity| entity.key);
        remove(app, keys.collect()).await;
    }
}
