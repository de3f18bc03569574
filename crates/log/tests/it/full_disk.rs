//! Goal: a full disk stops no stream that does not need the disk, and a batch that is too large for
//! the remaining room stops no other stream; everything that waits continues without a restart.
//! Method: a simulated disk of limited size; streams of level memory are filled, read and crashed
//! while there is no room; large batches between small ones, with the order that derived records
//! need.

use crate::common::{fill, holds_all, payload};
use chappe_log::{
    Appended, Commit, Committed, Error, Follower, Health, Level, Options, Position, Store, Stream,
};
use chappe_sim::SimDisk;
use std::time::Duration;

const RESERVE: u64 = 10_000;

fn options() -> Options {
    Options {
        segment_bytes: 4 * 1024 * 1024,
        queue_bytes: 400_000,
        full_bytes: 200_000,
        batch_bytes: 400_000,
        reserve_bytes: RESERVE,
        full_poll: Duration::from_millis(1),
        full_polls: 2,
        ..Options::default()
    }
}

fn driven() -> Options {
    Options {
        commit: Commit::Caller,
        ..options()
    }
}

fn open(disk: &SimDisk, options: Options) -> Store {
    let (store, recovery) = Store::open(Box::new(disk.clone()), options, 3).unwrap();
    assert_eq!(recovery.corrupt, []);
    store
}

/// Leaves this many bytes above the reserve.
fn leave(disk: &SimDisk, bytes: u64) {
    disk.set_capacity(disk.used() + RESERVE + bytes);
}

/// The numbers that a follower returns now.
fn followed(follower: &mut Follower) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(records) = follower.try_next().unwrap() {
        numbers.extend(records.iter().map(|record| record.position.sequence));
    }
    numbers
}

#[test]
fn streams_of_level_memory_go_on_and_are_read() {
    let disk = SimDisk::new(1);
    let store = open(&disk, driven());
    let memory = store.stream("memory", Level::Memory, b"").unwrap();
    let power = store.stream("power", Level::Power, b"").unwrap();
    fill(&memory, 10);
    fill(&power, 10);
    store.commit().unwrap();
    let mut follower = memory.follow(0);
    assert_eq!(followed(&mut follower), (1..=10).collect::<Vec<_>>());
    leave(&disk, 0);
    let waits = power.append(vec![(1, payload(11))]).unwrap();
    while waits.try_result().is_none() {
        assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
    }
    assert!(matches!(waits.wait(), Err(Error::Full { .. })));
    for round in 1..=20 {
        fill(&memory, 10);
        assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
        let from = 10 * round + 1;
        assert_eq!(
            followed(&mut follower),
            (from..from + 10).collect::<Vec<_>>()
        );
        let refused = power.append(vec![(1, payload(11))]);
        assert!(matches!(refused, Err(Error::Full { .. })));
        assert_eq!(store.health(), Health::Full);
    }
    let reading = |memory: &Stream| {
        holds_all(memory, 210);
        let times = |records: Vec<chappe_log::Record>| -> Vec<i64> {
            records.iter().map(|record| record.time).collect()
        };
        assert_eq!(times(memory.newest(3).unwrap()), [208, 209, 210]);
        assert_eq!(times(memory.newest(205).unwrap())[0], 6);
        assert_eq!(times(memory.range(9, 12, 9).unwrap()), [9, 10, 11]);
        assert_eq!(times(memory.range(100, 102, 9).unwrap()), [100, 101]);
        let position = Position {
            epoch: memory.epoch(),
            sequence: 200,
        };
        assert_eq!(memory.resume(position), Ok(201));
        assert!(memory.follow(212).try_next().is_err(), "it is ahead");
    };
    reading(&memory);
    assert!(!memory.is_settled());
    let epoch = memory.epoch();
    // Waiting records are lost with the process; then their numbers are assigned in another epoch.
    let (crashed, _) = Store::open(Box::new(disk.kill()), options(), 4).unwrap();
    let crashed = crashed.existing("memory").unwrap();
    assert_eq!(crashed.last(), 10);
    let ahead = Position {
        epoch,
        sequence: 210,
    };
    assert_eq!(crashed.resume(ahead).unwrap_err().next, 11);
    disk.set_capacity(u64::MAX);
    while store.commit() != Ok(Committed::Nothing) {}
    assert_eq!(store.health(), Health::Ok);
    assert!(memory.is_settled());
    reading(&memory);
    assert!(followed(&mut follower).is_empty());
    fill(&power, 5);
    fill(&memory, 5);
    drop((memory, power, follower));
    store.close().unwrap();
    let store = open(&disk.crash(1), options());
    holds_all(&store.existing("power").unwrap(), 15);
    let memory = store.existing("memory").unwrap();
    assert_eq!(memory.epoch(), epoch);
    holds_all(&memory, 215);
}

