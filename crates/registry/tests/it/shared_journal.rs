//! Goal: registries on one journal over a network agree. Every acknowledged change is there once, none in part, no
//! update is lost, and a change that was refused is nowhere, whatever is cut and whenever.
//! Method: three registries with a simulated store, from a seed. An append waits at its node, then in the store,
//! and conflicts only there. Connections are cut before and after the store has taken an append.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future as _;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use chappe_registry::uddi::{BusinessEntity, BusinessKey, BusinessService, Publisher, Text};
use chappe_registry::{
    Access, Attempts, Entity, EntityKind, Error, Journal, JournalError, Principal, Publication,
    Receipt, Registry, Room, Search, Tail, thing,
};
use serde_json::json;

/// What all nodes share.
#[derive(Default)]
struct Store {
    /// Position before the first record.
    before: u64,
    records: Vec<Vec<u8>>,
    snapshot: u64,
    has_writer_of_snapshot: bool,
}

impl Store {
    fn last(&self) -> u64 {
        self.before + self.records.len() as u64
    }
}

/// The outcome of an append, and who waits for it.
type Outcome = Arc<Mutex<(Option<Result<(), JournalError>>, Option<Waker>)>>;

struct Append {
    expected: u64,
    records: Vec<Vec<u8>>,
    outcome: Outcome,
}

#[derive(Default)]
struct Side {
    known: u64,
    assigned: u64,
    conflicts: u64,
    queue: VecDeque<Append>,
    is_away: bool,
    /// Sent, and the answer is lost; and whether the store took it, which it remembers as the number of
    /// the node's last request.
    in_doubt: Option<(Append, bool)>,
}

/// A node's side of the store.
#[derive(Clone)]
struct Shared {
    store: Arc<Mutex<Store>>,
    side: Arc<Mutex<Side>>,
}

fn settle(append: &Append, outcome: Result<(), JournalError>) {
    let mut waiting = append.outcome.lock().unwrap();
    waiting.0 = Some(outcome);
    waiting.1.take().into_iter().for_each(Waker::wake);
}

impl Shared {
    fn new(store: &Arc<Mutex<Store>>) -> Self {
        let known = store.lock().unwrap().last();
        let side = Side {
            known,
            assigned: known,
            ..Side::default()
        };
        Self {
            store: Arc::clone(store),
            side: Arc::new(Mutex::new(side)),
        }
    }

    /// The store takes the next append, or finds that another node was first.
    fn deliver(&self) {
        let (mut store, mut side) = (self.store.lock().unwrap(), self.side.lock().unwrap());
        if side.is_away {
            return;
        }
        let Some(append) = side.queue.pop_front() else {
            return;
        };
        if store.last() == append.expected {
            store.records.extend(append.records.iter().cloned());
            side.known = store.last();
            settle(&append, Ok(()));
            return;
        }
        let last = store.last();
        side.known = last;
        side.refuse([append], &JournalError::Moved { last });
    }

    /// The node hears of the changes of others.
    fn hear(&self) {
        let (store, mut side) = (self.store.lock().unwrap(), self.side.lock().unwrap());
        if side.is_away || store.last() == side.known {
            return;
        }
        let last = store.last();
        side.known = last;
        match side.queue.is_empty() {
            true => side.assigned = last,
            false => side.refuse([], &JournalError::Moved { last }),
        }
    }

    /// The connection is cut; the store may take the append that was sent or not.
    fn cut(&self, takes: bool) {
        let (mut store, mut side) = (self.store.lock().unwrap(), self.side.lock().unwrap());
        if side.is_away {
            return;
        }
        side.is_away = true;
        if let Some(append) = side.queue.pop_front() {
            let is_taken = takes && store.last() == append.expected;
            if is_taken {
                store.records.extend(append.records.iter().cloned());
            }
            side.in_doubt = Some((append, is_taken));
        }
        side.refuse([], &JournalError::Away("cut".to_owned()));
    }

