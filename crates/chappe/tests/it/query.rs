//! Goal: a query returns the whole answer, an error with code 2 that names the remedy, or a partial
//! answer with a notice on standard error; a watch with a count succeeds only with that count.
//! Method: a real node in this process with more elements than a table of SQLite's holds, and the
//! built program.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{Field, FieldType, Position, StreamElement, StreamSchema, Timestamp, Value};
use serde_json::{Value as Json, json};

fn config(directory: &Path) -> Config {
    let mut config = Config {
        name: "test".into(),
        data_directory: directory.join("data"),
        sensors_directory: directory.join("sensors"),
        ..Config::default()
    };
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.discovery.enabled = false;
    config.log.min_free_bytes = 0;
    // Generous, for a busy machine.
    config.limits.query_time_ms = 120_000;
    // Keep elements of 1970.
    config.log.keep_age_s = 0;
    config
}

async fn store(node: &Node, numbers: std::ops::Range<i64>) {
    let schema = StreamSchema {
        fields: vec![Field {
            name: "v".into(),
            field_type: FieldType::Integer,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    };
    let element = |n: i64| StreamElement {
        position: Position::default(),
        source_time: Timestamp(n * 1_000_000_000),
        receive_time: Timestamp(0),
        key: None,
        values: vec![Value::Integer(n)],
        quality: Default::default(),
        origin: None,
    };
    let elements: Vec<_> = numbers.map(element).collect();
    for batch in elements.chunks(10_000) {
        node.store("ward.a", &schema, batch).await.expect("stored");
    }
}

fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
    command.args(arguments).args(["--node", url]);
    command
}

/// Runs the program on another thread, while the node runs in this thread's runtime.
async fn run(node: &Node, arguments: &'static [&'static str]) -> (Option<i32>, String, String) {
    let mut command = command(&node.url(), arguments);
    let running = tokio::task::spawn_blocking(move || command.output());
    let Output {
        status,
        stdout,
        stderr,
    } = running.await.expect("it runs").expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

const COUNT: &str = "select count(*), min(v) from ward_a";

#[test]
fn an_answer_is_complete_an_error_or_marked_partial() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        store(&node, 0..120_000).await;

        let (code, out, err) = run(&node, &["query", COUNT]).await;
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert!(out.contains("120000") && out.contains(" 0"), "{out}");

        let (code, out, err) = run(&node, &["query", "--json", COUNT]).await;
        let answer: Json = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, &answer["partial"]), (Some(0), &json!(false)));
        assert_eq!(answer["rows"], json!([[120_000, 0]]));
        assert_eq!(answer["read"][0]["complete"], true);
        assert_eq!(err, "");

        let rows = &["query", "--limit", "20000", "select v from ward_a"];
        let (code, out, err) = run(&node, rows).await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("more than 10000 rows"), "{err}");
        assert!(err.contains("hint:") && err.contains("--partial"), "{err}");

        let from_to = [
            "--from",
            "1970-01-01T00:00:10Z",
            "--to",
            "1970-01-01T00:01:00Z",
        ];
        let [from, first, to, last] = from_to;
        let old = Box::leak(Box::new([
            "query", from, first, to, last, "--format", "csv", COUNT,
        ]));
        let (code, out, err) = run(&node, old).await;
        assert_eq!((code, err.as_str()), (Some(0), ""));
        assert_eq!(out, "count(*),min(v)\n50,10\n");

        let rows = &[
            "query",
            "--partial",
            "--format",
            "csv",
            "--limit",
            "7",
            "select v from ward_a",
        ];
        let (code, out, err) = run(&node, rows).await;
        assert_eq!((code, out.lines().count()), (Some(0), 8));
        assert!(
            err.contains("more than these 7 rows exist: raise --limit"),
            "{err}"
        );
        let rows = &[
            "query",
            "--partial",
            "--format",
            "csv",
            "--limit",
            "20000",
            "select v from ward_a",
        ];
        let (_, out, err) = run(&node, rows).await;
        assert_eq!(out.lines().count(), 10_001);
        assert!(
            err.contains("more than these 10000 rows exist: the node's limit"),
            "{err}"
        );
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_query_that_is_stopped_is_an_error_or_answers_from_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let mut config = config(directory.path());
        config.limits.query_time_ms = 6_000;
        let node = Node::start(config).await.unwrap();
        store(&node, 0..400_000).await;
        // For each element but the newest 100,000 a pass over all: hours.
        let sql = "select count(*), sum(case when v < 300000 then \
                   (select count(*) from ward_a b where b.v + a.v < 0) else 0 end) from ward_a a";
        let (code, out, err) = run(&node, Box::leak(Box::new(["query", sql]))).await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("time limit"), "{err}");
        assert!(err.contains("hint:") && err.contains("--partial"), "{err}");

        let partial = Box::leak(Box::new(["query", "--partial", "--json", sql]));
        let (code, out, err) = run(&node, partial).await;
        assert_eq!(code, Some(0), "{err}");
        let answer: Json = serde_json::from_str(&out).expect("JSON");
        assert_eq!(answer["partial"], true);
        assert_eq!(answer["rows"], json!([[100_000, 0]]));
        assert_eq!(answer["read"][0]["complete"], false);
        let notice = "partial: only the newest 100000 matching elements of ward.a were read";
        assert!(
            err.contains(notice) && err.contains("it keeps 400000"),
            "{err}"
        );
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_watch_cut_short_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        store(&node, 0..1).await;
        let watch = ["watch", "--stream", "ward.a", "--count", "5"];
        let mut command = command(&node.url(), &watch);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let watching = command.spawn().expect("starts");
        // The node's metric shows that the watch is connected.
        while !metrics(&node).await.contains("chappe_live_clients 1") {
            tokio::task::yield_now().await;
        }
        store(&node, 1..3).await;
        node.shutdown().await.unwrap();
        let ended = tokio::task::spawn_blocking(move || watching.wait_with_output());
        let ended = ended.await.expect("waited").expect("ended");
        let err = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{err}");
        assert!(err.contains("before 5 elements"), "{err}");
    });
}

