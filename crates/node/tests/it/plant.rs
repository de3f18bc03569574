//! Goal: a device that appears becomes streams and entities; a virtual sensor that queries for its observed
//! property binds to it, unbinds when it leaves and binds to the replacement; a sensor file can be
//! written, corrected and removed while the node runs.
//! Method: real devices of this process on loopback, found by discovery; other devices present there at the
//! same time are ignored.

use crate::common::devices::{device, looking, unique, until};
use crate::common::{block, config, get, send, write_sensor};
use chappe_node::Node;
use serde_json::Value;

fn sensor(name: &str, property: &str) -> String {
    format!(
        r#"name = "{name}"
[[source]]
alias = "t"
query = {{ observed_property = "{property}" }}
window = 4
slide = 2
[output]
sql = "select avg(value) as mean, count(*) as n from t"
[[output.field]]
name = "mean"
type = "double"
unit = "Cel"
[[output.field]]
name = "n"
type = "integer"
"#
    )
}

fn bound(sensor: &Value) -> Vec<String> {
    let bound = sensor["sources"][0]["bound"].as_array();
    let names = bound
        .into_iter()
        .flatten()
        .map(|one| one["stream"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[test]
fn a_device_becomes_streams_and_sensors_follow_it() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (first_name, second_name) = (format!("one-{}", unique()), format!("two-{}", unique()));
        let property = format!("urn:example:{}", unique());
        let sensor_name = format!("mean-{}", unique());
        let text = sensor(&sensor_name, &property);
        write_sensor(directory.path(), "mean", &text);
        let node = Node::start(looking(directory.path())).await.unwrap();
        let sensor_path = format!("/api/v1/virtual-sensors/{sensor_name}");
        let waiting = until(&node, &sensor_path, |sensor| sensor["state"] == "waiting").await;
        assert!(
            waiting["sources"][0]["unbound_reason"].is_string(),
            "{waiting}"
        );

        let first = device(directory.path(), &first_name, &property, "127.0.9.1");
        let device_path = format!(
            "/api/v1/devices/{}",
            first.host().endpoint().replace(':', "%3A")
        );
        let shown = until(&node, &device_path, |device| device["state"] == "usable").await;
        assert_eq!(shown["name"], first_name);
        assert_eq!(shown["manufacturer"], "Example");
        let stream = shown["streams"][0].as_str().unwrap().to_owned();
        assert!(stream.starts_with(&first_name), "{stream}");
        let stream_path = format!("/api/v1/streams/{stream}");
        let described = until(&node, &stream_path, |stream| {
            stream["last"].as_u64() > Some(2)
        })
        .await;
        assert_eq!(described["fields"][0]["unit"], "Cel");
        assert_eq!(described["fields"][0]["observed_property"], property);
        assert_eq!(described["source"], shown["key"]);

        let running = until(&node, &sensor_path, |sensor| sensor["state"] == "running").await;
        assert_eq!(bound(&running), std::slice::from_ref(&stream));
        let output = format!("/api/v1/streams/{sensor_name}/elements?newest=1");
        // A busy machine may lose one, so that the mean is another for a while.
        until(&node, &output, |page| {
            let values = &page["elements"][0]["values"];
            values["n"] == 4 && values["mean"] == 21.0
        })
        .await;

        let ask = format!(
            "ASK {{ ?s <http://www.w3.org/ns/sosa/observes> <{property}> ; \
             <https://chappe.example/ns#producedBy> <{}> }}",
            shown["key"].as_str().unwrap()
        );
        let fields = [("Content-Type", "application/sparql-query")];
        let answer = send(&node, "POST", "/api/v1/sparql", &fields, ask.as_bytes()).await;
        assert_eq!(answer.json()["boolean"], true, "{answer:?}");

        first.stop().await;
        until(&node, &device_path, |device| device["state"] == "gone").await;
        let waiting = until(&node, &sensor_path, |sensor| sensor["state"] == "waiting").await;
        assert_eq!(bound(&waiting), [""; 0]);
        let entity = format!("/api/v1/entities/urn%3Achappe%3Astream%3A{stream}");
        while get(&node, &entity).await.status != 404 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            get(&node, &stream_path).await.status,
            200,
            "its elements stay"
        );
        let named = |directory: &Value| {
            let streams = directory["streams"].as_array().unwrap().iter();
            streams
                .filter(|one| one["name"] == stream.as_str())
                .map(|one| one["present"].clone())
                .collect::<Vec<_>>()
        };
        let list = get(&node, "/api/v1/directory").await.json();
        assert_eq!(named(&list), [Value::Null; 0], "its source left");
        let by_name = get(&node, &format!("/api/v1/directory?streams={stream}"))
            .await
            .json();
        assert_eq!(named(&by_name), [false]);
        let documents = get(&node, "/api/v1/directory?serialization=xml").await.body;
        assert!(!documents.contains(&stream), "{documents}");

        let second = device(directory.path(), &second_name, &property, "127.0.9.2");
        let running = until(&node, &sensor_path, |sensor| {
            let to_second = |stream: &String| stream.starts_with(&second_name);
            sensor["state"] == "running" && bound(sensor).first().is_some_and(to_second)
        })
        .await;
        assert!(
            running["history"].as_array().unwrap().len() >= 3,
            "{running}"
        );
        node.shutdown().await.unwrap();
        second.stop().await;
    });
}

