//! Goal: a request is one batch: all of it becomes visible and survives a crash, or none.
//! Method: a failing journal, a journal cut after each record, power loss at every boundary of
//! the simulated disk, and a second writer of the same journal.

use chappe_log::{Level, Options, Store};
use chappe_registry::uddi::{
    BusinessEntity, BusinessService, ErrorCode, FindBusiness, FindService, Publisher, Text,
};
use chappe_registry::{
    Access, Change, FeedItem, Journal, JournalError, LogJournal, MemoryJournal, Principal, Registry,
};
use chappe_sim::SimDisk;

use super::{Desk, binding, business, code, service};

fn three_services(name: &str) -> BusinessEntity {
    let part = |at: usize| BusinessService {
        names: vec![Text::plain(format!("{name} {at}"))],
        bindings: vec![binding(None, &[])],
        ..BusinessService::default()
    };
    BusinessEntity {
        services: (0..3).map(part).collect(),
        ..business(name)
    }
}

/// The number of businesses, and of services.
fn counts(registry: &Registry) -> (usize, usize) {
    let inquiry = registry.uddi(&Principal::Operator);
    let businesses = inquiry.find_business(&FindBusiness::default()).unwrap();
    let services = inquiry.find_service(&FindService::default()).unwrap();
    (businesses.items.len(), services.items.len())
}

#[test]
fn a_request_is_one_record() {
    let mut desk = Desk::new();
    desk.save_business("ada", three_services("Ward 3")).unwrap();
    assert_eq!(desk.journal.len(), 1);
    assert_eq!(desk.registry.statistics().entities, 7);
    assert_eq!(
        desk.journal.follow(1, 1).unwrap()[0].1[0],
        2,
        "version of a batch"
    );
}

/// A request whose record is refused leaves nothing, and later requests do not see it.
#[test]
fn a_refused_request_leaves_nothing() {
    let mut desk = Desk::new();
    desk.journal
        .fail(Some(JournalError::Full("no room".into())));
    let refused = desk.save_business("ada", three_services("Ward 3"));
    assert_eq!(code(refused), ErrorCode::Busy);
    assert_eq!(counts(&desk.registry), (0, 0));
    desk.journal.fail(None);
    desk.save_business("ada", three_services("Ward 4")).unwrap();
    assert_eq!(counts(&desk.registry), (1, 3));
}

