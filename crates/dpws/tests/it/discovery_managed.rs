//! Goal: devices register with discovery proxies, renew that and leave, and clients that use a proxy are back at
//! multicast when it is gone.
//!
//! Method: the real machines on virtual time, alone and on a network that loses datagrams; a proxy that ends and
//! returns at each moment of a period.

use std::net::SocketAddr;
use std::time::Duration;

use crate::network::{Faults, Network, host, interface, sender_host_only};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::managed::{self, Managed};
use chappe_dpws::discovery::target_service::{self, Event as TargetEvent};
use chappe_dpws::discovery::{
    Client, Content, Inbound, MatchRule, Message, Outbound, Target, TargetService, client,
};
use chappe_machine::{Harness, Input, Output};
use chappe_soap::udp::DISCOVERY_PORT;
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::Str;

#[test]
fn a_target_service_registers_renews_and_leaves() {
    let proxy: SocketAddr = "198.51.100.7:3702".parse().expect("an address");
    let mut config = target_service::Config::new("urn:a", 1, 7);
    let xaddr = Str::from("http://192.0.2.1:5357/device");
    config.interfaces = vec![(interface(1, host(1).ip()), vec![xaddr.clone()])];
    (config.proxies, config.announces_by_http) = (vec![proxy], true);
    config.dialects = Dialect::ALL.to_vec();
    let mut harness = Harness::new(TargetService::new(config), 7);
    let split = |outputs: Vec<Output<Outbound, TargetEvent>>| {
        let (mut datagrams, mut posts) = (0, Vec::new());
        for output in outputs {
            match output {
                Output::Transmit(datagram) => datagrams += usize::from(datagram.to == proxy),
                Output::Event(TargetEvent::Announcement { text, .. }) => posts.push(text),
                Output::Event(_) => {}
            }
        }
        (datagrams, posts)
    };
    let started = harness.input(Input::Command(target_service::Command::Start));
    let (datagrams, posts) = split(started.expect("no violation"));
    assert_eq!((datagrams, posts.len()), (2, 2), "one in each dialect");
    for text in &posts {
        let message = Message::from_envelope(&Envelope::parse(text.as_bytes()).expect("XML"));
        let Content::Hello(said) = message.expect("a message").content else {
            panic!("{text}");
        };
        assert_eq!(said.xaddrs, std::slice::from_ref(&xaddr));
    }
    let later = harness.advance(Duration::from_secs(130));
    let (datagrams, posts) = split(later.expect("no violation"));
    assert_eq!(posts.len(), 4, "two renewals");
    // A copy of the first Hello, and both copies of the renewals.
    assert_eq!(datagrams, 2 + 2 * 4);
    let stopped = harness.input(Input::Command(target_service::Command::Stop));
    let mut outputs = stopped.expect("no violation");
    outputs.extend(
        harness
            .advance(Duration::from_secs(200))
            .expect("no violation"),
    );
    let (datagrams, posts) = split(outputs);
    assert_eq!((datagrams, posts.len()), (4, 2));
    assert!(posts[0].contains("Bye"));
}

