//! Goal: one host that floods discovery keeps no other host from being heard, found or answered.
//!
//! Method: machines on a simulated network; datagrams of hosts of one subnet are injected at given
//! times, most of them from one address.

mod network;

use std::net::SocketAddr;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::{Command, Event};
use chappe_dpws::discovery::target_service::{Command as Tell, Event as Told};
use chappe_dpws::discovery::{Content, DropReason, Message, Probe, Target};
use chappe_soap::EndpointReference;
use chappe_xml::Name;
use network::{Faults, Network, host};

/// Packets a second that were enough to silence a subnet of 20 answers a second.
const SMALL_FLOOD_PER_S: u64 = 49;

/// A host of the subnet 192.0.2.0/24, which no machine of the network is in.
fn of_subnet(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 3702))
}

fn datagram(number: u64, content: Content) -> Vec<u8> {
    let message = Message {
        dialect: Dialect::V2009,
        message_id: format!("urn:uuid:00000000-0000-4000-8000-{number:012}").into(),
        relates_to: None,
        to: None,
        reply_to: None,
        sequence: None,
        content,
    };
    message.to_envelope(&[]).to_text().into_bytes()
}

fn hello(number: u64, endpoint: &str, xaddr: Option<SocketAddr>) -> Vec<u8> {
    let xaddrs = xaddr.map(|at| format!("http://{}:5357/", at.ip()).into());
    let target = Target {
        endpoint: EndpointReference::new(endpoint.to_owned()),
        xaddrs: xaddrs.into_iter().collect(),
        metadata_version: 1,
        ..Target::default()
    };
    datagram(number, Content::Hello(target))
}

#[test]
fn a_host_that_asks_without_end_silences_none_of_its_subnet() {
    let endpoint = "urn:uuid:asked";
    let questions = [
        Content::Probe(Probe::default()),
        Content::Resolve(EndpointReference::new(endpoint)),
    ];
    for question in questions {
        let mut network = Network::new(3, Faults::NONE);
        let target = network.target(host(2), endpoint, |_| {});
        network.tell(target, Tell::Start);
        network.run(Duration::from_secs(5));
        for number in 0..30 * SMALL_FLOOD_PER_S {
            let flood = datagram(number, question.clone());
            network.inject(target, of_subnet(66), true, &flood);
            if number % SMALL_FLOOD_PER_S == 0 {
                let asked = datagram(100_000 + number, question.clone());
                network.inject(target, of_subnet(10), true, &asked);
            }
            network.run(Duration::from_secs(1) / SMALL_FLOOD_PER_S as u32);
        }
        let answered = |of: SocketAddr| {
            let to = |told: &Told| matches!(told, Told::Answered { to, .. } if *to == of);
            let events = network.target_events.iter();
            events.filter(|(_, told)| to(told)).count()
        };
        assert_eq!(answered(of_subnet(10)), 30, "once a second");
        assert!(
            answered(of_subnet(66)) <= 200 + 30 * 20,
            "and the flood at its rate"
        );
    }
}

#[test]
fn a_flood_of_announcements_drowns_none_of_its_subnet() {
    let mut network = Network::new(4, Faults::NONE);
    let client = network.client(host(1), |_| {});
    for number in 0..8_000 {
        let flood = hello(number, "urn:uuid:flood", Some(of_subnet(66)));
        network.inject(client, of_subnet(66), true, &flood);
    }
    let real = hello(100_000, "urn:uuid:real", Some(of_subnet(10)));
    network.inject(client, of_subnet(10), true, &real);
    network.run(Duration::from_secs(1));
    let machine = network.client_machine(client);
    assert!(machine.drops().count(DropReason::RateLimited) >= 3_000);
    assert!(machine.known("urn:uuid:real").is_some());
}

#[test]
fn a_host_that_has_others_asked_for_leaves_questions_for_the_rest() {
    let mut network = Network::new(5, Faults::NONE);
    let client = network.client(host(1), |_| {});
    for number in 0..30 * 100 {
        let flood = hello(number, &format!("urn:uuid:flood-{number}"), None);
        network.inject(client, of_subnet(66), true, &flood);
        if number % 100 == 99 {
            let real = hello(100_000 + number, &format!("urn:uuid:real-{number}"), None);
            network.inject(client, of_subnet(10), true, &real);
        }
        network.run(Duration::from_millis(10));
    }
    let texts = network
        .sent
        .iter()
        .map(|(_, _, sent)| String::from_utf8_lossy(&sent.bytes));
    let asked: Vec<_> = texts
        .filter(|text| text.contains("urn:uuid:real-"))
        .collect();
    for number in (99..30 * 100).step_by(100) {
        let name = format!("urn:uuid:real-{number}<");
        assert!(asked.iter().any(|text| text.contains(&name)), "{name}");
    }
}

