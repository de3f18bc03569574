//! Goal: a wrapper in the file of a virtual sensor runs with the sensor, is shown and checked like one with a file of
//! its own, and cannot be sent by someone who may not send wrappers.
//! Method: a node whose sensor follows a CSV file, falls back to a stream, and is changed over REST.

use std::fs;
use std::io::Write as _;

use crate::common::devices::until;
use crate::common::linked::stored;
use crate::common::{Operated, block, config, get, send, write_sensor};
use chappe_stream::Value;

fn sensor(path: &str) -> String {
    format!(
        "name = \"hall\"\n[[source]]\nalias = \"probe\"\nfallback = [{{ stream = \"spare\" }}]\n\
         [source.wrapper]\nkind = \"file\"\npath = \"{path}\"\nformat = {{ csv = {{ time = \"at\", time_format = \
         \"s\" }} }}\n[[source.wrapper.stream]]\nname = \"hall.probe\"\nfields = [{{ name = \"celsius\", type = \
         \"double\" }}]\n[output]\nsql = \"select celsius + 1 as above from probe\"\n[[output.field]]\n\
         name = \"above\"\ntype = \"double\"\n"
    )
}

const PATH: &str = "/api/v1/virtual-sensors/hall";
const WRAPPER: &str = "/api/v1/wrappers/hall.probe";

#[test]
fn a_wrapper_runs_with_its_sensor() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        write_sensor(directory.path(), "hall", &sensor("hall.csv"));
        let csv = config.sensors_directory.join("hall.csv");
        fs::write(&csv, "at,celsius\n1,20\n").unwrap();
        let operated = Operated::start(&config, None).await;
        let node = &operated.node;
        let shown = until(node, PATH, |sensor| {
            sensor["state"] == "running" && sensor["sources"][0]["choices"][0]["is_used"] == true
        });
        let shown = shown.await;
        assert_eq!(shown["wrappers"][0], "hall.probe");
        assert_eq!(shown["sources"][0]["wrapper"], "hall.probe");
        let wrapper = until(node, WRAPPER, |row| row["elements"] == 1).await;
        assert_eq!(
            (&wrapper["kind"], &wrapper["sensor"]),
            (&"file".into(), &"hall".into())
        );
        let mut file = fs::OpenOptions::new().append(true).open(&csv).unwrap();
        file.write_all(b"2,21\n").unwrap();
        let is_there = |held: &[_]| {
            let last = held
                .last()
                .map(|last: &chappe_stream::StreamElement| &last.values[0]);
            last == Some(&Value::Double(22.0))
        };
        stored(node, "hall", is_there).await;

        // It belongs to the sensor's file.
        let answer = operated
            .change("DELETE", WRAPPER, &serde_json::Value::Null)
            .await;
        assert_eq!(answer.status, 409, "{answer:?}");
        assert!(csv.with_file_name("hall.toml").exists());
        let credential = format!("Bearer {}", operated.token);
        let put = async |text: &str| {
            let fields = [("Authorization", credential.as_str())];
            send(node, "PUT", PATH, &fields, text.as_bytes()).await
        };
        for (text, found) in [
            (sensor("/etc/passwd"), "/etc/passwd"),
            (sensor("../node.toml"), "node.toml"),
            (
                sensor("a.csv").replace("kind = \"file\"", "kind = \"program\""),
                "program",
            ),
            (sensor("a.csv").replace("path =", "paht ="), "paht"),
        ] {
            let answer = put(&text).await;
            assert_eq!(answer.status, 422, "{answer:?}");
            assert!(answer.body.contains(found), "{answer:?}");
        }
        assert_eq!(get(node, WRAPPER).await.status, 200);

        // Without the wrapper the sensor reads the other stream, and the wrapper ends.
        let plain = "name = \"hall\"\n[[source]]\nalias = \"probe\"\nstream = \"spare\"\n[output]\nsql = \
                     \"select celsius + 1 as above from probe\"\n[[output.field]]\nname = \"above\"\ntype = \
                     \"double\"\n";
        assert_eq!(put(plain).await.status, 204);
        until(node, PATH, |sensor| {
            sensor["wrappers"] == serde_json::json!([])
        })
        .await;
        assert_eq!(get(node, WRAPPER).await.status, 404);
        let spare = serde_json::json!({
            "name": "spare", "fields": [{ "name": "celsius", "type": "double" }],
        });
        let defined = operated.change("POST", "/api/v1/streams", &spare).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        until(node, PATH, |sensor| sensor["state"] == "running").await;
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn config_check_finds_faults_of_wrappers_in_sensors() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    write_sensor(directory.path(), "hall", &sensor("hall.csv"));
    assert!(chappe_node::check(&config).is_ok());
    for (from, to, line, key) in [
        ("\"file\"", "\"fil\"", 6, "kind"),
        ("path =", "paht =", 7, "paht"),
        ("\"double\" }]", "\"duble\" }]", 11, "type"),
    ] {
        let text = sensor("hall.csv").replacen(from, to, 1);
        write_sensor(directory.path(), "hall", &text);
        let error = chappe_node::check(&config).unwrap_err();
        let problem = &error.problems[0];
        assert_eq!(
            (problem.line, problem.key.as_deref()),
            (Some(line), Some(key)),
            "{problem}"
        );
        assert!(problem.hint.is_some(), "{problem}");
    }
}
