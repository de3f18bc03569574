//! Goal: a device that leaves takes none of its elements with it: a virtual sensor that is behind evaluates all
//! that are stored, and the slide that they are in, and only then loses its source. On the node's clock, the silence
//! of a device that has left is a value, also after a restart of the node.
//! Method: devices that are stopped while sensors read them.

use std::time::Duration;

use crate::common::devices::{described, host_options, looking, unique, until};
use crate::common::{block, get, write_sensor};
use chappe_node::Node;
use chappe_transport::Drops;
use serde_json::Value;

/// Elements by which the sensor is behind when the device leaves.
const BEHIND: u64 = 40;

#[test]
fn the_last_elements_of_a_device_are_evaluated() {
    let directory = tempfile::tempdir().unwrap();
    let property = format!("urn:example:{}", unique());
    // Each evaluation joins 2.5 million rows: it takes several times as long as the device from element to element.
    let sensor = format!(
        "name = \"slow\"\n[[source]]\nalias = \"s\"\nquery = {{ observed_property = \"{property}\" }}\n\
         window = 40\nslide = 1\n[output]\nsql = \"select count(*) as v from s a, s b, s c, s d\"\n\
         [[output.field]]\nname = \"v\"\ntype = \"integer\"\n"
    );
    write_sensor(directory.path(), "slow", &sensor);
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let device = described(directory.path(), "fast", &property, 20);
        let device = device
            .start(host_options("127.0.9.61"), Drops::default())
            .unwrap();
        let path = "/api/v1/virtual-sensors/slow";
        let bound = |sensor: &Value| {
            let bound = &sensor["sources"][0]["bound"][0];
            Some(bound["stream"].as_str()?.to_owned())
        };
        let shown = until(&node, path, |sensor| bound(sensor).is_some()).await;
        let source = node.stream(&bound(&shown).unwrap()).unwrap();
        let evaluated = || {
            let newest = node.stream("slow").unwrap().newest(1).unwrap();
            newest.last().map_or(0, |it| it.origin.unwrap().sequence)
        };
        while source.log().last() < evaluated() + BEHIND {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        device.stop().await;
        until(&node, path, |sensor| bound(sensor).is_none()).await;
        assert_eq!(evaluated(), source.log().last());
        node.shutdown().await.unwrap();
    });
}

#[test]
fn the_last_slide_of_a_device_is_evaluated() {
    let directory = tempfile::tempdir().unwrap();
    let property = format!("urn:example:{}", unique());
    // Silence alone would end this slide after two hours.
    let sensor = format!(
        "name = \"hour\"\n[[source]]\nalias = \"s\"\nquery = {{ observed_property = \"{property}\" }}\n\
         window = \"1h\"\nslide = \"1h\"\nwait = \"1h\"\n[output]\nsql = \"select count(*) as n from s\"\n\
         [[output.field]]\nname = \"n\"\ntype = \"integer\"\n"
    );
    write_sensor(directory.path(), "hour", &sensor);
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let device = described(directory.path(), "clock", &property, 20);
        let device = device
            .start(host_options("127.0.9.62"), Drops::default())
            .unwrap();
        let path = "/api/v1/virtual-sensors/hour";
        let is_bound = |sensor: &Value| !sensor["sources"][0]["bound"][0].is_null();
        let shown = until(&node, path, is_bound).await;
        let name = shown["sources"][0]["bound"][0]["stream"].as_str().unwrap();
        let source = node.stream(name).unwrap();
        let first = source.log().last();
        while source.log().last() < first + BEHIND {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        device.stop().await;
        until(&node, path, |sensor| !is_bound(sensor)).await;
        let newest = node.stream("hour").unwrap().newest(1).unwrap();
        let origin = newest.last().and_then(|slide| slide.origin).unwrap();
        assert_eq!(origin.sequence, source.log().last());
        node.shutdown().await.unwrap();
    });
}

#[test]
fn the_silence_of_a_device_that_has_left_is_a_value() {
    let directory = tempfile::tempdir().unwrap();
    let property = format!("urn:example:{}", unique());
    let name = format!("door-{}", unique());
    let query = format!("query = {{ observed_property = \"{property}\" }}");
    let sensor = |sensor: &str, source: &str| {
        let text = format!(
            "name = \"{sensor}\"\n[[source]]\nalias = \"door\"\n{source}\nwindow = \"500ms\"\n\
             slide = \"250ms\"\nclock = \"node\"\n[output]\nsql = \"select count(*) = 0 as silent from door\"\n\
             [[output.field]]\nname = \"silent\"\ntype = \"boolean\"\n"
        );
        write_sensor(directory.path(), sensor, &text);
    };
    sensor("by-name", &format!("stream = \"{name}.reading\""));
    sensor("by-query", &query);
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let device = described(directory.path(), &name, &property, 20);
        let device = device
            .start(host_options("127.0.9.63"), Drops::default())
            .unwrap();
        let sensors = ["by-name", "by-query"];
        for sensor in sensors {
            newest_is(&node, sensor, false).await;
        }
        device.stop().await;
        let entity = format!("/api/v1/entities/urn%3Achappe%3Astream%3A{name}.reading");
        while get(&node, &entity).await.status != 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for sensor in sensors {
            newest_is(&node, sensor, true).await;
            let path = format!("/api/v1/virtual-sensors/{sensor}");
            let shown = get(&node, &path).await.json();
            assert_eq!(shown["state"], "running", "{shown}");
        }
        node.shutdown().await.unwrap();

        // The node finds no device any more.
        let node = Node::start(looking(directory.path())).await.unwrap();
        for sensor in sensors {
            let output = node.stream(sensor).unwrap();
            let before = output.log().last();
            while output.log().last() == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            newest_is(&node, sensor, true).await;
        }
        node.shutdown().await.unwrap();

        // Another query has read nothing.
        let other = query.replace(&property, "urn:example:other");
        sensor("by-query", &other);
        let node = Node::start(looking(directory.path())).await.unwrap();
        let path = "/api/v1/virtual-sensors/by-query";
        let shown = until(&node, path, |sensor| sensor["state"] == "waiting").await;
        assert!(shown["sources"][0]["bound"][0].is_null(), "{shown}");
        node.shutdown().await.unwrap();
    });
}

/// Waits until the newest result of a sensor is this one.
async fn newest_is(node: &Node, sensor: &str, silent: bool) {
    let path = format!("/api/v1/streams/{sensor}/elements?newest=1");
    until(node, &path, |page| {
        page["elements"][0]["values"]["silent"] == silent
    })
    .await;
}
