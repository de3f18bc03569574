//! Goal: from nothing to a node of one's own, and from a stream to a tested sensor, with each mistake explained.
//! Method: the built program on loopback, in directories of the test; a node in this process; wrong uses.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};
use serde_json::Value as Json;

use crate::output::{err, out};

fn chappe(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("CHAPPE_NODE")
        .output()
        .expect("the program starts")
}

fn json(output: &Output) -> Json {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", err(output)))
}

/// Checks that a command fails with this code, and says these words.
fn fails(directory: &Path, arguments: &[&str], code: i32, words: &[&str]) {
    let output = chappe(directory, arguments);
    let text = out(&output) + &err(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?}: {word:?} in {text}");
    }
}

const MEAN: &str = "name = \"warm\"\n[[source]]\nalias = \"air\"\nstream = \"lab.room\"\n\
    window = 2\nslide = 1\n[output]\nsql = \"select avg(temperature) as mean from air\"\n\
    [[output.field]]\nname = \"mean\"\ntype = \"double\"\n";

#[test]
fn a_configuration_is_written_once_and_served() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path();
    let init = [
        "init",
        "plant",
        "--name",
        "mill",
        "--interface",
        "lo",
        "--timeout",
        "200ms",
    ];
    let made = chappe(at, &[&init[..], &["--json"]].concat());
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    assert_eq!(json(&made)["file"], "plant/node.toml");
    let file = at.join("plant/node.toml");
    let text = fs::read_to_string(&file).expect("the file");
    assert!(text.starts_with("#:schema ./node.schema.json\n"), "{text}");
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert!(lines.count() <= 12, "{text}");
    let schema = fs::read_to_string(at.join("plant/node.schema.json")).expect("the schema");
    assert!(serde_json::from_str::<Json>(&schema).is_ok());
    let checked = chappe(at, &["config", "check", "plant/node.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));

    fails(
        at,
        &init,
        2,
        &["exists", "hint: start it: chappe up plant", "--force"],
    );
    let forced = chappe(at, &[&init[..], &["--force"]].concat());
    assert_eq!(forced.status.code(), Some(0), "{}", err(&forced));

    let mut child = Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(["up", "plant", "--set", "http.listen=127.0.0.1:0"])
        .current_dir(at)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut ready = String::new();
    let stdout = child.stdout.as_mut().expect("its output");
    BufReader::new(stdout)
        .read_line(&mut ready)
        .expect("a line");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(
        ready.starts_with("mill is ready at http://127.0.0.1:"),
        "{ready}"
    );
    assert!(at.join("plant/data/log").is_dir());
}

#[test]
fn mistakes_at_the_start_name_the_next_command() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path();
    fails(
        at,
        &["up"],
        2,
        &["there is no ./node.toml", "hint: ", "chappe init"],
    );
    fails(at, &["up", "plant"], 2, &["chappe init plant"]);
    fails(
        at,
        &["init", "--host", "192.0.2.7"],
        2,
        &["--host", "--proxy"],
    );
    fails(
        at,
        &["init", "--interface", "no-such"],
        2,
        &["hint: interfaces: "],
    );
    fails(at, &["inti"], 2, &["init"]);
    fs::write(at.join("file"), "").expect("a file");
    fails(
        at,
        &[
            "init",
            "file/plant",
            // Before the search, which would fail.
            "--interface",
            "no-such",
        ],
        2,
        &[
            "cannot create file/plant",
            "hint: name a directory that you can write",
        ],
    );
    // A console's port that another program has.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    fs::write(at.join("node.toml"), "[discovery]\nenabled = false\n").expect("a file");
    fails(
        at,
        &["up", "--set", &format!("http.listen={address}")],
        2,
        &["cannot listen on", "hint: find the program that uses it"],
    );
}