/// A request sees those before it that are not durable yet.
#[test]
fn requests_build_on_pending_ones() {
    let mut desk = Desk::new();
    let first = desk
        .ask("ada", |ada| ada.save_business(&[business("Ward 3")]))
        .unwrap();
    let key = first.value[0].value.key.unwrap();
    assert_eq!(counts(&desk.registry), (0, 0));
    let one = service(key, "a");
    let second = desk.ask("ada", |ada| ada.save_service(&[one])).unwrap();
    let two = service(key, "b");
    let third = desk.ask("ada", |ada| ada.save_service(&[two])).unwrap();
    let foreign = service(key, "c");
    let foreign = desk.ask("bob", |bob| bob.save_service(&[foreign]));
    assert_eq!(code(foreign), ErrorCode::UserMismatch);
    third.wait().unwrap();
    second.wait().unwrap();
    first.wait().unwrap();
    let detail = desk
        .inquiry()
        .business_detail(&[key])
        .unwrap()
        .remove(0)
        .value;
    let names: Vec<_> = detail
        .services
        .iter()
        .map(|one| one.names[0].text.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

/// The changes of a batch have one revision. A subscriber that continues after any of them
/// misses none.
#[test]
fn subscribers_miss_nothing_of_a_batch() {
    let mut desk = Desk::new();
    let saved = desk.save_business("ada", three_services("Ward 3")).unwrap();
    desk.save_business("ada", business("Ward 4")).unwrap();
    let read = |from: u64, limit: usize| {
        let mut subscription = desk.registry.subscribe(from, Principal::Operator);
        let mut keys = Vec::new();
        let mut next = from;
        while keys.len() < limit
            && let Some(FeedItem::Change { revision, change }) = subscription.try_next()
        {
            let Change::Published { key, .. } = change else {
                panic!("{change:?}")
            };
            keys.push(key);
            next = revision + 1;
        }
        (keys, next)
    };
    let (all, end) = read(1, usize::MAX);
    assert_eq!((all.len(), end), (8, 3));
    for limit in 0..=all.len() {
        let (mut keys, next) = read(1, limit);
        keys.extend(read(next, usize::MAX).0);
        for key in &all {
            assert!(keys.contains(key), "{limit}");
        }
    }
    assert!(saved.key.is_some());
}

/// Two registries on one journal: the second to save reads what the first saved.
#[test]
fn another_writer_is_seen_before_a_save() {
    let mut desk = Desk::new();
    let other = Registry::open(desk.journal.clone()).unwrap();
    let key = desk.business("ada", "Ward 3");
    let mut bits = 1 << 100;
    let mut random = || {
        bits += 1;
        bits
    };
    let mut ada = Publisher::new(&other, "ada", Access::Public, 0, &mut random);
    ada.save_service(&[service(key, "Pulse")])
        .unwrap()
        .wait()
        .unwrap();
    desk.registry.refresh().unwrap();
    assert_eq!(counts(&desk.registry), (1, 1));
    // The service is gone before the second writer knows.
    let deleted = desk.ask("ada", |ada| ada.delete_business(&[key]));
    deleted.unwrap().wait().unwrap();
    let mut ada = Publisher::new(&other, "ada", Access::Public, 0, &mut random);
    let refused = ada.save_service(&[service(key, "Late")]);
    assert_eq!(code(refused), ErrorCode::InvalidKeyPassed);
}

fn open(disk: &SimDisk, seed: u64) -> Option<(Store, Registry)> {
    let options = Options {
        segment_bytes: 16 * 1024,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, seed).ok()?;
    let stream = match store.existing("registry") {
        Some(stream) => stream,
        None => store.stream("registry", Level::Power, b"").ok()?,
    };
    let registry = Registry::open(LogJournal::new(stream, || 0)).ok()?;
    Some((store, registry))
}

/// Saves until the power is cut; returns how many requests were acknowledged.
fn workload(disk: &SimDisk, seed: u64) -> usize {
    let Some((store, registry)) = open(disk, seed) else {
        return 0;
    };
    let acknowledged = saves(&registry, seed);
    drop(registry);
    let _ = store.close();
    acknowledged
}

fn saves(registry: &Registry, seed: u64) -> usize {
    let mut bits = u128::from(seed) << 64;
    for done in 0..6 {
        let mut random = || {
            bits += 1;
            bits
        };
        let mut ada = Publisher::new(registry, "ada", Access::Public, 0, &mut random);
        let saved = ada.save_business(&[three_services("Ward")]);
        if saved.and_then(|saved| saved.wait()).is_err() {
            return done;
        }
    }
    6
}

/// Whatever the moment of a power loss, each request is there as a whole or not at all, and
/// those acknowledged are there.
#[test]
fn a_power_loss_leaves_whole_requests() {
    let whole = SimDisk::new(1);
    assert_eq!(workload(&whole, 1), 6);
    let mut cuts = 0;
    for boundary in 0..=whole.boundaries() {
        let disk = SimDisk::new(1_000 + boundary);
        disk.cut_power_at(boundary);
        let acknowledged = workload(&disk, 1);
        cuts += u64::from(disk.is_off());
        for image in 0..3 {
            let found = disk.crash(boundary << 8 | image);
            let (_store, registry) = open(&found, image).expect("it opens after a power loss");
            let (businesses, services) = counts(&registry);
            assert_eq!(services, 3 * businesses, "boundary {boundary}");
            assert!(businesses >= acknowledged, "boundary {boundary}");
            let entities = registry.statistics().entities;
            assert_eq!(entities, 7 * businesses, "boundary {boundary}");
        }
    }
    assert!(cuts > 10, "{cuts} cuts");
}

/// Records of version 1, as the program before batches wrote them, are read.
#[test]
fn records_of_version_1_are_read() {
    let fixture = include_str!("../fixtures/records-v1.hex");
    let records: Vec<Vec<u8>> = fixture
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let digits = line.as_bytes().chunks(2);
            let bytes = digits.map(|pair| std::str::from_utf8(pair).unwrap());
            bytes
                .map(|pair| u8::from_str_radix(pair, 16).unwrap())
                .collect()
        })
        .collect();
    let journal = MemoryJournal::new();
    drop(journal.append_if(0, records.clone()).unwrap());
    let registry = Registry::open(journal).unwrap();
    let found = registry
        .get("urn:e:1", &Principal::Named("eve".to_owned()))
        .unwrap();
    assert_eq!(found.name, "Heart");
    // A single change is still written in the same bytes.
    let again = MemoryJournal::new();
    let other = Registry::open(again.clone()).unwrap();
    other.publish(found.clone()).unwrap().wait().unwrap();
    assert_eq!(again.follow(1, 1).unwrap()[0].1, records[0]);
    assert_eq!(found.types, ["{urn:t}Monitor"]);
    assert_eq!(found.scopes, ["urn:ward"]);
    assert_eq!(found.owner, "ada");
    assert_eq!(found.access, Access::Readers(vec!["eve".to_owned()]));
    let triples: Vec<_> = found.triples.iter().map(ToString::to_string).collect();
    let expect = [
        "<urn:e:1> <urn:p> \"text\"",
        "<urn:e:1> <urn:p> \"Text\"@de",
        "_:b <urn:p> \"7\"^^<urn:d>",
        "<urn:e:1> <urn:p> _:b",
    ];
    assert_eq!(triples, expect);
    assert!(registry.get("urn:e:2", &Principal::Operator).is_none());
    assert!(registry.get("urn:e:3", &Principal::Anonymous).is_some());
    // A batch is not a record of version 1, and version 4 is unknown.
    for (version, last) in [(1, 3), (4, 0)] {
        let journal = MemoryJournal::new();
        drop(journal.append_if(0, vec![vec![version, last, 0]]).unwrap());
        assert!(Registry::open(journal).is_err());
    }
}
