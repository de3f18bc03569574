//! Goal: links are added, shown and removed over REST and survive a restart; configured links cannot be
//! removed; the directory lists each stream with its structure, as the registry has it.
//! Method: a node on loopback; the links point to addresses where nothing listens.

use std::collections::BTreeSet;

use crate::common::{Operated, config, get, own_address, raw, send};
use chappe_node::Node;
use chappe_stream::{
    Field, FieldType, Position, Quality, StreamElement, StreamSchema, Timestamp, Value,
};
use serde_json::{Value as Json, json};

fn block<T>(future: impl Future<Output = T>) -> T {
    chappe_node::runtime().unwrap().block_on(future)
}

/// An address without a listener.
fn nowhere() -> String {
    format!("http://{}:9", own_address())
}

fn link(name: &str) -> Json {
    json!({ "name": name, "kind": "http_pull", "address": nowhere(), "streams": ["a.*"] })
}

/// Stores a stream of one element.
async fn store_one(node: &Node, name: &str) {
    let schema = StreamSchema {
        fields: vec![Field {
            name: "temperature".into(),
            field_type: FieldType::Double,
            unit: Some("Cel".into()),
            observed_property: None,
            description: None,
        }],
        ..StreamSchema::default()
    };
    let element = StreamElement {
        position: Position::default(),
        source_time: Timestamp(1),
        receive_time: Timestamp(1),
        key: None,
        values: vec![Value::Double(21.5)],
        quality: Quality::Good,
        origin: None,
    };
    node.store(name, &schema, &[element]).await.unwrap();
}

#[test]
fn links_are_added_and_removed_and_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let node = Operated::start(&config, None).await;
        let body = link("a").to_string();
        let answer = send(&node.node, "POST", "/api/v1/links", &[], body.as_bytes()).await;
        assert_eq!(answer.status, 401, "{answer:?}");
        let made = node.change("POST", "/api/v1/links", &link("a")).await;
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(made.json()["selects"], json!(["a.*"]));
        assert_eq!(made.json()["configured"], false);
        assert_eq!(
            node.change("POST", "/api/v1/links", &link("b"))
                .await
                .status,
            201
        );
        let again = node.change("POST", "/api/v1/links", &link("a")).await;
        assert_eq!(again.status, 409, "{again:?}");
        assert!(
            again.json()["hint"]
                .as_str()
                .unwrap()
                .contains("another name")
        );
        let entity = get(&node.node, "/api/v1/entities/urn%3Achappe%3Alink%3Aa")
            .await
            .json();
        assert_eq!(entity["name"], "a");
        let gone = node.change("DELETE", "/api/v1/links/b", &Json::Null).await;
        assert_eq!(gone.status, 204, "{gone:?}");
        let token = node.token.clone();
        node.node.shutdown().await.unwrap();

        let node = Operated::start(&config, Some(token)).await;
        assert_eq!(node.names().await, ["a"]);
        let metrics = get(&node.node, "/metrics").await.body;
        assert!(
            metrics.contains("chappe_link_connected{link=\"a\"} 0"),
            "{metrics}"
        );
        assert!(
            metrics.contains("chappe_link_elements_per_second{link=\"a\"} 0"),
            "{metrics}"
        );
        node.change("DELETE", "/api/v1/links/a", &Json::Null).await;
        let metrics = get(&node.node, "/metrics").await.body;
        assert!(!metrics.contains("link=\"a\""), "{metrics}");
        node.node.shutdown().await.unwrap();
    });
}

