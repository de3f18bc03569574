//! Goal: messages of other implementations are understood, and other implementations understand
//! ours.
//!
//! Method: passes datagrams in the forms (prefixes, order, omissions) of sdc11073 3.0, wsdd 0.7 and
//! cameras, from the fuzz corpus, to real machines.

use std::time::Duration;

use crate::network::{Faults, Network, host};
use chappe_dpws::Dialect;
use chappe_dpws::discovery::client::{Command, Event, Via};
use chappe_dpws::discovery::target_service::{AMPLIFICATION_MAX, Command as TargetCommand};
use chappe_dpws::discovery::{Content, DropReason, MatchRule, Message};
use chappe_soap::Envelope;
use chappe_xml::Name;

const ENDPOINT: &str = "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8";

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("../../../../fuzz/corpus/discovery/", $name))
    };
}

fn read(text: &str) -> Message {
    Message::from_envelope(&Envelope::parse(text.as_bytes()).expect("an envelope"))
        .expect("a message")
}

/// A client after a Probe for everything, with the text and message of each sent datagram.
fn client_with_probe() -> (Network, usize, Vec<(String, Message)>) {
    let mut network = Network::new(1, Faults::NONE);
    let client = network.client(host(1), |_| {});
    let probe = Command::Probe {
        id: 1,
        types: Vec::new(),
        scopes: Vec::new(),
        match_by: MatchRule::default(),
        timeout: Duration::from_secs(5),
    };
    network.command_client(client, probe);
    let sent = sent(&network, 0);
    (network, client, sent)
}

fn sent(network: &Network, after: usize) -> Vec<(String, Message)> {
    let texts = network.sent[after..]
        .iter()
        .map(|(_, _, datagram)| String::from_utf8(datagram.bytes.clone()).expect("text"));
    texts.map(|text| (text.clone(), read(&text))).collect()
}

fn peer() -> std::net::SocketAddr {
    "192.0.2.9:3702".parse().expect("an address")
}

#[test]
fn probes_suit_devices_of_each_dialect() {
    let (_, _, sent) = client_with_probe();
    let dialects: Vec<_> = sent.iter().map(|(_, message)| message.dialect).collect();
    assert_eq!(dialects, [Dialect::V2009, Dialect::V2005, Dialect::V2005]);
    let literal = "<wsd:Types>wsdp:Device</wsd:Types>";
    assert!(
        sent[2].0.contains(literal),
        "wsdd compares the text: {}",
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
        "sdc11073 drops datagrams that contain the other dialect"
    );
}

#[test]
fn sdc_provider_is_found_by_hello_and_probe() {
    let (mut network, client, sent_probes) = client_with_probe();
    let id = &sent_probes[0].1.message_id;
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
    assert_eq!(target.types, types, "prefixes are declared on the element");
    assert_eq!(target.xaddrs, ["http://192.0.2.9:5000/x"]);
    // It numbers every message 1, which must not mark its Hello or Bye as old.
    network.inject(client, peer(), true, sample!("sdc-hello.xml").as_bytes());
    network.inject(client, peer(), true, sample!("sdc-bye.xml").as_bytes());
    let bye = network
        .client_events
        .iter()
        .any(|(_, event)| matches!(event, Event::ByeHint { .. }));
    assert!(bye);
    assert_eq!(network.client_machine(client).drops().total(), 0);
}

#[test]
fn device_without_addresses_is_resolved() {
    for (file, is_match) in [
        (sample!("wsdd-probe-matches.xml"), true),
        (sample!("wsdd-hello.xml"), false),
    ] {
        let (mut network, client, sent_probes) = client_with_probe();
        let sent_before = network.sent.len();
        let text = file.replace("urn:q", &sent_probes[2].1.message_id);
        network.inject(client, peer(), false, text.as_bytes());
        let resolve = sent(&network, sent_before);
        let [(text, message)] = &resolve[..] else {
            panic!("{resolve:?}");
        };
        assert_eq!(message.dialect, Dialect::V2005);
        assert!(text.contains("<wsd:Resolve>"), "{text}");
        let answer = sample!("wsdd-resolve-matches.xml").replace("urn:r", &message.message_id);
        network.inject(client, peer(), false, answer.as_bytes());
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
        assert_eq!(matched, is_match);
        assert_eq!(network.client_machine(client).drops().total(), 0);
    }
}

