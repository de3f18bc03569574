//! Invariants of the log's recovery for any damage to its files.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use chappe_log::{Error, Level, Options, Position, Store};
use chappe_sim::SimDisk;

use crate::bounds::Bound;

/// A log of a few records with its segment in memory.
const BOUND: Bound = Bound::memory(1 << 20, 200);

const STREAMS: [&str; 2] = ["a", "b"];

/// The streams as they are called when their definitions are lost.
const NAMES: [(&str, &str); 4] = [
    ("a", "a"),
    ("b", "b"),
    ("lost-name-1", "a"),
    ("lost-name-2", "b"),
];

fn options() -> Options {
    Options {
        segment_bytes: 4_096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

pub(crate) type Records = BTreeMap<(&'static str, Position), Vec<u8>>;

/// Names and bytes.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// The files of a healthy store, and the records written to it.
pub(crate) fn healthy() -> &'static (Files, Records) {
    static HEALTHY: OnceLock<(Files, Records)> = OnceLock::new();
    HEALTHY.get_or_init(|| {
        let disk = SimDisk::new(7);
        let (store, _) = Store::open(Box::new(disk.clone()), options(), 7).expect("a new store");
        let mut written = Records::new();
        for step in 0..40_u8 {
            for name in STREAMS {
                let stream = store
                    .stream(name, Level::Power, b"schema")
                    .expect("a stream");
                let payload = vec![step; 40 + usize::from(step)];
                let appended = stream.append(vec![(i64::from(step), payload.clone())]);
                let appended = appended.expect("room");
                let position = appended.first;
                appended.wait().expect("a healthy disk");
                written.insert((name, position), payload);
            }
        }
        store.close().expect("a healthy disk");
        let names = disk.names();
        let files = names
            .into_iter()
            .filter_map(|name| Some((name.clone(), disk.bytes(&name)?)));
        (files.collect(), written)
    })
}

/// Damage is a list of five bytes each: which file, where (two bytes), what to do, and a value. No file
/// is removed: records before the oldest segment that is there may have been removed by the size limit,
/// so that nothing says whether they are missing.
fn damaged(files: &[(String, Vec<u8>)], data: &[u8]) -> Files {
    let mut files = files.to_vec();
    for edit in data.chunks_exact(5).take(64) {
        let which = usize::from(edit[0]) % files.len();
        let bytes = &mut files[which].1;
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]]));
        let at = if bytes.is_empty() {
            0
        } else {
            at % bytes.len()
        };
        match edit[3] % 6 {
            0 => bytes.truncate(at),
            1 => bytes.extend(std::iter::repeat_n(edit[4], at)),
            2 => bytes.insert(at, edit[4]),
            3 => bytes
                .iter_mut()
                .skip(at)
                .take(512)
                .for_each(|byte| *byte = 0),
            4 => bytes.clear(),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= edit[4];
                }
            }
        }
    }
    files
}

/// Numbers: from the first one to the last one.
type Range = (u64, u64);

/// A stream as seen by a reader.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    name: &'static str,
    kept: Range,
    gaps: Vec<Range>,
    /// Ranges of numbers that can be read.
    readable: Vec<Range>,
}

/// Reads all streams across their gaps and compares every record with the one written.
fn seen(store: &Store, written: &Records) -> Vec<Seen> {
    let mut all = Vec::new();
    for (name, written_to) in NAMES {
        let Some(stream) = store.existing(name) else {
            continue;
        };
        let (first, last) = (stream.first(), stream.last());
        let (mut from, mut readable) = (first, Vec::<Range>::new());
        while from <= last {
            let batch = match stream.read(from, 64) {
                Ok(batch) => batch,
                Err(Error::Gap { next, .. }) => {
                    assert!(next > from, "a gap at {from} of {name} ends at {next}");
                    from = next;
                    continue;
                }
                Err(error) => panic!("{name} from {from} on: {error}"),
            };
            assert!(!batch.is_empty(), "nothing of {name} at {from}");
            for record in batch {
                let (number, key) = (record.position.sequence, (written_to, record.position));
                let payload = written.get(&key);
                assert_eq!(payload, Some(&record.payload), "{key:?} was not written so");
                match readable.last_mut() {
                    Some(range) if range.1 + 1 == number => range.1 = number,
                    _ => readable.push((number, number)),
                }
                from = number + 1;
            }
        }
        all.push(Seen {
            name,
            kept: (first, last),
            gaps: stream.gaps(),
            readable,
        });
    }
    all
}

/// No panic; only written records are read; a second opening finds the same as the first.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let (files, written) = healthy();
    check_files(&damaged(files, data), written);
}

pub(crate) fn check_files(files: &Files, written: &Records) {
    let disk = SimDisk::new(9);
    for (name, bytes) in files {
        disk.put(name, bytes);
    }
    let Ok((store, _)) = Store::open(Box::new(disk.clone()), options(), 11) else {
        return;
    };
    let mut written = written.clone();
    seen(&store, &written);
    append(&store, &mut written);
    let first = seen(&store, &written);
    store.abandon();
    let open = |seed| {
        let opened = Store::open(Box::new(disk.clone()), options(), seed);
        opened.expect("it was opened before").0
    };
    let store = open(13);
    let second = seen(&store, &written);
    assert_eq!(second, first, "a second opening finds something else");
    store.close().expect("a healthy disk");
    let third = seen(&open(15), &written);
    assert_eq!(third, first, "a third opening finds something else");
}

/// Appends a record to each stream.
fn append(store: &Store, written: &mut Records) {
    for (name, written_to) in NAMES {
        if let Some(stream) = store.existing(name) {
            let payload = b"appended after the damage".to_vec();
            let appended = stream.append(vec![(99, payload.clone())]).expect("room");
            written.insert((written_to, appended.first), payload);
            appended.wait().expect("a healthy disk");
        }
    }
}
