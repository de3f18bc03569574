//! Goal: what other programs send is understood, and what we send is what they understand.
//!
//! Method: datagrams in the shapes (prefixes, order, omissions) that sdc11073 3.0, wsdd 0.7 and
//! cameras were seen to use, from the fuzz corpus, before real machines.

mod network;

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::{Command, Event, Via};
use chappe_dpws::discovery::target_service::{AMPLIFICATION_MAX, Command as Tell};
use chappe_dpws::discovery::{Content, DropReason, Message};
use chappe_soap::Envelope;
use chappe_xml::Name;
use network::{Faults, Network, host};

const ENDPOINT: &str = "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8";

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../fuzz/corpus/discovery/", $name))
    };
}

fn read(text: &str) -> Message {
    Message::from_envelope(&Envelope::parse(text.as_bytes()).expect("an envelope"))
        .expect("a message")
}

/// A client that has asked for everything; the text and message of each datagram it sent.
fn asking() -> (Network, usize, Vec<(String, Message)>) {
    let mut network = Network::new(1, Faults::NONE);
    let client = network.client(host(1), |_| {});
    let probe = Command::Probe {
        id: 1,
        types: Vec::new(),
        scopes: Vec::new(),
        timeout: Duration::from_secs(5),
    };
    network.ask(client, probe);
    let sent = sent(&network, 0);
    (network, client, sent)
}

fn sent(network: &Network, after: usize) -> Vec<(String, Message)> {
    let texts = network.sent[after..]
        .iter()
        .map(|(_, _, datagram)| String::from_utf8(datagram.bytes.clone()).expect("text"));
    texts.map(|text| (text.clone(), read(&text))).collect()
}

fn stranger() -> std::net::SocketAddr {
    "192.0.2.9:3702".parse().expect("an address")
}

#[test]
fn probes_are_what_the_devices_of_each_dialect_read() {
    let (_, _, sent) = asking();
    let dialects: Vec<_> = sent.iter().map(|(_, message)| message.dialect).collect();
    assert_eq!(dialects, [Dialect::V2009, Dialect::V2005, Dialect::V2005]);
    let literal = "<wsd:Types>wsdp:Device</wsd:Types>";
    assert!(
        sent[2].0.contains(literal),
        "wsdd compares text: {}",
        sent[2].0
    );
    assert!(
        sent[2]
            .0
            .contains("xmlns:wsdp=\"http://schemas.xmlsoap.org/ws/2006/02/devprof\"")
    );
    for (text, message) in &sent {
        let start = "<?xml version=\"1.0\" encoding=\"utf-8\"?><soap:Envelope xmlns:soap=";
        assert!(text.starts_with(start), "{text}");
        assert_eq!(message.to.as_deref(), Some(message.dialect.multicast_to()));
    }
    let foreign = sent[0].0.contains(Dialect::V2005.discovery());
    assert!(
        !foreign,
        "sdc11073 drops any datagram that names the other dialect"
    );
}

#[test]
fn an_sdc_provider_is_found_by_hello_and_by_probe() {
    let (mut network, client, asked) = asking();
    let id = &asked[0].1.message_id;
    let answer = sample!("sdc-probe-matches.xml").replace("urn:q", id);
    network.inject(
        client,
        "192.0.2.9:40001".parse().expect("ip"),
        false,
        answer.as_bytes(),
    );
    let found = network
        .client_events
        .iter()
        .find_map(|(_, event)| match event {
            Event::Found {
                target,
                dialect,
                via: Via::Probe,
                ..
            } => Some((target, *dialect)),
            _ => None,
        });
    let (target, dialect) = found.expect("found");
    assert_eq!(dialect, Dialect::V2009);
    let medical = "http://standards.ieee.org/downloads/11073/11073-20702-2016";
    let types = [
        Dialect::V2009.device_type(),
        Name::new(medical, "MedicalDevice"),
    ];
    assert_eq!(
        target.types, types,
        "prefixes declared on the element itself"
    );
    assert_eq!(target.xaddrs, ["http://192.0.2.9:5000/x"]);
    // It numbers every message 1: neither its Hello nor its Bye is taken for an old one.
    network.inject(
        client,
        stranger(),
        true,
        sample!("sdc-hello.xml").as_bytes(),
    );
    network.inject(client, stranger(), true, sample!("sdc-bye.xml").as_bytes());
    let bye = network
        .client_events
        .iter()
        .any(|(_, event)| matches!(event, Event::ByeHint { .. }));
    assert!(bye);
    assert_eq!(network.client_machine(client).drops().total(), 0);
}

