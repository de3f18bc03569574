//! Goal: a removed stream stays removed, affects no other stream, and frees its name, its space and
//! its number; created again it has another epoch.
//! Method: streams on a simulated disk, removed while other streams hold older segments; reopened
//! with and without snapshots; the power cut at each boundary, each image judged; each bit of the
//! removal's frames flipped; a full disk; definitions that are only queued; cursors.

use crate::common::{fill, holds_all, payload};
use chappe_log::{
    Commit, Cursor, Disk, Error, Follower, Health, Level, Options, Store, Stream, check,
};
use chappe_sim::SimDisk;

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn open(disk: &SimDisk, seed: u64) -> Store {
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), seed).unwrap();
    assert_eq!(recovery.corrupt, vec![]);
    store
}

fn names(store: &Store) -> Vec<String> {
    store.streams().into_iter().map(|info| info.name).collect()
}

/// The next records of a follower, on this thread.
fn next(follower: &mut Follower) -> Result<usize, Error> {
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    let mut future = Box::pin(follower.next());
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(outcome) => return outcome.map(|records| records.len()),
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_removed_stream_is_gone_and_its_name_can_be_used_again() {
    let disk = SimDisk::new(1);
    let store = open(&disk, 1);
    let (a, b) = (
        store.stream("a", Level::Power, b"schema").unwrap(),
        store.stream("b", Level::Power, b"schema").unwrap(),
    );
    fill(&a, 40);
    fill(&b, 40);
    let mut follower = a.follow(41);
    assert!(!a.is_removed());
    assert!(store.remove("a").unwrap());
    assert!(a.is_removed() && !b.is_removed());
    assert!(!store.remove("a").unwrap());
    assert_eq!(names(&store), ["b"]);
    assert!(store.existing("a").is_none());
    let removed = |error: Error| matches!(error, Error::Removed { stream } if stream == "a");
    assert!(removed(a.append(vec![(0, vec![])]).map(drop).unwrap_err()));
    assert!(removed(a.set_metadata(b"other").unwrap_err()));
    assert!(removed(next(&mut follower).unwrap_err()));
    let again = store.stream("a", Level::Power, b"other").unwrap();
    assert_ne!(again.epoch(), a.epoch());
    assert_eq!(again.last(), 0);
    assert!(!again.is_removed());
    fill(&again, 3);
    let epoch = again.epoch();
    drop((a, b, again, follower));
    store.close().unwrap();
    let store = open(&disk, 2);
    let again = store.existing("a").unwrap();
    assert_eq!(again.epoch(), epoch);
    holds_all(&again, 3);
    holds_all(&store.existing("b").unwrap(), 40);
}

#[test]
fn older_segments_do_not_bring_it_back_and_their_space_comes_back() {
    for snapshots in [true, false] {
        let disk = SimDisk::new(1);
        let mut store = open(&disk, 1);
        let mut slow = store.stream("slow", Level::Power, b"").unwrap();
        fill(&slow, 1);
        let a = store.stream("a", Level::Power, b"schema").unwrap();
        fill(&a, 100);
        assert!(store.remove("a").unwrap());
        let mut busy = store.stream("busy", Level::Power, b"").unwrap();
        for round in 0..4 {
            fill(&busy, 40);
            // The segment of the removal is removed, that of the removed stream's first records
            // stays.
            busy.trim(busy.last() - 4).unwrap().wait().unwrap();
            fill(&busy, 1);
            drop((slow, busy));
            store.close().unwrap();
            if !snapshots {
                for name in disk.names() {
                    if name.ends_with(".index") {
                        disk.remove(&name).unwrap();
                    }
                }
            }
            store = open(&disk, 10 + round);
            assert_eq!(names(&store), ["busy", "slow"]);
            busy = store.existing("busy").unwrap();
            slow = store.existing("slow").unwrap();
            assert_eq!(busy.last(), 41 * (round + 1));
            assert_eq!(busy.read(0, 50).unwrap().len(), 6);
            assert!(disk.names().contains(&"0000000001.segment".to_owned()));
            holds_all(&slow, 1);
            let report = check(&disk.clone()).unwrap();
            assert!(report.healthy(), "{report:?}");
        }
        busy.trim(u64::MAX).unwrap().wait().unwrap();
        slow.trim(u64::MAX).unwrap().wait().unwrap();
        fill(&busy, 60);
        assert!(!disk.names().contains(&"0000000001.segment".to_owned()));
        let kept = |store: &Store| (names(store), store.existing("busy").unwrap().last());
        let had = kept(&store);
        drop((a, busy, slow));
        store.close().unwrap();
        // No segment names it any more; its number in the log may be reused.
        let store = open(&disk, 20);
        assert_eq!(kept(&store), had);
        let other = store.stream("other", Level::Power, b"").unwrap();
        fill(&other, 30);
        drop(other);
        store.close().unwrap();
        holds_all(&open(&disk, 21).existing("other").unwrap(), 30);
    }
}

/// The acknowledgements of a run.
#[derive(Default)]
struct Told {
    a: u64,
    b: u64,
    asked: bool,
    removed: bool,
    epoch: u64,
    again: Option<(u64, u64)>,
}

/// Fills two streams, removes one, creates it again; until the power fails.
fn life(disk: &SimDisk, told: &mut Told) -> Result<(), Error> {
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 3)?;
    let a = store.stream("a", Level::Power, b"schema")?;
    let b = store.stream("b", Level::Power, b"schema")?;
    told.epoch = a.epoch();
    let append = |stream: &Stream, count: &mut u64| -> Result<(), Error> {
        let next = *count + 1;
        stream.append(vec![(0, payload(next))])?.wait()?;
        *count = next;
        Ok(())
    };
    for _ in 0..12 {
        append(&a, &mut told.a)?;
        append(&b, &mut told.b)?;
    }
    told.asked = true;
    store.remove("a")?;
    told.removed = true;
    for _ in 0..12 {
        append(&b, &mut told.b)?;
    }
    let again = store.stream("a", Level::Power, b"schema")?;
    told.again = Some((again.epoch(), 0));
    for _ in 0..12 {
        let (epoch, mut count) = told.again.unwrap_or_default();
        append(&again, &mut count)?;
        told.again = Some((epoch, count));
        append(&b, &mut told.b)?;
    }
    drop((a, b, again));
    store.close()
}

