//! Goal: a user can back up a running node, restore the backup, find damage and repair it; errors
//! name the remedy.
//! Method: a node in this process stores elements while the built program backs up its data; backups
//! are restored and started; a file is damaged, checked and repaired; wrong uses fail.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use chappe_node::Node;
use chappe_node::config::Config;
use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};
use serde_json::Value as Json;

fn chappe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chappe"));
    command
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn data(verb: &str, paths: &[&Path]) -> (Option<i32>, Json, String) {
    let mut arguments = vec!["data", verb, "--json"];
    arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let output = chappe(&arguments);
    let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), json, stderr)
}

fn config(directory: &Path) -> Config {
    let mut config = Config {
        name: "test".into(),
        data_directory: directory.to_owned(),
        sensors_directory: directory.join("sensors"),
        ..Config::default()
    };
    config.http.listen = "127.0.0.1:0".parse().unwrap();
    config.discovery.enabled = false;
    config.log.min_free_bytes = 0;
    // The elements' times are in 1970, so retention would remove them.
    config.log.keep_age_s = 0;
    config.log.segment_bytes = 65_536;
    config
}

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "text".into(),
            field_type: FieldType::Text,
            unit: None,
            observed_property: None,
            description: None,
        }],
        key: None,
    }
}

/// Stores elements as the stream `ward.words`.
async fn store(node: &Node, count: usize) {
    let element = StreamElement {
        position: Default::default(),
        source_time: Timestamp(1),
        receive_time: Timestamp(2),
        key: None,
        values: vec![Value::Text("word ".repeat(400))],
        quality: Default::default(),
        origin: None,
    };
    for _ in 0..count {
        let stored = node
            .store("ward.words", &schema(), std::slice::from_ref(&element))
            .await;
        stored.unwrap();
    }
}

fn block<T>(future: impl Future<Output = T>) -> T {
    chappe_node::runtime().unwrap().block_on(future)
}

/// The stream's part of a report of `data check`.
fn words(check: &Json) -> &Json {
    let streams = check["streams"].as_array().unwrap();
    streams
        .iter()
        .find(|it| it["name"] == "ward.words")
        .unwrap()
}

/// The data directory of a stopped node with `count` elements.
fn stopped_node(scratch: &Path, count: usize) -> PathBuf {
    let directory = scratch.join("data");
    block(async {
        let node = Node::start(config(&directory)).await.unwrap();
        store(&node, count).await;
        node.shutdown().await.unwrap();
    });
    directory
}

#[test]
fn a_restored_backup_continues_in_new_epochs() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("data");
    let backup = scratch.path().join("backup");
    let restored = scratch.path().join("restored");
    block(async {
        let node = Node::start(config(&directory)).await.unwrap();
        store(&node, 150).await;
        // The node stores more meanwhile.
        let (from, to) = (directory.clone(), backup.clone());
        let copy = tokio::task::spawn_blocking(move || data("backup", &[&from, &to]));
        while !copy.is_finished() {
            store(&node, 1).await;
        }
        let (code, made, stderr) = copy.await.unwrap();
        assert_eq!(
            (code, &made["healthy"]),
            (Some(0), &true.into()),
            "{stderr}"
        );
        // A running node's data cannot be repaired.
        let (code, _, stderr) = data("repair", &[&directory]);
        assert!(
            code == Some(2) && stderr.contains("hint: stop the node"),
            "{stderr}"
        );
        node.shutdown().await.unwrap();
    });
    for secret in ["key.pem", "token"] {
        assert!(directory.join(secret).exists() && !backup.join(secret).exists());
    }
    let (_, original, _) = data("check", &[&directory]);
    let (code, done, stderr) = data("restore", &[&backup, &restored]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        done["parts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|part| part["new_epoch"] == true)
    );
    let (_, copied, _) = data("check", &[&restored]);
    let last = words(&copied)["last"].as_u64().unwrap();
    assert!(last >= 150 && words(&copied)["records"] == last, "{copied}");
    assert_eq!(words(&copied)["epoch"], words(&original)["epoch"]);
    assert!(stderr.contains("hint: copy the node's key.pem"), "{stderr}");
    fs::copy(directory.join("key.pem"), restored.join("key.pem")).unwrap();
    block(async {
        let node = Node::start(config(&restored)).await.unwrap();
        store(&node, 1).await;
        node.shutdown().await.unwrap();
    });
    let (_, after, _) = data("check", &[&restored]);
    assert_eq!(words(&after)["last"], last + 1);
    assert_ne!(words(&after)["epoch"], words(&original)["epoch"]);
    // Restore never overwrites data.
    let (code, _, stderr) = data("restore", &[&backup, &restored]);
    assert!(
        code == Some(2) && stderr.contains("already holds data"),
        "{stderr}"
    );
    let (code, _, stderr) = data("backup", &[&directory, &backup]);
    assert!(
        code == Some(2) && stderr.contains("hint: name a new directory"),
        "{stderr}"
    );
}

