//! Goal: WSDL 1.1 is read whatever its prefixes and style, written in one form, and never causes a
//! panic.
//! Method: a handwritten document with all four kinds of operations, descriptions in round trips,
//! and arbitrary trees of WSDL and schema names.

use chappe_soap::rust::Modules;
use chappe_soap::schema::{Argument, Model, Schemas};
use chappe_soap::wsdl::{
    Import, OperationKind, Protocol, Service, ServiceOperation, Wsdl, WsdlError,
};
use chappe_xml::{Element, Name};
use proptest::prelude::*;

const CLOCK: &str = r#"<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" xmlns:a="urn:clock"
    xmlns:b="http://schemas.xmlsoap.org/wsdl/soap12/" targetNamespace="urn:clock"
    xmlns:w="http://www.w3.org/2006/05/addressing/wsdl"
    xmlns:e="http://schemas.xmlsoap.org/ws/2004/08/eventing">
  <import namespace="urn:other" location="other.wsdl"/>
  <types><x:schema xmlns:x="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:clock">
    <x:element name="Time" type="x:dateTime"/><x:element name="Own" type="a:Y"/>
    <x:simpleType name="Y"><x:restriction base="x:int"/></x:simpleType></x:schema></types>
  <message name="M"><part name="p" element="a:Time"/></message>
  <message name="R"><part name="p" type="a:Y"/></message>
  <portType name="Clock" e:EventSource="true">
    <operation name="Set"><input message="a:M"/></operation>
    <operation name="Get"><input message="a:R" w:Action="urn:get"/><output message="a:M"/>
      <fault name="Late" message="a:R"/></operation>
    <operation name="Tick"><documentation>Each second.</documentation>
      <output message="a:M" name="Ticked"/></operation>
    <operation name="Ask"><output message="a:M"/><input message="a:R"/></operation>
  </portType>
  <binding name="B" type="a:Clock"><b:binding style="document"/>
    <operation name="Set"><b:operation soapAction="urn:set"/><input/></operation></binding>
  <service name="S"><port name="P" binding="a:B"><b:address location="http://h/"/></port></service>
</definitions>"#;

#[test]
fn document_is_parsed() {
    let wsdl = Wsdl::parse(CLOCK.as_bytes()).unwrap();
    assert_eq!(
        wsdl.imports,
        [Import {
            namespace: "urn:other".into(),
            location: Some("other.wsdl".into())
        }]
    );
    let kinds: Vec<_> = wsdl
        .operations()
        .map(|(_, operation)| operation.kind)
        .collect();
    use OperationKind as K;
    assert_eq!(
        kinds,
        [
            K::OneWay,
            K::RequestResponse,
            K::Notification,
            K::SolicitResponse
        ]
    );
    let port_type = &wsdl.port_types[0];
    assert!(port_type.event_source);
    let get = &port_type.operations[1];
    assert_eq!(get.input.as_ref().unwrap().action, "urn:get");
    assert_eq!(
        get.output.as_ref().unwrap().action,
        "urn:clock:Clock:GetResponse"
    );
    assert_eq!(get.faults[0].action, "urn:clock:Clock:Get/Fault/Late");
    let time = Name::new("urn:clock", "Time");
    let events: Vec<_> = wsdl.events().collect();
    assert_eq!(
        events,
        [
            ("urn:clock:Clock:Ticked", Some(&time)),
            ("urn:clock:Clock:AskSolicit", Some(&time))
        ]
    );
    assert_eq!(
        wsdl.operation_of("urn:set").unwrap().1.name,
        "Set",
        "the binding's SOAP action"
    );
    assert_eq!(wsdl.bindings[0].protocol, Protocol::Soap12);
    assert_eq!(
        wsdl.bindings[0].operations,
        [("Set".to_owned(), "urn:set".to_owned())]
    );
    assert_eq!(
        wsdl.services[0].ports[0].address.as_deref(),
        Some("http://h/")
    );
}

#[test]
fn schemas_keep_prefixes_in_scope() {
    let wsdl = Wsdl::parse(CLOCK.as_bytes()).unwrap();
    let mut schemas = Schemas::default();
    schemas.add("clock.wsdl", &wsdl.schemas[0]).unwrap();
    // The prefix `a` is declared on the definitions only.
    assert!(schemas.flat(&Name::new("urn:clock", "Own")).is_ok());
}

#[test]
fn written_documents_round_trip() {
    let mut parsed = Wsdl::parse(CLOCK.as_bytes()).unwrap();
    let reread = Wsdl::parse(parsed.to_text().as_bytes()).unwrap();
    // Every action is written explicitly.
    for operation in &mut parsed.port_types[0].operations {
        let messages = operation.input.iter_mut().chain(&mut operation.output);
        for message in messages.chain(&mut operation.faults) {
            message.has_explicit_action = true;
        }
    }
    assert_eq!(reread.port_types, parsed.port_types);
    assert_eq!(reread.messages, parsed.messages);
    assert_eq!(reread.bindings, parsed.bindings);
    assert_eq!(reread.services, parsed.services);
}