#[test]
fn files_of_sensors_take_effect_while_the_node_runs() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        let sensors = config.sensors_directory.clone();
        let node = Node::start(config).await.unwrap();
        let token = format!("Bearer {}", node.new_token().unwrap());
        let fields = [("Authorization", token.as_str())];
        let path = "/api/v1/virtual-sensors/mean";
        let right = sensor("mean", "urn:example:a");
        let refused = send(&node, "PUT", path, &[], right.as_bytes()).await;
        assert_eq!(refused.status, 401);
        // Of another length: within a tick of the file system's clock that alone says that it changed.
        let wrong = right.replace("slide", "slidee");
        let refused = send(&node, "PUT", path, &fields, wrong.as_bytes()).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.json()["hint"].as_str().unwrap().contains("slide"));
        assert!(
            refused.json()["detail"]
                .as_str()
                .unwrap()
                .contains("mean.toml:6")
        );
        assert!(!sensors.join("mean.toml").exists(), "nothing was written");
        let written = send(&node, "PUT", path, &fields, right.as_bytes()).await;
        assert_eq!(written.status, 204, "{written:?}");
        until(&node, path, |sensor| sensor["state"] == "waiting").await;

        // By hand, wrong: it is shown by line and key, and the sensor goes on. Half a file may be seen
        // before the whole one.
        std::fs::write(sensors.join("mean.toml"), &wrong).unwrap();
        let shown = until(&node, path, |sensor| sensor["error"]["line"] == 6).await;
        assert_eq!(shown["state"], "waiting");
        std::fs::write(sensors.join("other.toml"), "name = 3").unwrap();
        let other = "/api/v1/virtual-sensors/other";
        until(&node, other, |sensor| {
            sensor["state"] == "failed" && sensor["error"]["line"] == 1
        })
        .await;

        // Corrected by hand, with another query.
        std::fs::write(sensors.join("mean.toml"), sensor("mean", "urn:example:b")).unwrap();
        until(&node, path, |sensor| {
            let query = sensor["sources"][0]["query"].as_str().unwrap_or_default();
            query.contains("urn:example:b") && sensor["error"].is_null()
        })
        .await;
        let removed = send(&node, "DELETE", path, &fields, b"").await;
        assert_eq!(removed.status, 204, "{removed:?}");
        let list = until(&node, "/api/v1/virtual-sensors", |list| {
            list["virtual_sensors"].as_array().unwrap().len() == 1
        })
        .await;
        assert_eq!(list["virtual_sensors"][0]["name"], "other");
        node.shutdown().await.unwrap();
    });
}