#[test]
fn a_device_without_addresses_is_asked_for_them() {
    for (file, answered) in [
        (sample!("wsdd-probe-matches.xml"), true),
        (sample!("wsdd-hello.xml"), false),
    ] {
        let (mut network, client, asked) = asking();
        let before = network.sent.len();
        let text = file.replace("urn:q", &asked[2].1.message_id);
        network.inject(client, stranger(), false, text.as_bytes());
        let resolve = sent(&network, before);
        let [(text, message)] = &resolve[..] else {
            panic!("{resolve:?}");
        };
        assert_eq!(message.dialect, Dialect::V2005);
        assert!(text.contains("<wsd:Resolve>"), "{text}");
        let answer = sample!("wsdd-resolve-matches.xml").replace("urn:r", &message.message_id);
        network.inject(client, stranger(), false, answer.as_bytes());
        let events: Vec<_> = network
            .client_events
            .iter()
            .map(|(_, event)| event)
            .collect();
        let found = events.iter().any(|event| {
            matches!(event, Event::Found { via: Via::Resolve, dialect: Dialect::V2005, target, .. }
                if target.types.len() == 2 && target.xaddrs.len() == 1)
        });
        assert!(found, "{events:?}");
        let matched = events
            .iter()
            .any(|event| matches!(event, Event::Match { id: 1, .. }));
        assert_eq!(matched, answered);
        assert_eq!(network.client_machine(client).drops().total(), 0);
    }
}

#[test]
fn a_camera_is_found_by_its_address_that_may_be_contacted() {
    let (mut network, client, asked) = asking();
    let answer = sample!("camera-probe-matches.xml").replace("urn:q", &asked[1].1.message_id);
    // The policy of these tests wants the port in the address.
    let answer = answer.replace("192.0.2.9/", "192.0.2.9:80/");
    network.inject(client, stranger(), false, answer.as_bytes());
    let events: Vec<_> = network
        .client_events
        .iter()
        .map(|(_, event)| event)
        .collect();
    let found = events.iter().any(|event| {
        matches!(event, Event::Found { target, .. }
        if target.xaddrs == ["http://192.0.2.9:80/onvif/device_service"]
        && target.types.len() == 2 && target.scopes.len() == 2)
    });
    let refused = events.iter().any(|event| {
        matches!(event, Event::AddressRefused { xaddr, .. }
        if xaddr.contains("169.254.3.4"))
    });
    assert!(found && refused, "{events:?}");
}

#[test]
fn an_address_of_another_host_alone_is_refused_with_the_reason() {
    let (mut network, client, _) = asking();
    let hello = sample!("sdc-hello.xml");
    let from = "192.0.2.77:3702".parse().expect("an address");
    network.inject(client, from, true, hello.as_bytes());
    let drops = network.client_machine(client).drops();
    assert_eq!(
        (drops.count(DropReason::AddressRefused), drops.total()),
        (1, 1)
    );
    assert!(network.client_machine(client).all_known().next().is_none());
}

fn answering() -> (Network, usize) {
    let mut network = Network::new(2, Faults::NONE);
    let target = network.target(host(2), ENDPOINT, |config| {
        config.scopes = vec!["http://example.org/a/b".into()];
    });
    network.tell(target, Tell::Start);
    network.run(Duration::from_secs(5));
    network.sent.clear();
    (network, target)
}

/// The distinct messages sent in answer to one datagram, and the bytes with all copies.
fn answers(text: &str, multicast: bool) -> (Vec<Message>, usize, Network) {
    let (mut network, target) = answering();
    network.inject(target, stranger(), multicast, text.as_bytes());
    network.run(Duration::from_secs(5));
    let bytes = network
        .sent
        .iter()
        .map(|(_, _, datagram)| datagram.bytes.len())
        .sum();
    let mut messages = Vec::new();
    for (_, _, datagram) in &network.sent {
        assert_eq!(datagram.to, stranger(), "to where it came from");
        let envelope = Envelope::parse(&datagram.bytes).expect("an envelope");
        if let Ok(message) = Message::from_envelope(&envelope)
            && !messages.contains(&message)
        {
            messages.push(message);
        }
    }
    (messages, bytes, network)
}

