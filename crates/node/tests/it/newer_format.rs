//! Goal: data of which any part was written by a newer program is refused before anything is changed.
//! Method: the version of one file of a stopped node is raised; a start is refused, and all files are as before.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::common::{config, elements};
use chappe_log::{Level, Options, Store};
use chappe_node::{Node, StartError, check_formats};
use chappe_stream::{FieldType, Value};
use chappe_transport::FileDisk;

/// Raises the version of a log's file, whose checksum covers this many bytes before it.
fn raise(file: &Path, covered: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[8] += 1;
    let checksum = crc32fast::hash(&bytes[..covered]);
    bytes[covered..covered + 4].copy_from_slice(&checksum.to_le_bytes());
    fs::write(file, bytes).unwrap();
}

/// The content of each file but the lock, by path.
fn files(directory: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        if path.is_dir() {
            files(&path, into);
        } else if !name.ends_with("lock") {
            into.insert(name, fs::read(&path).unwrap());
        }
    }
}

#[test]
fn newer_data_is_refused_and_stays_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(scratch.path());
    let directory = config.data_directory.clone();
    let runtime = chappe_node::runtime().unwrap();
    runtime.block_on(async {
        let node = Node::start(config.clone()).await.unwrap();
        let schema = elements::schema(&[("x", FieldType::Double)]);
        let element = elements::element(1, vec![Value::Double(1.0)]);
        node.store("lab.a", &schema, &[element]).await.unwrap();
        node.shutdown().await.unwrap();
    });
    check_formats(&directory).unwrap();
    let newer = [
        ("log/marker", 36),
        ("log/0000000001.segment", 32),
        ("registry/marker", 36),
        ("registry/0000000001.segment", 32),
        ("charged.json", 0),
        ("registry-subscriptions.json", 0),
    ];
    for (name, covered) in newer {
        let path = directory.join(name);
        let former = fs::read(&path).ok();
        match covered {
            0 => fs::write(&path, r#"{"version": 9, "kept": {"of": "another shape"}}"#).unwrap(),
            covered => raise(&path, covered),
        }
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        files(&directory, &mut before);
        let started = runtime.block_on(Node::start(config.clone()));
        let Err(error) = started else {
            panic!("{name} was accepted");
        };
        assert!(
            matches!(&error, StartError::NewerFormat { path: found, .. } if *found == path),
            "{name}: {error}"
        );
        assert_eq!(error.code(), "newer_format");
        assert!(error.hint().unwrap().contains("backup"), "{error}");
        files(&directory, &mut after);
        assert!(before == after, "{name}: the start changed a file");
        match former {
            Some(former) => fs::write(&path, former).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    runtime.block_on(async {
        let node = Node::start(config).await.unwrap();
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_newer_record_of_the_registry_is_named_with_its_position() {
    let scratch = tempfile::tempdir().unwrap();
    let config = config(scratch.path());
    let runtime = chappe_node::runtime().unwrap();
    runtime.block_on(async {
        let node = Node::start(config.clone()).await.unwrap();
        node.shutdown().await.unwrap();
    });
    let directory = chappe_node::registry_directory(&config.data_directory);
    let options = Options {
        reserve_bytes: 0,
        ..Options::default()
    };
    let disk = FileDisk::open(&directory).unwrap();
    let (store, _) = Store::open(Box::new(disk), options, 1).unwrap();
    let streams = store.streams();
    let journal = streams.iter().find(|it| it.name == "registry").unwrap();
    let stream = store.stream("registry", Level::Power, &journal.metadata);
    let stream = stream.unwrap();
    let appended = stream.append(vec![(0, vec![9, 9])]).unwrap();
    appended.wait().unwrap();
    let position = format!("record {} ", stream.last());
    store.close().unwrap();
    let Err(error) = runtime.block_on(Node::start(config)) else {
        panic!("it was accepted");
    };
    assert_eq!(error.code(), "newer_format");
    let text = std::error::Error::source(&error).unwrap().to_string();
    for part in [&*position, "version 9", "up to 3", "hint:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
