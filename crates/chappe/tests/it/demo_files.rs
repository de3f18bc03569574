//! Goal: the files of the demonstration are valid: every device description loads with its recording,
//! every recording states its origin and licence, every virtual sensor compiles against its streams
//! and computes values that were counted by hand.
//! Method: the shipped files and the program's loaders; no socket, no clock.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chappe_device::file::File;
use chappe_stream::sqlite::SqliteQuery;
use chappe_stream::{
    Descriptor, Epoch, Extent, Field, FieldType, LatePolicy, Position, Quality, Query, QueryLimits,
    QuerySource, Row, Samples, Selection, StreamElement, StreamSchema, Timestamp, Value, Window,
    WindowLimits,
};

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo")
}

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(demo().join(folder))
        .expect("the directory exists")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|is| is == extension))
        .collect();
    found.sort();
    found
}

fn descriptor(name: &str) -> Descriptor {
    let path = demo().join("sensors").join(name);
    let text = fs::read_to_string(&path).expect("the descriptor exists");
    Descriptor::parse(name, &text).expect("the descriptor is valid")
}

fn column(recording: &str, index: usize) -> Vec<f64> {
    let path = demo().join("recordings").join(recording);
    let text = fs::read_to_string(path).expect("the recording exists");
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|row| {
        row.split(',')
            .nth(index)
            .expect("a cell")
            .parse()
            .expect("a number")
    })
    .collect()
}

#[test]
fn every_device_loads_with_its_recording() {
    let devices = files("devices", "toml");
    assert!(devices.len() >= 6, "{devices:?}");
    let mut names = BTreeSet::new();
    for path in devices.iter().chain(&files("spare", "toml")) {
        let file = File::read(path).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            names.insert(file.name.clone()),
            "{} is listed twice",
            file.name
        );
        assert!(
            !file.types.is_empty() && !file.scopes.is_empty(),
            "{}",
            file.name
        );
        for event in &file.events {
            let measured = event
                .element
                .fields
                .iter()
                .filter(|field| field.unit.is_some());
            assert!(measured.clone().count() >= 1, "{}", file.name);
            for field in measured {
                let meaning = &field.model_reference;
                assert_eq!(meaning.len(), 1, "{}: {}", file.name, field.name.local);
            }
        }
    }
}

#[test]
fn every_recording_states_origin_and_licence() {
    let notice = fs::read_to_string(demo().join("../../../NOTICE")).expect("NOTICE exists");
    for path in files("recordings", "csv") {
        let text = fs::read_to_string(&path).expect("the recording exists");
        for key in [
            "# title: ",
            "# source: ",
            "# licence: ",
            "# sample rate: ",
            "# unit: ",
        ] {
            assert!(
                text.lines().any(|line| line.starts_with(key)),
                "{path:?}: {key}"
            );
        }
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a plain name");
        assert!(notice.contains(name), "{name} is not in NOTICE");
    }
}

/// Feeds elements of one stream to a sensor's only source and returns the rows after the last.
fn compute(
    descriptor: &Descriptor,
    schema: StreamSchema,
    elements: Vec<StreamElement>,
) -> Vec<Row> {
    let source = &descriptor.sources[0];
    let Selection::Query(query) = &source.selection else {
        panic!("the demonstration binds by meaning");
    };
    let schema = query.offered(&schema).expect("the stream matches");
    let value = Some("value".to_owned());
    let sources = [QuerySource {
        alias: source.alias.clone(),
        schema,
        value,
    }];
    let output = &descriptor.output;
    let mut sqlite = SqliteQuery::new(
        &sources,
        &descriptor.statements[0].sql,
        &output.schema,
        QueryLimits::default(),
    )
    .expect("the statement fits");
    let mut window = Window::new(source.window, LatePolicy::Insert, WindowLimits::default());
    let stream: Arc<str> = Arc::from("demo");
    for element in elements {
        window.push(stream.clone(), Arc::new(element)).unwrap();
    }
    sqlite
        .evaluate(&[window.take_change()])
        .expect("the statement runs")
}

fn element(sequence: u64, nanoseconds: i64, values: Vec<Value>) -> StreamElement {
    StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence,
        },
        source_time: Timestamp(nanoseconds),
        receive_time: Timestamp(nanoseconds),
        key: None,
        values,
        quality: Quality::Good,
        origin: None,
    }
}

fn field(name: &str, field_type: FieldType, unit: &str, property: &str) -> Field {
    Field {
        name: name.into(),
        field_type,
        unit: Some(unit.into()),
        observed_property: Some(property.into()),
        description: None,
    }
}

#[test]
fn the_heart_rate_matches_a_manual_count() {
    let sensor = descriptor("heart-rate.toml");
    assert!(matches!(sensor.sources[0].window, Extent::Time(_)));
    let property = "urn:oid:1.2.840.10004.1.1.1.0.0.1.131330";
    let ecg = column("electrocardiogram.csv", 0);
    // Beats of these eight seconds, counted by the height of their peaks over a running mean.
    for (from_s, beats) in [(0, 15.0), (4, 17.0), (8, 17.0), (28, 15.0)] {
        let stretches = ecg[from_s * 360..(from_s + 8) * 360].chunks(90);
        let elements = stretches.enumerate().map(|(index, values)| {
            let start = Timestamp(index as i64 * 250_000_000);
            let samples = Samples {
                start,
                period_ns: 2_777_778,
                values: values.to_vec(),
            };
            element(index as u64 + 1, start.0, vec![Value::Samples(samples)])
        });
        let schema = StreamSchema {
            fields: vec![field("ecg", FieldType::Samples, "uV", property)],
            key: None,
        };
        let rows = compute(&sensor, schema, elements.collect());
        let [Value::Double(rate), Value::Integer(found)] = rows[0].values[..] else {
            panic!("{rows:?}");
        };
        assert!(
            (found as f64 - beats).abs() <= 1.0,
            "{from_s}: {found} beats, not {beats}"
        );
        assert!((80.0..150.0).contains(&rate), "{from_s}: {rate}");
    }
}

#[test]
fn a_cold_week_raises_the_alarm() {
    let sensor = descriptor("air-temperature-mean.toml");
    let property = "http://vocab.nerc.ac.uk/standard_name/air_temperature/";
    let days = column("air_temperature.csv", 0);
    let mut alarms = BTreeSet::new();
    for last in 7..30 {
        let elements = days[..last].iter().enumerate().map(|(day, celsius)| {
            element(
                day as u64 + 1,
                day as i64 * 500_000_000,
                vec![Value::Double(*celsius)],
            )
        });
        let schema = StreamSchema {
            fields: vec![field("temperature_max", FieldType::Double, "Cel", property)],
            key: None,
        };
        let rows = compute(&sensor, schema, elements.collect());
        let [Value::Double(mean), Value::Boolean(alarm)] = rows[0].values[..] else {
            panic!("{rows:?}");
        };
        let expected = days[last - 7..last].iter().sum::<f64>() / 7.0;
        assert!((mean - expected).abs() < 1e-9, "{mean} is not {expected}");
        assert_eq!(alarm, expected < 8.0);
        alarms.insert(alarm);
    }
    assert_eq!(
        alarms.len(),
        2,
        "the recording shows the alarm and its absence"
    );
}
