//! Goal: while a disk is full, a publication is refused instead of waiting forever, and reading
//! works; publishing resumes automatically once there is room.
//! Method: a simulated disk is filled up under a registry; this thread waits for publications,
//! removals and a compaction, first without and then with room.

use std::time::Duration;

use chappe_log::{Level, Options, Store};
use chappe_registry::{
    Entity, EntityKind, Error, JournalError, LogJournal, Principal, Registry, Search,
};
use chappe_sim::SimDisk;

fn options() -> Options {
    Options {
        reserve_bytes: 0,
        full_poll: Duration::from_millis(1),
        full_polls: 3,
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> (Store, Registry) {
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 7).unwrap();
    let known = store.existing("registry");
    let stream = known.unwrap_or_else(|| store.stream("registry", Level::Power, b"").unwrap());
    let registry = Registry::open(LogJournal::new(stream, || 0)).unwrap();
    (store, registry)
}

fn entity(number: u32) -> Entity {
    let key = format!("urn:e:{number}");
    Entity::new(key.as_str(), EntityKind::Device, "x".repeat(500))
}

fn publish(registry: &Registry, number: u32) -> Result<u64, Error> {
    registry.publish(entity(number))?.wait()
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Journal(JournalError::Full(_)))
}

#[test]
fn a_full_disk_refuses_and_resumes() {
    let disk = SimDisk::new(3);
    let (store, registry) = open(&disk);
    publish(&registry, 1).unwrap();
    publish(&registry, 2).unwrap();
    disk.set_capacity(disk.used() + 50);
    for number in 3..6 {
        let error = publish(&registry, number).unwrap_err();
        assert!(is_full(&error), "{error:?}");
    }
    // Several on their way at once.
    let waiting: Vec<_> = (6..9).map(|n| registry.publish(entity(n))).collect();
    for publication in waiting {
        let error = publication.and_then(|it| it.wait()).unwrap_err();
        assert!(is_full(&error), "{error:?}");
    }
    let removal = registry.remove("urn:e:1").and_then(|it| it.wait());
    assert!(is_full(&removal.unwrap_err()));
    assert!(is_full(&registry.compact().unwrap_err()));
    let found = registry.search(&Search::default(), &Principal::Operator);
    assert_eq!(found.entities.len(), 2);
    disk.set_capacity(u64::MAX);
    let revision = loop {
        match publish(&registry, 10) {
            Ok(revision) => break revision,
            Err(error) => assert!(is_full(&error), "{error:?}"),
        }
    };
    assert_eq!(revision, 3);
    registry.compact().unwrap();
    drop(registry);
    store.close().unwrap();
    let (_store, registry) = open(&disk);
    let found = registry.search(&Search::default(), &Principal::Operator);
    let keys: Vec<_> = found.entities.iter().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["urn:e:1", "urn:e:10", "urn:e:2"]);
}
