//! Goal: a log opened from its segments' snapshots equals the one opened by reading everything; a
//! snapshot that does not match is not trusted.
//! Method: a log of many small segments is opened with all snapshots, with none, with each one
//! rotten, cut, stale or another segment's, and compared in all that readers see; rot in segments
//! reveals whether they were read.

use chappe_log::{Commit, Disk, Level, Options, Position, Store};
use chappe_sim::SimDisk;

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

const STREAMS: [&str; 3] = ["a", "b", "c"];

fn build(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    for session in 0..3 {
        let (store, _) = Store::open(Box::new(disk.clone()), options(), seed + session).unwrap();
        let streams = STREAMS.map(|name| store.stream(name, Level::Power, b"meta").unwrap());
        for n in 0..150u64 {
            let stream = &streams[(n % 3) as usize];
            let batch: Vec<_> = (0..1 + n % 4)
                .map(|k| ((n * 10 + k) as i64, vec![n as u8; (n % 50) as usize]))
                .collect();
            stream.append(batch).unwrap().wait().unwrap();
        }
        streams[2]
            .trim(streams[2].last() - 20)
            .unwrap()
            .wait()
            .unwrap();
        drop(streams);
        match session {
            1 => store.abandon(),
            _ => store.close().unwrap(),
        }
    }
    disk
}

/// Everything visible of a log, and the number of segments that were not read.
fn seen(disk: &SimDisk) -> (Vec<String>, usize) {
    let options = Options {
        commit: Commit::Caller,
        ..options()
    };
    let (store, recovery) = Store::open(Box::new(disk.clone()), options, 77).unwrap();
    assert_eq!(recovery.corrupt, vec![]);
    // The first step writes missing snapshots.
    store.commit().unwrap();
    let mut seen = vec![format!("{:?} {}", recovery.streams, recovery.records)];
    for name in STREAMS {
        let stream = store.existing(name).unwrap();
        let epochs = stream.epochs();
        let last = Position {
            epoch: stream.epoch(),
            sequence: stream.last(),
        };
        seen.push(format!("{epochs:?} {:?}", stream.resume(last)));
        seen.push(format!("{:?}", stream.range(200, 900, 1000)));
        let mut from = 0;
        loop {
            let records = stream.read(from, 100).unwrap();
            let Some(last) = records.last() else { break };
            from = last.position.sequence + 1;
            seen.push(format!("{records:?}"));
        }
    }
    store.abandon();
    (seen, recovery.indexed)
}

fn indexes(disk: &SimDisk) -> Vec<String> {
    let names = disk.names().into_iter();
    names.filter(|name| name.ends_with(".index")).collect()
}

#[test]
fn opening_from_snapshots_shows_the_same() {
    for seed in 1..=4 {
        let disk = build(seed);
        let names = indexes(&disk);
        assert!(names.len() > 8, "{names:?}");
        let (all, indexed) = seen(&disk.kill());
        assert_eq!(indexed, names.len());
        let none = disk.kill();
        names.iter().for_each(|name| none.remove(name).unwrap());
        assert_eq!(seen(&none), (all.clone(), 0));
        // They exist again.
        assert_eq!(indexes(&none), names);
        let (again, indexed) = seen(&none);
        assert!(again == all && indexed == names.len());
    }
}

#[test]
fn a_snapshot_that_does_not_fit_is_not_trusted() {
    let disk = build(9);
    let names = indexes(&disk);
    let (all, indexed) = seen(&disk.kill());
    let mut distrusted = 0;
    for (n, name) in names.iter().enumerate() {
        let bytes = disk.bytes(name).unwrap();
        let other = disk.bytes(&names[(n + 1) % names.len()]).unwrap();
        let mut flipped = bytes.clone();
        flipped[n * 7 % bytes.len()] ^= 4;
        for wrong in [&bytes[..bytes.len() / 2], &[], &other, &flipped] {
            let bad = disk.kill();
            bad.put(name, wrong);
            assert_eq!(seen(&bad), (all.clone(), indexed - 1));
            // It is created again.
            assert_eq!(bad.bytes(name).unwrap(), bytes);
            distrusted += 1;
        }
    }
    assert!(distrusted > 30);
}

#[test]
fn opening_reads_the_tail_alone() {
    let disk = build(5);
    let mut names = disk.names();
    names.retain(|name| name.ends_with(".segment"));
    let last = names.pop().unwrap();
    // Rot that opening would report if it read the segment.
    for name in &names {
        assert!(disk.flip(name, 8 * 1500));
    }
    let open = |disk: &SimDisk| {
        let (store, recovery) = Store::open(Box::new(disk.kill()), options(), 1).unwrap();
        store.abandon();
        recovery
    };
    let recovery = open(&disk);
    assert_eq!((recovery.corrupt, recovery.indexed), (vec![], names.len()));
    indexes(&disk)
        .iter()
        .for_each(|name| disk.remove(name).unwrap());
    let recovery = open(&disk);
    let mut rotten: Vec<_> = recovery.corrupt.iter().map(|it| &it.segment).collect();
    rotten.dedup();
    assert!(recovery.indexed == 0 && rotten.into_iter().eq(&names) && !names.contains(&last));
}

#[test]
fn snapshots_go_with_their_segments() {
    let disk = SimDisk::new(3);
    let retained = Options {
        retain_bytes: Some(20_000),
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), retained.clone(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    for n in 0..200 {
        let appended = stream.append(vec![(n, vec![1; 300])]).unwrap();
        appended.wait().unwrap();
    }
    let lost = store.lost();
    assert_eq!(lost[0].size_limit, stream.first() - 1);
    assert!(lost[0].size_limit > 50 && lost[0].corrupt == 0);
    drop(stream);
    store.close().unwrap();
    disk.put("0000000001.index", b"left behind");
    let (store, _) = Store::open(Box::new(disk.clone()), retained, 1).unwrap();
    store.close().unwrap();
    for name in indexes(&disk) {
        let segment = name.replace(".index", ".segment");
        assert!(disk.bytes(&segment).is_some(), "{name}");
    }
}
