//! Invalid requests get the status and fault of the specification, in the dialect of the asker.

use chappe_dpws::eventing::Token;
use chappe_dpws::eventing::message::action;
use chappe_dpws::exchange::request;
use chappe_dpws::hosting::{DeviceCommand, HostRefusal, Method};
use chappe_dpws::{Dialect, exchange};
use chappe_soap::{EndpointReference, Envelope, FaultCode, NAMESPACE, v1_1};
use chappe_xml::{Element, Limits, Name};

use super::{URN, World, get, message, name};

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
