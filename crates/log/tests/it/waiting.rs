//! Goal: tasks wait for room in the queue, and for a stream to settle, without polling.
//! Method: a log that its caller commits; each future is polled before and after the commit, the full
//! disk and the end that it waits for, with a waker that counts.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use chappe_log::{Commit, Committed, Error, Level, MemoryDisk, Options, QueueFull, Store, Stream};
use chappe_sim::SimDisk;

const QUEUE_BYTES: usize = 1_000;
/// The largest batch of one record; its head takes the rest.
const LARGEST: usize = 988;

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn options() -> Options {
    Options {
        commit: Commit::Caller,
        queue_full: QueueFull::Refuse,
        queue_bytes: QUEUE_BYTES,
        batch_bytes: QUEUE_BYTES,
        full_polls: 0,
        ..Options::default()
    }
}

fn open() -> (Store, Stream) {
    let (store, _) = Store::open(Box::new(MemoryDisk::new()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    (store, stream)
}

fn batch(bytes: usize) -> Vec<(i64, Vec<u8>)> {
    vec![(0, vec![7; bytes])]
}

/// The size of a batch that the full queue refused.
fn refused(stream: &Stream, bytes: usize) -> usize {
    match stream.append(batch(bytes)) {
        Err(Error::QueueFull { bytes, .. }) => bytes,
        other => panic!("not refused: {:?}", other.map(|it| it.first)),
    }
}

fn is_ready(future: Pin<&mut impl Future<Output = ()>>, wakes: &Arc<Wakes>) -> bool {
    let waker = Waker::from(wakes.clone());
    future.poll(&mut Context::from_waker(&waker)).is_ready()
}

#[test]
fn room_comes_with_a_commit() {
    let (store, stream) = open();
    let wakes = Arc::<Wakes>::default();
    let first = stream.append(batch(900)).unwrap();
    let mut room = pin!(stream.room(refused(&stream, 500)));
    assert!(!is_ready(room.as_mut(), &wakes));
    assert!(!is_ready(room.as_mut(), &wakes));
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "woken once");
    assert!(is_ready(room.as_mut(), &wakes));
    let second = stream.append(batch(500)).unwrap();
    first.wait().unwrap();
    second.wait().unwrap();
}

#[test]
fn a_batch_of_the_largest_size_finds_room() {
    let (store, stream) = open();
    let wakes = Arc::<Wakes>::default();
    let _first = stream.append(batch(100)).unwrap();
    let mut room = pin!(store.room(refused(&stream, LARGEST)));
    assert!(!is_ready(room.as_mut(), &wakes));
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert!(is_ready(room.as_mut(), &wakes));
    stream.append(batch(LARGEST)).unwrap().wait().unwrap();
}

#[test]
fn one_that_goes_away_takes_no_turn() {
    let (store, stream) = open();
    let (gone, wakes) = (Arc::<Wakes>::default(), Arc::<Wakes>::default());
    let _first = stream.append(batch(900)).unwrap();
    let bytes = refused(&stream, 900);
    let mut room = pin!(stream.room(bytes));
    {
        let mut dropped = pin!(stream.room(bytes));
        assert!(!is_ready(dropped.as_mut(), &gone));
        assert!(!is_ready(room.as_mut(), &wakes));
    }
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert_eq!(gone.0.load(Ordering::Relaxed), 0);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(is_ready(room.as_mut(), &wakes));
}

#[test]
fn whoever_waits_learns_that_nothing_is_taken_any_more() {
    let (store, stream) = open();
    let wakes = Arc::<Wakes>::default();
    let _first = stream.append(batch(900)).unwrap();
    let mut room = pin!(stream.room(refused(&stream, 900)));
    assert!(!is_ready(room.as_mut(), &wakes));
    store.close().unwrap();
    assert!(wakes.0.load(Ordering::Relaxed) > 0);
    assert!(is_ready(room.as_mut(), &wakes));
    assert!(matches!(stream.append(batch(900)), Err(Error::Closed)));
}

#[test]
fn a_full_disk_ends_the_wait_for_room() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), options(), 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let wakes = Arc::<Wakes>::default();
    let _first = stream.append(batch(900)).unwrap();
    let mut room = pin!(stream.room(refused(&stream, 900)));
    let mut settled = pin!(stream.settled());
    assert!(!is_ready(room.as_mut(), &wakes));
    assert!(!is_ready(settled.as_mut(), &wakes));
    disk.set_capacity(disk.used());
    while !is_ready(room.as_mut(), &wakes) {
        assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
    }
    assert!(matches!(stream.append(batch(900)), Err(Error::Full { .. })));
    assert!(
        is_ready(settled.as_mut(), &wakes),
        "what was refused is settled"
    );
}

#[test]
fn a_stream_settles_with_its_records_and_cursors() {
    let (store, stream) = open();
    let other = store.stream("b", Level::Power, b"").unwrap();
    let wakes = Arc::<Wakes>::default();
    assert!(is_ready(pin!(stream.settled()), &wakes));
    let _first = stream.append(batch(10)).unwrap();
    let mut settled = pin!(stream.settled());
    assert!(!is_ready(settled.as_mut(), &wakes));
    assert!(is_ready(pin!(other.settled()), &wakes), "another stream");
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert!(is_ready(settled.as_mut(), &wakes));
}
