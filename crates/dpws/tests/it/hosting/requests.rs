//! Requests are answered by the device or reach the application, and each gets one reply.

use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Content, Message, Probe};
use chappe_dpws::eventing::message::{DELIVERY_MODE_PUSH, Subscribe, SubscribeResponse, action};
use chappe_dpws::eventing::{SourceCommand, Token};
use chappe_dpws::exchange::{NONE, Reply, request};
use chappe_dpws::hosting::{DeviceCommand, DeviceEvent, HostRefusal, Method};
use chappe_dpws::metadata::{GetMetadata, Metadata, WsdlSection, get_metadata, transfer_get};
use chappe_soap::wsdl::{OperationKind, Wsdl};
use chappe_soap::{EndpointReference, Fault, FaultCode};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

use super::{BASE, URN, World, call, clock, get, name};

#[test]
fn metadata_use_the_dialect_of_the_request() {
    for dialect in Dialect::ALL {
        let mut world = World::new();
        let version = dialect.addressing();
        let request = transfer_get(version, &EndpointReference::new(URN), "urn:uuid:1");
        let answer = world.post(1, "/device", &request).unwrap();
        assert_eq!(world.status(), 200);
        assert_eq!(answer.addressing.version, version);
        assert_eq!(answer.addressing.relates_to.as_deref(), Some("urn:uuid:1"));
        let read = Metadata::from_element(answer.body().unwrap()).unwrap();
        let (metadata, answer_dialect, deviations) = read;
        assert_eq!((answer_dialect, deviations), (dialect, vec![]));
        let relationship = metadata.relationship.unwrap();
        let host = relationship.host.unwrap();
        assert_eq!(host.endpoint.address, URN);
        assert_eq!(host.types, [dialect.device_type(), name("Timepiece")]);
        let hosted = &relationship.hosted[0];
        assert_eq!(hosted.types, [Name::new("http://x/clock", "Clock")]);
        let service = &hosted.endpoints[0];
        assert_eq!(service.address, "http://192.0.2.7:80/clock");
        let request = get_metadata(version, service, &GetMetadata::default(), "urn:uuid:2");
        let answer = world.post(2, "/clock", &request).unwrap();
        let (metadata, ..) = Metadata::from_element(answer.body().unwrap()).unwrap();
        assert_eq!(metadata.relationship.unwrap().hosted.len(), 1);
        let [WsdlSection::Location(location)] = &metadata.wsdl[..] else {
            panic!("{:?}", metadata.wsdl);
        };
        world.http(3, location.strip_prefix(BASE).unwrap(), Method::Get);
        assert_eq!(
            world.reply.as_ref().unwrap().content_type(),
            Some("text/xml; charset=utf-8")
        );
        let text = world.reply.unwrap().to_text();
        assert_eq!(Wsdl::parse(text.as_bytes()), Ok(clock().to_wsdl()));
    }
}

#[test]
fn operations_reach_the_application() {
    let mut world = World::new();
    assert!(world.post(1, "/clock", &get()).is_none());
    let invocation = world.invocation().unwrap().clone();
    assert_eq!(&*invocation.service_id, "http://x/clock/1");
    assert_eq!(invocation.operation, "Get");
    assert_eq!(invocation.kind, OperationKind::RequestResponse);
    let body = Element::new(name("Time")).with_text("12:00");
    let token = invocation.token;
    world.command(DeviceCommand::Reply {
        token,
        result: Ok(Some(body.into())),
    });
    let answer = world.message().unwrap();
    assert_eq!(answer.addressing.action, "http://x/clock/Clock/GetResponse");
    assert_eq!(answer.addressing.relates_to.as_deref(), Some("urn:uuid:9"));
    assert_eq!(answer.body().unwrap().text(), "12:00");
    // A second answer is ignored.
    world.command(DeviceCommand::Reply {
        token,
        result: Ok(None),
    });
    assert!(world.reply.is_none());
    assert_eq!(world.device.machine().refused(HostRefusal::Answer), 1);
    // A fault of the application.
    world.post(2, "/clock/", &get());
    let fault = Fault::sender(name("Stopped"), "the clock has stopped");
    world.command(DeviceCommand::Reply {
        token: Token(2),
        result: Err(fault.clone()),
    });
    assert_eq!(world.status(), 400);
    let answer = world.message().unwrap();
    assert_eq!(answer.addressing.action, Dialect::V2009.dpws_fault_action());
    assert_eq!(answer.fault(), Some(fault));
}

