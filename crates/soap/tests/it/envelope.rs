//! Goal: envelopes round-trip, and invalid messages are rejected with the right error.
//!
//! Method: round trips in both addressing versions, and small broken envelopes.

use chappe_soap::{
    Addressing, AddressingVersion, EndpointReference, Envelope, Error, Fault, NAMESPACE,
    Relationship,
};
use chappe_xml::{Element, Name};

const WSA: &str = "http://www.w3.org/2005/08/addressing";

fn envelope(children: &str) -> Result<Envelope, Error> {
    let text = format!("<s:Envelope xmlns:s='{NAMESPACE}' xmlns:a='{WSA}'>{children}</s:Envelope>");
    Envelope::parse(text.as_bytes())
}

#[test]
fn all_addressing_properties_round_trip() {
    for version in [AddressingVersion::V200408, AddressingVersion::V200508] {
        let parameter = Element::new(Name::new("urn:x", "Id")).with_text("7");
        let mut reference = EndpointReference::new("urn:uuid:1");
        reference.reference_parameters.push(parameter);
        let addressing = Addressing {
            message_id: Some("urn:uuid:2".into()),
            to: Some("http://192.0.2.1/".into()),
            relates_to: Some("urn:uuid:3".into()),
            from: Some(reference.clone()),
            reply_to: Some(reference.clone()),
            fault_to: Some(reference),
            ..Addressing::new(version, "urn:x/Do")
        };
        let sent = Envelope::new(addressing.clone())
            .with_header(Element::new(Name::new("urn:x", "Header")))
            .with_body(Element::new(Name::new("urn:x", "Do")));
        let mut read = Envelope::parse(sent.to_text().as_bytes()).expect("a valid envelope");
        for reference in [
            &mut read.addressing.from,
            &mut read.addressing.reply_to,
            &mut read.addressing.fault_to,
        ] {
            for parameter in &mut reference
                .as_mut()
                .expect("a reference")
                .reference_parameters
            {
                parameter.namespaces.clear();
            }
        }
        assert_eq!(read.addressing, addressing);
        assert!(read.header(&Name::new("urn:x", "Header")).is_some());
        assert!(read.body().is_some_and(|body| body.name.is("urn:x", "Do")));
    }
}

/// A reference is stored with each subscription and sent with each message to its endpoint.
#[test]
fn references_and_reasons_are_limited() {
    let version = AddressingVersion::V200508;
    let read = |text: &str, count: usize| {
        let parameters = "<p/>".repeat(count);
        let text = format!(
            "<a:To xmlns:a='{WSA}'><a:Address>{text}</a:Address><a:ReferenceParameters>{parameters}\
             </a:ReferenceParameters></a:To>"
        );
        let element = Element::parse(text.as_bytes()).expect("a reference");
        EndpointReference::from_element(version, &element)
    };
    assert!(read(&"x".repeat(2_000), 20).is_ok());
    let is_too_long = |read| matches!(read, Err(Error::LongReference { .. }));
    assert!(is_too_long(read("x", 1_000)) && is_too_long(read(&"x".repeat(20_000), 0)));
    let fault = Fault::sender(Name::new("urn:x", "No"), "r".repeat(100_000)).to_element();
    let read = Fault::from_element(&fault).expect("a fault");
    assert_eq!(read.reason.len(), 1_024);
}

#[test]
fn sender_prefixes_are_kept_for_content() {
    let read = envelope(
        "<s:Header><a:Action>urn:x</a:Action></s:Header>\
         <s:Body xmlns:p='urn:p'><a:Q xmlns:q='urn:q'>p:n</a:Q></s:Body>",
    )
    .expect("an envelope");
    let body = read.body().expect("a body");
    assert_eq!(body.resolve(&[], "p:n"), Some(Name::new("urn:p", "n")));
    assert_eq!(body.resolve(&[], "q:n"), Some(Name::new("urn:q", "n")));
    assert_eq!(body.resolve(&[], "r:n"), None);
}

#[test]
fn broken_envelopes_get_the_right_error() {
    let action = "<s:Header><a:Action>urn:x</a:Action></s:Header>";
    let body = "<s:Body/>";
    assert!(envelope(&format!("{action}{body}")).is_ok());
    assert_eq!(envelope(action), Err(Error::NoBody));
    let version = AddressingVersion::V200508;
    let header = "Action";
    let missing = Err(Error::MissingHeader { version, header });
    assert_eq!(envelope(body), missing);
    let empty = "<s:Header><a:Action> </a:Action></s:Header><s:Body/>";
    assert_eq!(envelope(empty), missing);
    let twice = "<s:Header><a:Action>u</a:Action><a:To>v</a:To><a:To>w</a:To></s:Header><s:Body/>";
    assert_eq!(
        envelope(twice),
        Err(Error::DuplicateHeader {
            version,
            header: "To"
        })
    );
    // Errors name the sender's version, for the fault.
    let old = AddressingVersion::V200408;
    let without_action = format!("<s:Header><o:To xmlns:o='{}'/></s:Header>", old.namespace());
    let error = envelope(&format!("{without_action}{body}")).expect_err("no action");
    assert_eq!(error.addressing_version(), Some(old));
    for children in [
        format!("{action}{body}{body}"),
        format!("{action}{action}{body}"),
        format!("{body}{action}"),
        format!("{action}{body}<a:Extra/>"),
    ] {
        assert!(
            matches!(envelope(&children), Err(Error::Structure(_))),
            "{children}"
        );
    }
    let old = "<e:Envelope xmlns:e='http://schemas.xmlsoap.org/soap/envelope/'/>";
    assert_eq!(Envelope::parse(old.as_bytes()), Err(Error::VersionMismatch));
    let other = Name::local("a");
    assert_eq!(Envelope::parse(b"<a/>"), Err(Error::NotEnvelope(other)));
    assert!(matches!(
        Envelope::parse(b"<!DOCTYPE a><a/>"),
        Err(Error::Xml(_))
    ));
}

