//! Goal: the changes of one sync become visible together once it is done, to whoever asks first, and none before;
//! what a reader has seen survives a power loss.
//! Method: a store without a thread on a simulated disk commits when the test says so; then a workload of several
//! changes at a time runs once for each boundary of the disk with the power cut there.

use chappe_log::{Commit, Committed, Level, Options, Store};
use chappe_registry::{
    Entity, EntityKind, LogJournal, Principal, Publication, Registry, Room, Search,
};
use chappe_sim::SimDisk;

fn open(disk: &SimDisk, seed: u64) -> Result<(Store, Registry), String> {
    let options = Options {
        segment_bytes: 4096,
        commit: Commit::Caller,
        ..Options::default()
    };
    let opened = Store::open(Box::new(disk.clone()), options, seed);
    let (store, _) = opened.map_err(|error| error.to_string())?;
    let known = store.existing("registry");
    let stream = known.map_or_else(|| store.stream("registry", Level::Power, b""), Ok);
    let journal = LogJournal::new(stream.map_err(|error| error.to_string())?, || 0);
    let registry = Registry::open(journal).map_err(|error| error.to_string())?;
    Ok((store, registry))
}

fn entity(number: u32) -> Entity {
    let key = format!("urn:e:{number:03}");
    Entity::new(key.as_str(), EntityKind::Device, "x".repeat(200))
}

/// How many of the entities from 0 on exist; no other may.
fn seen(registry: &Registry) -> u32 {
    let all = Search {
        limit: Some(1_000),
        ..Search::default()
    };
    let found = registry.search(&all, &Principal::Operator).entities;
    let count = u32::try_from(found.len()).unwrap();
    assert!(found.into_iter().eq((0..count).map(entity)));
    count
}

/// Writes and syncs all that is queued; false without power.
fn commit(store: &Store) -> bool {
    loop {
        match store.commit() {
            Ok(Committed::Nothing) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

#[test]
fn the_changes_of_a_sync_are_visible_with_the_first_answer() {
    let disk = SimDisk::new(1);
    let (store, registry) = open(&disk, 1).unwrap();
    let publish = |number| registry.publish(entity(number)).unwrap();
    let mut first: Vec<Publication> = (0..3).map(publish).collect();
    assert_eq!(seen(&registry), 0, "nothing is durable");
    assert!(commit(&store));
    let last = first.pop().unwrap();
    assert_eq!(last.wait().unwrap(), 3);
    assert_eq!(seen(&registry), 3);
    // The others are answered without another change in between, with their own revisions.
    let revisions: Vec<u64> = first.into_iter().map(|it| it.wait().unwrap()).collect();
    assert_eq!(revisions, [1, 2]);
    // The next change makes visible what is durable, also if nobody has asked for it yet.
    let waiting = [publish(3), publish(4)];
    assert!(commit(&store));
    let (operator, room) = (Principal::Operator, Room::default());
    let next = registry.publish_as(&operator, &entity(5), &room).unwrap();
    assert_eq!(seen(&registry), 5);
    assert!(commit(&store));
    assert_eq!(next.unwrap().wait().unwrap(), 6);
    assert_eq!(waiting.map(|it| it.wait().unwrap()), [4, 5]);
    drop(registry);
    store.close().unwrap();
    let (_store, registry) = open(&disk, 2).unwrap();
    assert_eq!(seen(&registry), 6);
}

/// Publishes three entities with each sync until the power is cut. Returns how many were acknowledged, and the most
/// that a reader has seen.
fn workload(disk: &SimDisk) -> (u32, u32) {
    let (mut acknowledged, mut most) = (0, 0);
    let Ok((store, registry)) = open(disk, 1) else {
        return (0, 0);
    };
    'groups: for group in 0..6 {
        let mut waiting = Vec::new();
        for number in 3 * group..3 * group + 3 {
            match registry.publish(entity(number)) {
                Ok(publication) => waiting.push(publication),
                Err(_) => break 'groups,
            }
            most = most.max(seen(&registry));
        }
        let has_power = commit(&store);
        for publication in waiting {
            match publication.wait() {
                Ok(_) => acknowledged += 1,
                Err(_) => break 'groups,
            }
            most = most.max(seen(&registry));
        }
        if !has_power {
            break;
        }
    }
    most = most.max(seen(&registry));
    drop(registry);
    let _ = store.close();
    (acknowledged, most)
}

#[test]
fn what_was_seen_survives_a_power_loss() {
    let whole = SimDisk::new(1);
    assert_eq!(workload(&whole), (18, 18));
    let mut cuts = 0;
    for boundary in 0..=whole.boundaries() {
        let disk = SimDisk::new(1_000 + boundary);
        disk.cut_power_at(boundary);
        let (acknowledged, most) = workload(&disk);
        assert!(most >= acknowledged);
        cuts += u32::from(disk.is_off());
        for image in 0..3 {
            let found = disk.crash(boundary << 8 | image);
            let (_store, registry) = open(&found, image + 2).unwrap();
            let stored = seen(&registry);
            assert!(
                stored >= most,
                "boundary {boundary} image {image}: {stored} stored, {most} seen"
            );
        }
    }
    assert!(cuts > 20, "{cuts} cuts");
}
