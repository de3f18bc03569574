//! Goal: the registry equals its journal: after any changes, failures, compactions and reopenings.
//! Method: random changes on a journal in memory; the reopened registry is compared with the model
//! and with the one that was never closed.

use std::future::Future as _;
use std::sync::{Arc, Condvar, Mutex};

use crate::model::{Model, apply, entity, key, steps};
use chappe_registry::{
    Change, Entity, EntityKind, Error, FEED_CAPACITY, FeedItem, Journal, JournalError,
    MemoryJournal, Principal, Receipt, Registry, Room, Search,
};
use proptest::prelude::*;

fn everything(registry: &Registry) -> Vec<Entity> {
    let all = Search {
        limit: Some(10_000),
        ..Search::default()
    };
    registry.search(&all, &Principal::Operator).entities
}

fn one(number: u8, name: &str) -> Entity {
    Entity::new(key(number), EntityKind::Device, name)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_reopened_registry_is_the_same(
        first in steps(30),
        second in steps(30),
        compact in any::<bool>(),
    ) {
        let journal = MemoryJournal::new();
        let mut model = Model::default();
        let registry = Registry::open(journal.clone()).unwrap();
        apply(&registry, &mut model, first);
        if compact {
            registry.compact().unwrap();
            prop_assert_eq!(journal.len(), model.entities.len());
        }
        apply(&registry, &mut model, second);
        let reopened = Registry::open(journal).unwrap();
        prop_assert_eq!(everything(&reopened), everything(&registry));
        prop_assert_eq!(everything(&reopened).len(), model.entities.len());
        for (key, entity) in &model.entities {
            let found = reopened.get(key, &Principal::Operator);
            prop_assert_eq!(found.as_ref(), Some(entity));
        }
        prop_assert_eq!(reopened.revision(), registry.revision());
        let (old, new) = (registry.statistics(), reopened.statistics());
        prop_assert_eq!((old.terms, old.triples), (new.terms, new.triples));
    }

    /// Removing everything leaves no term and no rule.
    #[test]
    fn removing_everything_empties_it(entities in proptest::collection::vec(entity(), 0..20)) {
        let registry = Registry::open(MemoryJournal::new()).unwrap();
        for entity in &entities {
            registry.publish(entity.clone()).unwrap().wait().unwrap();
        }
        for number in 0..8 {
            if let Ok(removal) = registry.remove(&key(number)) {
                removal.wait().unwrap();
            }
        }
        let left = registry.statistics();
        prop_assert_eq!((left.entities, left.triples, left.terms, left.access_groups), (0, 0, 0, 0));
    }
}

#[test]
fn what_the_journal_refuses_is_not_in_memory() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    registry.publish(one(1, "kept")).unwrap().wait().unwrap();
    journal.fail(Some(JournalError::Full("no room".into())));
    let refused = registry
        .publish(one(1, "lost"))
        .unwrap()
        .wait()
        .unwrap_err();
    assert_eq!(
        refused,
        Error::Journal(JournalError::Full("no room".into()))
    );
    drop(registry.publish(one(2, "lost, and nobody waits")).unwrap());
    assert_eq!(everything(&registry), [one(1, "kept")]);
    journal.fail(None);
    registry.publish(one(3, "after")).unwrap().wait().unwrap();
    assert_eq!(everything(&registry).len(), 2);
    assert_eq!(
        everything(&Registry::open(journal.clone()).unwrap()),
        everything(&registry)
    );
    journal.fail(Some(JournalError::Failed("disk".into())));
    assert!(registry.remove(&key(1)).unwrap().wait().is_err());
    journal.fail(None);
    assert_eq!(
        registry.publish(one(4, "")).unwrap_err(),
        Error::Stopped("disk".into())
    );
    assert!(registry.get(&key(1), &Principal::Anonymous).is_some());
}

#[test]
fn many_changes_may_be_on_their_way_and_keep_their_order() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let first = registry.publish(one(1, "first")).unwrap();
    let second = registry.publish(one(1, "second")).unwrap();
    let removal = registry.remove(&key(1)).unwrap();
    assert!(registry.remove(&key(1)).is_err());
    let third = registry.publish(one(1, "third")).unwrap();
    assert!(everything(&registry).is_empty());
    // The journal has acknowledged all four; the later ones bring the earlier ones in.
    assert_eq!(removal.wait().unwrap(), 3);
    assert!(everything(&registry).is_empty());
    assert_eq!(third.wait().unwrap(), 4);
    assert_eq!((first.wait().unwrap(), second.wait().unwrap()), (1, 2));
    assert_eq!(everything(&registry), [one(1, "third")]);
}

