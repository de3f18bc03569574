//! Goal: an element that cannot be stored, or that a contact point refuses, becomes a dead letter. A
//! user lists it; resending fails until the cause is removed. A subscription of a contact point
//! survives a restart of the node.
//! Method: real nodes in this process and the built program; the origin of one and the subscriber of
//! the other are foreign programs: a few lines of plain HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use chappe_links::Serialization;
use chappe_links::serialization::{Document, Elements, SchemaId, SchemaRef, Structure};
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{
    Epoch, Field, FieldType, Position, StreamElement, StreamLog, StreamSchema, Timestamp, Value,
};
use serde_json::{Value as Json, json};

/// Time limit of an expected event; generous, because tests share a machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs `chappe link` against a node: exit code and answer.
fn link(node: &Node, token: &str, arguments: &[&str]) -> (Option<i32>, Json) {
    let output = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .arg("link")
        .args(arguments)
        .args(["--node", &node.url(), "--json"])
        .env("CHAPPE_TOKEN", token)
        .output()
        .expect("the program starts");
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), answer)
}

/// Runs `chappe stream completeness` of a stream on another thread: exit code and answer.
async fn completeness(node: &Arc<Node>, stream: &'static str) -> (Option<i32>, Json) {
    let url = node.url();
    let running = tokio::task::spawn_blocking(move || {
        let output = Command::new(env!("CARGO_BIN_EXE_chappe"))
            .args(["stream", "completeness", stream, "--node", &url, "--json"])
            .output()
            .expect("the program starts");
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), answer)
    });
    running.await.expect("it runs")
}

/// [`link`] on another thread, while the node runs in this thread's runtime.
async fn run_link(
    node: &Arc<Node>,
    token: &str,
    arguments: &'static [&'static str],
) -> (Option<i32>, Json) {
    let (node, token) = (node.clone(), token.to_owned());
    let running = tokio::task::spawn_blocking(move || link(&node, &token, arguments));
    running.await.expect("it runs")
}

fn config(directory: &Path) -> Config {
    let mut config = Config {
        name: "test".into(),
        data_directory: directory.join("data"),
        sensors_directory: directory.join("sensors"),
        ..Config::default()
    };
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.discovery.enabled = false;
    config.exchange.contact = vec!["127.0.0.0/8".into()];
    config.log.min_free_bytes = 0;
    // The elements' times are in 1970, so retention would remove them.
    config.log.keep_age_s = 0;
    config
}

fn schema(field_type: FieldType) -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "t".into(),
            field_type,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

fn element(number: u64, value: Value) -> StreamElement {
    StreamElement {
        position: Position {
            epoch: Epoch(0xa1),
            sequence: number,
        },
        source_time: Timestamp(number as i64),
        receive_time: Timestamp(number as i64),
        key: None,
        values: vec![value],
        quality: Default::default(),
        origin: None,
    }
}

/// The values of a stream once it has `count` of them.
async fn values(node: &Node, stream: &str, count: usize) -> Vec<Value> {
    let found = async {
        let log: StreamLog = loop {
            match node.stream(stream) {
                Some(log) => break log,
                None => tokio::task::yield_now().await,
            }
        };
        let mut follower = log.follow(log.log().last() + 1);
        loop {
            let elements = log.newest(1_000).expect("reads");
            if elements.len() >= count {
                return elements.into_iter().flat_map(|it| it.values).collect();
            }
            follower.next().await.expect("reads");
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("{stream} has less than {count} elements"))
}

/// The head and body of a request; `None` at the end of the connection.
fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        head.push_str(&line);
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

/// A foreign origin: the channel feeds its endless answer.
fn foreign_origin() -> (SocketAddr, Sender<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let (sender, documents) = channel::<String>();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a reader");
        let mut stream = BufReader::new(stream);
        let (head, _) = request(&mut stream).expect("a request");
        assert!(
            head.starts_with("GET /api/v1/exchange/streams/ward.a?start=first"),
            "{head}"
        );
        let mut stream = stream.into_inner();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("sent");
        while let Ok(document) = documents.recv() {
            let chunk = format!("{:x}\r\n{document}\r\n", document.len());
            stream.write_all(chunk.as_bytes()).expect("sent");
        }
    });
    (address, sender)
}

fn written(document: &Document, schema: &StreamSchema) -> String {
    let mut bytes = Vec::new();
    Serialization::Xml
        .encode(document, schema, &mut bytes)
        .expect("fits");
    String::from_utf8(bytes).expect("text")
}

