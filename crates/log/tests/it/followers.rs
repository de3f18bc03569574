//! Goal: a follower gets every acknowledged record once and in order, however fast it is, and is
//! woken for it.
//! Method: one thread appends batches while followers on other threads await them; one starts late,
//! one asks for numbers that do not exist yet.

use chappe_log::{Error, Follower, Level, Options, Record, Store};
use chappe_sim::SimDisk;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn follow_to(follower: &mut Follower, from: u64, last: u64) {
    let mut next = from;
    while next <= last {
        let records: Vec<Record> = block_on(follower.next()).unwrap();
        assert!(!records.is_empty());
        for record in records {
            assert_eq!(record.position.sequence, next);
            assert_eq!(record.payload, next.to_le_bytes());
            next += 1;
        }
    }
    assert_eq!(follower.next_sequence(), last + 1);
}

#[test]
fn every_record_once_and_in_order() {
    const LAST: u64 = 3000;
    let disk = SimDisk::new(1);
    let options = Options {
        segment_bytes: 16 * 1024,
        reserve_bytes: 0,
        follow_records: 50,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(disk), options, 1).unwrap();
    for (name, level) in [
        ("m", Level::Memory),
        ("p", Level::Process),
        ("s", Level::Power),
    ] {
        let stream = store.stream(name, level, b"").unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                let mut follower = stream.follow(1);
                scope.spawn(move || {
                    follow_to(&mut follower, 1, LAST);
                    assert_eq!(follower.try_next(), Ok(None));
                });
            }
            let mut next = 1;
            while next <= LAST {
                let end = (next + 1 + next % 5).min(LAST + 1);
                let batch: Vec<_> = (next..end)
                    .map(|n| (n as i64, n.to_le_bytes().to_vec()))
                    .collect();
                let appended = stream.append(batch).unwrap();
                if next % 3 == 0 {
                    block_on(appended).unwrap();
                }
                next = end;
            }
        });
        let mut late = stream.follow(LAST - 10);
        follow_to(&mut late, LAST - 10, LAST);
    }
}

#[test]
fn the_end_and_a_rollback_are_told() {
    let disk = SimDisk::new(1);
    let options = Options {
        reserve_bytes: 0,
        ..Options::default()
    };
    let (store, _) = Store::open(Box::new(disk), options, 1).unwrap();
    let stream = store.stream("a", Level::Power, b"").unwrap();
    let mut ahead = stream.follow(10);
    assert!(matches!(ahead.try_next(), Err(Error::Rollback(r)) if r.next == 1));
    assert_eq!(ahead.try_next(), Ok(None));
    let waiting = thread::spawn(move || {
        let first = block_on(ahead.next());
        (first, block_on(ahead.next()))
    });
    stream
        .append(vec![(0, b"x".to_vec())])
        .unwrap()
        .wait()
        .unwrap();
    store.close().unwrap();
    let (first, end) = waiting.join().unwrap();
    assert_eq!(first.unwrap().len(), 1);
    assert_eq!(end, Err(Error::Closed));
}

#[test]
fn who_waits_for_the_next_commit_is_not_told_of_an_earlier_one() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk), Options::default(), 1).unwrap();
    let stream = store.stream("s", Level::Power, b"").unwrap();
    let mut follower = stream.follow(1);
    let append = |time, payload: &'static [u8]| {
        block_on(stream.append(vec![(time, payload.to_vec())]).unwrap()).unwrap()
    };
    append(1, b"one");
    let seen = stream.last();
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(follower.poll_beyond(seen, &mut context), Poll::Pending);
    assert_eq!(
        follower.poll_beyond(seen - 1, &mut context),
        Poll::Ready(())
    );
    append(2, b"two");
    block_on(std::future::poll_fn(|context| {
        follower.poll_beyond(seen, context)
    }));
    // No record was returned meanwhile.
    assert_eq!(block_on(follower.next()).unwrap().len(), 2);
    let ended = stream.last();
    store.close().unwrap();
    assert_eq!(follower.poll_beyond(ended, &mut context), Poll::Ready(()));
}
