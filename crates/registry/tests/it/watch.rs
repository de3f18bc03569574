//! Goal: a subscription to an entity, a search or a query says what changed, leaves nothing out without
//! saying so, resumes where it stopped, also after a restart, and shows nothing that its subscriber may
//! not see.
//!
//! Method: a subscriber applies the events to a set, which is compared with the answer of the registry.

use std::collections::BTreeSet;

use chappe_registry::oxrdf::{Literal, NamedNode, Triple};
use chappe_registry::{
    Access, Entity, EntityKind, FEED_CAPACITY, Format, ImportRules, Interrupt, Mark, MemoryJournal,
    Principal, Registry, ResyncReason, Room, Search, SparqlAnswer, SparqlLimits, Watch, WatchEvent,
    WatchItem, WatchStart, WatchStep, WatchSubject,
};
use proptest::prelude::*;

fn key(number: u64) -> String {
    format!("urn:x:{number}")
}

fn device(number: u64, name: &str) -> Entity {
    let mut entity = Entity::new(key(number), EntityKind::Device, name);
    entity.owner = "ann".into();
    entity
}

fn hidden(number: u64, name: &str) -> Entity {
    Entity {
        access: Access::Owner,
        ..device(number, name)
    }
}

fn put(registry: &Registry, entity: Entity) {
    registry.publish(entity).unwrap().wait().unwrap();
}

fn remove(registry: &Registry, number: u64) {
    registry.remove(&key(number)).unwrap().wait().unwrap();
}

fn evaluate(watch: &mut Watch) {
    watch
        .evaluate(&SparqlLimits::default(), &Interrupt::never())
        .unwrap();
}

/// All events that are due.
fn events(watch: &mut Watch, principal: &Principal) -> Vec<WatchItem> {
    let mut events = Vec::new();
    while let Some(step) = watch.try_step(principal) {
        match step {
            WatchStep::Event(item) => events.push(item),
            WatchStep::Evaluate => evaluate(watch),
        }
    }
    events
}

fn short(items: &[WatchItem]) -> Vec<String> {
    let one = |item: &WatchItem| match &item.event {
        WatchEvent::Added { key, name, .. } => format!("+{key} {name}"),
        WatchEvent::Changed { key, name, .. } => format!("~{key} {name}"),
        WatchEvent::Removed { key, name, .. } => format!("-{key} {name}"),
        WatchEvent::Resync(reason) => format!("resync {}", reason.as_str()),
        WatchEvent::Synced => "synced".into(),
        WatchEvent::RowAdded(row) => format!("+{}", cells(row)),
        WatchEvent::RowRemoved(row) => format!("-{}", cells(row)),
        WatchEvent::Answer(answer) => answer.to_string(),
    };
    items.iter().map(one).collect()
}

fn cells(answer: &SparqlAnswer) -> String {
    let SparqlAnswer::Solutions { rows, .. } = answer else {
        panic!("no rows: {answer:?}");
    };
    let cells = rows[0].iter().map(|cell| match cell {
        Some(term) => term.to_string(),
        None => "-".into(),
    });
    cells.collect::<Vec<_>>().join(" ")
}

fn named(prefix: &str) -> WatchSubject {
    WatchSubject::Search(Box::new(search_of(prefix)))
}

fn last_mark(items: &[WatchItem]) -> Mark {
    items.iter().rev().find_map(|item| item.mark).unwrap()
}

#[test]
fn an_entity_is_followed_before_it_exists_and_after_it_is_gone() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let anyone = Principal::Anonymous;
    let subject = WatchSubject::Entity(key(1));
    let mut watch = registry.watch(subject, WatchStart::Now, &anyone).unwrap();
    put(&registry, device(1, "a"));
    put(&registry, device(2, "other"));
    put(&registry, device(1, "b"));
    remove(&registry, 1);
    let items = events(&mut watch, &anyone);
    // Read late, the entity is gone already: nothing to say.
    assert_eq!(short(&items), Vec::<String>::new());
    put(&registry, device(1, "c"));
    assert_eq!(short(&events(&mut watch, &anyone)), ["+urn:x:1 c"]);
    put(&registry, device(1, "d"));
    assert_eq!(short(&events(&mut watch, &anyone)), ["~urn:x:1 d"]);
    remove(&registry, 1);
    let items = events(&mut watch, &anyone);
    assert_eq!(short(&items), ["-urn:x:1 d"]);
    assert_eq!(items[0].position, registry.revision());
}

