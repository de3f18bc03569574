//! Goal: streams are trimmed independently: the kept part is complete, the trimmed part is reported
//! as a gap, numbers never restart, and space that all streams have trimmed is freed, even between
//! segments that stay.
//! Method: streams with small segments on a simulated disk, trimmed, reopened and checked; a
//! property compares any mixture of appends, trims and openings with a model.

use crate::common::{fill, holds, payload};
use chappe_log::{Error, GapReason, Health, Level, Options, Position, Store, Stream, check};
use chappe_sim::SimDisk;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> Store {
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 5).unwrap();
    assert_eq!((recovery.corrupt, recovery.new_epochs), (vec![], vec![]));
    store
}

/// The files of segments, once the commit thread has removed some: it takes the next work after
/// that.
fn segments(store: &Store, disk: &SimDisk) -> Vec<String> {
    static NTH: AtomicU64 = AtomicU64::new(0);
    let other = NTH.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    store.stream("settle", Level::Process, &other).unwrap();
    files(disk)
}

fn files(disk: &SimDisk) -> Vec<String> {
    let names = disk.names().into_iter();
    names.filter(|name| name.ends_with(".segment")).collect()
}

#[test]
fn a_check_counts_no_trimmed_records() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let stream = store.stream("a", Level::Process, b"").unwrap();
    fill(&stream, 300);
    stream.trim(291).unwrap().wait().unwrap();
    drop(stream);
    store.close().unwrap();
    let report = check(&disk).unwrap();
    assert_eq!(report.streams[0].records, 10);
}

#[test]
fn a_trimmed_stream_keeps_its_name_and_its_numbers() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let stream = store.stream("a", Level::Process, b"schema").unwrap();
    fill(&stream, 300);
    let (epoch, before) = (stream.epoch(), segments(&store, &disk));
    stream.trim(u64::MAX).unwrap().wait().unwrap();
    holds(&stream, 301, 300);
    stream.trim(7).unwrap().wait().unwrap();
    holds(&stream, 301, 300);
    // The newest was being written, and may still be.
    let (newest, old) = before.split_last().unwrap();
    let left = segments(&store, &disk);
    assert!(old.len() > 5 && left.iter().all(|name| name >= newest));
    assert!(store.counters().trimmed_segments >= old.len() as u64);
    drop(stream);
    store.close().unwrap();

    let report = check(&disk).unwrap();
    assert!(report.healthy() && report.segments <= 2, "{report:?}");
    let store = open(&disk);
    let stream = store.existing("a").unwrap();
    assert_eq!(
        (stream.metadata(), stream.epoch()),
        (b"schema".to_vec(), epoch)
    );
    assert_eq!(stream.level(), Level::Process);
    holds(&stream, 301, 300);
    fill(&stream, 2);
    holds(&stream, 301, 302);
    let seen = Position {
        epoch,
        sequence: 250,
    };
    assert_eq!(stream.resume(seen), Ok(251));
    assert_eq!(stream.resume(Position { epoch, sequence: 0 }), Ok(301));
}

#[test]
fn followers_and_readers_of_times_pass_over_what_was_trimmed() {
    let store = open(&SimDisk::new(1));
    let stream = store.stream("a", Level::Process, b"").unwrap();
    fill(&stream, 200);
    let mut follower = stream.follow(0);
    assert_eq!(
        follower.try_next().unwrap().unwrap()[0].position.sequence,
        1
    );
    let mut late = stream.follow(5);
    stream.trim(150).unwrap().wait().unwrap();
    let gap = late.try_next().unwrap_err();
    assert!(
        matches!(
            gap,
            Error::Gap {
                from: 5,
                next: 150,
                ..
            }
        ),
        "{gap}"
    );
    assert_eq!(late.try_next().unwrap().unwrap()[0].position.sequence, 150);
    assert_eq!(stream.range(0, 1000, 1000).unwrap()[0].time, 150);
    assert_eq!(stream.newest(100).unwrap().len(), 51);
    assert_eq!(stream.gaps(), vec![]);
}

#[test]
fn segments_between_kept_ones_are_removed() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let rare = store.stream("rare", Level::Power, b"").unwrap();
    let busy = store.stream("busy", Level::Process, b"").unwrap();
    fill(&rare, 1);
    fill(&busy, 400);
    fill(&rare, 1);
    fill(&busy, 400);
    let before = segments(&store, &disk).len();
    busy.trim(790).unwrap().wait().unwrap();
    let after = segments(&store, &disk);
    assert!(
        before > 20 && after.len() <= 4,
        "{before} segments, then {after:?}"
    );
    holds(&rare, 1, 2);
    holds(&busy, 790, 800);
    drop((rare, busy));
    store.close().unwrap();
    let report = check(&disk).unwrap();
    assert!(report.healthy(), "{:?}", report.corrupt);
    let store = open(&disk);
    holds(&store.existing("rare").unwrap(), 1, 2);
    holds(&store.existing("busy").unwrap(), 790, 800);
}

