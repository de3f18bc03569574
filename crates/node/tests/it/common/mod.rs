//! A node in this process on a free port, and an HTTP client that sends exactly the given bytes.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod devices;
pub(crate) mod elements;
pub(crate) mod identity;
pub(crate) mod linked;
pub(crate) mod medical;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chappe_log::{Options, Store};
use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::StreamStore;
use chappe_transport::FileDisk;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};

/// Time limit for an expected event; generous, since tests share a machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// An address of this host that nothing else uses: a released port of it is still free when it is
/// bound again.
pub(crate) fn own_address() -> Ipv4Addr {
    static GIVEN: AtomicU32 = AtomicU32::new(1);
    // Each process has 4,096 addresses from 127.1.0.0 on.
    let process = std::process::id() & 0x7FF;
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    assert!(number < 1 << 12, "this process has used all its addresses");
    Ipv4Addr::from_bits(0x7F01_0000 + (process << 12 | number))
}

/// The configuration of a node in `directory` that looks for no devices.
pub(crate) fn config(directory: &Path) -> Config {
    let mut config = Config {
        name: "test".into(),
        data_directory: directory.join("data"),
        sensors_directory: directory.join("sensors"),
        wrappers_directory: directory.join("wrappers"),
        exporters_directory: directory.join("exporters"),
        ..Config::default()
    };
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.discovery.enabled = false;
    config.log.min_free_bytes = 0;
    // Elements of tests have times of 1970, and would be removed while they are read.
    config.log.keep_age_s = 0;
    config
}

pub(crate) async fn start(directory: &Path) -> Node {
    Node::start(config(directory)).await.unwrap()
}

/// Fills the log of a node that is not running.
pub(crate) fn prepare_log(directory: &Path, fill: impl FnOnce(&StreamStore)) {
    // The node makes its directories.
    block(async { start(directory).await.shutdown().await.unwrap() });
    let disk = FileDisk::open(directory.join("data/log")).unwrap();
    let (store, _) = Store::open(Box::new(disk), Options::default(), 7).unwrap();
    fill(&StreamStore::new(store.clone()));
    store.close().unwrap();
}

