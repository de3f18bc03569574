//! Goal: elements read from the log equal those stored, old ones converted to the newest schema,
//! also after a reopening and a power loss; and SQL reads them.
//! Method: a store on the simulated disk; random elements through the codec; random bytes as
//! records.

use chappe_log::{Level, Options, Store};
use chappe_sim::SimDisk;
use chappe_stream::sqlite::{HistoryLimits, Scope, query_streams};
use chappe_stream::*;
use proptest::prelude::*;

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    }
}

fn schema(fields: &[(&str, FieldType)]) -> StreamSchema {
    StreamSchema {
        fields: fields.iter().map(|(name, t)| field(name, *t)).collect(),
        key: None,
    }
}

fn element(time: i64, values: Vec<Value>) -> StreamElement {
    StreamElement {
        position: Position::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time + 3),
        key: Some("bed 1".into()),
        values,
        quality: Quality::Questionable,
        origin: None,
    }
}

fn open(disk: SimDisk) -> StreamStore {
    let (store, _) = Store::open(Box::new(disk), Options::default(), 7).expect("opens");
    StreamStore::new(store)
}

fn fill(log: &StreamLog, count: i64) {
    let elements: Vec<_> = (0..count)
        .map(|n| element(n * 10, vec![Value::Double(n as f64)]))
        .collect();
    log.append(&elements)
        .expect("queued")
        .wait()
        .expect("stored");
}

#[test]
fn elements_are_read_by_number_newest_and_time() {
    let store = open(SimDisk::new(1));
    let one = schema(&[("v", FieldType::Double)]);
    let log = store
        .stream("ward.a", Level::Power, &one, Some("urn:device"))
        .expect("made");
    fill(&log, 20);
    let all = log.read(1, 100).expect("reads");
    assert_eq!(all.len(), 20);
    assert_eq!(all[4].position.sequence, 5);
    assert_eq!(all[4].values, [Value::Double(4.0)]);
    assert_eq!(all[4].receive_time, Timestamp(43));
    assert_eq!(all[4].quality, Quality::Questionable);
    assert_eq!(log.newest(3).expect("reads"), all[17..]);
    let range = log.range(Timestamp(50), Timestamp(80), 100).expect("reads");
    assert_eq!(range, all[5..8]);
    let resumed = log.resume(all[4].position).expect("known");
    assert_eq!(resumed, 6);
    let mut follower = log.follow(18);
    assert_eq!(
        follower.try_next().expect("reads"),
        Some(all[17..].to_vec())
    );
    assert_eq!(follower.try_next().expect("reads"), None);
    assert_eq!(log.origin().as_deref(), Some("urn:device"));
}

#[test]
fn a_changed_schema_is_a_new_version_and_old_elements_are_read_in_its_shape() {
    let disk = SimDisk::new(2);
    let store = open(disk.clone());
    let first = schema(&[("v", FieldType::Double), ("w", FieldType::Text)]);
    let log = store.stream("a", Level::Power, &first, None).expect("made");
    let old = element(1, vec![Value::Double(1.0), Value::Text("x".into())]);
    log.append(&[old]).expect("queued").wait().expect("stored");
    let second = schema(&[
        ("n", FieldType::Integer),
        ("v", FieldType::Double),
        ("w", FieldType::Double),
    ]);
    let same = store
        .stream("a", Level::Power, &second, None)
        .expect("opened");
    assert_eq!((log.schema_version(), same.schema_version()), (1, 1));
    let new = element(2, vec![Value::Integer(5), Value::Double(2.0), Value::Null]);
    log.append(&[new]).expect("queued").wait().expect("stored");
    drop((log, same, store));

    // The power goes; everything was acknowledged at level `power`.
    let store = open(disk.crash(3));
    let log = store.existing("a").expect("opens").expect("is there");
    assert_eq!(log.schema(), second);
    let values: Vec<_> = log
        .read(1, 9)
        .expect("reads")
        .into_iter()
        .map(|e| e.values)
        .collect();
    assert_eq!(
        values,
        [
            [Value::Null, Value::Double(1.0), Value::Null],
            [Value::Integer(5), Value::Double(2.0), Value::Null],
        ]
    );
    assert!(store.existing("b").expect("looks").is_none());
    assert_eq!(store.streams().len(), 1);
}