    /// The node connects again, and hears what became of its append.
    fn reconnect(&self) {
        let (store, mut side) = (self.store.lock().unwrap(), self.side.lock().unwrap());
        if !side.is_away {
            return;
        }
        side.is_away = false;
        let last = store.last();
        (side.known, side.assigned) = (last, last);
        side.conflicts += 1;
        if let Some((append, is_taken)) = side.in_doubt.take() {
            let outcome = match is_taken {
                true => Ok(()),
                false => Err(JournalError::Moved { last }),
            };
            settle(&append, outcome);
        }
    }

    /// Everything that waits takes its course.
    fn drain(&self) {
        self.reconnect();
        while !self.side.lock().unwrap().queue.is_empty() {
            self.deliver();
        }
        self.hear();
    }
}

impl Side {
    fn refuse(&mut self, more: impl IntoIterator<Item = Append>, error: &JournalError) {
        self.conflicts += 1;
        self.assigned = self.known;
        for append in more.into_iter().chain(self.queue.drain(..)) {
            settle(&append, Err(error.clone()));
        }
    }
}

impl Journal for Shared {
    fn last(&self) -> u64 {
        self.side.lock().unwrap().known
    }

    fn append_if(&self, last: u64, records: Vec<Vec<u8>>) -> Result<Receipt, JournalError> {
        let conflicts = self.conflicts();
        self.append_after(Tail { last, conflicts }, records)
    }

    fn append_after(&self, tail: Tail, records: Vec<Vec<u8>>) -> Result<Receipt, JournalError> {
        let mut side = self.side.lock().unwrap();
        if side.is_away {
            return Err(JournalError::Away("cut".to_owned()));
        }
        if tail.conflicts != side.conflicts || tail.last != side.assigned {
            return Err(JournalError::Moved { last: side.known });
        }
        side.assigned += records.len() as u64;
        let outcome = Outcome::default();
        side.queue.push_back(Append {
            expected: tail.last,
            records,
            outcome: Arc::clone(&outcome),
        });
        Ok(Receipt::new(std::future::poll_fn(move |context| {
            let mut waiting = outcome.lock().unwrap();
            waiting.1 = Some(context.waker().clone());
            match waiting.0.clone() {
                Some(outcome) => Poll::Ready(outcome),
                None => Poll::Pending,
            }
        })))
    }

    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        let (store, mut side) = (self.store.lock().unwrap(), self.side.lock().unwrap());
        if from > side.known {
            return Ok(Vec::new());
        }
        if from <= store.before {
            if side.is_away {
                return Err(JournalError::Away("cut".to_owned()));
            }
            // The end that is known is behind the snapshot.
            let (snapshot, last) = (store.snapshot, store.last());
            side.known = last;
            side.refuse([], &JournalError::Moved { last });
            return Err(JournalError::Trimmed { from, snapshot });
        }
        let records = store.records[(from - store.before - 1) as usize..].iter();
        let known = (side.known - from + 1) as usize;
        Ok((from..)
            .zip(records.take(max.min(known)).cloned())
            .collect())
    }

    fn snapshot(&self) -> u64 {
        self.store.lock().unwrap().snapshot.max(1)
    }

    fn set_snapshot(&self, position: u64) -> Result<(), JournalError> {
        let mut store = self.store.lock().unwrap();
        if position > store.snapshot {
            store.snapshot = position;
            let forget = position.saturating_sub(store.before + 1);
            store.records.drain(..forget as usize);
            store.before += forget;
        }
        Ok(())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn conflicts(&self) -> u64 {
        self.side.lock().unwrap().conflicts
    }

    fn begin_snapshot(&self) -> Result<bool, JournalError> {
        let mut store = self.store.lock().unwrap();
        Ok(!std::mem::replace(&mut store.has_writer_of_snapshot, true))
    }

    fn end_snapshot(&self) {
        self.store.lock().unwrap().has_writer_of_snapshot = false;
    }
}

