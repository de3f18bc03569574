//! Goal: what a program makes of a stream is stored exactly once, through kills of the program and stops of the
//! node; one that stalls delays no other and shows how far behind it is; a loop is refused; and what a program
//! prints for people is a notice.
//! Method: shell scripts as programs of a node in this process, which the test kills.

use std::path::Path;
use std::time::Duration;

use chappe_log::Level;
use chappe_node::Node;
use chappe_stream::{FieldType, StreamElement, Value};
use serde_json::{Value as Json, json};

use crate::common::devices::until;
use crate::common::elements::{element, schema};
use crate::common::{self, block};

/// The sum of all counts so far, which is its state. Its process number is in the file `pid`.
const SUM: &str = concat!(
    "echo $$ > pid\n",
    include_str!("../../../chappe/tests/it/sum.sh")
);

/// A processor whose program is a script.
fn write(directory: &Path, name: &str, keys: &str, script: &str) {
    let folder = directory.join("wrappers");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.sh")), script).unwrap();
    let text = format!("kind = \"program\"\nprogram = [\"sh\", \"{name}.sh\"]\n{keys}");
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

fn keys(input: &str, output: &str) -> String {
    format!(
        "inputs = [\"{input}\"]\n[[stream]]\nname = \"{output}\"\n\
         fields = [{{ name = \"sum\", type = \"integer\" }}]\n"
    )
}

/// Elements with the integers from `first` to `last`.
fn counts(first: i64, last: i64) -> Vec<StreamElement> {
    let integers = (first..=last).map(|count| element(count, vec![Value::Integer(count)]));
    integers.collect()
}

/// Writes a stream `raw` with the integers up to `last` before the node starts.
fn prepare(directory: &Path, last: i64) {
    common::prepare_log(directory, |store| {
        let schema = schema(&[("count", FieldType::Integer)]);
        let log = store.stream("raw", Level::Process, &schema, None).unwrap();
        log.append(&counts(1, last)).unwrap().wait().unwrap();
    });
}

fn integers(node: &Node, stream: &str) -> Vec<i64> {
    let Some(log) = node.stream(stream) else {
        return Vec::new();
    };
    let elements = log.read(0, 1_000_000).unwrap();
    let integer = |element: &StreamElement| match element.values[0] {
        Value::Integer(number) => number,
        ref other => panic!("{other:?}"),
    };
    elements.iter().map(integer).collect()
}

fn sums(last: i64) -> Vec<i64> {
    (1..=last).map(|count| count * (count + 1) / 2).collect()
}

#[test]
fn outputs_are_stored_exactly_once_through_kills_and_stops() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    const EACH: i64 = 3_000;
    prepare(directory, EACH);
    write(directory, "sum", &keys("raw", "sum"), SUM);
    let pid = directory.join("wrappers/pid");
    for run in 1..=4 {
        let last = EACH * run;
        block(async {
            let node = common::start(directory).await;
            if run > 1 {
                let raw = node.stream("raw").unwrap();
                let appended = raw.append(&counts(last - EACH + 1, last)).unwrap();
                appended.await.unwrap();
            }
            let mut kills = 0;
            while integers(&node, "sum").len() < usize::try_from(last).unwrap() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                // The node starts it again after half a second.
                if kills < 4
                    && let Ok(text) = std::fs::read_to_string(&pid)
                    && let Ok(number) = text.trim().parse()
                {
                    let _ = std::fs::remove_file(&pid);
                    let _ = nix::sys::signal::kill(
                        nix::unistd::Pid::from_raw(number),
                        nix::sys::signal::Signal::SIGKILL,
                    );
                    kills += 1;
                }
                // Every other run ends in the middle.
                if run % 2 == 1 && kills == 3 {
                    break;
                }
            }
            node.shutdown().await.unwrap();
        });
    }
    block(async {
        let node = common::start(directory).await;
        let row = "/api/v1/wrappers/sum";
        let read = |row: &Json| row["inputs"][0]["read"] == json!(4 * EACH);
        until(&node, row, read).await;
        assert_eq!(integers(&node, "sum"), sums(4 * EACH));
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_processor_that_stalls_delays_no_other_and_shows_how_far_behind_it_is() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    prepare(directory, 5_000);
    write(directory, "sum", &keys("raw", "sum"), SUM);
    let stalled = format!("answer_ms = 3600000\n{}", keys("raw", "stalled"));
    write(directory, "stalled", &stalled, "sleep 3600");
    let mute = format!("answer_ms = 200\n{}", keys("raw", "mute"));
    write(directory, "mute", &mute, "while read -r line; do :; done");
    block(async {
        let node = common::start(directory).await;
        until(&node, "/api/v1/wrappers/sum", |row| {
            row["inputs"][0]["read"] == 5_000
        })
        .await;
        let mute = "/api/v1/wrappers/mute";
        let row = until(&node, mute, |row| row["state"] == "trouble").await;
        assert_eq!(row["reason"], "no \"stored\" within 0.2 s", "{row}");
        let readers = common::get(&node, "/api/v1/readers").await.json();
        let find = |name: &str| {
            let all = readers["readers"].as_array().unwrap().iter();
            let mut found = all.filter(|it| it["kind"] == "processor" && it["reader"] == name);
            found.next().unwrap_or_else(|| panic!("{readers}")).clone()
        };
        for (name, read) in [("sum", 5_000), ("stalled", 0)] {
            let reader = find(name);
            assert_eq!(
                (&reader["read"], &reader["stream"]),
                (&json!(read), &json!("raw"))
            );
            assert_eq!(reader["lag_elements"], 5_000 - read, "{reader}");
        }
        assert_eq!(integers(&node, "sum"), sums(5_000));
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_loop_is_refused() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    prepare(directory, 3);
    // By its file.
    write(directory, "own", &keys("a.*", "a.own"), "exit");
    // By a stream that the program defines.
    let defines = r#"
        read -r start
        echo '{"stream":{"name":"b.own","fields":[{"name":"sum","type":"integer"}]}}'
        cat > /dev/null
    "#;
    write(directory, "later", "inputs = [\"b.*\"]\n", defines);
    // By another processor.
    write(directory, "there", &keys("back", "forth"), SUM);
    write(directory, "back", &keys("forth", "back"), SUM);
    block(async {
        let node = common::start(directory).await;
        let row = until(&node, "/api/v1/wrappers/own", |row| {
            row["state"] == "failed"
        })
        .await;
        assert_eq!(row["error"]["key"], "inputs", "{row}");
        let in_trouble = |row: &Json| row["state"] == "trouble";
        let row = until(&node, "/api/v1/wrappers/later", in_trouble).await;
        let reason = row["reason"].as_str().unwrap();
        assert!(
            reason.contains("\"b.own\", which the program itself writes"),
            "{row}"
        );
        for name in ["there", "back"] {
            let path = format!("/api/v1/wrappers/{name}");
            let is_found = |row: &Json| {
                row["reason"]
                    .as_str()
                    .is_some_and(|it| it.contains("a loop"))
            };
            until(&node, &path, is_found).await;
        }
        node.shutdown().await.unwrap();
    });
}

#[test]
fn standard_error_becomes_notices() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    let script = "read -r start; echo 'the sensor is cold' >&2; cat > /dev/null";
    write(directory, "warm", &keys("raw", "warm"), script);
    let flood = "while :; do echo 'again and again' >&2; done";
    write(directory, "flood", &keys("raw", "flood"), flood);
    block(async {
        let node = common::start(directory).await;
        let of = |list: &Json, subject: &str| -> Vec<String> {
            let notices = list["notices"].as_array().unwrap().iter();
            let own = notices.filter(|it| it["subject"] == subject);
            own.map(|it| it["text"].as_str().unwrap().to_owned())
                .collect()
        };
        let has = |list: &Json| {
            of(list, "warm") == ["the sensor is cold"] && !of(list, "flood").is_empty()
        };
        let list = until(&node, "/api/v1/notices", has).await;
        let flood = of(&list, "flood");
        assert!(
            flood.len() <= 2 && flood[0].contains("more lines"),
            "{flood:?}"
        );
        node.shutdown().await.unwrap();
    });
}
