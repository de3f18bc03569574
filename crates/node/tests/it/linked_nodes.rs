//! Goal: with two linked nodes each kind of link delivers every element once, across restarts of either
//! side and broken connections; a link can be removed while it runs; a local virtual sensor binds to the
//! streams of a link; CURVE admits only named keys; TLS trusts by fingerprint.
//! Method: nodes in this process on loopback; the elements stored at the subscriber are compared with those at
//! the origin, with bounded waiting.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::linked::{block, fix, link, origin_config, stored, subscriber_config, until};
use crate::common::{config, get, send, start, write_sensor};
use chappe_links::LinkState;
use chappe_node::Node;
use chappe_stream::{
    Field, FieldType, Position, Quality, StreamElement, StreamSchema, Timestamp, Value,
};
use serde_json::{Value as Json, json};

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "temperature".into(),
            field_type: FieldType::Double,
            unit: Some("Cel".into()),
            observed_property: None,
            description: None,
        }],
        ..StreamSchema::default()
    }
}

/// Stores elements with these numbers as values at the origin.
async fn produce(node: &Node, stream: &str, numbers: std::ops::Range<u32>) {
    let elements: Vec<StreamElement> = numbers
        .map(|number| StreamElement {
            position: Position::default(),
            source_time: Timestamp(i64::from(number) * 1_000_000),
            receive_time: Timestamp(i64::from(number) * 1_000_000),
            key: None,
            values: vec![Value::Double(f64::from(number))],
            quality: Quality::Good,
            origin: None,
        })
        .collect();
    node.store(stream, &schema(), &elements).await.unwrap();
}

/// The values of a stream as a node has stored them, in their order.
async fn values(node: &Node, stream: &str) -> Vec<f64> {
    let path = format!("/api/v1/streams/{stream}/elements?after=0:0&limit=10000");
    let answer = get(node, &path).await;
    if answer.status != 200 {
        return Vec::new();
    }
    let body = answer.json();
    let elements = body["elements"].as_array().unwrap();
    elements
        .iter()
        .map(|one| one["values"]["temperature"].as_f64().unwrap())
        .collect()
}

/// Waits until a stream holds these values, and nothing else.
async fn has(node: &Node, stream: &str, wanted: &[f64]) {
    stored(node, stream, |elements| elements.len() >= wanted.len()).await;
    assert_eq!(values(node, stream).await, wanted);
}

fn wanted(numbers: std::ops::Range<u32>) -> Vec<f64> {
    numbers.map(f64::from).collect()
}

async fn state(node: &Node, name: &str) -> Json {
    get(node, &format!("/api/v1/links/{name}")).await.json()
}

async fn connected(node: &Node) {
    until("a connected link", || async {
        node.links().unwrap().show("origin").unwrap().state == LinkState::Connected
    })
    .await;
}

