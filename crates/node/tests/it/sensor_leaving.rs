//! Goal: a device that leaves takes none of its elements with it: a virtual sensor that is behind evaluates all
//! that are stored, and the slide that they are in, and only then loses its source.
//! Method: devices that are stopped while sensors read them.

use std::time::Duration;

use crate::common::devices::{described, host_options, looking, unique, until};
use crate::common::{block, write_sensor};
use chappe_node::Node;
use chappe_transport::Drops;
use serde_json::Value;

/// Elements by which the sensor is behind when the device leaves.
const BEHIND: u64 = 40;
/// Elements between two evaluations.
const SLIDE: u64 = 5;

#[test]
fn the_last_elements_of_a_device_are_evaluated() {
    let directory = tempfile::tempdir().unwrap();
    let property = format!("urn:example:{}", unique());
    // Each evaluation joins 2.5 million rows: it takes longer than the device for SLIDE elements.
    let sensor = format!(
        "name = \"slow\"\n[[source]]\nalias = \"s\"\nquery = {{ observed_property = \"{property}\" }}\n\
         window = 40\nslide = {SLIDE}\n[output]\nsql = \"select count(*) as v from s a, s b, s c, s d\"\n\
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
        assert!(evaluated() + SLIDE > source.log().last());
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