/// On a network that loses a third of the datagrams and lets no multicast through, renewals bring every device to the
/// proxy; a client learns of the proxy by its answer.
#[test]
fn lossy_networks_without_multicast_fill_the_proxy() {
    for seed in 0..5 {
        let faults = Faults {
            loss: 33,
            duplication: 10,
            latency_max: Duration::from_millis(200),
        };
        let mut network = Network::new(seed, faults);
        let at = host(200);
        let proxy = network.proxy(at);
        network.move_to(proxy, 1);
        let asked = SocketAddr::new(at.ip(), DISCOVERY_PORT);
        let devices: Vec<usize> = (1..=20)
            .map(|number| {
                network.target(host(number), &format!("urn:device:{number}"), |config| {
                    config.proxies = vec![asked];
                })
            })
            .collect();
        // As EXI all matches would have room in the answer.
        let client = network.client(host(100), |config| config.exi = false);
        network.move_to(client, 2);
        for device in &devices {
            network.command_target(*device, target_service::Command::Start);
        }
        network.run(Duration::from_secs(360));
        assert_eq!(network.proxy_machine(proxy).entries(), 20, "seed {seed}");
        for id in 1..=10 {
            let probe = client::Command::DirectedProbe {
                id,
                to: asked,
                types: Vec::new(),
                scopes: Vec::new(),
                match_by: MatchRule::default(),
                timeout: Duration::from_secs(5),
            };
            network.command_client(client, probe);
            network.run(Duration::from_secs(6));
        }
        let is_proxy = |(at, event): &(usize, client::Event)| {
            *at == client && matches!(event, client::Event::Proxy { .. })
        };
        assert!(network.client_events.iter().any(is_proxy), "seed {seed}");
        // Their Byes by UDP are hints; without renewals they end.
        for device in &devices {
            network.command_target(*device, target_service::Command::Stop);
        }
        network.run(Duration::from_secs(60));
        assert_eq!(network.proxy_machine(proxy).entries(), 20, "seed {seed}");
        network.run(Duration::from_secs(600));
        assert_eq!(network.proxy_machine(proxy).entries(), 0, "seed {seed}");
    }
}

#[test]
fn a_proxy_silences_multicast_only_by_command() {
    let config = client::Config::new(vec![interface(1, host(1).ip())], 7);
    let mut harness = Harness::new(Client::new(config, sender_host_only), 7);
    let probe = |id| client::Command::Probe {
        id,
        types: Vec::new(),
        scopes: Vec::new(),
        match_by: MatchRule::default(),
        timeout: Duration::from_secs(1),
    };
    let multicasts = |outputs: &[Output<Outbound, client::Event>]| {
        let sent = outputs
            .iter()
            .filter(|output| matches!(output, Output::Transmit(_)));
        sent.count()
    };
    // Anybody's claim to be a proxy is an event, once.
    let mut events = 0;
    for id in 0..40 {
        let outputs = harness.input(hello_of_proxy(&format!("urn:{}", id % 20), 8_474, id));
        events += reported(&outputs.expect("no violation"));
    }
    assert_eq!(events, 8, "the flood is bounded");
    assert_eq!(harness.machine().all_known().count(), 0);
    let asked = harness
        .input(Input::Command(probe(1)))
        .expect("no violation");
    assert_eq!(multicasts(&asked), 3, "the groups are asked still");
    for (is_managed, expected) in [(true, 0), (false, 3)] {
        harness
            .advance(Duration::from_secs(5))
            .expect("no violation");
        let mode = client::Command::SetManaged(is_managed);
        harness.input(Input::Command(mode)).expect("no violation");
        let asked = harness
            .input(Input::Command(probe(2)))
            .expect("no violation");
        assert_eq!(multicasts(&asked), expected);
    }
}

/// The Hello of a discovery proxy at a port of host 66.
fn hello_of_proxy(endpoint: &str, port: u32, id: u32) -> Input<Inbound, client::Command> {
    let own = Target {
        types: vec![Dialect::V2009.proxy_type()],
        xaddrs: vec![format!("http://{}:{port}/", host(66).ip()).into()],
        endpoint: EndpointReference::new(endpoint.to_owned()),
        ..Target::default()
    };
    of_proxy(Content::Hello(own), id)
}

fn of_proxy(content: Content, id: u32) -> Input<Inbound, client::Command> {
    let message = Message {
        dialect: Dialect::V2009,
        message_id: format!("urn:p:{id}").into(),
        relates_to: None,
        to: None,
        reply_to: None,
        sequence: None,
        content,
    };
    Input::Receive(Inbound {
        from: host(66),
        interface: 1,
        multicast: false,
        bytes: message.to_envelope(&[]).to_text().into_bytes(),
    })
}

/// The number of reports of discovery proxies.
fn reported(outputs: &[Output<Outbound, client::Event>]) -> usize {
    let is_proxy =
        |output: &&Output<_, _>| matches!(output, Output::Event(client::Event::Proxy { .. }));
    outputs.iter().filter(is_proxy).count()
}

