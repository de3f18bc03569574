//! Goal: definitions of many streams cost one sync, a change builds on the newest definition even
//! while that is in flight, and a refused definition changes nothing.
//! Method: a store that its caller drives, on a simulated disk, so that definitions stay in flight
//! until the test commits.

use chappe_log::{Commit, Committed, Defining, Error, Level, Options, QueueFull, Store, Stream};
use chappe_sim::SimDisk;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

fn driven() -> Options {
    Options {
        commit: Commit::Caller,
        queue_full: QueueFull::Refuse,
        reserve_bytes: 0,
        ..Options::default()
    }
}

/// Polls once.
fn outcome(defining: &mut Defining) -> Option<Result<Stream, Error>> {
    match Pin::new(defining).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// Adds a byte to the metadata.
fn define(store: &Store, name: &str, byte: u8) -> Result<Defining, Error> {
    store.define(name, |so_far| {
        let (level, mut metadata) = so_far.map_or((Level::Power, Vec::new()), |(level, it)| {
            (level, it.to_vec())
        });
        metadata.push(byte);
        Ok((level, metadata))
    })
}

#[test]
fn a_hundred_streams_cost_one_sync() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), driven(), 1).unwrap();
    store.stream("first", Level::Power, b"").unwrap();
    let before = store.counters().syncs;
    let names: Vec<String> = (0..100).map(|number| format!("s{number}")).collect();
    let all = names.iter().map(|name| define(&store, name, 1).unwrap());
    let mut all: Vec<Defining> = all.collect();
    assert!(all.iter_mut().all(|one| outcome(one).is_none()));
    assert_eq!(store.streams().len(), 1, "none is safe");
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert_eq!(store.counters().syncs - before, 1);
    for one in &mut all {
        let stream = outcome(one).unwrap().unwrap();
        let appended = stream.append(vec![(0, vec![1])]).unwrap();
        appended.wait().unwrap();
    }
    store.abandon();
    let (store, _) = Store::open(Box::new(disk.crash(1)), driven(), 2).unwrap();
    assert_eq!(store.streams().len(), 101);
    for name in &names {
        let stream = store.existing(name).unwrap();
        assert_eq!((stream.metadata(), stream.last()), (vec![1], 1));
    }
}

#[test]
fn a_change_builds_on_one_that_is_on_its_way() {
    let disk = SimDisk::new(1);
    let (store, _) = Store::open(Box::new(disk.clone()), driven(), 1).unwrap();
    let mut first = define(&store, "a", 1).unwrap();
    let mut second = define(&store, "a", 2).unwrap();
    assert!(outcome(&mut first).is_none());
    let stream = commit_for(&store, &mut second);
    assert_eq!(stream.metadata(), [1, 2]);
    let epoch = stream.epoch();
    let mut third = stream
        .change_metadata(|so_far| Ok::<_, Error>([so_far, &[3]].concat()))
        .unwrap();
    assert_eq!(stream.metadata(), [1, 2], "the new ones are not safe");
    let mut fourth = define(&store, "a", 4).unwrap();
    // A definition equal to the one in flight waits for that.
    let same = |so_far: Option<(Level, &[u8])>| {
        let (level, metadata) = so_far.unwrap();
        Ok::<_, Error>((level, metadata.to_vec()))
    };
    let mut same = store.define("a", same).unwrap();
    assert!(outcome(&mut third).is_none() && outcome(&mut same).is_none());
    commit_for(&store, &mut fourth);
    assert!(outcome(&mut same).is_some_and(|it| it.is_ok()));
    store.abandon();
    let (store, _) = Store::open(Box::new(disk.crash(1)), driven(), 2).unwrap();
    let stream = store.existing("a").unwrap();
    assert_eq!(stream.metadata(), [1, 2, 3, 4]);
    assert_eq!(stream.epochs()[0].0, epoch);
    assert_eq!(store.streams().len(), 1);
}

fn commit_for(store: &Store, defining: &mut Defining) -> Stream {
    assert!(outcome(defining).is_none());
    assert_eq!(store.commit(), Ok(Committed::Group));
    outcome(defining).unwrap().unwrap()
}

#[test]
fn a_refused_definition_leaves_everything_as_it_was() {
    let disk = SimDisk::new(1);
    let options = Options {
        full_polls: 1,
        ..driven()
    };
    let (store, _) = Store::open(Box::new(disk.clone()), options, 1).unwrap();
    let known = store.stream("known", Level::Power, b"").unwrap();
    let memory = store.stream("memory", Level::Memory, b"").unwrap();
    disk.set_capacity(disk.used() + 20);
    let mut refused = [
        define(&store, "new", 1).unwrap(),
        define(&store, "known", 2).unwrap(),
        define(&store, "new", 3).unwrap(),
    ];
    // It is acknowledged already, so everything it may need comes before it.
    let mut kept = define(&store, "memory", 4).unwrap();
    memory.append(vec![(0, vec![7])]).unwrap().wait().unwrap();
    let mut dropped = define(&store, "memory", 5).unwrap();
    for _ in 0..3 {
        assert!(matches!(store.commit(), Ok(Committed::Full { .. })));
    }
    for one in refused.iter_mut().chain([&mut dropped]) {
        let outcome = outcome(one);
        assert!(
            matches!(outcome, Some(Err(Error::Full { .. }))),
            "{:?}",
            outcome.map(|it| it.err())
        );
    }
    assert!(outcome(&mut kept).is_none());
    disk.set_capacity(u64::MAX);
    assert_eq!(store.commit(), Ok(Committed::Group));
    assert!(outcome(&mut kept).unwrap().is_ok());
    assert_eq!((memory.metadata(), known.metadata()), (vec![4], vec![]));
    assert!(store.existing("new").is_none());
    let mut again = [
        define(&store, "new", 6).unwrap(),
        define(&store, "memory", 7).unwrap(),
        define(&store, "known", 8).unwrap(),
    ];
    store.commit().unwrap();
    assert!(again.iter_mut().all(|one| outcome(one).unwrap().is_ok()));
    store.close().unwrap();
    let (store, _) = Store::open(Box::new(disk.crash(1)), driven(), 2).unwrap();
    let metadata = |name| store.existing(name).map(|stream| stream.metadata());
    assert_eq!(metadata("new"), Some(vec![6]));
    assert_eq!(metadata("memory"), Some(vec![4, 7]));
    assert_eq!(metadata("known"), Some(vec![8]));
}
