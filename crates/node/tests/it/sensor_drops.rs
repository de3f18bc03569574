//! Goal: an element that a virtual sensor does not use is counted, with the reason, and shown with the
//! sensor, among the drops and in the metrics.
//! Method: a node whose stream has elements that are too late for the sensor's window, and too long.

use crate::common::devices::until;
use crate::common::{block, elements, get, start, write_sensor};
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};

fn schema() -> StreamSchema {
    elements::schema(&[("v", FieldType::Text)])
}

fn element(second: i64, text: String) -> StreamElement {
    elements::element(second * 1_000_000_000, vec![Value::Text(text)])
}

#[test]
fn what_a_window_leaves_out_is_counted_and_shown() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let sensor = "name = \"copy\"\n[[source]]\nalias = \"s\"\nstream = \"in\"\nwindow = \"5s\"\n\
                      slide = 1\n[output]\nsql = \"select count(*) as n from s\"\n\
                      [[output.field]]\nname = \"n\"\ntype = \"integer\"\n";
        write_sensor(directory.path(), "copy", sensor);
        let node = start(directory.path()).await;
        let store = async |second: i64, text: String| {
            let element = element(second, text);
            node.store("in", &schema(), &[element]).await.unwrap();
        };
        store(100, "first".into()).await;
        let path = "/api/v1/virtual-sensors/copy";
        let shown = until(&node, path, |sensor| sensor["state"] == "running").await;
        assert_eq!(shown["dropped"], serde_json::json!({}));
        store(101, "second".into()).await;
        for second in 1..=3 {
            store(second, "late".into()).await;
        }
        store(102, "x".repeat(3 << 19)).await;
        store(103, "last".into()).await;
        let wanted = serde_json::json!({ "late": 3, "misfit": 1 });
        until(&node, path, |sensor| sensor["dropped"] == wanted).await;
        let drops = get(&node, "/api/v1/drops").await.json();
        let drops = drops["drops"].as_array().unwrap();
        let late = drops.iter().find(|drop| drop["reason"] == "late").unwrap();
        assert_eq!((&late["count"], &late["peer"]), (&3.into(), &"copy".into()));
        let metrics = get(&node, "/metrics").await.body;
        for line in [
            "chappe_dropped_total{hop=\"element\",reason=\"late\"} 3",
            "chappe_dropped_total{hop=\"element\",reason=\"misfit\"} 1",
        ] {
            assert!(metrics.contains(line), "{line}");
        }
        node.shutdown().await.unwrap();
    });
}
