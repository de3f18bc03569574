//! Goal: a lease never ends early, whatever clocks do; an entity whose lease is over is removed once,
//! although several nodes share a journal, crash and write snapshots; and it is removed at last.
//!
//! Method: several registries on one journal, each with a clock from an origin of its own, which starts again
//! at each crash and at times in between. The judge knows the true time, which the registries do not.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_registry::{
    Entity, EntityKind, Error, Expiry, Journal, MemoryJournal, Principal, Registry, Room, Watch,
    WatchEvent, WatchStart, WatchStep, WatchSubject,
};
use proptest::prelude::*;

fn key(number: u64) -> String {
    format!("urn:x:{number}")
}

fn leased(number: u64, lease_s: u32) -> Entity {
    let mut entity = Entity::new(key(number), EntityKind::Device, "leased");
    entity.lease_s = Some(lease_s);
    entity
}

fn put(registry: &Registry, entity: Entity) {
    registry.publish(entity).unwrap().wait().unwrap();
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn removed(expiry: Expiry) -> Vec<String> {
    let removals = expiry.removals.into_iter();
    let keys = removals.map(|(key, removal)| {
        removal.wait().unwrap();
        key
    });
    keys.collect()
}

fn has(registry: &Registry, number: u64) -> bool {
    registry.get(&key(number), &Principal::Operator).is_some()
}

#[test]
fn an_entity_is_removed_when_its_lease_is_over_unless_it_is_renewed() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    put(&registry, leased(1, 10));
    put(&registry, leased(2, 10));
    put(&registry, Entity::new(key(3), EntityKind::Device, "stays"));
    let first = registry.expire(s(100)).unwrap();
    assert_eq!((first.removals.len(), first.next), (0, Some(s(10))));
    assert_eq!(removed(registry.expire(s(109)).unwrap()), [""; 0]);
    registry.renew(&key(2)).unwrap().wait().unwrap();
    let (_, renewal) = journal.follow(4, 1).unwrap().remove(0);
    assert!(renewal.len() <= key(2).len() + 4, "{} bytes", renewal.len());
    assert_eq!(removed(registry.expire(s(110)).unwrap()), [key(1)]);
    assert!(!has(&registry, 1) && has(&registry, 2) && has(&registry, 3));
    assert_eq!(removed(registry.expire(s(119)).unwrap()), [""; 0]);
    assert_eq!(removed(registry.expire(s(120)).unwrap()), [key(2)]);
    assert_eq!(registry.leases(), 0);
    for (number, error) in [(1, Error::Unknown(key(1))), (3, Error::NoLease(key(3)))] {
        assert_eq!(registry.renew(&key(number)).unwrap_err(), error);
    }
    for lease_s in [0, u32::MAX] {
        assert!(registry.publish(leased(4, lease_s)).is_err());
    }
    // Published again without a lease, it stays.
    put(&registry, leased(4, 1));
    registry.expire(s(200)).unwrap();
    put(&registry, Entity::new(key(4), EntityKind::Device, "stays"));
    assert_eq!(removed(registry.expire(s(300)).unwrap()), [""; 0]);
    assert!(has(&registry, 4));
}

#[test]
fn publishing_an_equal_entity_renews_its_lease_by_a_small_record() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    put(&registry, leased(1, 10));
    registry.expire(s(0)).unwrap();
    registry.expire(s(9)).unwrap();
    let again = registry.publish_as(&Principal::Operator, &leased(1, 10), &Room::default());
    again.unwrap().unwrap().wait().unwrap();
    let (_, renewal) = journal.follow(2, 1).unwrap().remove(0);
    assert!(renewal.len() <= key(1).len() + 4, "{} bytes", renewal.len());
    assert_eq!(removed(registry.expire(s(18)).unwrap()), [""; 0]);
    assert_eq!(removed(registry.expire(s(28)).unwrap()), [key(1)]);
}

#[test]
fn of_two_nodes_one_removes_it_and_a_renewal_at_the_other_counts() {
    let journal = MemoryJournal::new();
    let (one, two) = (
        Registry::open(journal.clone()).unwrap(),
        Registry::open(journal.clone()).unwrap(),
    );
    put(&one, leased(1, 10));
    one.expire(s(0)).unwrap();
    // The other node started its clock elsewhere.
    two.expire(s(70_000)).unwrap();
    two.renew(&key(1)).unwrap().wait().unwrap();
    // This node has not read the renewal when it looks.
    assert_eq!(removed(one.expire(s(10)).unwrap()), [""; 0]);
    assert!(has(&one, 1));
    one.expire(s(11)).unwrap();
    two.expire(s(70_010)).unwrap();
    let by_two = removed(two.expire(s(70_020)).unwrap());
    let by_one = removed(one.expire(s(21)).unwrap());
    assert_eq!((by_two, by_one), (vec![key(1)], vec![]));
    assert!(!has(&one, 1));
}