#[test]
fn a_backup_with_secrets_is_the_whole_node() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = stopped_node(scratch.path(), 3);
    let (backup, restored) = (
        scratch.path().join("backup"),
        scratch.path().join("restored"),
    );
    let links = b"{ \"version\": 1, \"links\": [] }";
    fs::write(directory.join("links.json"), links).unwrap();
    let (code, _, stderr) = data("backup", &[&directory, &scratch.path().join("without")]);
    assert!(
        code == Some(0) && stderr.contains("key.pem, token, links.json not copied"),
        "{stderr}"
    );
    let (code, made, stderr) = data(
        "backup",
        &[&directory, &backup, Path::new("--with-secrets")],
    );
    assert_eq!(
        (code, stderr.contains("not copied")),
        (Some(0), false),
        "{stderr}"
    );
    assert_eq!(made["manifest"]["secrets"].as_array().unwrap().len(), 3);
    let (code, _, stderr) = data("restore", &[&backup, &restored]);
    assert_eq!(
        (code, stderr.contains("hint")),
        (Some(0), false),
        "{stderr}"
    );
    for name in ["key.pem", "token", "links.json"] {
        let path = restored.join(name);
        assert_eq!(
            fs::read(&path).unwrap(),
            fs::read(directory.join(name)).unwrap()
        );
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    // Restore neither overwrites a key nor writes anything else then.
    let other = scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("key.pem"), "another").unwrap();
    let (code, _, stderr) = data("restore", &[&backup, &other]);
    assert!(
        code == Some(2) && stderr.contains("already exists"),
        "{stderr}"
    );
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
}

#[test]
fn a_changed_backup_is_refused_before_any_write() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = stopped_node(scratch.path(), 60);
    let backup = scratch.path().join("backup");
    let target = scratch.path().join("restored");
    assert_eq!(data("backup", &[&directory, &backup]).0, Some(0));
    let mut changed = 0;
    for file in [
        "log/0000000001.segment",
        "manifest.json",
        "manifest.json.sha256",
    ] {
        let path = backup.join(file);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 1;
        for wrong in [Some(bad), None] {
            match wrong {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let (code, _, stderr) = data("restore", &[&backup, &target]);
            assert_eq!(code, Some(2), "{file}: {stderr}");
            assert!(!target.exists(), "{file}");
            changed += 1;
        }
        fs::write(&path, good).unwrap();
    }
    assert_eq!(changed, 6);
    assert_eq!(data("restore", &[&backup, &target]).0, Some(0));
}

