//! Goal: the endpoint address that a device chooses gives it no control over entities of others.
//!
//! Method: real devices on the loopback. One has a stream and a service; others use the keys of
//! these as their own. The entities of the stream and of the service must not change.

use crate::common::devices::{device, host_options, looking, unique, until};
use crate::common::*;
use chappe_device::{DeviceHost, HostOptions};
use chappe_dpws::metadata::{ThisDevice, ThisModel};
use chappe_node::Node;
use chappe_transport::Drops;

fn stranger(endpoint: &str, address: &str) -> DeviceHost {
    let options: HostOptions = host_options(address);
    DeviceHost::builder(endpoint)
        .model(ThisModel {
            manufacturer: vec!["Stranger".into()],
            ..ThisModel::default()
        })
        .device(ThisDevice {
            friendly_name: vec!["stranger".into()],
            ..ThisDevice::default()
        })
        .options(options)
        .start(Drops::default())
        .unwrap()
}

fn path(collection: &str, key: &str) -> String {
    let key = key.replace(':', "%3A").replace('/', "%2F");
    format!("/api/v1/{collection}/{key}")
}

#[test]
fn a_device_replaces_nothing_by_calling_itself_like_it() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(looking(directory.path())).await.unwrap();
        let name = format!("honest-{}", unique());
        let honest = device(directory.path(), &name, "urn:example:t", "127.0.13.1");
        let known = path("devices", honest.host().endpoint());
        let known = until(&node, &known, |device| device["state"] == "usable").await;
        let stream = known["streams"][0].as_str().unwrap();
        let stream_key = format!("urn:chappe:stream:{stream}");
        let before = get(&node, &path("entities", &stream_key)).await.json();
        assert_eq!(before["kind"], "stream");
        let all = get(&node, "/api/v1/entities?kind=service").await.json();
        let services: Vec<_> = all["entities"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| {
                one["triples"]
                    .to_string()
                    .contains(honest.host().endpoint())
            })
            .cloned()
            .collect();

        let as_stream = stranger(&stream_key, "127.0.13.2");
        // Followed, or refused: then the drops say so.
        let is_of_stream = |drop: &serde_json::Value| {
            drop["reason"] == "endpoint refused"
                && drop["detail"].as_str().unwrap().contains(stream)
        };
        loop {
            let drops = get(&node, "/api/v1/drops").await.json();
            if drops["drops"].as_array().unwrap().iter().any(is_of_stream) {
                break;
            }
            let device = get(&node, &path("devices", &stream_key)).await;
            assert_ne!(device.status, 200, "it is followed: {device:?}");
            tokio::task::yield_now().await;
        }
        // Keys of services were once made of the endpoint address in this form.
        let service = services.last().unwrap()["key"].as_str().unwrap();
        let called = match service.starts_with(honest.host().endpoint()) {
            true => service.to_owned(),
            false => format!("{}/service/1", honest.host().endpoint()),
        };
        let as_service = stranger(&called, "127.0.13.3");
        let shown = path("devices", &called);
        until(&node, &shown, |device| device["state"] == "usable").await;
        let mut entity = get(&node, &path("entities", service)).await.json();
        // Only the answer with one entity says what the caller may do.
        let may = entity
            .as_object_mut()
            .and_then(|entity| entity.remove("may"));
        assert_eq!(may, Some(serde_json::json!(["read"])));
        assert_eq!(&entity, services.last().unwrap());
        as_stream.stop().await;
        as_service.stop().await;
        until(&node, &shown, |device| device["state"] == "gone").await;
        let after = get(&node, &path("entities", &stream_key)).await.json();
        assert_eq!(after, before);
        node.shutdown().await.unwrap();
        honest.stop().await;
    });
}

#[test]
fn one_address_with_many_devices_keeps_no_device_of_another_out() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = looking(directory.path());
        // What other tests of this host announce is seen too, and has addresses of its own.
        config.discovery.max_devices = 20;
        let node = Node::start(config).await.unwrap();
        let mut many = Vec::new();
        for _ in 0..24 {
            let endpoint = format!("urn:example:{}", unique());
            many.push(stranger(&endpoint, "127.0.13.66"));
        }
        let refused = |drops: &serde_json::Value| {
            let mut drops = drops["drops"].as_array().unwrap().iter();
            drops.any(|drop| drop["reason"] == "too many devices")
        };
        until(&node, "/api/v1/drops", refused).await;
        let name = format!("alone-{}", unique());
        let alone = device(directory.path(), &name, "urn:example:t", "127.0.13.67");
        let shown = path("devices", alone.host().endpoint());
        let usable = until(&node, &shown, |device| device["state"] == "usable").await;
        let stream = usable["streams"][0].as_str().unwrap();
        let stream = format!("/api/v1/streams/{stream}");
        until(&node, &stream, |stream| stream["last"].as_u64() > Some(2)).await;
        // For a moment there is one less: one gives way before the next one comes in.
        let is_full = |list: &serde_json::Value| list["devices"].as_array().unwrap().len() == 20;
        until(&node, "/api/v1/devices", is_full).await;
        // Its place goes to one that had none.
        let endpoint = alone.host().endpoint().to_owned();
        alone.stop().await;
        let is_full_without = |list: &serde_json::Value| {
            let mut devices = list["devices"].as_array().unwrap().iter();
            is_full(list)
                && devices
                    .all(|device| device["state"] != "gone" && device["endpoint"] != *endpoint)
        };
        until(&node, "/api/v1/devices", is_full_without).await;
        node.shutdown().await.unwrap();
        for one in many {
            one.stop().await;
        }
    });
}
