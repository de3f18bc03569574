//! Goal: a stream whose source is present is not removed, even before the source registers it; a stream
//! whose link was removed can be removed, and is no longer registered.
//! Method: a real device, a virtual sensor and a link of this process, whose streams are removed with force
//! from before they exist until they are registered.

use crate::common::devices::until as until_shown;
use crate::common::linked::{link, origin_config, stored, subscriber_config, until};
use crate::common::medical::{Hosting, Monitor};
use crate::common::{Answer, Operated, block, config, get};
use chappe_node::Node;
use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};
use serde_json::Value as Json;

const PLAIN: u32 = 262_656;

/// Removes a stream with its elements.
async fn remove(operated: &Operated, stream: &str) -> Answer {
    let path = format!("/api/v1/streams/{stream}?force=true");
    operated.change("DELETE", &path, &Json::Null).await
}

async fn is_registered(operated: &Operated, stream: &str) -> bool {
    let path = format!("/api/v1/entities/urn%3Achappe%3Astream%3A{stream}");
    get(&operated.node, &path).await.status == 200
}

/// Removes a stream repeatedly until it is registered; nothing may be removed.
async fn cannot_remove_until_registered(operated: &Operated, stream: &str) {
    let mut refused = false;
    while !(refused && is_registered(operated, stream).await) {
        let answer = remove(operated, stream).await;
        match answer.status {
            404 => assert!(!refused, "the stream is gone"),
            409 => {
                assert!(answer.body.contains("is written by"), "{}", answer.body);
                refused = true;
            }
            _ => panic!("{answer:?}"),
        }
    }
}

#[test]
fn a_stream_of_a_device_is_removed_only_when_the_device_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let monitor = Monitor::start("127.0.9.61", Hosting::Together);
        let mut config = config(directory.path());
        config.discovery.enabled = true;
        config.discovery.interfaces = vec!["lo".into()];
        let operated = Operated::start(&config, None).await;
        let node = &operated.node;
        let is_usable = |device: &Json| device["state"] == "usable";
        until_shown(node, &monitor.path(), is_usable).await;
        // Registered at once: the streams of the next one wait a while for their turn.
        monitor.put("first", PLAIN, 2).await;
        until("the first one is registered", async || {
            is_registered(&operated, &monitor.stream("first")).await
        })
        .await;
        let late = monitor.stream("late");
        monitor.put("late", PLAIN, 3).await;
        cannot_remove_until_registered(&operated, &late).await;
        for value in 1..=3 {
            monitor.set("late", value).await;
        }
        stored(node, &late, |held| held.len() == 3).await;
        let path = monitor.path();
        monitor.host.stop().await;
        until_shown(node, &path, |device| device["state"] == "gone").await;
        assert_eq!(remove(&operated, &late).await.status, 204);
        operated.node.shutdown().await.unwrap();
    });
}

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "v".into(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn element(number: i64) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(number),
        receive_time: Timestamp(number),
        key: None,
        values: vec![Value::Integer(number)],
        quality: Default::default(),
        origin: None,
    }
}

#[test]
fn a_stream_of_a_virtual_sensor_is_removed_only_without_the_sensor() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        std::fs::create_dir_all(&config.sensors_directory).unwrap();
        let operated = Operated::start(&config, None).await;
        operated
            .node
            .store("in", &schema(), &[element(0)])
            .await
            .unwrap();
        let file = config.sensors_directory.join("copy.toml");
        let text = "name = \"copy\"\n[[source]]\nalias = \"source\"\nstream = \"in\"\nwindow = 1\n\
             [output]\nstream = \"copy\"\nsql = \"select v from source\"\n\
             [[output.field]]\nname = \"v\"\ntype = \"integer\"\n";
        std::fs::write(&file, text).unwrap();
        cannot_remove_until_registered(&operated, "copy").await;
        let is_running = |sensor: &Json| sensor["state"] == "running";
        until_shown(&operated.node, "/api/v1/virtual-sensors/copy", is_running).await;
        operated
            .node
            .store("in", &schema(), &[element(1)])
            .await
            .unwrap();
        let is_copied = |held: &[StreamElement]| {
            held.last()
                .is_some_and(|last| last.values == [Value::Integer(1)])
        };
        stored(&operated.node, "copy", is_copied).await;
        std::fs::remove_file(&file).unwrap();
        until("it is removed without its sensor", async || {
            remove(&operated, "copy").await.status == 204
        })
        .await;
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn streams_that_are_being_defined_when_their_link_is_removed_can_be_removed() {
    const STREAMS: usize = 200;
    let (far, near) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let origin = Node::start(origin_config(far.path())).await.unwrap();
        for number in 0..STREAMS {
            let name = format!("ward.s{number}");
            origin.store(&name, &schema(), &[element(1)]).await.unwrap();
        }
        let operated = Operated::start(&subscriber_config(near.path()), None).await;
        let node = &operated.node;
        let names = async || {
            let all = get(node, "/api/v1/streams").await.json();
            let names = all["streams"].as_array().unwrap().iter();
            let names = names.map(|stream| stream["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        for kind in ["zeromq", "http_pull"] {
            let link = link(kind, &origin);
            let body = serde_json::to_value(&link).unwrap();
            let added = operated.change("POST", "/api/v1/links", &body).await;
            assert_eq!(added.status, 201, "{added:?}");
            until("a stream comes", async || !names().await.is_empty()).await;
            let path = format!("/api/v1/links/{}", link.name);
            assert_eq!(
                operated.change("DELETE", &path, &Json::Null).await.status,
                204
            );
            until("all its streams are removed", async || {
                let names = names().await;
                for name in &names {
                    remove(&operated, name).await;
                }
                names.is_empty()
            })
            .await;
            let entities = get(node, "/api/v1/entities?kind=stream").await.body;
            assert!(!entities.contains("urn:chappe:stream:ward"), "{entities}");
        }
        operated.node.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}