#[test]
fn damage_is_reported_repaired_and_preserved() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = stopped_node(scratch.path(), 150);
    let (code, before, _) = data("check", &[&directory]);
    assert_eq!((code, &before["healthy"]), (Some(0), &true.into()));
    let segment = directory.join("log/0000000002.segment");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[30_000] ^= 8;
    fs::write(&segment, &bytes).unwrap();
    let (code, found, stderr) = data("check", &[&directory]);
    assert_eq!((code, &found["healthy"]), (Some(1), &false.into()));
    assert!(stderr.contains("chappe data repair"), "{stderr}");
    let gaps = words(&found)["gaps"].clone();
    assert_eq!(gaps.as_array().unwrap().len(), 1);
    let (code, mended, stderr) = data("repair", &[&directory]);
    assert_eq!(code, Some(0), "{stderr}");
    let part = &mended["parts"][0];
    assert_eq!(part["given_up"].as_array().unwrap().len(), 1);
    let aside = Path::new(part["kept_aside"].as_str().unwrap());
    let kept = fs::read(aside.join(part["files"][0].as_str().unwrap())).unwrap();
    let start = bytes.windows(kept.len()).position(|it| it == kept).unwrap();
    assert!((start..start + kept.len()).contains(&30_000));
    assert_eq!(mended["parts"][1]["kept_aside"], Json::Null);
    let (code, after, _) = data("check", &[&directory]);
    assert_eq!((code, &after["healthy"]), (Some(0), &true.into()));
    assert_eq!(words(&after)["given_up"], gaps);
    assert_eq!(words(&after)["records"], words(&found)["records"]);
    // A node continues with the repaired data.
    block(async {
        let node = Node::start(config(&directory)).await.unwrap();
        store(&node, 1).await;
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_second_repair_preserves_earlier_damaged_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = stopped_node(scratch.path(), 150);
    let mut kept = Vec::new();
    for byte in [30_000, 40_000] {
        let segment = directory.join("log/0000000002.segment");
        let mut bytes = fs::read(&segment).unwrap();
        bytes[byte] ^= 8;
        fs::write(&segment, &bytes).unwrap();
        let (code, repaired, stderr) = data("repair", &[&directory]);
        assert_eq!(code, Some(0), "{stderr}");
        let part = &repaired["parts"][0];
        let aside = Path::new(part["kept_aside"].as_str().unwrap());
        let file = aside.join(part["files"][0].as_str().unwrap());
        assert!(!kept.iter().any(|(other, _)| *other == file), "{file:?}");
        kept.push((file.clone(), fs::read(file).unwrap()));
    }
    for (file, bytes) in kept {
        assert_eq!(fs::read(&file).unwrap(), bytes, "{file:?}");
    }
}

#[test]
fn data_of_a_newer_program_is_refused_before_any_change() {
    let scratch = tempfile::tempdir().unwrap();
    let backup = scratch.path().join("backup");
    let directory = stopped_node(scratch.path(), 1);
    assert_eq!(data("backup", &[&directory, &backup]).0, Some(0));
    for of in [&directory, &backup] {
        fs::write(of.join("charged.json"), r#"{"version": 9, "kept": []}"#).unwrap();
    }
    let marker = directory.join("log/marker");
    fs::remove_file(&marker).unwrap();
    let to = scratch.path().join("to");
    for (verb, paths) in [
        ("check", vec![&directory]),
        ("repair", vec![&directory]),
        ("backup", vec![&directory, &to]),
        ("restore", vec![&backup, &to]),
    ] {
        let paths: Vec<&Path> = paths.into_iter().map(PathBuf::as_path).collect();
        let (code, _, stderr) = data(verb, &paths);
        assert_eq!(code, Some(2), "{verb}: {stderr}");
        for part in [
            "format version 9",
            "newer_format",
            "install the newer program",
        ] {
            assert!(stderr.contains(part), "{verb}: {stderr}");
        }
        // A repair would have made a marker and given the copy new epochs.
        assert!(!marker.exists() && !to.exists(), "{verb}");
    }
    let sensor = scratch.path().join("s.toml");
    let text = "name = \"s\"\n[[source]]\nalias = \"a\"\nstream = \"x\"\n[output]\nsql = \"select 1 as y\"\n\
                field = [{ name = \"y\", type = \"integer\" }]\n";
    fs::write(&sensor, text).unwrap();
    let paths = [&sensor, &directory].map(|path| path.to_str().unwrap());
    let tried = chappe(&["try", paths[0], "--data", paths[1], "--json"]);
    let stderr = String::from_utf8_lossy(&tried.stderr);
    assert!(stderr.contains("newer_format"), "{stderr}");
}

#[test]
fn wrong_directories_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let none = scratch.path().join("none");
    for verb in ["check", "repair"] {
        let (code, _, stderr) = data(verb, &[&none]);
        assert!(
            code == Some(2) && stderr.contains("hint: name the data directory"),
            "{stderr}"
        );
    }
    let (code, _, stderr) = data("backup", &[&none, &scratch.path().join("to")]);
    assert!(
        code == Some(2) && stderr.contains("hint: name the data directory"),
        "{stderr}"
    );
    let (code, _, stderr) = data("restore", &[&none, &scratch.path().join("to")]);
    assert!(
        code == Some(2) && stderr.contains("hint: name a directory"),
        "{stderr}"
    );
    for verb in ["check", "repair", "backup", "restore"] {
        let help = chappe(&["data", verb, "--help"]);
        assert!(
            String::from_utf8_lossy(&help.stdout).contains("Example"),
            "{verb}"
        );
    }
}
