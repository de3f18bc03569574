//! Goal: a stream whose frames lie far apart in a log of many streams is read completely, and rot
//! in one of its frames affects that frame alone, even if others are found by the frames' back
//! offsets.
//! Method: forty streams take turns, so that a chunk of the index spans megabytes; every stream is
//! read from several positions; then one frame of the open log is flipped.

use chappe_log::{Error, Level, Options, Store, Stream};
use chappe_sim::SimDisk;

const STREAMS: usize = 40;
const RECORDS: u64 = 200;

fn payload(stream: usize, number: u64) -> Vec<u8> {
    format!("<{stream}/{number}>").repeat(100).into_bytes()
}

fn write(disk: &SimDisk) -> (Store, Vec<Stream>) {
    let options = Options {
        reserve_bytes: 0,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
    let stream = |n: usize| store.stream(&format!("s{n}"), Level::Process, b"").unwrap();
    let streams: Vec<_> = (0..STREAMS).map(stream).collect();
    let mut last = None;
    for number in 1..=RECORDS {
        for (s, stream) in streams.iter().enumerate() {
            last = Some(
                stream
                    .append(vec![(number as i64, payload(s, number))])
                    .unwrap(),
            );
        }
    }
    last.unwrap().wait().unwrap();
    (store, streams)
}

/// Reads from a number to the end; returns the missing numbers.
fn read(stream: &Stream, s: usize, mut from: u64) -> Vec<u64> {
    let mut missing = Vec::new();
    while from <= RECORDS {
        match stream.read(from, 50) {
            Ok(records) => {
                for record in records {
                    assert_eq!(record.position.sequence, from);
                    assert_eq!(record.payload, payload(s, from));
                    from += 1;
                }
            }
            Err(Error::Gap { next, .. }) => {
                missing.extend(from..next);
                from = next;
            }
            Err(error) => panic!("{error}"),
        }
    }
    missing
}

#[test]
fn far_apart_frames_are_found() {
    let disk = SimDisk::new(1);
    let (_store, streams) = write(&disk);
    for (s, stream) in streams.iter().enumerate() {
        for from in [1, 40, 63, 64, 65, 130, RECORDS] {
            assert_eq!(read(stream, s, from), Vec::<u64>::new());
        }
    }
}

#[test]
fn rot_costs_one_frame() {
    for in_header in [true, false] {
        let disk = SimDisk::new(1);
        let (store, streams) = write(&disk);
        let name = disk
            .names()
            .into_iter()
            .find(|name| name.ends_with(".segment"))
            .unwrap();
        let bytes = disk.bytes(&name).unwrap();
        let text = payload(7, 30);
        let at = bytes
            .windows(text.len())
            .position(|window| window == text)
            .unwrap() as u64;
        // A frame of one record: header, 12 bytes, payload.
        let bit = if in_header {
            (at - 12 - 40) * 8
        } else {
            at * 8 + 3
        };
        assert!(disk.flip(&name, bit));
        assert_eq!(read(&streams[7], 7, 1), vec![30], "header {in_header}");
        assert_eq!(streams[7].gaps(), vec![(30, 30)]);
        assert_eq!(read(&streams[8], 8, 1), Vec::<u64>::new());
        drop(streams);
        store.close().unwrap();
        let options = Options {
            reserve_bytes: 0,
            ..Options::default()
        };
        let (store, recovery) = Store::open(Box::new(disk), options, 2).unwrap();
        assert_eq!(recovery.corrupt.len(), 1, "{:?}", recovery.corrupt);
        assert_eq!(recovery.corrupt[0].gaps, vec![("s7".to_owned(), 30, 30)]);
        assert_eq!(
            recovery.new_epochs,
            vec![],
            "all numbers are known: {:?}",
            recovery.clean
        );
        assert_eq!(read(&store.existing("s7").unwrap(), 7, 1), vec![30]);
    }
}