/// The file of the links is a pipe here, which accepts nothing before it is read, like a slow disk.
#[test]
fn a_link_that_the_disk_does_not_take_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let node = Operated::start(&config, None).await;
        // Nothing can be written in its place.
        let obstacle = config.data_directory.join("links.json.new");
        std::fs::create_dir(&obstacle).unwrap();
        let body = link("a");
        let refused = node.change("POST", "/api/v1/links", &body).await;
        assert!(refused.status >= 500, "{refused:?}");
        assert!(node.names().await.is_empty(), "it is not kept");
        std::fs::remove_dir(&obstacle).unwrap();
        let made = node.change("POST", "/api/v1/links", &body).await;
        assert_eq!(made.status, 201, "{made:?}");
        let kept = std::fs::read_to_string(config.data_directory.join("links.json")).unwrap();
        assert!(kept.contains("a.*"), "{kept}");
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_invalid_link_is_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let node = Operated::start(&config, None).await;
        node.change("POST", "/api/v1/links", &link("ward-3")).await;
        let mut wrong = Vec::new();
        for (key, value, status, says) in [
            ("name", json!("Ward 3"), 422, "name"),
            ("address", json!("tcp://127.0.0.1:1"), 422, "address"),
            ("streams", json!([]), 422, "streams"),
            ("kind", json!("carrier_pigeon"), 400, "carrier_pigeon"),
            ("colour", json!("red"), 400, "colour"),
        ] {
            let mut body = link("b");
            body[key] = value;
            let answer = node.change("POST", "/api/v1/links", &body).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.body.contains(says), "{answer:?}");
            wrong.push(key);
        }
        assert_eq!(node.names().await, ["ward-3"], "{wrong:?} changed nothing");
        let near = get(&node.node, "/api/v1/links/ward-2").await;
        assert_eq!(near.status, 404);
        assert!(near.json()["hint"].as_str().unwrap().contains("ward-3"));
        let letters = get(&node.node, "/api/v1/links/ward-3/dead-letters")
            .await
            .json();
        assert_eq!(
            letters,
            json!({ "dead_letters": [], "truncated": false, "next": null })
        );
        let path = "/api/v1/links/ward-3/dead-letters/send-again";
        let done = node
            .change("POST", path, &json!({ "numbers": [7] }))
            .await
            .json();
        assert_eq!(
            (done["done"].as_u64(), &done["refused"][0]["number"]),
            (Some(0), &json!(7))
        );
        let all = node.change("POST", path, &json!({})).await.json();
        assert_eq!(all, json!({ "done": 0, "refused": [] }));
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn configured_links_cannot_be_removed() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.links = vec![serde_json::from_value(link("fixed")).unwrap()];
    block(async {
        let node = Operated::start(&config, None).await;
        let shown = get(&node.node, "/api/v1/links/fixed").await.json();
        assert_eq!(shown["configured"], true);
        let kept = node
            .change("DELETE", "/api/v1/links/fixed", &Json::Null)
            .await;
        assert_eq!(kept.status, 409, "{kept:?}");
        assert!(kept.json()["hint"].as_str().unwrap().contains("node.toml"));
        assert_eq!(node.names().await, ["fixed"]);
        node.node.shutdown().await.unwrap();
    });
}

/// Streams with names, types and units of their fields, as the directory has them.
fn fields_listed(directory: &Json) -> BTreeSet<[String; 4]> {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let streams = directory["streams"].as_array().unwrap();
    let fields = streams.iter().flat_map(|stream| {
        let fields = stream["fields"].as_array().unwrap();
        fields.iter().map(|field| {
            let [name, kind, unit] = ["name", "type", "unit"].map(|key| text(&field[key]));
            [text(&stream["name"]), name, kind, unit]
        })
    });
    fields.collect()
}

/// The same from the registry.
async fn fields_registered(node: &Node) -> BTreeSet<[String; 4]> {
    let query = "PREFIX c: <https://chappe.example/ns#> SELECT ?stream ?name ?type ?unit { ?it c:field ?field .
        ?it <http://www.w3.org/2000/01/rdf-schema#label> ?stream .
        ?field c:fieldName ?name ; c:fieldType ?type . OPTIONAL { ?field c:unit ?unit } }";
    let content = [("Content-Type", "application/sparql-query")];
    let answer = send(node, "POST", "/api/v1/sparql", &content, query.as_bytes()).await;
    let answer = answer.json();
    let rows = answer["results"]["bindings"].as_array().unwrap();
    let text = |value: &Json| value["value"].as_str().unwrap_or_default().to_owned();
    let row = |row: &Json| ["stream", "name", "type", "unit"].map(|key| text(&row[key]));
    rows.iter().map(row).collect()
}

#[test]
fn the_directory_tells_each_stream_with_its_structure() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let node = Node::start(config).await.unwrap();
        for name in ["ward.bed1", "ward.bed2", "hall"] {
            store_one(&node, name).await;
        }
        let all = get(&node, "/api/v1/directory?streams=ward.*").await.json();
        let names: Vec<_> = all["streams"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| &s["name"])
            .collect();
        assert_eq!(names, ["ward.bed1", "ward.bed2"]);
        let one = get(&node, "/api/v1/directory/hall").await.json();
        assert_eq!(one["fields"][0]["name"], "temperature");
        assert_eq!(one["fields"][0]["unit"], "Cel");
        assert_eq!((&one["level"], &one["last"]), (&json!("power"), &json!(1)));
        assert_eq!(get(&node, "/api/v1/directory/hal").await.status, 404);
        let directory = get(&node, "/api/v1/directory?streams=*").await.json();
        assert_eq!(fields_listed(&directory), fields_registered(&node).await);
        assert_eq!(fields_listed(&directory).len(), 3);
        node.shutdown().await.unwrap();
    });
}

