//! Goal: `chappe write` stores what it is given, names refused lines by their number in the input, and
//! stores nothing twice when answers are lost, when the node restarts and when it is run again.
//! Method: a real node in this process, the built program, and a relay that takes requests to the node
//! and loses some answers.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use chappe_node::Node;
use chappe_node::config::Config;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

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
    config
}

/// Runs the program with this input on another thread, while the node runs in this thread's runtime.
async fn run(
    url: &str,
    token: &str,
    arguments: &[&str],
    input: &str,
) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
    command
        .args(arguments)
        .args(["--node", url])
        .env("CHAPPE_TOKEN", token);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let input = input.to_owned();
    let running = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("it starts");
        let mut stdin = child.stdin.take().expect("its input");
        // It may end before it has read everything.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        child.wait_with_output().expect("it runs")
    });
    let Output {
        status,
        stdout,
        stderr,
    } = running.await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

const CREATE: [&str; 6] = [
    "stream",
    "create",
    "lab.room",
    "temperature:double:Cel",
    "people:integer",
    "note:text",
];

/// The values of `people` in the order of the stream.
fn people(node: &Node) -> Vec<i64> {
    let log = node.stream("lab.room").expect("the stream");
    let elements = log.read(0, 1_000_000).expect("its elements");
    let value = |element: &chappe_stream::StreamElement| match element.values[1] {
        chappe_stream::Value::Integer(number) => number,
        ref other => panic!("{other:?}"),
    };
    elements.iter().map(value).collect()
}

#[test]
fn values_rows_and_lines_are_stored_and_refused_lines_named() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let write = async |arguments: &[&str], input: &str| {
            let arguments = [&["write", "lab.room"], arguments].concat();
            run(&node.url(), &token, &arguments, input).await
        };
        let (code, _, err) = write(&["people=1"], "").await;
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("there is no stream"), "{err}");
        for _ in 0..2 {
            let (code, out, err) = run(&node.url(), &token, &CREATE, "").await;
            assert_eq!(code, Some(0), "{err}");
            assert!(out.contains("stream lab.room of level power"), "{out}");
        }
        let other = ["stream", "create", "lab.room", "people:integer"];
        let (code, _, err) = run(&node.url(), &token, &other, "").await;
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("the list of fields"), "{err}");

        let (code, out, err) = write(&["people=1", "note=a, \"b\"", "temperature=21.5"], "").await;
        assert_eq!(code, Some(0), "{err}");
        assert!(
            out.contains("stored 1 element in lab.room, the last at "),
            "{out}"
        );
        let (code, _, err) = write(&["humidity=1"], "").await;
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("unknown field \"humidity\""), "{err}");

        let rows = "people,note\n2,\"two\nlines\"\nx,bad\n\n3,good\n";
        let (code, out, err) = write(&["--csv", "--json"], rows).await;
        assert_eq!(code, Some(1), "{err}");
        let json: Json = serde_json::from_str(&out).expect("JSON");
        assert_eq!((&json["stored"], &json["refused"]), (&2.into(), &1.into()));
        assert_eq!(
            err.trim(),
            "line 4: field \"people\" is of type integer, not x"
        );

        let lines = "{\"people\": 4}\n\n{\"people\": 5}";
        let (code, _, err) = write(&["--ndjson"], lines).await;
        assert_eq!(code, Some(0), "{err}");
        assert_eq!(people(&node), [1, 2, 3, 4, 5]);
        node.shutdown().await.unwrap();
    });
}

/// Takes connections to the node; of every third answer it loses the end, and the connection.
async fn relay(node: std::net::SocketAddr, lost: Arc<AtomicU32>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let lost = lost.clone();
            tokio::spawn(async move {
                let Ok(mut server) = TcpStream::connect(node).await else {
                    return;
                };
                let (mut from_client, mut to_client) = client.split();
                let (mut from_server, mut to_server) = server.split();
                let up = tokio::io::copy(&mut from_client, &mut to_server);
                let down = async {
                    let mut bytes = vec![0; 1 << 16];
                    for answer in 1_u32.. {
                        let length = from_server.read(&mut bytes).await.unwrap_or(0);
                        if length == 0 {
                            return;
                        }
                        if answer % 3 == 0 {
                            lost.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                        if to_client.write_all(&bytes[..length]).await.is_err() {
                            return;
                        }
                    }
                };
                tokio::select! {
                    _ = up => {}
                    () = down => {}
                }
            });
        }
    });
    address
}

