//! Goal: by the rule `devices.replace_after_s` a newcomer of the same friendly name, types and scopes takes the place of
//! a device that is gone, and of no other: neither of one that is alive, whoever claims to be it, nor where two claim it.
//! A replacement leaves one stream with one gap whose cause is named, and what depends on the stream goes on.
//! Method: real devices of this process on loopback that come and leave as scripted, and a node.

use std::time::Duration;

use crate::common::devices::until;
use crate::common::identity::*;
use crate::common::medical::{Monitor, Product};
use crate::common::{Operated, block, config, get, write_sensor};
use chappe_node::Node;
use chappe_node::config::Config;
use serde_json::{Value as Json, json};

const PLAIN: u32 = 262_656;
const PLACES: &str = "/api/v1/devices/places";

/// A node with the rule; 0 s: without it.
async fn started(directory: &tempfile::TempDir, after_s: u32, token: Option<String>) -> Operated {
    let mut config: Config = config(directory.path());
    config.discovery.enabled = true;
    config.discovery.interfaces = vec!["lo".into()];
    config.devices.replace_after_s = after_s;
    Operated::start(&config, token).await
}

/// Another device of the same make: only its serial number differs.
fn like(product: &Product) -> Product {
    Product {
        serial_number: Some(crate::common::devices::unique()),
        ..product.clone()
    }
}

fn monitor(product: &Product) -> Monitor {
    let device = device(product, anywhere());
    device.put_silently("steady", PLAIN, 1);
    device
}

/// The device leaves, and the node knows it.
async fn leave(node: &Node, device: Monitor) {
    let path = device.path();
    device.host.stop().await;
    until(node, &path, |device| device["state"] == "gone").await;
}

/// Waits for longer than the rule does: that nothing happens cannot be waited for otherwise.
async fn pass(after_s: u64) {
    tokio::time::sleep(Duration::from_secs(after_s + 1)).await;
}

/// Waits until the device writes exactly this stream.
async fn writes(node: &Node, device: &Monitor, stream: &str) {
    let wanted = json!([stream]);
    let is_so = |device: &Json| device["state"] == "usable" && device["streams"] == wanted;
    until(node, &device.path(), is_so).await;
}

/// The entries of a list about places of this product; devices of other tests may be here, too.
fn about(product: &Product, list: &Json) -> Vec<Json> {
    let is_its =
        |one: &&Json| one["place"] == *product.name || one["places"] == json!([product.name]);
    let all = list.as_array().unwrap().iter();
    all.filter(is_its).cloned().collect()
}

async fn claims(node: &Node, product: &Product) -> Vec<Json> {
    about(product, &get(node, PLACES).await.json()["claims"])
}

async fn places(node: &Node, product: &Product) -> Vec<Json> {
    about(product, &get(node, PLACES).await.json()["places"])
}

