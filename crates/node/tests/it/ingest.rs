//! Goal: points and samples of agents are answered after storage, each stored once however often it is sent, and refused
//! with the status that their senders understand.
//! Method: requests of InfluxDB's interfaces and of Prometheus remote write to a node in this process, over a restart.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{self, Answer, Operated, block};

async fn start(directory: &Path, token: Option<String>) -> Operated {
    let mut config = common::config(directory);
    config.http.max_body_bytes = 4 << 10;
    let operated = Operated::start(&config, token).await;
    for name in ["plant", "prometheus"] {
        let path = format!("/api/v1/wrappers/{name}");
        let runs = |row: &Value| row["state"] == "waiting" && row["reason"].is_string();
        common::devices::until(&operated.node, &path, runs).await;
    }
    operated
}

fn write_files(directory: &Path) {
    let folder = directory.join("wrappers");
    std::fs::create_dir_all(&folder).unwrap();
    let files = [
        ("plant", "kind = \"influxdb\"\ndatabases = [\"plant\"]\n"),
        ("prometheus", "kind = \"remote_write\"\n"),
    ];
    for (name, text) in files {
        std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
    }
}

async fn write(operated: &Operated, path: &str, body: &str) -> Answer {
    let credential = format!("Token {}", operated.token);
    let fields = [("Authorization", credential.as_str())];
    common::send(&operated.node, "POST", path, &fields, body.as_bytes()).await
}

fn numbers(operated: &Operated, stream: &str, column: usize) -> Vec<String> {
    let log = operated.node.stream(stream).unwrap();
    let elements = log.read(0, 1_000).unwrap();
    let values = elements
        .iter()
        .map(|one| format!("{:?}", one.values[column]));
    values.collect()
}

#[test]
fn a_point_is_stored_once_however_often_it_is_sent() {
    let directory = tempfile::tempdir().unwrap();
    write_files(directory.path());
    block(async {
        let path = "/write?db=plant&precision=s";
        let body = "cpu,host=a n=1i 10\ncpu,host=b n=2i 10\ncpu,host=a n=3i 20\n";
        let operated = start(directory.path(), None).await;
        for _ in 0..2 {
            assert_eq!(write(&operated, path, body).await.status, 204);
        }
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();
        let operated = start(directory.path(), Some(token)).await;
        // A column that is added since makes no difference to those before it.
        let more = format!("{body}cpu,host=a,core=0 n=4i,load=0.5 15\ncpu,host=a n=5i 30\n");
        assert_eq!(write(&operated, path, &more).await.status, 204);
        assert_eq!(write(&operated, path, body).await.status, 204);
        let expected: Vec<String> = (1..=5).map(|number| format!("Integer({number})")).collect();
        assert_eq!(numbers(&operated, "plant.cpu", 1), expected);
        let drops = common::get(&operated.node, "/api/v1/drops").await.body;
        assert!(drops.contains("repeated"), "{drops}");
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn refusals_are_those_that_agents_understand() {
    let directory = tempfile::tempdir().unwrap();
    write_files(directory.path());
    block(async {
        let operated = start(directory.path(), None).await;
        let node = &operated.node;
        let partial = write(
            &operated,
            "/api/v2/write?bucket=plant&org=o",
            "a f=1 1\na f=2i 2\n",
        )
        .await;
        assert_eq!(partial.status, 400, "{partial:?}");
        let error = partial.json()["message"].as_str().unwrap().to_owned();
        assert!(
            error.starts_with("partial write: field type conflict") && error.ends_with("dropped=1")
        );
        assert_eq!(numbers(&operated, "plant.a", 0), ["Double(1.0)"]);
        for (path, body, status) in [
            ("/write?db=other", "a f=1", 404),
            ("/write", "a f=1", 400),
            ("/write?db=plant&precision=days", "a f=1", 400),
            ("/write?db=plant", &*"x".repeat(5_000), 413),
            ("/influxdb/write?db=plant&rp=week", "a f=1 9", 204),
        ] {
            let answer = write(&operated, path, body).await;
            assert_eq!(answer.status, status, "{path}: {answer:?}");
        }
        let reader = operated.account("reader", &["read"]).await;
        for (fields, status) in [
            (vec![("Authorization", format!("Token {reader}"))], 403),
            (vec![("Authorization", "Token no".to_owned())], 401),
            (vec![], 401),
            (
                vec![
                    ("Authorization", format!("Token {}", operated.token)),
                    ("Content-Encoding", "br".to_owned()),
                ],
                415,
            ),
        ] {
            let fields: Vec<(&str, &str)> = fields
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            let answer = common::send(node, "POST", "/write?db=plant", &fields, b"a f=1").await;
            assert_eq!(answer.status, status, "{fields:?}: {answer:?}");
        }
        let ping = common::get(node, "/ping").await;
        assert_eq!(
            (ping.status, ping.headers.contains_key("x-influxdb-version")),
            (204, true)
        );
        let health = common::get(node, "/influxdb/health").await.json();
        assert_eq!(health["status"], "pass");
        let created = write(&operated, "/query?q=CREATE%20DATABASE%20plant", "").await;
        assert_eq!(created.json(), json!({"results": [{"statement_id": 0}]}));
        assert_eq!(write(&operated, "/query", "q=SELECT+1").await.status, 400);
        operated.node.shutdown().await.unwrap();
    });
}

/// A field of bytes of a message of protocol buffers.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    field.extend(bytes);
    field
}

/// `up{job="a"} 1.5` at 7 ms, in the block format of snappy as one literal.
fn sample() -> Vec<u8> {
    let label = |name: &str, value: &str| {
        let label = [field(1, name.as_bytes()), field(2, value.as_bytes())].concat();
        field(1, &label)
    };
    let mut sample = vec![9];
    sample.extend(1.5_f64.to_le_bytes());
    sample.extend([16, 7]);
    let series = [
        label("__name__", "up"),
        label("job", "a"),
        field(2, &sample),
    ]
    .concat();
    let message = field(1, &series);
    let length = u8::try_from(message.len()).unwrap();
    let mut block = vec![length, (length - 1) << 2];
    block.extend(message);
    block
}

#[test]
fn samples_of_remote_write_are_counted_in_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    write_files(directory.path());
    block(async {
        let operated = start(directory.path(), None).await;
        let credential = format!("Bearer {}", operated.token);
        let send = async |kind: &str, body: &[u8]| {
            let fields = [
                ("Authorization", credential.as_str()),
                ("Content-Type", kind),
                ("Content-Encoding", "snappy"),
            ];
            common::send(&operated.node, "POST", "/api/v1/write", &fields, body).await
        };
        let written = "x-prometheus-remote-write-samples-written";
        for _ in 0..2 {
            let answer = send("application/x-protobuf", &sample()).await;
            assert_eq!(
                (answer.status, &*answer.headers[written]),
                (204, "1"),
                "{answer:?}"
            );
        }
        assert_eq!(numbers(&operated, "prometheus.up", 1), ["Double(1.5)"]);
        let answer = send("application/x-protobuf", b"none").await;
        assert_eq!(
            (answer.status, &*answer.headers[written]),
            (400, "0"),
            "{answer:?}"
        );
        assert_eq!(send("application/json", b"{}").await.status, 415);
        operated.node.shutdown().await.unwrap();
    });
}