#[test]
fn two_registries_share_one_journal() {
    let journal = MemoryJournal::new();
    let one_side = Registry::open(journal.clone()).unwrap();
    let other_side = Registry::open(journal).unwrap();
    one_side
        .publish(one(1, "from one"))
        .unwrap()
        .wait()
        .unwrap();
    other_side
        .publish(one(2, "from the other"))
        .unwrap()
        .wait()
        .unwrap();
    one_side
        .publish(one(3, "from one again"))
        .unwrap()
        .wait()
        .unwrap();
    other_side.refresh().unwrap();
    assert_eq!(everything(&one_side).len(), 3);
    assert_eq!(everything(&one_side), everything(&other_side));
}

#[test]
fn an_unreadable_record_stops_the_opening() {
    for bytes in [vec![], vec![0], vec![1], vec![1, 0, 255, 255, 255, 255, 15]] {
        let journal = MemoryJournal::new();
        journal.append_if(0, vec![bytes]).unwrap().wait().unwrap();
        let error = Registry::open(journal).unwrap_err();
        let unreadable = matches!(
            error,
            Error::Journal(JournalError::Unreadable { position: 1, .. })
        );
        assert!(unreadable, "{error}");
    }
    let journal = MemoryJournal::new();
    let newer = journal.append_if(0, vec![vec![9, 9]]);
    newer.unwrap().wait().unwrap();
    let error = Registry::open(journal).unwrap_err();
    let is_newer = matches!(
        error,
        Error::Journal(JournalError::NewerFormat {
            position: 1,
            found: 9,
            known: 3,
            ..
        })
    );
    assert!(is_newer, "{error}");
}

#[test]
fn an_owner_keeps_its_key_and_bad_fields_are_named() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    registry.publish(one(1, "mine")).unwrap().wait().unwrap();
    let theirs = Entity {
        owner: "other".into(),
        ..one(1, "theirs")
    };
    assert!(matches!(
        registry.publish(theirs),
        Err(Error::NotOwner { .. })
    ));
    let bad = Entity::new("no iri", EntityKind::Other, "");
    assert!(matches!(
        registry.publish(bad),
        Err(Error::InvalidEntity { field: "key", .. })
    ));
    let long = one(2, &"x".repeat(2_000));
    assert!(matches!(
        registry.publish(long),
        Err(Error::InvalidEntity { field: "name", .. })
    ));
    let readers = vec![String::new(); 300];
    let many = Entity {
        access: chappe_registry::Access::Readers(readers),
        ..one(2, "")
    };
    assert!(matches!(
        registry.publish(many),
        Err(Error::InvalidEntity {
            field: "readers",
            ..
        })
    ));
}

#[test]
fn the_feed_goes_on_where_one_left_and_hides_what_one_may_not_see() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let anyone = Principal::Anonymous;
    let mut feed = registry.subscribe(1, anyone.clone());
    assert_eq!(feed.try_next(), None);
    let hidden = |number, name| Entity {
        access: chappe_registry::Access::Owner,
        ..one(number, name)
    };
    registry.publish(one(1, "a")).unwrap().wait().unwrap();
    registry.publish(hidden(2, "b")).unwrap().wait().unwrap();
    registry.publish(hidden(1, "a")).unwrap().wait().unwrap();
    registry.remove(&key(2)).unwrap().wait().unwrap();
    let kind = EntityKind::Device;
    let published = FeedItem::Change {
        revision: 1,
        change: Change::Published {
            key: key(1),
            kind,
            is_new: true,
        },
    };
    let removed = FeedItem::Change {
        revision: 3,
        change: Change::Removed { key: key(1), kind },
    };
    assert_eq!(feed.try_next(), Some(published));
    assert_eq!(feed.try_next(), Some(removed.clone()));
    assert_eq!(feed.try_next(), None);
    // A subscriber that was away goes on after a restart.
    let reopened = Registry::open(journal).unwrap();
    let mut later = reopened.subscribe(2, anyone.clone());
    assert_eq!(later.try_next(), Some(removed));
    assert_eq!(later.try_next(), None);
    assert_eq!(
        reopened.subscribe(9, anyone).try_next(),
        Some(FeedItem::Resync { revision: 5 })
    );
}

