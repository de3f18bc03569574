//! Goal: whatever operation of the disk fails, once or permanently, nothing acknowledged is lost
//! and the store reports that it has stopped; a full disk stops it only until there is room.
//! Method: for each operation fail the first, second, third … until a run completes; then judge the
//! state after a kill and after a power loss, with work in between. A failed sync of the simulated
//! disk drops the data, and later syncs do not save it.

use crate::model::{Model, judge, options, workload};
use chappe_log::{Error, Health, Level, Options, Store};
use chappe_sim::{Operation, SimDisk};
use std::time::Duration;

#[test]
fn the_nth_operation_fails() {
    let mut runs = 0;
    for operation in Operation::ALL {
        for persistent in [false, true] {
            for nth in 0.. {
                let disk = SimDisk::new(nth);
                let mut model = Model::default();
                // Two sessions, so that opening an existing log is hit too.
                disk.fail(operation, nth, persistent);
                for session in 0..2 {
                    workload(&disk, &mut model, 40 + session, 15);
                }
                let untouched = disk.faults_hit() == 0;
                disk.clear_faults();
                let killed = disk.kill();
                judge(&killed, &mut model.clone(), Level::Process, nth);
                judge(&disk.crash(nth), &mut model.clone(), Level::Power, nth);
                // The cached content after a failed sync must not count as durable.
                workload(&killed, &mut model, 50, 5);
                judge(&killed.crash(nth), &mut model, Level::Power, nth + 1);
                runs += 1;
                if untouched {
                    break;
                }
            }
        }
    }
    assert!(runs > 150, "{runs} runs");
    println!("{runs} runs with faults");
}

#[test]
fn a_failed_sync_is_neither_repeated_nor_trusted() {
    (0..12).for_each(failed_sync);
}

fn failed_sync(seed: u64) {
    let disk = SimDisk::new(seed);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    stream
        .append(vec![(1, b"safe".to_vec())])
        .unwrap()
        .wait()
        .unwrap();
    disk.fail(Operation::Sync, 0, false);
    let outcome = stream.append(vec![(2, vec![9; 2500])]).unwrap().wait();
    assert!(matches!(outcome, Err(Error::Failed { .. })), "{outcome:?}");
    let syncs = disk.done(Operation::Sync);
    assert!(matches!(
        stream.append(vec![(3, vec![])]),
        Err(Error::Failed { .. })
    ));
    assert!(matches!(
        store.stream("b", Level::Power, b""),
        Err(Error::Failed { .. })
    ));
    assert!(matches!(store.health(), Health::Failed(reason) if reason.contains("sync")));
    assert_eq!(stream.read(1, 10).unwrap().len(), 1);
    assert!(matches!(store.close(), Err(Error::Failed { .. })));
    assert_eq!(disk.done(Operation::Sync), syncs);
    // The process ends. The cached second record may count after reopening, but then it must be on
    // the disk.
    let killed = disk.kill();
    let (store, _) = Store::open(Box::new(killed.clone()), options(), 2).unwrap();
    let shown = store.existing("a").unwrap().read(1, 10).unwrap();
    assert_eq!(shown.len(), 2);
    for seed in 0..20 {
        let crashed = killed.crash(seed);
        let (store, _) = Store::open(Box::new(crashed), options(), seed).unwrap();
        assert_eq!(store.existing("a").unwrap().read(1, 10).unwrap(), shown);
    }
}

