//! Measures elements per second through a projection with a predicate and a window of one: the
//! statement alone on either path, appending and reading alone, and the whole path from log to log;
//! and the time of one evaluation of the heart rate: `cargo run --release -p chappe-stream
//! --example projection_rate`. The log is in memory: the disk is measured by the log's own
//! examples.
//!
//! It does not judge: the numbers are for the reader. The clock is the caller's; an example may have
//! one, the crate has none.
#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_log::{Appended, Level, MemoryDisk, Options, Store};
use chappe_machine::{Input, Machine, Output};
use chappe_stream::sqlite::SqliteQuery;
use chappe_stream::{
    Descriptor, Extent, Field, FieldType, LatePolicy, PlannedQuery, Position, Quality, Query,
    QueryError, QueryLimits, QuerySource, Samples, SensorCommand, SensorEvent, SensorInput,
    SensorLimits, StreamElement, StreamLog, StreamSchema, StreamStore, Timestamp, Value,
    VirtualSensor, Window, WindowLimits,
};

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    }
}

fn element(time: i64, values: Vec<Value>) -> Arc<StreamElement> {
    Arc::new(StreamElement {
        position: Position::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time),
        key: None,
        values,
        quality: Quality::Good,
        origin: None,
    })
}

const ELEMENTS: i64 = 300_000;
/// Elements of one append and of one read.
const BATCH: usize = 100;

fn three_numbers() -> StreamSchema {
    let fields = ["a", "b", "c"].map(|name| field(name, FieldType::Double));
    StreamSchema {
        fields: fields.to_vec(),
        key: None,
    }
}

fn numbers(number: i64) -> Arc<StreamElement> {
    let value = Value::Double((number % 100) as f64);
    element(number, vec![value.clone(), value.clone(), value])
}

const STATEMENT: &str = "select a, b * 2 + 1 as b, c from s where a > 10";

fn source() -> [QuerySource; 1] {
    [QuerySource {
        alias: "s".into(),
        schema: three_numbers(),
        value: None,
    }]
}

fn tell(what: &str, begin: Instant, rows: usize) {
    let rate = ELEMENTS as f64 / begin.elapsed().as_secs_f64();
    println!("{what}: {rate:.0} elements/s ({rows} rows)");
}

fn projections() -> Result<(), QueryError> {
    let (source, output, limits) = (source(), three_numbers(), QueryLimits::default());
    let mut sqlite = SqliteQuery::new(&source, STATEMENT, &output, limits)?;
    projection("SQLite, window 1", &mut sqlite)?;
    let mut planned = PlannedQuery::new(&source, STATEMENT, &output, limits)?;
    projection(&format!("{}, window 1", planned.plan()), &mut planned)
}

fn projection(what: &str, query: &mut dyn Query) -> Result<(), QueryError> {
    let mut window = Window::new(
        Extent::Count(1),
        LatePolicy::Insert,
        WindowLimits::default(),
    );
    let stream: Arc<str> = "s".into();
    let begin = Instant::now();
    let mut rows = 0;
    for number in 0..ELEMENTS {
        let _ = window.push(stream.clone(), numbers(number));
        rows += query.evaluate(&[window.take_change()])?.len();
    }
    tell(what, begin, rows);
    Ok(())
}

/// Appending, reading, and log to log.
fn stored() -> Result<(), Box<dyn std::error::Error>> {
    let (store, _) = Store::open(Box::new(MemoryDisk::new()), Options::default(), 1)?;
    let store = StreamStore::new(store);
    let source = store.stream("source", Level::Process, &three_numbers(), None)?;
    let target = store.stream("target", Level::Process, &three_numbers(), None)?;
    let all: Vec<StreamElement> = (0..ELEMENTS)
        .map(|number| StreamElement::clone(&numbers(number)))
        .collect();
    let begin = Instant::now();
    let mut last = None;
    for batch in all.chunks(BATCH) {
        last = Some(source.append(batch)?);
    }
    last.map_or(Ok(()), Appended::wait)?;
    tell("append, 100 at once", begin, all.len());
    let begin = Instant::now();
    let mut follower = source.follow(0);
    let mut rows = 0;
    while let Some(elements) = follower.try_next()? {
        rows += elements.len();
    }
    tell("read and decode", begin, rows);
    through("log to log", &source, &target, PROJECTION)?;
    // The same, but for a limit that is not compiled.
    let other = PROJECTION.replace("a > 10", "a > 10 limit 1");
    through("log to log", &source, &target, &other)
}

