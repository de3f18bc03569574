//! Goal: bit rot anywhere is found or harmless: no wrong record is ever returned, healthy records
//! elsewhere stay readable, missing records are named and counted, and the scrub finds the damage
//! that opening did not check.
//! Method: one bit of each byte of each file of a log is flipped (clean and unclean ends), sectors
//! are zeroed or swapped. Each result is opened, with and without the segments' snapshots, and all
//! readable records are compared; the scrub and the counts of losses are compared with the model.

use chappe_log::{Disk, Error, Level, Options, Position, Store, check};
use chappe_sim::SimDisk;
use std::collections::{BTreeMap, BTreeSet};

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Payload and batch of each record by stream and number.
type Model = BTreeMap<(usize, u64), (Vec<u8>, u64)>;

fn build(clean: bool) -> (SimDisk, Model) {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let streams = NAMES.map(|name| store.stream(name, Level::Power, b"meta").unwrap());
    let mut model = Model::new();
    for batch in 0..60u64 {
        let s = (batch % 3) as usize;
        let payload =
            |n: u64| format!("record {n} of batch {batch} {}", "y".repeat(batch as usize));
        let records: Vec<_> = (0..1 + batch % 2)
            .map(|n| (n as i64, payload(n).into_bytes()))
            .collect();
        let appended = streams[s].append(records.clone()).unwrap();
        for (n, (_, payload)) in records.into_iter().enumerate() {
            model.insert((s, appended.first.sequence + n as u64), (payload, batch));
        }
        appended.wait().unwrap();
    }
    let killed = disk.kill();
    drop(streams);
    store.close().unwrap();
    (if clean { disk } else { killed }, model)
}

/// Opens the disk and returns the batches with missing records: found by reading, and after a
/// scrub, and by an opening that reads every byte.
fn missing(disk: &SimDisk, model: &Model, what: &str) -> BTreeSet<u64> {
    let unread = disk.kill();
    let scrubbed = disk.kill();
    for name in unread.names() {
        if name.ends_with(".index") {
            unread.remove(&name).unwrap();
        }
    }
    let by_reading = missing_in(disk, model, what, Way::Read);
    let by_scrub = missing_in(&scrubbed, model, what, Way::Scrub);
    let by_opening = missing_in(&unread, model, what, Way::Open);
    assert_eq!(by_reading, by_opening, "{what}");
    assert_eq!(by_reading, by_scrub, "{what}");
    by_reading
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Read,
    Scrub,
    Open,
}

fn missing_in(disk: &SimDisk, model: &Model, what: &str, way: Way) -> BTreeSet<u64> {
    let report = check(disk).unwrap_or_else(|error| panic!("{what}: {error}"));
    let (store, mut recovery) = Store::open(Box::new(disk.clone()), options(), 99).unwrap();
    if way == Way::Open {
        assert_eq!(report.corrupt, recovery.corrupt, "{what}");
    }
    if way == Way::Scrub {
        let before: Vec<_> = store.lost();
        let step = store.scrub(u64::MAX).unwrap();
        assert!(
            step.round_done && step.segments_done == step.segments,
            "{what}"
        );
        recovery.corrupt.extend(step.corrupt);
        let gaps = recovery.corrupt.iter().flat_map(|range| &range.gaps);
        let named: u64 = gaps.map(|(_, from, last)| last - from + 1).sum();
        let lost: u64 = store.lost().iter().map(|lost| lost.corrupt).sum();
        assert_eq!(named, lost, "{what}: {:?} {before:?}", recovery.corrupt);
    }
    let mut missing = BTreeSet::new();
    for (s, name) in NAMES.into_iter().enumerate() {
        let lost_name = || store.existing(&format!("lost-name-{}", s + 1));
        let found = store.existing(name).or_else(lost_name);
        let mut read = BTreeSet::new();
        let mut from = 0;
        // The losses from the middle according to the model.
        let mut lost = 0;
        while let Some(stream) = &found {
            match stream.read(from, 5) {
                Ok(records) if records.is_empty() => break,
                Ok(records) => {
                    for record in records {
                        let number = record.position.sequence;
                        assert!(read.insert(number), "{what}: {number} twice");
                        assert_eq!(model[&(s, number)].0, record.payload, "{what}");
                        from = number + 1;
                    }
                }
                Err(Error::Gap { next, .. }) => from = next,
                Err(error) => panic!("{what}: {error}"),
            }
        }
        for ((_, number), (_, batch)) in model.iter().filter(|((of, _), _)| *of == s) {
            if read.contains(number) {
                continue;
            }
            missing.insert(*batch);
            let named = !report.corrupt.is_empty() || recovery.torn_tail.is_some();
            let told = way == Way::Read || !recovery.corrupt.is_empty();
            assert!(
                named && (told || recovery.torn_tail.is_some()),
                "{what}: {name} {number} is missing and nothing says so"
            );
            if let Some(stream) = &found {
                let gap = stream.gaps().iter().any(|(a, b)| (a..=b).contains(&number));
                lost += u64::from(gap);
                let (epoch, _) = stream.epochs()[0];
                let rolled = stream
                    .resume(Position {
                        epoch,
                        sequence: *number,
                    })
                    .is_err();
                assert!(gap || rolled, "{what}: {name} {number}");
                // The number is not assigned to another record of the same epoch.
                assert!(gap || stream.epoch() != epoch, "{what}");
            }
        }
        if let Some(stream) = &found {
            let counted = store
                .lost()
                .into_iter()
                .find(|it| it.stream == stream.name());
            let counted = counted.unwrap();
            assert_eq!(
                (counted.corrupt, counted.missing),
                (lost, lost),
                "{what}: {name}"
            );
        }
    }
    missing
}

