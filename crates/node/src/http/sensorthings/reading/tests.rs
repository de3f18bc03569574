//! Pages of observations: what they read, hold and cost, and that they follow each other.

use std::time::Duration;

use chappe_sensorthings::{Limits, Options, Request, ResourcePath, answer};
use chappe_stream::{Epoch, Field, FieldType, Quality};

use super::*;
use crate::accounts::Caller;
use crate::node::tests::on_node;
use crate::shared::App;

/// Time from one element to the next.
const STEP: i64 = 1_000_000;

/// Fills a stream with so many elements, every hundredth of them later than its neighbours.
async fn fill(app: &App, name: &str, elements: i64) {
    let field = Field {
        name: "v".to_owned(),
        field_type: FieldType::Integer,
        unit: None,
        observed_property: None,
        description: None,
    };
    let schema = StreamSchema {
        fields: vec![field],
        key: None,
    };
    let created = app.catalogue.create(name, &schema, "urn:a", None);
    let entry = created.await.unwrap();
    let numbers: Vec<i64> = (0..elements).collect();
    for numbers in numbers.chunks(10_000) {
        let elements = numbers.iter().map(|number| StreamElement {
            position: Position {
                epoch: Epoch(0),
                sequence: 0,
            },
            source_time: Timestamp((number + if number % 100 == 0 { 50 } else { 0 }) * STEP),
            receive_time: Timestamp(1),
            key: None,
            values: vec![chappe_stream::Value::Integer(*number)],
            quality: Quality::Good,
            origin: None,
        });
        let elements: Vec<StreamElement> = elements.collect();
        entry.append(&elements).await.unwrap().await.unwrap();
    }
}

/// Answers a request for observations of a stream; returns how many elements were read.
fn read(app: &App, stream: &str, query: &str) -> u64 {
    let reading = Reading {
        snapshot: Snapshot::new(app, &Caller::operator(), Some(stream)),
        deadline: Instant::now() + Duration::from_secs(300),
        elements_read: Cell::new(0),
        is_abandoned: Arc::default(),
    };
    let path = format!("Datastreams('{stream}:v')/Observations");
    let request = Request {
        path: &ResourcePath::parse(&path).unwrap(),
        options: &Options::parse(query, EntityType::Observation).unwrap(),
        root: "",
        now: Timestamp(0),
        limits: Limits {
            page: 100,
            page_max: 1_000,
            bytes_max: 1 << 20,
        },
    };
    answer(&reading, &request).unwrap();
    reading.elements_read.get()
}

#[test]
fn a_page_reads_as_many_elements_of_a_long_stream_as_of_a_short_one() {
    on_node(
        |config| config.log.keep_age_s = 0,
        async |app| {
            fill(app, "short", 5_000).await;
            fill(app, "long", 200_000).await;
            for query in [
                "",
                "$top=1&$orderby=phenomenonTime%20desc",
                "$orderby=phenomenonTime",
                "$skip=2000",
                "$top=10&$filter=phenomenonTime%20ge%201970-01-01T00:00:02Z",
                "$filter=phenomenonTime%20ge%201970-01-01T00:00:02Z&$orderby=phenomenonTime",
                "$filter=phenomenonTime%20le%201970-01-01T00:00:02Z&$orderby=resultTime%20desc",
                "$count=true&$top=0",
            ] {
                let (short, long) = (read(app, "short", query), read(app, "long", query));
                // A piece of a scan is the least that is read.
                let most = short.max(PIECE as u64) * 3 / 2;
                assert!(
                    long <= most,
                    "{query}: {long} elements, of the short one {short}"
                );
            }
        },
    );
}

fn reading(app: &App) -> Reading {
    Reading {
        snapshot: Snapshot::new(app, &Caller::operator(), None),
        deadline: Instant::now() + Duration::from_secs(300),
        elements_read: Cell::new(0),
        is_abandoned: Arc::default(),
    }
}

#[test]
fn a_filter_with_paths_stops_at_the_time_limit_and_when_nobody_waits() {
    on_node(
        |_| (),
        async |app| {
            fill(app, "s", 10).await;
            let path = ResourcePath::parse("Things").unwrap();
            let query = "$filter=Datastreams/name%20eq%20'x'";
            let options = Options::parse(query, EntityType::Thing).unwrap();
            let request = Request {
                path: &path,
                options: &options,
                root: "",
                now: Timestamp(0),
                limits: LIMITS,
            };
            assert!(answer(&reading(app), &request).is_ok());
            let late = Reading {
                deadline: Instant::now(),
                ..reading(app)
            };
            let fault = answer(&late, &request).unwrap_err();
            assert!(matches!(fault, Fault::Stopped(_)), "{fault}");
            let abandoned = reading(app);
            abandoned.is_abandoned.store(true, Memory::Relaxed);
            let fault = answer(&abandoned, &request).unwrap_err();
            assert!(matches!(fault, Fault::Stopped(_)), "{fault}");
        },
    );
}