#[test]
fn doubles_print_exactly_as_stored() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let sql = "select 100.00000000000001, 13.999999999999998, 14.0, 0.1 + 0.2";
        for format in ["csv", "table", "json"] {
            let arguments = Box::leak(Box::new(["query", "--format", format, sql]));
            let (code, out, err) = run(&node, arguments).await;
            assert_eq!(code, Some(0), "{err}");
            let numbers = [
                "100.00000000000001",
                "13.999999999999998",
                "14.0",
                "0.30000000000000004",
            ];
            let row = out.lines().last().expect("a row");
            assert!(numbers.iter().all(|number| row.contains(number)), "{out}");
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn rows_go_to_standard_output_alone_and_patterns_are_prefixes() {
    let directory = tempfile::tempdir().unwrap();
    let exporters = directory.path().join("exporters");
    std::fs::create_dir(&exporters).unwrap();
    let exporter = "kind = \"file\"\npath = \"../out.jsonl\"\nstreams = [\"ward.*\"]\n";
    std::fs::write(exporters.join("to-file.toml"), exporter).unwrap();
    let mut config = config(directory.path());
    config.exporters_directory = exporters;
    let runtime = chappe_node::runtime().unwrap();
    runtime.block_on(async {
        let node = Node::start(config).await.expect("it starts");
        store(&node, 0..2).await;
        let export: &[&str] = &[
            "export",
            "ward.a",
            "--out",
            "/dev/stdout",
            "--format",
            "csv",
        ];
        let (code, out, err) = run(&node, export).await;
        assert_eq!(code, Some(0), "{err}");
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines.len() == 3 && lines[0].starts_with("epoch,"), "{out}");
        assert!(err.contains("STREAM"), "{err}");

        let (code, _, err) = run(&node, &["watch", "--stream", "w*.a"]).await;
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("--stream 'ward.*'"), "{err}");

        let letters: &[&str] = &["wrapper", "dead-letters", "to-file"];
        let (code, _, err) = run(&node, letters).await;
        assert_eq!(code, Some(2), "{err}");
        let hint = "hint: chappe wrapper dead-letters to-file --exporter";
        assert!(
            err.contains("to-file is an exporter") && err.contains(hint),
            "{err}"
        );
        node.shutdown().await.unwrap();
    });
}

async fn metrics(node: &Node) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = node.address();
    let mut stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connects");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("asked");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("answered");
    text
}
