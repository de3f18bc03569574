//! Goal: data and configuration that an earlier build wrote are served by this one, and go on where they were:
//! streams, former names, a sensor, a wrapper, an exporter, links, accounts, the registry with rights and leases.
//! Method: a copy of a directory that an earlier release program made (`fixtures/earlier`, with a note how); more is
//! written, and the node starts again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use chappe_node::config::{self, Config, Layers};
use serde_json::{Value as Json, json};

use crate::common::linked::until;
use crate::common::{Operated, block, get, send};

/// The token of the node's first administrator.
const TOKEN: &str = "URuV82Ou3ZIgUI0F5gxsZAHDBkZv_ijUYxgbCH5MTVo";
/// The token of the account `ada`.
const ADA: &str = "BVxxc4pCMQhPh9cEyYSNAVikZ2jHXrcfhfH1VP19i5o";
const PUMP: &str = "/api/v1/entities/http%3A%2F%2Fexample.org%2Fpump-7";

/// Copies a directory. Only the owner may read the files: version control does not keep that.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

fn load(directory: &Path) -> Config {
    let path = directory.join("node.toml");
    let text = fs::read_to_string(&path).unwrap();
    let migrated = config::migrate(&path, &text).unwrap();
    assert_eq!(
        (migrated.text.as_str(), migrated.changes.len()),
        (&*text, 0)
    );
    let layers = Layers {
        file: Some((path, text)),
        ..Layers::default()
    };
    let mut config = config::load(&layers).unwrap().config;
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config
}

/// The Celsius of all elements of a stream, in their order; their numbers must be without a gap.
async fn celsius(node: &Operated, stream: &str) -> Vec<f64> {
    let path = format!("/api/v1/streams/{stream}/elements?after=0:0&limit=100");
    let answer = get(&node.node, &path).await.json();
    let elements = answer["elements"].as_array().cloned().unwrap_or_default();
    for (index, element) in elements.iter().enumerate() {
        assert_eq!(element["number"], index + 1, "{stream}: {element}");
    }
    let value = |element: &Json| element["values"]["celsius"].as_f64().unwrap();
    elements.iter().map(value).collect()
}

async fn write(node: &Operated, stream: &str, celsius: f64) {
    let path = format!("/api/v1/streams/{stream}/elements");
    let credential = format!("Bearer {TOKEN}");
    let fields = [
        ("Authorization", credential.as_str()),
        ("Content-Type", "application/x-ndjson"),
    ];
    let body = json!({ "celsius": celsius }).to_string();
    let answer = send(&node.node, "POST", &path, &fields, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

async fn holds(node: &Operated, stream: &str, expected: &[f64]) {
    let holds = async || celsius(node, stream).await.len() >= expected.len();
    until(&format!("{stream} goes on"), holds).await;
    assert_eq!(celsius(node, stream).await, expected, "{stream}");
}

/// The registry, the accounts and the links are those of the earlier build.
async fn is_whole(node: &Operated) {
    assert_eq!(node.names().await, ["ward-4"]);
    let rights = node
        .change("GET", &format!("{PUMP}/rights"), &Json::Null)
        .await;
    let expected = json!({"key": "http://example.org/pump-7", "owner": "operator", "read": ["account:ada"],
        "annotate": null, "write": ["account:ada"], "administer": []});
    assert_eq!(rights.json(), expected);
    assert_eq!(
        get(&node.node, PUMP).await.status,
        404,
        "it is not everybody's"
    );
    let ada = format!("Bearer {ADA}");
    let shown = send(&node.node, "GET", PUMP, &[("Authorization", &ada)], b"").await;
    assert_eq!(shown.json()["name"], "Pump 7");
    let kitchen = get(&node.node, "/api/v1/streams/lab.room").await.json();
    assert_eq!(kitchen["name"], "lab.kitchen");
    assert_eq!(kitchen["former_names"], json!(["lab.room"]));
}

#[test]
fn what_an_earlier_build_wrote_is_served_and_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("earlier");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/earlier");
    copy(&fixture, &directory);
    fs::write(directory.join("wrappers/lines.csv"), "celsius\n19.5\n").unwrap();
    let config = load(&directory);
    block(async {
        let node = Operated::start(&config, Some(TOKEN.to_owned())).await;
        is_whole(&node).await;
        holds(&node, "lab.kitchen", &[20.0, 22.0, 24.0]).await;
        write(&node, "lab.kitchen", 26.0).await;
        write(&node, "lab.room", 28.0).await;
        holds(&node, "lab.kitchen", &[20.0, 22.0, 24.0, 26.0, 28.0]).await;
        // The sensor's window still has the last element of the earlier build.
        holds(&node, "mean", &[20.0, 21.0, 23.0, 25.0, 27.0]).await;
        holds(&node, "hall.climate", &[20.5, 21.0, 19.5]).await;
        // The exporter had written the elements before.
        let exported =
            || fs::read_to_string(directory.join("exporters/out.csv")).unwrap_or_default();
        let is_exported = async || exported().lines().count() >= 3;
        until("the exporter goes on", is_exported).await;
        let lines = exported();
        assert!(
            lines.contains(":4,") && lines.contains(":5,") && !lines.contains(":3,"),
            "{lines}"
        );
        node.node.shutdown().await.unwrap();
        let node = Operated::start(&config, Some(TOKEN.to_owned())).await;
        is_whole(&node).await;
        holds(&node, "mean", &[20.0, 21.0, 23.0, 25.0, 27.0]).await;
        node.node.shutdown().await.unwrap();
    });
}