#[test]
fn a_service_needs_systemd_and_its_unit_can_be_seen_without() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path();
    fs::write(at.join("node.toml"), "name = \"mill\"\n").expect("a file");
    let printed = chappe(at, &["service", "install", "--print"]);
    let text = out(&printed);
    assert_eq!(printed.status.code(), Some(0), "{}", err(&printed));
    let serve = format!(" serve {}\n", at.join("node.toml").display());
    assert!(
        text.contains("ExecStart=") && text.contains(&serve),
        "{text}"
    );
    if !Path::new("/run/systemd/system").is_dir() {
        for verb in ["install", "uninstall", "status"] {
            fails(
                at,
                &["service", verb],
                2,
                &["systemd does not run here", "hint: "],
            );
        }
        fails(at, &["service", "install"], 2, &[serve.trim()]);
    }
    fails(
        at,
        &["service", "install", "nowhere"],
        2,
        &["chappe init nowhere"],
    );
}

#[test]
fn a_descriptor_is_written_tried_on_a_file_and_tested() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path();
    let new = [
        "new",
        "sensor",
        "warm",
        "--from",
        "lab.room",
        "--fields",
        "temperature:double:Cel,door:text",
    ];
    let made = chappe(at, &new);
    assert_eq!(made.status.code(), Some(0), "{}", err(&made));
    let text = fs::read_to_string(at.join("sensors/warm.toml")).expect("the file");
    assert!(
        text.starts_with("#:schema ./sensor.schema.json\n"),
        "{text}"
    );
    assert!(at.join("sensors/sensor.schema.json").is_file());
    fails(at, &new, 2, &["exists", "--force"]);
    fails(
        at,
        &["new", "sensor", "Warm Room", "--from", "a"],
        2,
        &["hint: a name consists of"],
    );
    let rows: String = (0..60).map(|n| format!("{n},shut\n")).collect();
    fs::write(at.join("room.csv"), format!("temperature,door\n{rows}")).expect("a file");
    let arguments = ["try", "sensors/warm.toml", "--input", "room.csv", "--json"];
    let tried = chappe(at, &arguments);
    assert_eq!(tried.status.code(), Some(0), "{}", err(&tried));
    let course = json(&tried);
    assert_eq!(
        (&course["elements_in"], &course["failures"]),
        (&60.into(), &Json::Array(vec![]))
    );
    assert!(course["elements_out"].as_u64() > Some(4), "{course}");
    let shown = out(&chappe(at, &arguments[..4]));
    assert!(shown.contains("temperature 59  door shut"), "{shown}");
    assert!(shown.contains("temperature_mean (Cel)"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown}");

    // The node takes the descriptor, and passes over the expectations.
    fs::write(at.join("sensors/warm.toml"), MEAN).expect("a file");
    let expected = "[[test]]\nname = \"of two\"\ninput = [{ temperature = 20 }, { temperature = 23.0 }]\n\
        output = [{ mean = 20 },\n  { at = \"1s\", mean = 21.5 }]\n";
    fs::write(at.join("sensors/warm.test.toml"), expected).expect("a file");
    fs::write(at.join("node.toml"), "").expect("a file");
    let checked = chappe(at, &["config", "check", "node.toml", "--json"]);
    assert_eq!(
        json(&checked)["virtual_sensors"],
        serde_json::json!(["warm"])
    );
    let tested = chappe(at, &["test"]);
    assert_eq!(
        tested.status.code(),
        Some(0),
        "{}{}",
        out(&tested),
        err(&tested)
    );
    assert!(
        out(&tested).contains("1 passed, 0 failed"),
        "{}",
        out(&tested)
    );

    let wrong = expected.replace("21.5", "21.4");
    fs::write(at.join("sensors/warm.test.toml"), &wrong).expect("a file");
    let words = [
        "row 2 (line 5): mean is 21.5, expected 21.4",
        "0 passed, 1 failed",
    ];
    fails(at, &["test", "sensors"], 1, &words);
    let failed = json(&chappe(at, &["test", "sensors/warm.test.toml", "--json"]));
    assert_eq!(failed["tests"][0]["differences"][0]["expected"], 21.4);
    fs::write(
        at.join("sensors/warm.test.toml"),
        format!("tolerance = 0.2\n{wrong}"),
    )
    .expect("a file");
    assert_eq!(chappe(at, &["test"]).status.code(), Some(0));
}