/// Contact points on this host: refused unless they are allowed, and never for a client that a
/// trusted proxy reports as remote.
#[test]
fn a_proxy_opens_no_port_of_this_host() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let inside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let body =
            json!({ "stream": "ward.a", "contact_point": format!("http://127.0.0.1:{port}/") });
        let body = body.to_string();
        let subscribe = async |node: &Node, more: &str| {
            let request = format!(
                "POST /api/v1/exchange/subscriptions HTTP/1.1\r\nHost: {}\r\n{more}\
                 Content-Length: {}\r\n\r\n",
                node.address(),
                body.len()
            );
            let answer = raw(node.address(), &request, body.as_bytes()).await;
            (answer.status, answer.body)
        };
        let start = async |proxies: &[&str], contact: &[&str]| {
            let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
            let mut config = config(directory.path());
            config.http.trusted_proxies = list(proxies);
            config.exchange.contact = list(contact);
            let node = Node::start(config).await.unwrap();
            store_one(&node, "ward.a").await;
            node
        };
        let node = start(&[], &[]).await;
        let (status, says) = subscribe(&node, "").await;
        assert_eq!(status, 403, "{says}");
        for word in ["exchange", "contact = ", "http.trusted_proxies"] {
            assert!(says.contains(word), "{says}");
        }
        node.shutdown().await.unwrap();

        let node = start(&["127.0.0.0/8"], &["127.0.0.0/8"]).await;
        for forwarded in [
            "Forwarded: for=192.0.2.7\r\n",
            "X-Forwarded-For: 127.0.0.1, 192.0.2.7\r\n",
        ] {
            let (status, says) = subscribe(&node, forwarded).await;
            assert!(
                status == 403 && says.contains("192.0.2.7"),
                "{status} {says}"
            );
        }
        let both = "Forwarded: for=127.0.0.1\r\nX-Forwarded-For: 192.0.2.7\r\n";
        let (status, says) = subscribe(&node, both).await;
        assert!(
            status == 400 && says.contains("different clients"),
            "{status} {says}"
        );
        let drops = get(&node, "/api/v1/drops").await.body;
        assert!(
            drops.contains("192.0.2.7") && drops.contains("forwarded"),
            "{drops}"
        );
        // A subscriber on this host that is named is called.
        let asking = async { subscribe(&node, "Forwarded: for=127.0.0.1\r\n").await };
        let called = async {
            let (stream, _) = inside.accept().await.unwrap();
            drop(stream);
        };
        let ((status, says), ()) = tokio::join!(asking, called);
        assert_eq!(status, 422, "{says}");
        node.shutdown().await.unwrap();
    });
}

#[test]
fn addresses_of_the_exchange_are_bound_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    for address in [
        &mut config.exchange.listen,
        &mut config.exchange.publish,
        &mut config.exchange.directory,
    ] {
        *address = "127.0.0.1:0".to_owned();
    }
    config.exchange.allowed_keys = vec!["ab".repeat(32)];
    block(async {
        let node = Node::start(config.clone()).await.unwrap();
        let listening = get(&node, "/api/v1/links").await.json()["listening"].clone();
        let me = get(&node, "/api/v1/node").await.json();
        assert_eq!(listening["curve_key"], me["curve_key"]);
        for (what, address) in node.listening() {
            assert_eq!(listening[what], address.as_str());
            assert!(address.starts_with("tcp://127.0.0.1:") && !address.ends_with(":0"));
        }
        assert_eq!(node.listening().len(), 3);
        // The address is taken: another node says so, with the key.
        let taken = node.listening()[0].1.clone();
        let other = tempfile::tempdir().unwrap();
        config.data_directory = other.path().join("data");
        config.exchange.listen = taken.strip_prefix("tcp://").unwrap().to_owned();
        let error = Node::start(config).await.unwrap_err();
        assert!(
            error.to_string().starts_with("exchange.listen: "),
            "{error}"
        );
        node.shutdown().await.unwrap();
    });
}