#[test]
fn power_loss_at_every_boundary_of_a_removal() {
    let whole = SimDisk::new(7);
    life(&whole, &mut Told::default()).unwrap();
    let (mut before, mut gone, mut again) = (0, 0, 0);
    for boundary in 0..whole.boundaries() {
        let disk = SimDisk::new(1000 + boundary);
        let mut told = Told::default();
        disk.cut_power_at(boundary);
        let _ = life(&disk, &mut told);
        for image in 0..6 {
            let found = disk.crash(boundary << 8 | image);
            let (store, recovery) =
                Store::open(Box::new(found.clone()), options(), boundary + 9).unwrap();
            if let Some(b) = store.existing("b") {
                assert!(b.last() >= told.b, "{recovery:?}");
            } else {
                assert_eq!(told.b, 0);
            }
            match (store.existing("a"), told.again) {
                (Some(a), Some((epoch, count))) => {
                    assert!(a.last() >= count && a.epochs().iter().any(|it| it.0 == epoch));
                    again += 1;
                }
                (Some(a), None) if a.epochs()[0].0 == told.epoch => {
                    assert!(!told.removed, "the stream is back at boundary {boundary}");
                    assert!(a.last() >= told.a, "{recovery:?}");
                    before += 1;
                }
                // Its first or second creation was durable but not acknowledged.
                (Some(a), None) => assert_eq!(a.last(), 0),
                (None, again) => {
                    assert!(again.is_none() && (told.asked || told.a == 0));
                    gone += 1;
                }
            }
            assert!(check(&found).unwrap().healthy());
        }
    }
    assert!(
        before > 50 && gone > 50 && again > 50,
        "{before} {gone} {again}"
    );
}

#[test]
fn one_flipped_bit_does_not_bring_it_back() {
    let disk = SimDisk::new(1);
    let store = open(&disk, 1);
    let a = store.stream("a", Level::Power, b"schema").unwrap();
    fill(&a, 3);
    let before = disk.bytes("0000000001.segment").unwrap().len();
    store.remove("a").unwrap();
    let after = disk.bytes("0000000001.segment").unwrap().len();
    let b = store.stream("b", Level::Power, b"schema").unwrap();
    fill(&b, 3);
    drop((a, b));
    store.close().unwrap();
    for bit in before * 8..after * 8 {
        let copy = disk.kill();
        assert!(copy.flip("0000000001.segment", bit as u64));
        let (store, recovery) = Store::open(Box::new(copy), options(), 2).unwrap();
        assert_eq!(names(&store), ["b"], "bit {bit}: {recovery:?}");
        holds_all(&store.existing("b").unwrap(), 3);
    }
}

#[test]
fn a_full_disk_does_not_prevent_a_removal() {
    let disk = SimDisk::new(1);
    let options = Options {
        reserve_bytes: 3000,
        full_poll: std::time::Duration::from_millis(1),
        full_polls: u32::MAX,
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 5).unwrap();
    let a = store.stream("a", Level::Power, b"").unwrap();
    let b = store.stream("b", Level::Power, b"").unwrap();
    fill(&a, 100);
    disk.set_capacity(disk.used() + 2990);
    let waits = b.append(vec![(1, payload(1))]).unwrap();
    while store.health() == Health::Ok {
        std::thread::yield_now();
    }
    assert!(store.remove("a").unwrap());
    waits.wait().unwrap();
    holds_all(&b, 1);
}

