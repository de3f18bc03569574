//! Goal: a large window is the same after a restart, refused elements are stored as dead letters, and
//! silence is a value on the node's clock.
//! Method: nodes on one directory; the streams that their sensors write are followed.

use std::path::Path;

use crate::common::devices::until;
use crate::common::{PATIENCE, block, config, elements, get, start, write_sensor};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};

/// More than 65,536, which a restart once recalled, and less than that and the elements after it.
const WINDOW: i64 = 70_000;
const SLIDE: i64 = 1_000;

fn schema() -> StreamSchema {
    elements::schema(&[("v", FieldType::Integer)])
}

fn element(millisecond: i64) -> StreamElement {
    elements::element(millisecond * 1_000_000, vec![Value::Integer(1)])
}

fn sensor(name: &str, keys: &str) -> String {
    format!(
        "name = \"{name}\"\n[[source]]\nalias = \"s\"\nstream = \"in\"\n{keys}\n\
         [output]\nsql = \"select count(*) as n from s\"\n\
         [[output.field]]\nname = \"n\"\ntype = \"integer\"\n"
    )
}

async fn running(directory: &Path, names: &[&str]) -> Node {
    let node = Node::start(config(directory)).await.unwrap();
    node.store("in", &schema(), &[element(0)]).await.unwrap();
    for name in names {
        let path = format!("/api/v1/virtual-sensors/{name}");
        until(&node, &path, |sensor| sensor["state"] == "running").await;
    }
    node
}

/// Waits until an element of a stream is at least `wanted`.
async fn reaches(node: &Node, stream: &str, wanted: i64) {
    let found = async {
        let log = loop {
            match node.stream(stream) {
                Some(log) => break log,
                None => tokio::task::yield_now().await,
            }
        };
        let mut follower = log.follow(0);
        while let Ok(elements) = follower.next().await {
            let is_wanted = |element: &StreamElement| matches!(element.values[..], [Value::Integer(value)] if value >= wanted);
            if elements.iter().any(is_wanted) {
                return;
            }
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, found).await;
    assert!(outcome.is_ok(), "{stream} does not reach {wanted}");
}

#[test]
fn a_large_window_is_the_same_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let by_count = sensor("by-count", &format!("window = {WINDOW}\nslide = {SLIDE}"));
    let by_time = sensor("by-time", &format!("window = \"70s\"\nslide = {SLIDE}"));
    let names = ["by-count", "by-time"];
    block(async {
        write_sensor(directory.path(), "by-count", &by_count);
        write_sensor(directory.path(), "by-time", &by_time);
        let node = running(directory.path(), &names).await;
        let all: Vec<_> = (1..=WINDOW + 2 * SLIDE).map(element).collect();
        let (first, second) = all.split_at(WINDOW as usize);
        for batch in first.chunks(1_000) {
            node.store("in", &schema(), batch).await.unwrap();
        }
        for name in names {
            // The slide begins at the first element that is seen, which may be the second.
            reaches(&node, name, WINDOW - SLIDE).await;
        }
        node.shutdown().await.unwrap();
        let node = Node::start(config(directory.path())).await.unwrap();
        for batch in second.chunks(1_000) {
            node.store("in", &schema(), batch).await.unwrap();
        }
        let count = |name: &str| {
            let log = node.stream(name).unwrap();
            let newest = log.newest(1).unwrap();
            newest
                .last()
                .map(|element| (element.values[0].clone(), element.origin))
        };
        let full = Value::Integer(WINDOW);
        for name in names {
            let reached = async {
                let at_end = |found: Option<(Value, Option<chappe_stream::Position>)>| {
                    let origin = found.and_then(|(_, origin)| origin);
                    origin.is_some_and(|at| at.sequence as i64 > WINDOW + 2)
                };
                while !at_end(count(name)) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, reached).await.expect(name);
            assert_eq!(count(name).unwrap().0, full, "{name}");
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn refused_elements_are_dead_letters() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let keys =
            "window = \"5s\"\nlate = \"dead_letter\"\nearly = \"dead_letter\"\nahead = \"1s\"";
        write_sensor(directory.path(), "strict", &sensor("strict", keys));
        let node = running(directory.path(), &["strict"]).await;
        let mut early = element(900_000);
        early.receive_time = element(200_000).source_time;
        let all = [element(100_000), element(7), early, element(100_001)];
        for one in all {
            node.store("in", &schema(), &[one]).await.unwrap();
        }
        let path = "/api/v1/streams/strict.dead-letters/elements?newest=9";
        let page = until(&node, path, |page| {
            page["elements"]
                .as_array()
                .is_some_and(|all| all.len() == 2)
        })
        .await;
        let values = |at: usize| page["elements"][at]["values"].clone();
        assert_eq!(
            values(0),
            serde_json::json!({
                "source": "s", "of": "in", "number": 3, "reason": "late", "fields": "{\"v\":1}"
            })
        );
        assert_eq!(
            values(1),
            serde_json::json!({
                "source": "s", "of": "in", "number": 4, "reason": "early", "fields": "{\"v\":1}"
            })
        );
        let wanted = serde_json::json!({ "late": 1, "early": 1 });
        let sensor = "/api/v1/virtual-sensors/strict";
        until(&node, sensor, |sensor| sensor["dropped"] == wanted).await;
        let metrics = get(&node, "/metrics").await.body;
        let line = "chappe_dropped_total{hop=\"element\",reason=\"early\"} 1";
        assert!(metrics.contains(line));
        node.shutdown().await.unwrap();
    });
}

#[test]
fn on_the_clock_of_the_node_silence_gives_outputs() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let keys = "window = \"200ms\"\nslide = \"100ms\"\nclock = \"node\"\nwait = \"50ms\"";
        write_sensor(directory.path(), "silent", &sensor("silent", keys));
        let node = start(directory.path()).await;
        node.store("in", &schema(), &[element(0)]).await.unwrap();
        reaches(&node, "silent", 0).await;
        node.shutdown().await.unwrap();
    });
}
