//! Goal: where multicast does not reach, a device that somebody publishes in the distributed hash table
//! is found, described and streamed like any other, and shown with how it was found; what a node finds
//! by multicast it publishes for others; its state can be read.
//! Method: real devices, nodes of the table and nodes in this process, on addresses of the loopback;
//! others that live there at the same time are none of ours.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use crate::common::devices::{device, looking, unique, until};
use crate::common::{block, config, get};
use chappe_device::file::FileDevice;
use chappe_identity::Key;
use chappe_kad::Certificate;
use chappe_node::{Node, StartError};
use chappe_transport::Drops;
use chappe_transport::kad::{KadNode, KadNodeOptions};
use serde_json::Value;

/// A thermometer with a name of its own.
fn thermometer(directory: &Path, address: &str) -> FileDevice {
    let name = format!("far-{}", unique());
    device(directory, &name, "urn:example:temperature", address)
}

fn table_node(host: [u8; 4], client: bool, entrances: &[SocketAddr]) -> KadNode {
    let key = Key::from_seed(chappe_transport::seed().unwrap());
    let options = KadNodeOptions {
        client,
        entrances: entrances.to_vec(),
        report_period: Duration::from_millis(100),
        ..KadNodeOptions::at((Ipv4Addr::from(host), 0).into())
    };
    KadNode::start(key, options, Drops::default()).unwrap()
}

/// A node in the table, which multicast does not reach.
fn far(directory: &Path, entrances: &[SocketAddr]) -> chappe_node::config::Config {
    let mut config = config(directory);
    config.discovery.enabled = true;
    config.discovery.multicast = false;
    config.kad.listen = "127.0.0.1:0".into();
    config.kad.entrances = entrances.to_vec();
    config.kad.search_period_s = 1;
    config
}

fn path_of(device: &FileDevice) -> String {
    let endpoint = device.host().endpoint().replace(':', "%3A");
    format!("/api/v1/devices/{endpoint}")
}

#[test]
fn a_device_that_publishes_itself_becomes_streams_without_any_multicast() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut others = vec![table_node([127, 0, 0, 1], false, &[])];
        for _ in 0..5 {
            others.push(table_node([127, 0, 0, 1], false, &[others[0].local_addr()]));
        }
        let entrances = [others[1].local_addr(), others[2].local_addr()];
        let device = thermometer(directory.path(), "127.0.10.1");
        // The device is a client of the table, at its own address.
        let publisher = table_node([127, 0, 10, 1], true, &entrances);
        publisher.publish(0, device.host().announcement()).await;

        let node = Node::start(far(directory.path(), &entrances))
            .await
            .unwrap();
        let path = path_of(&device);
        let shown = until(&node, &path, |device| device["state"] == "usable").await;
        assert_eq!(shown["found_by"], serde_json::json!(["kad"]), "{shown}");
        assert_eq!(shown["manufacturer"], "Example");
        let stream = format!("/api/v1/streams/{}", shown["streams"][0].as_str().unwrap());
        until(&node, &stream, |stream| stream["last"].as_u64() > Some(2)).await;

        // The state is reported every few seconds: the first report may be older than the first search.
        let state = until(&node, "/api/v1/kad", |state| {
            state["contacts"].as_u64() > Some(2) && state["searches_begun"].as_u64() > Some(0)
        })
        .await;
        assert_eq!(state["listening"], node.kad_address().unwrap().to_string());
        let metrics = get(&node, "/metrics").await.body;
        assert!(metrics.contains("chappe_kad_contacts "), "{metrics}");

        // It ends: nothing listens there any more.
        device.stop().await;
        until(&node, &path, |device| device["state"] == "gone").await;
        publisher.close(Duration::from_secs(10)).await;
        node.shutdown().await.unwrap();

        // Started again, without entrances: it enters by whom it knew.
        let node = Node::start(far(directory.path(), &[])).await.unwrap();
        until(&node, "/api/v1/kad", |state| {
            state["contacts"].as_u64() > Some(2)
        })
        .await;
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_node_alone_finds_what_is_published_at_it() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(far(directory.path(), &[])).await.unwrap();
        let entrance = [node.kad_address().unwrap()];
        let device = thermometer(directory.path(), "127.0.10.3");
        let publisher = table_node([127, 0, 10, 3], true, &entrance);
        publisher.publish(0, device.host().announcement()).await;
        let shown = until(&node, &path_of(&device), |it| it["state"] == "usable").await;
        assert_eq!(shown["found_by"], serde_json::json!(["kad"]), "{shown}");
        // Nobody else is there: a client of the table is no contact.
        let state = get(&node, "/api/v1/kad").await.json();
        assert_eq!(state["contacts"], 0, "{state}");
        node.shutdown().await.unwrap();
        device.stop().await;
    });
}