#[test]
fn a_newcomer_takes_the_place_of_a_device_that_is_gone_and_leaves_one_gap() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    let sensor = format!(
        "name = \"follower\"\n[[source]]\nalias = \"s\"\nstream = \"{stream}\"\nwindow = 1\n\
         [output]\nsql = \"select steady as v from s\"\n\
         [[output.field]]\nname = \"v\"\ntype = \"double\"\n"
    );
    write_sensor(directory.path(), "follower", &sensor);
    block(async {
        let operated = started(&directory, 1, None).await;
        let node = &operated.node;
        let is_bound = |sensor: &Json| sensor["sources"][0]["bound"][0]["stream"] == *stream;
        let follower = "/api/v1/virtual-sensors/follower";
        let old = monitor(&product);
        usable(node, &old).await;
        until(node, follower, is_bound).await;
        old.set("steady", 1).await;
        values(node, "follower", 1).await;
        let endpoint = old.host.endpoint().to_owned();
        let reason = {
            let path = old.path();
            leave(node, old).await;
            get(node, &path).await.json()["reason"].clone()
        };
        let path = format!("/api/v1/streams/{stream}/completeness");
        let is_due = |shown: &Json| shown["away"][0]["seconds"].as_f64().unwrap() > 2.0;
        until(node, &path, is_due).await;
        let new = monitor(&like(&product));
        writes(node, &new, &stream).await;
        until(node, follower, is_bound).await;
        new.set("steady", 2).await;
        assert_eq!(values(node, &stream, 2).await, [1, 2]);
        assert_eq!(values(node, "follower", 2).await, [1, 2]);
        assert_eq!(streams(node, &product).await, [&*stream]);
        let shown = get(node, &path).await.json();
        let away = shown["away"].as_array().unwrap();
        assert_eq!(away.len(), 1, "{shown}");
        assert_eq!(away[0]["cause"], reason, "{shown}");
        assert!(away[0]["to"].is_string(), "{shown}");
        assert_eq!(
            (&shown["lost"], &shown["exact"]),
            (&json!({}), &json!(true))
        );

        // On record as an operator's decision is.
        assert!(has_notice(node, &["replaces", &endpoint]).await);
        assert_eq!(places(node, &product).await.len(), 1);
        assert!(claims(node, &product).await.is_empty());
        let sql = "select account, operation, subject, status from \"chappe.audit\"";
        let body = json!({ "sql": sql });
        let audited = operated
            .change("POST", "/api/v1/streams/query", &body)
            .await
            .json();
        let rows = audited["rows"].as_array().unwrap();
        let is_it = |row: &&Json| row[2].as_str().is_some_and(|text| text.contains(&endpoint));
        let row = rows.iter().find(is_it).unwrap();
        let (account, operation, status) = (&row[0], &row[1], &row[3]);
        assert_eq!(
            (account, operation, status),
            (&json!("node"), &json!("replace_device"), &json!(200)),
            "{audited}"
        );
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();

        // The decision outlives the rule.
        let operated = started(&directory, 0, Some(token)).await;
        writes(&operated.node, &new, &stream).await;
        operated.node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn without_the_rule_nothing_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    block(async {
        let operated = started(&directory, 0, None).await;
        let old = monitor(&product);
        writes(&operated.node, &old, &stream).await;
        leave(&operated.node, old).await;
        let new = monitor(&like(&product));
        let shown = usable(&operated.node, &new).await;
        assert_ne!(shown["streams"], json!([stream]));
        assert!(claims(&operated.node, &product).await.is_empty());
        operated.node.shutdown().await.unwrap();
        new.host.stop().await;
    });
}

#[test]
fn who_forges_name_types_and_scopes_gets_nothing_of_a_device_that_is_alive() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    block(async {
        let operated = started(&directory, 1, None).await;
        let node = &operated.node;
        let old = monitor(&product);
        writes(node, &old, &stream).await;
        old.set("steady", 1).await;
        values(node, &stream, 1).await;
        let stranger = monitor(&like(&product));
        let shown = usable(node, &stranger).await;
        let other = shown["streams"][0].as_str().unwrap().to_owned();
        pass(1).await;
        assert!(claims(node, &product).await.is_empty());
        stranger.set("steady", 66).await;
        old.set("steady", 2).await;
        assert_eq!(values(node, &other, 1).await, [66]);
        assert_eq!(values(node, &stream, 2).await, [1, 2]);
        let contact = contact(node, &old).await;
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();

        // The node does not find the device again, yet something listens at its address: it may be there.
        old.host.stop().await;
        let alive = tokio::net::TcpListener::bind(contact).await.unwrap();
        let operated = started(&directory, 1, Some(token)).await;
        let node = &operated.node;
        // It came after the node had started, so that it counts as a newcomer.
        let newcomer = monitor(&like(&product));
        usable(node, &newcomer).await;
        let is_claimed = |places: &Json| {
            let claims = about(&product, &places["claims"]);
            claims.first().is_some_and(|claim| claim["due"].is_string())
        };
        until(node, PLACES, is_claimed).await;
        pass(1).await;
        newcomer.set("steady", 67).await;
        let shown = get(node, &newcomer.path()).await.json();
        assert_ne!(shown["streams"], json!([stream]));
        assert!(places(node, &product).await.is_empty());
        assert_eq!(values(node, &stream, 2).await, [1, 2]);
        // When that ends, the place is free. The stranger was here before, and is no newcomer.
        drop(alive);
        writes(node, &newcomer, &stream).await;
        newcomer.set("steady", 68).await;
        assert_eq!(values(node, &stream, 3).await, [1, 2, 68]);
        operated.node.shutdown().await.unwrap();
        for one in [stranger, newcomer] {
            one.host.stop().await;
        }
    });
}