/// What a client asked for.
#[derive(Clone)]
enum Asked {
    /// The key and the owner who wants it.
    Claim(u8, &'static str),
    Remove(u8),
    /// A service in the business that all nodes fill: its name.
    Service(u64),
}

struct Waiting {
    node: usize,
    asked: Asked,
    publication: Pin<Box<Publication>>,
}

struct World {
    random: fastrand::Rng,
    nodes: Vec<(Shared, Registry)>,
    waiting: Vec<Waiting>,
    business: BusinessKey,
    /// The acknowledged changes of claims, by revision.
    changes: BTreeMap<u64, (u8, Option<&'static str>)>,
    /// The acknowledged services: name and revision.
    services: BTreeMap<u64, u64>,
    refused: Vec<u64>,
    conflicts: usize,
    next: u64,
}

fn key(number: u8) -> String {
    format!("urn:claim:{number}")
}

fn entities(registry: &Registry) -> Vec<Entity> {
    let keys = registry.search_keys(&Search::default(), &Principal::Operator);
    let found = keys.iter();
    found
        .filter_map(|key| registry.get(key, &Principal::Operator))
        .collect()
}

impl World {
    fn new(seed: u64) -> Self {
        let store = Arc::<Mutex<Store>>::default();
        let nodes: Vec<_> = (0..3)
            .map(|_| {
                let journal = Shared::new(&store);
                (journal.clone(), Registry::open(journal).unwrap())
            })
            .collect();
        let business = BusinessEntity {
            names: vec![Text::plain("all")],
            ..BusinessEntity::default()
        };
        let (journal, registry) = &nodes[0];
        let mut bits = || 7;
        let mut ada = Publisher::new(registry, "ada", Access::Public, 0, &mut bits);
        let saved = ada.save_business(&[business]).unwrap();
        journal.drain();
        let business = saved.wait().unwrap()[0].value.key.unwrap();
        for (journal, registry) in &nodes {
            journal.hear();
            registry.refresh().unwrap();
        }
        Self {
            random: fastrand::Rng::with_seed(seed),
            nodes,
            waiting: Vec::new(),
            business,
            changes: BTreeMap::new(),
            services: BTreeMap::new(),
            refused: Vec::new(),
            conflicts: 0,
            next: 0,
        }
    }

    fn ask(&mut self, node: usize, asked: Asked) {
        let registry = self.nodes[node].1.clone();
        let publication = match &asked {
            Asked::Claim(number, owner) => {
                let mut entity = Entity::new(key(*number), EntityKind::Other, *owner);
                entity.owner = (*owner).to_owned();
                registry.publish(entity)
            }
            Asked::Remove(number) => registry.remove(&key(*number)),
            Asked::Service(name) => {
                let service = BusinessService {
                    business_key: Some(self.business),
                    names: vec![Text::plain(name.to_string())],
                    ..BusinessService::default()
                };
                let bits = u128::from(self.random.u64(..)) << 64 | u128::from(self.random.u64(..));
                let mut random = || bits;
                let mut ada = Publisher::new(&registry, "ada", Access::Public, 0, &mut random);
                match ada.save_service(&[service]) {
                    Ok(saved) => Ok(saved.publication.unwrap()),
                    Err(_) => {
                        self.refused.push(*name);
                        return;
                    }
                }
            }
        };
        if let Ok(publication) = publication {
            let publication = Box::pin(publication);
            self.waiting.push(Waiting {
                node,
                asked,
                publication,
            });
        }
    }

    /// Polls one of the changes in flight.
    fn poll(&mut self, at: usize) {
        let mut context = Context::from_waker(Waker::noop());
        let waiting = &mut self.waiting[at];
        let Poll::Ready(outcome) = waiting.publication.as_mut().poll(&mut context) else {
            return;
        };
        let Waiting { node, asked, .. } = self.waiting.swap_remove(at);
        let is_new = |before: Option<_>| assert!(before.is_none(), "two changes have a revision");
        match (asked, outcome) {
            (Asked::Claim(number, owner), Ok(revision)) => {
                is_new(self.changes.insert(revision, (number, Some(owner))));
            }
            (Asked::Remove(number), Ok(revision)) => {
                is_new(self.changes.insert(revision, (number, None)));
            }
            (Asked::Service(name), Ok(revision)) => {
                assert!(self.services.insert(name, revision).is_none());
            }
            (asked @ Asked::Service(_), Err(error)) if error.is_conflict() => {
                self.conflicts += 1;
                self.ask(node, asked);
            }
            (Asked::Service(name), Err(_)) => self.refused.push(name),
            (_, Err(error)) => assert!(
                matches!(
                    error,
                    Error::NotOwner { .. }
                        | Error::Unknown(_)
                        | Error::Journal(JournalError::Away(_))
                ),
                "{error}"
            ),
        }
    }