#[test]
fn camera_is_found_by_its_permitted_address() {
    let (mut network, client, sent_probes) = client_with_probe();
    let answer = sample!("camera-probe-matches.xml").replace("urn:q", &sent_probes[1].1.message_id);
    // The policy of these tests requires a port in the address.
    let answer = answer.replace("192.0.2.9/", "192.0.2.9:80/");
    network.inject(client, peer(), false, answer.as_bytes());
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
fn address_of_another_host_is_refused() {
    let (mut network, client, _) = client_with_probe();
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

fn started_target() -> (Network, usize) {
    let mut network = Network::new(2, Faults::NONE);
    let target = network.target(host(2), ENDPOINT, |config| {
        config.scopes = vec!["http://example.org/a/b".into()];
    });
    network.command_target(target, TargetCommand::Start);
    network.run(Duration::from_secs(5));
    network.sent.clear();
    (network, target)
}

/// The distinct messages sent in answer to one datagram, and their bytes including copies.
fn answers(text: &str, multicast: bool) -> (Vec<Message>, usize, Network) {
    let (mut network, target) = started_target();
    network.inject(target, peer(), multicast, text.as_bytes());
    network.run(Duration::from_secs(5));
    let bytes = network
        .sent
        .iter()
        .map(|(_, _, datagram)| datagram.bytes.len())
        .sum();
    let mut messages = Vec::new();
    for (_, _, datagram) in &network.sent {
        assert_eq!(datagram.to, peer(), "answers go to the sender");
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
fn sdc_client_gets_answers_without_amplification() {
    for (request, multicast) in [
        (sample!("sdc-probe.xml"), true),
        (sample!("sdc-probe.xml"), false),
        (sample!("sdc-resolve.xml"), true),
        (sample!("probe-by-strcmp0.xml"), true),
    ] {
        let (messages, bytes, _) = answers(request, multicast);
        let [message] = &messages[..] else {
            panic!("{messages:?} to {request}");
        };
        assert_eq!(message.relates_to, Some(read(request).message_id));
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
            bytes <= AMPLIFICATION_MAX * request.len(),
            "{bytes} to {}",
            request.len()
        );
    }
}

#[test]
fn irrelevant_messages_are_dropped_with_their_reason() {
    let elsewhere = sample!("sdc-probe.xml").replace(
        "<wsa:MessageID>",
        "<wsa:ReplyTo><wsa:Address>http://198.51.100.1/</wsa:Address></wsa:ReplyTo><wsa:MessageID>",
    );
    let not_understood = sample!("sdc-probe.xml").replace(
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
        (
            sample!("probe-by-strcmp0.xml").replace("/a/b<", &format!("/{}<", "a".repeat(2_048))),
            DropReason::Invalid,
        ),
        (elsewhere, DropReason::ReplyElsewhere),
        (not_understood, DropReason::NotUnderstood),
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
            matches!(reasons[..], [(dropped, _)] if dropped == reason),
            "{reasons:?} {datagram}"
        );
    }
}

#[test]
fn unicast_probe_always_gets_an_answer() {
    let not_matching = sample!("sdc-probe.xml").replace("ns0:Device", "ns0:Other");
    let (messages, _, _) = answers(&not_matching, false);
    assert!(matches!(&messages[..], [message] if message.content == Content::ProbeMatches(vec![])));
    let (mut network, target) = started_target();
    let unknown = sample!("probe-by-unknown-rule.xml");
    network.inject(target, peer(), false, unknown.as_bytes());
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
fn requests_above_the_rate_are_dropped() {
    let (mut network, target) = started_target();
    for n in 0..500 {
        let id = format!("8000-00000000{n:04}");
        let probe = sample!("sdc-probe.xml").replace("8000-000000000004", &id);
        network.inject(target, peer(), false, probe.as_bytes());
    }
    network.run(Duration::from_secs(1));
    let is_match = network.target_events.iter().filter(|(_, event)| {
        matches!(
            event,
            chappe_dpws::discovery::target_service::Event::Answered { .. }
        )
    });
    assert_eq!(is_match.count(), 200);
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
    assert_eq!(limited.len(), 2, "one immediate event and one for the rest");
    assert_eq!(limited.iter().sum::<u64>(), 300, "no drop is uncounted");
    assert_eq!(
        network
            .target_machine(target)
            .drops()
            .count(DropReason::RateLimited),
        300
    );
}

#[test]
fn a_question_dropped_for_its_rate_may_be_repeated() {
    let (mut network, target) = started_target();
    let probe = |n: u32| {
        let id = format!("8000-00000000{n:04}");
        sample!("sdc-probe.xml").replace("8000-000000000004", &id)
    };
    for n in 0..201 {
        network.inject(target, peer(), false, probe(n).as_bytes());
    }
    let answered = |network: &Network| {
        use chappe_dpws::discovery::target_service::Event;
        let events = network.target_events.iter();
        let answers = events.filter(|(_, event)| matches!(event, Event::Answered { .. }));
        answers.count()
    };
    assert_eq!(answered(&network), 200);
    network.run(Duration::from_secs(1));
    for _ in 0..2 {
        network.inject(target, peer(), false, probe(200).as_bytes());
        assert_eq!(answered(&network), 201, "once");
    }
    let drops = network.target_machine(target).drops();
    assert_eq!(drops.count(DropReason::RateLimited), 1);
    assert_eq!(drops.count(DropReason::Duplicate), 1);
}

#[test]
fn a_device_of_both_dialects_speaks_each() {
    let mut network = Network::new(3, Faults::NONE);
    let target = network.target(host(2), ENDPOINT, |config| {
        config.dialects = Dialect::ALL.to_vec();
        config.unicast.repeat = 0;
        config.multicast.repeat = 0;
    });
    network.command_target(target, TargetCommand::Start);
    network.run(Duration::from_secs(5));
    let hellos = sent(&network, 0);
    let dialects: std::collections::BTreeSet<_> =
        hellos.iter().map(|(_, message)| message.dialect).collect();
    assert_eq!((hellos.len(), dialects.len()), (2, 2));
    for (text, message) in &hellos {
        let Content::Hello(found) = &message.content else {
            panic!("{message:?}");
        };
        assert_eq!(found.types, [message.dialect.device_type()]);
        let other = Dialect::ALL.into_iter().find(|one| *one != message.dialect);
        let foreign = other.is_some_and(|other| text.contains(other.dpws()));
        assert!(
            !foreign,
            "sdc11073 drops datagrams that contain the other dialect"
        );
    }
    let after = network.sent.len();
    network.inject(target, peer(), true, sample!("wsdd-probe.xml").as_bytes());
    network.run(Duration::from_secs(5));
    let [(_, answer)] = &sent(&network, after)[..] else {
        panic!("one answer");
    };
    assert_eq!(answer.dialect, Dialect::V2005);
    assert_eq!(
        answer.to.as_deref(),
        Some(Dialect::V2005.addressing().anonymous())
    );
    assert_eq!(
        answer.relates_to,
        Some(read(sample!("wsdd-probe.xml")).message_id)
    );
    // In 2005, silence is the answer to a unicast Probe that does not match.
    let after = network.sent.len();
    let probe = sample!("wsdd-probe.xml")
        .replace("Device<", "Other<")
        .replace("urn:uuid:", "urn:uuid:f");
    network.inject(target, peer(), false, probe.as_bytes());
    network.run(Duration::from_secs(5));
    assert_eq!(network.sent.len(), after);
    let drops = network.target_machine(target).drops();
    assert_eq!(drops.count(DropReason::NoMatch), 1);
}

#[test]
fn a_device_of_both_dialects_is_one_in_the_newer() {
    for (dialects, expected) in [
        (vec![Dialect::V2005], Dialect::V2005),
        (vec![Dialect::V2005, Dialect::V2009], Dialect::V2009),
    ] {
        let mut network = Network::new(4, Faults::NONE);
        let client = network.client(host(1), |_| {});
        let target = network.target(host(2), ENDPOINT, |config| config.dialects = dialects);
        network.command_target(target, TargetCommand::Start);
        let probe = Command::Probe {
            id: 1,
            types: vec![Dialect::V2009.device_type()],
            scopes: Vec::new(),
            match_by: MatchRule::default(),
            timeout: Duration::from_secs(5),
        };
        network.command_client(client, probe);
        network.run(Duration::from_secs(10));
        let found = network.client_events.iter();
        let found = found.filter(|(_, event)| matches!(event, Event::Found { .. }));
        assert_eq!(found.count(), 1);
        let known: Vec<_> = network.client_machine(client).all_known().collect();
        assert_eq!(known.len(), 1);
        assert_eq!(known[0].dialect, expected);
        assert_eq!(known[0].target.types, [expected.device_type()]);
    }
}

#[test]
fn a_search_uses_the_rule_that_it_names() {
    let path = "http://example.org/ward/3";
    let uuid = "uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let ldap = "ldap://example.org/ou=ward,o=clinic";
    for (rule, asked, offered, is_found) in [
        (
            MatchRule::Rfc3986,
            Some("http://example.org/ward"),
            Some(path),
            true,
        ),
        (
            MatchRule::Strcmp0,
            Some("http://example.org/ward"),
            Some(path),
            false,
        ),
        (MatchRule::Strcmp0, Some(path), Some(path), true),
        (
            MatchRule::Uuid,
            Some("UUID:6BA7B810-9DAD-11D1-80B4-00C04FD430C8"),
            Some(uuid),
            true,
        ),
        (MatchRule::Uuid, Some(path), Some(path), false),
        (
            MatchRule::Ldap,
            Some("ldap://example.org/o=clinic"),
            Some(ldap),
            true,
        ),
        (
            MatchRule::Ldap,
            Some("ldap://example.org/o=other"),
            Some(ldap),
            false,
        ),
        (MatchRule::None, None, Some(path), false),
        (MatchRule::None, None, None, true),
    ] {
        for dialect in [Dialect::V2009, Dialect::V2005] {
            let mut network = Network::new(4, Faults::NONE);
            let client = network.client(host(1), |_| {});
            let target = network.target(host(2), ENDPOINT, |config| {
                config.dialects = vec![dialect];
                config.scopes = offered.into_iter().map(Into::into).collect();
            });
            network.command_target(target, TargetCommand::Start);
            network.run(Duration::from_secs(10));
            let probe = Command::Probe {
                id: 7,
                types: vec![Dialect::V2009.device_type()],
                scopes: asked.into_iter().map(Into::into).collect(),
                match_by: rule,
                timeout: Duration::from_secs(5),
            };
            network.command_client(client, probe);
            network.run(Duration::from_secs(10));
            let counts = network
                .client_events
                .iter()
                .filter_map(|(_, event)| match event {
                    Event::ProbeEnded { id: 7, count } => Some(*count),
                    _ => None,
                });
            let counts: Vec<_> = counts.collect();
            // The older dialect does not have the rule `none`: such a device is not asked.
            let has_rule = MatchRule::all(dialect).any(|known| known == rule);
            let expected = usize::from(is_found && has_rule);
            assert_eq!(
                counts,
                [expected],
                "{rule:?} {asked:?} {offered:?} {dialect:?}"
            );
        }
    }
}