#[test]
fn a_schema_that_returns_is_the_version_that_it_was() {
    let disk = SimDisk::new(5);
    let store = open(disk.clone());
    let in_unit = |unit: &str, description: &str| {
        let mut schema = schema(&[("v", FieldType::Double)]);
        schema.fields[0].unit = Some(unit.into());
        schema.fields[0].description = Some(description.into());
        schema
    };
    let open_with = |store: &StreamStore, schema: &StreamSchema| {
        let made = store.stream("a", Level::Power, schema, None);
        made.expect("a known schema needs no new version")
    };
    let log = open_with(&store, &in_unit("mV", ""));
    for round in 0..600 {
        // Every description is another.
        let wanted = in_unit(["mV", "V"][round % 2], &round.to_string());
        let log = open_with(&store, &wanted);
        assert_eq!(
            (log.schema_version(), log.schema()),
            (round as u32 % 2, wanted)
        );
        let element = element(round as i64, vec![Value::Double(round as f64)]);
        let appended = log.append(&[element]).expect("queued");
        appended.wait().expect("stored");
    }
    open_with(&store, &in_unit("mV", "last"));
    drop((log, store));

    let store = open(disk.crash(6));
    let log = store.existing("a").expect("opens").expect("is there");
    assert_eq!(
        (log.schema_version(), log.schema()),
        (0, in_unit("mV", "last"))
    );
    assert_eq!(log.read(1, 1_000).expect("reads").len(), 600);
    // For sending, each is of the version that it was written by.
    for number in 1..=600 {
        let raw = log.read_raw(number, 1_000, usize::MAX).expect("reads");
        let version = (number as u32 - 1) % 2;
        assert_eq!((raw.schema_version, raw.records.len()), (version, 1));
    }
}

#[test]
fn what_does_not_fit_is_refused_whole() {
    let store = open(SimDisk::new(4));
    let one = schema(&[("v", FieldType::Double)]);
    let log = store.stream("a", Level::Power, &one, None).expect("made");
    let good = element(1, vec![Value::Double(1.0)]);
    let bad = element(2, vec![Value::Text("x".into())]);
    let Err(StoreError::Element { index, error }) = log.append(&[good, bad]).map(|_| ()) else {
        panic!("taken");
    };
    assert_eq!(index, 1);
    assert!(error.to_string().contains("\"v\""), "{error}");
    assert_eq!(log.log().last(), 0);
    let name = store.stream("Ward A", Level::Power, &one, None).map(|_| ());
    assert!(matches!(name, Err(StoreError::Name(_))));
    let twice = schema(&[("v", FieldType::Double), ("v", FieldType::Double)]);
    let twice = store.stream("b", Level::Power, &twice, None).map(|_| ());
    assert!(matches!(twice, Err(StoreError::Schema(_))));
}

#[test]
fn streams_of_others_in_the_same_log_are_passed_over() {
    let disk = SimDisk::new(5);
    let (store, _) = Store::open(Box::new(disk), Options::default(), 7).expect("opens");
    store.stream("registry", Level::Power, b"").expect("made");
    store
        .stream("other", Level::Power, b"\x07schema")
        .expect("made");
    let store = StreamStore::new(store);
    assert_eq!(store.streams().len(), 0);
    let newer = store.existing("other").map(drop).unwrap_err();
    assert!(newer.to_string().contains("format version 7"), "{newer}");
}

