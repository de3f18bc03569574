//! Goal: messages round-trip in both dialects whatever their names; messages larger than a datagram
//! are shortened or rejected.
//!
//! Method: random messages through text and back; a target service with too many scopes.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::target_service::{Command, Config, Event};
use chappe_dpws::discovery::{
    AppSequence, Content, Interface, Message, Outbound, Probe, Target, TargetService,
};
use chappe_machine::{Harness, Input, Output};
use chappe_soap::udp::SENT_ENVELOPE_BYTES_MAX;
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Name, Str};
use proptest::prelude::*;

fn uri() -> impl Strategy<Value = Str> {
    "[a-z]{1,5}:[!-~]{1,20}".prop_map(Str::from)
}

fn name() -> impl Strategy<Value = Name> {
    let namespaces = [
        "",
        "urn:a",
        "urn:b&c",
        Dialect::V2005.dpws(),
        Dialect::V2009.dpws(),
        Dialect::V2009.discovery(),
    ];
    (
        prop::sample::select(namespaces.to_vec()),
        "[A-Za-z_][a-z0-9.-]{0,6}",
    )
        .prop_map(|(namespace, local)| Name::owned(namespace, local))
}

fn target() -> impl Strategy<Value = Target> {
    let list = || prop::collection::vec(uri(), 0..4);
    let types = prop::collection::vec(name(), 0..4);
    (uri(), types, list(), list(), 1_u32..).prop_map(
        |(address, types, scopes, xaddrs, metadata_version)| Target {
            endpoint: EndpointReference::new(address),
            types,
            scopes,
            xaddrs,
            metadata_version,
        },
    )
}

fn content() -> impl Strategy<Value = Content> {
    let types = prop::collection::vec(name(), 0..4);
    let scopes = prop::collection::vec(uri(), 0..4);
    let probe = (types, scopes, prop::option::of(uri()));
    prop_oneof![
        target().prop_map(Content::Hello),
        target().prop_map(Content::Bye),
        probe.prop_map(|(types, scopes, match_by)| {
            let probe = Probe {
                types,
                scopes,
                match_by,
            };
            Content::Probe(probe)
        }),
        prop::collection::vec(target(), 0..4).prop_map(Content::ProbeMatches),
        uri().prop_map(|address| Content::Resolve(EndpointReference::new(address))),
        prop::option::of(target()).prop_map(Content::ResolveMatches),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip(
        content in content(),
        old in any::<bool>(),
        ids in (uri(), prop::option::of(uri()), prop::option::of(uri()), prop::option::of(uri())),
        sequence in prop::option::of((any::<u32>(), prop::option::of("[ -~]{0,8}"), any::<u32>())),
        prefixes in prop::collection::vec(("[a-z]{1,4}|d|wsd|t0|soap", prop::sample::select(vec!["urn:a", "urn:b&c"])), 0..3),
    ) {
        let (message_id, relates_to, to, reply_to) = ids;
        let sequence = sequence.map(|(instance_id, sequence_id, message_number)| AppSequence {
            instance_id,
            sequence_id: sequence_id.map(Str::from),
            message_number,
        });
        let dialect = if old { Dialect::V2005 } else { Dialect::V2009 };
        let sent = Message { dialect, message_id, relates_to, to, reply_to, sequence, content };
        let prefixes: Vec<(Str, Str)> = prefixes
            .into_iter()
            .map(|(prefix, namespace)| (prefix.into(), namespace.into()))
            .collect();
        let text = sent.to_envelope(&prefixes).to_text();
        let envelope = Envelope::parse(text.as_bytes())
            .map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        let read = Message::from_envelope(&envelope)
            .map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
        prop_assert_eq!(read, sent, "{}", text);
    }
}

fn announce(scope_count: usize, scope_bytes: usize, types: usize) -> (Vec<Outbound>, Vec<Event>) {
    let mut config = Config::new("urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8", 1, 7);
    let addresses = vec!["192.0.2.1".parse().expect("an address")];
    let interface = Interface {
        index: 1,
        addresses,
    };
    config.interfaces = vec![(interface, vec!["http://192.0.2.1:5357/".into()])];
    config.app_max_delay = Duration::ZERO;
    let scope = |n| Str::from(format!("urn:{n}:{}", "s".repeat(scope_bytes)));
    config.scopes = (0..scope_count).map(scope).collect();
    config.types = (0..types)
        .map(|n| Name::owned("urn:t", format!("type-number-{n}")))
        .collect();
    let mut harness = Harness::new(TargetService::new(config), 7);
    let outputs = harness
        .input(Input::Command(Command::Start))
        .expect("no violation");
    let mut sent = Vec::new();
    let mut events = Vec::new();
    for output in outputs {
        match output {
            Output::Transmit(datagram) => sent.push(datagram),
            Output::Event(event) => events.push(event),
        }
    }
    (sent, events)
}

#[test]
fn oversized_announcement_is_shortened_or_rejected() {
    let hello = |sent: &[Outbound]| {
        assert!(sent[0].bytes.len() <= SENT_ENVELOPE_BYTES_MAX);
        let envelope = Envelope::parse(&sent[0].bytes).expect("an envelope");
        match Message::from_envelope(&envelope)
            .expect("a message")
            .content
        {
            Content::Hello(target) => target,
            other => panic!("{other:?}"),
        }
    };
    let (sent, events) = announce(10, 100, 1);
    assert_eq!((hello(&sent).scopes.len(), events), (10, vec![]));
    let (sent, events) = announce(40, 100, 1);
    assert_eq!(
        (hello(&sent).scopes.len(), events),
        (0, vec![]),
        "scopes are optional"
    );
    let (sent, events) = announce(0, 0, 400);
    assert!(sent.is_empty());
    assert!(matches!(&events[..], [Event::NotSent { .. }]), "{events:?}");
}
