//! Goal: records pass from one node's stream to another's without being decoded, each with its
//! origin, and no record that a reader would reject is stored.
//! Method: two stores on simulated disks; random elements, schemas and bytes pass the check and,
//! for comparison, the codec.

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::*;
use proptest::prelude::*;

const TYPES: [FieldType; 6] = [
    FieldType::Boolean,
    FieldType::Integer,
    FieldType::Double,
    FieldType::Text,
    FieldType::Bytes,
    FieldType::Samples,
];

fn schema(types: &[FieldType]) -> StreamSchema {
    let field = |(index, field_type): (usize, &FieldType)| Field {
        name: format!("f{index}"),
        field_type: *field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: types.iter().enumerate().map(field).collect(),
        key: None,
    }
}

fn element(time: i64, values: Vec<Value>) -> StreamElement {
    StreamElement {
        position: Position::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time + 5),
        key: None,
        values,
        quality: Quality::Good,
        origin: None,
    }
}

fn options() -> Options {
    Options {
        cursor_of: Some(origin_cursor),
        ..Options::default()
    }
}

fn open(disk: SimDisk, seed: u64) -> StreamStore {
    let (store, _) = Store::open(Box::new(disk), options(), seed).expect("opens");
    StreamStore::new(store)
}

fn stream(store: &StreamStore, name: &str, types: &[FieldType]) -> StreamLog {
    store
        .stream(name, Level::Power, &schema(types), None)
        .expect("made")
}

fn integers(range: std::ops::Range<i64>) -> Vec<StreamElement> {
    range.map(|n| element(n, vec![Value::Integer(n)])).collect()
}

fn move_all(from: &StreamLog, to: &StreamLog) -> usize {
    let intake = to
        .intake(&from.schema())
        .expect("fits")
        .wait()
        .expect("safe");
    let have = to.newest_origin();
    let next = have.map_or(Ok(0), |have| from.resume(have)).expect("known");
    let raw = from.read_raw(next, 100, usize::MAX).expect("reads");
    let records = raw.records.iter().map(|(time, bytes)| (*time, bytes));
    let count = records.len();
    if count > 0 {
        let appended = intake.append(0, raw.first, raw.schema_version, records);
        appended.expect("queued").wait().expect("stored");
    }
    count
}

#[test]
fn elements_keep_their_origin_and_the_reader_knows_where_to_go_on() {
    let (here, there) = (open(SimDisk::new(1), 1), open(SimDisk::new(2), 2));
    let origin = stream(&here, "a", &[FieldType::Integer]);
    let copy = stream(&there, "b", &[FieldType::Integer]);
    assert_eq!(copy.newest_origin(), None);
    origin
        .append(&integers(0..3))
        .expect("queued")
        .wait()
        .expect("stored");
    assert_eq!(move_all(&origin, &copy), 3);
    assert_eq!(move_all(&origin, &copy), 0);
    origin
        .append(&integers(3..5))
        .expect("queued")
        .wait()
        .expect("stored");
    assert_eq!(move_all(&origin, &copy), 2);

    let (sent, stored) = (
        origin.read(0, 9).expect("reads"),
        copy.read(0, 9).expect("reads"),
    );
    assert_eq!(stored.len(), 5);
    for (sent, stored) in sent.iter().zip(&stored) {
        assert_eq!(stored.origin, Some(sent.position));
        assert_ne!(stored.position.epoch, sent.position.epoch);
        let (position, origin) = (stored.position, stored.origin);
        let expected = StreamElement {
            position,
            origin,
            ..sent.clone()
        };
        assert_eq!(stored, &expected);
    }
}

#[test]
fn elements_of_here_do_not_hide_how_far_the_origin_was_read() {
    let store = open(SimDisk::new(1), 1);
    let [a, b] = ["a", "b"].map(|name| stream(&store, name, &[FieldType::Integer]));
    a.append(&integers(0..4))
        .expect("queued")
        .wait()
        .expect("stored");
    move_all(&a, &b);
    b.append(&integers(0..9))
        .expect("queued")
        .wait()
        .expect("stored");
    let newest = a
        .newest(1)
        .expect("reads")
        .pop()
        .map(|element| element.position);
    assert_eq!(b.newest_origin(), newest);
    assert_eq!(a.newest_origin(), None);
}

