//! Goal: of registries on one PostgreSQL, each lease that is over is ended once, whatever is killed and however clocks
//! step; and a lease that is renewed is not ended.
//! Method: two registries look at their leases at the same time, each with a clock of its own, one of which goes back.
//! Sessions are cut and the server is killed; in each round a registry starts again. A third one counts removals.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_registry::{Change, Entity, EntityKind, FeedItem, Principal, Registry, Subscription};

use super::cluster::Cluster;
use super::{open, until};

const LEASES: usize = 60;
const LEASE_S: u32 = 30;
const ROUNDS: u64 = 16;
/// What a round takes on the clocks of the registries.
const ROUND: Duration = Duration::from_secs(10);

fn key(number: usize) -> String {
    format!("urn:x:{number}")
}

/// The leases that are renewed in each round.
fn renewed() -> Vec<String> {
    (0..LEASES).step_by(3).map(key).collect()
}

/// Looks at the leases; returns the keys of those whose end was acknowledged to this registry.
fn look(registry: &Registry, now: Duration) -> Vec<String> {
    let Ok(expiry) = registry.expire(now) else {
        // The server is away.
        return Vec::new();
    };
    let removals = expiry.removals.into_iter();
    let ended = removals.filter_map(|(key, removal)| removal.wait().ok().map(|_| key));
    ended.collect()
}

/// Counts the removals that a subscriber has not read yet.
fn count(feed: &mut Subscription, removed: &mut BTreeMap<String, usize>) {
    while let Some(item) = feed.try_next() {
        match item {
            FeedItem::Change {
                change: Change::Removed { key, .. },
                ..
            } => *removed.entry(key).or_default() += 1,
            FeedItem::Change { .. } => {}
            FeedItem::Resync { .. } => panic!("the feed remembers all changes of this test"),
        }
    }
}

#[test]
fn each_lease_ends_once() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let watcher = open(&cluster).0;
    let mut feed = watcher.subscribe(watcher.revision() + 1, Principal::Operator);
    let mut registries = [open(&cluster).0, open(&cluster).0];
    // The origins of their clocks have nothing in common.
    let mut clocks = [Duration::ZERO, Duration::from_secs(1_000_000)];
    for number in 0..LEASES {
        let mut entity = Entity::new(key(number), EntityKind::Other, "leased");
        entity.lease_s = Some(LEASE_S);
        registries[number % 2]
            .publish(entity)
            .unwrap()
            .wait()
            .unwrap();
    }
    let (mut acknowledged, mut removed) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
    for round in 0..ROUNDS {
        let renewing = &registries[usize::from(round % 2 == 0)];
        until("leases are renewed", || {
            let renewal = renewing.renew_all(renewed());
            renewal.and_then(|renewal| renewal.wait()).is_ok()
        });
        match round {
            3 | 7 => {
                cluster.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE application_name = 'chappe'",
                );
            }
            5 => {
                cluster.kill();
                cluster.run();
            }
            // A clock goes back.
            4 => clocks[1] = Duration::ZERO,
            _ => {}
        }
        clocks = clocks.map(|now| now + ROUND);
        let ended = std::thread::scope(|scope| {
            let looks = [0, 1].map(|at| {
                let (registry, now) = (&registries[at], clocks[at]);
                scope.spawn(move || look(registry, now))
            });
            looks.map(|look| look.join().unwrap())
        });
        for key in ended.into_iter().flatten() {
            *acknowledged.entry(key).or_default() += 1;
        }
        if round >= 9 {
            // It starts again, with a clock from zero and the leases from the journal.
            let at = usize::from(round % 2 == 0);
            (registries[at], clocks[at]) = (open(&cluster).0, Duration::ZERO);
        }
    }
    let last = registries[0].revision();
    until("the watcher follows", || watcher.revision() >= last);
    count(&mut feed, &mut removed);
    let renewed = renewed();
    for number in 0..LEASES {
        let key = key(number);
        let is_renewed = renewed.contains(&key);
        let ends = removed.get(&key).copied().unwrap_or(0);
        assert_eq!(ends, usize::from(!is_renewed), "ends of {key}");
        assert!(
            acknowledged.get(&key).copied().unwrap_or(0) <= ends,
            "{key}"
        );
        let is_there = watcher.get(&key, &Principal::Operator).is_some();
        assert_eq!(is_there, is_renewed, "{key}");
    }
    assert!(acknowledged.len() > LEASES / 3, "{}", acknowledged.len());
}