#[test]
fn whoever_was_away_too_long_is_told() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let mut feed = registry.subscribe(1, Principal::Operator);
    for step in 0..=FEED_CAPACITY {
        registry
            .publish(one(1, &step.to_string()))
            .unwrap()
            .wait()
            .unwrap();
    }
    let next = FEED_CAPACITY as u64 + 2;
    assert_eq!(feed.try_next(), Some(FeedItem::Resync { revision: next }));
    assert_eq!(feed.try_next(), None);
    assert_eq!(registry.statistics().feed_forgotten, 1);
    assert!(registry.needs_compaction());
    registry.compact().unwrap();
    assert!(!registry.needs_compaction());
    assert_eq!(journal.len(), 1);
    assert_eq!(feed.try_next(), None);
    let reopened = Registry::open(journal).unwrap();
    let mut old = reopened.subscribe(1, Principal::Operator);
    assert!(matches!(old.try_next(), Some(FeedItem::Resync { .. })));
}

/// A waiting subscriber is woken by the change it waits for.
#[test]
fn a_waiting_subscriber_is_woken() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake, Waker};
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let mut feed = registry.subscribe(registry.revision() + 1, Principal::Anonymous);
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut context = Context::from_waker(&waker);
    assert!(feed.poll_next(&mut context).is_pending());
    registry.publish(one(1, "a")).unwrap().wait().unwrap();
    assert!(flag.0.load(Ordering::SeqCst));
    assert!(matches!(
        feed.poll_next(&mut context),
        Poll::Ready(FeedItem::Change { .. })
    ));
}

/// Two registries on one journal: a change that is checked before another writer's change is
/// checked again after it.
#[test]
fn another_writer_keeps_its_keys() {
    let journal = MemoryJournal::new();
    let first = Registry::open(journal.clone()).unwrap();
    let second = Registry::open(journal.clone()).unwrap();
    let owned = |owner: &str| Entity {
        owner: owner.to_owned(),
        ..one(1, owner)
    };
    first.publish(owned("ada")).unwrap().wait().unwrap();
    let taken = second.publish(owned("bob"));
    assert!(matches!(taken, Err(Error::NotOwner { .. })), "{taken:?}");
    first.remove(&key(1)).unwrap().wait().unwrap();
    let gone = second.remove(&key(1));
    assert!(matches!(gone, Err(Error::Unknown(_))), "{gone:?}");
    assert_eq!(journal.len(), 2);
}

/// A snapshot is written while changes are in flight, and contains or precedes each of them.
#[test]
fn compaction_runs_beside_changes() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    for number in 0..6 {
        registry
            .publish(one(number, "old"))
            .unwrap()
            .wait()
            .unwrap();
    }
    let changed = registry.publish(one(1, "new")).unwrap();
    let removed = registry.remove(&key(2)).unwrap();
    let added = registry.publish(one(7, "added")).unwrap();
    registry.compact().unwrap();
    for publication in [changed, removed, added] {
        publication.wait().unwrap();
    }
    registry.publish(one(3, "newer")).unwrap().wait().unwrap();
    let reopened = Registry::open(journal.clone()).unwrap();
    assert_eq!(everything(&reopened), everything(&registry));
    assert_eq!(everything(&reopened).len(), 6);
    // Three changes, four entities that no change touched, and the last change.
    assert_eq!(journal.len(), 8);
    assert_eq!(journal.snapshot(), 7);
}

/// A snapshot that is written while a change is in flight has the entity as it was if the journal refuses the
/// change.
#[test]
fn a_snapshot_keeps_what_a_refused_change_leaves() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    registry.publish(one(1, "kept")).unwrap().wait().unwrap();
    journal.fail(Some(JournalError::Full("no room".into())));
    let changed = registry.publish(one(1, "refused")).unwrap();
    journal.fail(None);
    registry.compact().unwrap();
    assert!(changed.wait().is_err());
    assert_eq!(everything(&registry), [one(1, "kept")]);
    let reopened = Registry::open(journal).unwrap();
    assert_eq!(everything(&reopened), everything(&registry));
}

/// A journal whose receipts resolve when they are released.
#[derive(Clone, Default)]
struct Slow {
    inner: MemoryJournal,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Slow {
    fn release(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }
}

impl Journal for Slow {
    fn last(&self) -> u64 {
        self.inner.last()
    }

    fn append_if(&self, last: u64, records: Vec<Vec<u8>>) -> Result<Receipt, JournalError> {
        let is_snapshot = records.iter().any(|record| record[..2] == [1, 2]);
        let receipt = self.inner.append_if(last, records)?;
        let gate = Arc::clone(&self.gate);
        Ok(Receipt::new(async move {
            if is_snapshot {
                let open = gate.0.lock().unwrap();
                drop(gate.1.wait_while(open, |open| !*open).unwrap());
            }
            receipt.await
        }))
    }

    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        self.inner.follow(from, max)
    }

    fn snapshot(&self) -> u64 {
        self.inner.snapshot()
    }