#[test]
fn a_lost_segment_is_told_from_a_trimmed_one() {
    for (lost, of_new) in [(true, false), (true, true), (false, false)] {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        let pin = store.stream("pin", Level::Power, b"").unwrap();
        let busy = store.stream("busy", Level::Power, b"").unwrap();
        fill(&pin, 1);
        fill(&busy, 60);
        let new = store.stream("new", Level::Power, b"").unwrap();
        fill(&new, 60);
        fill(&busy, 60);
        if !lost {
            new.trim(61).unwrap().wait().unwrap();
        }
        busy.trim(if of_new { 120 } else { 100 })
            .unwrap()
            .wait()
            .unwrap();
        store.clone().close().unwrap();
        // In this segment, all of `busy` is trimmed, and `new` begins.
        let named = |name: &str| {
            let body = disk.bytes(name).unwrap();
            body.windows(3).any(|window| window == b"new")
        };
        let first = files(&disk).into_iter().find(|name| named(name)).unwrap();
        if lost {
            chappe_log::Disk::remove(&disk, &first).unwrap();
        }
        let report = check(&disk).unwrap();
        assert_eq!(report.healthy(), !lost, "{report:?}");
        if lost {
            let gaps = &report.corrupt[0].gaps;
            assert!(report.corrupt[0].what.contains("missing"), "{report:?}");
            assert!(
                matches!(&gaps[..], [(name, 1, _)] if name == "new"),
                "{gaps:?}"
            );
            beginning_comes_back(&disk, gaps[0].2);
        }
    }
}

/// The start of a stream is lost, not trimmed; once restored, it stays.
fn beginning_comes_back(disk: &SimDisk, last: u64) {
    let corrupt = |stream: &Stream| {
        let gap = stream.read(1, 1).unwrap_err();
        matches!(gap, Error::Gap { next, reason: GapReason::Corrupt, .. } if next == last + 1)
    };
    let reopen = || Store::open(Box::new(disk.clone()), options(), 5).unwrap().0;
    let store = reopen();
    let stream = store.existing("new").unwrap();
    assert!(corrupt(&stream) && stream.gaps() == vec![(1, last)]);
    let batch = (1..=last).map(|number| (number as i64, payload(number)));
    let first = Position {
        epoch: stream.epochs()[0].0,
        sequence: 1,
    };
    let filled = stream.fill(first, batch.collect::<Vec<_>>()).unwrap();
    filled.wait().unwrap();
    holds(&stream, 1, 60);
    drop(stream);
    store.close().unwrap();
    let store = reopen();
    let stream = store.existing("new").unwrap();
    holds(&stream, 1, 60);
    assert_eq!(stream.gaps(), vec![]);
}

#[test]
fn what_is_damaged_behind_a_mark_is_not_trimmed() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let stream = store.stream("a", Level::Power, b"").unwrap();
    fill(&stream, 60);
    let bytes = disk.bytes("0000000001.segment").unwrap();
    let lies = |number: u64| {
        let wanted = payload(number);
        let at = bytes.windows(wanted.len()).position(|it| it == wanted);
        at.unwrap() as u64
    };
    assert!(disk.flip("0000000001.segment", 8 * lies(20)));
    let epoch = stream.epoch();
    let told = |stream: &Stream, from: u64| match stream.read(from, 1) {
        Err(Error::Gap {
            from, next, reason, ..
        }) => (from, next, reason),
        other => panic!("{other:?}"),
    };
    // Found by reading, then by opening.
    drop(stream);
    store.close().unwrap();
    let store = open(&disk);
    let stream = store.existing("a").unwrap();
    assert_eq!(told(&stream, 20), (20, 21, GapReason::Corrupt));
    stream.trim(20).unwrap().wait().unwrap();
    drop(stream);
    let again = Store::open(Box::new(disk.kill()), options(), 5).unwrap().0;
    for store in [store, again] {
        let stream = store.existing("a").unwrap();
        assert_eq!(stream.first(), 20);
        assert_eq!(told(&stream, 1), (1, 20, GapReason::Trimmed));
        assert_eq!(told(&stream, 20), (20, 21, GapReason::Corrupt));
        assert_eq!(store.lost()[0].missing, 1);
        let first = Position {
            epoch,
            sequence: 20,
        };
        let filled = stream.fill(first, vec![(20, payload(20))]);
        filled.unwrap().wait().unwrap();
        holds(&stream, 20, 60);
        drop(stream);
        store.abandon();
    }
}