#[test]
fn one_way_message_is_accepted_immediately() {
    let mut world = World::new();
    let mut set = call("http://x/clock/Clock/Set", Element::new(name("Time")));
    set.addressing.message_id = None;
    assert!(world.post(1, "/clock", &set).is_none());
    assert_eq!(world.reply, Some(Reply::ACCEPTED));
    assert_eq!(world.invocation().unwrap().operation, "Set");
    assert_eq!(world.device.deadline(), None);
}

#[test]
fn application_timeout_is_a_fault() {
    let mut world = World::new();
    world.post(1, "/clock", &get());
    let outputs = world.device.advance(Duration::from_secs(30)).unwrap();
    world.apply_outputs(outputs);
    assert_eq!(world.status(), 500);
    let fault = world.message().unwrap().fault().unwrap();
    assert_eq!(fault.code, FaultCode::Receiver);
    let unavailable = Dialect::V2009.addressing().name("EndpointUnavailable");
    assert_eq!(fault.subcode, Some(unavailable));
    assert!(
        world
            .events
            .contains(&DeviceEvent::Overdue { token: Token(1) })
    );
    // The number of waiting operations is limited.
    for token in 2..=3 {
        world.post(token, "/clock", &get());
        assert!(world.invocation().is_some());
    }
    world.post(4, "/clock", &get());
    assert_eq!(world.reply, Some(Reply::UNAVAILABLE));
    assert_eq!(world.device.machine().refused(HostRefusal::Busy), 1);
}

/// WS-Addressing 1.0 core, section 2.1.
#[test]
fn replies_to_none_are_discarded() {
    let none = || Some(EndpointReference::new(NONE));
    let mut world = World::new();
    let mut asked = get();
    asked.addressing.reply_to = none();
    asked.addressing.message_id = None;
    world.post(1, "/clock", &asked);
    let token = world.invocation().expect("the operation runs").token;
    world.command(DeviceCommand::Reply {
        token,
        result: Ok(Some(Element::new(name("Time")).into())),
    });
    assert_eq!(world.reply, Some(Reply::ACCEPTED));
    let version = Dialect::V2009.addressing();
    let mut asked = transfer_get(version, &EndpointReference::new(URN), "urn:uuid:1");
    asked.addressing.reply_to = none();
    world.post(2, "/device", &asked);
    assert_eq!(world.reply, Some(Reply::ACCEPTED));
    // Faults go to FaultTo, which defaults to ReplyTo.
    let anonymous = || Some(EndpointReference::new(version.anonymous()));
    for (reply_to, fault_to, status) in [
        (none(), None, 202),
        (anonymous(), none(), 202),
        (none(), anonymous(), 400),
    ] {
        let mut asked = get();
        asked.addressing.action = "urn:what".into();
        asked.addressing.reply_to = reply_to;
        asked.addressing.fault_to = fault_to;
        let answer = world.post(3, "/clock", &asked);
        assert_eq!(world.status(), status);
        assert_eq!(answer.is_some(), status == 400);
    }
}

