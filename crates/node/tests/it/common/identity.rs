//! Devices with a durable identity: real ones of this process on the loopback, and the node's data
//! about them.

use std::net::SocketAddr;

use chappe_device::HostOptions;
use chappe_node::Node;
use chappe_stream::{StreamElement, Value};
use serde_json::Value as Json;

use super::devices::{host_options, unique, until};
use super::linked::stored;
use super::medical::{Hosting, Monitor, Product};
use super::{config, get, own_address};

pub(crate) async fn start(directory: &tempfile::TempDir) -> Node {
    let mut config = config(directory.path());
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    Node::start(config).await.unwrap()
}

/// A product that no other test has.
pub(crate) fn product() -> Product {
    Product {
        name: format!("monitor-{}", unique()),
        model: Some("M1".into()),
        serial_number: Some(unique()),
        ..Product::default()
    }
}

/// A device with its own endpoint address.
pub(crate) fn device(product: &Product, options: HostOptions) -> Monitor {
    let key = chappe_identity::Key::from_seed(chappe_transport::seed().unwrap());
    let endpoint = chappe_device::host::endpoint_of(&key);
    Monitor::start_product(&endpoint, product, Hosting::Together, options)
}

pub(crate) fn anywhere() -> HostOptions {
    host_options(&own_address().to_string())
}

pub(crate) async fn usable(node: &Node, monitor: &Monitor) -> Json {
    until(node, &monitor.path(), |device| device["state"] == "usable").await
}

/// The values of a stream, once there are this many.
pub(crate) async fn values(node: &Node, stream: &str, count: usize) -> Vec<i64> {
    values_until(node, stream, |held| held.len() >= count).await
}

/// The values of a stream, once they are as wanted.
pub(crate) async fn values_until(
    node: &Node,
    stream: &str,
    wanted: impl Fn(&[i64]) -> bool,
) -> Vec<i64> {
    let numbers = |held: &[StreamElement]| -> Vec<i64> {
        let value = |element: &StreamElement| match element.values[0] {
            Value::Double(value) => value as i64,
            _ => panic!("{element:?}"),
        };
        held.iter().map(value).collect()
    };
    let held = stored(node, stream, |held| wanted(&numbers(held))).await;
    numbers(&held)
}

/// The names of all streams of devices of this product.
pub(crate) async fn streams(node: &Node, product: &Product) -> Vec<String> {
    let all = get(node, "/api/v1/streams").await.json();
    let names = all["streams"].as_array().unwrap().iter();
    let names = names.map(|stream| stream["name"].as_str().unwrap().to_owned());
    names
        .filter(|name| name.starts_with(&product.name))
        .collect()
}

/// Whether a notice contains all of this.
pub(crate) async fn has_notice(node: &Node, parts: &[&str]) -> bool {
    let notices = get(node, "/api/v1/notices").await.json();
    let notices = notices["notices"].as_array().unwrap().iter();
    let mut texts = notices.map(|notice| notice["text"].as_str().unwrap());
    texts.any(|text| parts.iter().all(|part| text.contains(part)))
}

/// The address at which a device answers.
pub(crate) async fn contact(node: &Node, monitor: &Monitor) -> SocketAddr {
    let shown = get(node, &monitor.path()).await.json();
    let address = shown["addresses"][0].as_str().unwrap().to_owned();
    let host = address.strip_prefix("http://").unwrap();
    host.split('/').next().unwrap().parse().unwrap()
}