#[test]
fn policy_assertions_are_read_and_written() {
    let profile = Name::new("urn:profile", "Profile");
    let mut written = Wsdl::parse(CLOCK.as_bytes()).unwrap();
    assert_eq!(written.assertions, []);
    written.assertions = vec![profile.clone()];
    let text = written.to_text();
    assert!(text.contains(r#"wsp:Optional="true""#), "{text}");
    assert_eq!(
        Wsdl::parse(text.as_bytes()).unwrap().assertions,
        std::slice::from_ref(&profile)
    );
    // The normal form, in a port type, before policies were a standard; and one by reference.
    let text = r##"<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:p="urn:profile"
        xmlns:o="http://schemas.xmlsoap.org/ws/2004/09/policy" xmlns:n="http://www.w3.org/ns/ws-policy">
        <n:Policy n:Name="urn:p"><p:Other/></n:Policy>
        <w:portType name="P"><o:Policy><o:ExactlyOne><o:All><p:Profile/><p:Profile/></o:All></o:ExactlyOne>
        </o:Policy></w:portType></w:definitions>"##;
    let read = Wsdl::parse(text.as_bytes()).unwrap();
    assert_eq!(
        read.assertions,
        [Name::new("urn:profile", "Other"), profile]
    );
}

#[test]
fn invalid_documents_are_rejected() {
    assert!(matches!(Wsdl::parse(b"<a/>"), Err(WsdlError::NotWsdl(_))));
    let without = br#"<definitions xmlns="http://schemas.xmlsoap.org/wsdl/"><portType name="P">
        <operation name="O"/></portType></definitions>"#;
    let text = Wsdl::parse(without).unwrap_err().to_string();
    assert_eq!(text, "operation \"O\" has no valid input or output");
}

fn any_kind() -> impl Strategy<Value = OperationKind> {
    use OperationKind as K;
    proptest::sample::select(vec![
        K::OneWay,
        K::RequestResponse,
        K::Notification,
        K::SolicitResponse,
    ])
}

prop_compose! {
    fn any_operation()(
        name in "[A-Z][a-z]{0,6}",
        kind in any_kind(),
        element in "[A-Z][a-z]{0,6}",
        action in proptest::option::of("urn:[a-z]{1,6}"),
    ) -> ServiceOperation {
        use OperationKind as K;
        let element = || Some(Name::owned("urn:types", element.clone()));
        ServiceOperation {
            name,
            kind,
            input: element().filter(|_| kind != K::Notification),
            output: element().filter(|_| kind != K::OneWay),
            input_action: action.clone(),
            output_action: action,
        }
    }
}

/// Trees that resemble WSDL and schema documents.
fn any_tree() -> impl Strategy<Value = Element> {
    let names = vec![
        "definitions",
        "types",
        "message",
        "part",
        "portType",
        "operation",
        "input",
        "output",
        "binding",
        "service",
        "port",
        "schema",
        "element",
        "complexType",
        "simpleType",
        "sequence",
        "restriction",
        "extension",
        "complexContent",
        "simpleContent",
        "list",
        "attribute",
        "any",
        "choice",
        "group",
        "union",
        "enumeration",
        "maxLength",
    ];
    let namespaces = vec![
        "http://schemas.xmlsoap.org/wsdl/",
        "http://www.w3.org/2001/XMLSchema",
    ];
    let attributes = vec![
        ("name", "E"),
        ("type", "t:E"),
        ("base", "t:E"),
        ("element", "x:y:z"),
        ("ref", "t:E"),
        ("message", ":"),
        ("targetNamespace", "urn:t"),
        ("itemType", "t:E"),
        ("minOccurs", "-1"),
        ("maxOccurs", "unbounded"),
        ("memberTypes", "t:E xs:int"),
        ("value", "1"),
    ];
    let node = (
        proptest::sample::select(namespaces),
        proptest::sample::select(names),
        proptest::sample::subsequence(attributes, 0..6),
    )
        .prop_map(|(namespace, local, attributes)| {
            let element = Element::new(Name::new(namespace, local)).with_namespace("t", "urn:t");
            attributes
                .into_iter()
                .fold(element, |element, (name, value)| {
                    element.with_attribute(Name::local(name), value)
                })
        });
    node.clone().prop_recursive(6, 64, 6, move |inner| {
        let children = proptest::collection::vec(inner, 0..6);
        (node.clone(), children).prop_map(|(element, children)| element.with_children(children))
    })
}

proptest! {
    #[test]
    fn descriptions_round_trip(operations in proptest::collection::vec(any_operation(), 0..5)) {
        let service = Service {
            target_namespace: "http://x/clock".into(),
            name: "Clock".into(),
            operations,
            schemas: Vec::new(),
            address: Some("http://h/clock".into()),
        };
        let wsdl = service.to_wsdl();
        prop_assert_eq!(Wsdl::parse(wsdl.to_text().as_bytes()), Ok(wsdl));
    }

    #[test]
    fn no_tree_causes_a_panic(tree in any_tree()) {
        let mut root = tree.clone();
        root.name = Name::new("http://schemas.xmlsoap.org/wsdl/", "definitions");
        let wsdl = Wsdl::from_element(&root);
        root.name = Name::new("http://www.w3.org/2001/XMLSchema", "schema");
        let mut schemas = Schemas::default();
        schemas.add("any", &root).unwrap();
        let _ = schemas.missing();
        let names: Vec<_> = schemas.elements().cloned().collect();
        for name in names {
            let _ = schemas.flat(&name);
            let mut model = Model::new(&schemas);
            if let Ok(element) = model.element(&name) {
                let _ = model.compose(&element, &Argument::none());
            }
        }
        let _ = Modules::new("chappe_soap").add("any", &wsdl.unwrap_or_default(), &schemas);
    }
}

/// A WSDL like that of an SDC device, with variable operations and bindings.
fn sdc_wsdl(port_type: &str, binding: &str) -> String {
    format!(
        r#"<w:definitions xmlns:w="http://schemas.xmlsoap.org/wsdl/" xmlns:t="urn:glue"
    xmlns:s12="http://schemas.xmlsoap.org/wsdl/soap12/"
    xmlns:s11="http://schemas.xmlsoap.org/wsdl/soap/"
    xmlns:wsam="http://www.w3.org/2007/05/addressing/metadata"
    xmlns:wsaw="http://www.w3.org/2006/05/addressing/wsdl" targetNamespace="urn:glue">
  <w:portType name="GetService">{port_type}</w:portType>{binding}</w:definitions>"#
    )
}

fn action_of_state(document: &str) -> String {
    let wsdl = Wsdl::parse(document.as_bytes()).unwrap();
    let (_, operation) = wsdl.operations().next().unwrap();
    operation.input.as_ref().unwrap().action.clone()
}

/// A request's action must be the one that the device expects (WS-Addressing 1.0 metadata, sections
/// 4.4.1 and 4.4.4).
#[test]
fn action_is_explicit_then_bound_then_default() {
    const PLAIN: &str = r#"<w:operation name="GetMdState"><w:input message="t:GetMdState"/>
        <w:output message="t:GetMdStateResponse"/></w:operation>"#;
    let binding = |extension: &str| {
        format!(
            r#"<w:binding name="B" type="t:GetService"><w:operation name="GetMdState">{extension}
            <w:input/><w:output/></w:operation></w:binding>"#
        )
    };
    let explicit = |attribute: &str| PLAIN.replace("<w:input ", &format!("<w:input {attribute} "));
    let soap12 = binding(r#"<s12:operation soapAction="urn:soap12"/>"#);
    let soap11 = binding(r#"<s11:operation soapAction="urn:soap11"/>"#);
    let default = "urn:glue:GetService:GetMdStateRequest";
    for (port_type, binding, action) in [
        (
            explicit(r#"wsam:Action="urn:wsam""#),
            soap12.clone(),
            "urn:wsam",
        ),
        (
            explicit(r#"wsaw:Action="urn:wsaw""#),
            soap12.clone(),
            "urn:wsaw",
        ),
        (explicit(r#"wsam:Action=" ""#), soap12.clone(), "urn:soap12"),
        (PLAIN.to_owned(), soap12.clone(), "urn:soap12"),
        (PLAIN.to_owned(), soap11.clone(), "urn:soap11"),
        (PLAIN.to_owned(), soap11 + &soap12, "urn:soap12"),
        (
            PLAIN.to_owned(),
            binding(r#"<s12:operation soapAction=""/>"#),
            default,
        ),
        (PLAIN.to_owned(), binding("<s12:operation/>"), default),
        (
            PLAIN.to_owned(),
            soap12.replace("t:GetService", "t:Other"),
            default,
        ),
        (PLAIN.to_owned(), String::new(), default),
    ] {
        let document = sdc_wsdl(&port_type, &binding);
        assert_eq!(action_of_state(&document), action, "{document}");
    }
}

#[test]
fn binding_in_other_document_sets_action() {
    let port_type = r#"<w:operation name="GetMdState"><w:input message="t:M"/></w:operation>"#;
    let binding = r#"<w:binding name="B" type="t:GetService"><w:operation name="GetMdState">
        <s12:operation soapAction="urn:state"/></w:operation></w:binding>"#;
    let document = |port_type: &str, binding: &str| {
        Wsdl::parse(sdc_wsdl(port_type, binding).as_bytes()).unwrap()
    };
    let mut wsdl = document("", binding);
    wsdl.merge(document(port_type, "")).unwrap();
    assert_eq!(wsdl.operation_of("urn:state").unwrap().1.name, "GetMdState");
}

/// SOAP actions apply to requests only; an event keeps the action of its subscriptions.
#[test]
fn events_ignore_soap_actions() {
    let event = r#"<w:operation name="Report"><w:output message="t:M"/></w:operation>"#;
    let binding = r#"<w:binding name="B" type="t:GetService"><w:operation name="Report">
        <s12:operation soapAction="urn:report"/></w:operation></w:binding>"#;
    let wsdl = Wsdl::parse(sdc_wsdl(event, binding).as_bytes()).unwrap();
    assert_eq!(
        wsdl.events().next().unwrap().0,
        "urn:glue:GetService:Report"
    );
}
