//! Goal: on a network with loss, duplication and reordering, every client finds every device, and
//! all bounds on traffic and memory hold.
//!
//! Method: seeded networks of real machines in the harness, which checks their invariants after
//! every input. A failure prints the seed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::network::{Faults, Network, host};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::{Command, Event};
use chappe_dpws::discovery::target_service::Command as TargetCommand;
use chappe_dpws::discovery::{DropReason, Interface, MatchRule, Message, Target};
use chappe_soap::Envelope;

fn probe(id: u64) -> Command {
    Command::Probe {
        id,
        types: vec![Dialect::V2009.device_type()],
        scopes: Vec::new(),
        match_by: MatchRule::default(),
        timeout: Duration::from_secs(10),
    }
}

fn found(network: &Network, client: usize) -> BTreeSet<String> {
    let events = network
        .client_events
        .iter()
        .filter(|(host, _)| *host == client);
    let found = events.filter_map(|(_, event)| match event {
        Event::Found { target, .. } => Some(target.endpoint.address.to_string()),
        _ => None,
    });
    found.collect()
}

fn read(bytes: &[u8]) -> Message {
    Message::from_envelope(&Envelope::parse(bytes).expect("an envelope")).expect("a message")
}

#[test]
fn lossy_network_finds_every_device() {
    for seed in 0..8 {
        let faults = Faults {
            loss: 15,
            duplication: 20,
            latency_max: Duration::from_millis(300),
        };
        let mut network = Network::new(seed, faults);
        let endpoints: BTreeSet<_> = (0..20).map(|n| format!("urn:uuid:device-{n}")).collect();
        let mut targets = Vec::new();
        for (endpoint, n) in endpoints.iter().zip(10..) {
            targets.push(network.target(host(n), endpoint, |_| {}));
        }
        let clients = [
            network.client(host(1), |_| {}),
            network.client(host(2), |_| {}),
        ];
        // Half of the devices start before the clients' Probes, half between them.
        for target in &targets[..10] {
            network.command_target(*target, TargetCommand::Start);
        }
        network.run(Duration::from_secs(1));
        for client in clients {
            network.command_client(client, probe(1));
        }
        for target in &targets[10..] {
            network.command_target(*target, TargetCommand::Start);
        }
        for id in 2..5 {
            network.run(Duration::from_secs(11));
            for client in clients {
                network.command_client(client, probe(id));
            }
        }
        network.run(Duration::from_secs(11));
        for client in clients {
            assert_eq!(
                found(&network, client),
                endpoints,
                "seed {seed}, client {client}"
            );
            let ended = network.client_events.iter().filter(|(from, event)| {
                *from == client && matches!(event, Event::ProbeEnded { .. })
            });
            assert_eq!(ended.count(), 4, "seed {seed}");
        }
        // Per device two Hellos and, for each of 2 clients' 4 Probes, at most one answer in two
        // copies. The Probes are 2 clients x 4 x 2 dialects x 2 copies.
        let limit = 20 * 2 + 20 * 2 * 4 * 2 + 2 * 4 * 2 * 2;
        assert!(
            network.sent.len() <= limit,
            "seed {seed}: {} sent",
            network.sent.len()
        );
    }
}