/// Each report makes the application connect, so a sender cannot cause one with every message: neither by another
/// address of one endpoint each time, nor by a Bye before each.
#[test]
fn reports_of_one_sender_are_limited_by_rate() {
    for says_bye in [false, true] {
        let config = client::Config::new(vec![interface(1, host(1).ip())], 7);
        let mut harness = Harness::new(Client::new(config, sender_host_only), 7);
        let mut events = 0;
        for id in 0..100 {
            let outputs = harness.input(hello_of_proxy("urn:one", 20_000 + id, id));
            events += reported(&outputs.expect("no violation"));
            if says_bye {
                let leaving = Target {
                    endpoint: EndpointReference::new("urn:one".to_owned()),
                    ..Target::default()
                };
                harness
                    .input(of_proxy(Content::Bye(leaving), 1_000 + id))
                    .expect("no violation");
            }
            harness
                .advance(Duration::from_millis(50))
                .expect("no violation");
        }
        assert_eq!(events, 8 + 4, "eight at once, and one a second for 5 s");
        harness
            .advance(Duration::from_secs(1))
            .expect("no violation");
        let outputs = harness.input(hello_of_proxy("urn:one", 9, 101));
        assert_eq!(reported(&outputs.expect("no violation")), 1);
        // The application could not use it, and wants to hear it again.
        let endpoint = Str::from("urn:one");
        harness
            .input(Input::Command(client::Command::Forget { endpoint }))
            .expect("no violation");
        harness
            .advance(Duration::from_secs(1))
            .expect("no violation");
        let outputs = harness.input(hello_of_proxy("urn:one", 9, 102));
        assert_eq!(reported(&outputs.expect("no violation")), 1);
    }
}

/// The time from a proxy's end to the fall-back, and from its return to its use, for each moment of a period.
#[test]
fn clients_fall_back_within_ten_seconds_and_return() {
    for offset_ms in (0..2_000).step_by(50) {
        let mut harness = Harness::new(Managed::default(), offset_ms);
        let mut is_there = true;
        let mut mode = None;
        let mut at_ms = 0_u64;
        // Checks that hang until the time limit, the worst case, are answered late.
        let mut late: Vec<(u64, managed::Checked)> = Vec::new();
        let end_ms = 5_000 + offset_ms;
        let (mut fell_back, mut returned) = (None, None);
        let mut outputs = harness
            .input(Input::Command(managed::Command::Add))
            .expect("no violation");
        while at_ms < 40_000 {
            while let Some(output) = outputs.pop() {
                match output {
                    Output::Transmit(managed::Check { proxy }) => {
                        let answered = is_there;
                        let after = match answered {
                            true => 10,
                            false => 2_000,
                        };
                        late.push((at_ms + after, managed::Checked { proxy, answered }));
                    }
                    Output::Event(managed::Event::Mode { is_managed }) => {
                        mode = Some(is_managed);
                        match is_managed {
                            false => fell_back = Some(at_ms),
                            true if fell_back.is_some() => returned = Some(at_ms),
                            true => {}
                        }
                    }
                    Output::Event(_) => {}
                }
            }
            at_ms += 10;
            if at_ms == end_ms {
                is_there = false;
            }
            if at_ms == 25_000 {
                is_there = true;
            }
            outputs = harness
                .advance(Duration::from_millis(10))
                .expect("no violation");
            let due = late.iter().filter(|(when, _)| *when <= at_ms).copied();
            for (_, checked) in due.collect::<Vec<_>>() {
                let more = harness
                    .input(Input::Receive(checked))
                    .expect("no violation");
                outputs.extend(more);
            }
            late.retain(|(when, _)| *when > at_ms);
        }
        let fell_back = fell_back.expect("it falls back") - end_ms;
        let returned = returned.expect("it returns") - 25_000;
        assert!(fell_back <= 8_100, "after {fell_back} ms");
        assert!(returned <= 4_100, "after {returned} ms");
        assert_eq!(mode, Some(true));
    }
}
