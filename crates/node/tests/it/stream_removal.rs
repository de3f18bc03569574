//! Goal: a stream that nothing writes can be removed for good, is not removed by mistake, frees its
//! place, and returns in another epoch; streams that devices left behind empty go by themselves.
//! Method: nodes one after another over the same directory, asked over REST; a client of live data that
//! reads nothing meanwhile, and one that hangs up.

use crate::common::linked::until;
use crate::common::{Live, block, config, elements, get, prepare_log, send};
use chappe_log::Level;
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const PATH: &str = "/api/v1/streams/ward.words";

fn schema() -> StreamSchema {
    elements::schema(&[("text", FieldType::Text)])
}

fn element(text: &str) -> StreamElement {
    elements::element(1, vec![Value::Text(text.into())])
}

async fn delete(node: &Node, token: &str, query: &str) -> (u16, String) {
    let bearer = format!("Bearer {token}");
    let path = format!("{PATH}{query}");
    let answer = send(node, "DELETE", &path, &[("Authorization", &bearer)], b"").await;
    (answer.status, answer.body)
}

#[test]
fn a_stream_is_removed_only_without_source_and_with_force_if_it_holds_elements() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.log.max_streams = 1;
    let token = block(async {
        let node = Node::start(config.clone()).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let two = [element("one"), element("two")];
        node.store("ward.words", &schema(), &two).await.unwrap();
        let (status, body) = delete(&node, &token, "?force=true").await;
        assert!(status == 409 && body.contains("is written by"), "{body}");
        node.shutdown().await.unwrap();
        token
    });
    let epoch = block(async {
        let node = Node::start(config.clone()).await.unwrap();
        let before = get(&node, PATH).await.json();
        assert_eq!(delete(&node, "no token", "?force=true").await.0, 401);
        let (status, body) = delete(&node, &token, "").await;
        assert!(status == 409 && body.contains("holds 2 elements"), "{body}");
        assert!(body.contains("--force"), "{body}");
        assert_eq!(get(&node, PATH).await.json()["last"], 2);
        assert_eq!(delete(&node, &token, "?force=true").await.0, 204);
        assert_eq!(get(&node, PATH).await.status, 404);
        assert_eq!(delete(&node, &token, "?force=true").await.0, 404);
        // Its place is free, though there may be one stream only.
        node.store("other", &schema(), &[element("x")])
            .await
            .unwrap();
        node.shutdown().await.unwrap();
        before["epoch"].clone()
    });
    block(async {
        let mut config = config;
        config.log.max_streams = 2;
        let node = Node::start(config).await.unwrap();
        assert_eq!(get(&node, PATH).await.status, 404);
        let again = [element("again")];
        node.store("ward.words", &schema(), &again).await.unwrap();
        let after = get(&node, PATH).await.json();
        assert_ne!(after["epoch"], epoch);
        assert_eq!(after["last"], 1);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn an_empty_stream_of_a_device_that_never_came_back_is_removed_and_others_stay() {
    let directory = tempfile::tempdir().unwrap();
    prepare_log(directory.path(), |streams| {
        let make = |name, source| {
            let log = streams.stream(name, Level::Power, &schema(), Some(source));
            log.unwrap()
        };
        make("gone.empty", "urn:uuid:1");
        let full = make("gone.full", "urn:uuid:1");
        full.append(&[element("kept")]).unwrap().wait().unwrap();
        make("of-a-link", "urn:chappe:link:far");
    });
    let mut config = config(directory.path());
    config.log.remove_abandoned_s = 1;
    block(async {
        let node = Node::start(config).await.unwrap();
        let is_gone = async || get(&node, "/api/v1/streams/gone.empty").await.status == 404;
        until("the stream is removed", is_gone).await;
        let left = get(&node, "/api/v1/streams").await.json();
        let left = left["streams"].as_array().unwrap().clone();
        let left: Vec<_> = left.iter().map(|stream| stream["name"].clone()).collect();
        assert_eq!(left, ["gone.full", "of-a-link"]);
        node.shutdown().await.unwrap();
    });
}

/// A node whose stream `ward.words`, of two elements, has no source any more, and its token.
async fn abandoned(config: &chappe_node::config::Config) -> (Node, String) {
    let node = Node::start(config.clone()).await.unwrap();
    let token = node.new_token().unwrap().to_owned();
    let two = [element("one"), element("two")];
    node.store("ward.words", &schema(), &two).await.unwrap();
    node.shutdown().await.unwrap();
    (Node::start(config.clone()).await.unwrap(), token)
}

#[test]
fn a_client_that_does_not_read_meanwhile_gets_the_stream_that_comes_again() {
    // More than the buffers between node and client hold, in so many streams that the client does not
    // come to the removed one at once.
    const STREAMS: usize = 12;
    const COUNT: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (node, token) = abandoned(&config(directory.path())).await;
        let mut slow = Live::open(&node, "streams=*", None).await;
        slow.next_of("elements").await;
        let padded = vec![element(&"x".repeat(1_000)); COUNT];
        for number in 0..STREAMS {
            let name = format!("bulk{number}");
            node.store(&name, &schema(), &padded).await.unwrap();
        }
        assert_eq!(delete(&node, &token, "?force=true").await.0, 204);
        let again = [element("again")];
        node.store("ward.words", &schema(), &again).await.unwrap();
        let epoch = get(&node, PATH).await.json()["epoch"].clone();
        loop {
            let event = slow.next_of("elements").await;
            let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            let mut elements = data["elements"].as_array().unwrap().iter();
            if let Some(found) = elements.find(|element| element["stream"] == "ward.words") {
                assert_eq!(
                    (&found["epoch"], &found["values"]["text"]),
                    (&epoch, &"again".into())
                );
                break;
            }
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_removal_runs_to_its_end_when_its_client_hangs_up() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let (node, token) = abandoned(&config(directory.path())).await;
        let mut client = TcpStream::connect(node.address()).await.unwrap();
        let request = format!(
            "DELETE {PATH}?force=true HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
            node.address()
        );
        client.write_all(request.as_bytes()).await.unwrap();
        drop(client);
        until("the removal is told", async || {
            let notices = get(&node, "/api/v1/notices").await.body;
            notices.contains("the stream is removed, with 2 elements")
        })
        .await;
        assert_eq!(get(&node, PATH).await.status, 404);
        node.shutdown().await.unwrap();
    });
}