fn structure(version: u32, field_type: FieldType) -> String {
    let (stream, schema) = ("ward.a".to_owned(), schema(field_type));
    let document = Document::Structure(Structure {
        stream,
        version,
        schema: schema.clone(),
    });
    written(&document, &schema)
}

fn elements(version: u32, number: u64, value: Value) -> String {
    let schema = schema(value.field_type().expect("a value"));
    let id = SchemaId::of(&schema);
    let document = Document::Elements(Elements {
        stream: "ward.a".into(),
        schema: SchemaRef { id, version },
        elements: vec![element(number, value)],
        ..Elements::default()
    });
    written(&document, &schema)
}

#[test]
fn resending_stores_elements_once_the_stream_accepts_them() {
    let directory = tempfile::tempdir().unwrap();
    let (address, origin) = foreign_origin();
    let mut config = config(directory.path());
    let link = json!({ "name": "far", "kind": "http_pull", "streams": ["ward.a"],
        "address": format!("http://{address}") });
    config.links = vec![serde_json::from_value(link).unwrap()];
    chappe_node::runtime().unwrap().block_on(async {
        let node = Arc::new(Node::start(config).await.unwrap());
        let token = node.new_token().unwrap().to_owned();
        let send = |document: String| origin.send(document).expect("taken");
        send(structure(0, FieldType::Double));
        send(elements(0, 1, Value::Double(20.5)));
        // The structure announces a number, the element carries text.
        let number = elements(0, 2, Value::Double(21.5));
        let word = number.replace("\"double\">21.5", "\"text\">high");
        assert_ne!(word, number);
        send(word);
        send(elements(0, 3, Value::Double(22.5)));
        let stored = values(&node, "ward.a", 2).await;
        assert_eq!(stored, [Value::Double(20.5), Value::Double(22.5)]);

        let (code, listed) = run_link(&node, &token, &["dead-letters", "far"]).await;
        assert_eq!(code, Some(0));
        let letters = listed["dead_letters"].as_array().unwrap();
        assert_eq!(letters.len(), 1, "{listed}");
        assert_eq!(letters[0]["reason"], "schema");
        assert_eq!(letters[0]["origin"], "00000000000000a1:2");
        let (_, shown) = run_link(&node, &token, &["show", "far"]).await;
        assert_eq!(
            (&shown["dead_letters"], &shown["lost"]),
            (&json!(1), &json!({})),
            "{shown}"
        );
        assert_eq!(shown["refused"], json!({ "schema": 1 }));
        let (code, whole) = completeness(&node, "ward.a").await;
        assert_eq!((code, &whole["stored"]), (Some(1), &json!(2)), "{whole}");
        let refused = json!({ "dead_letter_schema": { "elements": 1, "at_most": 1 } });
        assert_eq!(
            (&whole["refused"], &whole["lost"], &whole["exact"]),
            (&refused, &json!({}), &json!(true)),
            "{whole}"
        );
        // A letter has its own source time.
        assert_eq!(
            whole["gaps"][0]["from"], "1970-01-01T00:00:00.000000002Z",
            "{whole}"
        );
        assert_eq!(
            (&whole["gaps"][0]["first"], &whole["gaps"][0]["next"]),
            (&json!(2), &json!(3))
        );
        let (code, refused) = run_link(&node, &token, &["resend", "far", "--all"]).await;
        assert_eq!((code, &refused["done"]), (Some(1), &json!(0)), "{refused}");
        assert!(
            refused["refused"][0]["why"]
                .as_str()
                .unwrap()
                .contains("still does not fit")
        );

        // The origin changes the structure to text.
        send(structure(1, FieldType::Text));
        send(elements(1, 4, Value::Text("fine".into())));
        values(&node, "ward.a", 3).await;
        let (code, done) = run_link(&node, &token, &["resend", "far", "--all"]).await;
        assert_eq!((code, &done["done"]), (Some(0), &json!(1)), "{done}");
        let stored = values(&node, "ward.a", 4).await;
        assert_eq!(
            stored[2..],
            [Value::Text("fine".into()), Value::Text("high".into())]
        );
        let (_, listed) = run_link(&node, &token, &["dead-letters", "far"]).await;
        assert_eq!(listed["dead_letters"], json!([]));
        // It is stored now, so nothing is refused any more.
        let (code, whole) = completeness(&node, "ward.a").await;
        assert_eq!((code, &whole["stored"]), (Some(0), &json!(4)), "{whole}");
        assert_eq!(whole["refused"], json!({}), "{whole}");
        drop(origin);
        Arc::into_inner(node).unwrap().shutdown().await.unwrap();
    });
}