#[test]
fn of_two_newcomers_none_takes_the_place_until_the_operator_decides() {
    let directory = tempfile::tempdir().unwrap();
    let product = product();
    let stream = format!("{}.steady", product.name);
    block(async {
        // Long enough for both to come.
        let operated = started(&directory, 8, None).await;
        let node = &operated.node;
        let old = monitor(&product);
        writes(node, &old, &stream).await;
        old.set("steady", 1).await;
        values(node, &stream, 1).await;
        let (endpoint, former) = (old.host.endpoint().to_owned(), old.path());
        leave(node, old).await;
        let newcomers = [monitor(&like(&product)), monitor(&like(&product))];
        let mut own = Vec::new();
        for newcomer in &newcomers {
            let shown = usable(node, newcomer).await;
            own.push(shown["streams"][0].as_str().unwrap().to_owned());
        }
        let is_doubtful = |places: &Json| {
            let claims = about(&product, &places["claims"]);
            let is_it =
                |claim: &Json| claim["doubt"] == "2 newcomers claim it" && claim["due"].is_null();
            claims.first().is_some_and(is_it)
        };
        let places = until(node, PLACES, is_doubtful).await;
        let claim = &about(&product, &places["claims"])[0];
        assert!(
            claim["former"].as_str().unwrap().contains(&endpoint),
            "{places}"
        );
        let claimants = claim["devices"].as_array().unwrap();
        for newcomer in &newcomers {
            let is_it = |key: &Json| key.as_str().unwrap().contains(newcomer.host.endpoint());
            assert!(claimants.iter().any(is_it), "{places}");
        }
        assert!(has_notice(node, &["does not decide", "2 newcomers"]).await);
        pass(8).await;
        // Nothing is lost meanwhile.
        for (newcomer, (own, value)) in newcomers.iter().zip(own.iter().zip([10, 20])) {
            newcomer.set("steady", value).await;
            assert_eq!(values(node, own, 1).await, [value]);
        }
        assert_eq!(values(node, &stream, 1).await, [1]);
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();

        // Nor does a restart decide, whichever is found first.
        let operated = started(&directory, 8, Some(token)).await;
        let node = &operated.node;
        for newcomer in &newcomers {
            usable(node, newcomer).await;
        }
        until(node, PLACES, is_doubtful).await;
        let body = json!({ "former": endpoint });
        let path = format!("{}/replace", newcomers[1].path());
        let answer = operated.change("POST", &path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        writes(node, &newcomers[1], &stream).await;
        newcomers[1].set("steady", 21).await;
        assert_eq!(values(node, &stream, 2).await, [1, 21]);
        assert!(claims(node, &product).await.is_empty());
        // A device that was already there ends the gap when it takes the stream over.
        let path = format!("/api/v1/streams/{stream}/completeness");
        let is_whole = |shown: &Json| {
            let away = shown["away"].as_array().unwrap();
            away.iter().all(|one| one["to"].is_string())
        };
        until(node, &path, is_whole).await;
        assert_eq!(
            get(node, &former).await.status,
            404,
            "it was not here in this run"
        );
        operated.node.shutdown().await.unwrap();
        for newcomer in newcomers {
            newcomer.host.stop().await;
        }
    });
}