#[test]
fn what_memory_takes_is_bounded_and_a_flood_leaves_room() {
    let disk = SimDisk::new(1);
    let store = open(&disk, driven());
    let flood = store.stream("flood", Level::Memory, b"").unwrap();
    let others: Vec<Stream> = (0..5)
        .map(|n| store.stream(&n.to_string(), Level::Memory, b"").unwrap())
        .collect();
    fill(&others[0], 100);
    while store.commit() != Ok(Committed::Nothing) {}
    leave(&disk, 0);
    fill(&flood, 1);
    assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
    let until_refused = |stream: &Stream| {
        let mut taken = 0_u64;
        let error = loop {
            match stream.append(vec![(1, vec![1; 1000])]) {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
            let _ = store.commit();
        };
        assert!(matches!(error, Error::Full { .. }), "{error:?}");
        taken
    };
    let bytes = until_refused(&flood) * 1000;
    assert!((95_000..105_000).contains(&bytes), "half of half: {bytes}");
    let mut left = bytes;
    for other in &others {
        left /= 2;
        let bytes = until_refused(other) * 1000;
        assert!(bytes > 0 && bytes.abs_diff(left) < 5000, "{bytes}, {left}");
    }
    let refused: u64 = store.lost().iter().map(|lost| lost.refused).sum();
    assert_eq!(refused, 6);
    // A trim, which may free space, is still accepted.
    others[0].trim(50).unwrap();
    disk.set_capacity(u64::MAX);
    while store.commit() != Ok(Committed::Nothing) {}
    assert_eq!(flood.last(), bytes / 1000 + 1);
    assert_eq!(others[0].first(), 50);
}

/// A store with so much room that only a large batch does not fit.
fn nearly_full(disk: &SimDisk) -> (Store, [Stream; 3]) {
    let store = open(disk, driven());
    let streams = ["large", "small", "derived"];
    let streams = streams.map(|name| store.stream(name, Level::Power, b"").unwrap());
    leave(disk, 100_000);
    (store, streams)
}

fn large(stream: &Stream) -> Result<Appended, Error> {
    stream.append(vec![(1, vec![7; 200_000])])
}

#[test]
fn a_batch_that_is_too_large_is_refused_alone() {
    let disk = SimDisk::new(1);
    let (store, [too_large, small, derived]) = nearly_full(&disk);
    let retractions = store.retractions();
    let one = |stream: &Stream| stream.append(vec![(1, payload(stream.assigned() + 1))]);
    let before = one(&small).unwrap();
    let refused = large(&too_large).unwrap();
    let same_stream = one(&too_large).unwrap();
    let after = one(&small).unwrap();
    let depends = derived
        .append_derived(retractions, vec![(1, payload(1))])
        .unwrap();
    let last = one(&small).unwrap();
    let created = store.define("new", |_| Ok::<_, Error>((Level::Power, vec![])));
    while store.commit() == Ok(Committed::Group) {
        assert_eq!(store.health(), Health::Ok);
    }
    assert_eq!(store.health(), Health::Ok);
    for taken in [before, after, last] {
        assert_eq!(taken.try_result(), Some(Ok(())));
    }
    assert!(created.unwrap().wait().is_ok());
    for refused in [refused, same_stream, depends] {
        let outcome = refused.try_result();
        assert!(
            matches!(outcome, Some(Err(Error::Full { .. }))),
            "{outcome:?}"
        );
    }
    assert!(store.retractions() > retractions);
    // The numbers are assigned to batches that fit.
    fill(&too_large, 2);
    fill(&derived, 1);
    let check = |store: &Store| {
        for (name, last) in [("large", 2), ("small", 3), ("derived", 1)] {
            holds_all(&store.existing(name).unwrap(), last);
        }
    };
    check(&store);
    check(&open(&disk.crash(1), options()));
}

#[test]
fn a_flood_of_batches_that_are_too_large_leaves_the_others_their_numbers() {
    let disk = SimDisk::new(1);
    let threaded = Options {
        full_poll: Duration::from_secs(3600),
        ..options()
    };
    let store = open(&disk, threaded);
    let too_large = store.stream("large", Level::Power, b"").unwrap();
    let small = store.stream("small", Level::Power, b"").unwrap();
    leave(&disk, 100_000);
    for _ in 0..50 {
        let refused = large(&too_large).unwrap();
        fill(&small, 1);
        assert!(matches!(refused.wait(), Err(Error::Full { .. })));
    }
    holds_all(&small, 50);
    assert_eq!(too_large.last(), 0);
}

#[test]
fn a_batch_of_level_memory_that_is_too_large_waits_and_lets_others_pass() {
    let disk = SimDisk::new(1);
    let (store, [_, small, _]) = nearly_full(&disk);
    let memory = store.stream("memory", Level::Memory, b"").unwrap();
    let bytes = vec![7; 150_000];
    memory
        .append(vec![(1, bytes.clone())])
        .unwrap()
        .wait()
        .unwrap();
    for round in 1..=20 {
        let appended = small.append(vec![(1, payload(round))]).unwrap();
        assert!(matches!(
            store.commit(),
            Ok(Committed::Full { .. } | Committed::Group)
        ));
        appended.wait().unwrap();
        assert_eq!((store.health(), small.last()), (Health::Ok, round));
    }
    assert_eq!(memory.read(1, 1).unwrap()[0].payload, bytes);
    let refused = memory.append(vec![(1, bytes.clone())]);
    assert!(
        matches!(refused, Err(Error::Full { .. })),
        "it has its share"
    );
    disk.set_capacity(u64::MAX);
    while store.commit() != Ok(Committed::Nothing) {}
    memory
        .append(vec![(1, b"more".to_vec())])
        .unwrap()
        .wait()
        .unwrap();
    while store.commit() != Ok(Committed::Nothing) {}
    let store = open(&disk.kill(), options());
    let memory = store.existing("memory").unwrap();
    assert_eq!(memory.read(1, 2).unwrap().len(), 2);
    holds_all(&store.existing("small").unwrap(), 20);
}
