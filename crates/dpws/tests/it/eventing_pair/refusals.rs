//! Forged, refused and late messages change no subscription.

use std::time::Duration;

use chappe_dpws::eventing::message::{DELIVERY_MODE_PUSH, Subscribe};
use chappe_dpws::eventing::{
    Expiration, SinkCommand, SinkEvent, SinkRefusal, SourceRefusal, Token, TroubleReason,
};
use chappe_dpws::{Dialect, exchange};
use chappe_soap::{Addressing, EndpointReference, Envelope};
use chappe_xml::{Element, Name};

use super::{KEY, Packet, REPORT, SINK, World};

#[test]
fn forged_notifications_are_rejected() {
    let mut world = World::new(9);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    let version = Dialect::V2009.addressing();
    let forged = |action: &'static str| {
        Envelope::new(Addressing::new(version, action))
            .with_body(Element::new(Name::new("urn:x", "R")).with_text("666"))
    };
    for path in [
        "/events/",
        "/events",
        "/",
        "",
        "/events/0123456789abcdef0123456789abcdef",
    ] {
        world.post(Token(1), path, forged(REPORT));
    }
    assert_eq!(world.sink.machine().refused(SinkRefusal::Path), 5);
    assert!(world.received.is_empty());
    // A correct path still admits only subscribed actions.
    world.notify();
    let path = world.packets.values().find_map(|(_, packet)| match packet {
        Packet::Notification(_, text) => Envelope::parse(text.as_bytes()).unwrap().addressing.to,
        _ => None,
    });
    let path = path.unwrap();
    let path = path.strip_prefix(SINK).unwrap();
    world.post(Token(1), path, forged("urn:x/Other"));
    assert_eq!(world.sink.machine().refused(SinkRefusal::Action), 1);
    world.post(
        Token(1),
        path,
        Envelope::new(Addressing::new(version, REPORT)),
    );
    assert_eq!(world.sink.machine().refused(SinkRefusal::Malformed), 1);
    assert_eq!(world.live(), 1);
}

#[test]
fn rejected_subscription_backs_off_with_hint() {
    let mut world = World::new(10);
    world.subscribe(&["urn:x/Other"]);
    world.run(Duration::from_secs(1));
    let SinkEvent::Trouble { reason, hint, .. } = &world.events[0] else {
        panic!("{:?}", world.events);
    };
    assert!(matches!(reason, TroubleReason::Refused(_)));
    assert_eq!(
        *hint,
        Some("compare the requested actions with the service's WSDL")
    );
    world.run(Duration::from_secs(60));
    assert!(world.source.machine().refused(SourceRefusal::FilterAction) < 12);
}

#[test]
fn late_grant_is_unsubscribed() {
    let mut world = World::new(11);
    world.subscribe(&[REPORT]);
    // The request arrives; its answer stays in flight until it is abandoned.
    world.run(Duration::from_millis(1));
    let (_, (_, packet)) = world.packets.pop_first().unwrap();
    world.arrive((0, 0), packet);
    let (_, (_, answer)) = world.packets.pop_first().unwrap();
    world.command(SinkCommand::Unsubscribe { key: KEY });
    assert_eq!(world.live(), 1);
    world.arrive((0, 0), answer);
    world.run(Duration::from_secs(1));
    assert_eq!(world.live(), 0);
}

#[test]
fn hostile_answers_change_nothing() {
    let version = Dialect::V2009.addressing();
    let sink_endpoint = EndpointReference::new("http://h/");
    let reply = exchange::request(version, &sink_endpoint, "urn:any", "urn:uuid:1");
    let wrong = Subscribe {
        end_to: None,
        mode: Some(DELIVERY_MODE_PUSH.into()),
        notify_to: None,
        expires: Some(Expiration::At(0)),
        filter: None,
        tree: Ok(None),
    };
    for answer in [reply.clone(), reply.with_body(wrong.to_element(version))] {
        let mut world = World::new(12);
        world.subscribe(&[REPORT]);
        world.packets.clear();
        for request in [0, 1, 1, 7] {
            world.arrive(
                (0, 0),
                Packet::Answer(request, Ok(Box::new(answer.clone()))),
            );
        }
        assert!(matches!(
            &world.events[..],
            [SinkEvent::Trouble {
                reason: TroubleReason::Unusable(_),
                ..
            }]
        ));
    }
}
