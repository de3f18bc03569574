//! Goal: a stream keeps the elements of its retention and not many more, the space of the rest is
//! freed, and no other stream's records are affected.
//! Method: a store with small segments on the simulated disk, time as an argument; a property draws
//! receive times and ages.

use std::time::Duration;

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::*;
use proptest::prelude::*;

const SECOND: i64 = 1_000_000_000;

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "v".into(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn element(received: i64) -> StreamElement {
    StreamElement {
        position: Position::default(),
        // The device's clock is anything.
        source_time: Timestamp(received.wrapping_mul(-7919)),
        receive_time: Timestamp(received),
        key: None,
        values: vec![Value::Integer(received)],
        quality: Quality::Good,
        origin: None,
    }
}

fn log(disk: &SimDisk) -> Store {
    let options = Options {
        segment_bytes: 8192,
        reserve_bytes: 0,
        ..Options::default()
    };
    Store::open(Box::new(disk.clone()), options, 7).unwrap().0
}

fn elements(most: u64) -> Retention {
    Retention {
        elements: Some(most),
        age: None,
    }
}

fn age(seconds: u64) -> Retention {
    Retention {
        elements: None,
        age: Some(Duration::from_secs(seconds)),
    }
}

fn append(stream: &StreamLog, received: impl IntoIterator<Item = i64>) {
    for received in received {
        stream.append(&[element(received)]).unwrap().wait().unwrap();
    }
}

fn kept(stream: &StreamLog) -> Vec<i64> {
    let all = stream.newest(100_000).unwrap();
    all.iter().map(|element| element.receive_time.0).collect()
}

#[test]
fn appends_keep_the_newest() {
    for most in [1, 100, 500] {
        let disk = SimDisk::new(1);
        let store = StreamStore::with_retention(log(&disk), elements(most));
        let a = store.stream("a", Level::Process, &schema(), None).unwrap();
        for n in 0..3_000_i64 {
            append(&a, [n]);
            let held = a.log().last() + 1 - a.log().first();
            let wanted = most.min(n as u64 + 1);
            // One more: a look is before the acknowledgement of the append that it comes with.
            let at_most = most + (most / 16).max(16) + 1;
            assert!((wanted..=at_most).contains(&held), "{held} of {most}");
        }
        assert!(store.store().counters().trimmed_segments > 20);
        store.retain(Timestamp(0)).unwrap();
        drop(a);
        // The first append after an opening looks too; what it trims is there with the second one,
        // which is queued behind.
        store.store().clone().close().unwrap();
        let store = StreamStore::with_retention(log(&disk), elements(50));
        let a = store.existing("a").unwrap().unwrap();
        append(&a, [9_000, 9_001]);
        assert!(kept(&a).len() <= 53);
    }
}

#[test]
fn a_stream_remembers_its_own() {
    let disk = SimDisk::new(1);
    let store = StreamStore::with_retention(log(&disk), elements(10));
    let a = store.stream("a", Level::Power, &schema(), None).unwrap();
    assert_eq!(a.retention(), elements(10));
    a.set_retention(Some(elements(1_000))).unwrap();
    store
        .stream("a", Level::Power, &schema(), Some("x"))
        .unwrap();
    append(&a, 0..200);
    drop(a);
    store.store().clone().close().unwrap();

    let store = StreamStore::with_retention(log(&disk), age(1));
    store.retain(Timestamp(i64::MAX)).unwrap();
    let a = store.existing("a").unwrap().unwrap();
    assert_eq!((a.retention(), kept(&a).len()), (elements(1_000), 200));
    // As long as there is room, which is something else than what the store says.
    a.set_retention(Some(Retention::default())).unwrap();
    store.retain(Timestamp(i64::MAX)).unwrap();
    assert_eq!(kept(&a).len(), 200);
    a.set_retention(None).unwrap();
    store.retain(Timestamp(i64::MAX)).unwrap();
    append(&a, [500]);
    assert_eq!(kept(&a), [500]);
}

#[test]
fn metadata_from_before_there_was_retention_are_read() {
    let disk = SimDisk::new(1);
    let store = log(&disk);
    let mut metadata = vec![1];
    metadata.extend(postcard::to_allocvec(&(Some("urn:d"), vec![schema()])).unwrap());
    store.stream("a", Level::Power, &metadata).unwrap();
    let store = StreamStore::with_retention(store, elements(7));
    let a = store.existing("a").unwrap().unwrap();
    assert_eq!(
        (a.origin().as_deref(), a.schema()),
        (Some("urn:d"), schema())
    );
    assert_eq!(a.retention(), elements(7));
}

#[test]
fn records_of_others_are_not_touched() {
    let store = log(&SimDisk::new(1));
    let registry = store.stream("registry", Level::Power, b"crj1").unwrap();
    registry
        .append(vec![(0, vec![1]); 50])
        .unwrap()
        .wait()
        .unwrap();
    let store = StreamStore::with_retention(store, elements(1));
    store.retain(Timestamp(i64::MAX)).unwrap();
    registry.append(vec![(0, vec![1])]).unwrap().wait().unwrap();
    assert_eq!((registry.first(), registry.last()), (1, 51));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_young_stay_and_the_old_go(
        steps in prop::collection::vec(0..5i64, 1..300),
        seconds in 1..200u64,
        looks in prop::collection::vec(0..400i64, 1..4),
    ) {
        let store = StreamStore::with_retention(log(&SimDisk::new(1)), age(seconds));
        let a = store.stream("a", Level::Process, &schema(), None).unwrap();
        let mut time = 0;
        let times: Vec<i64> = steps.iter().map(|step| { time += step * SECOND; time }).collect();
        append(&a, times.iter().copied());
        let mut now = 0;
        for look in looks {
            now += look * SECOND;
            store.retain(Timestamp(now)).unwrap();
            append(&a, [time.max(now)]);
            time = time.max(now);
            let kept = kept(&a);
            let age = seconds as i64 * SECOND;
            let young = times.iter().filter(|time| **time >= now - age).count();
            prop_assert!(kept.len() > young, "{} of {young} are kept", kept.len());
            prop_assert!(kept.iter().all(|time| *time >= now - age - age / 16));
        }
    }
}
