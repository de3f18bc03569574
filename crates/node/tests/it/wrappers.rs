//! Goal: a wrapper's file takes effect while the node runs, its streams are found by meaning, lines that are
//! none become dead letters that can be sent again, an invalid file is reported with its line, and an
//! exporter that fails delays no other.
//! Method: a node in this process whose wrappers read files that the test writes.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{self, Answer, Operated, block};

const WRAPPER: &str = r#"
kind = "file"
path = "../data.csv"
format = { csv = { time = "source_time" } }
poll_ms = 20
device = "Boiler 3"
types = ["{urn:plant}Boiler"]
scopes = ["http://plant.example/hall-2"]

[[stream]]
name = "boiler.temperature"
fields = [{ name = "celsius", type = "double", unit = "Cel", observed_property = "urn:temperature" }]
"#;

const SENSOR: &str = r#"
name = "boiler-max"
[[source]]
alias = "x"
query = { observed_property = "urn:temperature", scope = "http://plant.example/hall-2", type = "Boiler" }
[output]
level = "process"
sql = "select max(value) as celsius from x"
[[output.field]]
name = "celsius"
type = "double"
unit = "Cel"
"#;

fn write(directory: &Path, folder: &str, name: &str, text: &str) {
    let folder = directory.join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), text).unwrap();
}

/// Appends lines to the file that the wrapper reads.
fn append(directory: &Path, lines: &str) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .append(true)
        .open(directory.join("data.csv"))
        .unwrap();
    std::io::Write::write_all(&mut file, lines.as_bytes()).unwrap();
}

