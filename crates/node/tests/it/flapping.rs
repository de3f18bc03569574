//! Goal: a device that keeps leaving and returning is usable when it stays, under the same streams; no
//! acknowledged state is lost or stored twice, and nothing of it remains when it is gone.
//! Method: a real device of this process on loopback that restarts repeatedly, sometimes faster
//! than it can be attached, and a node.

use crate::common::devices::{looking, until};
use crate::common::linked::stored;
use crate::common::medical::{Hosting, Monitor};
use crate::common::{block, get, own_address};
use chappe_node::Node;
use chappe_stream::Value;

const ROUNDS: i64 = 12;
const STATES: i64 = 5;

#[test]
fn a_device_that_flaps_keeps_its_stream_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let address = own_address().to_string();
        let first = Monitor::start(&address, Hosting::Together);
        let (endpoint, name) = (first.host.endpoint().to_owned(), first.name.clone());
        let (path, stream) = (first.path(), first.stream("steady"));
        until(&node, &path, |device| device["state"] == "usable").await;
        first.host.stop().await;
        let mut sent = 0;
        for round in 0..ROUNDS {
            let monitor = Monitor::start_as(&endpoint, &name, &address, Hosting::Together);
            if round % 3 == 2 {
                until(&node, &path, |device| device["state"] == "usable").await;
                for _ in 0..STATES {
                    sent += 1;
                    monitor.set("steady", sent).await;
                }
                stored(&node, &stream, |held| held.len() as i64 >= sent).await;
            }
            monitor.host.stop().await;
        }
        let held = stored(&node, &stream, |held| held.len() as i64 >= sent).await;
        let values = held.iter().map(|element| element.values[0].clone());
        assert!(values.eq((1..=sent).map(|value| Value::Double(value as f64))));
        until(&node, &path, |device| device["state"] == "gone").await;
        let streams = get(&node, "/api/v1/streams").await.json();
        let streams = streams["streams"].as_array().unwrap().iter();
        let names = streams.map(|stream| stream["name"].as_str().unwrap());
        let own: Vec<&str> = names.filter(|stream| stream.starts_with(&name)).collect();
        assert_eq!(own, [stream.as_str()]);
        let key = format!("urn:chappe:stream:{stream}").replace(':', "%3A");
        let entity = format!("/api/v1/entities/{key}");
        let is_removed = || async { get(&node, &entity).await.status == 404 };
        crate::common::linked::until("its stream is not registered", is_removed).await;
        node.shutdown().await.unwrap();
    });
}
