//! Goal: one event source delivers the same events to sinks on a notification tree, to standard sinks, and to sinks
//! of sources without a tree, even if some of them fail; a sink that lies about its address directs no event to
//! it.
//!
//! Method: devices and clients in one process over the loopback, each with its own sockets. States and counters, not
//! time, trigger the next step.

#[path = "common/insider.rs"]
mod insider;

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::*;
use chappe_device::client::{ClientTree, Delivery, Subscription};
use chappe_device::host::{HostState, HostTree, Order, TreeOrder};
use chappe_device::{ClientOptions, DeviceClient, DeviceHost};
use chappe_dpws::eventing::{Compact, CompactCodec, TreePeer, TreeSink};
use chappe_identity::Key;
use chappe_notification_tree::schedule::{Cost, arrivals};
use chappe_notification_tree::{Event, EventId, Keys, Plan, Spread};
use chappe_transport::{Drops, Hop};
use chappe_xml::Element;
use insider::{Insider, subscribed_by_hand};

/// The path of its service, and the event.
const THERMOMETER: (&str, &str) = ("/thermometer", REPORT);

fn key() -> Key {
    Key::from_seed(chappe_transport::seed().unwrap())
}

fn host(address: &str, endpoint: &str) -> DeviceHost {
    ordered(address, endpoint, TreeOrder::default())
}

fn ordered(address: &str, endpoint: &str, order: TreeOrder) -> DeviceHost {
    let mut options = host_options(address);
    options.tree = Some(HostTree {
        order,
        ..HostTree::new(key())
    });
    thermometer(endpoint, options)
        .start(Drops::default())
        .unwrap()
}

fn on_tree() -> ClientOptions {
    ClientOptions {
        tree: Some(ClientTree::new(key())),
        liveness_period: None,
        ..client_options()
    }
}

async fn sink(options: ClientOptions, endpoint: &str) -> (DeviceClient, Subscription) {
    let client = client(options);
    let description = described(&client, endpoint).await;
    let subscription = subscribed(&client, description.service_of(REPORT).unwrap()).await;
    (client, subscription)
}

/// Waits until so many sinks are on the tree.
async fn listed(host: &DeviceHost, sinks: usize) {
    let mut state = host.state();
    let all = state.wait_for(|state| state.tree.sinks == sinks);
    in_time("listed", all).await.unwrap();
}

async fn state(host: &DeviceHost, what: &str, is: impl FnMut(&HostState) -> bool) -> HostState {
    let mut state = host.state();
    *in_time(what, state.wait_for(is)).await.unwrap()
}

/// The next events, in any order: a repair may reorder them.
async fn events(subscription: &mut Subscription, count: usize) -> BTreeSet<i64> {
    let mut numbers = BTreeSet::new();
    while numbers.len() < count {
        let delivery = in_time("event", subscription.next()).await.unwrap();
        if matches!(delivery, Delivery::Notification(_)) {
            assert!(numbers.insert(number(&delivery)), "twice: {delivery:?}");
        }
    }
    numbers
}

/// An event with this number and this many additional characters.
fn long_report(number: i64, characters: usize) -> Element {
    let note = Element::new(name("note")).with_text("x".repeat(characters));
    report(number).with_child(note)
}