#[test]
fn a_search_says_what_matches_and_what_no_longer_does() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let anyone = Principal::Anonymous;
    put(&registry, device(1, "Pump one"));
    put(&registry, device(2, "Monitor"));
    let mut watch = registry
        .watch(named("pump"), WatchStart::Present, &anyone)
        .unwrap();
    let items = events(&mut watch, &anyone);
    assert_eq!(
        short(&items),
        ["resync requested", "+urn:x:1 Pump one", "synced"]
    );
    assert_eq!(
        items.iter().filter(|item| item.mark.is_some()).count(),
        1,
        "the present state is delivered as a whole"
    );
    put(&registry, device(2, "Pump two"));
    put(&registry, device(1, "Scale"));
    put(&registry, device(3, "Scale"));
    let items = events(&mut watch, &anyone);
    assert_eq!(short(&items), ["+urn:x:2 Pump two", "-urn:x:1 Pump one"]);
}

#[test]
fn rights_decide_at_delivery() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let (anyone, owner) = (Principal::Anonymous, Principal::Named("ann".into()));
    let mut watch = registry.watch(named(""), WatchStart::Now, &anyone).unwrap();
    put(&registry, hidden(1, "secret"));
    put(&registry, device(2, "open"));
    // Hidden again before the subscriber reads.
    put(&registry, hidden(2, "closed"));
    assert_eq!(short(&events(&mut watch, &anyone)), Vec::<String>::new());
    put(&registry, device(1, "open now"));
    assert_eq!(short(&events(&mut watch, &anyone)), ["+urn:x:1 open now"]);
    put(&registry, hidden(1, "closed"));
    assert_eq!(short(&events(&mut watch, &anyone)), ["-urn:x:1 open now"]);
    // The subscriber gains rights: all that it sees now.
    let items = events(&mut watch, &owner);
    assert_eq!(
        short(&items),
        [
            "resync rights-changed",
            "+urn:x:1 closed",
            "+urn:x:2 closed",
            "synced"
        ]
    );
}

#[test]
fn a_subscriber_resumes_after_a_restart_and_gets_the_whole_state_if_it_was_away_too_long() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let anyone = Principal::Anonymous;
    put(&registry, device(1, "one"));
    let mut watch = registry
        .watch(named(""), WatchStart::Present, &anyone)
        .unwrap();
    let mark = last_mark(&events(&mut watch, &anyone));
    put(&registry, device(2, "two"));
    remove(&registry, 1);
    drop(registry);
    let registry = Registry::open(journal.clone()).unwrap();
    let mut later = registry
        .watch(named(""), WatchStart::After(mark), &anyone)
        .unwrap();
    assert_eq!(
        short(&events(&mut later, &anyone)),
        ["+urn:x:2 two", "-urn:x:1 one"]
    );
    // A snapshot replaces the changes.
    registry.compact().unwrap();
    drop(registry);
    let registry = Registry::open(journal).unwrap();
    let mut later = registry
        .watch(named(""), WatchStart::After(mark), &anyone)
        .unwrap();
    assert_eq!(
        short(&events(&mut later, &anyone)),
        ["resync too-old", "+urn:x:2 two", "synced"]
    );
    for step in 0..=FEED_CAPACITY {
        put(&registry, device(2, &step.to_string()));
    }
    let items = events(&mut later, &anyone);
    assert_eq!(
        short(&items),
        ["resync too-old", "+urn:x:2 10000", "synced"],
        "a slow subscriber costs no queue"
    );
    // A mark of another registry, ahead of this one.
    let ahead = Mark::at(registry.revision() + 7);
    let mut other = registry
        .watch(named("9"), WatchStart::After(ahead), &anyone)
        .unwrap();
    assert_eq!(
        short(&events(&mut other, &anyone)),
        ["resync too-old", "synced"]
    );
}

