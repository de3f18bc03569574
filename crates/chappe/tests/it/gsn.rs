//! Goal: descriptors of GSN are converted with a report, and an import goes on after a file that has no
//! counterpart.
//! Method: the built program on files of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const FULL: &str = include_str!("../../../gsn/tests/descriptors/full.xml");
const CHART: &str = include_str!("../../../gsn/tests/descriptors/chart.xml");

fn chappe(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chappe"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_file_is_converted_both_ways() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let folder = folder.path();
    fs::write(folder.join("full.xml"), FULL).expect("the file is written");
    let converted = chappe(folder, &["sensor", "convert", "full.xml"]);
    let (out, err) = (text(&converted.stdout), text(&converted.stderr));
    assert_eq!(converted.status.code(), Some(0), "{err}");
    assert!(out.contains("name = \"roofstation\""), "{out}");
    assert!(err.contains("38: storage@history-size: changed"), "{err}");
    assert!(!(out.clone() + &err).contains("secret-of"), "{out}{err}");
    fs::write(folder.join("full.toml"), &out).expect("the file is written");
    let back = chappe(folder, &["sensor", "convert", "full.toml", "--json"]);
    let back: Value = serde_json::from_slice(&back.stdout).expect("JSON");
    let xml = back["descriptor"].as_str().expect("a text");
    fs::write(folder.join("again.xml"), xml).expect("the file is written");
    let again = chappe(folder, &["sensor", "convert", "again.xml", "--to", "toml"]);
    assert_eq!(text(&again.stdout), out);
    let wrong = FULL.replace("12h", "12d");
    fs::write(folder.join("wrong.xml"), wrong).expect("the file is written");
    let wrong = chappe(folder, &["sensor", "convert", "wrong.xml"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("wrong.xml:38:3: storage@history-size"));
}

#[test]
fn an_import_goes_on_after_a_file_without_a_counterpart() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let folder = folder.path();
    let gsn = folder.join("gsn");
    fs::create_dir(&gsn).expect("the folder is made");
    fs::write(gsn.join("full.xml"), FULL).expect("the file is written");
    fs::write(gsn.join("chart.xml"), CHART).expect("the file is written");
    let scriptlet = CHART.replace("ChartVirtualSensor", "ScriptletProcessor");
    fs::write(gsn.join("scriptlet.xml"), scriptlet).expect("the file is written");
    fs::write(gsn.join("twin.xml"), CHART).expect("the file is written");

    let dry = chappe(folder, &["import", "gsn", "gsn", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(1), "{}", text(&dry.stderr));
    assert!(!folder.join("sensors").exists());
    let out = text(&dry.stdout);
    for part in [
        "chart.xml -> sensors/chart.toml: ",
        "class-name: changed: a bridge; the console draws charts",
        "scriptlet.xml: not imported",
        "twin.xml: another file has the name \"chart\"",
        "hint: write the computation in SQL",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let import = ["import", "gsn", "gsn", "--json"];
    let imported = chappe(folder, &import);
    assert_eq!(imported.status.code(), Some(1));
    let files: Value = serde_json::from_slice(&imported.stdout).expect("JSON");
    let files = files.as_array().expect("a list");
    assert_eq!(files.len(), 4);
    let full = files
        .iter()
        .find(|it| it["sensor_file"] == "sensors/roofstation.toml");
    let full = full.expect("it is imported");
    assert_eq!(full["links"][0]["stream"], "mote_7");
    let sensor = fs::read_to_string(folder.join("sensors/roofstation.toml"));
    let sensor = sensor.expect("the file is written");
    assert!(sensor.contains("kind = \"gsn-zeromq-async\""), "{sensor}");
    assert!(full["report"].as_array().expect("a list").len() > 40);
    let check = "sensors_directory = \"sensors\"\n[access]\nread = \"token\"\n";
    fs::write(folder.join("node.toml"), check).expect("the file is written");
    let checked = chappe(folder, &["config", "check", "node.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    // A protected sensor, and files that exist.
    let open = check.replace("\"token\"", "\"open\"");
    fs::write(folder.join("node.toml"), open).expect("the file is written");
    let refused = chappe(folder, &["config", "check", "node.toml"]);
    assert!(
        text(&refused.stderr).contains("protected"),
        "{}",
        text(&refused.stderr)
    );
    let again = chappe(folder, &import);
    assert!(text(&again.stdout).contains("--replace"));
    let replaced = chappe(folder, &[&import[..], &["--replace"]].concat());
    assert!(!text(&replaced.stdout).contains("exists"));
}

#[test]
fn a_folder_without_descriptors_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    for directory in [".", "nowhere"] {
        let output = chappe(folder.path(), &["import", "gsn", directory]);
        assert_eq!(output.status.code(), Some(2));
        let text = text(&output.stderr);
        assert!(text.contains("hint: name GSN's directory"), "{text}");
    }
}
