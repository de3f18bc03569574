//! Measures elements a second through a projection with a predicate, window of one, and the time of
//! one evaluation of the heart rate: `cargo run --release -p chappe-stream --example rate`.
//!
//! It does not judge: the numbers are for the reader. The clock is the caller's; an example may have
//! one, the crate has none.
#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_stream::sqlite::SqliteQuery;
use chappe_stream::{
    Descriptor, Extent, Field, FieldType, LatePolicy, Position, Quality, Query, QueryLimits,
    QuerySource, Samples, StreamElement, StreamSchema, Timestamp, Value, Window, WindowLimits,
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
    })
}

fn projection() -> Result<(), chappe_stream::QueryError> {
    const ELEMENTS: i64 = 300_000;
    let fields = ["a", "b", "c"].map(|name| field(name, FieldType::Double));
    let schema = StreamSchema {
        fields: fields.to_vec(),
        key: None,
    };
    let source = QuerySource {
        alias: "s".into(),
        schema: schema.clone(),
        value: None,
    };
    let sql = "select a, b * 2 + 1 as b, c from s where a > 10";
    let mut query = SqliteQuery::new(&[source], sql, &schema, QueryLimits::default())?;
    let mut window = Window::new(
        Extent::Count(1),
        LatePolicy::Insert,
        WindowLimits::default(),
    );
    let stream: Arc<str> = "s".into();
    let begin = Instant::now();
    let mut rows = 0;
    for number in 0..ELEMENTS {
        let value = Value::Double((number % 100) as f64);
        let values = vec![value.clone(), value.clone(), value];
        window.push(stream.clone(), element(number, values));
        rows += query.evaluate(&[window.take_change()])?.len();
    }
    let rate = ELEMENTS as f64 / begin.elapsed().as_secs_f64();
    println!("projection and predicate, window 1: {rate:.0} elements/s ({rows} rows)");
    Ok(())
}

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
    let mut query = SqliteQuery::new(&[source], &output.sql, &output.schema, limits)?;
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
        window.push("ecg".into(), element(time, vec![Value::Samples(samples)]));
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
    projection()?;
    heart_rate()
}