#[test]
fn the_newest_element_of_each_epoch_of_the_origin_is_found() {
    let store = open(SimDisk::new(1), 1);
    let log = stream(&store, "a", &[FieldType::Integer]);
    let at = |epoch, sequence| Position {
        epoch: Epoch(epoch),
        sequence,
    };
    let mut expected: Vec<Position> = Vec::new();
    // The origin goes back to an epoch twice, and elements are missing.
    let runs = [
        (7, 1..2),
        (3, 1..400),
        (9, 10..12),
        (4, 1..33),
        (3, 400..470),
        (4, 33..34),
        (3, 480..899),
        (5, 1..1_000),
    ];
    for (epoch, numbers) in runs {
        let newest = at(epoch, numbers.end - 1);
        for part in numbers.collect::<Vec<u64>>().chunks(50) {
            let mut elements = integers(0..part.len() as i64);
            for (element, sequence) in elements.iter_mut().zip(part) {
                // Some are of this node.
                element.origin = (sequence % 7 != 3).then_some(at(epoch, *sequence));
            }
            log.append(&elements)
                .expect("queued")
                .wait()
                .expect("stored");
        }
        expected.retain(|at| at.epoch != newest.epoch);
        expected.insert(0, newest);
        let earlier = log.earlier_origins(64).expect("reads");
        assert_eq!(earlier, expected[1..]);
    }
    // An epoch of which nothing is stored yet.
    let set = log.set_origin(store.store().retractions(), at(6, 20));
    set.expect("queued").wait().expect("stored");
    assert_eq!(log.earlier_origins(64).expect("reads"), expected);
    assert_eq!(log.earlier_origins(2).expect("reads"), expected[..2]);
    // What was removed is not known any more.
    log.log()
        .trim(420)
        .expect("queued")
        .wait()
        .expect("trimmed");
    assert_eq!(log.earlier_origins(64).expect("reads"), expected[..3]);
}

#[test]
fn a_relay_sends_its_own_positions_only() {
    let store = open(SimDisk::new(1), 1);
    let [a, b, c] = ["a", "b", "c"].map(|name| stream(&store, name, &[FieldType::Integer]));
    a.append(&integers(0..4))
        .expect("queued")
        .wait()
        .expect("stored");
    move_all(&a, &b);
    move_all(&b, &c);
    let (b, c) = (b.read(0, 9).expect("reads"), c.read(0, 9).expect("reads"));
    let expected: Vec<_> = b.iter().map(|element| Some(element.position)).collect();
    let found: Vec<_> = c.iter().map(|element| element.origin).collect();
    assert_eq!(found, expected);
}

#[test]
fn elements_are_sent_and_kept_in_the_shape_that_they_were_written_in() {
    let store = open(SimDisk::new(1), 1);
    let [a, b] = ["a", "b"].map(|name| stream(&store, name, &[FieldType::Integer]));
    let one = schema(&[FieldType::Integer]);
    let mut other = one.clone();
    other.fields[0].name = "other".into();
    for (of, values) in [(&one, 0..2), (&other, 2..5), (&one, 5..6), (&other, 6..7)] {
        a.set_schema(of).expect("changes");
        let appended = a.append(&integers(values)).expect("queued");
        appended.wait().expect("stored");
    }
    let mut sizes = Vec::new();
    while let Ok(raw) = a.read_raw(b.log().last() + 1, 9, usize::MAX)
        && !raw.records.is_empty()
    {
        assert_eq!(a.version_at(raw.first.sequence), raw.schema_version);
        let of = a.schema_of(raw.schema_version).expect("known");
        // The current version stays what it is.
        let intake = b.intake(&of).expect("fits").wait().expect("safe");
        assert_eq!((b.schema(), intake.is_current()), (one.clone(), of == one));
        sizes.push((raw.schema_version, raw.records.len()));
        let records = raw.records.iter().map(|(time, bytes)| (*time, bytes));
        let appended = intake.append(0, raw.first, raw.schema_version, records);
        appended.expect("queued").wait().expect("stored");
    }
    assert_eq!(sizes, [(0, 2), (1, 3), (0, 1), (1, 1)]);
    assert_eq!(a.version_at(8), a.schema_version());
    for of in [&one, &other] {
        let values = [&a, &b].map(|log| {
            log.set_schema(of).expect("known");
            let elements = log.read(0, 9).expect("reads");
            elements.into_iter().map(|it| it.values).collect::<Vec<_>>()
        });
        assert_eq!(values[0], values[1], "in the shape of {of:?}");
    }
}

