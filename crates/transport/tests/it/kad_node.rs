//! Goal: a node as programs use it finds what others publish, says which addresses are the
//! publisher's own, enters by its last contacts alone, and takes what it published with it.
//!
//! Method: nodes with real keys on loopback addresses; events, not time, say when the next thing is
//! done.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use chappe_identity::{Key, PublicKey};
use chappe_kad::service::{Announcement, device_key, endpoint_key, type_key};
use chappe_kad::{Certificate, Membership};
use chappe_transport::Drops;
use chappe_transport::kad::{Finding, KadNode, KadNodeOptions, Sighting};

const DEADLINE: Duration = Duration::from_secs(300);
const CREDIT: u64 = 1 << 20;
const PUMP: &str = "{http://example.org}Pump";

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(DEADLINE, future).await;
    done.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"))
}

fn options(host: u8, entrances: &[SocketAddr]) -> KadNodeOptions {
    KadNodeOptions {
        entrances: entrances.to_vec(),
        report_period: Duration::from_millis(100),
        ..KadNodeOptions::at((Ipv4Addr::new(127, 0, 0, host), 0).into())
    }
}

fn start(number: u8, options: KadNodeOptions) -> KadNode {
    let key = Key::from_seed([number; 32]);
    KadNode::start(key, options, Drops::default()).expect("a free port")
}

async fn entered(node: &KadNode, contacts: usize) {
    let mut report = node.report();
    let known = report.wait_for(|report| report.contacts.len() >= contacts);
    within("entering", known).await.expect("it runs");
}

/// Nodes that all entered by the first.
async fn network(size: u8) -> Vec<KadNode> {
    let mut nodes = vec![start(1, options(1, &[]))];
    for number in 1..size {
        let node = start(number + 1, options(1, &[nodes[0].local_addr()]));
        entered(&node, 1).await;
        nodes.push(node);
    }
    nodes
}

fn device(name: &str, address: &str) -> Announcement {
    Announcement {
        endpoint: format!("urn:example:{name}"),
        metadata_version: 1,
        types: vec![PUMP.to_owned()],
        addresses: vec![address.to_owned()],
        ..Announcement::default()
    }
}

async fn find(node: &KadNode, key: chappe_kad::Key) -> Vec<Sighting> {
    let mut findings = node.find(key, CREDIT).await;
    let all = async {
        let mut seen = Vec::new();
        loop {
            match findings.recv().await.expect("the search ends first") {
                Finding::Seen(sighting) => seen.push(*sighting),
                Finding::Ended { report, exhausted } => {
                    assert!(report.inflow <= report.granted, "{report:?}");
                    assert!(!exhausted);
                    return seen;
                }
            }
        }
    };
    within("the search", all).await
}

/// Searches until what is found is as wanted: publishing takes a moment, and on a busy machine some are
/// asked in vain.
async fn find_until(
    node: &KadNode,
    key: chappe_kad::Key,
    wanted: impl Fn(&[Sighting]) -> bool,
) -> Vec<Sighting> {
    let all = async {
        loop {
            let seen = find(node, key).await;
            if wanted(&seen) {
                return seen;
            }
        }
    };
    within("finding what is wanted", all).await
}

/// So many are found.
fn count(count: usize) -> impl Fn(&[Sighting]) -> bool {
    move |seen| seen.len() == count
}

#[tokio::test]
async fn a_device_is_found_and_only_its_publishers_own_addresses_are_confirmed() {
    let nodes = network(12).await;
    nodes[3]
        .publish(1, device("own", "http://127.0.0.1:81/"))
        .await;
    // The publisher does not listen at 127.0.0.2.
    nodes[4]
        .publish(1, device("other", "http://127.0.0.2:81/"))
        .await;
    let of = |seen: &[Sighting], publisher: PublicKey| {
        let mut seen = seen.iter();
        seen.find(|seen| seen.publisher == publisher).cloned()
    };
    let seen = find_until(&nodes[8], type_key(PUMP), |seen| {
        let own = of(seen, nodes[3].public());
        seen.len() == 2 && own.is_some_and(|own| own.confirmed.is_some())
    })
    .await;
    let of = |publisher| of(&seen, publisher).expect("found");
    let (own, other) = (of(nodes[3].public()), of(nodes[4].public()));
    assert_eq!(own.confirmed, Some(nodes[3].local_addr()));
    assert_eq!(own.announcement.port, nodes[3].local_addr().port());
    assert_eq!(own.announcement.endpoint, "urn:example:own");
    assert_eq!(other.confirmed, None);
    assert!(other.from().ip().is_unspecified());
    find_until(&nodes[9], endpoint_key("urn:example:other"), count(1)).await;
    assert_eq!(
        find(&nodes[9], type_key("{http://example.org}Lamp")).await,
        []
    );
    // Withdrawn it is found no more: its records end after a second.
    nodes[3].withdraw(1).await;
    find_until(&nodes[8], type_key(PUMP), count(1)).await;
}

