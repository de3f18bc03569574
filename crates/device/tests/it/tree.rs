//! Goal: one event source tells sinks on a notification tree, standard sinks, and sinks of sources
//! that know no tree the same, whatever becomes of some of them; a sink that lies about its address
//! has nothing sent to it.
//!
//! Method: devices and clients in one process over the loopback, each with sockets of its own. States
//! and counts, not time, say when the next thing is done.

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

/// Where its service is, and the event.
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

/// The next events, in any order: after a repair they may come in another than they happened.
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

/// An event with this number and so many characters more.
fn long_report(number: i64, characters: usize) -> Element {
    let note = Element::new(name("note")).with_text("x".repeat(characters));
    report(number).with_child(note)
}

#[tokio::test]
async fn all_kinds_of_sinks_are_told_the_same() {
    let endpoint = endpoint();
    let host = host("127.0.2.40", &endpoint);
    let mut sinks = Vec::new();
    for _ in 0..10 {
        sinks.push(sink(on_tree(), &endpoint).await);
    }
    // It says nothing of trees, as any other's.
    let (standard_client, mut standard) = sink(client_options(), &endpoint).await;
    listed(&host, 10).await;
    for event in 0..45 {
        let report = match event {
            0..40 => report(event),
            // With these the list does not fit into a datagram: it is fetched.
            40..44 => long_report(event, 800),
            // This does not fit by itself: everybody gets a standard notification.
            _ => long_report(event, 2_000),
        };
        host.notify(REPORT, report).await.unwrap();
        // One after the other: however slow the machine, each has its time.
        let all = 11 * (event.unsigned_abs() + 1);
        let told = |state: &HostState| state.tree.delivered + state.delivered == all;
        state(&host, "all told", told).await;
    }
    let all: BTreeSet<i64> = (0..45).collect();
    for (_, subscription) in &mut sinks {
        assert_eq!(events(subscription, 45).await, all);
    }
    assert_eq!(events(&mut standard, 45).await, all);
    let told = *host.state().borrow();
    // A machine that stands still may miss some, which go on as standard notifications.
    assert!(told.tree.delivered > 0 && told.dropped == 0, "{told:?}");
    for (client, _) in &sinks {
        let counts = client.tree_counts();
        assert_eq!((counts.forged, counts.unreadable), (0, 0), "{counts:?}");
    }
    assert_eq!(standard_client.tree_counts().delivered, 0);
    host.stop().await;
}

#[tokio::test]
async fn a_source_that_knows_no_tree_is_heard_as_ever() {
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
    // Without a word, so that whoever was their head or their part finds them silent.
    for (client, subscription) in sinks.drain(..3) {
        drop(client);
        drop(subscription);
    }
    for event in 0..20 {
        host.notify(REPORT, report(event)).await.unwrap();
    }
    for (_, subscription) in &mut sinks {
        assert_eq!(events(subscription, 20).await, (0..20).collect());
    }
    // They are taken off the list, and their subscriptions end.
    state(&host, "off the list", |state| state.tree.sinks <= 5).await;
    let after = state(&host, "ended", |state| state.subscriptions == 5).await;
    assert!(after.tree.missed > 0, "{after:?}");
    host.stop().await;
}

#[tokio::test]
async fn a_sink_that_names_another_address_gets_nothing_sent_there() {
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
    state(&host, "told as ever", |state| state.delivered == 1).await;
    state(&host, "not believed", |state| state.tree.off == 1).await;
    // The list that is offered has nobody in it.
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
async fn datagrams_of_strangers_change_nothing() {
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

/// An event's number, its plan, the keys of its list in order, and the place of who looks.
struct Listed {
    number: i64,
    plan: Plan,
    keys: Vec<[u8; 32]>,
    place: usize,
}

/// How the next event that an insider is sent is spread.
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
async fn critical_sinks_are_where_the_event_comes_first_and_a_rule_says_who_is() {
    let endpoint = endpoint();
    let order = TreeOrder {
        order: Order::Criticality,
        // Who says that it is the most critical of all is not believed; who says nothing is.
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
    // What a client says arrives, too.
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
        None => panic!("who is that?"),
    };
    // By the plan that the event came by, whatever was measured.
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
async fn a_sink_that_did_not_answer_goes_behind_those_that_did() {
    let endpoint = endpoint();
    let order = TreeOrder {
        order: Order::Reliability,
        anew_after: Duration::ZERO,
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
    // One missed event is enough. A round in which the machine was so slow that others missed theirs, too, judges
    // nothing.
    for round in 1..20 {
        let missed = host.state().borrow().tree.missed;
        first.silent.store(true, Ordering::Relaxed);
        host.notify(REPORT, report(round * 2)).await.unwrap();
        state(&host, "missed", |state| state.tree.missed > missed).await;
        first.silent.store(false, Ordering::Relaxed);
        host.notify(REPORT, report(round * 2 + 1)).await.unwrap();
        // It is sent the one that it missed several times.
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
async fn what_a_sink_forges_or_repeats_is_refused_counted_and_handed_out_once() {
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

    // What the source sent to somebody else; an event that the source did not sign; and one that it did, which was
    // there before, twice.
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

    // All of it was in the socket before this event, which comes by the tree like the first, or, when the machine is too
    // slow, as a standard notification.
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
    assert!(total("event came again") >= 2);
    host.stop().await;
}