#[test]
fn one_flipped_bit_costs_at_most_its_batch() {
    flip_bits(19, 800);
}

#[test]
#[ignore = "minutes: every byte of both logs"]
fn one_flipped_bit_in_every_byte() {
    flip_bits(1, 20_000);
}

/// Flips a bit of every `step`th byte.
fn flip_bits(step: u64, at_least: usize) {
    let (mut flips, mut found) = (0, 0);
    for clean in [true, false] {
        let (disk, model) = build(clean);
        assert!(missing(&disk.kill(), &model, "untouched").is_empty());
        for name in disk.names() {
            for byte in (0..disk.bytes(&name).unwrap().len() as u64).step_by(step as usize) {
                let rotten = disk.kill();
                assert!(rotten.flip(&name, byte * 8 + (byte * 5 + byte / 7) % 8));
                let what = format!("clean {clean}, {name}, byte {byte}");
                let names = check(&rotten).unwrap().streams;
                let names: Vec<_> = names.iter().map(|it| it.info.name.as_str()).collect();
                assert_eq!(names, NAMES, "{what}");
                let missing = missing(&rotten, &model, &what);
                assert!(
                    missing.len() <= 1,
                    "{what}: batches {missing:?} are missing"
                );
                flips += 1;
                found += missing.len();
            }
        }
    }
    assert!(
        flips > at_least && found > at_least / 4,
        "{flips} flips, {found} batches"
    );
    println!("{flips} flips, {found} of them cost a batch");
}

#[test]
fn lost_and_misdirected_sectors_never_give_a_wrong_record() {
    let (disk, model) = build(true);
    let names: Vec<_> = disk
        .names()
        .into_iter()
        .filter(|n| n.ends_with(".segment"))
        .collect();
    for name in &names {
        let bytes = disk.bytes(name).unwrap();
        let sectors = bytes.len() / 512;
        for sector in (0..sectors).step_by(3) {
            let mut zeroed = bytes.clone();
            zeroed[sector * 512..(sector + 1) * 512].fill(0);
            let mut swapped = bytes.clone();
            let other = (sector + 3) % sectors;
            swapped[sector * 512..][..512].copy_from_slice(&bytes[other * 512..][..512]);
            for (what, bytes) in [("zeroed", zeroed), ("swapped", swapped)] {
                let rotten = disk.kill();
                rotten.put(name, &bytes);
                missing(&rotten, &model, &format!("{name} {what} {sector}"));
            }
            let cut = disk.kill();
            cut.put(name, &bytes[..sector * 512]);
            missing(&cut, &model, &format!("{name} cut at {sector}"));
        }
    }
    // An entire segment in the position of another one, and a missing one.
    let swapped = disk.kill();
    swapped.put(&names[1], &disk.bytes(&names[0]).unwrap());
    assert!(!missing(&swapped, &model, "first segment twice").is_empty());
}