    fn set_snapshot(&self, position: u64) -> Result<(), JournalError> {
        self.inner.set_snapshot(position)
    }
}

/// While the journal syncs a snapshot, other changes are made.
#[test]
fn writers_do_not_wait_for_a_snapshot() {
    let journal = Slow::default();
    let registry = Registry::open(journal.clone()).unwrap();
    registry.publish(one(1, "old")).unwrap().wait().unwrap();
    registry.publish(one(2, "old")).unwrap().wait().unwrap();
    let compacting = registry.clone();
    let compaction = std::thread::spawn(move || compacting.compact());
    while journal.last() < 4 {
        std::thread::yield_now();
    }
    registry.publish(one(2, "new")).unwrap().wait().unwrap();
    assert!(!compaction.is_finished());
    journal.release();
    compaction.join().unwrap().unwrap();
    let reopened = Registry::open(journal).unwrap();
    assert_eq!(everything(&reopened), everything(&registry));
    assert_eq!(everything(&reopened)[0].name, "new");
}

/// A journal that acknowledges when it is told to, from another thread.
#[derive(Clone, Default)]
struct Later {
    inner: MemoryJournal,
    state: Arc<Mutex<(bool, Option<std::task::Waker>)>>,
}

impl Later {
    fn acknowledge(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(std::task::Waker::wake);
    }
}

impl Journal for Later {
    fn last(&self) -> u64 {
        self.inner.last()
    }

    fn append_if(&self, last: u64, records: Vec<Vec<u8>>) -> Result<Receipt, JournalError> {
        let receipt = self.inner.append_if(last, records)?;
        let shared = Arc::clone(&self.state);
        Ok(Receipt::new(async move {
            std::future::poll_fn(|context| {
                let mut state = shared.lock().unwrap();
                if state.0 {
                    return std::task::Poll::Ready(());
                }
                state.1 = Some(context.waker().clone());
                std::task::Poll::Pending
            })
            .await;
            receipt.await
        }))
    }

    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        self.inner.follow(from, max)
    }

    fn snapshot(&self) -> u64 {
        self.inner.snapshot()
    }

    fn set_snapshot(&self, position: u64) -> Result<(), JournalError> {
        self.inner.set_snapshot(position)
    }
}

/// A change whose publication was dropped becomes visible once it is durable, to readers and to
/// subscribers that wait.
#[test]
fn a_dropped_publication_becomes_visible() {
    let journal = Later::default();
    let registry = Registry::open(journal.clone()).unwrap();
    let mut subscription = registry.subscribe(1, Principal::Operator);
    drop(registry.publish(one(1, "dropped")).unwrap());
    assert!(everything(&registry).is_empty());
    assert_eq!(subscription.try_next(), None);
    let acknowledging = journal.clone();
    let thread = std::thread::spawn(move || acknowledging.acknowledge());
    // The subscriber sleeps until it is woken.
    let (sender, receiver) = std::sync::mpsc::channel();
    let waker = std::task::Waker::from(Arc::new(Ring(sender)));
    let mut context = std::task::Context::from_waker(&waker);
    let item = loop {
        match subscription.poll_next(&mut context) {
            std::task::Poll::Ready(item) => break item,
            std::task::Poll::Pending => receiver.recv().unwrap(),
        }
    };
    assert!(
        matches!(item, FeedItem::Change { revision: 1, .. }),
        "{item:?}"
    );
    thread.join().unwrap();
    assert_eq!(everything(&registry), [one(1, "dropped")]);
}

/// A request that changes nothing, because an equal one is in flight, is answered after that one.
#[test]
fn an_equal_change_waits_for_the_one_in_flight() {
    let journal = Later::default();
    let registry = Registry::open(journal.clone()).unwrap();
    let (operator, room) = (Principal::Operator, Room::default());
    let publish = || registry.publish_as(&operator, &one(1, "a"), &room);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut first = Box::pin(publish().unwrap().unwrap());
    let mut second = Box::pin(publish().unwrap().expect("the first is not durable"));
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(first.as_mut().poll(&mut context).is_pending());
    journal.acknowledge();
    assert!(second.as_mut().poll(&mut context).is_ready());
    assert_eq!(everything(&registry), [one(1, "a")]);
    assert!(first.as_mut().poll(&mut context).is_ready());
    assert!(publish().unwrap().is_none());
    let reopened = Registry::open(journal).unwrap();
    assert_eq!(everything(&reopened), [one(1, "a")]);
}

struct Ring(std::sync::mpsc::Sender<()>);

impl std::task::Wake for Ring {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}
