//! Goal: a log of an older program is read and continued; a newer format is refused.
//! Method: the files in `golden`, made by the programs of those versions: two streams of 40
//! records, one trimmed to 11, closed twice; in version 2 a record was damaged and restored as
//! well.

use chappe_log::{Disk, Error, Level, MemoryDisk, Options, Position, Store, check};

fn golden(version: u8) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let folder = format!("{golden}/version-{version}");
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        disk.put(&entry.file_name().into_string().unwrap(), &bytes);
    }
    disk
}

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn payload(stream: &str, number: u64) -> Vec<u8> {
    match stream {
        "plant/a" => format!("a {number} {}", "x".repeat(60)).into_bytes(),
        _ => format!("b {number}").into_bytes(),
    }
}

fn holds(store: &Store, last: u64) {
    for (name, first) in [("plant/a", 1), ("plant/b", 11)] {
        let stream = store.existing(name).unwrap();
        let records = stream.read(0, 1000).unwrap();
        assert_eq!((stream.first(), stream.last()), (first, last));
        assert_eq!(records.len() as u64, last + 1 - first);
        for (number, record) in (first..).zip(records) {
            assert_eq!(record.position.sequence, number);
            assert_eq!(record.payload, payload(name, number));
        }
    }
}

/// The versions of the segments, in order, after three rounds of writing.
fn written_on(disk: &MemoryDisk) -> Vec<u8> {
    for round in 0..3 {
        // An older program's snapshots do not name cursors: everything is read, which leaves some.
        let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 9).unwrap();
        assert_eq!(recovery.new_epochs, []);
        assert_eq!(recovery.indexed > 0, round > 0);
        holds(&store, 40 + round);
        for name in ["plant/a", "plant/b"] {
            let stream = store.stream(name, Level::Power, b"schema").unwrap();
            let next = stream.last() + 1;
            let appended = stream.append(vec![(next as i64, payload(name, next))]);
            appended.unwrap().wait().unwrap();
        }
        holds(&store, 41 + round);
        store.close().unwrap();
    }
    let version = |name: &str| {
        let mut bytes = [0; 12];
        disk.open(name).unwrap().read_at(0, &mut bytes).unwrap();
        bytes[8]
    };
    let mut names = disk.list().unwrap();
    names.retain(|name| name.ends_with(".segment"));
    names.iter().map(|name| version(name)).collect()
}

// New kinds of frames go into new files, which state the version.

#[test]
fn version_1_is_read_and_written_on() {
    let disk = golden(1);
    let report = check(&disk).unwrap();
    assert!(report.healthy() && report.clean && !report.copied);
    assert_eq!(report.corrupt, []);
    assert_eq!(written_on(&disk), [1, 1, 1, 4]);
}

#[test]
fn version_2_is_read_and_written_on_with_what_was_put_back() {
    let disk = golden(2);
    let report = check(&disk).unwrap();
    assert!(report.healthy() && report.clean && !report.copied);
    assert_eq!(report.corrupt.len(), 1);
    assert_eq!(written_on(&disk), [2, 2, 2, 4]);
}

#[test]
fn version_3_is_read_and_written_on() {
    let disk = golden(3);
    let report = check(&disk).unwrap();
    assert!(report.healthy() && report.clean && !report.copied);
    assert_eq!(report.corrupt, []);
    assert_eq!(written_on(&disk), [3, 3, 3, 4]);
}

#[test]
fn a_stream_of_an_older_version_is_removed_for_good() {
    for version in 1..=3 {
        let disk = golden(version);
        for round in 0..3 {
            let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 9).unwrap();
            assert_eq!(recovery.new_epochs, []);
            assert_eq!(store.remove("plant/a"), Ok(round == 0), "version {version}");
            let names: Vec<String> = store.streams().into_iter().map(|it| it.name).collect();
            assert_eq!(names, ["plant/b"]);
            let stream = store.existing("plant/b").unwrap();
            assert_eq!((stream.first(), stream.last()), (11, 40 + 30 * round));
            for _ in 0..30 {
                let next = stream.last() + 1;
                let appended = stream.append(vec![(next as i64, vec![7; 200])]);
                appended.unwrap().wait().unwrap();
            }
            store.close().unwrap();
        }
    }
}

#[test]
fn records_are_put_back_into_version_1() {
    let disk = golden(1);
    let file = disk.open("0000000001.segment").unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    let wanted = payload("plant/a", 3);
    let at = bytes
        .windows(wanted.len())
        .position(|it| it == wanted)
        .unwrap();
    bytes[at] ^= 1;
    disk.put("0000000001.segment", &bytes);
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 9).unwrap();
    assert_eq!(recovery.corrupt.len(), 1);
    let stream = store.existing("plant/a").unwrap();
    assert_eq!(stream.gaps(), [(3, 3)]);
    let first = Position {
        epoch: stream.epoch(),
        sequence: 3,
    };
    stream
        .fill(first, vec![(3, wanted)])
        .unwrap()
        .wait()
        .unwrap();
    holds(&store, 40);
}

#[test]
fn a_newer_version_is_refused_with_a_hint() {
    let disk = golden(1);
    let mut bytes = [0; 36];
    disk.open("0000000002.segment")
        .unwrap()
        .read_at(0, &mut bytes)
        .unwrap();
    bytes[8] = 5;
    let crc = crc32fast::hash(&bytes[..32]);
    bytes[32..].copy_from_slice(&crc.to_le_bytes());
    disk.put("0000000002.segment", &bytes);
    let found = chappe_log::check_format("0000000002.segment", &bytes).unwrap_err();
    let error = Store::open(Box::new(disk), options(), 9).err().unwrap();
    assert_eq!(found, error);
    assert!(matches!(
        error,
        Error::NewerFormat {
            found: 5,
            known: 4,
            ..
        }
    ));
    assert!(error.to_string().contains("hint: "), "{error}");
}