#[test]
fn the_expectations_of_the_reference_hold() {
    let page = include_str!("../../../../docs/reference/virtual-sensors.md");
    let block = page
        .lines()
        .skip_while(|line| !line.starts_with("    tolerance = "))
        .take_while(|line| line.is_empty() || line.starts_with("    "));
    let lines: Vec<&str> = block
        .map(|line| line.get(4..).unwrap_or_default())
        .collect();
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path();
    fs::write(at.join("warm.toml"), MEAN).expect("a file");
    fs::write(at.join("warm.test.toml"), lines.join("\n")).expect("a file");
    let tested = chappe(at, &["test", "."]);
    let text = out(&tested) + &err(&tested);
    assert!(text.contains("1 passed, 0 failed"), "{text}");
}

#[test]
fn wrong_trials_and_expectations_say_what_is_wrong() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path();
    fs::write(at.join("warm.toml"), MEAN).expect("a file");
    fs::write(at.join("wrong.csv"), "humidity\n1\n").expect("a file");
    let input = |file: &'static str| ["try", "warm.toml", "--input", file];
    fails(at, &input("none.csv"), 2, &["cannot read none.csv"]);
    fails(
        at,
        &input("wrong.csv"),
        2,
        &["temperature", "hint: compare the columns"],
    );
    fails(
        at,
        &input("air2=wrong.csv"),
        2,
        &["no source \"air2\"", "its sources are air"],
    );
    fails(at, &["try", "none.toml"], 2, &["cannot read none.toml"]);
    fails(
        at,
        &["try", "warm.toml", "--node", "http://127.0.0.1:9"],
        2,
        &["chappe up", "--input"],
    );
    fails(
        at,
        &["try", "warm.toml", "--data", "none"],
        2,
        &["cannot read the log", "hint: name the data"],
    );
    fs::write(at.join("few.csv"), "temperature\n1\n").expect("a file");
    let none = MEAN.replace("from air", "from air having count(*) > 5");
    fs::write(at.join("warm.toml"), none).expect("a file");
    fails(
        at,
        &input("few.csv"),
        1,
        &["1 in, 0 out", "hint: no row was output"],
    );
    // An element that is too far ahead, and one that is late.
    let early = "source_time,receive_time,temperature\n\
        2026-11-27T10:10:00Z,2026-11-27T10:00:00Z,1\n";
    fs::write(at.join("few.csv"), early).expect("a file");
    let words = [
        "not used: 1 early of air",
        "hint: no row was output, and not",
    ];
    fails(at, &input("few.csv"), 1, &words);
    fs::write(at.join("warm.toml"), MEAN).expect("a file");
    let late = "source_time,receive_time,temperature\n\
        2026-11-27T10:00:02Z,2026-11-27T10:00:02Z,1\n\
        2026-11-27T10:00:03Z,2026-11-27T10:00:03Z,1\n\
        2026-11-27T10:00:01Z,2026-11-27T10:00:04Z,1\n";
    fs::write(at.join("few.csv"), late).expect("a file");
    let tried = chappe(at, &[&input("few.csv")[..], &["--json"]].concat());
    let wanted = serde_json::json!([{ "source": "air", "reason": "late", "count": 1 }]);
    assert_eq!(json(&tried)["unused"], wanted);
    let unique = MEAN.replace("slide = 1", "slide = 1\nunique_times = true");
    fs::write(at.join("warm.toml"), unique).expect("a file");
    let expected = "[[test]]\noutput = []\n\
        input = [{ at = \"1s\", temperature = 1 }, { at = \"1s\", temperature = 2 }]\n";
    fs::write(at.join("warm.test.toml"), expected).expect("a file");
    let words = ["not used: 1 equal_time of air"];
    fails(at, &["test", "."], 1, &words);
    fs::remove_file(at.join("warm.test.toml")).expect("a file");
    fails(
        at,
        &["test", "."],
        1,
        &["has no expectations", "NAME.test.toml"],
    );
    fails(
        at,
        &["test", "none"],
        2,
        &["cannot read none", "chappe test DIR"],
    );
    fs::write(
        at.join("cold.test.toml"),
        "[[test]]\ninput = []\noutput = []\n",
    )
    .expect("a file");
    fails(
        at,
        &["test", "."],
        2,
        &["there is no descriptor ./cold.toml"],
    );
}