#[test]
fn device_is_found_updated_and_forgotten() {
    let mut network = Network::new(1, Faults::NONE);
    let client = network.client(host(1), |_| {});
    let target = network.target(host(2), "urn:uuid:one", |_| {});
    network.command_target(target, TargetCommand::Start);
    network.run(Duration::from_secs(4));
    assert_eq!(found(&network, client).len(), 1, "found by its Hello");
    network.command_client(
        client,
        Command::Confirm {
            endpoint: "urn:uuid:one".into(),
        },
    );

    let types = vec![
        Dialect::V2009.device_type(),
        chappe_xml::Name::new("urn:x", "Pump"),
    ];
    let update = TargetCommand::Update {
        types: types.clone(),
        scopes: vec!["http://a".into()],
        metadata_version: 2,
    };
    network.command_target(target, update);
    network.run(Duration::from_secs(4));
    let hello = network
        .client_events
        .iter()
        .any(|(_, event)| matches!(event, Event::Hello { differs: true, .. }));
    assert!(hello, "a changed Hello is reported");
    let changed = network
        .client_events
        .iter()
        .find_map(|(_, event)| match event {
            Event::Changed { target, .. } => Some(target.clone()),
            _ => None,
        });
    let changed = changed.expect("verified by Resolve");
    assert_eq!((changed.types, changed.metadata_version), (types, 2));

    network.command_target(target, TargetCommand::Stop);
    network.run(Duration::from_secs(11));
    let bye = network.client_events.iter().any(|(_, event)| {
        matches!(
            event,
            Event::ByeHint {
                same_source: true,
                ..
            }
        )
    });
    let unanswered = network.client_events.iter().any(|(_, event)| {
        matches!(
            event,
            Event::ResolveEnded {
                answered: false,
                ..
            }
        )
    });
    assert!(bye && unanswered, "{:?}", network.client_events);
    assert!(
        network
            .client_machine(client)
            .known("urn:uuid:one")
            .is_some(),
        "never removed"
    );
    network.command_client(
        client,
        Command::Forget {
            endpoint: "urn:uuid:one".into(),
        },
    );
    assert!(
        network
            .client_machine(client)
            .known("urn:uuid:one")
            .is_none()
    );
    let drops = network.client_machine(client).drops();
    let explained = [
        DropReason::Duplicate,
        DropReason::Own,
        DropReason::OtherRole,
        // The second answer to a verification, which is sent by unicast and multicast.
        DropReason::Unrelated,
    ];
    let explained: u64 = explained.map(|reason| drops.count(reason)).iter().sum();
    assert_eq!(drops.total(), explained, "{drops:?}");
}