#[tokio::test]
async fn all_kinds_of_sinks_get_the_same_events() {
    let endpoint = endpoint();
    let host = host("127.0.2.40", &endpoint);
    let mut sinks = Vec::new();
    for _ in 0..10 {
        sinks.push(sink(on_tree(), &endpoint).await);
    }
    // It does not offer a tree, like a source of another vendor.
    let (standard_client, mut standard) = sink(client_options(), &endpoint).await;
    listed(&host, 10).await;
    for event in 0..45 {
        let report = match event {
            0..40 => report(event),
            // The list does not fit into a datagram with these: it is fetched.
            40..44 => long_report(event, 800),
            // This event does not fit at all: every sink gets a standard notification.
            _ => long_report(event, 2_000),
        };
        host.notify(REPORT, report).await.unwrap();
        // One after the other, so that a slow machine has time for each.
        let all = 11 * (event.unsigned_abs() + 1);
        let notified = |state: &HostState| state.tree.delivered + state.delivered == all;
        state(&host, "all notified", notified).await;
    }
    let all: BTreeSet<i64> = (0..45).collect();
    for (_, subscription) in &mut sinks {
        assert_eq!(events(subscription, 45).await, all);
    }
    assert_eq!(events(&mut standard, 45).await, all);
    let notified = *host.state().borrow();
    // A machine that pauses may miss some, which continue as standard notifications.
    assert!(
        notified.tree.delivered > 0 && notified.dropped == 0,
        "{notified:?}"
    );
    for (client, _) in &sinks {
        let counts = client.tree_counts();
        assert_eq!((counts.forged, counts.unreadable), (0, 0), "{counts:?}");
    }
    assert_eq!(standard_client.tree_counts().delivered, 0);
    host.stop().await;
}

#[tokio::test]
async fn a_source_without_a_tree_still_works() {
    let endpoint = endpoint();
    let host = thermometer(&endpoint, host_options("127.0.2.41"))
        .start(Drops::default())
        .unwrap();
    let (client, mut subscription) = sink(on_tree(), &endpoint).await;
    for event in 0..5 {
        host.notify(REPORT, report(event)).await.unwrap();
    }
    assert_eq!(events(&mut subscription, 5).await, (0..5).collect());
    assert_eq!(client.tree_counts().delivered, 0);
    host.stop().await;
}

#[tokio::test]
async fn dead_sinks_cost_the_others_no_event() {
    let endpoint = endpoint();
    let host = host("127.0.2.42", &endpoint);
    let mut sinks = Vec::new();
    for _ in 0..8 {
        sinks.push(sink(on_tree(), &endpoint).await);
    }
    listed(&host, 8).await;
    // Without a Bye, so that their head, or their part, finds them silent.
    for (client, subscription) in sinks.drain(..3) {
        drop(client);
        drop(subscription);
    }
    for event in 0..20 {
        host.notify(REPORT, report(event)).await.unwrap();
    }
    // On a slow machine they may have been found silent before the last event.
    let were_listed = host.state().borrow().tree.sinks == 8;
    for (_, subscription) in &mut sinks {
        assert_eq!(events(subscription, 20).await, (0..20).collect());
    }
    // They are removed from the list, and their subscriptions end.
    state(&host, "off the list", |state| state.tree.sinks <= 5).await;
    let after = state(&host, "ended", |state| state.subscriptions == 5).await;
    assert!(after.tree.missed > 0 || !were_listed, "{after:?}");
    host.stop().await;
}

#[tokio::test]
async fn a_sink_cannot_direct_events_to_another_address() {
    let endpoint = endpoint();
    let host = host("127.0.2.43", &endpoint);
    let victim = UdpSocket::bind("127.0.0.1:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let peer = TreePeer {
        key: *key().public().as_bytes(),
        address: victim.local_addr().unwrap(),
    };
    let criticality = 0;
    let (_taking, _) = subscribed_by_hand(&host, THERMOMETER, TreeSink { peer, criticality }).await;
    host.notify(REPORT, report(1)).await.unwrap();
    state(&host, "standard notification", |state| state.delivered == 1).await;
    state(&host, "not believed", |state| state.tree.off == 1).await;
    // The offered list is empty.
    assert_eq!(host.state().borrow().tree.sinks, 0);
    let mut bytes = Vec::new();
    let mut buffer = [0; 2_048];
    while let Ok(length) = victim.recv(&mut buffer) {
        bytes.push(length);
    }
    assert_eq!(bytes, [48; 6], "questions, and no event");
    host.stop().await;
}

