//! Goal: a sink that supports trees proves its address, becomes a member and gets its events there;
//! missed events reach it once as standard notifications. A sink with a false or unreadable
//! description gets standard notifications.
//! Method: both machines in the harness, messages through text, tree results from the test; compact
//! messages as values and as arbitrary bytes.

use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{Filter, Subscribe, SubscribeResponse, action};
use chappe_dpws::eventing::{
    Compact, CompactCodec, EventSink, EventSource, Offer, Request, SinkCommand, SinkConfig,
    SinkEvent, SinkReceive, SinkTransmit, Source, SourceCommand, SourceConfig, SourceEvent,
    SourceReceive, SourceTransmit, SubscriptionKey, Token, TreeConfig, TreePeer, TreeSink,
};
use chappe_dpws::exchange::request;
use chappe_machine::{Harness, Input, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

const REPORT: &str = "urn:x/Report";
const BASE: &str = "http://192.0.2.99:80";
const KEY: SubscriptionKey = SubscriptionKey(1);

fn peer(host: u8) -> TreePeer {
    TreePeer {
        key: [host; 32],
        address: ([192, 0, 2, host], 5_400).into(),
    }
}

struct World {
    source: Harness<EventSource>,
    outputs: Vec<Output<SourceTransmit, SourceEvent>>,
}

impl World {
    fn new() -> Self {
        let config = SourceConfig {
            offers: vec![Offer {
                path: "/thermometer".into(),
                actions: vec![REPORT.into()],
            }],
            tree: Some(TreeConfig::new([99; 32], 5_499, true, "/tree/x".into())),
            ..SourceConfig::default()
        };
        let check = Arc::new(|address: &str, _| match address.contains("192.0.2.66") {
            true => Err("the address belongs to another host".to_owned()),
            false => Ok(()),
        });
        Self {
            source: Harness::new(EventSource::new(config, check, [7; 16]), 7),
            outputs: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<SourceReceive, SourceCommand>) {
        self.outputs = self.source.input(input).unwrap();
    }

    fn receive(&mut self, receive: SourceReceive) {
        self.input(Input::Receive(receive));
    }

    fn send_subscribe(&mut self, host: u8, message: Element) -> SubscribeResponse {
        self.try_subscribe(host, message).expect("granted")
    }

    fn try_subscribe(&mut self, host: u8, message: Element) -> Option<SubscribeResponse> {
        let version = Dialect::V2009.addressing();
        let to = EndpointReference::new(format!("{BASE}/thermometer"));
        let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1").with_body(message);
        self.receive(SourceReceive::Request(Box::new(Request {
            token: Token(1),
            peer: ([192, 0, 2, host], 4_711).into(),
            base: BASE.into(),
            path: "/thermometer".into(),
            envelope: Envelope::parse(envelope.to_text().as_bytes()).unwrap(),
        })));
        let answer = self.outputs.iter().find_map(|output| match output {
            Output::Transmit(SourceTransmit::Response { envelope, .. }) => Some(envelope),
            _ => None,
        });
        let answer = Envelope::parse(answer.unwrap().to_text().as_bytes()).unwrap();
        let body = answer.body().filter(|_| answer.fault().is_none())?;
        Some(SubscribeResponse::from_element(version, body).unwrap())
    }

    fn subscribe(&mut self, host: u8, tree: Option<TreePeer>) -> SubscribeResponse {
        self.subscribe_at(host, tree, 0)
    }

    fn subscribe_at(
        &mut self,
        host: u8,
        tree: Option<TreePeer>,
        criticality: u8,
    ) -> SubscribeResponse {
        let message = subscribe_message(host, tree.map(|peer| TreeSink { peer, criticality }));
        self.send_subscribe(host, message.to_element(Dialect::V2009.addressing()))
    }

    fn notify(&mut self) {
        let body = Element::new(Name::new("urn:x", "R")).with_text("1");
        let action = REPORT.into();
        self.input(Input::Command(SourceCommand::Notify {
            action,
            body: body.into(),
        }));
    }

    /// Delivery and message identifier of the event sent through a tree.
    fn spread(&self) -> Option<(u64, String)> {
        self.outputs.iter().find_map(|output| match output {
            Output::Transmit(SourceTransmit::Spread(spread)) => {
                Some((spread.delivery, spread.message_id.clone().into_owned()))
            }
            _ => None,
        })
    }

    /// Delivery, address and message identifier of the standard notifications.
    fn notified(&self) -> Vec<(u64, String, String)> {
        let sent = self.outputs.iter().filter_map(|output| match output {
            Output::Transmit(SourceTransmit::Notify(sent)) => {
                let id = sent.to_envelope().addressing.message_id.unwrap();
                Some((sent.delivery, sent.to().to_owned(), id.into_owned()))
            }
            _ => None,
        });
        sent.collect()
    }

    fn sinks(&self) -> Option<Vec<TreeSink>> {
        self.outputs.iter().find_map(|output| match output {
            Output::Transmit(SourceTransmit::Members { action, sinks }) => {
                assert_eq!(action, REPORT);
                Some(sinks.clone())
            }
            _ => None,
        })
    }

    fn members(&self) -> Option<Vec<TreePeer>> {
        let sinks = self.sinks()?;
        Some(sinks.iter().map(|sink| sink.peer).collect())
    }

    fn off_tree_reason(&self) -> Option<&'static str> {
        self.outputs.iter().find_map(|output| match output {
            Output::Event(SourceEvent::OffTree { reason, .. }) => Some(*reason),
            _ => None,
        })
    }

    fn proof_requests(&self) -> Vec<TreePeer> {
        let proof_requests = self.outputs.iter().filter_map(|output| match output {
            Output::Transmit(SourceTransmit::Prove { peer, .. }) => Some(*peer),
            _ => None,
        });
        proof_requests.collect()
    }

    fn report_proof(&mut self, peer: TreePeer, is_reachable: bool) {
        self.receive(SourceReceive::Proven { peer, is_reachable });
    }
}

fn subscribe_message(host: u8, tree: Option<TreeSink>) -> Subscribe {
    let sink_endpoint = EndpointReference::new(format!("http://192.0.2.{host}:9/events/1"));
    Subscribe {
        end_to: None,
        mode: None,
        notify_to: Some(sink_endpoint),
        expires: None,
        filter: Some(Filter::actions(Dialect::V2009, vec![REPORT.into()])),
        tree: Ok(tree),
    }
}

#[test]
fn sink_joins_after_proof_and_empty_queue() {
    let mut world = World::new();
    let offer = world.subscribe(1, Some(peer(1))).tree.unwrap();
    assert_eq!(offer.source.address, ([192, 0, 2, 99], 5_499).into());
    assert_eq!(offer.members, "http://192.0.2.99:80/tree/x");
    assert_eq!(world.proof_requests(), [peer(1)]);
    assert!(world.subscribe(2, None).tree.is_none());
    assert!(world.proof_requests().is_empty());
    // Before the proof, events are standard notifications.
    world.notify();
    assert!(world.spread().is_none());
    let first = world.notified();
    assert_eq!(first.len(), 2);
    world.report_proof(peer(1), true);
    assert!(
        world.members().is_none(),
        "one notification is still queued"
    );
    for (delivery, ..) in first {
        world.receive(SourceReceive::Delivered { delivery });
        if let Some(members) = world.members() {
            assert_eq!(members, [peer(1)]);
        }
    }
    assert_eq!(world.source.machine().on_trees(), 1);
    world.notify();
    assert!(world.spread().is_some());
    let notified = world.notified();
    assert_eq!(notified.len(), 1, "only the standard sink's");
    assert!(notified[0].1.contains("192.0.2.2"));
}

#[test]
fn missed_events_are_sent_as_standard_notifications() {
    let mut world = World::new();
    for host in [1, 2] {
        world.subscribe(host, Some(peer(host)));
        world.report_proof(peer(host), true);
    }
    assert_eq!(world.members(), Some(vec![peer(1), peer(2)]));
    for time in 1..=3 {
        world.notify();
        let (delivery, id) = world.spread().unwrap();
        assert!(world.notified().is_empty());
        world.receive(SourceReceive::Spread {
            delivery,
            delivered: 1,
            missed: vec![peer(2)],
        });
        let notified = world.notified();
        assert_eq!(notified.len(), 1);
        assert!(notified[0].1.contains("192.0.2.2"));
        assert_eq!(notified[0].2, id);
        assert_eq!(world.off_tree_reason().is_some(), time == 3);
        if time == 3 {
            assert_eq!(world.members(), Some(vec![peer(1)]));
        }
        let delivery = notified[0].0;
        world.receive(SourceReceive::Delivered { delivery });
    }
    let machine = world.source.machine();
    assert_eq!(machine.delivered_by_tree(), 3);
    assert_eq!(machine.missed_by_tree(), 3);
    // An event that cannot use the tree goes to all as a standard notification.
    world.notify();
    let (delivery, _) = world.spread().unwrap();
    assert_eq!(world.notified().len(), 1);
    world.receive(SourceReceive::NotSpread { delivery });
    assert_eq!(world.notified().len(), 1);
    assert!(world.notified()[0].1.contains("192.0.2.1:"));
}

#[test]
fn unproven_sinks_are_not_listed() {
    let mut world = World::new();
    // The address of another host gets no proof request.
    let stranger = TreePeer {
        address: ([192, 0, 2, 66], 53).into(),
        ..peer(1)
    };
    assert!(world.subscribe(1, Some(stranger)).tree.is_none());
    assert!(world.proof_requests().is_empty() && world.off_tree_reason().is_some());
    // A failed proof, and an address of the other family.
    world.subscribe(1, Some(peer(1)));
    world.report_proof(peer(1), false);
    assert!(world.off_tree_reason().is_some() && world.members().is_none());
    let v6_peer = TreePeer {
        address: "[2001:db8::1]:5400".parse().unwrap(),
        ..peer(1)
    };
    assert!(world.subscribe(1, Some(v6_peer)).tree.is_none());
    // An invalid extension, and a foreign one.
    let version = Dialect::V2009.addressing();
    let empty = Element::new(Name::new("urn:chappe:notification-tree:1", "Tree"));
    let other = Element::new(Name::new("urn:other", "Tree"));
    for (extension, is_reported) in [(empty, true), (other, false)] {
        let message = subscribe_message(1, None)
            .to_element(version)
            .with_child(extension);
        assert!(world.send_subscribe(1, message).tree.is_none());
        assert_eq!(world.off_tree_reason().is_some(), is_reported);
    }
    world.notify();
    assert!(world.spread().is_none());
    assert_eq!(world.notified().len(), 5);
}

/// A proof and an event are datagrams to the address that a subscription names.
#[test]
fn thousand_subscriptions_of_one_peer_cause_few_datagrams() {
    let limit = SourceConfig::default().subscriptions_per_peer_max;
    let mut world = World::new();
    world.subscribe(2, Some(peer(2)));
    world.report_proof(peer(2), true);
    let mut proofs = Vec::new();
    for number in 0..1_000_u16 {
        let [high, low] = number.to_be_bytes();
        let claimed = TreePeer {
            key: [high.wrapping_add(3), low].repeat(16).try_into().unwrap(),
            address: ([192, 0, 2, 1], 10_000 + number).into(),
        };
        let sink = TreeSink {
            peer: claimed,
            criticality: 255,
        };
        let message = subscribe_message(1, Some(sink));
        world.try_subscribe(1, message.to_element(Dialect::V2009.addressing()));
        proofs.extend(world.proof_requests());
    }
    assert_eq!(proofs.len(), limit);
    for claimed in proofs {
        world.report_proof(claimed, true);
        let members = world.members().unwrap();
        assert!(members.contains(&peer(2)) && members.len() <= limit + 1);
    }
    // One event is one spreading, however many sinks it has.
    world.notify();
    assert!(world.spread().is_some());
    assert!(world.notified().is_empty());
}

#[test]
fn criticality_is_parsed_and_checked() {
    let mut world = World::new();
    let at = |host, criticality| TreeSink {
        peer: peer(host),
        criticality,
    };
    for (host, criticality) in [(1, 3), (1, 9), (1, 4), (2, 0), (3, 255)] {
        world.subscribe_at(host, Some(peer(host)), criticality);
        world.report_proof(peer(host), true);
    }
    // Of a sink's subscriptions, the most critical counts.
    assert_eq!(world.sinks(), Some(vec![at(1, 9), at(2, 0), at(3, 255)]));
    let version = Dialect::V2009.addressing();
    let space = "urn:chappe:notification-tree:1";
    for hostile in ["256", "-1", "", "7 8", "1e2", "999999999999999999999999"] {
        let criticality_element = Element::new(Name::new(space, "Criticality")).with_text(hostile);
        let mut message = subscribe_message(4, Some(at(4, 0))).to_element(version);
        let tree = message.child(&Name::new(space, "Tree")).unwrap().clone();
        message = subscribe_message(4, None)
            .to_element(version)
            .with_child(tree.with_child(criticality_element));
        assert!(world.send_subscribe(4, message).tree.is_none(), "{hostile}");
        assert_eq!(
            world.off_tree_reason(),
            Some("the criticality is not an integer from 0 to 255")
        );
        assert!(world.proof_requests().is_empty());
    }
}

#[test]
fn new_sink_replaces_stale_key() {
    let mut world = World::new();
    world.subscribe(1, Some(peer(1)));
    world.report_proof(peer(1), true);
    let replacement = TreePeer {
        key: [3; 32],
        ..peer(1)
    };
    world.subscribe(1, Some(replacement));
    world.report_proof(replacement, true);
    assert_eq!(world.members(), Some(vec![replacement]));
    // An expired lease removes the member.
    world.outputs = world.source.advance(Duration::from_secs(601)).unwrap();
    assert_eq!(world.members(), Some(vec![]));
    assert_eq!(world.source.machine().on_trees(), 0);
}

#[test]
fn event_received_twice_is_delivered_once() {
    let config = SinkConfig::default();
    let sink = EventSink::new(config, Arc::new(|_, _| Ok(())), [7; 16]);
    let mut sink = Harness::new(sink, 7);
    let source = Source {
        endpoint: EndpointReference::new(format!("{BASE}/thermometer")),
        peer: ([192, 0, 2, 99], 80).into(),
        actions: vec![REPORT.into()],
        lease: Duration::from_secs(60),
        base: "http://192.0.2.1:9".into(),
        tree: Some(TreeSink {
            peer: peer(1),
            criticality: 3,
        }),
    };
    let (tree, source) = (source.tree, Box::new(source));
    let command = SinkCommand::Subscribe { key: KEY, source };
    let outputs = sink.input(Input::Command(command)).unwrap();
    let [
        Output::Transmit(SinkTransmit::Request {
            request, envelope, ..
        }),
    ] = &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    let version = Dialect::V2009.addressing();
    let proof_requests = Subscribe::from_element(version, envelope.body().unwrap()).unwrap();
    assert_eq!(proof_requests.tree, Ok(tree));
    let to = proof_requests.notify_to.unwrap().address.into_owned();
    let mut world = World::new();
    let granted = world.subscribe(1, Some(peer(1)));
    let reply = chappe_dpws::exchange::reply(envelope, action::SUBSCRIBE_RESPONSE, "urn:uuid:2");
    let answer = SinkReceive::Answer {
        request: *request,
        answer: Ok(Box::new(reply.with_body(granted.to_element(version)))),
    };
    let outputs = sink.input(Input::Receive(answer)).unwrap();
    assert!(outputs.iter().any(|output| matches!(
        output,
        Output::Event(SinkEvent::Tree { offer, .. }) if offer.source.address.port() == 5_499
    )));
    let body = Element::new(Name::new("urn:x", "R")).with_text("1");
    let spread = |id: &str, action: &'static str| SinkReceive::Spread {
        key: KEY,
        message_id: id.to_owned().into(),
        action: action.into(),
        body: Box::new(body.clone()),
    };
    let posted = |id: &'static str| {
        let sink_endpoint = EndpointReference::new(to.clone());
        let envelope = chappe_dpws::exchange::request(version, &sink_endpoint, REPORT, id);
        SinkReceive::Posted {
            token: Token(1),
            peer: ([192, 0, 2, 99], 80).into(),
            path: to
                .strip_prefix("http://192.0.2.1:9")
                .unwrap()
                .to_owned()
                .into(),
            envelope: Box::new(envelope.with_body(body.clone())),
        }
    };
    let mut delivered_by_tree = Vec::new();
    for receive in [
        spread("urn:uuid:a", REPORT),
        posted("urn:uuid:a"),
        posted("urn:uuid:b"),
        spread("urn:uuid:b", REPORT),
        spread("urn:uuid:c", "urn:x/Other"),
    ] {
        for output in sink.input(Input::Receive(receive)).unwrap() {
            match output {
                Output::Event(SinkEvent::Notification { by_tree, .. }) => {
                    delivered_by_tree.push(by_tree)
                }
                Output::Transmit(SinkTransmit::Reply { reply, .. }) => {
                    assert_eq!(reply.status, 202);
                }
                _ => {}
            }
        }
    }
    assert_eq!(delivered_by_tree, [true, false]);
    assert_eq!(sink.machine().duplicates(), 2);
}

