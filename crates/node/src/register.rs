//! Writing into the registry; what is refused is told and counted.

use chappe_registry::{Entity, EntityKind, Principal, Search};
use chappe_transport::Hop;

use crate::notices::NoticeKind;
use crate::shared::App;

/// Publishes an entity, unless the registry already has it as it is; says whether it is there.
pub(crate) async fn publish(app: &App, entity: Entity) -> bool {
    if app.registry.get(&entity.key, &Principal::Operator).as_ref() == Some(&entity) {
        return true;
    }
    let key = entity.key.clone();
    let published = match app.registry.publish(entity) {
        Ok(publication) => publication.await,
        Err(error) => Err(error),
    };
    match published {
        Ok(_) => true,
        Err(error) => {
            let reason = "not registered";
            app.drops
                .record(Hop::Metadata, reason, &key, error.to_string(), None);
            let text = format!("could not be registered: {error}");
            app.notices.tell(NoticeKind::Health, &key, text);
            false
        }
    }
}

/// Removes an entity, if it is there.
pub(crate) async fn remove(app: &App, key: &str) {
    let removed = match app.registry.remove(key) {
        Ok(publication) => publication.await.map(|_| ()),
        Err(chappe_registry::Error::Unknown(_)) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = removed {
        let text = format!("could not be removed from the registry: {error}");
        app.notices.tell(NoticeKind::Health, key, text);
    }
}

/// The keys of all entities of a kind.
pub(crate) fn keys(app: &App, kind: EntityKind) -> Vec<String> {
    let search = Search {
        kind: Some(kind),
        limit: Some(chappe_registry::MAX_SEARCH_LIMIT),
        ..Search::default()
    };
    let found = app.registry.search(&search, &Principal::Operator);
    found
        .entities
        .into_iter()
        .map(|entity| entity.key)
        .collect()
}
