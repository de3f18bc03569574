//! Goal: an eager follower has every record once and in order before it is safe; what is derived
//! from it reaches the disk behind it, and without it only where power tore a write; when a full disk takes numbers back,
//! whoever saw them is told.
//! Method: a store that the test drives on a simulated disk; power losses at every boundary of a
//! workload that copies a stream; a capacity that is used up.

use chappe_log::{Commit, EagerFollower, Error, Level, Options, Store, Stream};
use chappe_sim::SimDisk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Woken(AtomicU64);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn options() -> Options {
    Options {
        commit: Commit::Caller,
        segment_bytes: 4 * 1024,
        reserve_bytes: 0,
        full_polls: 2,
        ..Options::default()
    }
}

fn one(number: u64) -> Vec<(i64, Vec<u8>)> {
    vec![(number as i64, number.to_le_bytes().to_vec())]
}

/// What is there now: (number, what the record says).
fn ready(follower: &mut EagerFollower, waker: &Waker) -> Result<Vec<(u64, u64)>, Error> {
    let mut got = Vec::new();
    let mut take = |position: chappe_log::Position, _: i64, payload: &[u8]| {
        got.push((
            position.sequence,
            u64::from_le_bytes(payload.try_into().unwrap()),
        ));
    };
    loop {
        match follower.poll_next(&mut Context::from_waker(waker), &mut take) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => return Ok(got),
        }
    }
}

#[test]
fn records_come_before_they_are_safe_and_only_once() {
    let (store, _) = Store::open(Box::new(SimDisk::new(1)), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut follower = stream.follow_eagerly(0);
    assert_eq!(ready(&mut follower, &waker), Ok(vec![]));
    let mut seen = Vec::new();
    for number in 1..=300 {
        let wakes = woken.0.load(Ordering::Relaxed);
        let appended = stream.append(one(number)).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), wakes + 1, "{number}");
        assert_eq!(appended.try_result(), None);
        if number % 7 == 3 {
            // Read from the log instead.
            appended.wait().unwrap();
        }
        seen.extend(ready(&mut follower, &waker).unwrap());
        if number % 5 == 0 {
            store.commit().unwrap();
        }
    }
    let expected: Vec<_> = (1..=300).map(|number| (number, number)).collect();
    assert_eq!(seen, expected);
    assert_eq!(follower.next_sequence(), 301);
    // One that begins in the middle of what waits, and one that begins behind the end.
    drop(stream.append(one(301)).unwrap());
    let mut late = stream.follow_eagerly(300);
    assert_eq!(ready(&mut late, &waker), Ok(vec![(300, 300), (301, 301)]));
    let mut ahead = stream.follow_eagerly(400);
    let rollback = ready(&mut ahead, &waker);
    assert!(matches!(rollback, Err(Error::Rollback(_))), "{rollback:?}");
    assert_eq!(ahead.next_sequence(), 302);
}

/// Copies what `follower` has to `copy`.
fn copy(store: &Store, follower: &mut EagerFollower, copy: &Stream) -> Result<(), Error> {
    let taken_back = store.taken_back();
    for (_, number) in ready(follower, Waker::noop())? {
        drop(copy.append_derived(taken_back, one(number))?);
    }
    Ok(())
}

#[test]
fn what_is_derived_is_not_there_without_its_source() {
    let (mut cuts, mut behind, mut whole) = (0, 0, 0);
    for boundary in 0.. {
        let disk = SimDisk::new(boundary);
        disk.cut_power_at(boundary);
        let done = (|| {
            let (store, _) = Store::open(Box::new(disk.clone()), options(), 1)?;
            let source = store.stream("source", Level::Power, b"")?;
            let derived = store.stream("derived", Level::Power, b"")?;
            let mut follower = source.follow_eagerly(0);
            for number in 1..=60 {
                drop(source.append(one(number))?);
                copy(&store, &mut follower, &derived)?;
                if number % 3 == 0 {
                    store.commit()?;
                }
            }
            store.close()
        })()
        .is_ok();
        for seed in 0..4 {
            let found = Box::new(disk.crash(boundary << 8 | seed));
            let Ok((found, recovery)) = Store::open(found, options(), 2) else {
                continue;
            };
            let last = |name| found.existing(name).map_or(0, |stream| stream.last());
            let (source, derived) = (last("source"), last("derived"));
            // A write that power tore in its middle may have kept the later part of it alone.
            let torn = recovery.corrupt.iter().any(|range| range.unsynced);
            assert!(
                derived <= source || torn,
                "{boundary}.{seed}: {derived} of {source}"
            );
            whole += u64::from(!torn);
            behind += u64::from(derived < source);
        }
        if done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 40, "{cuts}");
    assert!(behind > 0, "no cut fell between the two");
    assert!(whole > 4 * cuts * 9 / 10, "{whole} of {}", 4 * cuts);
}

#[test]
fn a_full_disk_takes_numbers_back_and_tells() {
    let disk = SimDisk::new(2);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let source = store.stream("source", Level::Power, b"").unwrap();
    let derived = store.stream("derived", Level::Power, b"").unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut follower = source.follow_eagerly(0);
    source.append(one(1)).unwrap().wait().unwrap();
    copy(&store, &mut follower, &derived).unwrap();
    store.commit().unwrap();

    disk.set_capacity(disk.used() + 10);
    let taken_back = store.taken_back();
    let refused = source.append(one(66)).unwrap();
    assert_eq!(ready(&mut follower, &waker), Ok(vec![(2, 66)]));
    let along = derived.append_derived(taken_back, one(66)).unwrap();
    assert!(matches!(refused.wait(), Err(Error::Full { .. })));
    assert!(matches!(along.wait(), Err(Error::Full { .. })));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let told = ready(&mut follower, &waker);
    assert!(matches!(told, Err(Error::TakenBack { .. })), "{told:?}");

    disk.set_capacity(u64::MAX);
    store.commit().unwrap();
    // What was derived before that comes too late.
    let late = derived.append_derived(taken_back, one(66)).err();
    assert!(matches!(late, Some(Error::TakenBack { .. })), "{late:?}");
    // The number is another record's now.
    source.append(one(2)).unwrap().wait().unwrap();
    copy(&store, &mut follower, &derived).unwrap();
    store.commit().unwrap();
    let payloads = |stream: &Stream| -> Vec<u64> {
        let records = stream.read(1, 10).unwrap();
        let numbers = records.iter().map(|record| record.payload[..8].try_into());
        numbers.map(|it| u64::from_le_bytes(it.unwrap())).collect()
    };
    assert_eq!(payloads(&source), [1, 2]);
    assert_eq!(payloads(&derived), [1, 2]);
}
