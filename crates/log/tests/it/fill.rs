//! Goal: records are restored into a damaged middle under their own numbers, are durable at level
//! `power` once acknowledged, and are read in order; nothing else can be stored there.
//! Method: a log is damaged in several segments, restored from a copy, reopened, and damaged again
//! where it was restored; the power is cut at each boundary of such a restore and the result is
//! judged.

use chappe_log::{Commit, Error, Level, Options, Position, Store, Stream, check};
use chappe_sim::SimDisk;
use std::collections::BTreeSet;

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

const RECORDS: u64 = 150;

fn payload(number: u64) -> Vec<u8> {
    format!("record {number} {}", "z".repeat((number % 70) as usize)).into_bytes()
}

fn records(from: u64, last: u64) -> Vec<(i64, Vec<u8>)> {
    (from..=last).map(|n| (n as i64, payload(n))).collect()
}

fn open(disk: &SimDisk) -> (Store, Stream) {
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 3).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    (store, stream)
}

/// A closed log of one stream in batches of three; every fifth batch is rotten.
fn damaged() -> SimDisk {
    let disk = SimDisk::new(1);
    let (store, stream) = open(&disk);
    for first in (1..=RECORDS).step_by(3) {
        stream
            .append(records(first, first + 2))
            .unwrap()
            .wait()
            .unwrap();
    }
    drop(stream);
    store.close().unwrap();
    for first in (1..=RECORDS).step_by(15) {
        rot(&disk, first + 1);
    }
    disk
}

/// Flips a bit of a record wherever it is.
fn rot(disk: &SimDisk, number: u64) {
    let wanted = payload(number);
    for name in disk.names() {
        let bytes = disk.bytes(&name).unwrap();
        if let Some(at) = bytes.windows(wanted.len()).position(|it| it == wanted) {
            disk.flip(&name, at as u64 * 8 + 1);
        }
    }
}

/// Reads everything; returns the missing numbers.
fn missing(stream: &Stream) -> BTreeSet<u64> {
    try_missing(stream).unwrap()
}

