//! Goal: what is changed by requests of its own is not replaced by an entity of another kind, which would leave
//! behind what belongs to it.
//! Method: an entity of each kind, and a client who publishes with its key.

use chappe_registry::{Entity, EntityKind, Error, MemoryJournal, Principal, Registry, Room};

#[test]
fn documents_things_and_metadata_are_not_replaced_by_others() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let ada = Principal::Named("ada".to_owned());
    let own = |key: &str, kind, name: &str| Entity {
        owner: "ada".to_owned(),
        ..Entity::new(key, kind, name)
    };
    let publish = |entity: &Entity| {
        let published = registry.publish_as(&ada, entity, &Room::default());
        published.map(|publication| publication.unwrap().wait().unwrap())
    };
    for kind in EntityKind::ALL {
        let key = format!("urn:x:{}", kind.as_str());
        publish(&own(&key, kind, "before")).unwrap();
        let outcome = publish(&own(&key, EntityKind::Other, "after"));
        let is_refused = matches!(
            kind,
            EntityKind::Document | EntityKind::Thing | EntityKind::Metadata
        );
        match is_refused {
            true => assert_eq!(
                outcome,
                Err(Error::OtherKind {
                    key: key.clone(),
                    kind
                })
            ),
            false => assert!(outcome.is_ok(), "{outcome:?}"),
        }
        let stored = registry.get(&key, &ada).unwrap();
        assert_eq!(stored.name == "before", is_refused, "{key}");
        // One of the same kind does replace it.
        publish(&own(&key, stored.kind, "again")).unwrap();
    }
}
