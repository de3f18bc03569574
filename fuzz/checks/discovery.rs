//! Invariants of the discovery machines for any sequence of datagrams.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::target_service::{self, AMPLIFICATION_MAX};
use chappe_dpws::discovery::{
    Client, Inbound, Interface, Message, Outbound, Proxy, Target, TargetService, client, proxy,
};
use chappe_machine::{Harness, Input, Output};
use chappe_soap::{EndpointReference, Envelope};

use crate::bounds::Bound;

/// Three machines with twelve datagrams each, whose trees are 1 MiB at most and are gone before the
/// next comes; 70 bytes of tree for a byte is the most, and the part that the machines keep is bounded.
const BOUND: Bound = Bound::memory(4 << 20, 250);

const ENDPOINT: &str = "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8";

/// Datagrams are separated by a zero byte, which XML cannot hold; `urn:q` stands for the
/// identifier of the client's open question.
///
/// No panic, no broken invariant; a target service answers nothing that does not parse, and never
/// with more than [`AMPLIFICATION_MAX`] times the bytes.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    for multicast in [true, false] {
        target_service(data, multicast);
        client(data, multicast);
        discovery_proxy(data, multicast);
    }
}

fn datagrams(data: &[u8], multicast: bool) -> impl Iterator<Item = Inbound> + '_ {
    data.split(|byte| *byte == 0)
        .take(12)
        .map(move |bytes| Inbound {
            from: "192.0.2.9:40000".parse().expect("an address"),
            interface: 1,
            multicast,
            bytes: bytes.to_vec(),
        })
}

fn interface() -> Interface {
    Interface {
        index: 1,
        addresses: vec!["192.0.2.1".parse().expect("an address")],
    }
}

fn sent<E>(outputs: Vec<Output<Outbound, E>>) -> Vec<Outbound> {
    let sent = outputs.into_iter().filter_map(|output| match output {
        Output::Transmit(datagram) => Some(datagram),
        Output::Event(_) => None,
    });
    sent.collect()
}

fn target_service(data: &[u8], multicast: bool) {
    let mut config = target_service::Config::new(ENDPOINT, 1, 7);
    config.interfaces = vec![(interface(), vec!["http://192.0.2.1:5357/".into()])];
    config.types = vec![Dialect::V2009.device_type()];
    config.scopes = vec!["http://example.org/a/b".into()];
    let mut harness = Harness::new(TargetService::new(config), 7);
    harness
        .input(Input::Command(target_service::Command::Start))
        .unwrap_or_else(|violation| panic!("{violation}"));
    let pass = Duration::from_secs(5);
    harness
        .advance(pass)
        .unwrap_or_else(|violation| panic!("{violation}"));
    for datagram in datagrams(data, multicast) {
        let (asker, size) = (datagram.from, datagram.bytes.len());
        let parses = Envelope::parse(&datagram.bytes)
            .is_ok_and(|envelope| Message::from_envelope(&envelope).is_ok());
        let mut outputs = harness
            .input(Input::Receive(datagram))
            .unwrap_or_else(|violation| panic!("{violation}"));
        let later = harness.advance(pass);
        outputs.append(&mut later.unwrap_or_else(|violation| panic!("{violation}")));
        let answers = sent(outputs);
        let bytes: usize = answers.iter().map(|answer| answer.bytes.len()).sum();
        assert!(
            parses || answers.is_empty(),
            "an answer to what does not parse"
        );
        assert!(
            bytes <= AMPLIFICATION_MAX * size,
            "{bytes} bytes for {size}"
        );
        assert!(
            answers.iter().all(|answer| answer.to == asker),
            "an answer elsewhere"
        );
    }
}

/// A proxy with one confirmed entry of another host, which no message changes; each message comes as a datagram and
/// by HTTP, and answers of datagrams are bounded.
fn discovery_proxy(data: &[u8], multicast: bool) {
    let mut config = proxy::Config::new("urn:uuid:00000000-0000-4000-8000-000000000001", 1, 7);
    config.interfaces = vec![(interface(), vec!["http://192.0.2.1:8474/".into()])];
    let policy = |xaddr: &str, _: std::net::SocketAddr| match xaddr.contains("192.0.2.") {
        true => Ok(()),
        false => Err("another network".to_owned()),
    };
    let mut harness = Harness::new(Proxy::new(config, policy), 7);
    let target = Target {
        endpoint: EndpointReference::new(ENDPOINT),
        types: vec![Dialect::V2009.device_type()],
        xaddrs: vec!["http://192.0.2.5:5357/".into()],
        ..Target::default()
    };
    let learn = proxy::Command::Learn {
        target: target.clone(),
        dialect: Dialect::V2009,
        from: "192.0.2.5:5357".parse().expect("an address"),
    };
    harness
        .input(Input::Command(learn))
        .unwrap_or_else(|violation| panic!("{violation}"));
    let pass = Duration::from_secs(5);
    for datagram in datagrams(data, multicast) {
        let (asker, size) = (datagram.from, datagram.bytes.len());
        let envelope = Envelope::parse(&datagram.bytes);
        let mut outputs = harness
            .input(Input::Receive(datagram))
            .unwrap_or_else(|violation| panic!("{violation}"));
        let later = harness.advance(pass);
        outputs.append(&mut later.unwrap_or_else(|violation| panic!("{violation}")));
        let answers = sent(outputs);
        let bytes: usize = answers.iter().map(|answer| answer.bytes.len()).sum();
        assert!(
            bytes <= AMPLIFICATION_MAX * size,
            "{bytes} bytes for {size}"
        );
        if let Ok(envelope) = envelope {
            let request = proxy::Request {
                token: 1,
                from: asker,
                sender: None,
                envelope,
            };
            let outputs = harness
                .input(Input::Command(proxy::Command::Request(Box::new(request))))
                .unwrap_or_else(|violation| panic!("{violation}"));
            let replies = outputs.iter().filter(|output| {
                matches!(output, Output::Event(proxy::Event::Reply { token: 1, .. }))
            });
            assert_eq!(replies.count(), 1, "one reply for a request");
        }
        assert_eq!(harness.machine().offered(ENDPOINT), Some(&target));
    }
}

fn client(data: &[u8], multicast: bool) {
    let config = client::Config::new(vec![interface()], 7);
    let policy = |xaddr: &str, _: std::net::SocketAddr| match xaddr.contains("192.0.2.") {
        true => Ok(()),
        false => Err("another network".to_owned()),
    };
    let mut harness = Harness::new(Client::new(config, policy), 7);
    let probe = client::Command::Probe {
        id: 1,
        types: Vec::new(),
        scopes: Vec::new(),
        timeout: Duration::from_secs(100),
    };
    let asked = harness
        .input(Input::Command(probe))
        .unwrap_or_else(|violation| panic!("{violation}"));
    let question = sent(asked).iter().find_map(|datagram| {
        let envelope = Envelope::parse(&datagram.bytes).ok()?;
        envelope.addressing.message_id
    });
    let question = question.expect("a Probe was sent");
    for mut datagram in datagrams(data, multicast) {
        if let Ok(text) = std::str::from_utf8(&datagram.bytes) {
            datagram.bytes = text.replace("urn:q", &question).into_bytes();
        }
        for step in [
            harness.input(Input::Receive(datagram)),
            harness.advance(Duration::from_millis(700)),
        ] {
            step.unwrap_or_else(|violation| panic!("{violation}"));
        }
    }
}
