//! What must hold of the log's recovery for any damage to its files.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use chappe_log::{Level, Options, Position, Store};
use chappe_sim::SimDisk;

use crate::bounds::Bound;

/// A log of a few records with its segment in memory.
const BOUND: Bound = Bound::memory(1 << 20, 200);

const STREAMS: [&str; 2] = ["a", "b"];

fn options() -> Options {
    Options {
        segment_bytes: 4_096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

type Records = BTreeMap<(&'static str, Position), Vec<u8>>;

/// Names and bytes.
type Files = Vec<(String, Vec<u8>)>;

/// The files of a healthy store, and what was written to it.
fn healthy() -> &'static (Files, Records) {
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

/// Damage is a list of five bytes each: which file, where (two bytes), what to do, and a value.
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

fn records(store: &Store) -> Records {
    let mut records = Records::new();
    for name in STREAMS {
        let Some(stream) = store.existing(name) else {
            continue;
        };
        let mut from = stream.first();
        while let Ok(batch) = stream.read(from, 64) {
            let Some(last) = batch.last() else {
                break;
            };
            from = last.position.sequence + 1;
            for record in batch {
                records.insert((name, record.position), record.payload);
            }
        }
    }
    records
}

/// No panic; nothing is read that was not written; a second opening finds what the first did.
///
/// # Panics
/// When that does not hold.
pub fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let (files, written) = healthy();
    let disk = SimDisk::new(9);
    for (name, bytes) in damaged(files, data) {
        disk.put(&name, &bytes);
    }
    let Ok((store, _)) = Store::open(Box::new(disk.clone()), options(), 11) else {
        return;
    };
    let first = records(&store);
    for (key, payload) in &first {
        assert_eq!(
            written.get(key),
            Some(payload),
            "{key:?} was never written so"
        );
    }
    let closed = store.close();
    if closed.is_err() {
        return;
    }
    let (store, _) = Store::open(Box::new(disk), options(), 13).expect("it was opened before");
    let second = records(&store);
    assert_eq!(second, first, "a second opening finds something else");
}