#[tokio::test]
async fn datagrams_of_strangers_are_ignored() {
    let endpoint = endpoint();
    let host = host("127.0.2.44", &endpoint);
    let (client, mut subscription) = sink(on_tree(), &endpoint).await;
    listed(&host, 1).await;
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let event = Compact {
        action: REPORT.into(),
        event_id: Some([1; 16]),
        data: Some(report(-1)),
        ..Compact::default()
    };
    let bytes = CompactCodec::default().encode(&event).unwrap();
    let at = host.tree_address().unwrap();
    for datagram in [
        &bytes[..],
        &[b'T', 1],
        &[b'T', 1, 129, 255, 255, 255, 255],
        &[],
    ] {
        stranger.send_to(datagram, at).unwrap();
    }
    host.notify(REPORT, report(1)).await.unwrap();
    assert_eq!(events(&mut subscription, 1).await, BTreeSet::from([1]));
    assert!(client.tree_counts().delivered <= 1);
    host.stop().await;
}

/// An event's number, its plan, the keys of its list in order, and the index of the observer.
struct Listed {
    number: i64,
    plan: Plan,
    keys: Vec<[u8; 32]>,
    place: usize,
}

/// How the next event to an insider is spread.
async fn list(insider: &mut Insider) -> Listed {
    let (_, _, spread) = in_time("an event", insider.event()).await;
    let list = spread.event.list().expect("of a few sinks, it is inside");
    let list = list.unwrap();
    let keys: Vec<_> = list.sinks().iter().map(|sink| sink.key).collect();
    let own = *insider.key.public().as_bytes();
    let event = CompactCodec::default().decode(spread.event.body()).unwrap();
    let number = event.data.unwrap();
    let number = number.child(&name("celsius")).unwrap().text().into_owned();
    Listed {
        number: number.parse().unwrap(),
        plan: spread.plan,
        place: keys.iter().position(|key| *key == own).unwrap(),
        keys,
    }
}

#[tokio::test]
async fn critical_sinks_get_the_event_first_and_rules_override_claims() {
    let endpoint = endpoint();
    let order = TreeOrder {
        order: Order::Criticality,
        // A rule overrides a sink that claims to be the most critical; other claims count.
        rules: vec![
            "127.0.3.1=0".parse().unwrap(),
            "127.0.3.2=7".parse().unwrap(),
        ],
        ..TreeOrder::default()
    };
    let host = ordered("127.0.2.46", &endpoint, order);
    let mut insiders = Vec::new();
    for (ip, says) in [
        ("127.0.3.1", 255),
        ("127.0.0.1", 0),
        ("127.0.0.1", 5),
        ("127.0.3.2", 0),
    ] {
        insiders.push(Insider::subscribe(&host, THERMOMETER, (ip, says)).await);
    }
    // The claim of a client arrives, too.
    let mut options = on_tree();
    options.tree.as_mut().unwrap().criticality = 9;
    let client_key = *options.tree.as_ref().unwrap().key.public().as_bytes();
    let _client = sink(options, &endpoint).await;
    listed(&host, 5).await;
    host.notify(REPORT, report(1)).await.unwrap();
    let Listed { plan, keys, .. } = list(&mut insiders[1]).await;
    let key = |insider: &Insider| *insider.key.public().as_bytes();
    let criticality = |sink: &[u8; 32]| match insiders.iter().position(|it| key(it) == *sink) {
        Some(0 | 1) => 0,
        Some(2) => 5,
        Some(_) => 7,
        None if *sink == client_key => 9,
        None => panic!("a key of no known sink"),
    };
    // By the plan in the event, regardless of measurements.
    let cost = Cost {
        send: Duration::from_micros(5),
        delay: Duration::from_micros(500),
    };
    let mut first: Vec<_> = arrivals(plan, 5, cost).into_iter().zip(&keys).collect();
    first.sort_by_key(|(at, _)| *at);
    let order: Vec<u8> = first.iter().map(|(_, key)| criticality(key)).collect();
    assert_eq!(order, [9, 7, 5, 0, 0], "{plan:?}");
    host.stop().await;
}

