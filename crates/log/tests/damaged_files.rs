//! Goal: the first opening of a log with damaged or missing files finds all readable records and
//! names all others, and later openings find the same: neither the removal of segments nor later
//! appends change it.
//! Method: two cases of damage from past failures, and a sweep: each segment is cut at many offsets
//! while each other file in turn is emptied or removed. The fuzz target's check judges the sweep.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/log.rs"]
#[allow(dead_code, reason = "this test uses a part of it")]
mod check;

use chappe_log::{Disk, Level, Options, Store, Stream};
use chappe_sim::SimDisk;

/// Bytes from one cut of the sweep to the next: prime, so that all parts of frames are hit.
const CUT_STEP: usize = 251;

fn open(disk: &SimDisk) -> (Store, Stream) {
    let options = Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 5).unwrap();
    let stream = store.stream("a", Level::Power, b"schema").unwrap();
    (store, stream)
}

fn append(stream: &Stream, records: u64) {
    for _ in 0..records {
        let number = stream.last() + 1;
        let appended = stream.append(vec![(0, payload(number))]);
        appended.unwrap().wait().unwrap();
    }
}

fn payload(number: u64) -> Vec<u8> {
    number.to_string().repeat(30).into_bytes()
}

fn segments(disk: &SimDisk) -> Vec<String> {
    let names = disk.names().into_iter();
    names.filter(|name| name.ends_with(".segment")).collect()
}

/// A log of several segments, closed.
fn written() -> SimDisk {
    let disk = SimDisk::new(1);
    let (store, stream) = open(&disk);
    append(&stream, 120);
    drop(stream);
    store.close().unwrap();
    disk
}

fn cut(disk: &SimDisk, name: &str, length: usize) {
    let bytes = disk.bytes(name).unwrap();
    disk.put(name, &bytes[..length]);
}

#[test]
fn a_lost_beginning_stays_a_gap() {
    let disk = written();
    let names = segments(&disk);
    cut(&disk, &names[0], 37);
    disk.put(&names[1], &[]);
    let (store, stream) = open(&disk);
    let gaps = stream.gaps();
    assert!(matches!(gaps[..], [(1, last)] if last > 20), "{gaps:?}");
    append(&stream, 1);
    drop(stream);
    store.close().unwrap();

    let (store, stream) = open(&disk);
    assert_eq!((stream.first(), stream.gaps()), (1, gaps.clone()));
    // Given up, the damage need not be kept; new records let the commit thread remove it.
    let given_up = stream.give_up(1, gaps[0].1).unwrap();
    given_up.wait().unwrap();
    append(&stream, 40);
    drop(stream);
    store.close().unwrap();
    let left = segments(&disk);
    assert!(!left.contains(&names[0]) && !left.contains(&names[1]));
    assert!(left.contains(&names[2]));
}

#[test]
fn the_first_segment_stays_while_the_next_one_is_missing() {
    let disk = written();
    let names = segments(&disk);
    disk.put(&names[0], &[]);
    disk.remove(&names[1]).unwrap();
    let (store, stream) = open(&disk);
    let gaps = stream.gaps();
    append(&stream, 1);
    drop(stream);
    store.close().unwrap();
    let (_store, stream) = open(&disk);
    assert_eq!((stream.first(), stream.gaps()), (1, gaps));
}

#[test]
fn records_after_a_cut_off_frame_are_read_again() {
    let disk = written();
    let names = segments(&disk);
    let [.., cut_off, newest] = &names[..] else {
        panic!("{names:?}");
    };
    let length = disk.bytes(cut_off).unwrap().len();
    // The newest frame has a complete header but not its body: it claims the bytes that follow.
    cut(&disk, cut_off, length - 10);
    disk.put(newest, &[]);
    let (store, stream) = open(&disk);
    let first = stream.last() + 1;
    append(&stream, 3);
    drop(stream);
    store.close().unwrap();
    let (_store, stream) = open(&disk);
    assert_eq!(stream.gaps(), vec![]);
    let records = stream.read(first, 10).unwrap();
    let read: Vec<_> = records.into_iter().map(|it| it.payload).collect();
    assert_eq!(read, [0, 1, 2].map(|n| payload(first + n)));
}

#[test]
fn a_damaged_segment_loses_its_snapshot() {
    let disk = written();
    let names = segments(&disk);
    let [.., rotten, newest] = &names[..] else {
        panic!("{names:?}");
    };
    let mut bytes = disk.bytes(rotten).unwrap();
    bytes[2000..2512].fill(0);
    disk.put(rotten, &bytes);
    // Without the next segment's header the snapshot is not trusted; a new one has the same header.
    disk.put(newest, &[]);
    let (store, stream) = open(&disk);
    let gaps = stream.gaps();
    assert_eq!(gaps.len(), 1);
    drop(stream);
    store.close().unwrap();
    let (_store, stream) = open(&disk);
    assert_eq!(stream.gaps(), gaps);
}

#[test]
fn two_damaged_files_read_the_same_at_each_opening() {
    let (files, written) = check::healthy();
    let segments = (0..files.len()).filter(|it| files[*it].0.ends_with(".segment"));
    let mut checked = 0;
    for one in segments {
        for length in (0..files[one].1.len()).step_by(CUT_STEP) {
            let mut cut = files.clone();
            cut[one].1.truncate(length);
            for other in (0..files.len()).filter(|other| *other != one) {
                let mut emptied = cut.clone();
                emptied[other].1.clear();
                check::check_files(&emptied, written);
                let mut removed = cut.clone();
                removed.remove(other);
                check::check_files(&removed, written);
                checked += 2;
            }
        }
    }
    assert!(checked > 500, "{checked}");
}