/// A subscriber that resumes hears of what comes to match, and of nothing that never did.
#[test]
fn a_subscriber_that_resumed_knows_what_it_has() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let anyone = Principal::Anonymous;
    for (number, name) in [(1, "pump one"), (2, "other"), (3, "other"), (4, "other")] {
        put(&registry, device(number, name));
    }
    let mark = Mark::at(registry.revision());
    put(&registry, device(2, "Pump two"));
    remove(&registry, 3);
    let mut watch = registry
        .watch(named("pump"), WatchStart::After(mark), &anyone)
        .unwrap();
    assert_eq!(short(&events(&mut watch, &anyone)), ["+urn:x:2 Pump two"]);
    put(&registry, device(4, "pump four"));
    put(&registry, device(1, "pump 1"));
    remove(&registry, 2);
    assert_eq!(
        short(&events(&mut watch, &anyone)),
        ["+urn:x:4 pump four", "~urn:x:1 pump 1", "-urn:x:2 Pump two"]
    );
    // By another criterion than the name.
    let typed = |types: &[&str]| Entity {
        types: types.iter().map(|one| (*one).to_owned()).collect(),
        ..device(5, "five")
    };
    put(&registry, typed(&[]));
    let subject = WatchSubject::Search(Box::new(Search {
        entity_type: Some("{urn:t}T".into()),
        ..Search::default()
    }));
    let mark = Mark::at(registry.revision());
    let mut watch = registry
        .watch(subject, WatchStart::After(mark), &anyone)
        .unwrap();
    assert_eq!(short(&events(&mut watch, &anyone)), Vec::<String>::new());
    put(&registry, typed(&["{urn:t}T"]));
    assert_eq!(short(&events(&mut watch, &anyone)), ["+urn:x:5 five"]);
}

/// A snapshot is written while an entity is removed, before its turn: after a restart the removal is not
/// among the changes that can be followed, and must not look as if nothing had happened.
#[test]
fn a_removal_beside_a_snapshot_is_not_left_out() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let anyone = Principal::Anonymous;
    put(&registry, device(1, "one"));
    put(&registry, device(2, "two"));
    let mark = Mark::at(registry.revision());
    // The records of a snapshot that starts here, with a removal among them.
    let first = registry.revision() + 1;
    remove(&registry, 1);
    registry.compact().unwrap();
    use chappe_registry::Journal;
    let records = journal.follow(1, 10).unwrap();
    assert_eq!(records.len(), 1, "{records:?}");
    let copy = MemoryJournal::new();
    copy.append_if(0, vec![vec![0]; first as usize - 1])
        .unwrap()
        .wait()
        .unwrap();
    let removal = {
        let other = MemoryJournal::new();
        let registry = Registry::open(other.clone()).unwrap();
        put(&registry, device(1, "one"));
        remove(&registry, 1);
        other.follow(2, 1).unwrap()[0].1.clone()
    };
    let kept = records[0].1.clone();
    copy.append_if(first - 1, vec![removal, kept])
        .unwrap()
        .wait()
        .unwrap();
    copy.set_snapshot(first).unwrap();
    let reopened = Registry::open(copy).unwrap();
    let mut later = reopened
        .watch(named(""), WatchStart::After(mark), &anyone)
        .unwrap();
    assert_eq!(
        short(&events(&mut later, &anyone)),
        ["resync too-old", "+urn:x:2 two", "synced"]
    );
}