#[test]
fn lost_answers_and_repeated_runs_store_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let (code, _, err) = run(&node.url(), &token, &CREATE, "").await;
        assert_eq!(code, Some(0), "{err}");
        let lost = Arc::new(AtomicU32::new(0));
        let relay = relay(node.address(), lost.clone()).await;
        let count = 42_000;
        let rows = |numbers: std::ops::Range<i64>| {
            let mut rows = "people\n".to_owned();
            for number in numbers {
                rows.push_str(&format!("{number}\n"));
            }
            rows
        };
        let arguments = [
            "write",
            "lab.room",
            "--csv",
            "--json",
            "--producer",
            "import",
        ];
        let url = format!("http://{relay}");
        let (code, out, err) = run(&url, &token, &arguments, &rows(0..count)).await;
        assert_eq!(code, Some(0), "{err}");
        assert!(lost.load(Ordering::Relaxed) > 0, "no answer was lost");
        let json: Json = serde_json::from_str(&out).expect("JSON");
        let total = json["stored"].as_i64().unwrap() + json["duplicates"].as_i64().unwrap();
        assert_eq!(total, count);
        assert_eq!(people(&node), (0..count).collect::<Vec<_>>());
        // Another run of the same input, which has grown.
        let more = count + 10;
        let (code, out, err) = run(&node.url(), &token, &arguments, &rows(0..more)).await;
        assert_eq!(code, Some(0), "{err}");
        let json: Json = serde_json::from_str(&out).expect("JSON");
        assert_eq!(
            (&json["stored"], &json["duplicates"]),
            (&10.into(), &count.into())
        );
        assert_eq!(people(&node), (0..more).collect::<Vec<_>>());
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_stream_is_renamed_and_written_by_either_name() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let (url, token) = (node.url(), token.as_str());
        let chappe = async |arguments: &[&str]| {
            let (code, out, err) = run(&url, token, arguments, "").await;
            (code, format!("{out}{err}"))
        };
        assert_eq!(chappe(&CREATE).await.0, Some(0));
        assert_eq!(chappe(&["write", "lab.room", "people=1"]).await.0, Some(0));
        let (code, text) = chappe(&["stream", "rename", "lab.room", "hall.room"]).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains("lab.room is now hall.room"), "{text}");
        for name in ["lab.room", "hall.room"] {
            let (code, text) = chappe(&["write", name, "people=2"]).await;
            assert_eq!(code, Some(0), "{text}");
        }
        assert_eq!(people(&node), [1, 2, 2]);
        // A definition under the former name finds the stream, too.
        assert_eq!(chappe(&CREATE).await.0, Some(0));
        let (code, text) = chappe(&["query", "select count(*) from lab_room"]).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.contains("lab.room is a former name of hall.room"),
            "{text}"
        );
        let (code, text) = chappe(&["stream", "rename", "hall.room", "attic.room"]).await;
        assert_eq!(code, Some(0), "{text}");
        let forget = ["stream", "forget-name", "attic.room", "hall.room"];
        let (code, text) = chappe(&forget).await;
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = chappe(&["write", "hall.room", "people=3"]).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("there is no stream"), "{text}");
        let (code, text) = chappe(&["stream", "forget-name", "attic.room", "lab.room"]).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("identifies the stream"), "{text}");
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_node_that_does_not_answer_is_tried_again_and_then_reported() {
    let directory = tempfile::tempdir().unwrap();
    chappe_node::runtime().unwrap().block_on(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let (url, token) = (node.url(), node.new_token().unwrap().to_owned());
        node.shutdown().await.unwrap();
        let arguments = ["write", "lab.room", "people=1", "--retry-for", "600ms"];
        let (code, out, err) = run(&url, &token, &arguments, "").await;
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("no node answers"), "{err}");
        assert!(err.contains("--producer"), "{err}");
    });
}

/// A node in a process of its own, and its address.
fn serve(directory: &Path, listen: &str) -> (std::process::Child, String) {
    use std::io::BufRead as _;
    let mut serve = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(["serve", "--json", "--set", "discovery.enabled=false"])
        .args(["--set", "log.min_free_bytes=0", "--set"])
        .arg(format!("http.listen={listen}"))
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the node starts");
    let mut stdout = std::io::BufReader::new(serve.stdout.take().expect("its output"));
    let mut line = String::new();
    while stdout.read_line(&mut line).expect("a line") > 0 {
        let event: Json = serde_json::from_str(&line).expect("JSON");
        if event["event"] == "ready" {
            let address = event["address"].as_str().expect("an address").to_owned();
            // A closed output could end the node too.
            serve.stdout = Some(stdout.into_inner());
            return (serve, address.trim_start_matches("http://").to_owned());
        }
        line.clear();
    }
    let _ = serve.kill();
    panic!("the node is not ready: {:?}", serve.wait());
}

#[test]
fn a_node_that_is_killed_and_started_again_has_each_element_once() {
    const COUNT: u32 = 4_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (mut node, address) = serve(path, "127.0.0.1:0");
    let token = std::fs::read_to_string(path.join("chappe-data/new-token")).unwrap();
    let url = format!("http://{address}");
    let program = |arguments: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_chappe"));
        program.args(arguments).args(["--node", &url, "--json"]);
        program
            .env("CHAPPE_TOKEN", token.trim())
            .stdout(Stdio::piped());
        program
    };
    assert!(program(&CREATE).status().unwrap().success());
    let mut write = program(&["write", "lab.room", "--csv"]);
    let mut write = write.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = write.stdin.take().unwrap();
    input.write_all(b"people\n").unwrap();
    for number in 0..COUNT {
        // Small writes, so that a batch is on its way at each kill.
        input.write_all(format!("{number}\n").as_bytes()).unwrap();
        if number % 1_000 == 500 {
            node.kill().unwrap();
            node.wait().unwrap();
            node = serve(path, &address).0;
        }
    }
    drop(input);
    let output = write.wait_with_output().unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{json}");
    let sum = "select count(*), count(distinct people), min(people), max(people) from lab_room";
    let output = program(&["query", sum]).output().unwrap();
    let json: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let last = COUNT - 1;
    assert_eq!(json["rows"], serde_json::json!([[COUNT, COUNT, 0, last]]));
    node.kill().unwrap();
    node.wait().unwrap();
}