#[test]
fn an_sdc_client_is_answered_without_amplification() {
    for (question, multicast) in [
        (sample!("sdc-probe.xml"), true),
        (sample!("sdc-probe.xml"), false),
        (sample!("sdc-resolve.xml"), true),
        (sample!("probe-by-strcmp0.xml"), true),
    ] {
        let (messages, bytes, _) = answers(question, multicast);
        let [message] = &messages[..] else {
            panic!("{messages:?} to {question}");
        };
        assert_eq!(message.relates_to, Some(read(question).message_id));
        let target = match &message.content {
            Content::ProbeMatches(targets) => targets.first(),
            Content::ResolveMatches(target) => target.as_ref(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            target.map(|target| &*target.endpoint.address),
            Some(ENDPOINT)
        );
        assert!(
            bytes <= AMPLIFICATION_MAX * question.len(),
            "{bytes} to {}",
            question.len()
        );
    }
}

#[test]
fn what_is_not_for_us_gets_silence_and_its_reason() {
    let elsewhere = sample!("sdc-probe.xml").replace(
        "<wsa:MessageID>",
        "<wsa:ReplyTo><wsa:Address>http://198.51.100.1/</wsa:Address></wsa:ReplyTo><wsa:MessageID>",
    );
    let must = sample!("sdc-probe.xml").replace(
        "</s12:Header>",
        "<x:S xmlns:x=\"urn:x\" s12:mustUnderstand=\"1\"/></s12:Header>",
    );
    for (datagram, reason) in [
        (
            sample!("wsdd-probe.xml").to_owned(),
            DropReason::OtherDialect,
        ),
        (sample!("sdc-hello.xml").to_owned(), DropReason::OtherRole),
        (
            sample!("sdc-resolve.xml").replace("6ba7b810", "6ba7b811"),
            DropReason::OtherEndpoint,
        ),
        (
            sample!("sdc-probe.xml").replace("ns0:Device", "ns0:Other"),
            DropReason::NoMatch,
        ),
        (
            sample!("sdc-probe.xml").replace("ns0:Device", "ns9:Device"),
            DropReason::Invalid,
        ),
        (
            sample!("probe-by-unknown-rule.xml").to_owned(),
            DropReason::UnknownMatchRule,
        ),
        (
            sample!("probe-by-strcmp0.xml").replace("/a/b<", "/a<"),
            DropReason::NoMatch,
        ),
        (elsewhere, DropReason::ReplyElsewhere),
        (must, DropReason::NotUnderstood),
        ("<:/>".to_owned(), DropReason::Malformed),
        (
            format!("<a>{}</a>", " ".repeat(40_000)),
            DropReason::TooLarge,
        ),
        (
            sample!("sdc-probe.xml").replace("/Probe<", "/Guess<"),
            DropReason::Invalid,
        ),
        (
            sample!("sdc-probe.xml").replace("discovery/2009/01/Probe<", "other/Probe<"),
            DropReason::NotDiscovery,
        ),
    ] {
        let (_, bytes, network) = answers(&datagram, true);
        assert_eq!(bytes, 0, "{datagram}");
        let drops = network
            .target_events
            .iter()
            .filter_map(|(_, event)| match event {
                chappe_dpws::discovery::target_service::Event::Dropped {
                    reason, detail, ..
                } => Some((*reason, detail)),
                _ => None,
            });
        let reasons: Vec<_> = drops
            .filter(|(reason, _)| *reason != DropReason::Own)
            .collect();
        assert!(
            matches!(reasons[..], [(told, _)] if told == reason),
            "{reasons:?} {datagram}"
        );
    }
}

#[test]
fn a_unicast_probe_is_always_answered() {
    let unlike = sample!("sdc-probe.xml").replace("ns0:Device", "ns0:Other");
    let (messages, _, _) = answers(&unlike, false);
    assert!(matches!(&messages[..], [message] if message.content == Content::ProbeMatches(vec![])));
    let (mut network, target) = answering();
    let unknown = sample!("probe-by-unknown-rule.xml");
    network.inject(target, stranger(), false, unknown.as_bytes());
    network.run(Duration::from_secs(1));
    let fault = Envelope::parse(&network.sent[0].2.bytes)
        .expect("an envelope")
        .fault();
    let subcode = fault.and_then(|fault| fault.subcode).expect("a fault");
    assert_eq!(
        subcode,
        Dialect::V2009.discovery_name("MatchingRuleNotSupported")
    );
}

#[test]
fn questions_beyond_the_rate_get_silence() {
    let (mut network, target) = answering();
    for n in 0..500 {
        let id = format!("8000-00000000{n:04}");
        let probe = sample!("sdc-probe.xml").replace("8000-000000000004", &id);
        network.inject(target, stranger(), false, probe.as_bytes());
    }
    network.run(Duration::from_secs(1));
    let answered = network.target_events.iter().filter(|(_, event)| {
        matches!(
            event,
            chappe_dpws::discovery::target_service::Event::Answered { .. }
        )
    });
    assert_eq!(answered.count(), 200);
    let limited = network.target_events.iter().filter_map(|(_, event)| {
        use chappe_dpws::discovery::target_service::Event;
        match event {
            Event::Dropped {
                reason: DropReason::RateLimited,
                suppressed,
                ..
            } => Some(suppressed + 1),
            _ => None,
        }
    });
    let limited: Vec<u64> = limited.collect();
    assert_eq!(limited.len(), 2, "one event at once, one for what followed");
    assert_eq!(limited.iter().sum::<u64>(), 300, "and no count is lost");
    assert_eq!(
        network
            .target_machine(target)
            .drops()
            .count(DropReason::RateLimited),
        300
    );
}