fn try_missing(stream: &Stream) -> Result<BTreeSet<u64>, Error> {
    let (mut from, mut missing) = (stream.first(), BTreeSet::new());
    while from <= stream.last() {
        match stream.read(from, 20) {
            Ok(records) => {
                for record in records {
                    assert_eq!(record.position.sequence, from);
                    assert_eq!(record.payload, payload(from));
                    assert_eq!(record.time, from as i64);
                    from += 1;
                }
            }
            Err(Error::Gap { from: at, next, .. }) => {
                assert_eq!(at, from);
                missing.extend(from..next);
                from = next;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

/// Restores one of the gaps; false when the store has stopped.
fn heal(stream: &Stream, (from, last): (u64, u64)) -> bool {
    let epochs = stream.epochs();
    let (epoch, _) = *epochs.iter().rfind(|(_, first)| *first <= from).unwrap();
    let first = Position {
        epoch,
        sequence: from,
    };
    stream
        .fill(first, records(from, last))
        .and_then(|filled| filled.wait())
        .is_ok()
}

#[test]
fn a_damaged_middle_is_healed() {
    for with_snapshots in [true, false] {
        let disk = damaged();
        if !with_snapshots {
            disk.put("0000000001.index", b"");
        }
        let (store, stream) = open(&disk);
        let lost = missing(&stream);
        assert_eq!(lost.len(), RECORDS as usize / 5);
        let gaps = stream.gaps();
        // In parts, the last first; the follower reads past the first gap.
        let mut follower = stream.follow(1);
        assert!(matches!(
            follower.try_next(),
            Err(Error::Gap { next: 4, .. })
        ));
        for (n, &(from, last)) in gaps.iter().enumerate().rev() {
            match n % 2 {
                0 => assert!(heal(&stream, (from, last))),
                _ => assert!(heal(&stream, (last, last)) && heal(&stream, (from, last - 1))),
            }
        }
        assert_eq!((missing(&stream).len(), stream.gaps()), (0, vec![]));
        assert_eq!(
            follower.try_next().unwrap().unwrap()[0].position.sequence,
            4
        );
        let counted = &store.lost()[0];
        assert_eq!(
            (counted.corrupt, counted.filled, counted.missing),
            (30, 30, 0)
        );
        assert_eq!(stream.range(1, 16, 100).unwrap().len(), 15);
        assert_eq!(
            stream.newest(RECORDS as usize).unwrap().len(),
            RECORDS as usize
        );
        drop((stream, follower));
        store.close().unwrap();
        // Reopened, also by reading everything, it is complete; the check still names the damaged
        // bytes.
        for name in [None, Some("index")] {
            let again = disk.kill();
            for file in again.names() {
                if name.is_some_and(|end| file.ends_with(end)) {
                    again.put(&file, b"");
                }
            }
            let report = check(&again).unwrap();
            assert_eq!(report.streams[0].gaps, []);
            assert_eq!(report.corrupt.len(), 10);
            assert!(report.corrupt.iter().all(|range| range.gaps.is_empty()));
            let (_, stream) = open(&again);
            assert_eq!((missing(&stream).len(), stream.gaps()), (0, vec![]));
        }
    }
}

#[test]
fn what_was_put_back_stays_when_its_damaged_segment_goes() {
    let disk = SimDisk::new(1);
    let (store, stream) = open(&disk);
    let large = |n: u64| (n as i64, format!("record {n} ").repeat(360).into_bytes());
    // One segment for each.
    for n in 1..=9 {
        stream.append(vec![large(n)]).unwrap().wait().unwrap();
    }
    drop(stream);
    store.close().unwrap();
    let holds = |name: &String, n: u64| {
        let bytes = disk.bytes(name).unwrap();
        let wanted = &large(n).1[..20];
        bytes.windows(wanted.len()).any(|it| it == wanted)
    };
    let damaged = disk.names().into_iter().find(|it| holds(it, 4)).unwrap();
    disk.flip(&damaged, 2_000 * 8);
    disk.put(&damaged.replace("segment", "index"), b"");

    let (store, stream) = open(&disk);
    let epoch = stream.epoch();
    assert_eq!(stream.gaps(), vec![(4, 4)]);
    let first = Position { epoch, sequence: 4 };
    let filled = stream.fill(first, vec![large(4)]).unwrap();
    filled.wait().unwrap();
    stream.trim(4).unwrap().wait().unwrap();
    // The commit thread takes the next work once it has removed segments.
    store.stream("settle", Level::Process, b"").unwrap();
    assert!(!disk.names().contains(&damaged), "{:?}", disk.names());
    let there = |stream: &Stream| {
        assert_eq!((stream.first(), stream.gaps()), (4, vec![]));
        for n in 4..=9 {
            assert_eq!(stream.read(n, 1).unwrap()[0].payload, large(n).1);
        }
    };
    there(&stream);
    drop(stream);
    store.close().unwrap();

    let (store, stream) = open(&disk);
    there(&stream);
    assert_eq!(store.lost()[0].missing, 0);
    assert!(check(&disk).unwrap().corrupt.is_empty());
}

#[test]
fn what_was_put_back_rots_like_anything_else() {
    let disk = damaged();
    let (store, stream) = open(&disk);
    missing(&stream);
    let gaps = stream.gaps();
    assert!(gaps.iter().all(|gap| heal(&stream, *gap)));
    let (from, last) = gaps[2];
    rot(&disk, from);
    rot(&disk, from + 1);
    assert_eq!(missing(&stream), (from..=last).collect());
    assert_eq!(stream.gaps(), [(from, last)]);
    assert!(heal(&stream, (from, last)));
    assert_eq!(missing(&stream).len(), 0);
    let counted = &store.lost()[0];
    assert_eq!(
        (counted.corrupt, counted.filled, counted.missing),
        (33, 33, 0)
    );
    drop(stream);
    store.close().unwrap();
    let (_, stream) = open(&disk);
    assert_eq!(missing(&stream).len(), 0);
}

#[test]
fn only_what_is_missing_is_put_back() {
    let disk = damaged();
    let options = Options {
        commit: Commit::Caller,
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 3).unwrap();
    let stream = store.existing("a").unwrap();
    missing(&stream);
    let epoch = stream.epoch();
    let at = |sequence| Position { epoch, sequence };
    let not_missing = |first, last| {
        let refused = stream.fill(at(first), records(first, last));
        assert!(
            matches!(refused, Err(Error::NotMissing { .. })),
            "{first} {last}"
        );
    };
    assert_eq!(stream.gaps()[..2], [(1, 3), (16, 18)]);
    not_missing(4, 4);
    not_missing(15, 16);
    not_missing(18, 19);
    not_missing(1, 18);
    not_missing(RECORDS + 1, RECORDS + 1);
    not_missing(0, 1);
    let other = Position {
        epoch: epoch ^ 1,
        sequence: 16,
    };
    let refused = stream.fill(other, records(16, 18));
    assert!(matches!(refused, Err(Error::OtherEpoch { .. })));
    assert!(matches!(
        stream.fill(at(16), vec![]),
        Err(Error::EmptyBatch)
    ));
    // The same restore twice has no further effect.
    let twice = [(); 2].map(|()| stream.fill(at(16), records(16, 18)).unwrap());
    assert!(twice.into_iter().all(|filled| filled.wait() == Ok(())));
    not_missing(16, 18);
    assert_eq!(store.lost()[0].filled, 3);
    // Trimmed records are dropped, with the damaged segment.
    stream.trim(RECORDS + 1).unwrap().wait().unwrap();
    not_missing(31, 33);
    assert_eq!((stream.gaps(), stream.first()), (vec![], RECORDS + 1));
    stream
        .append(records(RECORDS + 1, RECORDS + 1))
        .unwrap()
        .wait()
        .unwrap();
    drop(stream);
    store.close().unwrap();
    let segments = disk
        .names()
        .iter()
        .filter(|it| it.ends_with(".segment"))
        .count();
    assert!(segments <= 2, "{:?}", disk.names());
}

#[test]
fn power_loss_at_every_boundary_of_a_healing() {
    let (mut cuts, mut images) = (0, 0);
    for boundary in 0.. {
        let disk = damaged();
        disk.cut_power_at(disk.boundaries() + boundary);
        let mut healed = BTreeSet::new();
        let done = heal_all(&disk, &mut healed);
        for image in 0..5 {
            let found = disk.crash(boundary << 8 | image);
            let (_, stream) = open(&found);
            let still = missing(&stream);
            let both: Vec<_> = still.intersection(&healed).collect();
            assert!(
                both.is_empty(),
                "{boundary}: {both:?} were put back and are missing"
            );
            // Records not restored then can be restored now.
            for gap in stream.gaps() {
                assert!(heal(&stream, gap), "{boundary}: {gap:?}");
            }
            assert_eq!(missing(&stream).len(), 0);
            images += 1;
        }
        if done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 40 && images > 200, "{cuts} cuts, {images} images");
}

fn heal_all(disk: &SimDisk, healed: &mut BTreeSet<u64>) -> bool {
    let Ok((store, _)) = Store::open(Box::new(disk.clone()), options(), 3) else {
        return false;
    };
    let stream = store.existing("a").unwrap();
    if try_missing(&stream).is_err() {
        return false;
    }
    for (n, gap) in stream.gaps().into_iter().enumerate() {
        if !heal(&stream, gap) {
            return false;
        }
        healed.extend(gap.0..=gap.1);
        let next = stream.last() + 1;
        let more = stream.append(records(next, next + n as u64));
        if more.and_then(|more| more.wait()).is_err() {
            return false;
        }
    }
    drop(stream);
    store.close().is_ok()
}
