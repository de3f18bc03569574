//! Goal: a source with a fallback reads the first choice that delivers, and its state shows which and why.
//! Method: a node with two streams of which first the spare one delivers, then the main one, which falls silent.

use crate::common::devices::until;
use crate::common::linked::stored;
use crate::common::{block, elements, start, write_sensor};
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Timestamp, Value};

const SENSOR: &str = r#"
name = "copy"
[[source]]
alias = "s"
stream = "main"
fallback = [{ stream = "spare" }]
fallback_after = "3s"
[output]
sql = "select v from s"
[[output.field]]
name = "v"
type = "integer"
"#;

const PATH: &str = "/api/v1/virtual-sensors/copy";

fn schema() -> StreamSchema {
    elements::schema(&[("v", FieldType::Integer)])
}

async fn store(node: &Node, stream: &str, value: i64) {
    // Long ago, so that only what is seen to arrive makes a choice deliver.
    let element = StreamElement {
        receive_time: Timestamp(1_000_000_000),
        ..elements::element(value * 1_000_000_000, vec![Value::Integer(value)])
    };
    node.store(stream, &schema(), &[element]).await.unwrap();
}

async fn used(node: &Node, choice: usize) -> serde_json::Value {
    let sensor = until(node, PATH, |sensor| {
        sensor["sources"][0]["choices"][choice]["is_used"] == true
    });
    sensor.await
}

/// Waits until the newest result satisfies a condition.
async fn until_newest(node: &Node, is_wanted: impl Fn(i64) -> bool) {
    let is_so = |held: &[StreamElement]| {
        let newest = held.last().map(|newest| &newest.values[0]);
        matches!(newest, Some(Value::Integer(value)) if is_wanted(*value))
    };
    stored(node, "copy", is_so).await;
}

#[test]
fn the_first_choice_that_delivers_is_read() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        write_sensor(directory.path(), "copy", SENSOR);
        let node = start(directory.path()).await;
        store(&node, "spare", 1).await;
        let shown = used(&node, 1).await;
        assert_eq!(shown["sources"][0]["choices"][0]["choice"], "main");
        until(&node, PATH, |sensor| sensor["state"] == "running").await;
        store(&node, "spare", 2).await;
        until_newest(&node, |value| value == 2).await;

        // The main one appears, and is used once it delivers.
        store(&node, "main", 10).await;
        until(&node, PATH, |sensor| {
            !sensor["sources"][0]["choices"][0]["delivered_at"].is_null()
        })
        .await;
        store(&node, "main", 11).await;
        let shown = used(&node, 0).await;
        let why = shown["sources"][0]["bound"][0]["why"].as_str().unwrap();
        assert!(why.contains("choice 1 of 2, which delivers again"), "{why}");
        until_newest(&node, |value| value == 11).await;
        store(&node, "main", 12).await;
        until_newest(&node, |value| value == 12).await;

        // It falls silent while the spare one delivers.
        let mut value = 20;
        loop {
            store(&node, "spare", value).await;
            value += 1;
            let shown = until(&node, PATH, |_| true).await;
            if shown["sources"][0]["choices"][1]["is_used"] == true {
                let history = shown["history"].to_string();
                assert!(
                    history.contains("since choice 1 has delivered nothing for 3s"),
                    "{history}"
                );
                break;
            }
            // Few, because values are times too, and must not run far ahead of those of receipt.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
        until_newest(&node, |value| value >= 20).await;
        node.shutdown().await.unwrap();
    });
}