#[test]
fn a_read_is_bounded_in_bytes_and_records() {
    let store = open(SimDisk::new(1), 1);
    let a = stream(&store, "a", &[FieldType::Integer]);
    a.append(&integers(0..50))
        .expect("queued")
        .wait()
        .expect("stored");
    assert_eq!(
        a.read_raw(0, 7, usize::MAX).expect("reads").records.len(),
        7
    );
    assert_eq!(a.read_raw(0, 50, 0).expect("reads").records.len(), 1);
    let bounded = a.read_raw(3, 50, 100).expect("reads");
    let bytes: usize = bounded.records.iter().map(|(_, record)| record.len()).sum();
    assert!((100..120).contains(&bytes), "{bytes}");
    assert!(a.read_raw(51, 50, 100).expect("reads").records.is_empty());
}

#[test]
fn what_does_not_fit_is_refused_by_index() {
    let store = open(SimDisk::new(1), 1);
    let (a, b) = (
        stream(&store, "a", &[FieldType::Integer]),
        stream(&store, "b", &[FieldType::Integer]),
    );
    a.append(&integers(0..3))
        .expect("queued")
        .wait()
        .expect("stored");
    let mut raw = a.read_raw(0, 9, usize::MAX).expect("reads");
    raw.records[1].1.push(0);
    let intake = b.intake(&a.schema()).expect("fits").wait().expect("safe");
    let outcome = intake.append(0, raw.first, 0, raw.records.iter().map(|(t, r)| (*t, r)));
    match outcome.map(|appended| appended.count) {
        Err(StoreError::Intake(IntakeError { index: 1, .. })) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(b.log().last(), 0);
    assert!(
        intake
            .check(raw.first, 1, raw.records[0].0, &raw.records[0].1)
            .is_err(),
        "another version"
    );
    let with_origin = intake
        .check(raw.first, 0, raw.records[0].0, &raw.records[0].1)
        .expect("fits");
    assert!(
        intake
            .check(raw.first, 0, raw.records[0].0, &with_origin)
            .is_err(),
        "an origin from elsewhere"
    );
}

#[test]
fn records_are_received_by_the_clock_of_this_node() {
    let store = open(SimDisk::new(1), 1);
    let (a, b) = (
        stream(&store, "a", &[FieldType::Integer]),
        stream(&store, "b", &[FieldType::Integer]),
    );
    let intake = b.intake(&a.schema()).expect("fits").wait().expect("safe");
    let extremes = [0, 1_000, -1, i64::MAX, i64::MIN];
    for (index, (source_time, now)) in extremes
        .into_iter()
        .flat_map(|source| extremes.map(|now| (Timestamp(source), Timestamp(now))))
        .enumerate()
    {
        let sent = StreamElement {
            source_time,
            receive_time: Timestamp(7),
            ..element(0, vec![Value::Integer(index as i64)])
        };
        a.append(std::slice::from_ref(&sent))
            .expect("queued")
            .wait()
            .expect("stored");
        let raw = a.read_raw(index as u64 + 1, 9, usize::MAX).expect("reads");
        let records = raw.records.iter().map(|(time, record)| (*time, record));
        let received = intake.clone().received_at(now);
        let appended = received.append(0, raw.first, 0, records).expect("fits");
        appended.wait().expect("stored");
        let copy = b.newest(1).expect("reads").remove(0);
        let expected = StreamElement {
            position: copy.position,
            origin: Some(raw.first),
            receive_time: now,
            ..sent
        };
        assert_eq!(copy, expected);
    }
}

fn value_of(field_type: FieldType) -> BoxedStrategy<Value> {
    match field_type {
        FieldType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        FieldType::Integer => any::<i64>().prop_map(Value::Integer).boxed(),
        FieldType::Double => any::<f64>().prop_map(Value::Double).boxed(),
        FieldType::Text => ".{0,12}".prop_map(Value::Text).boxed(),
        FieldType::Bytes => prop::collection::vec(any::<u8>(), 0..12)
            .prop_map(Value::Bytes)
            .boxed(),
        FieldType::Samples => (
            any::<i64>(),
            any::<u64>(),
            prop::collection::vec(any::<f64>(), 0..4),
        )
            .prop_map(|(start, period_ns, values)| {
                let start = Timestamp(start);
                Value::Samples(Samples {
                    start,
                    period_ns,
                    values,
                })
            })
            .boxed(),
    }
}

/// Types of fields, and values of which nearly all fit them.
fn fields() -> impl Strategy<Value = (Vec<FieldType>, Vec<Value>)> {
    let one = (0..TYPES.len(), 0..TYPES.len(), 0..20).prop_flat_map(|(wanted, other, chance)| {
        let found = match chance {
            0 => TYPES[other],
            _ => TYPES[wanted],
        };
        let value = if chance == 1 {
            Just(Value::Null).boxed()
        } else {
            value_of(found)
        };
        (Just(TYPES[wanted]), value)
    });
    prop::collection::vec(one, 0..6).prop_map(|both| both.into_iter().unzip())
}

/// The codec that the check replaces.
fn by_decoding(record: &[u8], schema: &StreamSchema) -> Option<u32> {
    let (element, version) = decode_element(record, Position::default(), Timestamp(0)).ok()?;
    schema.check(&element).ok()?;
    Some(version)
}

proptest! {
    #[test]
    fn the_check_takes_what_the_codec_and_the_schema_take(
        (types, values) in fields(),
        version in 0..256_u32,
        origin in prop::option::of(any::<(u64, u64)>()),
        key in prop::option::of(".{0,9}"),
        quality in prop_oneof![Just(Quality::Good), Just(Quality::Questionable), Just(Quality::Bad)],
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let origin = origin.map(|(epoch, sequence)| Position { epoch: Epoch(epoch), sequence });
        let element = StreamElement { origin, key, quality, ..element(7, values) };
        let mut record = encode_element(&element, version).expect("small");
        for (at, flip) in flips {
            let at = at.index(record.len());
            record[at] ^= flip;
        }
        if let Some(cut) = cut {
            record.truncate(cut.index(record.len() + 1));
        }
        let schema = schema(&types);
        prop_assert_eq!(validate_record(&record, &schema).ok(), by_decoding(&record, &schema));
    }

    #[test]
    fn the_check_agrees_on_any_bytes(
        record in prop::collection::vec(any::<u8>(), 0..60),
        types in prop::collection::vec(prop::sample::select(TYPES.to_vec()), 0..4),
    ) {
        let schema = schema(&types);
        prop_assert_eq!(validate_record(&record, &schema).ok(), by_decoding(&record, &schema));
    }
}

#[test]
fn records_of_before_links_are_read() {
    // Version 1, delay 5 ns, good, no key, one integer 21: as it was written from the beginning.
    let record = [1, 10, 0, 0, 1, 2, 42];
    let (element, version) =
        decode_element(&record, Position::default(), Timestamp(100)).expect("old");
    assert_eq!(version, 1);
    assert_eq!(element.origin, None);
    assert_eq!(element.receive_time, Timestamp(105));
    assert_eq!(element.values, [Value::Integer(21)]);
}

/// A log that is written only when the test commits.
#[test]
fn an_intake_does_not_wait_for_the_disk_and_takes_nothing_before_its_version_is_safe() {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    let options = Options {
        commit: chappe_log::Commit::Caller,
        ..options()
    };
    let (store, _) = Store::open(Box::new(SimDisk::new(1)), options, 1).expect("opens");
    let log = stream(&StreamStore::new(store.clone()), "a", &TYPES[..1]);
    let wider = schema(&TYPES[..2]);
    let mut opening = log.intake(&wider).expect("fits");
    let mut nobody = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut opening).poll(&mut nobody).is_pending());
    assert_eq!(log.schema_of(1), None, "nothing names it yet");
    store.commit().expect("written");
    let Poll::Ready(Ok(intake)) = Pin::new(&mut opening).poll(&mut nobody) else {
        panic!("it is written");
    };
    assert_eq!((intake.version(), intake.is_current()), (1, false));
    assert_eq!(log.schema_of(1), Some(wider));
}