    fn step(&mut self) {
        let node = self.random.usize(..self.nodes.len());
        let (journal, registry) = self.nodes[node].clone();
        match self.random.u32(..100) {
            0..15 => {
                let owner = if self.random.bool() { "ada" } else { "bob" };
                let asked = Asked::Claim(self.random.u8(..4), owner);
                self.ask(node, asked);
            }
            15..20 => {
                let asked = Asked::Remove(self.random.u8(..4));
                self.ask(node, asked);
            }
            20..35 => {
                self.next += 1;
                self.ask(node, Asked::Service(self.next));
            }
            35..60 => journal.deliver(),
            60..70 => journal.hear(),
            70..75 => drop(registry.refresh()),
            75..95 if !self.waiting.is_empty() => {
                let at = self.random.usize(..self.waiting.len());
                self.poll(at);
            }
            95..97 => journal.cut(self.random.bool()),
            97..99 => journal.reconnect(),
            // Nobody waits for the acknowledgement of a snapshot that the step itself would give.
            99 => {
                let store = journal.clone();
                let others: Vec<Shared> = self.nodes.iter().map(|node| node.0.clone()).collect();
                let compaction = std::thread::spawn(move || registry.compact());
                while !compaction.is_finished() {
                    others.iter().for_each(Shared::deliver);
                    std::thread::yield_now();
                    if store.side.lock().unwrap().is_away {
                        store.reconnect();
                    }
                }
                let _ = compaction.join().unwrap();
            }
            _ => {}
        }
    }

    fn finish(&mut self) {
        while !self.waiting.is_empty() {
            for (journal, _) in &self.nodes {
                journal.drain();
            }
            for at in (0..self.waiting.len()).rev() {
                self.poll(at);
            }
        }
        for (journal, registry) in &self.nodes {
            journal.drain();
            registry.refresh().unwrap();
        }
    }