/// A subscriber that has all events of a batch does not get them again, although the batch goes on with what
/// does not concern it.
#[test]
fn a_batch_whose_events_are_delivered_does_not_come_again() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let anyone = Principal::Anonymous;
    let start = || {
        registry
            .watch(named("a"), WatchStart::Now, &anyone)
            .unwrap()
    };
    let mut watch = start();
    let lines = [(1, "a one"), (2, "a two"), (3, "z"), (4, "z")].map(|(number, name)| {
        let key = key(number);
        format!("<{key}> <http://www.w3.org/2000/01/rdf-schema#label> \"{name}\" .\n")
    });
    let rules = ImportRules {
        importer: "ann",
        keeps_owners: true,
        room: Room::default(),
        unix_ms: 0,
        is_left_out: &|_, _| false,
    };
    let file = std::io::Cursor::new(lines.concat());
    let import = registry.import(Format::NQuads, file, &rules, &mut || 0, |_| {});
    assert_eq!(import.unwrap().entities, 4);
    let items = events(&mut watch, &anyone);
    assert_eq!(short(&items), ["+urn:x:1 a one", "+urn:x:2 a two"]);
    assert_eq!(items[1].mark.unwrap().position, registry.revision());
    let resumed = |mark| {
        let watch = registry.watch(named("a"), WatchStart::After(mark), &anyone);
        short(&events(&mut watch.unwrap(), &anyone))
    };
    assert_eq!(resumed(items[1].mark.unwrap()), Vec::<String>::new());
    // Who stopped in between gets the batch again.
    assert_eq!(resumed(items[0].mark.unwrap()), short(&items));
}

fn measured(number: u64, value: i64) -> Entity {
    let subject = NamedNode::new(key(number)).unwrap();
    let predicate = NamedNode::new("urn:limit").unwrap();
    Entity {
        triples: vec![Triple::new(subject, predicate, Literal::from(value))],
        ..device(number, "m")
    }
}

const QUERY: &str = "SELECT ?x ?limit WHERE { ?x <urn:limit> ?limit FILTER(?limit > 5) }";

#[test]
fn a_query_says_which_rows_come_and_go_and_is_computed_only_when_needed() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    let anyone = Principal::Anonymous;
    put(&registry, measured(1, 7));
    let subject = WatchSubject::Query(QUERY.into());
    let mut watch = registry
        .watch(subject.clone(), WatchStart::Present, &anyone)
        .unwrap();
    let integer = "<http://www.w3.org/2001/XMLSchema#integer>";
    let row = |sign: &str, number: u64, value: i64| {
        format!("{sign}<{}> \"{value}\"^^{integer}", key(number))
    };
    let items = events(&mut watch, &anyone);
    assert_eq!(
        short(&items),
        ["resync requested".into(), row("+", 1, 7), "synced".into()]
    );
    let mark = last_mark(&items);
    // Other predicates: the query is not computed.
    put(&registry, device(3, "no limit"));
    assert_eq!(watch.try_step(&anyone), None);
    put(&registry, measured(1, 8));
    put(&registry, measured(2, 3));
    assert_eq!(watch.try_step(&anyone), Some(WatchStep::Evaluate));
    let items = events(&mut watch, &anyone);
    assert_eq!(short(&items), [row("-", 1, 7), row("+", 1, 8)]);
    assert!(items[0].mark.is_none(), "both rows are one group");
    // After a restart: the same answer says nothing, another one is delivered as a whole.
    let same = last_mark(&items);
    let registry = Registry::open(journal).unwrap();
    let text: Mark = same.to_string().parse().unwrap();
    let mut later = registry
        .watch(subject.clone(), WatchStart::After(text), &anyone)
        .unwrap();
    assert_eq!(short(&events(&mut later, &anyone)), Vec::<String>::new());
    assert_eq!(later.mark(), Some(same));
    let mut old = registry
        .watch(subject, WatchStart::After(mark), &anyone)
        .unwrap();
    assert_eq!(
        short(&events(&mut old, &anyone)),
        [
            "resync answer-changed".into(),
            row("+", 1, 8),
            "synced".into()
        ]
    );
}

