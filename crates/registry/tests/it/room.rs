//! Goal: the entities of one owner, and all together, take no more bytes than there is room for, however many
//! changes are in flight; what is removed or replaced frees its room, also after a reopening.
//! Method: publications within small rooms, on a journal in memory.

use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
use chappe_registry::{Entity, EntityKind, Error, MemoryJournal, Registry, Room};

const TEXT_BYTES: usize = 10_000;

fn entity(key: &str, owner: &str, texts: usize) -> Entity {
    let mut entity = Entity::new(key.to_owned(), EntityKind::Other, "one");
    owner.clone_into(&mut entity.owner);
    let node = |iri: &str| NamedNode::new(iri).unwrap();
    for number in 0..texts {
        let text = format!("{number} {}", "x".repeat(TEXT_BYTES));
        let object = Literal::new_simple_literal(text);
        let triple = Triple::new(node(key), node("urn:p"), object);
        entity.triples.push(triple);
    }
    entity
}

const ROOM: Room = Room {
    total_bytes: 80 * TEXT_BYTES,
    owner_bytes: 45 * TEXT_BYTES,
    owner_entities: usize::MAX,
};

fn refused(registry: &Registry, key: &str, owner: &str, texts: usize) -> bool {
    match registry.publish_within(entity(key, owner, texts), &ROOM) {
        Err(Error::NoRoom { is_owners, .. }) => is_owners,
        other => panic!("{key}: {other:?}"),
    }
}

fn publish(registry: &Registry, key: &str, owner: &str, texts: usize) {
    let published = registry.publish_within(entity(key, owner, texts), &ROOM);
    published.unwrap().wait().unwrap();
}

#[test]
fn entities_take_no_more_than_their_room() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let first = registry.publish_within(entity("urn:a:1", "ada", 20), &ROOM);
    let second = registry.publish_within(entity("urn:a:2", "ada", 20), &ROOM);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(
        refused(&registry, "urn:a:3", "ada", 10),
        "two are in flight"
    );
    second.wait().unwrap();
    first.wait().unwrap();
    assert!(refused(&registry, "urn:a:3", "ada", 10));
    publish(&registry, "urn:a:1", "ada", 22);
    assert!(refused(&registry, "urn:a:1", "ada", 30));
    publish(&registry, "urn:b:1", "bob", 30);
    assert!(!refused(&registry, "urn:b:2", "bob", 12), "of all");
    let used = registry.statistics().bytes;
    assert_eq!(used, registry.bytes_of("ada") + registry.bytes_of("bob"));
    assert!(used > 72 * TEXT_BYTES && used < 75 * TEXT_BYTES, "{used}");

    let registry = Registry::open(journal).unwrap();
    assert_eq!(registry.statistics().bytes, used);
    assert!(refused(&registry, "urn:a:3", "ada", 10));
    registry.remove("urn:a:2").unwrap().wait().unwrap();
    publish(&registry, "urn:a:3", "ada", 10);
    publish(&registry, "urn:a:1", "ada", 1);
    for key in ["urn:a:1", "urn:a:3", "urn:b:1"] {
        registry.remove(key).unwrap().wait().unwrap();
    }
    assert_eq!(
        (registry.statistics().bytes, registry.bytes_of("ada")),
        (0, 0)
    );
}

#[test]
fn a_journal_of_few_large_changes_is_compacted() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    for _ in 0..200 {
        publish(&registry, "urn:a:1", "ada", 40);
    }
    assert!(registry.needs_compaction(), "it has 80 MB");
    registry.compact().unwrap();
    assert!(!registry.needs_compaction());
}
