//! Goal: an eager follower sees each record once and in order before it is durable. Records derived
//! from it reach the disk only together with it, wherever power tears a write, and those
//! acknowledged stay. When a full disk retracts numbers, followers that saw them are notified.
//! Method: a store driven by the test on a simulated disk; power losses at each boundary of a
//! workload that copies a stream and then the copy, several images of the disk each, and once more
//! after that; bit rot; a full disk.

use chappe_log::{
    Commit, Committed, CorruptRange, EagerFollower, Error, Level, Options, Store, Stream,
};
use chappe_sim::SimDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
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

/// The available records: number and payload.
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
    // One starts in the middle of the waiting records, one after the end.
    drop(stream.append(one(301)).unwrap());
    let mut late = stream.follow_eagerly(300);
    assert_eq!(ready(&mut late, &waker), Ok(vec![(300, 300), (301, 301)]));
    let mut ahead = stream.follow_eagerly(400);
    let rollback = ready(&mut ahead, &waker);
    assert!(matches!(rollback, Err(Error::Rollback(_))), "{rollback:?}");
    assert_eq!(ahead.next_sequence(), 302);
}

/// Copies the records of `follower` to `copy`.
fn copy(store: &Store, follower: &mut EagerFollower, copy: &Stream) -> Result<(), Error> {
    let retractions = store.retractions();
    for (_, number) in ready(follower, Waker::noop())? {
        drop(copy.append_derived(retractions, one(number))?);
    }
    Ok(())
}

/// All readable records: numbers and payloads.
fn all(stream: Option<Stream>) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let Some(stream) = stream else { return found };
    let mut from = stream.first();
    while from <= stream.last() {
        match stream.read(from, 100) {
            Ok(records) => {
                for record in records {
                    from = record.position.sequence + 1;
                    let says = record.payload[..8].try_into().unwrap();
                    found.insert(record.position.sequence, u64::from_le_bytes(says));
                }
            }
            Err(Error::Gap { next, .. }) => from = next,
            Err(error) => panic!("{error}"),
        }
    }
    found
}

/// The number of missing records of a stream.
fn missing(store: &Store, name: &str) -> u64 {
    let lost = store.lost().into_iter().find(|it| it.stream == name);
    lost.map_or(0, |it| it.missing)
}

/// The records that must be found again: numbers and payloads.
#[derive(Clone, Default)]
struct Acknowledged {
    source: BTreeMap<u64, u64>,
    derived: BTreeMap<u64, u64>,
}

/// Copies `source` to `derived` and that to `again`, many records in each group, some of which fill
/// a sector of the disk.
fn copies(disk: &SimDisk, numbers: Range<u64>, safe: &mut Acknowledged) -> Result<(), Error> {
    let (store, _) = Store::open(Box::new(disk.clone()), options(), numbers.start)?;
    let source = store.stream("source", Level::Power, b"")?;
    let derived = store.stream("derived", Level::Power, b"")?;
    let again = store.stream("again", Level::Power, b"")?;
    let mut follower = source.follow_eagerly(source.last() + 1);
    let mut further = derived.follow_eagerly(derived.last() + 1);
    let mut waiting = Vec::new();
    for number in numbers {
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(8 + 700 * usize::from(number % 4 == 1), 7);
        let appended = source.append(vec![(number as i64, payload)])?;
        waiting.push((number, true, appended));
        let retractions = store.retractions();
        let mut outputs = Vec::new();
        let mut take = |_: chappe_log::Position, _: i64, payload: &[u8]| {
            outputs.push(u64::from_le_bytes(payload[..8].try_into().unwrap()));
        };
        let mut context = Context::from_waker(Waker::noop());
        while follower.poll_next(&mut context, &mut take).is_ready() {}
        for number in outputs {
            let appended = derived.append_derived(retractions, one(number))?;
            waiting.push((number, false, appended));
        }
        copy(&store, &mut further, &again)?;
        if number % 7 == 0 {
            while store.commit()? == Committed::Group {}
            for (number, is_source, appended) in waiting.drain(..) {
                let of = if is_source {
                    &mut safe.source
                } else {
                    &mut safe.derived
                };
                assert_eq!(appended.try_result(), Some(Ok(())));
                of.insert(appended.first.sequence, number);
            }
        }
    }
    store.close()
}

/// The records that a recovery kept and dropped.
#[derive(Default)]
struct Judged {
    orphans: u64,
    behind: u64,
    torn: u64,
}

