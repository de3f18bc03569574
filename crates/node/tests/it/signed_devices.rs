//! Goal: calls, answers and events between a device that one node hosts and a node that reads it are signed; a node that
//! does not sign gets nothing.
//! Method: nodes in this process, on the loopback, with certificates of the tests of `identity`.

use chappe_node::config::{Config, Read, SignatureMode};
use serde_json::json;

use crate::common::devices::{unique, until};
use crate::common::linked;
use crate::common::{Operated, block, get, own_address, send};
use crate::signed_uddi::with_signatures;

/// A node that reads devices on the loopback.
fn reader(directory: &std::path::Path, mode: SignatureMode) -> Config {
    let mut config = with_signatures(directory, SignatureMode::Off);
    config.access.read = Read::Open;
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    (config.signatures.devices, config.signatures.events) = (mode, mode);
    config
}

#[test]
fn a_node_reads_the_device_of_another_with_signatures_only() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    block(async {
        let name = unique();
        let mut config = with_signatures(folders[0].path(), SignatureMode::Off);
        config.access.read = Read::Open;
        config.signatures.hosted = SignatureMode::Required;
        std::fs::create_dir_all(&config.exporters_directory).unwrap();
        let file = format!(
            "kind = \"dpws\"\nstreams = [\"{name}\"]\nname = \"{name}\"\ninterfaces = [\"{}\"]\n",
            own_address()
        );
        std::fs::write(config.exporters_directory.join("out.toml"), file).unwrap();
        let host = Operated::start(&config, None).await;
        let fields = json!([{"name": "celsius", "type": "double"}]);
        let stream = json!({"name": name, "fields": fields});
        let defined = host.change("POST", "/api/v1/streams", &stream).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let write = async |value: u32| {
            let path = format!("/api/v1/streams/{name}/elements");
            let body = json!({"celsius": value}).to_string();
            let credential = format!("Bearer {}", host.token);
            let fields = [
                ("Authorization", credential.as_str()),
                ("Content-Type", "application/json"),
            ];
            let written = send(&host.node, "POST", &path, &fields, body.as_bytes()).await;
            assert!((200..300).contains(&written.status), "{written:?}");
        };
        write(1).await;
        let reading = reader(folders[1].path(), SignatureMode::Required);
        let reading = Operated::start(&reading, None).await;
        let unsigned = reader(folders[2].path(), SignatureMode::Off);
        let unsigned = Operated::start(&unsigned, None).await;
        let of_device = |all: &serde_json::Value, state: &str| {
            let mut devices = all["devices"].as_array().unwrap().iter();
            devices.any(|device| device["name"] == name.as_str() && device["state"] == state)
        };
        until(&reading.node, "/api/v1/devices", |all| {
            of_device(all, "usable")
        })
        .await;
        // An event needs a subscriber, so elements are written until one arrives.
        linked::until("an event is stored", || async {
            write(2).await;
            let all = get(&reading.node, "/api/v1/streams").await.json();
            let mut all = all["streams"].as_array().unwrap().iter();
            all.any(|stream| stream["name"].as_str().unwrap().contains(&name))
        })
        .await;
        // The device refused the other node, and says so.
        until(&host.node, "/api/v1/drops", |all| {
            let mut drops = all["drops"].as_array().unwrap().iter();
            drops.any(|drop| drop["reason"] == "signature")
        })
        .await;
        let seen = get(&unsigned.node, "/api/v1/devices").await.json();
        assert!(!of_device(&seen, "usable"), "{seen}");
        for world in [reading, unsigned, host] {
            world.node.shutdown().await.unwrap();
        }
    });
}