#[test]
fn a_host_that_is_very_many_devices_keeps_none_out_of_the_table() {
    let mut network = Network::new(6, Faults::NONE);
    let client = network.client(host(1), |config| config.table_capacity = 20);
    for number in 0..40 {
        let endpoint = format!("urn:uuid:one-of-many-{number}");
        let flood = hello(number, &endpoint, Some(of_subnet(66)));
        network.inject(client, of_subnet(66), true, &flood);
        network.run(Duration::from_millis(10));
        let endpoint = endpoint.into();
        network.ask(client, Command::Confirm { endpoint });
    }
    for number in 10..20 {
        let endpoint = format!("urn:uuid:alone-{number}");
        let real = hello(
            1_000 + u64::from(number),
            &endpoint,
            Some(of_subnet(number)),
        );
        network.inject(client, of_subnet(number), true, &real);
        network.run(Duration::from_millis(10));
        let endpoint = endpoint.into();
        network.ask(client, Command::Confirm { endpoint });
    }
    let found = network
        .client_events
        .iter()
        .filter(|(_, event)| matches!(event, Event::Found { from, .. } if *from != of_subnet(66)));
    assert_eq!(found.count(), 10);
    let machine = network.client_machine(client);
    assert_eq!(machine.all_known().count(), 20);
    for number in 10..20 {
        assert!(machine.known(&format!("urn:uuid:alone-{number}")).is_some());
    }
}

#[test]
fn descriptions_as_large_as_they_can_be_displace_no_device_of_another_host() {
    let mut network = Network::new(7, Faults::NONE);
    let client = network.client(host(1), |_| {});
    let gateway = |number: u64| format!("urn:uuid:at-the-gateway-{number}");
    for number in 0..200 {
        let hello = hello(number, &gateway(number), Some(of_subnet(10)));
        network.inject(client, of_subnet(10), true, &hello);
        let endpoint = gateway(number).into();
        network.ask(client, Command::Confirm { endpoint });
    }
    // Few bytes in a datagram, since the namespace is declared once.
    let namespace = format!("urn:{}", "n".repeat(1_000));
    let types: Vec<_> = (0..128)
        .map(|n| Name::owned(namespace.as_str(), format!("t{n}")))
        .collect();
    for number in 1_000..1_400 {
        let target = Target {
            endpoint: EndpointReference::new(format!("urn:uuid:large-{number}")),
            types: types.clone(),
            xaddrs: vec![format!("http://{}:5357/", of_subnet(66).ip()).into()],
            metadata_version: 1,
            ..Target::default()
        };
        let large = datagram(number, Content::Hello(target));
        network.inject(client, of_subnet(66), true, &large);
    }
    let machine = network.client_machine(client);
    let kept = (0..200).filter(|number| machine.known(&gateway(*number)).is_some());
    assert_eq!(kept.count(), 200);
    assert_eq!(machine.drops().count(DropReason::TooLarge), 400);
}

#[test]
fn a_gateway_that_announces_a_thousand_devices_at_once_is_known_whole() {
    let mut network = Network::new(8, Faults::NONE);
    let client = network.client(host(1), |_| {});
    for number in 0..1_000 {
        let endpoint = format!("urn:uuid:at-the-gateway-{number}");
        let hello = hello(number, &endpoint, Some(of_subnet(10)));
        network.inject(client, of_subnet(10), true, &hello);
    }
    let machine = network.client_machine(client);
    assert_eq!((machine.all_known().count(), machine.evicted()), (1_000, 0));
}

#[test]
fn two_hundred_clients_of_one_host_that_start_at_once_are_answered() {
    let mut network = Network::new(9, Faults::NONE);
    let target = network.target(host(2), "urn:uuid:asked", |_| {});
    network.tell(target, Tell::Start);
    network.run(Duration::from_secs(5));
    for number in 0..200 {
        let asked = datagram(number, Content::Probe(Probe::default()));
        let client = SocketAddr::new(of_subnet(10).ip(), 40_000 + number as u16);
        network.inject(target, client, true, &asked);
    }
    let machine = network.target_machine(target);
    assert_eq!(machine.drops().count(DropReason::RateLimited), 0);
}