#[test]
fn a_stranger_who_publishes_an_address_elsewhere_makes_nobody_contact_it() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let first = table_node([127, 0, 0, 1], false, &[]);
        let entrance = [first.local_addr()];
        let victim = thermometer(directory.path(), "127.0.10.2");
        let stranger = table_node([127, 0, 0, 1], false, &entrance);
        stranger.publish(0, victim.host().announcement()).await;
        let node = Node::start(far(directory.path(), &entrance)).await.unwrap();
        let path = path_of(&victim);
        let refused = |device: &Value| {
            device["state"] == "attention" && device["reason"] != "it is being described"
        };
        let shown = until(&node, &path, refused).await;
        assert!(shown["hint"].is_string(), "{shown}");
        assert_eq!(shown["manufacturer"], Value::Null);
        // Its own word counts: then it is used.
        let own = table_node([127, 0, 10, 2], true, &entrance);
        own.publish(0, victim.host().announcement()).await;
        until(&node, &path, |device| device["state"] == "usable").await;
        node.shutdown().await.unwrap();
        victim.stop().await;
    });
}

#[test]
fn what_one_node_finds_by_multicast_another_finds_in_the_table() {
    let (near_directory, far_directory) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let device = thermometer(near_directory.path(), "127.0.0.1");
        let mut near = looking(near_directory.path());
        near.kad.listen = "127.0.0.1:0".into();
        let near = Node::start(near).await.unwrap();
        let entrance = [near.kad_address().unwrap()];
        let far = Node::start(far(far_directory.path(), &entrance))
            .await
            .unwrap();
        let path = path_of(&device);
        // The near one finds it in the table, too, once it has published it there.
        let by = |way: &'static str| {
            move |device: &Value| {
                let ways = device["found_by"].as_array();
                let found = ways.is_some_and(|ways| ways.iter().any(|it| it == way));
                found && device["state"] == "usable"
            }
        };
        until(&near, &path, by("discovery")).await;
        let found = until(&far, &path, by("kad")).await;
        assert_eq!(found["found_by"], serde_json::json!(["kad"]), "{found}");
        until(&near, "/api/v1/kad", |state| {
            state["publications"].as_u64() > Some(0)
        })
        .await;
        // A third one finds the entrance by multicast alone.
        let third_directory = tempfile::tempdir().unwrap();
        let mut third = looking(third_directory.path());
        third.kad.listen = "127.0.0.1:0".into();
        let third = Node::start(third).await.unwrap();
        until(&third, "/api/v1/kad", |state| {
            state["contacts"].as_u64() > Some(0)
        })
        .await;
        device.stop().await;
        until(&far, &path, |device| device["state"] == "gone").await;
        for node in [near, far, third] {
            node.shutdown().await.unwrap();
        }
    });
}

#[test]
fn a_certificate_that_is_none_of_this_nodes_keeps_it_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let owner = Key::from_seed([3; 32]);
        let other = Key::from_seed([4; 32]).public();
        let mut config = far(directory.path(), &[]);
        config.kad.owner = owner.public().to_string();
        config.kad.certificate = Certificate::issue(&owner, &other, u64::MAX >> 1).to_string();
        let error = Node::start(config.clone()).await.unwrap_err();
        assert!(matches!(error, StartError::Kad { .. }), "{error}");
        let hint = error.hint().expect("a hint");
        // The hint names the key that wants admitting.
        let key: chappe_identity::PublicKey = hint.rsplit(' ').next().unwrap().parse().unwrap();
        let ended = Certificate::issue(&owner, &key, 1_000);
        config.kad.certificate = ended.to_string();
        let error = Node::start(config.clone()).await.unwrap_err();
        assert!(error.to_string().contains("ended"), "{error}");
        config.kad.certificate = Certificate::issue(&owner, &key, u64::MAX >> 1).to_string();
        let node = Node::start(config).await.unwrap();
        let state = get(&node, "/api/v1/kad").await.json();
        assert_eq!(state["members_only"], true);
        node.shutdown().await.unwrap();
    });
}