/// Writes the file of a virtual sensor of a node that lives in `directory`.
pub(crate) fn write_sensor(directory: &Path, name: &str, text: &str) {
    let folder = directory.join("sensors");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

/// Runs a test on the runtime of a node.
pub(crate) fn block<T>(future: impl Future<Output = T>) -> T {
    let runtime = chappe_node::runtime().unwrap();
    // A test that waits for what never comes fails instead of hanging.
    let limited = async { tokio::time::timeout(PATIENCE, future).await };
    runtime.block_on(limited).expect("it takes far too long")
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request with exactly these header fields.
pub(crate) async fn raw(address: SocketAddr, request: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A server that refuses a long head, or by the head alone, may close before it has read the rest.
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.write_all(body).await;
    let mut reader = BufReader::new(stream);
    let (status, headers) = head(&mut reader).await;
    let mut bytes = Vec::new();
    if headers
        .get("transfer-encoding")
        .is_some_and(|e| e == "chunked")
    {
        while let Some(chunk) = chunk(&mut reader).await {
            bytes.extend(chunk);
        }
    } else if let Some(length) = headers.get("content-length") {
        bytes.resize(length.parse().unwrap(), 0);
        reader.read_exact(&mut bytes).await.unwrap();
    }
    let body = String::from_utf8(bytes).unwrap();
    Answer {
        status,
        headers,
        body,
    }
}

/// Sends a request as a well-behaved client does.
pub(crate) async fn send(
    node: &Node,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
        node.address(),
        body.len()
    );
    for (name, value) in fields {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    raw(node.address(), &request, body).await
}

pub(crate) async fn get(node: &Node, path: &str) -> Answer {
    send(node, "GET", path, &[], b"").await
}

/// A node with the token of its operator.
pub(crate) struct Operated {
    pub(crate) node: Node,
    pub(crate) token: String,
}

impl Operated {
    /// Starts a node, whose token an earlier run may have printed.
    pub(crate) async fn start(config: &Config, token: Option<String>) -> Self {
        let node = Node::start(config.clone()).await.unwrap();
        let new = node.new_token().map(str::to_owned);
        let token = token.or(new).unwrap();
        Self { node, token }
    }

    /// Sends a request as the operator.
    pub(crate) async fn change(&self, method: &str, path: &str, body: &Value) -> Answer {
        let credential = format!("Bearer {}", self.token);
        let fields = [("Authorization", credential.as_str())];
        let body = body.to_string();
        send(&self.node, method, path, &fields, body.as_bytes()).await
    }

    /// Sends a request with these bytes as the operator.
    pub(crate) async fn change_bytes(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let credential = format!("Bearer {}", self.token);
        send(
            &self.node,
            method,
            path,
            &[("Authorization", &credential)],
            body,
        )
        .await
    }

    /// Adds an account and returns its token.
    pub(crate) async fn account(&self, name: &str, roles: &[&str]) -> String {
        let body = json!({"name": name, "roles": roles});
        let answer = self.change("POST", "/api/v1/accounts", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    /// The names of its links.
    pub(crate) async fn names(&self) -> Vec<String> {
        let links = get(&self.node, "/api/v1/links").await.json();
        let links = links["links"].as_array().unwrap();
        links
            .iter()
            .map(|link| link["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

type Reader = BufReader<TcpStream>;

async fn head(reader: &mut Reader) -> (u16, HashMap<String, String>) {
    let mut line = String::new();
    reader.read_line(&mut line).await.unwrap();
    let status = line.split(' ').nth(1).unwrap_or_default();
    let status = status
        .parse()
        .unwrap_or_else(|_| panic!("no answer: {line:?}"));
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await.unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            return (status, headers);
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
}

async fn chunk(reader: &mut Reader) -> Option<Vec<u8>> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    let length = usize::from_str_radix(line.trim(), 16).ok()?;
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes).await.ok()?;
    bytes.truncate(length);
    (length > 0).then_some(bytes)
}

/// Whether a described operation answers with a stream of events, which has no end. With a variable in its path,
/// none exists under a name that the test makes up.
pub(crate) fn is_endless(path: &str, operation: &Value) -> bool {
    let content = &operation["responses"]["200"]["content"];
    content.get("text/event-stream").is_some() && !path.contains('{')
}

/// One event of a stream of server-sent events.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) event: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

/// A client of live data.
pub(crate) struct Live {
    reader: Reader,
    text: String,
}

impl Live {
    pub(crate) async fn open(node: &Node, query: &str, last_event: Option<&str>) -> Self {
        let opened = Self::try_open(node, query, last_event).await;
        opened.expect("it is let in")
    }

    /// Opens it with the token of an account.
    pub(crate) async fn open_as(node: &Node, query: &str, token: &str) -> Self {
        let field = format!("Authorization: Bearer {token}\r\n");
        let opened = Self::open_with(node, query, &field).await;
        opened.expect("it is let in")
    }

    /// `None` when there are too many.
    pub(crate) async fn try_open(
        node: &Node,
        query: &str,
        last_event: Option<&str>,
    ) -> Option<Self> {
        let last = last_event.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        Self::open_with(node, query, &last).await
    }

    /// Opens another stream of events.
    pub(crate) async fn open_at(node: &Node, path: &str, last_event: Option<&str>) -> Self {
        let last = last_event.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        let opened = Self::open_path(node, path, &last).await;
        opened.expect("it is let in")
    }

    async fn open_with(node: &Node, query: &str, fields: &str) -> Option<Self> {
        Self::open_path(node, &format!("/api/v1/live?{query}"), fields).await
    }

    /// Opens a stream of events at a path, with these header fields.
    pub(crate) async fn open_path(node: &Node, path: &str, fields: &str) -> Option<Self> {
        // The system keeps little for who does not read.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let mut stream = socket.connect(node.address()).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n",
            node.address()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reader = BufReader::new(stream);
        let (status, headers) = head(&mut reader).await;
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "text/event-stream");
        let text = String::new();
        Some(Self { reader, text })
    }

    /// The next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let mut read = Event::default();
                for line in event.lines() {
                    match line.split_once(": ") {
                        Some(("event", value)) => read.event = value.into(),
                        Some(("id", value)) => read.id = value.into(),
                        Some(("data", value)) => read.data = value.into(),
                        _ => {}
                    }
                }
                self.text = rest.to_owned();
                if !read.event.is_empty() {
                    return Some(read);
                }
                continue;
            }
            let bytes = chunk(&mut self.reader).await?;
            self.text.push_str(&String::from_utf8(bytes).unwrap());
        }
    }

    /// The next event of this kind.
    pub(crate) async fn next_of(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next().await.expect("the stream of events ended");
            if event.event == kind {
                return event;
            }
        }
    }
}
