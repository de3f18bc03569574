//! Two linked nodes, and waits for expected results.

use std::path::Path;
use std::time::Duration;

use chappe_links::LinkConfig;
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::StreamElement;
use serde_json::json;

use super::{PATIENCE, config, own_address};

pub(crate) fn block<T>(future: impl Future<Output = T>) -> T {
    chappe_node::runtime().unwrap().block_on(future)
}

/// Polls until a condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let all = async {
        while !is_so().await {
            // What is waited for needs the processor more.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(PATIENCE, all).await;
    assert!(done.is_ok(), "{what}: not within {PATIENCE:?}");
}

/// Waits until a stream has the expected content; returns its content.
pub(crate) async fn stored(
    node: &Node,
    stream: &str,
    mut is_so: impl FnMut(&[StreamElement]) -> bool,
) -> Vec<StreamElement> {
    until(stream, || async { node.stream(stream).is_some() }).await;
    let log = node.stream(stream).expect("there");
    let mut follower = log.follow(log.log().last() + 1);
    let all = async {
        loop {
            let elements = log.newest(1_000_000).expect("reads");
            if is_so(&elements) {
                return elements;
            }
            follower.next().await.expect("reads");
        }
    };
    let done = tokio::time::timeout(PATIENCE, all).await;
    done.unwrap_or_else(|_| {
        let held = log.newest(1_000_000).expect("reads").len();
        panic!("{stream} has {held} elements after {PATIENCE:?}")
    })
}

/// The origin listens at the same addresses after a restart: no other program takes its ports
/// meanwhile.
pub(crate) fn origin_config(directory: &Path) -> Config {
    let address = own_address();
    let mut config = config(directory);
    config.name = "origin".into();
    // The subscriber calls from another address than that of its contact point.
    config.exchange.contact = vec!["127.0.0.0/8".into()];
    config.http.listen = (address, 0).into();
    // Elements of the tests are as old as they like.
    config.log.keep_age_s = 0;
    config.exchange.listen = format!("{address}:0");
    config.exchange.publish = format!("{address}:0");
    config.exchange.directory = format!("{address}:0");
    config
}

/// The subscriber's contact point is also the same after a restart.
pub(crate) fn subscriber_config(directory: &Path) -> Config {
    let mut config = config(directory);
    config.http.listen = (own_address(), 0).into();
    config.log.keep_age_s = 0;
    config
}

/// Reuses the addresses that a node was assigned at its next start.
pub(crate) fn fix(config: &mut Config, node: &Node) {
    config.http.listen = node.address();
    let address = |what: &str| {
        let listening = node.listening();
        let (_, address) = listening
            .into_iter()
            .find(|(name, _)| *name == what)
            .unwrap();
        address.strip_prefix("tcp://").unwrap().to_owned()
    };
    config.exchange.listen = address("sessions");
    config.exchange.publish = address("publish");
    config.exchange.directory = address("directory");
}

pub(crate) fn link(kind: &str, origin: &Node) -> LinkConfig {
    let listening = |what: &str| {
        let found = origin
            .listening()
            .into_iter()
            .find(|(name, _)| *name == what);
        found.unwrap().1
    };
    let mut link = json!({ "name": "origin", "kind": kind, "streams": ["ward.*"] });
    link["address"] = match kind {
        "zeromq" => json!(listening("sessions")),
        "zeromq_best_effort" => json!(listening("publish")),
        _ => json!(origin.url()),
    };
    if kind == "zeromq_best_effort" {
        link["directory"] = json!(listening("directory"));
    }
    serde_json::from_value(link).unwrap()
}