    fn check(&self) {
        let first = &self.nodes[0];
        let all = entities(&first.1);
        let fresh = Registry::open(Shared::new(&first.0.store)).unwrap();
        for registry in self.nodes.iter().map(|node| &node.1).chain([&fresh]) {
            assert_eq!(entities(registry), all);
            assert_eq!(registry.revision(), first.1.revision());
        }
        let mut owners: BTreeMap<u8, &str> = BTreeMap::new();
        for (revision, (number, change)) in &self.changes {
            match change {
                Some(owner) => {
                    let before = owners.insert(*number, owner);
                    assert!(
                        before.is_none_or(|before| before == *owner),
                        "revision {revision} took {number} from its owner"
                    );
                }
                None => assert!(
                    owners.remove(number).is_some(),
                    "{revision} removes nothing"
                ),
            }
        }
        for number in 0..4 {
            let entity = first.1.get(&key(number), &Principal::Operator);
            let owner = entity.as_ref().map(|entity| entity.owner.as_str());
            assert_eq!(owner, owners.get(&number).copied(), "claim {number}");
        }
        let services: Vec<&Entity> = all
            .iter()
            .filter(|entity| entity.kind == EntityKind::Service)
            .collect();
        let names: Vec<String> = services
            .iter()
            .map(|service| service.name.clone())
            .collect();
        for name in self.services.keys() {
            let count = names
                .iter()
                .filter(|other| **other == name.to_string())
                .count();
            assert_eq!(count, 1, "service {name}");
        }
        for name in &self.refused {
            assert!(!names.contains(&name.to_string()), "refused service {name}");
        }
        assert_eq!(names.len(), self.services.len());
        // Each was planned on all before it: no two have one position.
        let mut positions: Vec<String> = services
            .iter()
            .flat_map(|service| &service.triples)
            .filter(|triple| triple.predicate.as_str().ends_with("#position"))
            .map(|triple| triple.object.to_string())
            .collect();
        positions.sort();
        positions.dedup();
        assert_eq!(positions.len(), services.len());
    }
}

#[test]
fn nodes_on_one_store_agree() {
    let mut conflicts = 0;
    for seed in 0..200 {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..300 {
                world.step();
            }
            world.finish();
            world.check();
            world.conflicts
        });
        conflicts += outcome.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(conflicts > 100, "{conflicts}");
}

/// Requests of several nodes about one thing are all kept, though the store refuses each that was not planned on
/// those before it.
#[test]
fn a_request_is_planned_again_on_the_changes_of_a_faster_node() {
    let world = World::new(1);
    let ada = Principal::Named("ada".to_owned());
    let author = || thing::Author {
        name: "ada",
        principal: &ada,
    };
    let room = Room::default();
    let document = json!({
        "@context": "https://www.w3.org/2022/wot/td/v1.1", "id": "urn:x:lamp", "title": "Lamp",
        "securityDefinitions": {"none": {"scheme": "nosec"}}, "security": "none",
    });
    let (journal, registry) = &world.nodes[0];
    let made = registry.put_thing(&document, author(), &room, 0).unwrap();
    journal.drain();
    made.publication.wait().unwrap();
    for (journal, registry) in &world.nodes {
        journal.hear();
        registry.refresh().unwrap();
    }
    let plan = |node: usize| {
        let patch = json!({ format!("x-{node}"): true });
        let registry = &world.nodes[node].1;
        let planned = registry.patch_thing("urn:x:lamp", &patch, author(), &room, 0);
        (node, planned.unwrap().publication)
    };
    let mut attempts = [(); 3].map(|()| Attempts::default());
    let mut waiting: VecDeque<_> = (0..3).map(plan).collect();
    let mut plans = waiting.len();
    while let Some((node, publication)) = waiting.pop_front() {
        world.nodes[node].0.drain();
        let settled = pin!(attempts[node].settle(Some(publication)));
        match settled.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(true)) => {}
            Poll::Ready(Ok(false)) => {
                plans += 1;
                waiting.push_back(plan(node));
            }
            other => panic!("{other:?}"),
        }
    }
    // The first node's was first; the second's second; the third's was refused twice.
    assert_eq!(plans, 6);
    for (journal, registry) in &world.nodes {
        journal.drain();
        registry.refresh().unwrap();
        let lamp = registry.get("urn:x:lamp", &Principal::Operator).unwrap();
        let document = thing::document(&lamp).unwrap();
        for node in 0..3 {
            assert_eq!(document[format!("x-{node}")], json!(true), "{document}");
        }
    }
}

#[test]
fn reads_go_on_while_the_store_is_away() {
    let mut world = World::new(1);
    world.ask(0, Asked::Claim(1, "ada"));
    world.nodes[0].0.cut(true);
    let (journal, registry) = world.nodes[0].clone();
    let refused = registry.publish(Entity::new("urn:x:1", EntityKind::Other, "x"));
    assert!(matches!(
        refused,
        Err(Error::Journal(JournalError::Away(_)))
    ));
    assert_eq!(entities(&registry).len(), 1);
    // Another node goes on.
    world.ask(1, Asked::Service(1));
    world.nodes[1].0.drain();
    world.finish();
    journal.reconnect();
    registry.refresh().unwrap();
    assert_eq!(entities(&registry).len(), 3);
    world.check();
}

/// A node that was away while others wrote a snapshot reads the snapshot, and its subscribers the state.
#[test]
fn a_node_that_missed_removed_records_reads_the_snapshot() {
    let world = World::new(1);
    let (away, behind) = world.nodes[2].clone();
    away.cut(false);
    let mut feed = behind.subscribe(behind.revision() + 1, Principal::Operator);
    let (journal, registry) = world.nodes[0].clone();
    for number in 0..5 {
        let publication = registry.publish(Entity::new(key(number), EntityKind::Other, "x"));
        journal.drain();
        publication.unwrap().wait().unwrap();
    }
    let compacting = registry.clone();
    let compaction = std::thread::spawn(move || compacting.compact());
    while !compaction.is_finished() {
        journal.deliver();
        std::thread::yield_now();
    }
    compaction.join().unwrap().unwrap();
    away.reconnect();
    behind.refresh().unwrap();
    assert_eq!(entities(&behind), entities(&registry));
    let item = feed.try_next();
    assert!(
        matches!(item, Some(chappe_registry::FeedItem::Resync { .. })),
        "{item:?}"
    );
}