fn driven() -> Options {
    Options {
        commit: Commit::Caller,
        ..options()
    }
}

fn reopened(disk: &SimDisk) -> Store {
    assert!(check(disk).unwrap().healthy());
    let (store, recovery) = Store::open(Box::new(disk.clone()), driven(), 9).unwrap();
    assert_eq!(recovery.corrupt, []);
    store
}

#[test]
fn a_stream_whose_definition_is_queued_is_removed_behind_it() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), driven(), 5).unwrap();
    let kept = store.stream("kept", Level::Power, b"").unwrap();
    let define = |name: &str, metadata: u8| {
        let definition = |_: Option<(Level, &[u8])>| Ok::<_, Error>((Level::Power, vec![metadata]));
        store.define(name, definition)
    };
    let new = define("new", 1).unwrap();
    let changed = define("kept", 2).unwrap();
    assert!(store.remove("new").unwrap());
    let new = new.wait().unwrap();
    assert!(changed.wait().is_ok());
    assert_eq!(names(&store), ["kept"]);
    assert!(matches!(
        new.append(vec![(0, vec![1])]),
        Err(Error::Removed { .. })
    ));
    let set = new.set_cursor(store.retractions(), [1; 16]);
    assert!(matches!(set, Err(Error::Removed { .. })));
    // An old handle does not change the stream that has its name now.
    let again = define("new", 3).unwrap().wait().unwrap();
    assert!(matches!(new.set_metadata(&[4]), Err(Error::Removed { .. })));
    assert_eq!(again.metadata(), [3]);
    fill(&again, 2);
    fill(&kept, 30);
    for disk in [disk.kill(), disk.crash(1)] {
        let store = reopened(&disk);
        assert_eq!(names(&store), ["kept", "new"]);
        holds_all(&store.existing("new").unwrap(), 2);
    }
}

#[test]
fn what_a_removal_overtakes_on_a_full_disk_does_not_bring_the_stream_back() {
    let disk = SimDisk::new(1);
    let options = Options {
        reserve_bytes: 3000,
        full_polls: u32::MAX,
        ..driven()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 5).unwrap();
    let (a, b) = (
        store.stream("a", Level::Power, b"").unwrap(),
        store.stream("b", Level::Power, b"").unwrap(),
    );
    fill(&a, 5);
    disk.set_capacity(disk.used() + 2990);
    let definition = |_: Option<(Level, &[u8])>| Ok::<_, Error>((Level::Power, vec![7]));
    let define = |name: &str| store.define(name, definition).unwrap();
    let (changed, new) = (define("a"), define("new"));
    let overtaken = a.append(vec![(1, payload(6))]).unwrap();
    let waits = b.append(vec![(1, payload(1))]).unwrap();
    assert!(store.remove("a").unwrap());
    assert!(store.remove("new").unwrap());
    let removed = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Removed { .. }));
    assert!(removed(overtaken.wait()));
    assert!(removed(changed.wait().map(drop)) && removed(new.wait().map(drop)));
    assert_eq!(names(&store), ["b"]);
    disk.set_capacity(u64::MAX);
    waits.wait().unwrap();
    fill(&b, 40);
    for disk in [disk.kill(), disk.crash(1)] {
        let store = reopened(&disk);
        assert_eq!(names(&store), ["b"]);
        holds_all(&store.existing("b").unwrap(), 41);
    }
}

#[test]
fn a_removed_stream_leaves_neither_its_cursor_nor_its_trim_mark() {
    fn cursor_of(payload: &[u8]) -> Option<Cursor> {
        payload.first_chunk().copied()
    }
    let options = || Options {
        cursor_of: Some(cursor_of),
        ..options()
    };
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 5).unwrap();
    let slow = store.stream("slow", Level::Power, b"").unwrap();
    fill(&slow, 1);
    let a = store.stream("a", Level::Power, b"").unwrap();
    fill(&a, 50);
    a.trim(40).unwrap().wait().unwrap();
    a.set_cursor(store.retractions(), [7; 16])
        .unwrap()
        .wait()
        .unwrap();
    assert!(store.remove("a").unwrap());
    // Later segments repeat the marks and cursors of streams.
    fill(&slow, 50);
    drop((a, slow));
    store.close().unwrap();
    for round in 0..3 {
        let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 6).unwrap();
        assert_eq!(
            (&recovery.corrupt, &recovery.new_epochs),
            (&vec![], &vec![])
        );
        assert_eq!(names(&store), ["slow"], "round {round}");
        holds_all(&store.existing("slow").unwrap(), 51 + 50 * round);
        fill(&store.existing("slow").unwrap(), 50);
        store.close().unwrap();
    }
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 7).unwrap();
    let again = store.stream("a", Level::Power, b"").unwrap();
    assert_eq!((again.cursor(), again.first(), again.last()), (None, 1, 0));
}
