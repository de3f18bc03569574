//! Goal: the node serves REST, console and live data over TLS, with a self-signed certificate or one from
//! files; a node that cannot load its configured certificate does not start.
//! Method: a node on loopback, queried by a client that trusts its fingerprint.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;

use crate::common::{config, raw, send};
use chappe_identity::{Contact, Proof, Scheme};
use chappe_node::Node;
use chappe_transport::http::{Answer, Client, ClientLimits, Error};
use chappe_transport::tls;

async fn get(address: SocketAddr, client: tls::Client, path: &str) -> Result<Answer, Error> {
    let contact = Contact {
        scheme: Scheme::Https,
        address,
        path: path.to_owned(),
        proof: Proof::default(),
    };
    Client::with_tls(ClientLimits::default(), client)
        .get(&contact)
        .await
}

#[tokio::test]
async fn a_self_signed_certificate_survives_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.http.tls.self_signed = true;
    let mut fingerprints = Vec::new();
    for _ in 0..2 {
        let node = Node::start(config.clone()).await.unwrap();
        let shown = node.fingerprint().unwrap();
        assert!(node.url().starts_with("https://127.0.0.1:"));
        let trusting = || tls::Client::with_fingerprint(shown.parse().unwrap());
        let answer = get(node.address(), trusting(), "/api/v1/node")
            .await
            .unwrap();
        let about: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(about["fingerprint"], shown.as_str());
        assert_eq!(about["url"], node.url());
        // Its certificate has the names that a browser on this machine uses.
        let file = config.data_directory.join("http.pem");
        let named = || tls::Client::with_authorities(&file).unwrap();
        for name in ["localhost", "127.0.0.1"] {
            let answer = get(node.address(), named().named(name), "/").await.unwrap();
            assert!(answer.body.starts_with(b"<!doctype html>"), "{answer:?}");
        }
        fingerprints.push(shown);
        node.shutdown().await.unwrap();
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
}

#[tokio::test]
async fn plain_http_is_answered_in_plain_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.http.tls.self_signed = true;
    let node = Node::start(config).await.unwrap();
    let request = format!("GET /health HTTP/1.1\r\nHost: {}\r\n\r\n", node.address());
    let answer = raw(node.address(), &request, b"").await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("https://"), "{answer:?}");
    // It is counted when it has been answered.
    let reasons = loop {
        let trusted = node.fingerprint().unwrap().parse().unwrap();
        let client = tls::Client::with_fingerprint(trusted);
        let drops = get(node.address(), client, "/api/v1/drops").await.unwrap();
        let drops: serde_json::Value = serde_json::from_slice(&drops.body).unwrap();
        let drops = drops["drops"].as_array().unwrap().clone();
        if !drops.is_empty() {
            break drops.into_iter().map(|drop| drop["reason"].clone());
        }
    };
    assert_eq!(reasons.collect::<Vec<_>>(), ["no TLS"]);
    node.shutdown().await.unwrap();
}

#[tokio::test]
async fn files_are_used_or_the_node_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own.pem");
    let (made, _) = tls::Server::self_signed(&path, "n", "urn:n", &[]).unwrap();
    let mut config = config(directory.path());
    config.http.tls.certificate = path.clone();
    config.http.tls.key = path;
    let node = Node::start(config.clone()).await.unwrap();
    assert_eq!(node.fingerprint().unwrap(), made.fingerprint().to_string());
    node.shutdown().await.unwrap();
    config.http.tls.key = directory.path().join("missing.pem");
    let error = Node::start(config).await.unwrap_err();
    assert!(error.to_string().contains("missing.pem"), "{error}");
    assert!(error.hint().unwrap().contains("self_signed"));
}

/// An authority, a client certificate of `CN=gateway,O=Ward 3` that it signed, and one of the same subject that a
/// stranger signed; openssl made them, and nobody has the keys of the authorities.
const AUTHORITY: &str = include_str!("certificates/authority.pem");
const GATEWAY: &str = include_str!("certificates/gateway.pem");
const STRANGER: &str = include_str!("certificates/stranger.pem");