fn full_disk(reserve: u64, hide: bool) {
    let disk = SimDisk::new(5);
    if hide {
        disk.hide_free_bytes();
    }
    let full_poll = Duration::from_millis(1);
    let options = Options {
        reserve_bytes: reserve,
        full_poll,
        full_polls: u32::MAX,
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options.clone(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let mut expected = 0u64;
    for round in 0..4 {
        disk.set_capacity(disk.used() + reserve + 1000 + round * 333);
        let mut waiting = Vec::new();
        let refused = loop {
            let batch = vec![(0, (expected + 1).to_le_bytes().repeat(20))];
            match stream.append(batch) {
                Ok(appended) => {
                    expected += 1;
                    assert_eq!(appended.first.sequence, expected);
                    waiting.push(appended);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::Full { .. }), "{refused:?}");
        assert_eq!(store.health(), Health::Full);
        assert!(stream.read(1, 1).is_ok());
        disk.set_capacity(u64::MAX);
        waiting
            .into_iter()
            .for_each(|appended| appended.wait().unwrap());
        assert_eq!(store.health(), Health::Ok);
        let (again, recovery) =
            Store::open(Box::new(disk.crash(round)), options.clone(), 2).unwrap();
        assert_eq!(recovery.corrupt, vec![]);
        let again = again.existing("a").unwrap();
        let mut read = Vec::new();
        while (read.len() as u64) < expected {
            read.extend(again.read(read.len() as u64 + 1, 1000).unwrap());
        }
        for (n, record) in read.iter().enumerate() {
            assert_eq!(record.payload[..8], (n as u64 + 1).to_le_bytes());
        }
    }
}

#[test]
fn a_full_disk_is_waited_for() {
    full_disk(2000, false);
    full_disk(0, false);
}

#[test]
fn a_write_that_finds_the_disk_full_is_undone() {
    full_disk(0, true);
}

fn stays_full(hide: bool) {
    let disk = SimDisk::new(6);
    if hide {
        disk.hide_free_bytes();
    }
    let options = Options {
        reserve_bytes: 0,
        full_poll: Duration::from_millis(1),
        full_polls: 3,
        ..options()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let memory = store.stream("m", Level::Memory, b"").unwrap();
    let one = |byte: u8| vec![(0, vec![byte; 300])];
    stream.append(one(1)).unwrap().wait().unwrap();
    disk.set_capacity(disk.used() + 100);
    // Nothing frees space, yet every waiting caller gets an answer.
    let refused = stream.append(one(2)).and_then(|appended| appended.wait());
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    let created = store.stream("b", Level::Power, b"").err();
    assert!(matches!(created, Some(Error::Full { .. })), "{created:?}");
    assert_eq!(stream.last(), 1);
    // Records acknowledged in memory keep waiting.
    let kept = (0..100).find_map(|_| memory.append(one(7)).ok());
    let refused = stream.append(one(3)).and_then(|appended| appended.wait());
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    disk.set_capacity(u64::MAX);
    // It resumes automatically; the refused number is assigned to an accepted record.
    let appended = loop {
        match stream
            .append(one(4))
            .map(|appended| (appended.first, appended.wait()))
        {
            Ok((first, Ok(()))) => break first,
            Ok((_, Err(Error::Full { .. }))) | Err(Error::Full { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(appended.sequence, 2);
    drop((stream, memory));
    store.close().unwrap();
    let (store, recovery) = Store::open(Box::new(disk.crash(1)), Options::default(), 2).unwrap();
    assert_eq!((recovery.clean, recovery.corrupt), (true, vec![]));
    let read = store.existing("a").unwrap().read(1, 10).unwrap();
    let payloads: Vec<u8> = read.iter().map(|record| record.payload[0]).collect();
    assert_eq!(payloads, [1, 4]);
    let memory = store.existing("m").unwrap();
    assert_eq!(memory.last(), u64::from(kept.is_some()));
    assert!(store.existing("b").is_none());
}

#[test]
fn a_disk_that_stays_full_refuses_what_waits() {
    stays_full(false);
    stays_full(true);
}

/// After a failed sync the system shows bytes that are not on the disk. Opening makes them durable,
/// even if there is no room to rewrite the segment: a reader that has seen them must find them
/// again.
#[test]
fn what_is_shown_after_a_failed_sync_is_safe_even_on_a_full_disk() {
    let mut shown = 0;
    for seed in 0..40 {
        let options = Options {
            segment_bytes: 64 * 1024,
            reserve_bytes: 0,
            ..options()
        };
        let disk = SimDisk::new(seed);
        let (store, _) = Store::open(Box::new(disk.clone()), options.clone(), 1).unwrap();
        let stream = store.stream("a", Level::Power, b"").unwrap();
        let append = |bytes: usize| stream.append(vec![(1, vec![7; bytes])]).unwrap().wait();
        append(9_000).unwrap();
        disk.fail(Operation::Sync, 0, false);
        append(700).unwrap_err();
        let killed = disk.kill();
        killed.set_capacity(killed.used() + 5_000);
        let (store, recovery) = Store::open(Box::new(killed.clone()), options.clone(), 2).unwrap();
        assert!(!recovery.rewritten, "there is no room for that");
        let last = store.existing("a").unwrap().last();
        shown += u64::from(last == 2);
        let found = killed.crash(seed);
        found.set_capacity(u64::MAX);
        let (store, recovery) = Store::open(Box::new(found), options, 3).unwrap();
        assert_eq!(recovery.corrupt, [], "seed {seed}");
        assert_eq!(store.existing("a").unwrap().last(), last, "seed {seed}");
    }
    assert_eq!(shown, 40, "the second record was shown");
}