/// DPWS 1.1, R1015, R1021 and R1022.
#[test]
fn probes_by_http_are_answered() {
    let mut world = World::new();
    world.command(DeviceCommand::Announce {
        scopes: vec!["http://example.org/ward/3".into()],
        metadata_version: 7,
    });
    let mut numbers = Vec::new();
    for dialect in Dialect::ALL {
        let version = dialect.addressing();
        let mut ask = |types: &[Name], scope: &'static str, match_by: Option<&'static str>| {
            let probe = Message {
                dialect,
                message_id: "urn:uuid:5".into(),
                relates_to: None,
                to: Some(dialect.multicast_to().into()),
                reply_to: Some(version.anonymous().into()),
                sequence: None,
                content: Content::Probe(Probe {
                    types: types.to_vec(),
                    scopes: vec![scope.into()],
                    match_by: match_by.map(Into::into),
                }),
            };
            world.post(1, "/device", &probe.to_envelope(&[])).unwrap()
        };
        let types = [dialect.device_type(), name("Timepiece")];
        let answer = ask(&types, "http://example.org/ward", None);
        let answer = Message::from_envelope(&answer).unwrap();
        assert_eq!(answer.dialect, dialect);
        assert_eq!(answer.relates_to.as_deref(), Some("urn:uuid:5"));
        numbers.push(answer.sequence.unwrap().message_number);
        let Content::ProbeMatches(targets) = answer.content else {
            panic!("{:?}", answer.content);
        };
        assert_eq!(targets.len(), 1);
        assert_eq!(targets[0].endpoint.address, URN);
        assert_eq!(targets[0].types, types);
        assert_eq!(targets[0].xaddrs, ["http://192.0.2.7:80/device"]);
        assert_eq!(targets[0].metadata_version, 7);
        for (types, scope) in [
            (&[name("Other")], "http://example.org/ward"),
            (&[name("Timepiece")], "http://example.org/hall"),
        ] {
            let answer = Message::from_envelope(&ask(types, scope, None)).unwrap();
            assert_eq!(answer.content, Content::ProbeMatches(Vec::new()));
        }
        let fault = ask(&[], "http://example.org/ward", Some("urn:rule")).fault();
        let subcode = fault.unwrap().subcode;
        assert_eq!(
            subcode,
            Some(dialect.discovery_name("MatchingRuleNotSupported"))
        );
    }
    assert_eq!(numbers, [1, 4], "unmatched Probes are answered too");
    assert_eq!(world.device.machine().refused(HostRefusal::MatchRule), 2);
}

#[test]
fn events_go_to_subscribers_of_the_service() {
    let mut world = World::new();
    let version = Dialect::V2009.addressing();
    let message = Subscribe {
        end_to: None,
        mode: Some(DELIVERY_MODE_PUSH.into()),
        notify_to: Some(EndpointReference::new("http://192.0.2.1:9/")),
        expires: None,
        filter: None,
        tree: Ok(None),
    };
    let answer = world.post(
        1,
        "/clock",
        &call(action::SUBSCRIBE, message.to_element(version)),
    );
    let answer = answer.unwrap();
    let granted = SubscribeResponse::from_element(version, answer.body().unwrap()).unwrap();
    assert!(
        granted
            .manager
            .address
            .starts_with("http://192.0.2.7:80/subscriptions/")
    );
    let notify = SourceCommand::Notify {
        action: "http://x/clock/Clock/Tick".into(),
        body: Element::new(name("Time")).into(),
    };
    world.command(DeviceCommand::Eventing(notify.clone()));
    assert_eq!(world.notification_count, 1);
    let unsubscribe = request(version, &granted.manager, action::UNSUBSCRIBE, "urn:uuid:2");
    let body = Element::new(Name::new(
        "http://schemas.xmlsoap.org/ws/2004/08/eventing",
        "Unsubscribe",
    ));
    let path = granted
        .manager
        .address
        .strip_prefix(BASE)
        .unwrap()
        .to_owned();
    world.post(2, &path, &unsubscribe.with_body(body));
    assert_eq!(world.status(), 200);
    world.command(DeviceCommand::Eventing(notify));
    assert_eq!(world.notification_count, 1);
}

proptest! {
    #[test]
    fn any_request_gets_one_reply_or_invocation(
        target in "(/(clock|device|subscriptions|[a-z?]{0,3})){0,3}(\\?[a-z]{0,4})?",
        action in proptest::sample::select(vec![
            "http://x/clock/Clock/GetRequest", "http://x/clock/Clock/Set", "urn:other",
            "http://schemas.xmlsoap.org/ws/2004/08/eventing/Subscribe",
            "http://schemas.xmlsoap.org/ws/2004/08/eventing/Renew",
            "http://schemas.xmlsoap.org/ws/2004/09/mex/GetMetadata/Request",
            "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get",
            "http://docs.oasis-open.org/ws-dd/ns/discovery/2009/01/Probe",
        ]),
        old in any::<bool>(),
        body in any::<bool>(),
    ) {
        let dialect = if old { Dialect::V2005 } else { Dialect::V2009 };
        let to = EndpointReference::new(URN);
        let mut envelope = request(dialect.addressing(), &to, action, "urn:uuid:1");
        if body {
            envelope = envelope.with_body(Element::new(name("Get")));
        }
        let mut world = World::new();
        world.post(1, &target, &envelope);
        let is_pending = world.invocation().is_some_and(|one| one.kind == OperationKind::RequestResponse);
        prop_assert!(world.reply.is_some() != is_pending);
    }
}
