//! Goal: a stream that keeps more than its share of the size limit makes room with its own records; the
//! records of others and of a protected share stay whole, are read in order, and survive a power loss at any
//! moment, although their segments are removed.
//! Method: a stream floods a small log while others append a record now and then; the power is cut at each
//! boundary of such a run; readers follow, and resume from a place, while segments are cleaned.

use crate::common::{fill, holds_all};
use chappe_log::{Commit, Error, Level, MemoryDisk, Options, Place, Share, Store, Stream, check};
use chappe_sim::SimDisk;

const RETAIN_BYTES: u64 = 256 * 1024;
const SEGMENT_BYTES: u64 = 16 * 1024;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        reserve_bytes: 0,
        retain_bytes: Some(RETAIN_BYTES),
        waits_for_shares: true,
        commit: Commit::Caller,
        ..Options::default()
    }
}

/// The streams of the test: one that floods, one that others need, and a protected one.
struct Streams {
    flood: Stream,
    quiet: Stream,
    audit: Stream,
}

fn streams(store: &Store) -> Result<Streams, Error> {
    let define = |name| store.stream(name, Level::Power, b"");
    let streams = Streams {
        flood: define("flood")?,
        quiet: define("quiet")?,
        audit: define("audit")?,
    };
    streams.flood.set_share(1);
    streams.quiet.set_share(2);
    streams.audit.set_share(3);
    let share = |number, bytes, is_protected| {
        store.set_share(
            number,
            Some(Share {
                bytes,
                is_protected,
            }),
        );
    };
    share(1, RETAIN_BYTES / 4, false);
    share(2, RETAIN_BYTES / 2, false);
    share(3, RETAIN_BYTES / 4, true);
    Ok(streams)
}

fn payload(name: &str, number: u64) -> Vec<u8> {
    format!("{name} {number} ").repeat(3).into_bytes()
}

fn append(stream: &Stream, bytes: usize) -> Result<(), Error> {
    let number = stream.assigned() + 1;
    let mut record = payload(&stream.name(), number);
    record.resize(record.len() + bytes, b'.');
    stream.append(vec![(number as i64, record)])?.wait()
}

/// Floods for so many rounds; others append once in 16 of them. Returns how far each was acknowledged.
fn flood(streams: &Streams, rounds: u64, done: &mut [u64; 2]) -> Result<(), Error> {
    for round in 0..rounds {
        append(&streams.flood, 2_000)?;
        if round % 16 == 3 {
            append(&streams.quiet, 20)?;
            done[0] += 1;
        }
        if round % 16 == 11 {
            append(&streams.audit, 20)?;
            done[1] += 1;
        }
    }
    Ok(())
}

/// Checks that a stream has every record up to `last` at least.
fn is_whole(stream: &Stream, last: u64, why: &str) {
    assert_eq!(stream.first(), 1, "{why}");
    assert!(stream.last() >= last, "{why}: {} of {last}", stream.last());
    let (mut next, last) = (1, stream.last());
    while next <= last {
        let read = stream.read(next, 40);
        for record in read.unwrap_or_else(|error| panic!("{why}: {error}")) {
            assert_eq!(record.position.sequence, next, "{why}");
            assert!(
                record.payload.starts_with(&payload(&stream.name(), next)),
                "{why}"
            );
            next += 1;
        }
    }
    assert!(stream.gaps().is_empty(), "{why}");
    let counted = stream.count_times(i64::MIN, i64::MAX).unwrap();
    assert_eq!(counted, last, "{why}");
}

fn bytes_of(disk: &SimDisk) -> u64 {
    let names = disk.names().into_iter();
    let segments = names.filter(|name| name.ends_with(".segment"));
    segments
        .map(|name| disk.bytes(&name).unwrap().len() as u64)
        .sum()
}

#[test]
fn a_flood_makes_room_with_its_own_records() {
    let disk = SimDisk::new(1);
    let mut done = [0; 2];
    for reopening in 0..4 {
        let (store, recovery) = Store::open(Box::new(disk.clone()), options(), reopening).unwrap();
        assert!(recovery.corrupt.is_empty(), "{:?}", recovery.corrupt);
        let streams = streams(&store).unwrap();
        flood(&streams, 1_200, &mut done).unwrap();
        is_whole(&streams.quiet, done[0], "quiet");
        is_whole(&streams.audit, done[1], "audit");
        let flooding = &streams.flood;
        assert_eq!(flooding.last(), 1_200 * (reopening + 1));
        assert!(
            flooding.first() > 1_000 * (reopening + 1),
            "{}",
            flooding.first()
        );
        assert!(bytes_of(&disk) <= RETAIN_BYTES + 2 * SEGMENT_BYTES);
        let used = store.share_bytes();
        assert!(used[&1] > RETAIN_BYTES / 8, "{used:?}");
        let counters = store.counters();
        assert!(
            counters.moved_bytes > 0 && counters.removed_segments == 0,
            "{counters:?}"
        );
        drop(streams);
        store.close().unwrap();
        let report = check(&disk).unwrap();
        assert!(report.corrupt.is_empty(), "{:?}", report.corrupt);
    }
}

#[test]
fn without_a_share_the_oldest_go_but_not_those_that_are_protected() {
    let disk = SimDisk::new(2);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let streams = streams(&store).unwrap();
    streams.flood.set_share(0);
    let mut done = [0; 2];
    flood(&streams, 1_200, &mut done).unwrap();
    is_whole(&streams.audit, done[1], "audit");
    assert!(streams.quiet.first() > 1, "it is pushed out like before");
    assert!(bytes_of(&disk) <= RETAIN_BYTES + 2 * SEGMENT_BYTES);
}

