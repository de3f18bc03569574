//! Goal: appended records are read in order, before and after the store is reopened.
//! Method: several streams and levels on a simulated disk, small segments so that several are used.

use chappe_log::{Error, Health, Level, Options, Position, Store, check};
use chappe_sim::SimDisk;

fn options() -> Options {
    Options {
        segment_bytes: 8192,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn payload(stream: usize, n: u64) -> Vec<u8> {
    format!(
        "stream {stream} record {n} {}",
        "x".repeat((n % 50) as usize)
    )
    .into_bytes()
}

#[test]
fn records_come_back_in_order() {
    let disk = SimDisk::new(1);
    let levels = [Level::Memory, Level::Process, Level::Power];
    for round in 0..3u64 {
        let (store, recovery) = Store::open(Box::new(disk.clone()), options(), round).unwrap();
        assert_eq!(recovery.created, round == 0);
        assert!(recovery.clean || round == 0);
        assert_eq!(recovery.new_epochs, vec![]);
        let streams: Vec<_> = (0..3)
            .map(|n| {
                store
                    .stream(&format!("s{n}"), levels[n], b"schema")
                    .unwrap()
            })
            .collect();
        let mut waiting = Vec::new();
        for n in 0..200 {
            for (s, stream) in streams.iter().enumerate() {
                let number = round * 400 + n * 2 + 1;
                let batch = vec![
                    (number as i64, payload(s, number)),
                    (number as i64 + 1, payload(s, number + 1)),
                ];
                let appended = stream.append(batch).unwrap();
                assert_eq!(
                    appended.first,
                    Position {
                        epoch: stream.epoch(),
                        sequence: number
                    }
                );
                waiting.push(appended);
            }
        }
        waiting
            .into_iter()
            .for_each(|appended| appended.wait().unwrap());
        store.clone().close().unwrap();
        for (s, stream) in streams.iter().enumerate() {
            let last = (round + 1) * 400;
            assert_eq!((stream.first(), stream.last()), (1, last));
            let mut next = 1;
            while next <= last {
                for record in stream.read(next, 37).unwrap() {
                    assert_eq!(record.position.sequence, next);
                    assert_eq!(record.payload, payload(s, next));
                    next += 1;
                }
            }
            let newest = stream.newest(5).unwrap();
            assert_eq!(newest.len(), 5);
            assert_eq!(newest[4].position.sequence, last);
            let range = stream.range(100, 110, 100).unwrap();
            assert_eq!(
                range.iter().map(|r| r.time).collect::<Vec<_>>(),
                Vec::from_iter(100..110)
            );
            assert!(matches!(
                stream.append(vec![(0, vec![])]),
                Err(Error::Closed)
            ));
        }
        assert_eq!(store.health(), Health::Ok);
    }
    let report = check(&disk).unwrap();
    assert!(
        report.healthy() && report.clean && report.segments > 5,
        "{report:?}"
    );
    assert_eq!(report.records, 3 * 1200);
}

#[test]
fn misuse_is_refused() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk), options(), 7).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    assert_eq!(stream.append(vec![]).err(), Some(Error::EmptyBatch));
    let large = vec![(0, vec![0; 5 << 20])];
    assert!(matches!(stream.append(large), Err(Error::TooLarge { .. })));
    let one = || vec![(0, vec![1])];
    let conflict = Error::Conflict {
        expected: 1,
        last: 0,
    };
    assert_eq!(stream.append_if(1, one()).err(), Some(conflict));
    stream.append_if(0, one()).unwrap().wait().unwrap();
    stream.append_if(1, one()).unwrap().wait().unwrap();
    let long = "n".repeat(2000);
    assert!(matches!(
        store.stream(&long, Level::Power, b""),
        Err(Error::TooLarge { .. })
    ));
    stream.set_metadata(b"new").unwrap();
    assert_eq!(store.streams()[0].metadata, b"new");
    assert!(
        Options {
            segment_bytes: 1,
            ..Options::default()
        }
        .check()
        .is_err()
    );
}

#[test]
fn the_size_limit_removes_the_oldest() {
    let disk = SimDisk::new(1);
    let options = Options {
        retain_bytes: Some(30_000),
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options.clone(), 7).unwrap();
    let busy = store.stream("busy", Level::Process, b"").unwrap();
    let rare = store.stream("rare", Level::Power, b"meta").unwrap();
    rare.append(vec![(1, b"first".to_vec())])
        .unwrap()
        .wait()
        .unwrap();
    for n in 0..1000 {
        busy.append(vec![(n, vec![7; 100])])
            .unwrap()
            .wait()
            .unwrap();
    }
    assert!(disk.used() < 40_000, "{}", disk.used());
    let first = busy.first();
    assert!(first > 1);
    assert!(matches!(busy.read(1, 1), Err(Error::Gap { next, .. }) if next == first));
    assert_eq!(busy.read(0, 1).unwrap()[0].position.sequence, first);
    assert_eq!((rare.first(), rare.last()), (2, 1));
    drop(busy);
    drop(rare);
    assert!(store.counters().removed_segments > 0);
    store.close().unwrap();
    let (store, recovery) = Store::open(Box::new(disk), options, 8).unwrap();
    assert_eq!((recovery.corrupt, recovery.new_epochs), (vec![], vec![]));
    let rare = store.existing("rare").unwrap();
    assert_eq!((rare.last(), rare.metadata()), (1, b"meta".to_vec()));
    assert_eq!(rare.append(vec![(2, vec![])]).unwrap().first.sequence, 2);
    assert_eq!(store.existing("busy").unwrap().first(), first);
}
