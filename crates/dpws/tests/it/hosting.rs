//! Goal: a device answers each request with the right status, message or fault, and only its
//! operations reach the application.
//! Method: one machine in the harness, requests from the test, answers through text.

use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Content, Message, Probe};
use chappe_dpws::eventing::message::{DELIVERY_MODE_PUSH, Subscribe, SubscribeResponse, action};
use chappe_dpws::eventing::{SourceCommand, Token};
use chappe_dpws::exchange::{self, NONE, Reply, request};
use chappe_dpws::hosting::{
    Device, DeviceCommand, DeviceConfig, DeviceEvent, DeviceReceive, DeviceTransmit, HostRefusal,
    HostedService, HttpRequest, Invocation, Method,
};
use chappe_dpws::metadata::{
    GetMetadata, LocalizedString, Metadata, ThisDevice, ThisModel, WsdlSection, get_metadata,
    transfer_get,
};
use chappe_machine::{Harness, Input, Output};
use chappe_soap::wsdl::{OperationKind, Service, ServiceOperation, Wsdl};
use chappe_soap::{EndpointReference, Envelope, Fault, FaultCode, LazyEnvelope, NAMESPACE, v1_1};
use chappe_xml::{Element, Limits, Name};
use proptest::prelude::*;

const URN: &str = "urn:uuid:0a6dc791-2be6-4991-9af1-454778a1917a";
const BASE: &str = "http://192.0.2.7:80";

fn name(local: &'static str) -> Name {
    Name::new("http://x/types", local)
}

fn clock() -> Service {
    Service {
        target_namespace: "http://x/clock".into(),
        name: "Clock".into(),
        operations: vec![
            ServiceOperation::request("Get", name("Get"), name("Time")),
            ServiceOperation::one_way("Set", name("Time")),
            ServiceOperation::event("Tick", name("Time")),
        ],
        schemas: Vec::new(),
        address: None,
    }
}

/// A posted text, as a host reads it.
fn message(text: &str) -> Method {
    let read = LazyEnvelope::parse_within(text.to_owned().into(), Limits::default());
    Method::Post(read.map(Box::new))
}

struct World {
    device: Harness<Device>,
    reply: Option<Reply>,
    events: Vec<DeviceEvent>,
    notification_count: usize,
}

impl World {
    fn new() -> Self {
        let service = HostedService::new("http://x/clock/1", "/clock", clock().to_wsdl());
        let text = |text: &str| vec![LocalizedString::from(text)];
        let config = DeviceConfig {
            this_model: ThisModel {
                manufacturer: text("Maker"),
                model_name: text("Model"),
                ..ThisModel::default()
            },
            this_device: ThisDevice {
                friendly_name: text("The clock"),
                ..ThisDevice::default()
            },
            types: vec![name("Timepiece")],
            invocations_max: 2,
            ..DeviceConfig::new(EndpointReference::new(URN), vec![service])
        };
        let device = Device::new(config, Arc::new(|_, _| Ok(())), [3; 16]);
        Self {
            device: Harness::new(device, 3),
            reply: None,
            events: Vec::new(),
            notification_count: 0,
        }
    }

