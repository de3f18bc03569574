//! Goal: a host that floods discovery prevents no other host from announcing itself, being found or
//! getting answers.
//!
//! Method: injects datagrams from one subnet, most of them from one address, into machines on a
//! simulated network.

use std::net::SocketAddr;
use std::time::Duration;

use crate::network::{Faults, Network, host};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::{Command, Event};
use chappe_dpws::discovery::target_service::{Command as TargetCommand, Event as TargetEvent};
use chappe_dpws::discovery::{Content, DropReason, Message, Probe, Target};
use chappe_dpws::eventing::message::{Subscribe, action};
use chappe_dpws::exchange::request;
use chappe_soap::EndpointReference;
use chappe_xml::Name;

/// Packets per second that exhaust the answer rate of a subnet (20 per second).
const SMALL_FLOOD_PER_S: u64 = 49;

/// A host of the subnet 192.0.2.0/24.
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
fn flooding_client_does_not_silence_its_subnet() {
    let endpoint = "urn:uuid:asked";
    let request_contents = [
        Content::Probe(Probe::default()),
        Content::Resolve(EndpointReference::new(endpoint)),
    ];
    for request_content in request_contents {
        let mut network = Network::new(3, Faults::NONE);
        let target = network.target(host(2), endpoint, |_| {});
        network.command_target(target, TargetCommand::Start);
        network.run(Duration::from_secs(5));
        for number in 0..30 * SMALL_FLOOD_PER_S {
            let flood = datagram(number, request_content.clone());
            network.inject(target, of_subnet(66), true, &flood);
            if number % SMALL_FLOOD_PER_S == 0 {
                let request = datagram(100_000 + number, request_content.clone());
                network.inject(target, of_subnet(10), true, &request);
            }
            network.run(Duration::from_secs(1) / SMALL_FLOOD_PER_S as u32);
        }
        let answered = |of: SocketAddr| {
            let to = |event: &TargetEvent| matches!(event, TargetEvent::Answered { to, .. } if *to == of);
            let events = network.target_events.iter();
            events.filter(|(_, event)| to(event)).count()
        };
        assert_eq!(answered(of_subnet(10)), 30, "one answer per second");
        assert!(
            answered(of_subnet(66)) <= 200 + 30 * 20,
            "the flooding host is limited to its rate"
        );
    }
}

/// Subscribe is a message of HTTP alone.
#[test]
fn thousand_subscribes_by_datagram_get_no_answer_and_delay_no_probe() {
    let mut network = Network::new(6, Faults::NONE);
    let target = network.target(host(2), "urn:uuid:asked", |_| {});
    network.command_target(target, TargetCommand::Start);
    network.run(Duration::from_secs(5));
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("urn:uuid:asked");
    let message = Subscribe {
        end_to: None,
        mode: None,
        notify_to: Some(EndpointReference::new("soap.udp://192.0.2.66:3702")),
        expires: None,
        filter: None,
        tree: Ok(None),
    };
    let (sent, flood) = (network.sent.len(), 1_000);
    for number in 0..flood {
        let id = format!("urn:uuid:00000000-0000-4000-8000-{number:012}");
        let envelope = request(version, &to, action::SUBSCRIBE, id);
        let envelope = envelope.with_body(message.to_element(version));
        let is_multicast = number % 2 == 0;
        let bytes = envelope.to_text().into_bytes();
        network.inject(target, of_subnet(66), is_multicast, &bytes);
    }
    assert_eq!(network.sent.len(), sent);
    let drops = network.target_machine(target).drops();
    let reasons = [DropReason::NotDiscovery, DropReason::RateLimited];
    let counted: u64 = reasons.map(|reason| drops.count(reason)).iter().sum();
    assert_eq!(counted, flood, "{drops:?}");
    let probe = datagram(100_000, Content::Probe(Probe::default()));
    network.inject(target, of_subnet(10), true, &probe);
    network.run(Duration::from_secs(1));
    let answered = |event: &TargetEvent| matches!(event, TargetEvent::Answered { to, .. } if *to == of_subnet(10));
    let mut events = network.target_events.iter();
    assert!(events.any(|(_, event)| answered(event)));
}

#[test]
fn flood_of_hellos_hides_no_neighbour() {
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
fn one_host_cannot_use_all_resolves() {
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
    let request: Vec<_> = texts
        .filter(|text| text.contains("urn:uuid:real-"))
        .collect();
    for number in (99..30 * 100).step_by(100) {
        let name = format!("urn:uuid:real-{number}<");
        assert!(request.iter().any(|text| text.contains(&name)), "{name}");
    }
}

#[test]
fn full_table_admits_other_hosts() {
    let mut network = Network::new(6, Faults::NONE);
    let client = network.client(host(1), |config| config.table_capacity = 20);
    for number in 0..40 {
        let endpoint = format!("urn:uuid:one-of-many-{number}");
        let flood = hello(number, &endpoint, Some(of_subnet(66)));
        network.inject(client, of_subnet(66), true, &flood);
        network.run(Duration::from_millis(10));
        let endpoint = endpoint.into();
        network.command_client(client, Command::Confirm { endpoint });
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
        network.command_client(client, Command::Confirm { endpoint });
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
fn large_descriptions_displace_no_other_device() {
    let mut network = Network::new(7, Faults::NONE);
    let client = network.client(host(1), |_| {});
    let gateway = |number: u64| format!("urn:uuid:at-the-gateway-{number}");
    for number in 0..200 {
        let hello = hello(number, &gateway(number), Some(of_subnet(10)));
        network.inject(client, of_subnet(10), true, &hello);
        let endpoint = gateway(number).into();
        network.command_client(client, Command::Confirm { endpoint });
    }
    // The datagram stays small because the namespace is declared once.
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
    let known = (0..200).filter(|number| machine.known(&gateway(*number)).is_some());
    assert_eq!(known.count(), 200);
    assert_eq!(machine.drops().count(DropReason::TooLarge), 400);
}

#[test]
fn gateway_may_announce_thousand_devices() {
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
fn two_hundred_clients_of_one_host_get_answers() {
    let mut network = Network::new(9, Faults::NONE);
    let target = network.target(host(2), "urn:uuid:asked", |_| {});
    network.command_target(target, TargetCommand::Start);
    network.run(Duration::from_secs(5));
    for number in 0..200 {
        let request = datagram(number, Content::Probe(Probe::default()));
        let client = SocketAddr::new(of_subnet(10).ip(), 40_000 + number as u16);
        network.inject(target, client, true, &request);
    }
    let machine = network.target_machine(target);
    assert_eq!(machine.drops().count(DropReason::RateLimited), 0);
}
