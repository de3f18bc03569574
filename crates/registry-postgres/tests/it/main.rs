//! Goal: registries on one PostgreSQL agree, whatever is killed and whenever: every acknowledged change is there
//! once, none in part, and no update is lost.
//! Method: a real server on a Unix socket, as another user; registries in this process; SIGKILL for the server,
//! and for single connections. Without the programs of PostgreSQL the tests print that they are skipped.

mod cluster;
mod leases;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chappe_registry::uddi::{BusinessEntity, BusinessService, Publisher, Text};
use chappe_registry::{
    Access, Entity, EntityKind, Error, JournalError, Principal, Registry, Search,
};
use chappe_registry_postgres::{Options, PostgresJournal, Status};

use cluster::Cluster;

fn open(cluster: &Cluster) -> (Registry, Status) {
    let journal = PostgresJournal::open(&cluster.options()).unwrap();
    let status = journal.status();
    (Registry::open(journal).unwrap(), status)
}

fn entity(key: &str, name: &str) -> Entity {
    Entity::new(key, EntityKind::Other, name)
}

fn entities(registry: &Registry) -> Vec<Entity> {
    let keys = registry.search_keys(&Search::default(), &Principal::Operator);
    let found = keys.iter();
    found
        .filter_map(|key| registry.get(key, &Principal::Operator))
        .collect()
}

/// Polls: what is waited for needs the processor more.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn two_registries_are_one() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (one, _) = open(&cluster);
    let (other, _) = open(&cluster);
    one.publish(entity("urn:x:1", "from one"))
        .unwrap()
        .wait()
        .unwrap();
    until("it is visible", || {
        other.get("urn:x:1", &Principal::Anonymous).is_some()
    });
    other
        .publish(entity("urn:x:2", "from the other"))
        .unwrap()
        .wait()
        .unwrap();
    until("it is visible", || {
        one.get("urn:x:2", &Principal::Anonymous).is_some()
    });
    let mut taken = entity("urn:x:1", "taken");
    taken.owner = "ada".to_owned();
    let refused = other
        .publish(taken)
        .and_then(|publication| publication.wait());
    assert!(
        matches!(refused, Err(Error::NotOwner { .. })),
        "{refused:?}"
    );
    other.remove("urn:x:1").unwrap().wait().unwrap();
    until("it is gone", || {
        one.get("urn:x:1", &Principal::Anonymous).is_none()
    });
    // Reopened, it is the same.
    let (third, _) = open(&cluster);
    assert_eq!(entities(&third), entities(&one));
    // A program of another version does not touch it.
    cluster.sql("UPDATE chappe.registry_head SET version = 2");
    let refused = PostgresJournal::open(&cluster.options()).err().unwrap();
    assert!(refused.to_string().contains("version 2"), "{refused}");
}

#[test]
fn a_snapshot_is_written_by_one_and_read_by_those_who_were_away() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (one, _) = open(&cluster);
    let (other, _) = open(&cluster);
    for number in 0..300 {
        let key = format!("urn:x:{}", number % 30);
        one.publish(entity(&key, &number.to_string()))
            .unwrap()
            .wait()
            .unwrap();
    }
    let revision = one.revision();
    until("it follows", || other.revision() == revision);
    // Others go on while one compacts.
    let compacting = one.clone();
    let compaction = std::thread::spawn(move || compacting.compact());
    let mut written = 0;
    while !compaction.is_finished() || written < 10 {
        other
            .publish(entity("urn:y", &written.to_string()))
            .unwrap()
            .wait()
            .unwrap();
        written += 1;
    }
    compaction.join().unwrap().unwrap();
    cluster.sql("UPDATE chappe.registry_record SET written = now() - interval '1 hour'");
    one.compact().unwrap();
    until("old records are removed", || {
        let first = cluster.sql("SELECT min(position) FROM chappe.registry_record");
        first.parse::<u64>().unwrap() > revision
    });
    let (fresh, _) = open(&cluster);
    let last = one.revision();
    until("they agree", || {
        other.revision() >= last && fresh.revision() >= last
    });
    assert_eq!(entities(&fresh).len(), 31);
    assert_eq!(entities(&fresh), entities(&one));
    assert_eq!(entities(&other), entities(&one));
}

#[test]
fn while_the_server_is_away_reads_go_on_and_changes_fail() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let (one, status) = open(&cluster);
    let (other, _) = open(&cluster);
    one.publish(entity("urn:x:1", "1")).unwrap().wait().unwrap();
    cluster.kill();
    until("the outage is known", || status.outage().is_some());
    let refused = one.publish(entity("urn:x:2", "2")).unwrap_err();
    assert!(
        matches!(refused, Error::Journal(JournalError::Away(_))),
        "{refused}"
    );
    assert!(refused.is_transient());
    assert!(one.get("urn:x:1", &Principal::Anonymous).is_some());
    cluster.run();
    until("it returns", || {
        let publication = other.publish(entity("urn:x:3", "3"));
        publication.is_ok_and(|publication| publication.wait().is_ok())
    });
    until("it returns", || status.outage().is_none());
    // The first change is made on all before it.
    let mut taken = entity("urn:x:3", "taken");
    taken.owner = "ada".to_owned();
    let refused = one
        .publish(taken)
        .and_then(|publication| publication.wait());
    assert!(
        matches!(refused, Err(Error::NotOwner { .. })),
        "{refused:?}"
    );
    until("they agree", || entities(&one) == entities(&other));
    assert!(one.get("urn:x:2", &Principal::Anonymous).is_none());
}