#[test]
fn sql_reads_stored_streams_within_limits() {
    let store = open(SimDisk::new(6));
    let one = schema(&[("v", FieldType::Double)]);
    let a = store
        .stream("ward.bed-1.a", Level::Process, &one, None)
        .expect("made");
    let b = store
        .stream("ward.bed-1.b", Level::Process, &one, None)
        .expect("made");
    fill(&a, 50);
    fill(&b, 10);
    let streams = [&a, &b];
    let whole = Scope::default();
    let limits = HistoryLimits::default();
    let answer = query_streams(
        "select a.sequence, a.v + b.v as total from \"ward.bed-1.a\" a
         join ward_bed_1_b b using (source_time) order by 1 desc limit 2",
        &streams,
        limits,
        &whole,
    )
    .expect("answers");
    assert_eq!(answer.columns, ["sequence", "total"]);
    assert_eq!(
        answer.rows,
        [
            [Value::Integer(10), Value::Double(18.0)],
            [Value::Integer(9), Value::Double(16.0)],
        ]
    );
    assert_eq!(answer.loaded.len(), 2);
    assert!(answer.loaded.iter().all(|loaded| loaded.complete));

    let few = HistoryLimits {
        query: QueryLimits {
            rows: 5,
            ..limits.query
        },
        ..limits
    };
    let answer =
        query_streams("select v from ward_bed_1_a", &streams, few, &whole).expect("answers");
    assert!(answer.truncated);
    assert_eq!(answer.rows[0], [Value::Double(0.0)], "oldest first");
    let [loaded] = &answer.loaded[..] else {
        panic!("only what is read is loaded");
    };
    assert_eq!((loaded.elements, loaded.complete), (50, true));

    for hostile in [
        "select * from \"ward.bed-1.c\"",
        "delete from ward_bed_1_a",
        "select * from sqlite_master",
        "with recursive c(n) as (select 1 union all select n + 1 from c) select * from c",
    ] {
        assert!(
            query_streams(hostile, &streams, limits, &whole).is_err(),
            "{hostile}"
        );
    }
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<i64>().prop_map(Value::Integer),
        (-1e9..1e9_f64).prop_map(Value::Double),
        ".{0,20}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
        (
            any::<i64>(),
            any::<u64>(),
            prop::collection::vec(-1e3..1e3_f64, 0..9)
        )
            .prop_map(|(start, period_ns, values)| {
                Value::Samples(Samples {
                    start: Timestamp(start),
                    period_ns,
                    values,
                })
            }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        values in prop::collection::vec(values(), 0..8),
        times in any::<(i64, i64)>(),
        key in prop::option::of(".{0,20}"),
        quality in prop_oneof![Just(Quality::Good), Just(Quality::Questionable), Just(Quality::Bad)],
        version in 0..SCHEMA_VERSIONS_MAX as u32,
        origin in prop::option::of(any::<(u64, u64)>()),
    ) {
        let position = Position { epoch: Epoch(9), sequence: 4 };
        let element = StreamElement {
            position,
            source_time: Timestamp(times.0),
            receive_time: Timestamp(times.1),
            key,
            values,
            quality,
            origin: origin.map(|(epoch, sequence)| Position { epoch: Epoch(epoch), sequence }),
        };
        let bytes = encode_element(&element, version).expect("small");
        prop_assert_eq!(
            decode_element(&bytes, position, element.source_time),
            Ok((element, version))
        );
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert!(decode_element(&longer, position, Timestamp(0)).is_err());
        if let Some((_, shorter)) = bytes.split_last() {
            prop_assert!(decode_element(shorter, position, Timestamp(0)).is_err());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_element(&bytes, Position::default(), Timestamp(0));
    }
}

#[test]
fn a_renamed_stream_keeps_its_elements_and_every_name_reads_it() {
    let disk = SimDisk::new(9);
    let store = open(disk.clone());
    let one = schema(&[("v", FieldType::Double)]);
    // The name is as durable as the definition, whatever the level of the elements.
    let log = store
        .stream("monitor.pulse", Level::Memory, &one, Some("urn:device"))
        .expect("made");
    let other = store
        .stream("other", Level::Power, &one, None)
        .expect("made");
    fill(&other, 1);
    let (number, epoch) = (log.log().number(), log.log().epoch());
    for name in ["bed-1.pulse", "bed-2.pulse"] {
        log.rename(name).expect("renamed");
    }
    assert!(log.rename("Bed 2").is_err(), "it is not a name");
    // A device that returns defines its stream as before.
    let again = store
        .stream("monitor.pulse", Level::Memory, &one, Some("urn:device"))
        .expect("opened");
    assert_eq!(again.current_name(), "bed-2.pulse");
    drop((log, again, other, store));

    let store = open(disk.crash(10));
    let log = store
        .existing("monitor.pulse")
        .expect("opens")
        .expect("is there");
    assert_eq!((log.log().number(), log.log().epoch()), (number, epoch));
    assert_eq!(log.names(), ["monitor.pulse", "bed-1.pulse", "bed-2.pulse"]);
    assert_eq!(log.former_names(), ["monitor.pulse", "bed-1.pulse"]);
    fill(&log, 5);
    let other = store.existing("other").expect("opens").expect("is there");
    // Elements of level memory are acknowledged before they can be read; those before this one can be.
    fill(&other, 1);
    let ask = |sql: &str| {
        let limits = HistoryLimits::default();
        query_streams(sql, &[&log, &other], limits, &Scope::default())
    };
    for (table, former) in [
        ("\"bed-2.pulse\"", None),
        ("bed_2_pulse", None),
        ("\"monitor.pulse\"", Some("monitor.pulse")),
        ("monitor_pulse", Some("monitor.pulse")),
        ("\"bed-1.pulse\"", Some("bed-1.pulse")),
    ] {
        for columns in ["count(*), max(stream)", "count(*) over (), stream"] {
            let answer = ask(&format!("select {columns} from {table} limit 1")).expect(table);
            let row = [Value::Integer(5), Value::Text("bed-2.pulse".into())];
            assert_eq!(answer.rows, [row], "{table}");
            assert_eq!(answer.loaded[0].stream, "bed-2.pulse");
            assert_eq!(answer.loaded[0].former_name.as_deref(), former, "{table}");
        }
    }
    let joined =
        ask("select count(*) from monitor_pulse a join \"bed-2.pulse\" b using (sequence)");
    let joined = joined.expect("joined");
    assert_eq!(joined.rows, [[Value::Integer(5)]]);
    assert_eq!(joined.loaded.len(), 1, "it is one stream");

    log.forget_name("bed-1.pulse").expect("forgotten");
    assert!(ask("select count(*) from \"bed-1.pulse\"").is_err());
    assert!(log.forget_name("monitor.pulse").is_err(), "it is the first");
    log.rename("monitor.pulse").expect("renamed");
    assert_eq!(log.current_name(), "monitor.pulse");
}
