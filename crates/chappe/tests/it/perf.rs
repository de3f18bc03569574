//! Goal: `chappe perf` measures between two processes, ends with the exit code of its conditions, and
//! writes rows as comma-separated values.
//! Method: the built program as publisher and as subscriber, on a free port of loopback.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};

fn chappe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
    command.arg("perf").args(arguments);
    command
}

/// Starts a publisher of 100 samples and returns its endpoint.
fn publisher(more: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let fixed = [
        "pub",
        "--json",
        "--listen",
        "tcp://127.0.0.1:0",
        "--warm-up",
        "0s",
    ];
    let mut command = chappe(&fixed);
    command
        .args(["--size", "500,5000", "--count", "50", "--duration", "300s"])
        .args(more);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output"));
    let endpoint = lines.by_ref().lines().find_map(|line| {
        let event: serde_json::Value = serde_json::from_str(&line.ok()?).ok()?;
        event["endpoint"].as_str().map(str::to_owned)
    });
    (child, lines, endpoint.expect("it listens"))
}

fn last_line(text: &[u8]) -> serde_json::Value {
    let text = String::from_utf8_lossy(text);
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

/// Runs both ends: the publisher's exit code and last line, the subscriber's output.
fn both(publish: &[&str], subscribe: &[&str]) -> (Option<i32>, serde_json::Value, Output) {
    let (mut child, mut lines, endpoint) = publisher(publish);
    let subscriber = chappe(&["sub", "--connect", &endpoint])
        .args(subscribe)
        .output();
    let subscriber = subscriber.expect("it runs");
    let mut rest = Vec::new();
    lines.read_to_end(&mut rest).expect("the rest");
    let code = child.wait().expect("it ends").code();
    (code, last_line(&rest), subscriber)
}

#[test]
fn met_conditions_end_with_0_and_write_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = folder.path().join("rows.csv");
    let csv = rows.to_str().expect("a path");
    let publish = [
        "--pacer",
        "fixed_window:2,adaptive",
        "--interval",
        "1ms",
        "--csv",
        csv,
    ];
    let subscribe = [
        "--json",
        "--max-lost",
        "0",
        "--require-samples",
        "200",
        "--min-rate",
        "0.001",
    ];
    let (code, published, subscriber) = both(&publish, &subscribe);
    assert_eq!(
        (code, subscriber.status.code()),
        (Some(0), Some(0)),
        "{subscriber:?}"
    );
    let subscribed = last_line(&subscriber.stdout);
    assert_eq!(
        (&published["event"], &subscribed["event"]),
        (&"published".into(), &"subscribed".into())
    );
    assert_eq!(
        (&subscribed["received"], &subscribed["lost"]),
        (&200.into(), &0.into())
    );
    assert_eq!(published["phases"].as_array().map(Vec::len), Some(4));
    assert_eq!(subscribed["latency_by"], "one_clock");
    let met = subscribed["criteria"].as_array().expect("criteria");
    assert!(
        met.len() == 6 && met.iter().all(|one| one["met"] == true),
        "{met:?}"
    );
    let text = std::fs::read_to_string(&rows).expect("the rows");
    let columns = text.lines().next().map(|head| head.split(',').count());
    assert!(text.starts_with("at_s,phase,size_bytes,pacer,"));
    assert!(
        text.lines().count() > 1
            && text
                .lines()
                .all(|row| Some(row.split(',').count()) == columns)
    );
}

#[test]
fn a_missed_condition_is_named_and_ends_with_1() {
    let (code, published, subscriber) = both(
        &["--require-samples", "1000"],
        &["--max-p99", "1ns", "--max-lost", "0"],
    );
    assert_eq!((code, subscriber.status.code()), (Some(1), Some(1)));
    assert_eq!(published["criteria"][0]["met"], false);
    let out = String::from_utf8_lossy(&subscriber.stdout);
    assert!(out.contains("MISSED --max-p99 in phase 0"), "{out}");
    assert!(!out.contains("MISSED --max-lost"), "{out}");
}

#[test]
fn impossible_measurements_end_with_2_and_a_hint() {
    let cases: [&[&str]; 5] = [
        &["pub", "--max-p99", "1ms"],
        &["pub", "--best-effort", "--pacer", "napa"],
        &["pub", "--size", "10"],
        &["pub", "--listen", "tcp://127.0.0.1:0", "--wait", "1ms"],
        &["sub", "--connect", "tcp://127.0.0.1:9", "--wait", "1ms"],
    ];
    for arguments in cases {
        let output = chappe(arguments).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains("hint: "), "{arguments:?}: {error}");
    }
    let wrong = chappe(&["sub", "--connect", "foo"])
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(error.contains("hint: write tcp://HOST:PORT"), "{error}");
    let output = chappe(&["pub", "--pacer", "fast"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}