/// Opens the disk twice and compares. From then on the records count as durable.
fn judge(disk: &SimDisk, safe: &mut Acknowledged, judged: &mut Judged, run: &str) {
    for round in 0..2 {
        let opened = Store::open(Box::new(disk.clone()), options(), 2);
        let Ok((store, recovery)) = opened else {
            panic!("{run}: {:?}", opened.err());
        };
        let found = |name| all(store.existing(name));
        let (source, derived, again) = (found("source"), found("derived"), found("again"));
        let says = |of: &BTreeMap<u64, u64>| -> BTreeSet<u64> { of.values().copied().collect() };
        let sources = says(&source);
        assert!(
            says(&derived).is_subset(&sources),
            "{run}.{round}: {recovery:?}"
        );
        assert!(
            says(&again).is_subset(&says(&derived)),
            "{run}.{round}: {recovery:?}"
        );
        for (of, wanted) in [(&source, &safe.source), (&derived, &safe.derived)] {
            let lost = wanted.iter().find(|it| of.get(it.0) != Some(it.1));
            assert_eq!(lost, None, "{run}.{round}: {recovery:?}");
        }
        // Dropped records are counted, and their numbers are not assigned again.
        let missing = |name| missing(&store, name);
        for (name, of) in [("derived", &derived), ("again", &again)] {
            let last = store.existing(name).map_or(0, |it| it.last());
            assert_eq!(
                of.len() as u64 + missing(name),
                last,
                "{run}.{round} {name}"
            );
        }
        if round == 0 {
            let orphan = |it: &&CorruptRange| it.what.contains("derived");
            judged.orphans += recovery.corrupt.iter().filter(orphan).count() as u64;
            judged.behind += u64::from(derived.len() < source.len());
            judged.torn += u64::from(recovery.corrupt.iter().any(|range| range.unsynced));
        } else {
            // The second opening finds the same records as the first.
            assert_eq!((&source, &derived), (&safe.source, &safe.derived), "{run}");
        }
        *safe = Acknowledged { source, derived };
        if round == 0 {
            store.abandon();
        } else {
            store.close().unwrap();
        }
    }
}

#[test]
fn what_is_derived_is_not_there_without_its_source() {
    let (mut cuts, mut judged) = (0, Judged::default());
    for boundary in 0.. {
        let disk = SimDisk::new(boundary);
        disk.cut_power_at(boundary);
        let mut safe = Acknowledged::default();
        let done = copies(&disk, 1..57, &mut safe).is_ok();
        for seed in 0..4 {
            let mut safe = safe.clone();
            let found = disk.crash(boundary << 8 | seed);
            let run = format!("{boundary}.{seed}");
            judge(&found, &mut safe, &mut judged, &run);
            // It continues, and the power fails again.
            found.cut_power_at(12 + boundary % 9);
            let _ = copies(&found, 1000..1029, &mut safe);
            let found = found.crash(boundary << 8 | seed);
            judge(&found, &mut safe, &mut judged, &format!("{run} again"));
        }
        if done {
            break;
        }
        cuts += 1;
    }
    let Judged {
        orphans,
        behind,
        torn,
    } = judged;
    println!("{cuts} cuts, {torn} torn, {behind} behind, {orphans} orphans");
    assert!(cuts > 40, "{cuts}");
    assert!(behind > 0, "no cut fell between the two");
    assert!(torn > 15 && orphans > 50, "{torn} torn, {orphans} orphans");
}

/// A log of two groups, each with sources 1 to 4 and 5 to 8 and records derived from them, whose
/// process was killed; and the offsets of the source's payloads.
fn two_groups() -> (SimDisk, Vec<u64>) {
    let disk = SimDisk::new(3);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let source = store.stream("source", Level::Power, b"").unwrap();
    let derived = store.stream("derived", Level::Power, b"").unwrap();
    let mut follower = source.follow_eagerly(0);
    for group in 0..2 {
        for number in 1..=4 {
            drop(
                source
                    .append(vec![(0, vec![0xa0 + group * 4 + number; 8])])
                    .unwrap(),
            );
        }
        let retractions = store.retractions();
        for _ in 0..4 {
            drop(derived.append_derived(retractions, one(7)).unwrap());
        }
        assert!(!ready(&mut follower, Waker::noop()).unwrap().is_empty());
        assert_eq!(store.commit(), Ok(Committed::Group));
    }
    store.abandon();
    let bytes = disk.bytes("0000000001.segment").unwrap();
    let place = |it: u8| bytes.windows(8).position(|bytes| bytes == [it; 8]).unwrap();
    let places = (0xa1..=0xa8).map(|it| place(it) as u64).collect();
    (disk.kill(), places)
}

#[test]
fn rot_of_what_was_synced_takes_nothing_along() {
    for (record, derived_lost) in [(0, 0), (3, 0), (4, 4), (7, 4)] {
        let (disk, places) = two_groups();
        assert!(disk.flip("0000000001.segment", places[record] * 8));
        for round in 0..2 {
            let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
            let lost = |name| missing(&store, name);
            // Nothing in the log states that its last group was durable.
            assert_eq!(
                (lost("source"), lost("derived")),
                (1, derived_lost),
                "{record}.{round}"
            );
            // If the newest are missing, the previous ones are the newest.
            let newest = store.existing("derived").unwrap().newest(3).unwrap();
            let numbers = newest.iter().map(|it| it.position.sequence);
            let last = 8 - derived_lost;
            assert_eq!(numbers.collect::<Vec<_>>(), [last - 2, last - 1, last]);
            store.close().unwrap();
        }
    }
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
    let retractions = store.retractions();
    let refused = source.append(one(66)).unwrap();
    assert_eq!(ready(&mut follower, &waker), Ok(vec![(2, 66)]));
    let along = derived.append_derived(retractions, one(66)).unwrap();
    assert!(matches!(refused.wait(), Err(Error::Full { .. })));
    assert!(matches!(along.wait(), Err(Error::Full { .. })));
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let told = ready(&mut follower, &waker);
    assert!(matches!(told, Err(Error::Retracted { .. })), "{told:?}");

    disk.set_capacity(u64::MAX);
    store.commit().unwrap();
    // Records derived before that are too late.
    let late = derived.append_derived(retractions, one(66)).err();
    assert!(matches!(late, Some(Error::Retracted { .. })), "{late:?}");
    // The number now belongs to another record.
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
