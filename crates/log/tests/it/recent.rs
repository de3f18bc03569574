//! Goal: records read from memory equal those in the file, and with any number of followers, live
//! data needs no read of the file.
//! Method: the same records are read with memory, with very little of it and with none; the reads
//! of a simulated disk are counted for twenty-four followers of a live stream; records are appended
//! from their own buffer.

use chappe_log::{Batch, Commit, Error, Follower, Level, Options, Store, Stream};
use chappe_sim::{Operation, SimDisk};

fn open(disk: &SimDisk, recent_bytes: usize) -> (Store, Stream) {
    let options = Options {
        segment_bytes: 4096,
        reserve_bytes: 0,
        recent_bytes,
        commit: Commit::Caller,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
    let stream = store.stream("a", Level::Process, b"").unwrap();
    (store, stream)
}

fn payload(number: u64) -> Vec<u8> {
    number
        .to_string()
        .repeat(1 + (number % 9) as usize)
        .into_bytes()
}

fn append(stream: &Stream, count: u64) {
    let from = stream.last() + 1;
    let batch: Vec<_> = (from..from + count)
        .map(|n| (n as i64, payload(n)))
        .collect();
    stream.append(batch).unwrap().wait().unwrap();
}

#[test]
fn memory_shows_what_the_file_holds() {
    let mut seen = Vec::new();
    for recent_bytes in [0, 700, 5_000, 1 << 20] {
        let disk = SimDisk::new(1);
        let (store, stream) = open(&disk, recent_bytes);
        let other = store.stream("b", Level::Process, b"").unwrap();
        let mut all = Vec::new();
        for n in 0..60 {
            append(&stream, 1 + n % 5);
            append(&other, 1 + n % 3);
            if n == 40 {
                stream.trim(30).unwrap().wait().unwrap();
                assert!(matches!(
                    stream.read(29, 1),
                    Err(Error::Gap { next: 30, .. })
                ));
            }
            for from in [30, stream.last() / 2, stream.last(), stream.last() + 1] {
                all.push(format!("{:?}", stream.read_within(from, 7, 40)));
                let mut visited = Vec::new();
                let next = stream.visit(from, 9, 1 << 20, &mut |position, time, payload| {
                    visited.push((position.sequence, time, payload.to_vec()));
                });
                assert!(
                    visited
                        .iter()
                        .all(|it| it.2 == payload(it.0) && it.1 == it.0 as i64)
                );
                all.push(format!("{visited:?} {next:?}"));
            }
        }
        all.push(format!("{:?}", other.range(0, 1000, 1000)));
        seen.push(all);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn followers_of_live_data_share_what_is_in_memory() {
    let reads = |recent_bytes| {
        let disk = SimDisk::new(1);
        let (_store, stream) = open(&disk, recent_bytes);
        let mut followers: Vec<Follower> = (0..24).map(|_| stream.follow(1)).collect();
        let before = disk.done(Operation::Read);
        for _ in 0..200 {
            append(&stream, 3);
            for follower in &mut followers {
                assert_eq!(follower.try_next().unwrap().unwrap().len(), 3);
            }
        }
        assert_eq!(stream.last(), 600);
        disk.done(Operation::Read) - before
    };
    assert_eq!(reads(1 << 20), 0);
    assert!(reads(0) >= 24 * 200);
}

#[test]
fn batches_are_bounded_and_what_fails_is_not_in_them() {
    let (_, stream) = open(&SimDisk::new(1), 0);
    assert_eq!(
        stream.append(Batch::default()).err(),
        Some(Error::EmptyBatch)
    );
    let refused = stream.append(vec![(0, vec![0; 5 << 20])]);
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    let mut batch = Batch::default();
    batch.push(1, b"one");
    let failed = batch.push_with(2, |bytes| {
        bytes.extend_from_slice(b"half");
        Err("no more")
    });
    assert_eq!((failed, batch.len()), (Err("no more"), 1));
    batch.push(3, b"three");
    stream.append(batch).unwrap().wait().unwrap();
    let read = stream.read(1, 10).unwrap();
    let read: Vec<_> = read.iter().map(|it| (it.time, &it.payload[..])).collect();
    assert_eq!(read, [(1, &b"one"[..]), (3, b"three")]);
}