#[test]
fn unknown_mandatory_header_is_reported() {
    let read = envelope(
        "<s:Header><a:Action>urn:x</a:Action><p:K xmlns:p='urn:p' s:mustUnderstand='1'/>\
         <p:L xmlns:p='urn:p' s:mustUnderstand='false'/></s:Header><s:Body/>",
    )
    .expect("an envelope");
    let known = Name::new("urn:p", "K");
    let names = |understood: &[Name]| -> Vec<Name> {
        let headers = read.not_understood(understood);
        headers.map(|header| header.name.clone()).collect()
    };
    assert_eq!(names(&[]), std::slice::from_ref(&known));
    assert!(names(&[known]).is_empty());
}

/// SOAP 1.2 part 1, section 2.2: without a role, and in these two, a header is for the receiver.
#[test]
fn headers_for_other_roles_are_not_ours() {
    let roles = format!("{NAMESPACE}/role");
    for (role, is_ours) in [
        (String::new(), true),
        (format!("{roles}/next"), true),
        (format!("{roles}/ultimateReceiver"), true),
        (format!("{roles}/none"), false),
        ("urn:relay".to_owned(), false),
    ] {
        let read = envelope(&format!(
            "<s:Header><a:Action>urn:x</a:Action><a:To s:role='{role}'>urn:there</a:To>\
             <p:K xmlns:p='urn:p' s:mustUnderstand='1' s:role='{role}'/></s:Header><s:Body/>",
        ))
        .expect("an envelope");
        assert_eq!(
            read.not_understood(&[]).count(),
            usize::from(is_ours),
            "{role}"
        );
        assert_eq!(read.addressing.to.is_some(), is_ours, "{role}");
    }
    // One header for each role is no repetition.
    let read = envelope(
        "<s:Header><a:Action>urn:x</a:Action><a:To>urn:me</a:To>\
         <a:To s:role='urn:relay'>urn:relay</a:To></s:Header><s:Body/>",
    )
    .expect("an envelope");
    assert_eq!(read.addressing.to.as_deref(), Some("urn:me"));
}

#[test]
fn relationships_may_be_repeated() {
    let relationship = |kind: &'static str, id: &'static str| Relationship {
        kind: kind.into(),
        message_id: id.into(),
    };
    for (version, kind) in [
        (AddressingVersion::V200408, "{urn:k}After"),
        (AddressingVersion::V200508, "urn:k/after"),
    ] {
        let addressing = Addressing {
            relates_to: Some("urn:asked".into()),
            relationships: vec![relationship(kind, "urn:one"), relationship(kind, "urn:two")],
            ..Addressing::new(version, "urn:x/Do")
        };
        let sent = Envelope::new(addressing.clone());
        let read = Envelope::parse(sent.to_text().as_bytes()).expect("a valid envelope");
        assert_eq!(read.addressing, addressing);
    }
    for kind in [
        "",
        "RelationshipType='a:Reply'",
        "RelationshipType='http://www.w3.org/2005/08/addressing/reply'",
    ] {
        let header = |id| format!("<a:RelatesTo {kind}>{id}</a:RelatesTo>");
        let with = |headers: String| {
            envelope(&format!(
                "<s:Header><a:Action>u</a:Action>{headers}</s:Header><s:Body/>"
            ))
        };
        let read = with(header("urn:asked")).expect("an envelope").addressing;
        assert_eq!(read.relates_to.as_deref(), Some("urn:asked"), "{kind}");
        assert!(read.relationships.is_empty());
        let twice = with(format!("{}{}", header("urn:one"), header("urn:two")));
        assert!(matches!(
            twice,
            Err(Error::DuplicateHeader {
                header: "RelatesTo",
                ..
            })
        ));
    }
}

#[test]
fn faults_round_trip() {
    let fault = Fault::sender(Name::new("urn:x", "Wrong"), "it is <wrong> & more");
    let sent = Envelope::new(Addressing::new(AddressingVersion::V200508, "urn:x/fault"))
        .with_body(fault.to_element());
    let read = Envelope::parse(sent.to_text().as_bytes()).expect("a valid envelope");
    assert_eq!(read.fault(), Some(fault));
}
