//! Pages in the order of time around a pause of a stream that is much longer than the times of its observations.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_sensorthings::{Answer, EntityType, Options, Request, ResourcePath, answer};
use chappe_stream::{
    Epoch, Field, FieldType, Position, Quality, StreamElement, StreamSchema, Timestamp, Value,
};

use super::LIMITS;
use super::reading::Reading;
use super::snapshot::Snapshot;
use crate::accounts::Caller;
use crate::node::tests::on_node;
use crate::shared::App;

/// Observations before the pause, and after it.
const HALF: i64 = 100_000;
/// Time from one observation to the next, in nanoseconds.
const STEP: i64 = 1_000_000;
/// The pause: forty times as long as all observations before it.
const PAUSE: i64 = 40 * HALF * STEP;

async fn fill(app: &App) {
    let schema = StreamSchema {
        fields: vec![Field {
            name: "v".to_owned(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    };
    let created = app.catalogue.create("paused", &schema, "urn:a", None);
    let entry = created.await.unwrap();
    let numbers: Vec<i64> = (0..2 * HALF).collect();
    for numbers in numbers.chunks(10_000) {
        let elements = numbers.iter().map(|number| StreamElement {
            position: Position {
                epoch: Epoch(0),
                sequence: 0,
            },
            source_time: Timestamp(number * STEP + if *number < HALF { 0 } else { PAUSE }),
            receive_time: Timestamp(1),
            key: None,
            values: vec![Value::Integer(*number)],
            quality: Quality::Good,
            origin: None,
        });
        let elements: Vec<StreamElement> = elements.collect();
        entry.append(&elements).await.unwrap().await.unwrap();
    }
}

/// The first result of a page, the number of its observations, and how many elements were read for it.
fn read(app: &App, query: &str) -> (i64, usize, u64) {
    let reading = Reading {
        snapshot: Snapshot::new(app, &Caller::operator(), Some("paused")),
        deadline: Instant::now() + Duration::from_secs(300),
        elements_read: Cell::new(0),
        is_abandoned: Arc::default(),
    };
    let request = Request {
        path: &ResourcePath::parse("Datastreams('paused:v')/Observations").unwrap(),
        options: &Options::parse(query, EntityType::Observation).unwrap(),
        root: "",
        now: Timestamp(0),
        limits: LIMITS,
    };
    let Ok(Answer::Json(page)) = answer(&reading, &request) else {
        panic!("no document");
    };
    let observations = page["value"].as_array().unwrap();
    let first = observations[0]["result"].as_i64().unwrap();
    (first, observations.len(), reading.elements_read.get())
}

#[test]
fn a_page_after_a_pause_reads_no_more_than_some_pages() {
    on_node(
        |config| config.log.keep_age_s = 0,
        async |app| {
            fill(app).await;
            let after = Timestamp(HALF * STEP + PAUSE / 2);
            for (query, first) in [
                (
                    format!("$filter=phenomenonTime%20ge%20{after}&$orderby=phenomenonTime"),
                    HALF,
                ),
                (
                    format!("$filter=phenomenonTime%20le%20{after}&$orderby=phenomenonTime%20desc"),
                    HALF - 1,
                ),
                ("$orderby=phenomenonTime".to_owned(), 0),
                ("$orderby=phenomenonTime%20desc".to_owned(), 2 * HALF - 1),
            ] {
                let (number, count, read) = read(app, &query);
                assert_eq!((number, count), (first, 100), "{query}");
                assert!(read < 40_000, "{query}: {read} elements");
            }
        },
    );
}