/// Everything, through restarts of both sides.
fn each_element_once(kind: &'static str) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_origin = origin_config(there.path());
        let origin = Node::start(at_origin.clone()).await.unwrap();
        fix(&mut at_origin, &origin);
        produce(&origin, "ward.bed1", 0..300).await;
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.links = vec![link(kind, &origin)];
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        // The contact point is the same after the restart.
        at_subscriber.http.listen = subscriber.address();
        has(&subscriber, "ward.bed1", &wanted(0..300)).await;
        produce(&origin, "ward.bed1", 300..400).await;
        produce(&origin, "ward.bed2", 0..50).await;
        until("what came live, and a new stream", || async {
            values(&subscriber, "ward.bed1").await == wanted(0..400)
                && values(&subscriber, "ward.bed2").await == wanted(0..50)
        })
        .await;
        until("a reader in the metrics", || async {
            get(&origin, "/api/v1/links").await.json()["peers"][0]["kind"] == kind
        })
        .await;
        let entity = "/api/v1/entities/urn%3Achappe%3Astream%3Award.bed1";
        until("a registered stream", || async {
            get(&subscriber, entity).await.status == 200
        })
        .await;

        subscriber.shutdown().await.unwrap();
        produce(&origin, "ward.bed1", 400..500).await;
        let subscriber = Node::start(at_subscriber).await.unwrap();
        has(&subscriber, "ward.bed1", &wanted(0..500)).await;

        origin.shutdown().await.unwrap();
        until("a link that is reported down", || async {
            let link = state(&subscriber, "origin").await;
            link["state"] != "connected" && link["last_error"].is_string()
        })
        .await;
        let origin = Node::start(at_origin).await.unwrap();
        produce(&origin, "ward.bed1", 500..600).await;
        has(&subscriber, "ward.bed1", &wanted(0..600)).await;
        // A subscription that the origin has kept may bring them before the link has asked again.
        connected(&subscriber).await;
        let link = state(&subscriber, "origin").await;
        assert_eq!(link["lost"], json!({}), "{link}");
        assert!(link["reconnects"].as_u64().unwrap() > 0, "{link}");
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn sessions_bring_each_element_once() {
    each_element_once("zeromq");
}

#[test]
fn http_pull_brings_each_element_once() {
    each_element_once("http_pull");
}

#[test]
fn http_push_brings_each_element_once() {
    each_element_once("http_push");
}

#[test]
fn best_effort_stores_arrivals_and_counts_losses() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let origin = Node::start(origin_config(there.path())).await.unwrap();
        produce(&origin, "ward.bed1", 0..1).await;
        let mut at_subscriber = config(here.path());
        at_subscriber.links = vec![link("zeromq_best_effort", &origin)];
        let subscriber = Node::start(at_subscriber).await.unwrap();
        connected(&subscriber).await;
        // What was published before the subscription reached the publisher is not sent again: so
        // produced until something arrives.
        let mut next = 0;
        until("something that arrives", || {
            next += 1;
            let (origin, subscriber) = (&origin, &subscriber);
            async move {
                produce(origin, "ward.bed1", next..next + 1).await;
                subscriber
                    .stream("ward.bed1")
                    .is_some_and(|log| log.log().last() > 0)
            }
        })
        .await;
        next += 1;
        produce(&origin, "ward.bed1", next..next + 100).await;
        until("what came live", || async {
            values(&subscriber, "ward.bed1").await.last() == Some(&f64::from(next + 99))
        })
        .await;
        let stored = values(&subscriber, "ward.bed1").await;
        let once: BTreeSet<u64> = stored.iter().map(|value| value.to_bits()).collect();
        assert_eq!(once.len(), stored.len(), "none twice");
        assert!(stored.is_sorted_by(|one, other| one < other));
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn a_sensor_binds_to_what_a_link_brings_and_a_link_is_removed_while_it_runs() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = "name = \"doubled\"\n[[source]]\nalias = \"bed\"\nstream = \"far.ward.bed1\"\n\
                window = 1\nslide = 1\n[output]\nsql = \"select temperature * 2 as t from bed\"\n\
                [[output.field]]\nname = \"t\"\ntype = \"double\"\n";
    block(async {
        let origin = Node::start(origin_config(there.path())).await.unwrap();
        produce(&origin, "ward.bed1", 0..10).await;
        write_sensor(here.path(), "doubled", file);
        let subscriber = start(here.path()).await;
        let token = format!("Bearer {}", subscriber.new_token().unwrap());
        let fields = [("Authorization", token.as_str())];
        let mut body = serde_json::to_value(link("zeromq", &origin)).unwrap();
        body["as_prefix"] = json!("far");
        let body = body.to_string();
        let added = send(
            &subscriber,
            "POST",
            "/api/v1/links",
            &fields,
            body.as_bytes(),
        )
        .await;
        assert_eq!(added.status, 201, "{added:?}");
        until("a bound sensor", || async {
            let sensor = get(&subscriber, "/api/v1/virtual-sensors/doubled")
                .await
                .json();
            sensor["state"] == "running"
        })
        .await;
        // The sensor may take what came before it was bound, or not: so produced until it speaks.
        let outputs = "/api/v1/streams/doubled/elements?after=0:0";
        let mut next = 10;
        until("an output", || {
            next += 1;
            let (origin, subscriber) = (&origin, &subscriber);
            async move {
                produce(origin, "ward.bed1", next..next + 1).await;
                let body = get(subscriber, outputs).await.json();
                !body["elements"].as_array().unwrap().is_empty()
            }
        })
        .await;

        let stored = values(&subscriber, "far.ward.bed1").await.len();
        let removed = send(&subscriber, "DELETE", "/api/v1/links/origin", &fields, b"").await;
        assert_eq!(removed.status, 204, "{removed:?}");
        until("no reader at the origin", || async {
            get(&origin, "/api/v1/links").await.json()["peers"] == json!([])
        })
        .await;
        assert!(values(&subscriber, "far.ward.bed1").await.len() >= stored);
        // The sensor names the stream, which is stored: it is silent.
        let sensor = get(&subscriber, "/api/v1/virtual-sensors/doubled")
            .await
            .json();
        assert_eq!(sensor["state"], "running", "{sensor}");
        // Added again, it continues after the last element, and so does the sensor.
        let added = send(
            &subscriber,
            "POST",
            "/api/v1/links",
            &fields,
            body.as_bytes(),
        )
        .await;
        assert_eq!(added.status, 201, "{added:?}");
        produce(&origin, "ward.bed1", next + 1..next + 2).await;
        let all = values(&origin, "ward.bed1").await;
        has(&subscriber, "far.ward.bed1", &all).await;
        let newest = "/api/v1/streams/doubled/elements?newest=1";
        until("the sensor evaluates the newest", || async {
            let body = get(&subscriber, newest).await.json();
            body["elements"][0]["values"]["t"].as_f64() == all.last().map(|last| 2.0 * last)
        })
        .await;
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn a_link_goes_on_where_another_was_removed_and_nothing_is_stored_twice() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let origin = Node::start(origin_config(there.path())).await.unwrap();
        produce(&origin, "ward.bed1", 0..100).await;
        let subscriber = Node::start(subscriber_config(here.path())).await.unwrap();
        let token = format!("Bearer {}", subscriber.new_token().unwrap());
        let fields = [("Authorization", token.as_str())];
        let (node, fields) = (&subscriber, &fields);
        let add = async |name: &str, kind: &str| {
            let mut link = link(kind, &origin);
            link.name = name.into();
            link.limits.directory_s = 1;
            let body = serde_json::to_vec(&link).unwrap();
            let added = send(node, "POST", "/api/v1/links", fields, &body).await;
            assert_eq!(added.status, 201, "{added:?}");
        };
        add("one", "zeromq").await;
        has(node, "ward.bed1", &wanted(0..100)).await;
        add("two", "http_push").await;
        until("a refusal that is shown", || async {
            let two = state(node, "two").await;
            let why = two["streams"][0]["refusal"].as_str().unwrap_or_default();
            why.contains("urn:chappe:link:one") && two["state"] == "connected"
        })
        .await;
        produce(&origin, "ward.bed1", 100..200).await;
        has(node, "ward.bed1", &wanted(0..200)).await;
        let metrics = crate::common::get(&origin, "/metrics").await.body;
        for name in [
            "sent_total",
            "sent_again_total",
            "lag_elements",
            "elements_per_second",
        ] {
            let line = format!("\nchappe_link_reader_{name}{{reader=");
            assert!(metrics.contains(&line), "{name}: {metrics}");
        }
        let removed = send(node, "DELETE", "/api/v1/links/one", fields, b"").await;
        assert_eq!(removed.status, 204, "{removed:?}");
        produce(&origin, "ward.bed1", 200..300).await;
        has(node, "ward.bed1", &wanted(0..300)).await;
        let two = state(node, "two").await;
        assert_eq!(two["streams"][0]["refusal"], Json::Null, "{two}");
        assert!(
            two["streams"][0]["received"].as_u64().unwrap() <= 100,
            "{two}"
        );
        assert_eq!(two["lost"], json!({}), "{two}");
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn only_named_keys_read_with_curve() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let stranger = tempfile::tempdir().unwrap();
    block(async {
        // A first start makes the keys.
        let at_subscriber = config(here.path());
        Node::start(at_subscriber.clone())
            .await
            .unwrap()
            .shutdown()
            .await
            .unwrap();
        let known = chappe_node::public_identity(&at_subscriber)
            .unwrap()
            .unwrap();
        let mut at_origin = origin_config(there.path());
        at_origin.exchange.allowed_keys = vec![known.curve_key];
        let origin = Node::start(at_origin.clone()).await.unwrap();
        produce(&origin, "ward.bed1", 0..20).await;
        let mut link = link("zeromq", &origin);
        link.server_key = Some(
            chappe_node::public_identity(&at_origin)
                .unwrap()
                .unwrap()
                .curve_key,
        );
        let run = |directory: &Path| {
            let mut config = config(directory);
            config.links = vec![link.clone()];
            Node::start(config)
        };
        let subscriber = run(here.path()).await.unwrap();
        has(&subscriber, "ward.bed1", &wanted(0..20)).await;
        let other = run(stranger.path()).await.unwrap();
        until("an error", || async {
            state(&other, "origin").await["last_error"].is_string()
        })
        .await;
        assert!(values(&other, "ward.bed1").await.is_empty());
        until("a drop that is reported", || async {
            let drops = get(&origin, "/api/v1/drops").await.json();
            let at_exchange = |drop: &Json| drop["at_hop"] == "exchange";
            drops["drops"].as_array().unwrap().iter().any(at_exchange)
        })
        .await;
        for node in [subscriber, other, origin] {
            node.shutdown().await.unwrap();
        }
    });
}

#[test]
fn a_push_over_tls_goes_to_the_certificate_of_the_subscription() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Its REST interface speaks TLS, so the streams are read in the process.
    let came = async |node: &Node, count: usize| {
        let elements = stored(node, "ward.bed1", |elements| elements.len() >= count).await;
        let found: Vec<_> = elements.into_iter().map(|element| element.values).collect();
        let wanted = (0..count as u32).map(|number| vec![Value::Double(f64::from(number))]);
        assert_eq!(found, wanted.collect::<Vec<_>>());
    };
    block(async {
        let mut at_origin = origin_config(there.path());
        at_origin.http.tls.self_signed = true;
        at_origin.access.read = chappe_node::config::Read::Token;
        let origin = Node::start(at_origin.clone()).await.unwrap();
        produce(&origin, "ward.bed1", 0..20).await;
        let token = origin.new_token().unwrap().to_owned();
        let fingerprint = origin.fingerprint().unwrap();
        let link = json!({ "name": "origin", "kind": "http_push", "streams": ["ward.*"],
            "address": origin.url(), "fingerprint": fingerprint, "token": token });
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.http.tls.self_signed = true;
        at_subscriber.links = vec![serde_json::from_value(link).unwrap()];
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        came(&subscriber, 20).await;
        produce(&origin, "ward.bed1", 20..40).await;
        came(&subscriber, 40).await;
        // Another certificate at the contact point gets nothing.
        let contact_point = format!(
            "{}/api/v1/exchange/contact-points/origin/0",
            subscriber.url()
        );
        let tls = chappe_transport::tls::Client::with_fingerprint(fingerprint.parse().unwrap());
        let client = chappe_transport::http::Client::with_tls(Default::default(), tls);
        let url = format!("{}/api/v1/exchange/subscriptions", origin.url());
        let place = chappe_identity::Contact::parse(&url, 0).unwrap();
        let ask = |fingerprint: Json| {
            let mut headers = axum::http::HeaderMap::new();
            let bearer = format!("Bearer {token}").parse().unwrap();
            headers.insert("authorization", bearer);
            let body = json!({ "stream": "ward.bed1", "contact_point": contact_point,
                "fingerprint": fingerprint });
            let (client, place) = (client.clone(), place.clone());
            async move {
                let body = body.to_string().into();
                let answer = client.request(&place, axum::http::Method::POST, headers, body);
                let answer = answer.await.unwrap();
                let problem: Json = serde_json::from_slice(&answer.body).unwrap();
                (answer.status.as_u16(), problem["detail"].to_string())
            }
        };
        let (status, says) = ask(json!("ab".repeat(32))).await;
        assert!(
            status == 422 && says.contains("fingerprint"),
            "{status} {says}"
        );
        let (status, says) = ask(Json::Null).await;
        assert!(
            status == 400 && says.contains("fingerprint"),
            "{status} {says}"
        );
        // The subscription outlives a restart of the origin with its fingerprint.
        fix(&mut at_origin, &origin);
        origin.shutdown().await.unwrap();
        let origin = Node::start(at_origin).await.unwrap();
        produce(&origin, "ward.bed1", 40..60).await;
        came(&subscriber, 60).await;
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn a_pull_over_tls_trusts_one_fingerprint_and_needs_the_token() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_origin = config(there.path());
        at_origin.http.tls.self_signed = true;
        at_origin.access.read = chappe_node::config::Read::Token;
        let origin = Node::start(at_origin).await.unwrap();
        produce(&origin, "ward.bed1", 0..20).await;
        let token = origin.new_token().unwrap().to_owned();
        let fingerprint = origin.fingerprint().unwrap();
        let run = |name: &str, fingerprint: &str, token: &str| {
            let mut config = config(&here.path().join(name));
            let link = json!({ "name": "origin", "kind": "http_pull", "streams": ["ward.*"],
                "address": origin.url(), "fingerprint": fingerprint, "token": token });
            config.links = vec![serde_json::from_value(link).unwrap()];
            Node::start(config)
        };
        let subscriber = run("right", &fingerprint, &token).await.unwrap();
        has(&subscriber, "ward.bed1", &wanted(0..20)).await;
        let strange = "ab".repeat(32);
        for (name, fingerprint, token, says) in [
            (
                "wrong-fingerprint",
                strange.as_str(),
                token.as_str(),
                "fingerprint",
            ),
            ("wrong-token", fingerprint.as_str(), "x", "token"),
        ] {
            let other = run(name, fingerprint, token).await.unwrap();
            until(says, || async {
                let link = state(&other, "origin").await;
                format!("{} {}", link["last_error"], link["hint"]).contains(says)
            })
            .await;
            other.shutdown().await.unwrap();
        }
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}