#[test]
fn a_damaged_segment_stays_as_long_as_what_it_lacks_is_kept() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let stream = store.stream("a", Level::Power, b"").unwrap();
    fill(&stream, 200);
    drop(stream);
    store.close().unwrap();
    let damaged = files(&disk)[2].clone();
    assert!(disk.flip(&damaged, 8 * 1000));
    disk.put(&damaged.replace("segment", "index"), b"");
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 5).unwrap();
    assert_eq!(recovery.corrupt.len(), 1);
    let stream = store.existing("a").unwrap();
    let (from, last) = stream.gaps()[0];
    stream.trim(from).unwrap().wait().unwrap();
    assert!(segments(&store, &disk).contains(&damaged));
    stream.trim(last + 1).unwrap().wait().unwrap();
    stream.trim(201).unwrap().wait().unwrap();
    fill(&stream, 1);
    let left = segments(&store, &disk);
    assert!(left.len() <= 2 && !left.contains(&damaged), "{left:?}");
}

#[test]
fn a_full_disk_can_be_trimmed() {
    // Something waits for room; or the waiting records were refused, and nothing waits.
    for full_polls in [u32::MAX, 1] {
        let disk = SimDisk::new(1);
        let options = Options {
            reserve_bytes: 3000,
            full_poll: std::time::Duration::from_millis(1),
            full_polls,
            ..options()
        };
        let (store, _) = Store::open(Box::new(disk.clone()), options, 5).unwrap();
        let stream = store.stream("a", Level::Process, b"").unwrap();
        fill(&stream, 100);
        // Less than the reserve: it stays full until something is removed.
        disk.set_capacity(disk.used() + 2990);
        let mut waits = Some(stream.append(vec![(101, payload(101))]).unwrap());
        while store.health() == Health::Ok {
            std::thread::yield_now();
        }
        let refused = stream.append(vec![(0, vec![])]);
        assert!(matches!(refused, Err(Error::Full { .. })));
        if full_polls == 1 {
            let refused = waits.take().unwrap().wait();
            assert!(matches!(refused, Err(Error::Full { .. })));
        }
        stream.trim(90).unwrap().wait().unwrap();
        if let Some(waits) = waits {
            waits.wait().unwrap();
        } else {
            while store.health() == Health::Full {
                std::thread::yield_now();
            }
            fill(&stream, 1);
        }
        holds(&stream, 90, 101);
        assert!(store.counters().trimmed_segments > 0);
    }
}

#[test]
fn readers_beside_a_trimming_writer_see_records_or_are_told() {
    const RECORDS: u64 = 4_000;
    let store = open(&SimDisk::new(1));
    let stream = store.stream("a", Level::Process, b"").unwrap();
    fill(&stream, 1);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let stream = stream.clone();
            scope.spawn(move || {
                let mut next = 1;
                while next <= RECORDS {
                    let read = match reader {
                        0 => stream.read(next, 500),
                        1 => stream.range(0, i64::MAX, 200),
                        _ => stream.newest(300),
                    };
                    match read {
                        Ok(records) => {
                            for record in records {
                                let number = record.position.sequence;
                                assert_eq!(record.payload, payload(number));
                                next = next.max(number + 1);
                            }
                        }
                        Err(Error::Gap {
                            next: on, reason, ..
                        }) => {
                            assert_eq!(reason, GapReason::Trimmed);
                            next = on;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        while stream.last() < RECORDS {
            fill(&stream, 20);
            drop(stream.trim(stream.last() - 10).unwrap());
        }
    });
    assert!(store.counters().trimmed_segments > 50);
    assert_eq!(stream.gaps(), vec![]);
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize, u64),
    Trim(usize, u64),
    Open,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3usize, 1..40u64).prop_map(|(stream, records)| Step::Append(stream, records)),
        4 => (0..3usize, 0..100u64).prop_map(|(stream, keep)| Step::Trim(stream, keep)),
        1 => Just(Step::Open),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_kept_record_is_lost(steps in prop::collection::vec(step(), 1..40)) {
        let disk = SimDisk::new(1);
        let mut store = open(&disk);
        let names = ["a", "b", "c"];
        let stream = |store: &Store, s: usize| store.stream(names[s], Level::Power, b"").unwrap();
        let mut model = [(1u64, 0u64); 3];
        for step in steps {
            match step {
                Step::Append(s, records) => {
                    fill(&stream(&store, s), records);
                    model[s].1 += records;
                }
                Step::Trim(s, keep) => {
                    let before = (model[s].1 + 1).saturating_sub(keep);
                    let trimmed = stream(&store, s).trim(before).unwrap();
                    model[s].0 = model[s].0.max(before);
                    prop_assert_eq!(trimmed.first, model[s].0);
                    trimmed.wait().unwrap();
                }
                Step::Open => {
                    store.close().unwrap();
                    prop_assert!(check(&disk).unwrap().healthy());
                    store = open(&disk);
                }
            }
            for (s, (first, last)) in model.into_iter().enumerate() {
                holds(&stream(&store, s), first, last);
            }
        }
        // Only the segments that a stream needs, and the current one, exist.
        let oldest = model.map(|(first, last)| last + 1 - first).iter().sum::<u64>();
        prop_assert!(segments(&store, &disk).len() as u64 <= 2 + oldest);
    }
}
