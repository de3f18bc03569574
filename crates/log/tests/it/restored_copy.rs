//! Goal: a restored backup continues in a new epoch, and a client that is ahead of it is notified.
//! Method: copy the disk's files, continue with the original, open the copy and resume on it.

use chappe_log::{EpochReason, Level, Options, Position, Store};
use chappe_sim::SimDisk;

fn options() -> Options {
    Options {
        reserve_bytes: 0,
        ..Options::default()
    }
}

fn append(store: &Store, records: u64) -> Position {
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let mut last = None;
    for n in 0..records {
        let appended = stream
            .append(vec![(n as i64, n.to_le_bytes().to_vec())])
            .unwrap();
        last = Some(appended.first);
        appended.wait().unwrap();
    }
    last.unwrap()
}

#[test]
fn a_restored_copy_has_a_new_epoch() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let at_backup = append(&store, 10);
    let backup = disk.copied();
    let ahead = append(&store, 5);
    assert_eq!((ahead.epoch, ahead.sequence), (at_backup.epoch, 15));
    store.close().unwrap();

    let (store, recovery) = Store::open(Box::new(backup.clone()), options(), 2).unwrap();
    assert!(recovery.copied);
    assert_eq!(recovery.new_epochs[0].reason, EpochReason::Copied);
    let stream = store.existing("a").unwrap();
    assert_ne!(stream.epoch(), at_backup.epoch);
    assert_eq!(
        stream.epochs(),
        vec![(at_backup.epoch, 1), (stream.epoch(), 11)]
    );
    assert_eq!(stream.resume(at_backup), Ok(11));
    assert_eq!(
        stream.resume(Position {
            sequence: 0,
            ..ahead
        }),
        Ok(1)
    );
    let rollback = stream.resume(ahead).unwrap_err();
    assert_eq!((rollback.kept, rollback.next), (Some(at_backup), 11));
    let unknown = stream
        .resume(Position {
            epoch: 1,
            sequence: 3,
        })
        .unwrap_err();
    assert_eq!((unknown.kept, unknown.next), (None, 1));
    // Numbers continue in the new epoch; the client that is ahead is still notified.
    let new = append(&store, 7);
    assert_eq!(
        new,
        Position {
            epoch: stream.epoch(),
            sequence: 17
        }
    );
    assert!(stream.resume(ahead).is_err());
    assert_eq!(stream.read(10, 2).unwrap()[1].position.epoch, new.epoch);
    drop(stream);
    store.close().unwrap();

    // Reopened, it is an ordinary log.
    let (store, recovery) = Store::open(Box::new(backup), options(), 3).unwrap();
    assert!(!recovery.copied && recovery.clean && recovery.new_epochs.is_empty());
    assert_eq!(
        append(&store, 1),
        Position {
            sequence: 18,
            ..new
        }
    );
}

#[test]
fn a_lost_marker_counts_as_a_copy() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    append(&store, 3);
    store.close().unwrap();
    disk.put("marker", b"rotten");
    let (store, recovery) = Store::open(Box::new(disk), options(), 2).unwrap();
    assert!(recovery.copied);
    assert_eq!(append(&store, 1).sequence, 4);
}
