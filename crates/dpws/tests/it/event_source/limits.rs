//! The number of subscriptions is limited, overall and for each peer, and nobody changes those of others.

use std::net::IpAddr;
use std::sync::Arc;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::message::{Lease, Subscribe, SubscriptionEnd, action};
use chappe_dpws::eventing::{
    EndStatus, EventSource, Request, SourceConfig, SourceReceive, SourceRefusal, SourceTransmit,
    Token,
};
use chappe_dpws::exchange::request;
use chappe_machine::{Input, Instant, Output, drain};
use chappe_soap::EndpointReference;

use super::{REPORT, World, config, subscribe_message};

#[test]
fn subscriptions_are_limited_overall_and_per_peer() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
    world.subscribe(1, &good).unwrap();
    world.subscribe(1, &good).unwrap();
    assert!(world.subscribe(1, &good).is_err());
    world.subscribe(2, &good).unwrap();
    // Two of one host and one of the other: a second one would only turn that round.
    assert!(world.subscribe(2, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::PeerFull), 1);
    assert_eq!(world.refused(SourceRefusal::Full), 1);
}

#[test]
fn host_with_fewer_subscriptions_takes_the_oldest_of_the_host_with_most() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
    let oldest = world.subscribe(1, &good).unwrap();
    let second = world.subscribe(1, &good).unwrap();
    let other = world.subscribe(2, &good).unwrap();
    // A request that is refused for another reason displaces nothing.
    let forbidden = Subscribe {
        notify_to: Some(EndpointReference::new("http://forbidden/")),
        ..good.clone()
    };
    assert!(world.subscribe(3, &forbidden).is_err());
    assert_eq!(world.source.machine().subscriptions(), 3);
    let newcomer = world.subscribe(3, &good).unwrap();
    let end = world.notifications().remove(0);
    assert_eq!(end.to(), "http://192.0.2.1:9/end/1");
    let message = end.to_envelope();
    let version = Dialect::V2009.addressing();
    let message = SubscriptionEnd::from_element(version, message.body().unwrap()).unwrap();
    assert_eq!(message.status, EndStatus::SourceCancelling);
    assert_eq!(message.manager.as_ref(), Some(&oldest.manager));
    for (granted, lives) in [
        (oldest, false),
        (second, true),
        (other, true),
        (newcomer, true),
    ] {
        let manager = &granted.manager;
        let status = world.manage(manager, action::GET_STATUS, Lease::GetStatus, None);
        assert_eq!(status.is_ok(), lives, "{manager:?}");
    }
    // All have one, so that a fourth host gets none.
    assert!(world.subscribe(4, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::Full), 1);
}

#[test]
fn addresses_of_one_ipv6_network_are_one_peer() {
    let mut world = World::new(config());
    let good = subscribe_message(&[REPORT], 60);
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    for last in ["2001:db8::1", "2001:db8::2"] {
        world.subscribe_from(address(last), &good).unwrap();
    }
    let third = address("2001:db8::ffff:0:0:3");
    assert!(world.subscribe_from(third, &good).is_err());
    assert_eq!(world.refused(SourceRefusal::PeerFull), 1);
    let elsewhere = address("2001:db8:0:1::1");
    world.subscribe_from(elsewhere, &good).unwrap();
    assert_eq!(world.source.machine().subscriptions(), 3);
}

#[test]
fn million_subscriptions_are_granted_or_rejected() {
    const SERVED: u64 = 100;
    let config = SourceConfig {
        subscriptions_max: SERVED as usize,
        subscriptions_per_peer_max: SERVED as usize,
        ..config()
    };
    let mut source = EventSource::new(config, Arc::new(|_: &str, _| Ok(())), [7; 16]);
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("http://192.0.2.99:80/thermometer");
    let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1")
        .with_body(subscribe_message(&[REPORT], 60).to_element(version));
    let (mut answers, mut largest) = (0, 0);
    for number in 0..1_000_000_u32 {
        let [_, high, middle, low] = number.to_be_bytes();
        let request = Request {
            token: Token(number.into()),
            peer: ([10, high, middle, low], 4711).into(),
            base: "http://192.0.2.99:80".into(),
            path: "/thermometer".into(),
            envelope: envelope.clone(),
        };
        let mut outputs = 0;
        let input = Input::Receive(SourceReceive::Request(Box::new(request)));
        drain(&mut source, Instant::ZERO, input, |output| {
            outputs += 1;
            let answer = matches!(output, Output::Transmit(SourceTransmit::Response { .. }));
            answers += u64::from(answer);
        });
        largest = largest.max(outputs);
    }
    assert_eq!(answers, 1_000_000, "every request gets an answer");
    assert_eq!(source.subscribers(REPORT) as u64, SERVED);
    assert_eq!(source.refused(SourceRefusal::Full), 1_000_000 - SERVED);
    assert!(largest <= 4, "{largest} outputs for one request");
}

#[test]
fn forged_and_malformed_requests_change_nothing() {
    let mut world = World::new(config());
    let granted = world
        .subscribe(1, &subscribe_message(&[REPORT], 60))
        .unwrap();
    let (prefix, id) = granted.manager.address.rsplit_once('/').unwrap();
    let mut forged: Vec<_> = [&id[..31], "", "..", "zz", &"0".repeat(32), &"é".repeat(16)]
        .iter()
        .map(|id| format!("{prefix}/{id}"))
        .collect();
    forged.push(format!("{prefix}/{id}/x"));
    for address in forged {
        let manager = EndpointReference::new(address);
        let result = world.manage(&manager, action::UNSUBSCRIBE, Lease::Unsubscribe, None);
        assert!(result.is_err());
    }
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new("http://h/");
    let empty = request(version, &to, action::SUBSCRIBE, "urn:uuid:9");
    assert!(
        world
            .send_request(1, "/thermometer", empty.clone())
            .fault()
            .is_some()
    );
    assert!(
        world
            .send_request(
                1,
                "/elsewhere",
                empty.with_body(subscribe_message(&[REPORT], 1).to_element(version))
            )
            .fault()
            .is_some()
    );
    let other = request(version, &to, "urn:other", "urn:uuid:9");
    let fault = world
        .send_request(1, "/thermometer", other)
        .fault()
        .unwrap();
    assert_eq!(fault.subcode.unwrap().local, "ActionNotSupported");
    assert_eq!(world.source.machine().subscriptions(), 1);
}

#[test]
fn identifiers_are_unpredictable() {
    let mut world = World::new(SourceConfig {
        subscriptions_per_peer_max: 3,
        ..config()
    });
    let ids: Vec<_> = (0..3)
        .map(|_| {
            let granted = world
                .subscribe(1, &subscribe_message(&[REPORT], 60))
                .unwrap();
            let id = granted
                .manager
                .address
                .rsplit_once('/')
                .unwrap()
                .1
                .to_owned();
            u128::from_str_radix(&id, 16).unwrap()
        })
        .collect();
    let steps = [ids[1].wrapping_sub(ids[0]), ids[2].wrapping_sub(ids[1])];
    assert_ne!(steps[0], steps[1]);
    assert!((ids[0] ^ ids[1]).count_ones() > 20);
}
