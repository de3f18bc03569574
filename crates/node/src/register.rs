//! Writing into the registry; what is refused is told and counted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chappe_registry::{Entity, EntityKind, Error, Principal, Publication, Search};
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

/// Pause before a change that the registry did not take is tried again. Reason: a few syncs.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Pauses one after another, a minute together, after which a change is given up. Reason: a full disk may
/// stay full, and the caller has more to do.
const RETRIES_MAX: u32 = 1_200;

/// A change of the registry.
enum Change {
    Publish(Box<Entity>),
    Remove(String),
}

/// A change on its way, none when nothing has to change, or why the registry does not take it.
type Begun = Result<Option<Publication>, Error>;

impl Change {
    fn begin(&self, app: &App) -> Begun {
        match self {
            Self::Publish(entity) => {
                let known = app.registry.get(&entity.key, &Principal::Operator);
                if known.as_ref() == Some(entity) {
                    return Ok(None);
                }
                app.registry.publish(Entity::clone(entity)).map(Some)
            }
            Self::Remove(key) => match app.registry.remove(key) {
                Err(Error::Unknown(_)) => Ok(None),
                begun => begun.map(Some),
            },
        }
    }

    fn made(self, app: &App, revision: u64) {
        if let Self::Publish(entity) = self {
            app.registrations.came(entity.key, revision);
        }
    }

    fn refused(&self, app: &App, error: &Error) {
        let (key, text) = match self {
            Self::Publish(entity) => (&entity.key, "could not be registered"),
            Self::Remove(key) => (key, "could not be removed from the registry"),
        };
        let (reason, detail) = ("not registered", error.to_string());
        app.drops.record(Hop::Metadata, reason, key, detail, None);
        let text = format!("{text}: {error}");
        app.notices.tell(NoticeKind::Health, key, text);
    }
}

/// Publishes entities, except those that the registry already has as they are. Waits while too many
/// changes are on their way.
pub(crate) async fn publish(app: &App, entities: Vec<Entity>) {
    let changes = entities.into_iter().map(Box::new).map(Change::Publish);
    make(app, changes).await;
}

/// Removes entities, as far as they are there.
pub(crate) async fn remove(app: &App, keys: Vec<String>) {
    for key in &keys {
        app.registrations.left(key);
    }
    make(app, keys.into_iter().map(Change::Remove)).await;
}

async fn make(app: &App, changes: impl Iterator<Item = Change>) {
    let mut retries = 0;
    // As many as possible are on their way before the first is waited for: one sync serves many.
    let mut underway = VecDeque::new();
    for (index, change) in changes.enumerate() {
        take_turns(index).await;
        let mut begun = change.begin(app);
        while let Err(Error::Busy { .. }) = begun
            && let Some((first, begun_first)) = underway.pop_front()
        {
            settle(app, first, begun_first, &mut retries).await;
            begun = change.begin(app);
        }
        match begun {
            Ok(Some(_)) => underway.push_back((change, begun)),
            _ => settle(app, change, begun, &mut retries).await,
        }
    }
    for (index, (change, begun)) in underway.into_iter().enumerate() {
        take_turns(index).await;
        settle(app, change, begun, &mut retries).await;
    }
}

/// Waits until a change is made or refused. One that has no room yet is tried again until the node ends;
/// `retries`: how often that was in vain, one after another.
async fn settle(app: &App, change: Change, mut begun: Begun, retries: &mut u32) {
    loop {
        let outcome = match begun {
            Ok(Some(publication)) => publication.await,
            Ok(None) => Ok(app.registry.revision()),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(revision) => {
                *retries = 0;
                return change.made(app, revision);
            }
            Err(error)
                if error.is_transient() && *retries < RETRIES_MAX && !*app.drain.borrow() =>
            {
                *retries += 1;
                tokio::time::sleep(RETRY_PAUSE).await;
                begun = change.begin(app);
            }
            Err(error) => return change.refused(app, &error),
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
                publish(app, keys.iter().map(entity).collect()).await;
                let is_there =
                    |key: &&String| app.registry.get(key, &Principal::Operator).is_some();
                assert_eq!(keys.iter().filter(is_there).count(), MANY);
                assert!(keys.iter().all(|key| app.registrations.of(key) != u64::MAX));
                remove(app, keys.clone()).await;
                assert_eq!(keys.iter().filter(is_there).count(), 0);
                assert_eq!(app.drops.total(Hop::Metadata, "not registered"), 0);
            },
        );
    }
}