#[tokio::test]
async fn what_was_published_before_anybody_came_is_found_by_those_who_come() {
    let first = start(1, options(1, &[]));
    first
        .publish(0, device("early", "http://127.0.0.1:81/"))
        .await;
    let entrance = [first.local_addr()];
    let second = start(2, options(1, &entrance));
    entered(&second, 1).await;
    let third = start(3, options(1, &entrance));
    find_until(&third, device_key(), count(1)).await;
    // Under three keys: all devices, its type, its endpoint.
    let mut report = second.report();
    let keeps = report.wait_for(|report| report.records >= 3);
    drop(within("another keeps it", keeps).await.expect("it runs"));
    // Who published it is gone, without a word; the others have it.
    drop(first);
    let fourth = start(4, options(1, &[second.local_addr()]));
    find_until(&fourth, device_key(), count(1)).await;
}

#[tokio::test]
async fn a_publisher_that_was_silent_is_asked_again_soon() {
    let first = start(1, options(1, &[]));
    let entrance = [first.local_addr()];
    let searcher = start(2, options(1, &entrance));
    entered(&searcher, 1).await;
    let publisher = start(3, options(1, &entrance));
    let address = publisher.local_addr();
    publisher
        .publish(0, device("silent", "http://127.0.0.1:81/"))
        .await;
    find_until(&first, device_key(), count(1)).await;
    drop(publisher);
    find_until(&searcher, device_key(), |seen| {
        seen.len() == 1 && seen[0].confirmed.is_none()
    })
    .await;
    let again = KadNodeOptions {
        entrances: entrance.to_vec(),
        ..KadNodeOptions::at(address)
    };
    let _again = start(3, again);
    let there = |seen: &[Sighting]| seen.len() == 1 && seen[0].confirmed == Some(address);
    find_until(&searcher, device_key(), there).await;
}

#[tokio::test]
async fn it_enters_by_its_last_contacts_and_closing_takes_its_records_with_it() {
    let nodes = network(6).await;
    let directory = tempfile::tempdir().expect("a directory");
    let kept = |entrances: &[SocketAddr]| KadNodeOptions {
        directory: Some(PathBuf::from(directory.path())),
        ..options(1, entrances)
    };
    let node = start(40, kept(&[nodes[2].local_addr()]));
    entered(&node, 3).await;
    node.publish(7, device("passing", "http://127.0.0.1:81/"))
        .await;
    find_until(&nodes[1], device_key(), count(1)).await;
    within("closing", node.close(DEADLINE)).await;
    find_until(&nodes[1], device_key(), count(0)).await;
    // No entrance this time.
    let again = start(40, kept(&[]));
    entered(&again, 3).await;
    again
        .publish(7, device("passing", "http://127.0.0.1:81/"))
        .await;
    let there =
        |seen: &[Sighting]| seen.len() == 1 && seen[0].confirmed == Some(again.local_addr());
    find_until(&nodes[1], device_key(), there).await;
}

#[tokio::test]
async fn a_network_of_members_hears_members_alone() {
    let owner = Key::from_seed([99; 32]);
    let member = |number: u8, by: &Key, entrances: &[SocketAddr]| {
        let public = Key::from_seed([number; 32]).public();
        let certificate = Certificate::issue(by, &public, u64::MAX >> 1);
        let owner = by.public();
        let membership = Some(Membership { owner, certificate });
        let options = options(1, entrances);
        start(
            number,
            KadNodeOptions {
                membership,
                ..options
            },
        )
    };
    let first = member(1, &owner, &[]);
    let entrance = [first.local_addr()];
    let second = member(2, &owner, &entrance);
    entered(&second, 1).await;
    let stranger = start(3, options(1, &entrance));
    let forger = member(4, &Key::from_seed([98; 32]), &entrance);
    let third = member(5, &owner, &entrance);
    entered(&third, 2).await;
    second
        .publish(0, device("ours", "http://127.0.0.1:81/"))
        .await;
    find_until(&third, device_key(), count(1)).await;
    for outside in [&stranger, &forger] {
        assert_eq!(find(outside, device_key()).await, []);
    }
}