    fn apply_outputs(&mut self, outputs: Vec<Output<DeviceTransmit, DeviceEvent>>) {
        self.reply = None;
        self.events.clear();
        for output in outputs {
            match output {
                Output::Transmit(DeviceTransmit::Tree(tree)) => {
                    panic!("unexpected tree output: {tree:?}")
                }
                Output::Transmit(DeviceTransmit::Reply { reply, .. }) => {
                    assert!(self.reply.is_none(), "one reply for each request");
                    self.reply = Some(reply);
                }
                Output::Transmit(DeviceTransmit::Notify(_)) => self.notification_count += 1,
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn http(&mut self, token: u64, target: &str, method: Method) {
        let request = HttpRequest {
            token: Token(token),
            peer: ([192, 0, 2, 1], 4711).into(),
            base: BASE.into(),
            target: target.to_owned().into(),
            method,
        };
        let input = Input::Receive(DeviceReceive::Http(Box::new(request)));
        let outputs = self.device.input(input).unwrap();
        self.apply_outputs(outputs);
    }

    fn post(&mut self, token: u64, target: &str, envelope: &Envelope) -> Option<Envelope> {
        self.http(token, target, message(&envelope.to_text()));
        self.message()
    }

    fn message(&self) -> Option<Envelope> {
        let reply = self.reply.as_ref()?;
        reply.envelope()?;
        assert_eq!(
            reply.content_type(),
            Some("application/soap+xml; charset=utf-8")
        );
        Some(Envelope::parse(reply.to_text().as_bytes()).unwrap())
    }

    fn command(&mut self, command: DeviceCommand) {
        let outputs = self.device.input(Input::Command(command)).unwrap();
        self.apply_outputs(outputs);
    }

    fn invocation(&self) -> Option<&Invocation> {
        self.events.iter().find_map(|event| match event {
            DeviceEvent::Invoked(invocation) => Some(&**invocation),
            _ => None,
        })
    }

    fn status(&self) -> u16 {
        self.reply.as_ref().map_or(0, |reply| reply.status)
    }
}

fn call(action: &'static str, body: Element) -> Envelope {
    let to = EndpointReference::new("http://192.0.2.7:80/clock");
    request(Dialect::V2009.addressing(), &to, action, "urn:uuid:9").with_body(body)
}

fn get() -> Envelope {
    call("http://x/clock/Clock/GetRequest", Element::new(name("Get")))
}

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

#[test]
fn invalid_messages_get_the_right_fault() {
    let must_understand = Name::new(NAMESPACE, "mustUnderstand");
    let header = |value: &'static str| {
        let header = Element::new(Name::new("urn:h", "H"));
        get().with_header(header.with_attribute(must_understand.clone(), value))
    };
    let elsewhere = EndpointReference::new("http://203.0.113.1/");
    let modified = |change: &dyn Fn(&mut Envelope)| {
        let mut envelope = get();
        change(&mut envelope);
        envelope
    };
    let cases: [(Envelope, u16, FaultCode, Option<&str>, HostRefusal); 6] = [
        (
            header("1"),
            500,
            FaultCode::MustUnderstand,
            None,
            HostRefusal::NotUnderstood,
        ),
        (
            modified(&|envelope| envelope.addressing.reply_to = Some(elsewhere.clone())),
            400,
            FaultCode::Sender,
            Some("InvalidAddressingHeader"),
            HostRefusal::Addressing,
        ),
        (
            modified(&|envelope| envelope.addressing.fault_to = Some(elsewhere.clone())),
            400,
            FaultCode::Sender,
            Some("InvalidAddressingHeader"),
            HostRefusal::Addressing,
        ),
        (
            modified(&|envelope| envelope.addressing.message_id = None),
            400,
            FaultCode::Sender,
            Some("MessageAddressingHeaderRequired"),
            HostRefusal::Addressing,
        ),
        (
            modified(&|envelope| envelope.addressing.to = Some("urn:uuid:other".into())),
            400,
            FaultCode::Sender,
            Some("DestinationUnreachable"),
            HostRefusal::Destination,
        ),
        (
            modified(&|envelope| envelope.addressing.action = "urn:what".into()),
            400,
            FaultCode::Sender,
            Some("ActionNotSupported"),
            HostRefusal::Action,
        ),
    ];
    for (envelope, status, code, subcode, reason) in cases {
        let mut world = World::new();
        let answer = world.post(1, "/clock", &envelope).unwrap();
        assert_eq!(world.status(), status, "{reason:?}");
        let fault = answer.fault().unwrap();
        assert_eq!(fault.code, code);
        assert_eq!(fault.subcode.as_ref().map(|name| &*name.local), subcode);
        assert_eq!(
            answer.addressing.to.as_deref(),
            Some(answer.addressing.version.anonymous())
        );
        assert_eq!(world.device.machine().refused(reason), 1);
        assert!(world.invocation().is_none());
    }
    let mut world = World::new();
    world.post(1, "/clock", &header("0"));
    assert!(
        world.invocation().is_some(),
        "a header without mustUnderstand"
    );
}

#[test]
fn unreadable_or_misdirected_requests_are_rejected() {
    let mut world = World::new();
    for (target, method, status, reason) in [
        ("/clock", message("<a/>"), 400, HostRefusal::Unreadable),
        ("/clock", Method::Get, 405, HostRefusal::Method),
        ("/device?wsdl", Method::Get, 405, HostRefusal::Method),
        ("/clock", Method::Other, 405, HostRefusal::Method),
        ("/nowhere", Method::Get, 404, HostRefusal::Path),
        ("", message(&get().to_text()), 404, HostRefusal::Path),
    ] {
        let before = world.device.machine().refused(reason);
        world.http(1, target, method);
        assert_eq!(world.status(), status, "{target}");
        assert_eq!(world.device.machine().refused(reason), before + 1);
    }
    for (target, method, allow) in [
        ("/clock", Method::Get, "GET, POST"),
        ("/device", Method::Other, "POST"),
    ] {
        world.http(1, target, method);
        assert_eq!(world.reply.as_ref().unwrap().allow, Some(allow));
    }
    // Services accept subscriptions, the device itself does not.
    let version = Dialect::V2009.addressing();
    let to = EndpointReference::new(URN);
    let envelope = request(version, &to, action::SUBSCRIBE, "urn:uuid:1");
    world.post(1, "/device", &envelope);
    assert_eq!(world.device.machine().refused(HostRefusal::Action), 1);
}

/// SOAP 1.2 part 1, section 5.4.7 and appendix A.
#[test]
fn other_versions_of_soap_are_told_the_supported_one() {
    let mut world = World::new();
    let mut post = |text: &str| {
        world.http(1, "/clock", message(text));
        assert_eq!(world.status(), 500);
        world.reply.clone().unwrap()
    };
    let old = v1_1::NAMESPACE;
    let reply = post(&format!(
        "<e:Envelope xmlns:e='{old}'><e:Body/></e:Envelope>"
    ));
    assert_eq!(reply.content_type(), Some("text/xml; charset=utf-8"));
    let read = v1_1::Envelope::parse(reply.to_text().as_bytes(), Limits::default()).unwrap();
    assert!(read.body.name.is(old, "Fault"));
    assert!(read.headers[0].name.is(NAMESPACE, "Upgrade"));
    let reply = post("<e:Envelope xmlns:e='urn:next'><e:Body/></e:Envelope>");
    let read = Envelope::parse(reply.to_text().as_bytes()).unwrap();
    assert_eq!(read.fault().unwrap().code, FaultCode::VersionMismatch);
    assert!(read.headers[0].name.is(NAMESPACE, "Upgrade"));
}

/// SOAP 1.2 part 1, section 5.4.8.
#[test]
fn headers_that_are_not_understood_are_named() {
    let mut world = World::new();
    let names = [Name::new("urn:h", "One"), Name::new("urn:i", "Two")];
    let mut asked = get();
    for name in &names {
        let header = Element::new(name.clone());
        let must_understand = Name::new(NAMESPACE, "mustUnderstand");
        asked = asked.with_header(header.with_attribute(must_understand, "1"));
    }
    let answer = world.post(1, "/clock", &asked).unwrap();
    let named = answer.headers.iter().map(|header| {
        assert!(header.name.is(NAMESPACE, "NotUnderstood"));
        let qname = header.attribute(&Name::local("qname")).unwrap();
        header.resolve(&[], qname).unwrap()
    });
    assert_eq!(named.collect::<Vec<_>>(), names);
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

#[test]
fn faults_have_the_namespaces_of_the_asker() {
    let version = Dialect::V2005.addressing();
    let to = EndpointReference::new("http://192.0.2.7:80/clock");
    let ask = |action: &'static str| {
        request(version, &to, action, "urn:uuid:9").with_body(Element::new(name("Get")))
    };
    let action = "http://x/clock/Clock/GetRequest";
    let mut world = World::new();
    let subcode = |answer: Option<Envelope>| {
        let answer = answer.expect("a fault");
        assert_eq!(answer.addressing.version, version);
        assert_eq!(answer.addressing.action, version.fault_action());
        answer.fault().unwrap().subcode.unwrap()
    };
    let mut without_id = ask(action);
    without_id.addressing.message_id = None;
    let found = subcode(world.post(1, "/clock", &without_id));
    assert_eq!(found, version.name("MessageInformationHeaderRequired"));
    let mut elsewhere = ask(action);
    elsewhere.addressing.reply_to = Some(EndpointReference::new("http://203.0.113.1/"));
    let found = subcode(world.post(1, "/clock", &elsewhere));
    assert_eq!(found, version.name("InvalidMessageInformationHeader"));
    let found = subcode(world.post(1, "/clock", &ask("urn:what")));
    assert_eq!(found, version.name("ActionNotSupported"));
    // A fault of the application, which does not know the asker's version.
    world.post(2, "/clock", &ask(action));
    let fault = exchange::action_not_supported(Dialect::V2009.addressing(), action);
    world.command(DeviceCommand::Reply {
        token: Token(2),
        result: Err(fault),
    });
    let found = subcode(world.message());
    assert_eq!(found, version.name("ActionNotSupported"));
    // A message that cannot be read to its end.
    let twice = ask(action)
        .to_text()
        .replacen("<wsa:To>", "<wsa:To>x</wsa:To><wsa:To>", 1);
    world.http(3, "/clock", message(&twice));
    let found = subcode(world.message());
    assert_eq!(found, version.name("InvalidMessageInformationHeader"));
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
