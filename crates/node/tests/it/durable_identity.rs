//! Goal: a device that appears under another endpoint address continues its streams if its durable
//! identity is the same and the device of the old address is gone; otherwise no stream changes owner.
//! Method: real devices of this process on loopback that appear and leave as scripted, and a node.

use crate::common::devices::{host_options, unique, until};
use crate::common::identity::*;
use crate::common::medical::{Hosting, Monitor, Product};
use crate::common::{block, get, own_address};
use chappe_device::HostOptions;
use serde_json::Value as Json;

const PLAIN: u32 = 262_656;
const PERCENT: u32 = 262_688;

#[test]
fn a_device_under_another_endpoint_continues_its_stream_and_what_depends_on_it() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    let property = 1 + u32::from_str_radix(&unique()[..6], 16).unwrap();
    let sensor = format!(
        "name = \"follower\"\n[[source]]\nalias = \"s\"\nbind = \"one\"\n\
         query = {{ observed_property = \"urn:oid:1.2.840.10004.1.1.1.0.0.1.{property}\" }}\n\
         window = 1\n[output]\nsql = \"select value as v from s\"\n\
         [[output.field]]\nname = \"v\"\ntype = \"double\"\n"
    );
    crate::common::write_sensor(directory.path(), "follower", &sensor);
    block(async {
        let node = start(&directory).await;
        let is_bound = |sensor: &Json| sensor["sources"][0]["bound"][0]["stream"] == *stream;
        let follower = "/api/v1/virtual-sensors/follower";
        let old = device(&product, anywhere());
        old.put_silently("steady", PLAIN, property);
        usable(&node, &old).await;
        until(&node, follower, is_bound).await;
        old.set("steady", 1).await;
        values(&node, &stream, 1).await;
        values(&node, "follower", 1).await;
        let (old_path, old_endpoint) = (old.path(), old.host.endpoint().to_owned());
        old.host.stop().await;

        let new = device(&product, anywhere());
        new.put_silently("steady", PLAIN, property);
        let shown = usable(&node, &new).await;
        assert_eq!(shown["streams"], serde_json::json!([stream]));
        until(&node, follower, is_bound).await;
        new.set("steady", 2).await;
        assert_eq!(values(&node, &stream, 2).await, [1, 2]);
        assert_eq!(values(&node, "follower", 2).await, [1, 2]);
        assert_eq!(streams(&node, &product).await, [&*stream]);
        let has_notice =
            has_notice(&node, &["continues", &old_endpoint, new.host.endpoint()]).await;
        assert!(has_notice, "{}", get(&node, "/api/v1/notices").await.body);
        let left = get(&node, &old_path).await.json();
        assert_eq!(left["state"], "gone");
        assert_eq!(left["streams"], serde_json::json!([]));
        let key = format!("urn:chappe:stream:{stream}").replace(':', "%3A");
        let entity = get(&node, &format!("/api/v1/entities/{key}")).await;
        assert_eq!(entity.status, 200, "{}", entity.body);
        assert!(entity.body.contains(new.host.endpoint()), "{}", entity.body);
        node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn fifty_restarts_under_new_endpoints_use_one_stream() {
    with_product(async |directory, product, stream| {
        let node = start(&directory).await;
        for restart in 0..50 {
            let one = device(&product, anywhere());
            one.valued("steady", restart);
            usable(&node, &one).await;
            let held = values(&node, &stream, restart as usize + 1).await;
            assert!(held.iter().copied().eq(0..=restart), "{held:?}");
            assert_eq!(streams(&node, &product).await, [&*stream]);
            one.host.stop().await;
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_device_that_restarts_at_the_same_port_without_a_word_continues_its_stream() {
    with_product(async |directory, product, stream| {
        let node = start(&directory).await;
        let address = own_address().to_string();
        let old = device(&product, host_options(&address));
        begin(&node, &old, &stream).await;
        let port = contact(&node, &old).await.port();
        let path = old.path();
        // No Bye; its port is taken at once, so that a connection says nothing.
        drop(old);
        let options = HostOptions {
            port,
            ..host_options(&address)
        };
        let new = loop {
            let key = chappe_identity::Key::from_seed(chappe_transport::seed().unwrap());
            let endpoint = chappe_device::host::endpoint_of(&key);
            match Monitor::try_start(&endpoint, &product, Hosting::Together, options.clone()) {
                Ok(new) => break new,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        usable(&node, &new).await;
        new.set("steady", 2).await;
        assert_eq!(values(&node, &stream, 2).await, [1, 2]);
        until(&node, &path, |device| device["state"] == "gone").await;
        assert_eq!(streams(&node, &product).await, [&*stream]);
        node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn the_identity_outlives_the_node() {
    with_product(async |directory, product, stream| {
        let old = device(&product, anywhere());
        let node = start(&directory).await;
        begin(&node, &old, &stream).await;
        node.shutdown().await.unwrap();
        let old_endpoint = old.host.endpoint().to_owned();
        old.host.stop().await;
        // Another unit, too: another version of the schema of the same stream.
        let new = device(&product, anywhere());
        new.put_silently("steady", PERCENT, 1);
        let node = start(&directory).await;
        usable(&node, &new).await;
        new.set("steady", 2).await;
        // 1 in the former unit is 100 %.
        assert_eq!(values(&node, &stream, 2).await, [100, 2]);
        assert_eq!(streams(&node, &product).await, [&*stream]);
        let log = node.stream(&stream).unwrap();
        assert_eq!(log.schema_version(), 1);
        assert_eq!(log.schema().fields[0].unit.as_deref(), Some("%"));
        assert!(has_notice(&node, &["continues", &old_endpoint]).await);
        node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn two_devices_with_one_serial_number_stay_apart() {
    with_product(async |directory, product, stream| {
        let mut node = start(&directory).await;
        let first = device(&product, anywhere());
        begin(&node, &first, &stream).await;
        let second = device(&product, anywhere());
        let shown = usable(&node, &second).await;
        let other = shown["streams"][0].as_str().unwrap().to_owned();
        assert_ne!(other, stream);
        let endpoints = [first.host.endpoint(), second.host.endpoint()];
        assert!(has_notice(&node, &["may still be present", endpoints[0], endpoints[1]]).await);
        for round in 0..2 {
            second.set("steady", 10 + round).await;
            first.set("steady", 2 + round).await;
            let count = 2 + round as usize;
            let held = values(&node, &stream, count).await;
            assert!(held.iter().copied().eq(1..=2 + round), "{held:?}");
            let held = values(&node, &other, count - 1).await;
            assert!(held.iter().copied().eq(10..=10 + round), "{held:?}");
            if round == 0 {
                // Each finds its own again, whichever comes first.
                node.shutdown().await.unwrap();
                node = start(&directory).await;
                usable(&node, &first).await;
                usable(&node, &second).await;
            }
        }
        assert_eq!(streams(&node, &product).await.len(), 2);
        node.shutdown().await.unwrap();
        first.host.stop().await;
        second.host.stop().await;
    });
}

#[test]
fn while_something_listens_at_the_old_address_its_stream_is_not_taken() {
    with_product(async |directory, product, stream| {
        let old = device(&product, anywhere());
        let node = start(&directory).await;
        begin(&node, &old, &stream).await;
        let address = contact(&node, &old).await;
        node.shutdown().await.unwrap();
        old.host.stop().await;
        // It takes connections and is too busy to answer.
        let busy = tokio::net::TcpListener::bind(address).await.unwrap();
        let new = device(&product, anywhere());
        let node = start(&directory).await;
        let shown = usable(&node, &new).await;
        assert_ne!(shown["streams"], serde_json::json!([stream]));
        assert!(has_notice(&node, &["may still be present"]).await);
        new.set("steady", 2).await;
        let other = shown["streams"][0].as_str().unwrap();
        assert_eq!(values(&node, other, 1).await, [2]);
        assert_eq!(values(&node, &stream, 1).await, [1]);
        drop(busy);
        node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn what_the_old_device_delivered_comes_before_what_the_new_one_sends() {
    with_product(async |directory, product, stream| {
        let node = start(&directory).await;
        let old = device(&product, anywhere());
        usable(&node, &old).await;
        for value in 0..60 {
            old.set("steady", value).await;
        }
        // They may not all be delivered, and some that are may not be stored yet.
        old.host.stop().await;
        let new = device(&product, anywhere());
        new.valued("steady", 60);
        usable(&node, &new).await;
        for value in 61..70 {
            new.set("steady", value).await;
        }
        let is_last = |held: &[i64]| held.last() == Some(&69);
        let held = values_until(&node, &stream, is_last).await;
        let (of_old, of_new) = held.split_at(held.partition_point(|value| *value < 60));
        assert!(
            (0..of_old.len() as i64).eq(of_old.iter().copied()),
            "{held:?}"
        );
        assert!((60..70).eq(of_new.iter().copied()), "{held:?}");
        node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn a_medical_device_without_serial_number_is_recognized_by_its_udi() {
    let directory = tempfile::tempdir().unwrap();
    let meta_data = format!(
        "<p:Udi><p:DeviceIdentifier>04012345678901</p:DeviceIdentifier></p:Udi>\
         <p:SerialNumber>{}</p:SerialNumber>",
        unique()
    );
    let product = Product {
        serial_number: Some("unknown".into()),
        meta_data,
        ..product()
    };
    let without = Product {
        meta_data: String::new(),
        name: format!("monitor-{}", unique()),
        ..product.clone()
    };
    block(async {
        let node = start(&directory).await;
        for value in 0..3 {
            for product in [&product, &without] {
                let one = device(product, anywhere());
                one.valued("steady", value);
                let shown = usable(&node, &one).await;
                let stream = shown["streams"][0].as_str().unwrap();
                let count = if product.meta_data.is_empty() {
                    0
                } else {
                    value
                };
                let held = values(&node, stream, count as usize + 1).await;
                assert!(held.iter().copied().eq(value - count..=value), "{held:?}");
                one.host.stop().await;
            }
        }
        assert_eq!(streams(&node, &product).await.len(), 1);
        assert_eq!(streams(&node, &without).await.len(), 3);
        node.shutdown().await.unwrap();
    });
}

/// Runs a test with a product that no other test has, and the name of its stream.
fn with_product(test: impl AsyncFnOnce(tempfile::TempDir, Product, String)) {
    let product = product();
    let stream = format!("{}.steady", product.name);
    block(test(tempfile::tempdir().unwrap(), product, stream));
}

/// The device is used, and its stream has a first value.
async fn begin(node: &chappe_node::Node, monitor: &Monitor, stream: &str) {
    usable(node, monitor).await;
    monitor.set("steady", 1).await;
    values(node, stream, 1).await;
}