#[test]
fn compact_message_has_all_ten_elements() {
    let typed = "<p:State xmlns:p='urn:p' xmlns:i='http://www.w3.org/2001/XMLSchema-instance' \
                 i:type='p:Numeric'>21.5<p:Unit code='Cel'/></p:State>";
    let message = Compact {
        action: "urn:example:plant/Readings".into(),
        event_id: Some([0xAB; 16]),
        reply_to: Some(([192, 0, 2, 1], 5_400).into()),
        message_number: Some(70_000),
        relates_to: Some(69_999),
        sink: Some("[2001:db8::1]:5400".parse().unwrap()),
        subscription: Some(([192, 0, 2, 1], 80).into()),
        subscription_id: Some(vec![1, 2, 3, 4, 5, 6, 7, 8]),
        list: vec![([192, 0, 2, 2], 1).into(), ([192, 0, 2, 3], 65_535).into()],
        data: Some(Element::parse(typed.as_bytes()).unwrap()),
    };
    let mut codec = CompactCodec::default();
    let bytes = codec.encode(&message).unwrap();
    let text = message.data.as_ref().unwrap().to_text();
    assert!(bytes.len() < text.len() + 150, "{} bytes", bytes.len());
    let read = codec.decode(&bytes).unwrap();
    assert_eq!(read, message);
    assert_eq!(read.data.unwrap().to_text(), text);
    // The mandatory element alone, and a truncated message.
    let none = Compact {
        action: "urn:x".into(),
        ..Compact::default()
    };
    let bytes = codec.encode(&none).unwrap();
    assert_eq!(codec.decode(&bytes), Ok(none));
    assert!(codec.decode(&bytes[..bytes.len() - 1]).is_err());
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut codec = CompactCodec::default();
        if let Ok(message) = codec.decode(&bytes) {
            prop_assert!(codec.encode(&message).is_ok());
        }
    }
}
