//! Goal: what is damaged is asked for as it can be asked for: each hole has numbers, and all of them
//! are of one epoch. Method: a store that is put back as a copy twice in a row, so that an epoch has no
//! element, with bits flipped on both sides of where it began.

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::*;

fn text(number: i64) -> String {
    format!("element {number:03}")
}

/// Opens the stream and puts so many elements behind what is there.
fn grow(disk: &SimDisk, seed: u64, elements: i64) -> (StreamStore, StreamLog) {
    let (store, _) = Store::open(Box::new(disk.clone()), Options::default(), seed).expect("opens");
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
            values: vec![Value::Text(text(number))],
            quality: Quality::Good,
            origin: None,
        };
        log.append(&[element]).expect("taken").wait().expect("safe");
    }
    (store, log)
}

/// Flips a bit of an element.
fn rot(disk: &SimDisk, number: i64) {
    let wanted = text(number).into_bytes();
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
    rot(&disk, 6);
    rot(&disk, 7);
    let (_store, log) = grow(&disk, 4, 0);
    let holes = log.holes();
    let parts: Vec<(u64, u64)> = holes
        .iter()
        .map(|it| (it.here.sequence, it.count))
        .collect();
    assert_eq!(parts, vec![(6, 1), (7, 1)]);
    assert_ne!(holes[0].here.epoch, holes[1].here.epoch);
}