#[tokio::test]
async fn a_client_certificate_is_the_credential_of_its_account() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        let mut options = std::fs::OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        options
            .open(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        path
    };
    let mut config = config(directory.path());
    let node = Node::start(config.clone()).await.unwrap();
    let token = format!("Bearer {}", node.new_token().unwrap());
    let body = r#"{"name": "ward", "roles": ["read"], "certificate": "cn=gateway, o=Ward 3"}"#;
    let fields = [("Authorization", token.as_str())];
    let added = send(&node, "POST", "/api/v1/accounts", &fields, body.as_bytes()).await;
    assert_eq!(added.status, 201, "{}", added.body);
    assert_eq!(added.json()["token"], serde_json::Value::Null);
    node.shutdown().await.unwrap();

    config.access.read = chappe_node::config::Read::Token;
    config.http.tls.self_signed = true;
    config.http.tls.client_authorities = file("authority.pem", AUTHORITY);
    let node = Node::start(config).await.unwrap();
    let client = || tls::Client::with_fingerprint(node.fingerprint().unwrap().parse().unwrap());
    let shown = |path: &std::path::Path| client().with_certificate(path, path).unwrap();
    let (gateway, stranger) = (file("gateway.pem", GATEWAY), file("stranger.pem", STRANGER));

    let asked = get(node.address(), shown(&gateway), "/api/v1/self")
        .await
        .unwrap();
    let own: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(own, serde_json::json!({"name": "ward", "roles": ["read"]}));
    let asked = get(node.address(), shown(&gateway), "/api/v1/node")
        .await
        .unwrap();
    assert_eq!(asked.status, 200);
    // A client without a certificate is admitted to the connection only.
    let asked = get(node.address(), client(), "/api/v1/node").await;
    assert!(
        matches!(asked, Err(Error::Status { status, .. }) if status == 401),
        "{asked:?}"
    );
    let refused = get(node.address(), shown(&stranger), "/api/v1/node").await;
    assert!(refused.is_err(), "{refused:?}");
    node.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_fingerprint_names_one_client_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).unwrap();
        path
    };
    let mut config = config(directory.path());
    let node = Node::start(config.clone()).await.unwrap();
    let token = format!("Bearer {}", node.new_token().unwrap());
    let fields = [("Authorization", token.as_str())];
    let certificate = chappe_identity::certificate::Certificate::from_pem(GATEWAY).unwrap();
    let certificate = chappe_identity::ClientCertificate::of_der(certificate[0].der());
    // The fingerprint takes precedence over the subject of another account.
    for (name, certificate) in [
        ("ward", "CN=gateway,O=Ward 3".to_owned()),
        ("gateway", certificate.fingerprint().to_string()),
    ] {
        let body = format!(
            r#"{{"name": "{name}", "roles": ["read"], "certificate": "{certificate}", "groups": ["ward-3"]}}"#
        );
        let added = send(&node, "POST", "/api/v1/accounts", &fields, body.as_bytes()).await;
        assert_eq!(added.status, 201, "{}", added.body);
        let account = &added.json()["account"];
        assert_eq!(account["certificate"], certificate);
        assert_eq!(account["groups"], serde_json::json!(["ward-3"]));
    }
    node.shutdown().await.unwrap();

    config.http.tls.self_signed = true;
    config.http.tls.client_authorities = file("authority.pem", AUTHORITY);
    let node = Node::start(config).await.unwrap();
    let client = tls::Client::with_fingerprint(node.fingerprint().unwrap().parse().unwrap());
    let path = file("gateway.pem", GATEWAY);
    let client = client.with_certificate(&path, &path).unwrap();
    let asked = get(node.address(), client, "/api/v1/self").await.unwrap();
    let own: serde_json::Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(own["name"], "gateway");
    node.shutdown().await.unwrap();
}
