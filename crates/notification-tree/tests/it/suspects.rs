//! Goal: suspects stay suspects in the next version of the list, at sources and at forwarders; a sink that
//! returns under another address is not a suspect.
//! Method: real machines and datagrams on a virtual clock; times are compared with one another.

use std::sync::Arc;
use std::time::Duration;

use crate::net::{Net, TOPIC, keyed};
use chappe_notification_tree::{Choice, Command, Config, Contact, Keys, Membership, Plan, SOURCE};

/// The sinks of the first list, and one that is added later.
const SINKS: usize = 41;
const LATER: usize = 40;
/// A tenth. With two halves the first one is the first head of all, and the others are heads below it.
const DEAD: [usize; 4] = [0, 10, 20, 30];
/// Heads that only forwarders send to.
const DEAD_BELOW: [usize; 4] = [1, 11, 21, 31];
const SECOND: Duration = Duration::from_secs(1);
/// The precision of an arrival.
const STEP: Duration = Duration::from_micros(100);

/// A network without the later sink, some dead.
fn network(dead: [usize; 4]) -> Net<Keys> {
    let config = Config {
        plan: Choice::Fixed(Plan::TwoHalves),
        ..Config::default()
    };
    let mut net = keyed(SINKS as u8, config, false);
    net.tamper = Box::new(move |from, to, _| !dead.contains(&from) && !dead.contains(&to));
    let sinks = net.contacts[..LATER].to_vec();
    list(&mut net, 2, &sinks);
    net
}

/// Passes all nodes a list.
fn list(net: &mut Net<Keys>, version: u32, sinks: &[Contact]) {
    let list = Arc::new(Membership::new(TOPIC, version, sinks.to_vec()).expect("apart"));
    for node in 0..net.nodes.len() {
        let number = match node == net.source() {
            true => Some(SOURCE),
            false => list.number(&net.contacts[node]),
        };
        let membership = Arc::clone(&list);
        net.command(node, Command::Membership { membership, number });
    }
}

/// The list with the later sink in front, so that every number changes.
fn with_later(net: &Net<Keys>) -> Vec<Contact> {
    let mut sinks = net.contacts[..LATER].to_vec();
    sinks.insert(0, net.contacts[LATER]);
    sinks
}

/// Publishes an event; returns the time until the last of the live sinks has it.
fn event(net: &mut Net<Keys>, live: usize) -> Duration {
    let began = net.now;
    let had = |net: &Net<Keys>| net.delivered.iter().map(Vec::len).sum::<usize>();
    let before = had(net);
    net.publish(b"event");
    while had(net) < before + live {
        assert!(net.now < began + SECOND * 10, "a live sink is left out");
        net.run(STEP);
    }
    let took = net.now.saturating_since(began);
    net.run(SECOND * 6);
    took
}

fn taken_over(net: &Net<Keys>) -> u64 {
    net.nodes.iter().map(|it| it.counters().taken_over).sum()
}

#[test]
fn suspects_survive_a_new_list() {
    let live = SINKS - DEAD.len();
    let mut net = network(DEAD);
    event(&mut net, live - 1);
    let known = taken_over(&net);
    assert!(known > 0, "a node met the dead sinks");
    let sinks = with_later(&net);
    list(&mut net, 3, &sinks);
    let took = event(&mut net, live);
    assert_eq!(taken_over(&net), known, "no node meets them again");

    let mut net = network(DEAD);
    let sinks = with_later(&net);
    list(&mut net, 3, &sinks);
    let source = net.source();
    net.command(source, Command::Heartbeat { topic: TOPIC });
    net.run(SECOND * 6);
    let behind_a_heartbeat = event(&mut net, live);
    assert!(
        took <= behind_a_heartbeat,
        "{took:?} {behind_a_heartbeat:?}"
    );

    let mut net = network(DEAD);
    let sinks = with_later(&net);
    list(&mut net, 3, &sinks);
    let unprepared = event(&mut net, live);
    assert!(took < unprepared, "{took:?} {unprepared:?}");
}

#[test]
fn forwarders_remember_suspects() {
    let live = LATER - DEAD_BELOW.len();
    let mut net = network(DEAD_BELOW);
    event(&mut net, live);
    let source = net.source();
    let known = taken_over(&net);
    assert!(known > 0, "forwarders met the dead");
    assert_eq!(net.nodes[source].counters().taken_over, 0);
    // The source has learned of them, and stops naming them.
    for sink in 0..LATER as u32 {
        let forget = Command::Suspect {
            topic: TOPIC,
            sink,
            suspected: false,
        };
        net.command(source, forget);
    }
    let mut sinks = net.contacts[..LATER].to_vec();
    sinks.swap(38, 39);
    list(&mut net, 3, &sinks);
    event(&mut net, live);
    assert_eq!(taken_over(&net), known, "no node meets them again");
}

#[test]
fn a_sink_that_returns_under_another_address_is_no_suspect() {
    for moves in [false, true] {
        let mut net = network(DEAD);
        event(&mut net, LATER - DEAD.len());
        net.tamper = Box::new(|_, _, _| true);
        if moves {
            net.contacts[0].address.set_port(6_000);
        }
        let mut sinks = net.contacts[..LATER].to_vec();
        sinks.push(net.contacts[LATER]);
        list(&mut net, 3, &sinks);
        event(&mut net, SINKS);
        // The first sink of the list is the first head, unless it is suspected.
        let sent_on = net.nodes[0].counters().spread;
        assert_eq!(sent_on > 0, moves, "{sent_on}");
    }
}