#[test]
fn a_protected_share_has_a_bound_of_its_own() {
    let disk = SimDisk::new(3);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let streams = streams(&store).unwrap();
    let mut done = [0; 2];
    flood(&streams, 100, &mut done).unwrap();
    for _ in 0..2_000 {
        append(&streams.audit, 300).unwrap();
    }
    is_whole(&streams.quiet, done[0], "quiet");
    assert!(streams.audit.first() > 1_000, "{}", streams.audit.first());
    assert!(bytes_of(&disk) <= RETAIN_BYTES + 2 * SEGMENT_BYTES);
}

#[test]
fn segments_that_are_shorter_than_the_definitions_are_cleaned_like_others() {
    let disk = SimDisk::new(7);
    let mut done = [0; 2];
    for reopening in 0..2 {
        let (store, _) = Store::open(Box::new(disk.clone()), options(), reopening).unwrap();
        let streams = streams(&store).unwrap();
        flood(&streams, 60, &mut done).unwrap();
        // From now on a segment begins with more than one was long before.
        let wide = vec![b'.'; SEGMENT_BYTES as usize * 3 / 4];
        store.stream("wide", Level::Power, &wide).unwrap();
        flood(&streams, 400, &mut done).unwrap();
        is_whole(&streams.quiet, done[0], "quiet");
        is_whole(&streams.audit, done[1], "audit");
        assert_eq!(store.counters().removed_segments, 0);
        assert!(bytes_of(&disk) <= RETAIN_BYTES + 6 * SEGMENT_BYTES);
        store.abandon();
    }
}

#[test]
fn a_log_that_one_share_has_alone_is_used_fully() {
    let disk = SimDisk::new(4);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let streams = streams(&store).unwrap();
    for _ in 0..600 {
        append(&streams.flood, 2_000).unwrap();
    }
    let used = store.share_bytes();
    // Each of the small segments begins with the definitions.
    assert!(used[&1] > RETAIN_BYTES * 3 / 4, "{used:?}");
    assert_eq!(store.counters().moved_bytes, 0);
}

#[test]
fn opening_a_full_log_removes_nothing_before_there_are_shares() {
    let disk = MemoryDisk::new();
    let (store, _) = Store::open(
        Box::new(disk.clone()),
        Options {
            retain_bytes: None,
            ..options()
        },
        1,
    )
    .unwrap();
    let old = store.stream("old", Level::Power, b"").unwrap();
    fill(&old, 1_000);
    drop(old);
    store.close().unwrap();
    let (store, _) = Store::open(Box::new(disk), options(), 2).unwrap();
    let old = store.existing("old").unwrap();
    store.commit().unwrap();
    holds_all(&old, 1_000);
}

#[test]
fn a_power_loss_at_any_moment_takes_nothing_from_the_others() {
    const ROUNDS: u64 = 260;
    let disk = SimDisk::new(5);
    let mut boundaries = disk.boundaries();
    let mut moved = 0;
    for image in 0.. {
        let disk = SimDisk::new(100 + image);
        let mut done = [0; 2];
        // From the moment on at which the log is full, each boundary.
        let cut = 250 + image * 5;
        disk.cut_power_at(cut);
        let run = Store::open(Box::new(disk.clone()), options(), 7).and_then(|(store, _)| {
            let streams = streams(&store)?;
            let run = flood(&streams, ROUNDS, &mut done);
            moved += store.counters().moved_bytes;
            store.abandon();
            run
        });
        if run.is_ok() && !disk.is_off() {
            boundaries = disk.boundaries();
            break;
        }
        let found = disk.crash(image);
        let (store, recovery) = Store::open(Box::new(found.clone()), options(), 8).unwrap();
        let why = format!("cut {cut}: {:?}", recovery.corrupt);
        let streams = streams(&store).unwrap();
        is_whole(&streams.quiet, done[0], &why);
        is_whole(&streams.audit, done[1], &why);
        flood(&streams, 60, &mut done).unwrap();
        is_whole(&streams.quiet, done[0], &why);
        is_whole(&streams.audit, done[1], &why);
        assert!(
            bytes_of(&found) <= RETAIN_BYTES + 2 * SEGMENT_BYTES,
            "{why}"
        );
    }
    assert!(boundaries > 500 && moved > 0, "{boundaries} {moved}");
}

#[test]
fn a_reader_that_resumes_from_a_place_loses_nothing_that_was_moved() {
    let disk = SimDisk::new(6);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let streams = streams(&store).unwrap();
    let mut done = [0; 2];
    // Read so far: some of each.
    let mut places: Vec<(Place, u64)> = Vec::new();
    for round in 0..60 {
        flood(&streams, 16, &mut done).unwrap();
        let next = streams.quiet.last() + 1 - (round % 3).min(streams.quiet.last());
        let reading = [
            (&streams.quiet, next),
            (&streams.flood, streams.flood.last() + 1),
        ];
        let (place, behind) = store.place(&reading, 0).unwrap();
        assert!(behind.is_empty());
        places.push((place, next));
        for (place, next) in &places {
            let continuation = store.continue_after(*place).unwrap();
            let from = streams.quiet.continue_from(continuation);
            assert!(from <= *next, "round {round}: {from} is after {next}");
        }
    }
    assert!(store.counters().moved_bytes > 0);
    let reading = [(&streams.quiet, streams.quiet.last() + 1)];
    let (place, _) = store.place(&reading, 0).unwrap();
    flood(&streams, 3, &mut done).unwrap();
    let continuation = store.continue_after(place).unwrap();
    let again = streams.quiet.last() + 1 - streams.quiet.continue_from(continuation);
    assert!(again <= streams.quiet.last(), "{again}");
}
