//! Goal: a stream's cursor is that of its newest record, or the one set after it, even if the
//! record was removed since by a trim, the size limit, an opening or a full disk.
//! Method: streams with small segments on a simulated disk; `power_loss.rs` covers power losses.

use chappe_log::{Cursor, Error, Level, Options, Store, Stream};
use chappe_sim::SimDisk;

fn cursor_of(payload: &[u8]) -> Option<Cursor> {
    payload.first_chunk().copied().filter(|it| it[0] > 0)
}

fn options() -> Options {
    Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        cursor_of: Some(cursor_of),
        ..Options::default()
    }
}

fn open(disk: &SimDisk, options: Options) -> Store {
    Store::open(Box::new(disk.clone()), options, 5).unwrap().0
}

fn stream(store: &Store, name: &str) -> Stream {
    store.stream(name, Level::Power, b"").unwrap()
}

/// Stores a record that names this cursor; 0 is none.
fn store_one(stream: &Stream, cursor: u8) {
    let record = vec![cursor; 100];
    stream.append(vec![(1, record)]).unwrap().wait().unwrap();
}

#[test]
fn a_cursor_outlives_a_trim_of_everything() {
    let disk = SimDisk::new(1);
    let store = open(&disk, options());
    let a = stream(&store, "a");
    assert_eq!(a.cursor(), None);
    for cursor in 1..=79 {
        store_one(&a, cursor);
    }
    let batch = [80, 81, 0].map(|cursor| (1, vec![cursor; 100]));
    a.append(batch.to_vec()).unwrap().wait().unwrap();
    assert_eq!(a.cursor(), Some([81; 16]), "the last one names none");
    a.trim(u64::MAX).unwrap().wait().unwrap();
    assert_eq!(a.cursor(), Some([81; 16]));
    let killed = disk.kill();
    for disk in [killed.kill(), killed.crash(3)] {
        let store = open(&disk, options());
        let a = store.existing("a").unwrap();
        assert_eq!((a.first(), a.last(), a.cursor()), (83, 82, Some([81; 16])));
        store_one(&a, 90);
        assert_eq!(a.cursor(), Some([90; 16]));
    }
}

#[test]
fn a_cursor_outlives_the_size_limit() {
    let disk = SimDisk::new(1);
    let limited = Options {
        retain_bytes: Some(3 * 4096),
        ..options()
    };
    // The segment is sealed, and read from its snapshot, before the limit removes it.
    for limits in [options(), options(), limited.clone(), limited] {
        let store = open(&disk, limits);
        let (rare, busy) = (stream(&store, "rare"), stream(&store, "busy"));
        if rare.last() == 0 {
            store_one(&rare, 7);
        }
        for _ in 0..100 {
            store_one(&busy, 1);
        }
        assert_eq!(rare.cursor(), Some([7; 16]));
        store.close().unwrap();
    }
    let store = open(&disk, options());
    let rare = store.existing("rare").unwrap();
    assert_eq!((rare.first(), rare.last()), (2, 1), "it was removed");
    assert_eq!(rare.cursor(), Some([7; 16]));
}

#[test]
fn a_cursor_that_is_set_counts_from_there_on() {
    let disk = SimDisk::new(1);
    let store = open(&disk, options());
    let a = stream(&store, "a");
    a.set_cursor(0, [3; 16]).unwrap().wait().unwrap();
    assert_eq!(a.cursor(), Some([3; 16]));
    store_one(&a, 4);
    a.set_cursor(0, [5; 16]).unwrap().wait().unwrap();
    // A later trim of the record after which it was set.
    a.trim(u64::MAX).unwrap().wait().unwrap();
    for _ in 0..2 {
        let store = open(&disk.kill(), options());
        let a = store.existing("a").unwrap();
        assert_eq!((a.first(), a.cursor()), (2, Some([5; 16])));
    }
}

#[test]
fn a_log_that_was_written_without_cursors_is_read_again() {
    let disk = SimDisk::new(1);
    let plain = Options {
        cursor_of: None,
        ..options()
    };
    for _ in 0..2 {
        let store = open(&disk, plain.clone());
        let a = stream(&store, "a");
        store_one(&a, 8);
        for _ in 0..100 {
            store_one(&stream(&store, "b"), 1);
        }
        assert_eq!(a.cursor(), None);
        store.close().unwrap();
    }
    let (store, recovery) = Store::open(Box::new(disk.clone()), options(), 5).unwrap();
    assert_eq!(recovery.indexed, 0);
    let a = store.existing("a").unwrap();
    assert_eq!(a.cursor(), Some([8; 16]));
    store.close().unwrap();
    let (_store, recovery) = Store::open(Box::new(disk), options(), 5).unwrap();
    assert!(recovery.indexed > 0, "snapshots were made again");
}

#[test]
fn what_follows_a_refused_batch_is_refused_too() {
    let disk = SimDisk::new(1);
    let limits = Options {
        commit: chappe_log::Commit::Caller,
        full_polls: 0,
        ..options()
    };
    let store = open(&disk, limits);
    let a = stream(&store, "a");
    let before = store.retractions();
    store_one(&a, 1);
    disk.set_capacity(disk.used());
    let refused = a.append_after(before, vec![(1, vec![2; 100])]).unwrap();
    let set = a.set_cursor(before, [3; 16]).unwrap();
    assert!(!a.is_settled());
    while refused.try_result().is_none() {
        store.commit().unwrap();
    }
    assert!(matches!(refused.wait(), Err(Error::Full { .. })));
    assert!(set.wait().is_err(), "it is not written past the batch");
    assert!(a.is_settled());
    disk.set_capacity(u64::MAX);
    store.commit().unwrap();
    let again = a.append_after(before, vec![(1, vec![4; 100])]);
    assert!(matches!(again, Err(Error::Retracted { .. })));
    let again = a.set_cursor(before, [4; 16]);
    assert!(matches!(again, Err(Error::Retracted { .. })));
    assert_eq!(a.cursor(), Some([1; 16]));
    let now = store.retractions();
    let stored = a.append_after(now, vec![(1, vec![5; 100])]).unwrap();
    stored.wait().unwrap();
    assert_eq!((a.last(), a.cursor()), (2, Some([5; 16])));
}
