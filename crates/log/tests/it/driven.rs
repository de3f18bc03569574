//! Goal: a store driven by its caller behaves like one with a thread, and identically each time, so
//! that a simulation of it can be repeated.
//! Method: the same workload on two simulated disks must produce the same bytes and the same
//! boundaries; power losses at each boundary are judged as for the thread; the queue moves only by
//! `commit`; calls count the checks of a full disk.

use crate::model::{Model, judge, options, workload, workload_with};
use chappe_log::{Commit, Committed, Error, Health, Level, MemoryDisk, Options, QueueFull, Store};
use chappe_sim::{Operation, SimDisk};

fn driven() -> Options {
    Options {
        commit: Commit::Caller,
        ..options()
    }
}

#[test]
fn the_same_calls_leave_the_same_bytes() {
    for seed in 1..=4 {
        let run = || {
            let disk = SimDisk::new(seed);
            let mut model = Model::default();
            assert!(workload_with(driven(), &disk, &mut model, seed, 40));
            assert!(model.removed > 1);
            let files: Vec<_> = disk.names().iter().map(|name| disk.bytes(name)).collect();
            (disk.names(), files, disk.boundaries())
        };
        let (first, second) = (run(), run());
        assert!(first == second, "seed {seed}");
        // A thread acknowledges the same records, if in other groups.
        let (mut one, mut other) = (Model::default(), Model::default());
        assert!(workload(&SimDisk::new(seed), &mut one, seed, 40));
        let disk = SimDisk::new(seed);
        assert!(workload_with(driven(), &disk, &mut other, seed, 40));
        assert!(one.issued == other.issued, "seed {seed}");
    }
}

#[test]
fn power_loss_at_every_boundary() {
    let mut cuts = 0;
    for seed in 1..=2 {
        for boundary in 0.. {
            let disk = SimDisk::new(seed * 1000 + boundary);
            let mut model = Model::default();
            disk.cut_power_at(boundary);
            let done = workload_with(driven(), &disk, &mut model, seed, 25);
            for image in 0..4 {
                let image_seed = seed << 40 | boundary << 8 | image;
                let found = disk.crash(image_seed);
                judge(&found, &mut model.clone(), Level::Power, image_seed);
            }
            if done {
                break;
            }
            cuts += 1;
        }
    }
    assert!(cuts > 100, "{cuts} cuts");
}

#[test]
fn what_is_queued_moves_only_by_commit() {
    let disk = MemoryDisk::new();
    let (store, _) = Store::open(Box::new(disk.clone()), driven(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let groups = store.counters().groups;
    let one = |n: u8| stream.append(vec![(0, vec![n])]).unwrap();
    let appended = [one(1), one(2), one(3)];
    assert!(appended.iter().all(|one| one.try_result().is_none()));
    assert_eq!(stream.last(), 0);
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert!(appended.iter().all(|one| one.try_result() == Some(Ok(()))));
    assert_eq!((stream.last(), store.counters().groups), (3, groups + 1));
    assert_eq!(store.commit(), Ok(Committed::Nothing));
    // A thread that waits also commits.
    assert_eq!(one(4).wait(), Ok(()));
    let trimmed = stream.trim(2).unwrap();
    assert_eq!(trimmed.try_result(), None);
    assert_eq!(trimmed.wait(), Ok(()));
    // Records queued when the store is abandoned do not exist.
    let lost = one(5);
    let handle = stream.clone();
    store.abandon();
    assert!(matches!(lost.try_result(), Some(Err(_))));
    assert_eq!(handle.read(2, 9).unwrap().len(), 3);
    assert_eq!(handle.append(vec![(0, vec![])]).err(), Some(Error::Closed));
    let (store, recovery) = Store::open(Box::new(disk), driven(), 2).unwrap();
    assert!(!recovery.clean);
    assert_eq!(store.existing("a").unwrap().last(), 4);
    store.close().unwrap();
}

#[test]
fn a_store_with_a_thread_is_abandoned_too() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    stream.append(vec![(0, vec![1])]).unwrap().wait().unwrap();
    let boundaries = disk.boundaries();
    store.abandon();
    assert_eq!(disk.boundaries(), boundaries);
    drop(stream);
    assert_eq!(disk.boundaries(), boundaries);
    let (_, recovery) = Store::open(Box::new(disk), options(), 2).unwrap();
    assert!(!recovery.clean && recovery.records == 1);
}

#[test]
fn a_full_disk_is_counted_by_calls() {
    let disk = SimDisk::new(1);
    let options = Options {
        full_polls: 3,
        queue_full: QueueFull::Wait,
        ..driven()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    stream.append(vec![(0, vec![1])]).unwrap().wait().unwrap();
    disk.set_capacity(disk.used() + 10);
    let waits = stream.append(vec![(0, vec![2])]).unwrap();
    for _ in 0..3 {
        assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
        assert_eq!(waits.try_result(), None);
    }
    assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
    assert!(matches!(waits.try_result(), Some(Err(Error::Full { .. }))));
    assert_eq!(store.health(), Health::Full);
    disk.set_capacity(u64::MAX);
    assert_eq!(store.commit(), Ok(Committed::Nothing));
    let appended = stream.append(vec![(0, vec![3])]).unwrap();
    assert_eq!(appended.first.sequence, 2);
    appended.wait().unwrap();
    // A failed sync ends the store, and nothing is written after it.
    disk.fail(Operation::Sync, 0, false);
    let failed = stream.append(vec![(0, vec![4])]).unwrap();
    assert!(matches!(failed.wait(), Err(Error::Failed { .. })));
    let boundaries = disk.boundaries();
    assert!(matches!(store.commit(), Err(Error::Failed { .. })));
    assert!(matches!(store.close(), Err(Error::Failed { .. })));
    assert_eq!(disk.boundaries(), boundaries);
}

#[test]
fn a_pause_between_commits_is_shared_and_ends_for_what_is_urgent() {
    // A pause longer than any test: a missed wake-up would hang.
    let options = Options {
        commit_pause: std::time::Duration::from_secs(3600),
        ..options()
    };
    let (store, _) = Store::open(Box::new(MemoryDisk::new()), options, 1).unwrap();
    // Each new stream is a commit of its own.
    let streams = ["a", "b"].map(|name| store.stream(name, Level::Power, b"").unwrap());
    let groups = store.counters().groups;
    let small: Vec<_> = (0..20)
        .map(|n| streams[n % 2].append(vec![(0, vec![1])]).unwrap())
        .collect();
    // The size limit ends the pause.
    let large = streams[0].append(vec![(0, vec![0; 300 * 1024])]).unwrap();
    large.wait().unwrap();
    let all = small.into_iter().all(|one| one.wait() == Ok(()));
    assert!(all && store.counters().groups <= groups + 2);
    // A waiting reader ends the pause.
    let wanted = streams[0].append(vec![(0, vec![3])]).unwrap();
    assert!(!streams[1].skip_commit_pause());
    assert!(streams[0].skip_commit_pause());
    wanted.wait().unwrap();
    assert!(!streams[0].skip_commit_pause());
    let last = streams[1].append(vec![(0, vec![2])]).unwrap();
    drop(streams);
    store.close().unwrap();
    assert_eq!(last.try_result(), Some(Ok(())));
}