#[tokio::test]
async fn a_sink_that_did_not_answer_moves_back() {
    let endpoint = endpoint();
    let order = TreeOrder {
        order: Order::Reliability,
        rearrange_interval: Duration::ZERO,
        ..TreeOrder::default()
    };
    let host = ordered("127.0.2.47", &endpoint, order);
    let mut insiders = Vec::new();
    for _ in 0..3 {
        insiders.push(Insider::subscribe(&host, THERMOMETER, ("127.0.0.1", 0)).await);
    }
    listed(&host, 3).await;
    host.notify(REPORT, report(1)).await.unwrap();
    let mut first = None;
    for insider in &mut insiders {
        if list(insider).await.place == 0 {
            first = Some(insider);
        }
    }
    let first = first.unwrap();
    // One missed event is sufficient. A round in which a slow machine made others miss theirs, too, is
    // ignored.
    for round in 1..20 {
        let missed = host.state().borrow().tree.missed;
        first.silent.store(true, Ordering::Relaxed);
        host.notify(REPORT, report(round * 2)).await.unwrap();
        state(&host, "missed", |state| state.tree.missed > missed).await;
        first.silent.store(false, Ordering::Relaxed);
        host.notify(REPORT, report(round * 2 + 1)).await.unwrap();
        // The missed event is sent to it several times.
        let place = loop {
            let list = list(first).await;
            if list.number == round * 2 + 1 {
                break list.place;
            }
        };
        if host.state().borrow().tree.missed == missed + 1 {
            assert_eq!(place, 2, "in round {round}");
            host.stop().await;
            return;
        }
    }
    panic!("in every round another sink missed an event, too");
}

#[tokio::test]
async fn forged_and_repeated_events_are_refused_and_counted() {
    let endpoint = endpoint();
    let host = host("127.0.2.45", &endpoint);
    let drops = Drops::default();
    let client = DeviceClient::start(on_tree(), drops.clone()).unwrap();
    let description = described(&client, &endpoint).await;
    let service = description.service_of(REPORT).unwrap();
    let mut subscription = subscribed(&client, service).await;
    let mut insider = Insider::subscribe(&host, THERMOMETER, ("127.0.0.1", 0)).await;
    listed(&host, 2).await;
    host.notify(REPORT, report(1)).await.unwrap();
    assert_eq!(events(&mut subscription, 1).await, BTreeSet::from([1]));
    let (datagram, _, spread) = in_time("an event", insider.event()).await;
    let list = spread
        .event
        .list()
        .expect("of two sinks, it is in the event")
        .unwrap();
    let own = *insider.key.public().as_bytes();
    let number = |wanted: bool| {
        let at = list
            .sinks()
            .iter()
            .position(|sink| (sink.key == own) == wanted);
        u32::try_from(at.unwrap()).unwrap()
    };
    let (own, other) = (number(true), number(false));
    let victim = *list.sink(other).unwrap();

    // An event that the source sent to another sink; one that the source did not sign; and a genuine one
    // that arrived before, twice.
    insider
        .socket
        .send_to(&datagram, victim.address)
        .await
        .unwrap();
    let id = EventId {
        sequence: spread.event.id().sequence + 1,
        ..spread.event.id()
    };
    let keys = Keys::new(Arc::clone(&insider.key));
    let forged = Event::new(&keys, id, &list, true, None, spread.event.body(), 1_000).unwrap();
    let forged = Spread {
        event: Arc::new(forged),
        ..spread.clone()
    };
    insider.forward(own, (other, &victim), forged).await;
    for _ in 0..2 {
        insider.forward(own, (other, &victim), spread.clone()).await;
    }

    // All of these were in the socket before this event, which arrives by the tree like the first or, on a slow
    // machine, as a standard notification.
    for event in 2..100 {
        host.notify(REPORT, report(event)).await.unwrap();
        assert_eq!(events(&mut subscription, 1).await, BTreeSet::from([event]));
        if client.tree_counts().delivered > 1 {
            break;
        }
    }
    let counts = client.tree_counts();
    assert!(counts.delivered > 1, "{counts:?}");
    assert_eq!((counts.forged, counts.unreadable), (1, 0), "{counts:?}");
    let total = |reason| drops.total(Hop::Event, reason);
    assert_eq!(total("forged event refused"), 1);
    assert_eq!(total("tree datagram not authentic"), 1);
    assert!(total("duplicate event") >= 2);
    host.stop().await;
}