#[test]
fn rot_under_an_open_store_is_a_gap() {
    let (disk, model) = build(true);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 5).unwrap();
    let stream = store.existing("b").unwrap();
    let name = disk.names()[1].clone();
    let mut payload = model[&(1, 4)].0.clone();
    payload.truncate(12);
    let (segment, at) = disk
        .names()
        .into_iter()
        .find_map(|name| {
            let bytes = disk.bytes(&name)?;
            Some((
                name,
                bytes.windows(payload.len()).position(|w| w == payload)?,
            ))
        })
        .unwrap_or((name, 200));
    assert!(disk.flip(&segment, at as u64 * 8));
    let (mut from, mut gaps, mut read) = (1, 0, 0);
    while from <= stream.last() {
        match stream.read(from, 100) {
            Ok(records) => {
                for record in &records {
                    assert_eq!(record.payload, model[&(1, record.position.sequence)].0);
                }
                read += records.len();
                from = records.last().unwrap().position.sequence + 1;
            }
            Err(Error::Gap { next, .. }) => {
                gaps += 1;
                from = next;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let of_stream = model.keys().filter(|(s, _)| *s == 1).count();
    assert!(
        gaps <= 1 && read + 2 >= of_stream,
        "{gaps} gaps, {read} of {of_stream}"
    );
    assert_eq!(stream.gaps().len(), gaps);
}

#[test]
fn what_is_still_in_memory_is_written_again() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let payload = |number: u64| format!("record {number:03}").repeat(10).into_bytes();
    for number in 1..=100 {
        let appended = stream.append(vec![(number as i64, payload(number))]);
        appended.unwrap().wait().unwrap();
    }
    let (name, bytes) = disk
        .names()
        .into_iter()
        .filter_map(|name| disk.bytes(&name).map(|bytes| (name, bytes)))
        .find(|(_, bytes)| bytes.windows(10).any(|window| window == b"record 010"))
        .unwrap();
    let at = bytes.windows(10).position(|window| window == b"record 010");
    assert!(disk.flip(&name, at.unwrap() as u64 * 8));
    let step = store.scrub(u64::MAX).unwrap();
    assert_eq!((step.corrupt.len(), step.from_memory), (1, 1));
    // A record appended after it is durable only when the previous one is.
    let last = stream.append(vec![(101, payload(101))]);
    last.unwrap().wait().unwrap();
    assert_eq!(stream.gaps(), vec![]);
    assert_eq!((store.lost()[0].corrupt, store.lost()[0].filled), (1, 1));
    let (store, _) = Store::open(Box::new(disk.kill()), options(), 2).unwrap();
    let records = store.existing("a").unwrap().read(1, 200).unwrap();
    let right = records
        .iter()
        .all(|record| record.payload == payload(record.position.sequence));
    assert!(right && records.len() == 101);
}

#[test]
fn damage_beside_damage_is_one_gap() {
    let (disk, model) = build(true);
    let place = |number: u64| {
        let wanted = &model[&(0, number)].0;
        let found = disk.names().into_iter().find_map(|name| {
            let bytes = disk.bytes(&name)?;
            let at = bytes.windows(wanted.len()).position(|it| it == wanted);
            at.map(|at| (name, at as u64))
        });
        found.unwrap()
    };
    // A header lies 84 bytes before its first record's payload.
    for (first, second) in [(70, 70), (70, 0), (0, 70), (0, 0)] {
        let rotten = disk.kill();
        for (number, before) in [(4, first), (5, second)] {
            let (name, at) = place(number);
            assert!(rotten.flip(&name, 8 * (at - before)));
        }
        let what = format!("{first} and {second} bytes before");
        let lost = [4, 5].map(|number| model[&(0, number)].1);
        assert_eq!(
            missing(&rotten, &model, &what),
            BTreeSet::from(lost),
            "{what}"
        );
    }
}
