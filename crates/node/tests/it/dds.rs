//! Goal: a stream published to a topic with `acknowledge = "stored"` is in the log of the node that reads the topic,
//! each element once, in order and with its position at the source, even if either side ends at any point and starts
//! again; delivered elements are not published again; the files take effect while the nodes run.
//! Method: two nodes of this process on loopback with a wrapper and an exporter of kind `dds`; each side ends and
//! starts again while elements flow.

use std::ops::Range;

use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};
use serde_json::{Value as Json, json};

use crate::common::linked::{stored, until};
use crate::common::{Operated, block, config, elements, get};

const EXPORTER: &str =
    "kind = \"dds\"\nstreams = [\"a.b\"]\ntopic = \"TOPIC\"\nstalled_after_s = 1\n";
const WRAPPER: &str = r#"
kind = "dds"
topic = "TOPIC"
source = "a.b"
types = ["{urn:plant}Boiler"]
scopes = ["http://plant.example/hall-2"]
[[stream]]
name = "c.d"
fields = [{ name = "value", type = "integer", unit = "1", observed_property = "urn:count" }]
"#;

/// A node with a directory of its own, in a domain that other processes hardly use.
struct Side {
    directory: tempfile::TempDir,
    /// The topic of this test and process.
    topic: String,
    token: Option<String>,
}

impl Side {
    fn new(topic: &str) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            topic: format!("chappe/test/{topic}/{}", std::process::id()),
            token: None,
        }
    }

    async fn start(&mut self) -> Operated {
        let mut config = config(self.directory.path());
        // Below 101 its ports are below the ephemeral range.
        config.dds.domain = 1 + (std::process::id().wrapping_mul(7) % 100) as u16;
        let operated = Operated::start(&config, self.token.take()).await;
        self.token = Some(operated.token.clone());
        operated
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.directory.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("TOPIC", &self.topic)).unwrap();
    }

    fn remove(&self, file: &str) {
        std::fs::remove_file(self.directory.path().join(file)).unwrap();
    }
}

/// Whether the library is missing, and so the tests are skipped.
fn is_skipped() -> bool {
    if !chappe_dds::IS_BUILT {
        println!("skipped: built without DDS (install CMake)");
    }
    !chappe_dds::IS_BUILT
}

fn schema(field: &str) -> StreamSchema {
    elements::schema(&[(field, FieldType::Integer)])
}

async fn append(node: &Node, schema: &StreamSchema, values: Range<i64>) {
    let elements: Vec<StreamElement> = values
        .map(|value| elements::element(value, vec![Value::Integer(value)]))
        .collect();
    node.store("a.b", schema, &elements).await.unwrap();
}

async fn holds(sink: &Node, count: usize) -> Vec<StreamElement> {
    stored(sink, "c.d", |held| held.len() >= count).await
}

async fn topics(node: &Node) -> Json {
    get(node, "/api/v1/dds").await.json()
}

/// Waits until the peers have the stream up to this number.
async fn delivered(source: &Node, number: u64) {
    until("delivered", async || {
        let row = get(source, "/api/v1/exporters/out").await.json();
        row["streams"][0]["read"] == number
    })
    .await;
}

fn is_each_once(elements: &[StreamElement], count: i64) {
    let values = elements.iter().map(|element| element.values[0].clone());
    assert!(values.eq((0..count).map(Value::Integer)), "{elements:?}");
    let origins = elements
        .iter()
        .map(|element| element.origin.unwrap().sequence);
    assert!(origins.eq(1..=count as u64), "{elements:?}");
}