#[test]
fn forged_messages_neither_remove_nor_move_devices() {
    for seed in 0..2 {
        let mut network = Network::new(seed, Faults::NONE);
        let client = network.client(host(1), |config| {
            config.source_share = 16;
            config.table_capacity = 64;
        });
        let mut devices = Vec::new();
        for n in 0..20 {
            let endpoint = format!("urn:uuid:device-{n}");
            let target = network.target(host(10 + n), &endpoint, |_| {});
            network.command_target(target, TargetCommand::Start);
            devices.push(endpoint);
        }
        network.run(Duration::from_secs(4));
        for endpoint in &devices {
            network.command_client(
                client,
                Command::Confirm {
                    endpoint: endpoint.clone().into(),
                },
            );
        }
        let before: Vec<Target> = devices
            .iter()
            .map(|endpoint| {
                let known = network.client_machine(client).known(endpoint);
                known.expect("found").target.clone()
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(seed);
        for n in 0..2_000_u32 {
            let stranger = std::net::SocketAddr::from(([198, 51, 100, random.u8(1..4)], 9));
            let endpoint = match n % 3 {
                0 => format!("urn:uuid:forged-{n}"),
                _ => devices[random.usize(..devices.len())].clone(),
            };
            let target = Target {
                endpoint: chappe_soap::EndpointReference::new(endpoint),
                xaddrs: vec![format!("http://{}:1/", stranger.ip()).into()],
                metadata_version: n + 2,
                ..Target::default()
            };
            let content = match n % 2 {
                0 => chappe_dpws::discovery::Content::Hello(target),
                _ => chappe_dpws::discovery::Content::Bye(target),
            };
            let message = Message {
                dialect: Dialect::V2009,
                message_id: format!("urn:uuid:f-{n}").into(),
                relates_to: None,
                to: None,
                reply_to: None,
                sequence: Some(chappe_dpws::discovery::AppSequence {
                    instance_id: u32::MAX,
                    sequence_id: None,
                    message_number: n,
                }),
                content,
            };
            let bytes = message.to_envelope(&[]).to_text();
            network.inject(client, stranger, true, bytes.as_bytes());
            if n % 100 == 0 {
                network.run(Duration::from_millis(100));
            }
        }
        network.run(Duration::from_secs(11));
        let machine = network.client_machine(client);
        for (endpoint, before) in devices.iter().zip(&before) {
            let known = machine.known(endpoint).map(|known| &known.target);
            assert_eq!(known, Some(before), "seed {seed}: {endpoint}");
        }
        assert!(machine.all_known().count() <= 64, "seed {seed}");
        let moved = network
            .client_events
            .iter()
            .any(|(_, event)| matches!(event, Event::Changed { .. }));
        assert!(!moved, "seed {seed}");
        // Forged messages must not make this host send more than three times their bytes.
        let resolves = network.sent.iter().filter(|(_, from, _)| *from == client);
        let bytes: usize = resolves.map(|(_, _, datagram)| datagram.bytes.len()).sum();
        assert!(bytes < 3 * 2_000 * 600, "seed {seed}: {bytes}");
    }
}

#[test]
fn hellos_fit_their_interface_and_are_numbered() {
    let mut network = Network::new(3, Faults::NONE);
    let target = network.target(host(2), "urn:uuid:two", |config| {
        let addresses = vec![
            "198.51.100.2".parse().expect("v4"),
            "fe80::2".parse().expect("v6"),
        ];
        let second = Interface {
            index: 2,
            addresses,
        };
        let xaddrs = vec![
            "http://198.51.100.2:5357/".into(),
            "http://[fe80::2]:5357/".into(),
        ];
        config.interfaces.push((second, xaddrs));
        config.app_max_delay = Duration::from_millis(500);
    });
    network.command_target(target, TargetCommand::Start);
    network.run(Duration::from_secs(2));
    let mut by_interface = std::collections::BTreeMap::new();
    let mut numbers = Vec::new();
    for (_, _, datagram) in &network.sent {
        let message = read(&datagram.bytes);
        let chappe_dpws::discovery::Content::Hello(hello) = message.content else {
            panic!("only Hello is sent");
        };
        let sequence = message.sequence.expect("AppSequence");
        if !numbers.contains(&sequence.message_number) {
            numbers.push(sequence.message_number);
        }
        let interface = (datagram.interface, datagram.to.is_ipv4());
        by_interface
            .entry(interface)
            .or_insert_with(Vec::new)
            .push(hello.xaddrs.join(" "));
    }
    assert_eq!(numbers, [1, 2, 3], "numbered in order of sending");
    let expected = [
        ((1, true), "http://192.0.2.2:5357/urn:uuid:two"),
        ((2, false), "http://[fe80::2]:5357/"),
        ((2, true), "http://198.51.100.2:5357/"),
    ];
    for (interface, xaddr) in expected {
        assert_eq!(
            by_interface[&interface],
            [xaddr, xaddr],
            "two copies at {interface:?}"
        );
    }
    assert_eq!(by_interface.len(), 3);
}

#[test]
fn one_probe_finds_two_hundred_devices() {
    let mut network = Network::new(5, Faults::NONE);
    network.separate_roles = true;
    let client = network.client(host(1), |_| {});
    for n in 0..200_u8 {
        let address = std::net::SocketAddr::from(([203, 0, 113, n], 50_000));
        let target = network.target(address, &format!("urn:uuid:device-{n}"), |config| {
            config.app_max_delay = Duration::ZERO;
        });
        network.command_target(target, TargetCommand::Start);
    }
    network.command_client(client, probe(1));
    network.run(Duration::from_secs(10));
    let ended = network
        .client_events
        .iter()
        .find_map(|(_, event)| match event {
            Event::ProbeEnded { count, .. } => Some(*count),
            _ => None,
        });
    assert_eq!(ended, Some(200));
}
