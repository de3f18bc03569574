//! Goal: a node that reads over ZeroMQ with a key that is bound to an account reads what the account may read, and
//! nothing once the account is revoked, over sessions, PUB and the directory; a subscription by contact point ends
//! with the account that made it, also if the origin was restarted in between. A key that is bound to no account
//! reads as before.
//! Method: two nodes in this process on loopback with CURVE; the origin's account is revoked while elements flow.

use chappe_node::Node;
use chappe_node::config::{Config, Read};
use chappe_stream::{FieldType, Value};
use serde_json::{Value as Json, json};

use crate::common::elements::{element, schema};
use crate::common::linked::{block, fix, link, origin_config, stored, subscriber_config, until};
use crate::common::{Answer, send};

/// Stores elements with these numbers.
async fn produce(node: &Node, stream: &str, numbers: std::ops::Range<i64>) {
    let schema = schema(&[("value", FieldType::Integer)]);
    let elements: Vec<_> = numbers
        .map(|number| element(number, vec![Value::Integer(number)]))
        .collect();
    node.store(stream, &schema, &elements).await.unwrap();
}

async fn ask(node: &Node, token: &str, method: &str, path: &str, body: &Json) -> Answer {
    let credential = format!("Bearer {token}");
    let fields = [
        ("Content-Type", "application/json"),
        ("Authorization", credential.as_str()),
    ];
    send(node, method, path, &fields, body.to_string().as_bytes()).await
}

fn count(node: &Node, stream: &str) -> usize {
    let log = node.stream(stream);
    log.map_or(0, |log| log.newest(1_000).unwrap().len())
}

/// Produces one element after another until none has arrived for a while.
async fn nothing_arrives(origin: &Node, subscriber: &Node, first: i64) {
    const QUIET: usize = 30;
    let (mut number, mut quiet, mut arrived) = (first, 0, count(subscriber, "ward.bed1"));
    until("nothing more that arrives", || {
        number += 1;
        let now = count(subscriber, "ward.bed1");
        quiet = if now == arrived { quiet + 1 } else { 0 };
        arrived = now;
        let is_quiet = quiet > QUIET;
        async move {
            produce(origin, "ward.bed1", number..number + 1).await;
            is_quiet
        }
    })
    .await;
}

/// The CURVE key of a node that has been started once.
async fn key_of(config: &Config) -> String {
    let node = Node::start(config.clone()).await.unwrap();
    node.shutdown().await.unwrap();
    chappe_node::public_identity(config)
        .unwrap()
        .unwrap()
        .curve_key
}

/// A bound key reads its streams until its account is revoked.
fn over_zeromq(kind: &'static str) {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_subscriber = subscriber_config(here.path());
        let key = key_of(&at_subscriber).await;
        let mut at_origin = origin_config(there.path());
        at_origin.access.read = Read::Token;
        at_origin.exchange.allowed_keys = vec!["*".into()];
        let origin = Node::start(at_origin.clone()).await.unwrap();
        let token = origin.new_token().unwrap().to_owned();
        let body = json!({"name": "ward", "roles": ["read=ward.bed1"], "key": key});
        let added = ask(&origin, &token, "POST", "/api/v1/accounts", &body).await;
        assert_eq!(added.status, 201, "{added:?}");
        assert_eq!(added.json()["token"], Json::Null);
        let body = json!({"name": "other", "roles": ["read"], "key": key});
        let again = ask(&origin, &token, "POST", "/api/v1/accounts", &body).await;
        assert_eq!(again.status, 409, "{again:?}");
        for stream in ["ward.bed1", "ward.bed2"] {
            produce(&origin, stream, 0..1).await;
        }
        let mut link = link(kind, &origin);
        let identity = chappe_node::public_identity(&at_origin).unwrap().unwrap();
        link.server_key = Some(identity.curve_key);
        at_subscriber.links = vec![link];
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        let mut number = 1;
        until("elements of its stream", || {
            let (origin, subscriber) = (&origin, &subscriber);
            number += 1;
            let numbers = number..number + 1;
            async move {
                produce(origin, "ward.bed1", numbers.clone()).await;
                produce(origin, "ward.bed2", numbers).await;
                count(subscriber, "ward.bed1") > 3
            }
        })
        .await;
        assert_eq!(count(&subscriber, "ward.bed2"), 0);
        let revoked = ask(
            &origin,
            &token,
            "DELETE",
            "/api/v1/accounts/ward",
            &Json::Null,
        )
        .await;
        assert_eq!(revoked.status, 204);
        nothing_arrives(&origin, &subscriber, 5_000).await;
        // Forgotten, the key is one of many.
        let path = "/api/v1/accounts/ward?forget=true";
        ask(&origin, &token, "DELETE", path, &Json::Null).await;
        until("elements of a key that is bound to no account", || {
            let (origin, subscriber) = (&origin, &subscriber);
            number += 1;
            let numbers = number + 6_000..number + 6_001;
            async move {
                produce(origin, "ward.bed2", numbers).await;
                count(subscriber, "ward.bed2") > 0
            }
        })
        .await;
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}

#[test]
fn a_session_has_the_rights_of_the_account_of_its_key() {
    over_zeromq("zeromq");
}

#[test]
fn a_subscriber_of_pub_has_the_rights_of_the_account_of_its_key() {
    over_zeromq("zeromq_best_effort");
}

#[test]
fn a_contact_point_gets_nothing_once_the_account_that_subscribed_it_is_revoked() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    block(async {
        let mut at_origin = origin_config(there.path());
        at_origin.access.read = Read::Token;
        let origin = Node::start(at_origin.clone()).await.unwrap();
        fix(&mut at_origin, &origin);
        let token = origin.new_token().unwrap().to_owned();
        let body = json!({"name": "ward", "roles": ["read=ward.*"]});
        let added = ask(&origin, &token, "POST", "/api/v1/accounts", &body)
            .await
            .json();
        produce(&origin, "ward.bed1", 0..20).await;
        let mut link = link("http_push", &origin);
        link.token = Some(added["token"].as_str().unwrap().to_owned());
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.links = vec![link];
        let subscriber = Node::start(at_subscriber).await.unwrap();
        stored(&subscriber, "ward.bed1", |elements| elements.len() >= 20).await;
        origin.shutdown().await.unwrap();
        let origin = Node::start(at_origin).await.unwrap();
        produce(&origin, "ward.bed1", 20..40).await;
        stored(&subscriber, "ward.bed1", |elements| elements.len() >= 40).await;
        let revoked = ask(
            &origin,
            &token,
            "DELETE",
            "/api/v1/accounts/ward",
            &Json::Null,
        )
        .await;
        assert_eq!(revoked.status, 204);
        until("a subscription that is ended", || async {
            let links = ask(&origin, &token, "GET", "/api/v1/links", &Json::Null).await;
            links.json()["peers"].as_array().unwrap().is_empty()
        })
        .await;
        nothing_arrives(&origin, &subscriber, 40).await;
        assert_eq!(count(&subscriber, "ward.bed1"), 40);
        subscriber.shutdown().await.unwrap();
        origin.shutdown().await.unwrap();
    });
}
