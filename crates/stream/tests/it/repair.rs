//! Goal: damage is requested correctly and restored in its place: each hole has numbers, all of one
//! epoch.
//! Method: a store that is restored as a copy twice in a row, so that an epoch has no element, with
//! bits flipped on both sides of its start; a copy of a stream whose origin is rolled back, with
//! every possible hole.

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::*;

fn text(seed: u64, number: i64) -> String {
    format!("element {seed} {number:03}")
}

fn options() -> Options {
    Options {
        cursor_of: Some(origin_cursor),
        ..Options::default()
    }
}

/// Opens the stream and appends this many elements.
fn grow(disk: &SimDisk, seed: u64, elements: i64) -> (StreamStore, StreamLog) {
    let (store, _) = Store::open(Box::new(disk.clone()), options(), seed).expect("opens");
    let schema = StreamSchema {
        fields: vec![Field {
            name: "text".into(),
            field_type: FieldType::Text,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    };
    let store = StreamStore::new(store);
    let log = store
        .stream("a", Level::Power, &schema, None)
        .expect("made");
    for _ in 0..elements {
        let number = i64::try_from(log.log().last()).expect("small") + 1;
        let element = StreamElement {
            position: Position::default(),
            source_time: Timestamp(number),
            receive_time: Timestamp(number),
            key: None,
            values: vec![Value::Text(text(seed, number))],
            quality: Quality::Good,
            origin: None,
        };
        log.append(&[element]).expect("taken").wait().expect("safe");
    }
    (store, log)
}

/// Flips a bit of an element.
fn rot(disk: &SimDisk, text: &str) {
    let wanted = text.as_bytes();
    for name in disk.names() {
        let bytes = disk.bytes(&name).expect("listed");
        if let Some(at) = bytes.windows(wanted.len()).position(|it| it == wanted) {
            assert!(disk.flip(&name, at as u64 * 8));
        }
    }
}

#[test]
fn a_hole_over_an_epoch_without_elements_has_two_parts() {
    let mut disk = SimDisk::new(1);
    for (seed, elements) in [(1, 6), (2, 0), (3, 6)] {
        drop(grow(&disk, seed, elements));
        disk = disk.copied();
    }
    rot(&disk, &text(1, 6));
    rot(&disk, &text(3, 7));
    let (_store, log) = grow(&disk, 4, 0);
    let holes = log.holes();
    let parts: Vec<(u64, u64)> = holes
        .iter()
        .map(|it| (it.here.sequence, it.count))
        .collect();
    assert_eq!(parts, vec![(6, 1), (7, 1)]);
    assert_ne!(holes[0].here.epoch, holes[1].here.epoch);
}

/// Sends the elements that the copy lacks, of the origin's newest epoch, up to a number.
fn carry(origin: &StreamLog, copy: &StreamLog, last: u64) {
    let intake = copy
        .intake(&origin.schema())
        .expect("fits")
        .wait()
        .expect("safe");
    let have = copy.newest_origin();
    let next = have.map(|it| (it.epoch, it.sequence + 1));
    let begin = origin.log().epochs().last().expect("one").1;
    let next = match next {
        Some((epoch, next)) if epoch == origin.position_of(u64::MAX).epoch => next,
        Some((_, next)) => next.min(begin),
        None => 1,
    };
    for number in next..=last {
        let raw = origin.read_raw(number, 1, usize::MAX).expect("reads");
        let records = raw.records.iter().map(|(time, bytes)| (*time, bytes));
        let appended = intake.append(0, raw.first, raw.schema_version, records);
        appended.expect("queued").wait().expect("stored");
    }
}

/// All readable elements, by number.
fn contents(log: &StreamLog) -> Vec<(u64, Option<Position>, Value)> {
    let numbers = log.log().first()..=log.log().last();
    let read = numbers.filter_map(|number| log.read(number, 1).ok()?.pop());
    read.map(|it| (it.position.sequence, it.origin, it.values[0].clone()))
        .collect()
}

/// Requests all missing elements from the origin, until no more arrive.
fn repair(origin: &StreamLog, copy: &StreamLog) {
    let intake = copy
        .intake(&origin.schema())
        .expect("fits")
        .wait()
        .expect("safe");
    loop {
        let mut came = 0;
        for hole in copy.copied_holes().expect("reads") {
            let range = hole.origin.sequence..hole.origin.sequence + hole.count;
            let raw = origin.read_epoch(hole.origin.epoch, range, usize::MAX);
            let raw = raw.expect("reads");
            came += raw.records.len();
            if raw.records.is_empty() {
                continue;
            }
            let here = Position {
                sequence: hole.here.sequence + (raw.first.sequence - hole.origin.sequence),
                ..hole.here
            };
            let records = raw.records.iter().map(|(time, bytes)| (*time, bytes));
            let put = intake.put_back(here, raw.first, raw.schema_version, records);
            put.expect("missing").wait().expect("stored");
        }
        if came == 0 {
            return;
        }
    }
}

#[test]
fn what_is_damaged_where_an_origin_went_back_comes_back_as_far_as_the_origin_has_it() {
    let mut compared = 0;
    // The origin goes back to `kept` of its 5 elements, and the copy has `had` of them.
    for (kept, had) in (0..=5).flat_map(|kept| (0..=5).map(move |had| (kept, had))) {
        let (disk, there) = (SimDisk::new(1), SimDisk::new(2));
        drop(grow(&disk, 1, kept as i64));
        let old = disk.copied();
        let (_here, origin) = grow(&disk, 1, 5 - kept as i64);
        let (store, copy) = grow(&there, 9, 0);
        carry(&origin, &copy, had);
        let (_back, origin) = grow(&old, 3, 4);
        carry(&origin, &copy, kept + 4);
        let before = contents(&copy);
        drop((store, copy));
        for (first, last) in (0..before.len()).flat_map(|a| (a..before.len()).map(move |b| (a, b)))
        {
            let damaged = there.copied();
            for (_, _, value) in &before[first..=last] {
                let Value::Text(text) = value else {
                    panic!("{value:?}")
                };
                rot(&damaged, text);
            }
            let (_store, copy) = grow(&damaged, 9, 0);
            let left = contents(&copy);
            assert_eq!(left.len(), before.len() - (last - first + 1));
            repair(&origin, &copy);
            let after = contents(&copy);
            for element in &before {
                let at = element.1.expect("it came from elsewhere");
                let has = contents(&origin)
                    .iter()
                    .any(|it| (it.0, &it.2) == (at.sequence, &element.2));
                // After the last element the content is unknown (a reader gets it again), before
                // the first one only what was of the epoch behind the hole.
                let behind = before.get(last + 1).and_then(|it| it.1);
                let told = behind.is_some_and(|it| first > 0 || it.epoch == at.epoch);
                let expected = has && told || left.contains(element);
                assert_eq!(
                    after.contains(element),
                    expected,
                    "{kept} {had} {first} {last} {element:?}"
                );
                compared += 1;
            }
            assert!(after.iter().all(|it| before.contains(it)), "{after:?}");
        }
    }
    assert!(compared > 5_000, "{compared}");
}

#[test]
fn a_number_that_was_lost_before_is_not_put_back_in_anothers_place() {
    let (disk, there) = (SimDisk::new(1), SimDisk::new(2));
    drop(grow(&disk, 1, 2));
    let (_here, origin) = grow(&disk.copied(), 3, 6);
    let (store, copy) = grow(&there, 9, 0);
    // Number 6 was damaged at the origin when the copy came to it, and was put back there since.
    carry(&origin, &copy, 5);
    let raw = origin.read_raw(7, 2, usize::MAX).expect("reads");
    let records = raw.records.iter().map(|(time, bytes)| (*time, bytes));
    let intake = copy
        .intake(&origin.schema())
        .expect("fits")
        .wait()
        .expect("safe");
    let appended = intake.append(0, raw.first, raw.schema_version, records);
    appended.expect("queued").wait().expect("stored");
    drop((store, copy));
    for number in 3..=5 {
        rot(&there, &text(3, number));
    }
    let (_store, copy) = grow(&there.copied(), 9, 0);
    let left = contents(&copy);
    assert_eq!(left.len(), 4);
    repair(&origin, &copy);
    assert_eq!(contents(&copy), left);
}