#[test]
fn published_elements_are_stored_once_over_restarts_of_both_sides() {
    if is_skipped() {
        return;
    }
    let (mut source, mut sink) = (Side::new("ab"), Side::new("ab"));
    source.write("exporters/out.toml", EXPORTER);
    sink.write("wrappers/in.toml", WRAPPER);
    block(async {
        let of = schema("value");
        let publishing = source.start().await;
        append(&publishing.node, &of, 0..100).await;
        let reading = sink.start().await;
        holds(&reading.node, 100).await;
        // Its stream is found by meaning.
        let entity = get(
            &reading.node,
            "/api/v1/entities/urn%3Achappe%3Astream%3Ac.d",
        )
        .await;
        for meaning in [
            "{urn:plant}Boiler",
            "http://plant.example/hall-2",
            "urn:count",
        ] {
            assert!(entity.body.contains(meaning), "{meaning}: {entity:?}");
        }
        // The reader ends while elements flow; those in its library are published again.
        append(&publishing.node, &of, 100..600).await;
        holds(&reading.node, 101).await;
        reading.node.shutdown().await.unwrap();
        append(&publishing.node, &of, 600..700).await;
        let reading = sink.start().await;
        holds(&reading.node, 700).await;
        // The writer ends; its delivered elements are not published again.
        delivered(&publishing.node, 700).await;
        publishing.node.shutdown().await.unwrap();
        let publishing = source.start().await;
        append(&publishing.node, &of, 700..800).await;
        is_each_once(&holds(&reading.node, 800).await, 800);
        let status = topics(&reading.node).await;
        assert_eq!(status["subscriptions"][0]["malformed"], 0, "{status}");
        assert_eq!(status["participant"]["readers"][0]["lost"], 0, "{status}");
        let status = topics(&publishing.node).await;
        let writers = status["participant"]["writers"].as_array().unwrap();
        let writer = writers.iter().find(|it| it["topic"] == *source.topic);
        assert!(writer.unwrap()["sent"].as_u64().unwrap() < 800, "{status}");
        reading.node.shutdown().await.unwrap();
        publishing.node.shutdown().await.unwrap();
    });
}

/// A topic has one type: from elements of another schema the values with a field are published, and the others are
/// counted.
#[test]
fn values_of_an_older_schema_that_a_topic_lacks_are_counted() {
    if is_skipped() {
        return;
    }
    let (mut source, mut sink) = (Side::new("schemas"), Side::new("schemas"));
    block(async {
        let publishing = source.start().await;
        append(&publishing.node, &schema("older"), 0..3).await;
        append(&publishing.node, &schema("value"), 3..5).await;
        source.write("exporters/out.toml", EXPORTER);
        sink.write("wrappers/in.toml", WRAPPER);
        let reading = sink.start().await;
        let all = holds(&reading.node, 5).await;
        let values: Vec<_> = all.into_iter().map(|it| it.values).collect();
        let null = || vec![Value::Null];
        let of = |value| vec![Value::Integer(value)];
        assert_eq!(values, [null(), null(), null(), of(3), of(4)]);
        let drops = get(&publishing.node, "/api/v1/drops").await.json();
        let of_topic = |drop: &&Json| drop["reason"] == "values not published";
        let drops = drops["drops"].as_array().unwrap().iter().filter(of_topic);
        let counts = drops.map(|drop| drop["count"].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), 3);
        reading.node.shutdown().await.unwrap();
        publishing.node.shutdown().await.unwrap();
    });
}

/// A topic carries the name of its file, and the cursor is the stream's, whatever its name.
#[test]
fn a_renamed_stream_goes_on_where_it_was_by_either_name() {
    if is_skipped() {
        return;
    }
    let (mut source, mut sink) = (Side::new("renamed"), Side::new("renamed"));
    source.write("exporters/out.toml", EXPORTER);
    sink.write("wrappers/in.toml", WRAPPER);
    block(async {
        let of = schema("value");
        let publishing = source.start().await;
        append(&publishing.node, &of, 0..100).await;
        let reading = sink.start().await;
        holds(&reading.node, 100).await;
        let path = "/api/v1/streams/a.b/rename";
        let name = json!({ "name": "x.y" });
        let renamed = publishing.change("POST", path, &name).await;
        assert_eq!(renamed.status, 200, "{renamed:?}");
        append(&publishing.node, &of, 100..200).await;
        holds(&reading.node, 200).await;
        delivered(&publishing.node, 200).await;
        // Both files are removed and written again, with the other name, while the nodes run.
        source.remove("exporters/out.toml");
        sink.remove("wrappers/in.toml");
        for (node, list) in [
            (&publishing.node, "publications"),
            (&reading.node, "subscriptions"),
        ] {
            until("the topic ends", async || {
                topics(node).await[list] == json!([])
            })
            .await;
        }
        append(&publishing.node, &of, 200..300).await;
        source.write("exporters/out.toml", &EXPORTER.replace("a.b", "x.y"));
        sink.write("wrappers/in.toml", &WRAPPER.replace("a.b", "x.y"));
        is_each_once(&holds(&reading.node, 300).await, 300);
        delivered(&publishing.node, 300).await;
        let status = topics(&publishing.node).await;
        let writers = status["participant"]["writers"].as_array().unwrap();
        let writer = writers.iter().find(|it| it["topic"] == *source.topic);
        assert!(writer.unwrap()["sent"].as_u64().unwrap() < 300, "{status}");
        reading.node.shutdown().await.unwrap();
        publishing.node.shutdown().await.unwrap();
    });
}