/// Asks until the answer is as wanted.
async fn until(node: &chappe_node::Node, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let asking = async {
        loop {
            let answer: Answer = common::get(node, path).await;
            if answer.status == 200 {
                last = answer.json();
                if wanted(&last) {
                    return last.clone();
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(120), asking).await;
    found.unwrap_or_else(|_| panic!("{path}: {last}"))
}

#[test]
fn a_wrapper_is_followed_from_its_file_to_a_virtual_sensor() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    common::write_sensor(directory, "boiler-max", SENSOR);
    std::fs::write(directory.join("data.csv"), "source_time,celsius\n").unwrap();
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        let node = &operated.node;
        let path = "/api/v1/wrappers/boiler";
        write(directory, "wrappers", "boiler.toml", WRAPPER);
        let is_read = |row: &Value| {
            row["state"] == "waiting" && row["reason"] == "everything in the file is read"
        };
        until(node, path, is_read).await;
        let sensor = "/api/v1/virtual-sensors/boiler-max";
        until(node, sensor, |it| it["state"] == "running").await;
        let lines =
            "2020-11-21T10:00:00Z,80.5\n2020-11-21T10:00:01Z,hot\n2020-11-21T10:00:02Z,81.5\n";
        append(directory, lines);
        let row = until(node, path, |row| row["elements"] == 2).await;
        assert_eq!(row["undecodable"], 1);
        let output = "/api/v1/streams/boiler-max";
        until(node, output, |stream| stream["last"] == 2).await;
        // The line is as it was received, with its header.
        let letters = format!("{path}/dead-letters");
        let letters = until(node, &letters, |it| it["dead_letters"][0].is_object()).await;
        let letter = &letters["dead_letters"][0];
        assert_eq!(
            letter["text"],
            "source_time,celsius\n2020-11-21T10:00:01Z,hot\n"
        );
        assert!(
            letter["reason"].as_str().unwrap().contains("celsius"),
            "{letter}"
        );
        let why = common::get(node, "/api/v1/why/boiler.temperature")
            .await
            .json();
        let hops = why["hops"].as_array().unwrap();
        assert!(hops.iter().any(|hop| hop["hop"] == "wrapper"), "{why}");
        // An invalid file is reported, and the earlier one runs on.
        write(
            directory,
            "wrappers",
            "boiler.toml",
            &WRAPPER.replace("poll_ms", "poll"),
        );
        let row = until(node, path, |row| row["error"].is_object()).await;
        assert_eq!(row["error"]["line"], 5, "{row}");
        append(directory, "2020-11-21T10:00:03Z,82.5\n");
        until(node, path, |row| row["elements"] == 3).await;
        // With another type of the field, the letter can be decoded; the rest is not read again.
        write(
            directory,
            "wrappers",
            "boiler.toml",
            &WRAPPER.replace("\"double\"", "\"text\""),
        );
        until(node, path, |row| {
            row["error"].is_null() && row["reason"].is_string()
        })
        .await;
        let again = format!("{path}/dead-letters/send-again");
        let resent = operated.change("POST", &again, &json!({})).await;
        assert_eq!(resent.json()["done"], 1, "{resent:?}");
        let log = node.stream("boiler.temperature").unwrap();
        assert_eq!(log.log().last(), 4);
        std::fs::remove_file(directory.join("wrappers/boiler.toml")).unwrap();
        let list = "/api/v1/wrappers";
        until(node, list, |list| list["wrappers"] == json!([])).await;
        // A name leads out of no directory.
        let text = json!("kind = \"webhook\"");
        let outside = operated
            .change("PUT", "/api/v1/wrappers/..%2Fother", &text)
            .await;
        assert_eq!(outside.status, 422, "{outside:?}");
        assert!(outside.body.contains("has a slash"), "{outside:?}");
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_renamed_wrapper_continues_where_it_was_and_a_message_takes_no_stream_of_another() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let stream = "[[stream]]\nname = \"plant.{m}\"\nvariables = { m = \"$.m\" }\n\
        fields = [{ name = \"value\", type = \"integer\" }]\n";
    let file = format!(
        "kind = \"file\"\npath = \"../data.csv\"\nformat = \"json\"\npoll_ms = 20\n{stream}"
    );
    let line = |value: u64| json!({ "m": "a", "value": value }).to_string() + "\n";
    std::fs::write(directory.join("data.csv"), line(1)).unwrap();
    write(directory, "wrappers", "former.toml", &file);
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        let node = &operated.node;
        until(node, "/api/v1/wrappers/former", |row| row["elements"] == 1).await;
        let wrappers = directory.join("wrappers");
        std::fs::rename(wrappers.join("former.toml"), directory.join("former.toml")).unwrap();
        until(node, "/api/v1/wrappers", |list| {
            list["wrappers"] == json!([])
        })
        .await;
        // A message does not choose whose stream is continued.
        let hook = format!("kind = \"webhook\"\nformat = \"json\"\n{stream}");
        write(directory, "wrappers", "hook.toml", &hook);
        until(node, "/api/v1/wrappers/hook", |row| {
            row["reason"] == "no message has arrived"
        })
        .await;
        let path = "/api/v1/wrappers/hook/messages";
        let sent = operated
            .change("POST", path, &json!({ "m": "a", "value": 9 }))
            .await;
        assert_eq!(
            (sent.status, &sent.json()["refused"]),
            (200, &json!(1)),
            "{sent:?}"
        );
        // The renamed wrapper does, once its file names the former one, and reads nothing again.
        append(directory, &line(2));
        let continued = format!("continues = \"former\"\n{file}");
        write(directory, "wrappers", "present.toml", &continued);
        until(node, "/api/v1/wrappers/present", |row| row["elements"] == 1).await;
        let log = node.stream("plant.a").unwrap();
        assert_eq!(log.log().last(), 2);
        // It was once; a wrapper that is there is not continued.
        write(
            directory,
            "wrappers",
            "third.toml",
            &continued.replace("former", "present"),
        );
        let third = until(node, "/api/v1/wrappers/third", |row| {
            row["state"] == "trouble"
        })
        .await;
        assert_eq!(
            third["reason"], "the wrapper \"present\" is still there",
            "{third}"
        );
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_wrapper_that_gets_its_former_name_back_reads_nothing_again() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let file = |former: &str| {
        let continues = match former {
            "" => String::new(),
            former => format!("continues = \"{former}\"\n"),
        };
        format!(
            "kind = \"file\"\npath = \"../data.csv\"\nformat = \"json\"\npoll_ms = 20\n{continues}\
             [[stream]]\nname = \"x\"\nfields = [{{ name = \"n\", type = \"integer\" }}]\n"
        )
    };
    std::fs::write(directory.join("data.csv"), "{\"n\":1}\n").unwrap();
    write(directory, "wrappers", "a.toml", &file(""));
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        let node = &operated.node;
        until(node, "/api/v1/wrappers/a", |row| row["elements"] == 1).await;
        let mut count = 1;
        for (former, present) in [("a", "b"), ("b", "a"), ("a", "b")] {
            let folder = directory.join("wrappers");
            std::fs::remove_file(folder.join(format!("{former}.toml"))).unwrap();
            until(node, "/api/v1/wrappers", |list| {
                list["wrappers"] == json!([])
            })
            .await;
            write(
                directory,
                "wrappers",
                &format!("{present}.toml"),
                &file(former),
            );
            count += 1;
            append(directory, &format!("{{\"n\":{count}}}\n"));
            let path = format!("/api/v1/wrappers/{present}");
            until(node, &path, |row| {
                row["elements"] == 1 && row["reason"] == "everything in the file is read"
            })
            .await;
            let log = node.stream("x").unwrap();
            assert_eq!(log.log().last(), count, "{former} -> {present}");
        }
        write(directory, "wrappers", "c.toml", &file("typo"));
        let row = until(node, "/api/v1/wrappers/c", |row| row["state"] == "trouble").await;
        let reason = "no wrapper \"typo\" ever ran on this node";
        assert_eq!(row["reason"], reason, "{row}");
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_size_limit_does_not_remove_the_cursor_of_an_idle_exporter() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let mut config = common::config(directory);
    config.log.segment_bytes = 1 << 20;
    config.log.max_bytes = chappe_node::config::MaxBytes::Bytes(8 << 20);
    let exporter = "kind = \"file\"\npath = \"../out\"\nstreams = [\"quiet\"]\nstart = \"new\"\n";
    write(directory, "exporters", "out.toml", exporter);
    let path = "/api/v1/exporters/out";
    let is_followed = |row: &Value| row["streams"][0]["stream"] == "quiet";
    let quiet = "/api/v1/streams/quiet/elements";
    let write_to = async |operated: &Operated, path: &str, element: Value| {
        let credential = format!("Bearer {}", operated.token);
        let headers = [
            ("Authorization", credential.as_str()),
            ("Content-Type", "application/x-ndjson"),
        ];
        let line = format!("{element}\n");
        let sent = common::send(&operated.node, "POST", path, &headers, line.as_bytes()).await;
        assert!(sent.status < 300, "{sent:?}");
    };
    let exported = || std::fs::read_to_string(directory.join("out")).unwrap();
    let token = block(async {
        let operated = Operated::start(&config, None).await;
        let node = &operated.node;
        for (name, field_type) in [("quiet", "integer"), ("loud", "text")] {
            let fields = json!([{ "name": "v", "type": field_type }]);
            let stream = json!({ "name": name, "fields": fields });
            let made = operated.change("POST", "/api/v1/streams", &stream).await;
            assert!(made.status < 300, "{made:?}");
        }
        until(node, path, is_followed).await;
        write_to(&operated, quiet, json!({ "v": 1 })).await;
        until(node, path, |row| row["elements"] == 1).await;
        // The log turns over several times, not within one look at the cursor.
        let text = "x".repeat(500_000);
        let pause = Duration::from_millis(100);
        for _ in 0..60 {
            let loud = "/api/v1/streams/loud/elements";
            write_to(&operated, loud, json!({ "v": text })).await;
            tokio::time::sleep(pause).await;
        }
        assert!(node.stream("quiet").unwrap().log().first() > 1);
        std::fs::remove_file(directory.join("exporters/out.toml")).unwrap();
        let is_gone = |list: &Value| list["exporters"] == json!([]);
        until(node, "/api/v1/exporters", is_gone).await;
        write_to(&operated, quiet, json!({ "v": 2 })).await;
        operated.node.shutdown().await.unwrap();
        operated.token
    });
    assert!(!exported().contains("\"v\":2"), "{}", exported());
    write(directory, "exporters", "out.toml", exporter);
    block(async {
        let operated = Operated::start(&config, Some(token)).await;
        until(&operated.node, path, |row| row["elements"] == 1).await;
        assert!(exported().contains("\"v\":2"), "{}", exported());
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_exporter_that_fails_delays_no_other() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let exporter =
        |path: &str| format!("kind = \"file\"\npath = \"{path}\"\nstreams = [\"boiler.*\"]\n");
    // A file below a file cannot be made.
    std::fs::write(directory.join("blocked"), "").unwrap();
    write(
        directory,
        "exporters",
        "broken.toml",
        &exporter("../blocked/out"),
    );
    write(directory, "exporters", "good.toml", &exporter("../out"));
    write(directory, "wrappers", "boiler.toml", WRAPPER);
    std::fs::write(
        directory.join("data.csv"),
        "source_time,celsius\n,1\n,2\n,3\n",
    )
    .unwrap();
    block(async {
        let node = common::start(directory).await;
        let good = "/api/v1/exporters/good";
        let row = until(&node, good, |row| row["elements"] == 3).await;
        assert_eq!(row["streams"][0]["read"], 3, "{row}");
        let broken = "/api/v1/exporters/broken";
        until(&node, broken, |row| row["state"] == "trouble").await;
        let readers = common::get(&node, "/api/v1/readers").await.json();
        let readers = readers["readers"].as_array().unwrap();
        let kinds: Vec<_> = readers
            .iter()
            .map(|it| (&it["kind"], &it["reader"]))
            .collect();
        assert!(
            kinds.contains(&(&json!("exporter"), &json!("good"))),
            "{kinds:?}"
        );
        // Once the obstacle is gone, it begins where it was.
        std::fs::remove_file(directory.join("blocked")).unwrap();
        until(&node, broken, |row| row["elements"] == 3).await;
        let text = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        assert_eq!(text("out"), text("blocked/out"));
        assert_eq!(text("out").lines().count(), 3);
        node.shutdown().await.unwrap();
    });
}

/// The sum of the samples of a metric with these labels.
async fn metric(node: &chappe_node::Node, name: &str, labels: &str) -> f64 {
    let text = common::get(node, "/metrics").await.body;
    let samples = text.lines().filter(|line| {
        line.starts_with(&format!("chappe_{name}_total{{")) && line.contains(labels)
    });
    samples
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

#[test]
fn everything_that_is_not_stored_is_counted_everywhere() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let stream = |name: &str| {
        format!(
            "[[stream]]\nname = \"{name}\"\nfields = [{{ name = \"value\", type = \"integer\" }}]\n"
        )
    };
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let hook = "kind = \"webhook\"\nformat = \"json\"\nlimits = { dead_letters = 1 }\n";
    write(
        directory,
        "wrappers",
        "hook.toml",
        &format!("{hook}{}", stream("hook")),
    );
    let data = "kind = \"file\"\npath = \"../data.csv\"\nformat = \"csv\"\npoll_ms = 20\n";
    write(
        directory,
        "wrappers",
        "data.toml",
        &format!("{data}{}", stream("data")),
    );
    let lines = format!("kind = \"tcp\"\nlisten = \"{address}\"\nformat = \"json\"\n");
    write(
        directory,
        "wrappers",
        "lines.toml",
        &format!("{lines}{}", stream("lines")),
    );
    std::fs::write(directory.join("data.csv"), "value\n1\n").unwrap();
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        let node = &operated.node;
        until(node, "/api/v1/wrappers/data", |row| row["elements"] == 1).await;
        for wrapper in ["hook", "lines"] {
            let path = format!("/api/v1/wrappers/{wrapper}");
            until(node, &path, |row| {
                row["reason"].is_string() && row["state"] == "waiting"
            })
            .await;
        }
        // Two messages that are none, a file that is overwritten, and more connections than there may be.
        for _ in 0..2 {
            let answer = operated
                .change("POST", "/api/v1/wrappers/hook/messages", &json!("no"))
                .await;
            assert_eq!(answer.json()["undecodable"], 1, "{answer:?}");
        }
        std::fs::write(directory.join("data.csv"), "value\n2\n3\n").unwrap();
        let mut connections = Vec::new();
        for _ in 0..65 {
            connections.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
        // Wrapper, the member of its row, the reason among the drops, the metric and its labels.
        let table = [
            (
                "hook",
                "/undecodable",
                "undecodable",
                "wrapper_undecodable",
                "wrapper=\"hook\"",
            ),
            (
                "hook",
                "/dead_letters_dropped",
                "dead_letter_dropped",
                "wrapper_dead_letters_dropped",
                "wrapper=\"hook\"",
            ),
            (
                "data",
                "/lost/file_replaced",
                "file_replaced",
                "wrapper_lost",
                "file_replaced",
            ),
            (
                "lines",
                "/lost/too_many_connections",
                "too_many_connections",
                "wrapper_lost",
                "too_many_connections",
            ),
        ];
        for (wrapper, member, reason, name, labels) in table {
            let path = format!("/api/v1/wrappers/{wrapper}");
            let counted = |row: &Value| row.pointer(member).and_then(Value::as_u64) > Some(0);
            until(node, &path, counted).await;
            let of_wrapper = |drops: &Value| {
                let drops = drops["drops"].as_array().unwrap();
                drops
                    .iter()
                    .any(|it| it["reason"] == reason && it["peer"] == wrapper)
            };
            until(node, "/api/v1/drops", of_wrapper).await;
            assert!(metric(node, name, labels).await > 0.0, "{name} {labels}");
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_element_that_is_too_large_for_the_log_blocks_no_other() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let wrapper = "kind = \"webhook\"\nformat = \"json\"\n[[stream]]\nname = \"wave\"\n\
        fields = [{ name = \"wave\", type = \"samples\", period_s = 1 }]\n";
    write(directory, "wrappers", "hook.toml", wrapper);
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        let node = &operated.node;
        until(node, "/api/v1/wrappers/hook", |row| {
            row["reason"] == "no message has arrived"
        })
        .await;
        let path = "/api/v1/wrappers/hook/messages";
        for (samples, expected) in [(400_000, json!([0, 1])), (4, json!([1, 0]))] {
            let message = json!({ "wave": vec![1; samples] });
            let answer = operated.change("POST", path, &message).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            let it = answer.json();
            let dead = it["refused"].as_u64().unwrap() + it["undecodable"].as_u64().unwrap();
            assert_eq!(json!([it["elements"], dead]), expected, "{it}");
        }
        let row = common::get(node, "/api/v1/wrappers/hook").await.json();
        assert_eq!(row["restarts"], 0, "{row}");
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_message_of_many_elements_is_stored_whole() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let wrapper = "kind = \"webhook\"\nformat = \"csv\"\nlevel = \"process\"\n[[stream]]\nname = \"{k}\"\n\
        variables = { k = \"k\" }\n\
        fields = [{ name = \"a\", type = \"integer\" }, { name = \"b\", type = \"integer\" },\
        { name = \"c\", type = \"integer\" }]\n";
    write(directory, "wrappers", "hook.toml", wrapper);
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        let node = &operated.node;
        until(node, "/api/v1/wrappers/hook", |row| {
            row["reason"] == "no message has arrived"
        })
        .await;
        let rows = (0..45_000).map(|number| format!("{},{number},2,3\n", ["x", "y"][number % 2]));
        let body = format!("k,a,b,c\n{}", rows.collect::<String>());
        let credential = format!("Bearer {}", operated.token);
        let fields = [("Authorization", credential.as_str())];
        let path = "/api/v1/wrappers/hook/messages";
        let answer = common::send(node, "POST", path, &fields, body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let it = answer.json();
        assert_eq!(
            json!([it["elements"], it["undecodable"], it["refused"]]),
            json!([45_000, 0, 0])
        );
        for (stream, first) in [("x", 0), ("y", 1)] {
            let log = node.stream(stream).unwrap();
            let elements = log.read(0, 50_000).unwrap();
            let values = elements.iter().map(|it| it.values[0].clone());
            let expected = (first..45_000)
                .step_by(2)
                .map(chappe_stream::Value::Integer);
            assert!(values.eq(expected), "{stream}: {} elements", elements.len());
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_webhook_answers_what_became_of_its_message() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let wrapper = "kind = \"webhook\"\nformat = \"json\"\n[[stream]]\nname = \"{a}.{b}\"\n\
        variables = { a = \"$.a\", b = \"$.b\" }\n\
        fields = [{ name = \"value\", type = \"integer\" }]\n";
    write(directory, "wrappers", "hook.toml", wrapper);
    block(async {
        let operated = Operated::start(&common::config(directory), None).await;
        until(&operated.node, "/api/v1/wrappers/hook", |row| {
            row["reason"] == "no message has arrived"
        })
        .await;
        let path = "/api/v1/wrappers/hook/messages";
        let message = |a: &str, b: &str| json!({ "a": a, "b": b, "value": 1 });
        // The audit stream is the node's.
        for (body, expected) in [
            (message("plant", "x"), json!([1, 0, 0])),
            (message("chappe", "audit"), json!([0, 0, 1])),
            (
                json!({ "a": "plant", "b": "x", "value": "one" }),
                json!([0, 1, 0]),
            ),
        ] {
            let answer = operated.change("POST", path, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            let it = answer.json();
            let counts = json!([it["elements"], it["undecodable"], it["refused"]]);
            assert_eq!(counts, expected, "{body}");
        }
        let letters = common::get(&operated.node, "/api/v1/wrappers/hook/dead-letters").await;
        assert_eq!(letters.json()["dead_letters"].as_array().unwrap().len(), 2);
        operated.node.shutdown().await.unwrap();
    });
}