#[test]
fn observations_are_held_up_to_a_limit_of_bytes() {
    /// More of them than are held, and fewer than a cut by their count would need.
    const ELEMENTS: i64 = 1_020;
    on_node(
        |config| config.log.keep_age_s = 0,
        async |app| {
            let field = Field {
                name: "v".to_owned(),
                field_type: FieldType::Text,
                unit: None,
                observed_property: None,
                description: None,
            };
            let schema = StreamSchema {
                fields: vec![field],
                key: None,
            };
            let created = app.catalogue.create("s", &schema, "urn:a", None);
            let entry = created.await.unwrap();
            for number in 0..ELEMENTS {
                let element = StreamElement {
                    position: Position {
                        epoch: Epoch(0),
                        sequence: 0,
                    },
                    source_time: Timestamp(number * STEP),
                    receive_time: Timestamp(1),
                    key: None,
                    values: vec![chappe_stream::Value::Text("x".repeat(100_000))],
                    quality: Quality::Good,
                    origin: None,
                };
                let appended = entry.append(&[element]).await.unwrap();
                if number % 100 == 99 || number == ELEMENTS - 1 {
                    appended.await.unwrap();
                }
            }
            let reading = reading(app);
            for (query, is_answered) in [
                ("$top=10", true),
                ("$top=1000", false),
                ("$top=1&$orderby=result", true),
                ("$top=1000&$orderby=result", false),
                ("$top=1&$orderby=phenomenonTime", true),
                ("$top=1000&$orderby=phenomenonTime", false),
            ] {
                let options = Options::parse(query, EntityType::Observation).unwrap();
                let wanted = Wanted {
                    filter: None,
                    order: &options.order,
                    skip: 0,
                    top: options.top.unwrap(),
                    count: false,
                    token: None,
                    now: Timestamp(0),
                };
                let page = reading.observations(&ObservationsOf::All, &wanted);
                assert_eq!(page.is_ok(), is_answered, "{query}");
            }
        },
    );
}

#[test]
fn pages_in_the_order_of_results_are_not_shifted_by_elements_that_arrive() {
    on_node(
        |config| config.log.keep_age_s = 0,
        async |app| {
            const FIRST: i64 = 1_000;
            fill(app, "s", FIRST).await;
            let reading = || reading(app);
            let options = Options::parse("$orderby=result", EntityType::Observation).unwrap();
            let (mut token, mut results) = (None, Vec::new());
            loop {
                let wanted = Wanted {
                    filter: None,
                    order: &options.order,
                    skip: 0,
                    top: 70,
                    count: true,
                    token: token.as_deref(),
                    now: Timestamp(0),
                };
                let page = reading()
                    .observations(&ObservationsOf::All, &wanted)
                    .unwrap();
                let of_page = page
                    .entities
                    .iter()
                    .map(|it| it.properties["result"].clone());
                results.extend(of_page.map(|result| result.as_i64().unwrap()));
                match page.next {
                    Some(Resume::Token(next)) => token = Some(next),
                    next => {
                        assert_eq!(next, None);
                        break;
                    }
                }
                // Their results are 0 to 99: places that the pages have passed.
                fill(app, "s", 100).await;
            }
            let later = results.iter().filter(|result| **result >= 100).count();
            assert_eq!(later as i64, FIRST - 100, "none is there twice");
            results.dedup();
            let wanted: Vec<i64> = (0..FIRST).collect();
            assert_eq!(results, wanted, "none is missing");

            let wrong = |token: &str| {
                let wanted = Wanted {
                    filter: None,
                    order: &options.order,
                    skip: 0,
                    top: 1,
                    count: false,
                    token: Some(token),
                    now: Timestamp(0),
                };
                let page = reading().observations(&ObservationsOf::All, &wanted);
                page.map(drop).unwrap_err().to_string()
            };
            assert!(wrong("kx").contains("another order"));
            assert!(wrong("ns:v:0000000000000001:1").contains("another order"));
            assert!(wrong("ks:v:0000000000000001:1").contains("not kept any more"));
        },
    );
}