/// What clients of one registry saw.
#[derive(Default)]
struct Seen {
    stored: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

/// Saves a service in the business that all fill; `None`: it was refused.
fn save(registry: &Registry, business: &BusinessEntity, number: u64, bits: u128) -> Option<()> {
    let service = BusinessService {
        business_key: business.key,
        names: vec![Text::plain(number.to_string())],
        descriptions: vec![Text::plain("x".repeat(200))],
        ..BusinessService::default()
    };
    loop {
        let mut random = || bits;
        let mut ada = Publisher::new(registry, "ada", Access::Public, 0, &mut random);
        let saved = ada.save_service(std::slice::from_ref(&service)).ok()?;
        match saved.publication?.wait() {
            Ok(_) => return Some(()),
            Err(error) if error.is_conflict() => {}
            Err(_) => return None,
        }
    }
}

#[test]
fn kills_lose_nothing_and_double_nothing() {
    let Some(mut cluster) = Cluster::start() else {
        return;
    };
    let registries = [open(&cluster).0, open(&cluster).0];
    let business = BusinessEntity {
        names: vec![Text::plain("all")],
        ..BusinessEntity::default()
    };
    let mut bits = || 7;
    let mut ada = Publisher::new(&registries[0], "ada", Access::Public, 0, &mut bits);
    let business = ada.save_business(&[business]).unwrap().wait().unwrap()[0]
        .value
        .clone();
    let revision = registries[0].revision();
    until("it follows", || registries[1].revision() >= revision);
    let ends = Arc::<AtomicBool>::default();
    let next = Arc::<AtomicU64>::default();
    let seen = Arc::<Mutex<Seen>>::default();
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let registry = registries[client % 2].clone();
            let (ends, next, seen) = (ends.clone(), next.clone(), seen.clone());
            let business = business.clone();
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    // Above the bits of a UUID's version, which would make two keys one.
                    let bits = u128::from(number + 1) << 80 | 0x5eed;
                    let saved = save(&registry, &business, number, bits);
                    let mut seen = seen.lock().unwrap();
                    match saved {
                        Some(()) => seen.stored.insert(number),
                        None => {
                            drop(seen);
                            // Refused while the server is away: it needs the processor to start.
                            std::thread::sleep(Duration::from_millis(5));
                            continue;
                        }
                    };
                }
            })
        })
        .collect();
    for round in 0..20_u64 {
        // The clients work between two faults; whatever they reached is judged.
        std::thread::sleep(Duration::from_millis(100));
        // On a busy machine they reach less.
        let stored = || seen.lock().unwrap().stored.len() as u64;
        until("some are stored", || stored() > 3 * round);
        if round % 5 == 4 {
            cluster.kill();
            // They meet a server that is away.
            std::thread::sleep(Duration::from_millis(50));
            cluster.run();
        } else {
            // As a network that breaks: the sessions end while they commit.
            cluster.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'chappe'",
            );
        }
    }
    ends.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let (fresh, _) = open(&cluster);
    let last = fresh.revision();
    until("all follow", || {
        registries.iter().all(|one| one.revision() >= last)
    });
    for registry in &registries {
        assert_eq!(entities(registry), entities(&fresh));
    }
    let services: Vec<Entity> = entities(&fresh)
        .into_iter()
        .filter(|entity| entity.kind == EntityKind::Service)
        .collect();
    let found: BTreeSet<u64> = services
        .iter()
        .map(|one| one.name.parse().unwrap())
        .collect();
    let seen = seen.lock().unwrap();
    let missing: Vec<_> = seen.stored.difference(&found).collect();
    assert!(
        missing.is_empty(),
        "acknowledged and not there: {missing:?}"
    );
    let wrong: Vec<_> = found.difference(&seen.stored).collect();
    assert!(wrong.is_empty(), "there and not acknowledged: {wrong:?}");
    assert!(seen.refused.is_disjoint(&found));
    // Each was planned on all before it: no two have one position.
    let positions: BTreeSet<String> = services
        .iter()
        .flat_map(|service| &service.triples)
        .filter(|triple| triple.predicate.as_str().ends_with("#position"))
        .map(|triple| triple.object.to_string())
        .collect();
    assert_eq!(positions.len(), services.len());
    // Each record is in the store once.
    let doubled = cluster.sql("SELECT count(*) - count(DISTINCT body) FROM chappe.registry_record");
    assert_eq!(doubled, "0");
    assert!(services.len() > 50, "{}", services.len());
    eprintln!(
        "{} services through 20 cuts, 4 of them of the server",
        services.len()
    );
}

/// Prints what a change takes; it judges nothing.
#[test]
fn measured() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let (one, _) = open(&cluster);
    let (other, _) = open(&cluster);
    let mut publish = Vec::new();
    let mut visible = Vec::new();
    for number in 0..300 {
        let key = format!("urn:m:{number}");
        let begun = Instant::now();
        one.publish(entity(&key, &"x".repeat(200)))
            .unwrap()
            .wait()
            .unwrap();
        publish.push(begun.elapsed());
        while other.get(&key, &Principal::Anonymous).is_none() {
            std::thread::yield_now();
        }
        visible.push(begun.elapsed() - publish[number]);
    }
    let bare = cluster.bare(300, 300);
    let show = |name: &str, mut times: Vec<Duration>| {
        times.sort();
        let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
        eprintln!("{name}: median {:.3} ms, p99 {:.3} ms", at(50), at(99));
    };
    show("publish", publish);
    show("bare transaction of the same bytes", bare);
    show("visible at the other after the acknowledgement", visible);
}

#[test]
fn what_cannot_be_reached_is_an_error() {
    let options = Options {
        url: "postgres://chappe@127.0.0.1:1/chappe".to_owned(),
        password: None,
        authorities: None,
    };
    let error = PostgresJournal::open(&options).err().unwrap();
    assert!(error.to_string().contains("cannot connect"), "{error}");
}