fn config(directory: &Path) -> Config {
    let mut config = Config {
        name: "test".into(),
        data_directory: directory.join("data"),
        sensors_directory: directory.join("sensors"),
        ..Config::default()
    };
    config.http.listen = "127.0.0.1:0".parse().expect("an address");
    config.discovery.enabled = false;
    config.log.min_free_bytes = 0;
    // The elements' times are in 2000, so retention would remove them.
    config.log.keep_age_s = 0;
    config
}

#[test]
fn elements_of_a_node_and_of_its_data_directory_are_tried_alike() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let at = scratch.path().to_owned();
    fs::write(at.join("warm.toml"), MEAN).expect("a file");
    let schema = StreamSchema {
        fields: vec![Field {
            name: "temperature".into(),
            field_type: FieldType::Double,
            unit: Some("Cel".into()),
            observed_property: None,
            description: None,
        }],
        key: None,
    };
    let element = |n: i64| StreamElement {
        position: Default::default(),
        source_time: Timestamp((946_684_800 + n) * 1_000_000_000),
        receive_time: Timestamp((946_684_800 + n) * 1_000_000_000),
        key: None,
        values: vec![Value::Double(n as f64)],
        quality: Default::default(),
        origin: None,
    };
    let elements: Vec<_> = (0..100).map(element).collect();
    chappe_node::runtime().expect("a runtime").block_on(async {
        let node = Node::start(config(&at)).await.expect("it starts");
        node.store("lab.room", &schema, &elements)
            .await
            .expect("stored");
        let url = node.url();
        let arguments = move |more: &[&str]| -> Vec<String> {
            let all = ["try", "warm.toml", "--last", "10s", "--json"];
            all.iter().chain(more).map(ToString::to_string).collect()
        };
        let (by_node, by_data) = (arguments(&["--node", &url]), arguments(&["--data", "data"]));
        let new = [
            "new", "sensor", "made", "--from", "lab.room", "--node", &url,
        ];
        let new: Vec<String> = new.iter().map(ToString::to_string).collect();
        let unknown = [
            "new",
            "sensor",
            "other",
            "--from",
            "lab.rooms",
            "--node",
            &url,
        ];
        let unknown: Vec<String> = unknown.iter().map(ToString::to_string).collect();
        let directory = at.clone();
        let ran = tokio::task::spawn_blocking(move || {
            [by_node, by_data, new, unknown].map(|arguments| {
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                chappe(&directory, &arguments)
            })
        });
        let [by_node, by_data, new, unknown] = ran.await.expect("they ran");
        let (one, other) = (json(&by_node), json(&by_data));
        assert_eq!(one["elements_in"], 11, "{one}");
        assert_eq!(one["elements_out"], 11);
        let last = one["steps"]
            .as_array()
            .and_then(|steps| steps.last())
            .expect("a step");
        assert_eq!(last["outputs"][0]["values"]["mean"], 98.5, "{last}");
        let values = |course: &Json| {
            let steps = course["steps"].as_array().expect("steps");
            let outputs = steps
                .iter()
                .map(|step| step["outputs"][0]["values"].clone());
            outputs.collect::<Vec<_>>()
        };
        assert_eq!(values(&one), values(&other));
        assert_eq!(new.status.code(), Some(0), "{}", err(&new));
        let text = fs::read_to_string(at.join("sensors/made.toml")).expect("the file");
        assert!(text.contains("unit = \"Cel\""), "{text}");
        assert!(unknown.status.code() == Some(2) && err(&unknown).contains("lab.room"));
        // Neither is a change to the node.
        let kept = node.stream("lab.room");
        assert!(kept.is_some_and(|log| log.kept() == 100));
        node.shutdown().await.expect("it stops");
    });
}

#[test]
fn a_data_directory_of_another_user_is_named() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let log = scratch.path().join("data/log");
    fs::create_dir_all(&log).expect("a directory");
    let mode = |mode| fs::set_permissions(&log, fs::Permissions::from_mode(mode));
    mode(0o000).expect("the mode is set");
    // Root reads it all the same.
    if fs::read_dir(&log).is_err() {
        let words = ["cannot read data/log", "as the user of the node"];
        fails(scratch.path(), &["data", "check", "data"], 2, &words);
    }
    mode(0o700).expect("the mode is set");
}