#[test]
fn the_answer_of_ask_is_followed_and_other_queries_are_refused() {
    let registry = Registry::open(MemoryJournal::new()).unwrap();
    let anyone = Principal::Anonymous;
    let ask = WatchSubject::Query("ASK { ?x <urn:limit> 7 }".into());
    let mut watch = registry.watch(ask, WatchStart::Present, &anyone).unwrap();
    assert_eq!(
        short(&events(&mut watch, &anyone)),
        ["resync requested", "false", "synced"]
    );
    put(&registry, measured(1, 7));
    assert_eq!(short(&events(&mut watch, &anyone)), ["true"]);
    put(&registry, measured(2, 7));
    assert_eq!(short(&events(&mut watch, &anyone)), Vec::<String>::new());
    let start = WatchStart::Now;
    let none = WatchSubject::Query("SELECT".into());
    assert!(registry.watch(none, start, &anyone).is_err());
}

/// A subscriber that keeps a set by the events.
#[derive(Default)]
struct Follower {
    keys: BTreeSet<String>,
    mark: Option<Mark>,
}

impl Follower {
    fn apply(&mut self, items: &[WatchItem]) {
        for item in items {
            match &item.event {
                WatchEvent::Resync(reason) => {
                    assert_ne!(*reason, ResyncReason::Answer);
                    self.keys.clear();
                }
                WatchEvent::Added { key, .. } | WatchEvent::Changed { key, .. } => {
                    self.keys.insert(key.clone());
                }
                WatchEvent::Removed { key, .. } => {
                    self.keys.remove(key);
                }
                _ => {}
            }
            self.mark = item.mark.or(self.mark);
        }
    }
}

fn search_of(prefix: &str) -> Search {
    Search {
        name_prefix: Some(prefix.into()),
        ..Search::default()
    }
}

proptest! {
    /// Whatever happens, a subscriber that stays, one that resumes after each step and one that resumes
    /// after a restart have the entities that the search finds for them, and hear of no others.
    #[test]
    fn subscribers_have_what_the_search_finds(
        steps in proptest::collection::vec((0..6_u64, 0..4_u8, 0..3_u8, any::<bool>()), 1..40),
    ) {
        let journal = MemoryJournal::new();
        let mut registry = Registry::open(journal.clone()).unwrap();
        let readers = [Principal::Anonymous, Principal::Named("bob".into()), Principal::Operator];
        let subject = named("p");
        let mut followers = Vec::new();
        for reader in readers {
            let watch = registry.watch(subject.clone(), WatchStart::Present, &reader).unwrap();
            followers.push((reader, watch, Follower::default(), Follower::default()));
        }
        for (reader, watch, stays, returns) in &mut followers {
            let items = events(watch, reader);
            stays.apply(&items);
            returns.apply(&items);
        }
        for (number, action, access, reads) in steps {
            let name = if action == 1 { "other" } else { "pump" };
            let access = match access {
                0 => Access::Public,
                1 => Access::Owner,
                _ => Access::Readers(vec!["bob".into()]),
            };
            match action {
                0 | 1 => put(&registry, Entity { access, ..device(number, name) }),
                2 => drop(registry.remove(&key(number)).map(|removal| removal.wait().unwrap())),
                _ if reads => registry.compact().unwrap(),
                _ => registry = Registry::open(journal.clone()).unwrap(),
            }
            if action == 3 && !reads {
                // These subscribers were of the former registry.
                for (reader, watch, stays, _) in &mut followers {
                    let start = WatchStart::After(stays.mark.unwrap());
                    *watch = registry.watch(subject.clone(), start, reader).unwrap();
                }
            }
            if !reads {
                continue;
            }
            for (reader, watch, stays, returns) in &mut followers {
                let found = registry.search_keys(&search_of("p"), reader);
                let found: BTreeSet<String> = found.into_iter().collect();
                let start = WatchStart::After(returns.mark.unwrap());
                let mut again = registry.watch(subject.clone(), start, reader).unwrap();
                returns.apply(&events(&mut again, reader));
                prop_assert_eq!(&returns.keys, &found);
                stays.apply(&events(watch, reader));
                prop_assert_eq!(&stays.keys, &found);
            }
        }
    }
}