#[test]
fn a_lease_goes_on_after_a_restart_and_a_snapshot() {
    let journal = MemoryJournal::new();
    let registry = Registry::open(journal.clone()).unwrap();
    registry.expire(s(0)).unwrap();
    put(&registry, leased(1, 600));
    for minute in 0..=5 {
        registry.expire(s(60 * minute)).unwrap();
    }
    registry.compact().unwrap();
    drop(registry);
    let registry = Registry::open(journal).unwrap();
    assert_eq!(
        registry.get(&key(1), &Principal::Operator).unwrap().lease_s,
        Some(600)
    );
    // Ticks have recorded its age, but for the time since the last of them.
    let next = registry.expire(s(7)).unwrap().next.unwrap();
    assert!((s(300)..=s(361)).contains(&next), "{next:?}");
    let mut now = s(7);
    let minutes = (next.as_secs() - 1) / 60;
    for _ in 0..minutes {
        now += s(60);
        assert_eq!(removed(registry.expire(now).unwrap()), [""; 0]);
    }
    now += next - s(60 * minutes);
    assert_eq!(removed(registry.expire(now).unwrap()), [key(1)]);
}

const LEASES_S: [u32; 3] = [5, 70, 600];

struct Node {
    registry: Registry,
    /// The true time at which its clock showed zero; crashes and steps of the clock change it.
    origin_s: u64,
    /// Counts the removals that a subscriber hears.
    watch: Watch,
}

impl Node {
    fn open(journal: &MemoryJournal, now_s: u64) -> Self {
        let registry = Registry::open(journal.clone()).unwrap();
        let all = WatchSubject::Search(Box::default());
        let watch = registry.watch(all, WatchStart::Now, &Principal::Operator);
        Self {
            watch: watch.unwrap(),
            // Clocks of different nodes have nothing in common.
            origin_s: now_s,
            registry,
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish(usize, u64, usize),
    Renew(usize, u64),
    Expire(usize),
    Crash(usize),
    Compact(usize),
    /// The clock of a node shows zero again, against the rule.
    ClockBack(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3_usize, 0..4_u64, 0..3_usize).prop_map(|(at, number, lease)| Step::Publish(at, number, lease)),
        3 => (0..3_usize, 0..4_u64).prop_map(|(at, number)| Step::Renew(at, number)),
        6 => (0..3_usize).prop_map(Step::Expire),
        1 => (0..3_usize).prop_map(Step::Crash),
        1 => (0..3_usize).prop_map(Step::Compact),
        1 => (0..3_usize).prop_map(Step::ClockBack),
        6 => prop_oneof![1..5_u64, 30..90_u64, Just(300)].prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn no_lease_ends_early_and_each_ends_once(steps in proptest::collection::vec(step(), 1..80)) {
        let journal = MemoryJournal::new();
        let mut now_s = 1_000;
        let mut nodes: Vec<Node> = (0..3).map(|_| Node::open(&journal, now_s)).collect();
        // The true time of the last grant of each, with its length.
        let mut granted: BTreeMap<String, (u64, u32)> = BTreeMap::new();
        let mut expired = 0;
        for step in steps {
            match step {
                Step::Publish(at, number, lease) => {
                    put(&nodes[at].registry, leased(number, LEASES_S[lease]));
                    granted.insert(key(number), (now_s, LEASES_S[lease]));
                }
                Step::Renew(at, number) => {
                    let registry = &nodes[at].registry;
                    registry.refresh().unwrap();
                    match registry.renew(&key(number)) {
                        Ok(renewal) => {
                            renewal.wait().unwrap();
                            granted.get_mut(&key(number)).unwrap().0 = now_s;
                        }
                        Err(error) => prop_assert_eq!(error, Error::Unknown(key(number))),
                    }
                }
                Step::Expire(at) => {
                    let node = &nodes[at];
                    let own = s(now_s - node.origin_s);
                    for key in removed(node.registry.expire(own).unwrap()) {
                        let (since, lease_s) = granted.remove(&key).expect("it is removed once");
                        prop_assert!(now_s - since >= u64::from(lease_s), "{} is early", key);
                        expired += 1;
                    }
                }
                Step::Crash(at) => nodes[at] = Node::open(&journal, now_s),
                Step::Compact(at) => {
                    nodes[at].registry.refresh().unwrap();
                    nodes[at].registry.compact().unwrap();
                }
                Step::ClockBack(at) => nodes[at].origin_s = now_s,
                Step::Pass(seconds) => now_s += seconds,
            }
            for node in &nodes {
                node.registry.refresh().unwrap();
                for number in 0..4 {
                    let is_granted = granted.contains_key(&key(number));
                    prop_assert_eq!(has(&node.registry, number), is_granted);
                }
            }
        }
        // At last each is over: a lease after this node learned of it.
        let end = now_s + 600 + 40;
        while now_s < end {
            now_s += 20;
            let own = s(now_s - nodes[0].origin_s);
            for key in removed(nodes[0].registry.expire(own).unwrap()) {
                let (since, lease_s) = granted.remove(&key).expect("it is removed once");
                prop_assert!(now_s - since >= u64::from(lease_s), "{} is early", key);
                expired += 1;
            }
        }
        prop_assert!(granted.is_empty(), "{:?}", granted);
        prop_assert_eq!(nodes[0].registry.leases(), 0);
        // A subscriber of a node that never crashed hears of each removal at most once.
        for node in &mut nodes {
            node.registry.refresh().unwrap();
            let mut heard = 0;
            while let Some(step) = node.watch.try_step(&Principal::Operator) {
                let WatchStep::Event(item) = step else { continue };
                heard += usize::from(matches!(item.event, WatchEvent::Removed { .. }));
            }
            prop_assert!(heard <= expired);
        }
    }
}