/// A foreign contact point: it refuses even values until the flag is set, and reports each request.
fn foreign_contact_point() -> (SocketAddr, Receiver<String>, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let (sender, receiver) = channel();
    let takes_all = Arc::new(AtomicBool::new(false));
    let takes = takes_all.clone();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (sender, takes) = (sender.clone(), takes.clone());
            std::thread::spawn(move || {
                let mut stream = BufReader::new(stream);
                while let Some((_, body)) = request(&mut stream) {
                    let status = answer(&body, takes.load(Ordering::Relaxed));
                    let confirmed = body.contains("\"confirm\"");
                    let answer = if confirmed {
                        body.replace("confirm", "confirmed")
                    } else {
                        String::new()
                    };
                    let _ = sender.send(body);
                    let length = answer.len();
                    let answer =
                        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{answer}");
                    if stream.get_mut().write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, receiver, takes_all)
}

fn answer(body: &str, takes_all: bool) -> &'static str {
    let value = body.split("type=\"integer\">").nth(1);
    let value = value.and_then(|rest| rest.split('<').next()?.parse::<i64>().ok());
    match value {
        Some(value) if value % 2 == 0 && !takes_all => "422 Not this one",
        _ => "200 OK",
    }
}

/// The next value that a contact point receives.
async fn next_value(seen: Receiver<String>) -> (i64, Receiver<String>) {
    let next = tokio::task::spawn_blocking(move || {
        loop {
            let body = seen.recv_timeout(PATIENCE).expect("a request");
            if let Some(rest) = body.split("type=\"integer\">").nth(1) {
                let value = rest.split('<').next().expect("a value");
                return (value.parse().expect("a number"), seen);
            }
        }
    });
    next.await.expect("sent")
}

#[test]
fn a_restarted_node_resends_refusals_of_a_contact_point() {
    let directory = tempfile::tempdir().unwrap();
    let (address, mut seen, takes_all) = foreign_contact_point();
    let config = config(directory.path());
    chappe_node::runtime().unwrap().block_on(async {
        let node = Arc::new(Node::start(config.clone()).await.unwrap());
        let token = node.new_token().unwrap().to_owned();
        let produce = async |node: &Node, number: i64| {
            let element = element(0, Value::Integer(number));
            let stored = node
                .store("ward.b", &schema(FieldType::Integer), &[element])
                .await;
            stored.unwrap();
        };
        produce(&node, 1).await;
        let body =
            json!({ "stream": "ward.b", "contact_point": format!("http://{address}/inbox") });
        let at = node.address();
        let made = tokio::task::spawn_blocking(move || subscribe(at, &body.to_string()));
        assert_eq!(made.await.expect("it subscribes"), 201);
        produce(&node, 2).await;
        produce(&node, 3).await;
        for wanted in [1, 2, 3] {
            let (value, rest) = next_value(seen).await;
            assert_eq!(value, wanted);
            seen = rest;
        }
        let (_, listed) = run_link(&node, &token, &["dead-letters", "http-push"]).await;
        let letters = listed["dead_letters"].as_array().unwrap();
        assert_eq!(letters.len(), 1, "{listed}");
        assert_eq!(letters[0]["contact"], address.to_string());
        assert!(
            !listed.to_string().contains("inbox"),
            "the path may be a secret: {listed}"
        );
        let (code, refused) = run_link(&node, &token, &["resend", "http-push", "--all"]).await;
        assert_eq!((code, &refused["done"]), (Some(1), &json!(0)), "{refused}");
        takes_all.store(true, Ordering::Relaxed);
        let (code, done) = run_link(&node, &token, &["resend", "http-push", "--all"]).await;
        assert_eq!((code, &done["done"]), (Some(0), &json!(1)), "{done}");
        for wanted in [2, 2] {
            let (value, rest) = next_value(seen).await;
            assert_eq!(value, wanted, "in vain, and with success");
            seen = rest;
        }
        let (_, listed) = run_link(&node, &token, &["dead-letters", "http-push"]).await;
        assert_eq!(listed["dead_letters"], json!([]));

        Arc::into_inner(node).unwrap().shutdown().await.unwrap();
        let node = Node::start(config).await.unwrap();
        produce(&node, 5).await;
        let (value, _) = next_value(seen).await;
        assert_eq!(value, 5, "the subscription survived, without a repeat");
        node.shutdown().await.unwrap();
    });
}

/// Subscribes and returns the status.
fn subscribe(address: SocketAddr, body: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("connected");
    let length = body.len();
    write!(
        stream,
        "POST /api/v1/exchange/subscriptions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .expect("sent");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("an answer");
    line.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status")
}