/// Log, decode, window, statement, append.
fn through(
    what: &str,
    source: &StreamLog,
    target: &StreamLog,
    text: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let descriptor = Descriptor::parse("projection.toml", text)?;
    let mut sensor = VirtualSensor::new(descriptor, SensorLimits::default());
    let bind = SensorCommand::Bind {
        alias: "s".into(),
        stream: "source".into(),
        schema: three_numbers(),
    };
    sensor.handle_input(chappe_machine::Instant::ZERO, Input::Command(bind));
    let (begin, mut rows, mut last) = (Instant::now(), 0, None);
    let name = source.shared_name();
    let mut follower = source.follow(0);
    while let Some(elements) = follower.try_next()? {
        let mut out = Vec::new();
        for element in elements {
            let (stream, element) = (name.clone(), Arc::new(element));
            let input = Input::Receive(SensorInput { stream, element });
            sensor.handle_input(chappe_machine::Instant::ZERO, input);
            while let Some(Output::Event(event)) = sensor.poll_output() {
                if let SensorEvent::Output(element) = event {
                    out.push(element);
                }
            }
        }
        rows += out.len();
        if !out.is_empty() {
            last = Some(target.append(&out)?);
        }
    }
    last.map_or(Ok(()), Appended::wait)?;
    let plan = sensor.plan().map(ToString::to_string).unwrap_or_default();
    tell(&format!("{what}, {plan}"), begin, rows);
    Ok(())
}

const PROJECTION: &str = r#"
name = "projection"
[[source]]
alias = "s"
stream = "source"
[output]
sql = "select a, b * 2 + 1 as b, c from s where a > 10"
[[output.field]]
name = "a"
type = "double"
[[output.field]]
name = "b"
type = "double"
[[output.field]]
name = "c"
type = "double"
"#;

fn heart_rate() -> Result<(), Box<dyn std::error::Error>> {
    let text = include_str!("heart-rate.toml");
    let descriptor = Descriptor::parse("heart-rate.toml", text)?;
    let source = QuerySource {
        alias: "ecg".into(),
        schema: StreamSchema {
            fields: vec![field("value", FieldType::Samples)],
            key: None,
        },
        value: Some("value".into()),
    };
    let output = &descriptor.output;
    let limits = QueryLimits::default();
    let sql = &descriptor.statements[0].sql;
    let mut query = SqliteQuery::new(&[source], sql, &output.schema, limits)?;
    let mut window = Window::new(
        descriptor.sources[0].window,
        LatePolicy::Insert,
        WindowLimits::default(),
    );
    let mut times: Vec<Duration> = Vec::new();
    for second in 0..60 {
        let wave = |index: i64| {
            let t = ((second * 360 + index) as f64 / 360.0) % 0.8;
            (-((t - 0.4) / 0.01).powi(2) / 2.0).exp()
        };
        let samples = Samples {
            start: Timestamp(second * 1_000_000_000),
            period_ns: 2_777_777,
            values: (0..360).map(wave).collect(),
        };
        let time = second * 1_000_000_000;
        let _ = window.push("ecg".into(), element(time, vec![Value::Samples(samples)]));
        let begin = Instant::now();
        query.evaluate(&[window.take_change()])?;
        times.push(begin.elapsed());
    }
    let mut full = times.split_off(8);
    full.sort();
    let (median, worst) = (full[full.len() / 2], full[full.len() - 1]);
    println!("heart rate over 8 s at 360 Hz: median {median:?}, worst {worst:?}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    projections()?;
    stored()?;
    heart_rate()
}
