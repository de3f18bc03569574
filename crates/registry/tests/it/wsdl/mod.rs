//! Goal: documents come back byte for byte, their parts are found, and they become UDDI data by the note "Using WSDL
//! in a UDDI Registry" 2.0.
//! Method: a registry in memory, documents of both styles, in several namespaces and encodings.

mod message;
mod offers;
mod property;

use chappe_registry::uddi::{
    BusinessKey, Endpoint, Error, ErrorCode, FindService, FindTModel, Key as _, KeyedReference,
    TModel, TModelKey, TYPES, Text,
};
use chappe_registry::wsdl::{
    self, Direction, Exchange, FindInterface, FindOperation, FindServices, NewDocument, Prepared,
    SavedDocument,
};
use chappe_registry::{Access, Entity, EntityKind, Principal, Registry};

use crate::uddi::{Desk, business};

pub(crate) const NAMESPACE: &str = "http://example.org/ward";
const INTERFACE: &str = "http://example.org/ward#wsdl11.portType(HeartRate)";
const READ: &str = "http://example.org/ward#wsdl11.portTypeOperation(HeartRate/Read)";
const PULSE: &str = "http://example.org/meaning#Pulse";

/// A document/literal description with its service.
pub(crate) const WARD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<wsdl:definitions name="Ward" targetNamespace="http://example.org/ward" xmlns:t="http://example.org/ward"
    xmlns:e="http://example.org/types" xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/"
    xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:xs="http://www.w3.org/2001/XMLSchema"
    xmlns:sawsdl="http://www.w3.org/ns/sawsdl">
  <wsdl:types><xs:schema targetNamespace="http://example.org/types">
    <xs:element name="Ask" type="xs:string"/>
    <xs:element name="Rate" type="e:RateType"/>
    <xs:simpleType name="RateType" sawsdl:modelReference="http://example.org/meaning#Pulse">
      <xs:restriction base="xs:decimal"/></xs:simpleType>
  </xs:schema></wsdl:types>
  <wsdl:message name="ReadIn"><wsdl:part name="body" element="e:Ask"/></wsdl:message>
  <wsdl:message name="ReadOut"><wsdl:part name="body" element="e:Rate"/></wsdl:message>
  <wsdl:message name="NoSensor"><wsdl:part name="text" type="xs:string"/></wsdl:message>
  <wsdl:portType name="HeartRate" sawsdl:modelReference="http://example.org/meaning#Cardiology">
    <wsdl:operation name="Read">
      <sawsdl:attrExtensions sawsdl:modelReference="http://example.org/meaning#Reading"/>
      <wsdl:input message="t:ReadIn"/><wsdl:output message="t:ReadOut"/>
      <wsdl:fault name="NoSensor" message="t:NoSensor"/>
    </wsdl:operation>
  </wsdl:portType>
  <wsdl:binding name="HeartRateSoap" type="t:HeartRate">
    <soap:binding transport="http://schemas.xmlsoap.org/soap/http"/>
    <wsdl:operation name="Read"><soap:operation soapAction="urn:read"/></wsdl:operation>
  </wsdl:binding>
  <wsdl:service name="Monitor"><wsdl:port name="Main" binding="t:HeartRateSoap">
    <soap:address location="http://192.0.2.7/monitor"/></wsdl:port></wsdl:service>
</wsdl:definitions>"#;

pub(crate) const WARD_URL: &str = "http://192.0.2.7/monitor?wsdl";

pub(crate) fn prepared(url: &str, bytes: impl Into<Vec<u8>>) -> Prepared {
    NewDocument::new(url, bytes).prepare().unwrap()
}

pub(crate) fn put(
    desk: &mut Desk,
    name: &str,
    documents: &[Prepared],
    business: Option<BusinessKey>,
) -> Result<Vec<SavedDocument>, Error> {
    desk.ask(name, |publisher| {
        publisher.put_documents(documents, business)
    })?
    .wait()
}

pub(crate) fn desk() -> Desk {
    let desk = Desk::new();
    let published = desk.registry.publish_canonical_tmodels("node", 0).unwrap();
    published.unwrap().wait().unwrap();
    desk
}

fn ward_of(desk: &mut Desk, name: &str) -> BusinessKey {
    desk.save_business(name, business("Ward 3"))
        .unwrap()
        .key
        .unwrap()
}

fn tmodels(desk: &Desk, kind: &str) -> Vec<TModel> {
    let bag = vec![KeyedReference {
        tmodel_key: Some(wsdl::WSDL_TYPES),
        key_name: None,
        key_value: kind.to_owned(),
    }];
    let ask = FindTModel {
        category_bag: bag,
        ..FindTModel::default()
    };
    let found = desk.inquiry().find_tmodel(&ask).unwrap();
    let keys: Vec<TModelKey> = found.items.iter().map(|info| info.tmodel_key).collect();
    let details = desk.inquiry().tmodel_detail(&keys).unwrap();
    details.into_iter().map(|owned| owned.value).collect()
}

fn value_of(bag: &[KeyedReference], key: TModelKey) -> Option<&str> {
    let found = bag
        .iter()
        .find(|reference| reference.tmodel_key == Some(key));
    found.map(|reference| reference.key_value.as_str())
}

fn interfaces(desk: &Desk, ask: FindInterface) -> Vec<String> {
    let found = desk.inquiry().find_interfaces(&ask).unwrap();
    found.items.into_iter().map(|it| it.iri).collect()
}

fn services(desk: &Desk, ask: &FindServices) -> Vec<String> {
    let found = desk.inquiry().find_services(ask).unwrap();
    found
        .items
        .into_iter()
        .map(|it| it.names[0].text.clone())
        .collect()
}

#[test]
fn a_document_comes_back_byte_for_byte_and_its_parts_are_found() {
    let mut desk = desk();
    let saved = put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], None).unwrap();
    assert_eq!(saved[0].key, WARD_URL);
    let inquiry = desk.inquiry();
    let (document, bytes) = inquiry.document(WARD_URL).unwrap();
    assert_eq!(bytes, WARD.as_bytes());
    assert_eq!(
        (document.owner.as_str(), document.name.as_str()),
        ("ada", "Ward")
    );
    assert_eq!(document.target_namespace, NAMESPACE);
    assert_eq!(document.tmodels.len(), 2);
    let operations = inquiry.operations_at(WARD_URL).unwrap();
    assert_eq!(operations.len(), 1);
    assert_eq!(
        (operations[0].iri.as_str(), operations[0].pattern.as_str()),
        (READ, "request-response")
    );
    let message = |exchange| inquiry.messages_of(READ, exchange).unwrap().remove(0);
    let output = message(Exchange::Output);
    assert_eq!(output.name, "ReadOut");
    assert_eq!(
        output.parts[0].element.as_deref(),
        Some("http://example.org/types#element(Rate)")
    );
    assert_eq!(output.parts[0].meanings, [PULSE]);
    assert_eq!(message(Exchange::Input).action, "urn:read");
    assert_eq!(message(Exchange::Fault).name, "NoSensor");
    let unknown = inquiry
        .messages_of("urn:none", Exchange::Input)
        .unwrap_err();
    assert_eq!(unknown.code, ErrorCode::InvalidKeyPassed);
    // It survives the end of the program.
    let again = Registry::open(desk.journal.clone()).unwrap();
    let (_, bytes) = again
        .uddi(&Principal::Anonymous)
        .document(WARD_URL)
        .unwrap();
    assert_eq!(bytes, WARD.as_bytes());
}

#[test]
fn parts_become_tmodels_services_and_bindings() {
    let mut desk = desk();
    let ward = ward_of(&mut desk, "ada");
    let saved = put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
    let port_types = tmodels(&desk, "portType");
    assert_eq!(port_types.len(), 1);
    let port_type = &port_types[0];
    assert_eq!(port_type.name.text, "HeartRate");
    assert_eq!(
        port_type.overview_doc.as_ref().unwrap().url.as_deref(),
        Some(WARD_URL)
    );
    assert_eq!(
        value_of(&port_type.category_bag, wsdl::XML_NAMESPACE),
        Some(NAMESPACE)
    );
    let bindings = tmodels(&desk, "binding");
    let bag = &bindings[0].category_bag;
    assert_eq!(bindings[0].name.text, "HeartRateSoap");
    let port_type_key = port_type.key.unwrap().to_string();
    assert_eq!(
        value_of(bag, wsdl::PORT_TYPE_REFERENCE),
        Some(&*port_type_key)
    );
    assert_eq!(
        value_of(bag, wsdl::PROTOCOL),
        Some(&*wsdl::SOAP_PROTOCOL.to_string())
    );
    assert_eq!(
        value_of(bag, wsdl::TRANSPORT),
        Some(&*wsdl::HTTP_TRANSPORT.to_string())
    );
    assert_eq!(value_of(bag, TYPES), Some("wsdlSpec"));
    let service = desk
        .inquiry()
        .service_detail(&saved[0].services)
        .unwrap()
        .remove(0);
    assert_eq!(service.names, [Text::plain("Monitor")]);
    assert_eq!(
        value_of(&service.category_bag, wsdl::XML_LOCAL_NAME),
        Some("Monitor")
    );
    assert_eq!(
        value_of(&service.category_bag, wsdl::XML_NAMESPACE),
        Some(NAMESPACE)
    );
    assert_eq!(
        value_of(&service.category_bag, wsdl::WSDL_TYPES),
        Some("service")
    );
    let port = &service.bindings[0];
    assert!(
        matches!(&port.endpoint, Endpoint::AccessPoint { address, .. } if address == "http://192.0.2.7/monitor")
    );
    let keys: Vec<_> = port
        .tmodels
        .iter()
        .map(|info| Some(info.tmodel_key))
        .collect();
    assert_eq!(keys, [bindings[0].key, port_type.key]);
    let details = port.tmodels[0].details.as_ref().unwrap();
    assert_eq!(details.parameters.as_deref(), Some("Main"));
    // The inquiries of the note, sections 3.1 and 3.6.
    let ask = FindService {
        tmodel_bag: vec![port_type.key.unwrap()],
        ..FindService::default()
    };
    assert_eq!(desk.inquiry().find_service(&ask).unwrap().items.len(), 1);
}

#[test]
fn services_are_found_by_interface_operation_and_meaning() {
    let mut desk = desk();
    let ward = ward_of(&mut desk, "ada");
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
    let key = tmodels(&desk, "portType")[0].key.unwrap().to_string();
    for name in [
        INTERFACE,
        "{http://example.org/ward}HeartRate",
        "HeartRate",
        &key,
    ] {
        let ask = FindServices {
            interface: Some(name.to_owned()),
            ..FindServices::default()
        };
        assert_eq!(services(&desk, &ask), ["Monitor"], "{name}");
    }
    let types = "{http://example.org/types}";
    for (operation, input, output) in [
        (Some("Read"), None, None),
        (Some(READ), None, None),
        (None, Some(format!("{types}Ask")), Some(PULSE.to_owned())),
        (None, None, Some(format!("{types}Rate"))),
        (None, None, Some(format!("{types}RateType"))),
        (Some("Read"), Some("body".to_owned()), None),
    ] {
        let ask = FindInterface {
            operation: operation.map(str::to_owned),
            input,
            output,
            ..FindInterface::default()
        };
        assert_eq!(interfaces(&desk, ask.clone()), [INTERFACE], "{ask:?}");
        let ask = FindServices {
            operation: ask,
            ..FindServices::default()
        };
        assert_eq!(services(&desk, &ask), ["Monitor"]);
    }
    for (operation, input) in [
        (Some("Write"), None),
        (Some("Read"), Some(PULSE)),
        (Some("HeartRate"), None),
    ] {
        let ask = FindInterface {
            operation: operation.map(str::to_owned),
            input: input.map(str::to_owned),
            ..FindInterface::default()
        };
        assert_eq!(interfaces(&desk, ask.clone()), [""; 0], "{ask:?}");
        assert_eq!(
            services(
                &desk,
                &FindServices {
                    operation: ask,
                    ..FindServices::default()
                }
            ),
            [""; 0]
        );
    }
    let by_part = |direction| {
        let part = PULSE.to_owned();
        let ask = FindOperation {
            part,
            direction,
            ..FindOperation::default()
        };
        desk.inquiry().find_operations(&ask).unwrap().items.len()
    };
    assert_eq!(by_part(Direction::Any), 1);
    assert_eq!(by_part(Direction::Only(Exchange::Output)), 1);
    assert_eq!(by_part(Direction::Only(Exchange::Input)), 0);
}

#[test]
fn what_others_say_of_a_part_counts_as_its_meaning() {
    use chappe_registry::oxrdf::{NamedNode, Triple};
    let mut desk = desk();
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], None).unwrap();
    let node = |iri: &str| NamedNode::new(iri).unwrap();
    let mut piece = Entity::new("urn:uuid:1", EntityKind::Other, "a piece");
    let part = node("http://example.org/ward#wsdl11.messagePart(ReadIn/body)");
    let meaning = node("http://example.org/meaning#Patient");
    let says = Triple::new(
        part,
        node("http://www.w3.org/ns/sawsdl#modelReference"),
        meaning,
    );
    piece.triples = vec![says];
    piece.access = Access::Owner;
    piece.owner = "eve".to_owned();
    let ask = FindInterface {
        input: Some("http://example.org/meaning#Patient".to_owned()),
        ..FindInterface::default()
    };
    desk.registry.publish(piece).unwrap().wait().unwrap();
    assert_eq!(interfaces(&desk, ask.clone()), [""; 0]);
    let eve = desk.registry.uddi(&Principal::account("eve", [], []));
    assert_eq!(eve.find_interfaces(&ask).unwrap().items.len(), 1);
}

#[test]
fn pieces_of_metadata_give_parts_a_meaning() {
    use chappe_registry::metadata::{Annotator, Draft, Value};
    let mut desk = desk();
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], None).unwrap();
    let mut random = || 9;
    let reader = Principal::account("eve", [], [chappe_identity::Role::Write]);
    let mut eve = Annotator::new(&desk.registry, "eve", reader, 0, &mut random);
    let meaning = "http://example.org/meaning#Bed";
    let piece = Draft {
        key: None,
        subject: "http://example.org/ward#wsdl11.messagePart(ReadIn/body)".into(),
        piece_type: "http://www.w3.org/ns/sawsdl#modelReference".into(),
        value: Value::Uri(meaning.into()),
        rule: None,
        lease_s: None,
    };
    eve.attach(&piece).unwrap().wait().unwrap();
    let ask = FindInterface {
        input: Some(meaning.to_owned()),
        ..FindInterface::default()
    };
    assert_eq!(interfaces(&desk, ask), [INTERFACE]);
    let messages = desk.inquiry().messages_of(READ, Exchange::Input).unwrap();
    assert_eq!(messages[0].parts[0].meanings, [meaning]);
}

#[test]
fn only_documents_say_what_parts_are() {
    use chappe_registry::oxrdf::{NamedNode, Triple};
    let desk = desk();
    let node = |iri: &str| NamedNode::new(iri).unwrap();
    let mut entity = Entity::new("urn:uuid:1", EntityKind::Other, "forged");
    let predicate = node("https://chappe.example/ns/wsdl#operation");
    entity.triples = vec![Triple::new(node(INTERFACE), predicate, node("urn:x"))];
    let refused = desk.registry.publish(entity).unwrap_err();
    assert!(
        refused.to_string().contains("which only a document has"),
        "{refused}"
    );
}

#[test]
fn documents_in_other_encodings_are_kept_as_they_are() {
    let mut desk = desk();
    let text = WARD.replace("encoding=\"UTF-8\"", "encoding=\"UTF-16\"");
    let mut bytes = vec![0xFF, 0xFE];
    bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    put(
        &mut desk,
        "ada",
        &[prepared("urn:utf16", bytes.clone())],
        None,
    )
    .unwrap();
    assert_eq!(desk.inquiry().document("urn:utf16").unwrap().1, bytes);
    let latin = WARD
        .replace("UTF-8", "ISO-8859-1")
        .replace("name=\"Ward\"", "name=\"W\u{e4}rd\"");
    let bytes: Vec<u8> = latin
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    put(
        &mut desk,
        "ada",
        &[prepared("urn:latin", bytes.clone())],
        None,
    )
    .unwrap();
    let (document, found) = desk.inquiry().document("urn:latin").unwrap();
    assert_eq!((document.name.as_str(), found), ("W\u{e4}rd", bytes));
    assert_eq!(interfaces(&desk, FindInterface::default()), [INTERFACE]);
}

const CONCRETE: &str = r#"<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" targetNamespace="urn:concrete"
    xmlns:c="urn:concrete" xmlns:a="urn:abstract" xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap12/">
  <import namespace="urn:abstract" location="abstract.wsdl"/>
  <binding name="B" type="a:Rpc"><soap:binding style="rpc" transport="http://schemas.xmlsoap.org/soap/http"/></binding>
  <service name="S"><port name="P" binding="c:B"><soap:address location="http://192.0.2.8/s"/></port>
    <port name="Unreachable" binding="c:B"/></service></definitions>"#;
const ABSTRACT: &str = r#"<definitions xmlns="http://schemas.xmlsoap.org/wsdl/" targetNamespace="urn:abstract"
    xmlns:a="urn:abstract" xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <import namespace="urn:concrete" location="concrete.wsdl"/>
  <message name="In"><part name="x" type="xs:int"/><part name="y" type="a:Own"/></message>
  <portType name="Rpc"><operation name="Add"><input message="a:In"/></operation></portType></definitions>"#;

#[test]
fn imported_documents_of_other_namespaces_are_linked() {
    let mut desk = desk();
    let ward = ward_of(&mut desk, "ada");
    let documents = [
        prepared("http://192.0.2.8/concrete.wsdl", CONCRETE),
        prepared("http://192.0.2.8/abstract.wsdl", ABSTRACT),
    ];
    assert_eq!(documents[0].imports(), ["abstract.wsdl"]);
    let saved = put(&mut desk, "ada", &documents, Some(ward)).unwrap();
    let port_type = tmodels(&desk, "portType").remove(0);
    let binding = tmodels(&desk, "binding").remove(0);
    let reference = value_of(&binding.category_bag, wsdl::PORT_TYPE_REFERENCE);
    assert_eq!(reference, Some(&*port_type.key.unwrap().to_string()));
    let service = desk
        .inquiry()
        .service_detail(&saved[0].services)
        .unwrap()
        .remove(0);
    assert_eq!(
        service.bindings.len(),
        1,
        "a port without an address has no binding"
    );
    assert_eq!(service.bindings[0].tmodels.len(), 2);
    let ask = FindInterface {
        input: Some("{urn:abstract}Own".to_owned()),
        ..FindInterface::default()
    };
    assert_eq!(
        interfaces(&desk, ask),
        ["urn:abstract#wsdl11.portType(Rpc)"]
    );
    // Added one after the other, they are linked as well.
    let mut other = self::desk();
    let ward = ward_of(&mut other, "ada");
    put(&mut other, "ada", &documents[1..], None).unwrap();
    let saved = put(&mut other, "ada", &documents[..1], Some(ward)).unwrap();
    let service = other
        .inquiry()
        .service_detail(&saved[0].services)
        .unwrap()
        .remove(0);
    assert_eq!(service.bindings[0].tmodels.len(), 2);
}

#[test]
fn a_document_is_replaced_and_what_it_no_longer_defines_ends() {
    let mut desk = desk();
    let ward = ward_of(&mut desk, "ada");
    let first = put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
    let before = tmodels(&desk, "portType");
    let changed = WARD
        .replace("HeartRateSoap", "Renamed")
        .replace("192.0.2.7", "192.0.2.9");
    let second = put(
        &mut desk,
        "ada",
        &[prepared(WARD_URL, changed.clone())],
        Some(ward),
    )
    .unwrap();
    assert_eq!(first[0].services, second[0].services);
    assert_eq!(tmodels(&desk, "portType"), before);
    let bindings = tmodels(&desk, "binding");
    assert_eq!(bindings.len(), 1);
    assert_eq!(bindings[0].name.text, "Renamed");
    let service = desk
        .inquiry()
        .service_detail(&second[0].services)
        .unwrap()
        .remove(0);
    assert!(format!("{:?}", service.bindings).contains("192.0.2.9"));
    assert_eq!(
        desk.inquiry().document(WARD_URL).unwrap().1,
        changed.as_bytes()
    );
    desk.ask("ada", |ada| ada.remove_documents(&[WARD_URL.to_owned()]))
        .unwrap()
        .wait()
        .unwrap();
    assert!(tmodels(&desk, "portType").is_empty() && tmodels(&desk, "binding").is_empty());
    assert!(desk.inquiry().service_detail(&second[0].services).is_err());
    assert_eq!(
        desk.inquiry().document(WARD_URL).unwrap_err().code,
        ErrorCode::InvalidKeyPassed
    );
    let again = desk.ask("ada", |ada| ada.remove_documents(&[WARD_URL.to_owned()]));
    assert_eq!(again.unwrap_err().code, ErrorCode::InvalidKeyPassed);
}

#[test]
fn documents_of_one_publisher_share_tmodels() {
    let mut desk = desk();
    put(
        &mut desk,
        "ada",
        &[prepared("urn:one", WARD), prepared("urn:two", WARD)],
        None,
    )
    .unwrap();
    put(&mut desk, "bob", &[prepared("urn:three", WARD)], None).unwrap();
    assert_eq!(
        tmodels(&desk, "portType").len(),
        2,
        "one for each publisher"
    );
    let remove = |desk: &mut Desk, name: &str, key: &str| {
        let keys = [key.to_owned()];
        desk.ask(name, |publisher| publisher.remove_documents(&keys))
            .unwrap()
            .wait()
            .unwrap();
    };
    remove(&mut desk, "ada", "urn:one");
    assert_eq!(tmodels(&desk, "portType").len(), 2);
    remove(&mut desk, "bob", "urn:three");
    assert_eq!(tmodels(&desk, "portType").len(), 1);
    // Another's binding refers to the last one: it is hidden.
    let key = tmodels(&desk, "portType")[0].key.unwrap();
    let ward = ward_of(&mut desk, "bob");
    let mut service = crate::uddi::service(ward, "uses it");
    service.bindings = vec![crate::uddi::binding(None, &[key])];
    desk.save_service("bob", service).unwrap();
    remove(&mut desk, "ada", "urn:two");
    assert!(tmodels(&desk, "portType").is_empty());
    assert_eq!(desk.inquiry().tmodel_detail(&[key]).unwrap().len(), 1);
}

#[test]
fn documents_belong_to_their_publishers() {
    let mut desk = desk();
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], None).unwrap();
    // Another's document at the same URL gets a key of its own.
    let saved = put(&mut desk, "bob", &[prepared(WARD_URL, CONCRETE)], None).unwrap();
    assert!(saved[0].key.starts_with("urn:uuid:"), "{saved:?}");
    assert_eq!(
        desk.inquiry().document(WARD_URL).unwrap().1,
        WARD.as_bytes()
    );
    let mut named = NewDocument::new(WARD_URL, CONCRETE);
    named.key = Some(WARD_URL.to_owned());
    let refused = put(&mut desk, "bob", &[named.prepare().unwrap()], None).unwrap_err();
    assert_eq!(refused.code, ErrorCode::UserMismatch);
    let refused = desk
        .ask("bob", |bob| bob.remove_documents(&[WARD_URL.to_owned()]))
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::UserMismatch);
    let ward = ward_of(&mut desk, "ada");
    let refused = put(&mut desk, "bob", &[prepared("urn:x", WARD)], Some(ward)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::UserMismatch);
    let nowhere = Some(BusinessKey::from_uuid(1));
    let refused = put(&mut desk, "bob", &[prepared("urn:x", WARD)], nowhere).unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidKeyPassed);
    assert!(
        desk.inquiry().document("urn:x").is_err(),
        "nothing of a refused request is there"
    );
}

#[test]
fn hidden_documents_change_no_answer() {
    let desk = desk();
    let mut random = || 7_u128;
    let registry = desk.registry.clone();
    let mut ada =
        chappe_registry::uddi::Publisher::new(&registry, "ada", Access::Owner, 0, &mut random);
    ada.put_documents(&[prepared(WARD_URL, WARD)], None)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(interfaces(&desk, FindInterface::default()), [""; 0]);
    assert!(
        desk.inquiry()
            .documents(None, None)
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(
        desk.inquiry().document(WARD_URL).unwrap_err().code,
        ErrorCode::InvalidKeyPassed
    );
    assert!(desk.inquiry().operations_at(WARD_URL).is_err());
    let ada = registry.uddi(&Principal::account("ada", [], []));
    assert_eq!(ada.documents(None, None).unwrap().items.len(), 1);
}

#[test]
fn lists_continue_after_their_last_entry() {
    let mut desk = desk();
    let documents: Vec<Prepared> = (0..5)
        .map(|n| prepared(&format!("urn:d{n}"), ABSTRACT))
        .collect();
    put(&mut desk, "ada", &documents, None).unwrap();
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = desk.inquiry().documents(after.as_deref(), Some(2)).unwrap();
        seen.extend(page.items.iter().map(|it| it.key.clone()));
        after = seen.last().cloned();
        if !page.is_truncated {
            break;
        }
    }
    assert_eq!(seen, ["urn:d0", "urn:d1", "urn:d2", "urn:d3", "urn:d4"]);
}

#[test]
fn documents_that_are_no_descriptions_are_refused() {
    let refused = |bytes: &str| NewDocument::new("urn:x", bytes).prepare().unwrap_err();
    let of = |target: &str, name: &str| {
        format!(
            "<definitions xmlns='http://schemas.xmlsoap.org/wsdl/' targetNamespace='{target}'><message name='{name}'/></definitions>"
        )
    };
    for (bytes, reason) in [
        ("", "not read"),
        ("<a/>", "not a WSDL 1.1 document"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "not read"),
        (&of("", "m"), "not an absolute IRI"),
        (&of("relative", "m"), "not an absolute IRI"),
        (&of("urn:x", "m(n)"), "not one of XML"),
        (
            "<?xml version='1.0' encoding='EBCDIC-CP-US'?><a/>",
            "not read",
        ),
    ] {
        let error = refused(bytes);
        assert_eq!(error.code, ErrorCode::ValueNotAllowed, "{bytes}");
        assert!(error.detail.contains(reason), "{bytes}: {}", error.detail);
    }
    let large = vec![b' '; wsdl::MAX_DOCUMENT_BYTES + 1];
    let error = NewDocument::new("urn:x", large).prepare().unwrap_err();
    assert_eq!(error.code, ErrorCode::MessageTooLarge);
    // What UDDI has no room for.
    let mut desk = desk();
    let long = WARD.replace(
        "http://example.org/ward\"",
        &format!("http://example.org/{}\"", "w".repeat(300)),
    );
    let error = put(&mut desk, "ada", &[prepared("urn:long", long)], None).unwrap_err();
    assert_eq!(error.code, ErrorCode::ValueNotAllowed);
    let many: Vec<Prepared> = (0..=wsdl::MAX_DOCUMENTS)
        .map(|n| prepared(&format!("urn:{n}"), ABSTRACT))
        .collect();
    let error = put(&mut desk, "ada", &many, None).unwrap_err();
    assert_eq!(error.code, ErrorCode::MessageTooLarge);
}

#[test]
fn sparql_sees_parts() {
    let mut desk = desk();
    let ward = ward_of(&mut desk, "ada");
    put(&mut desk, "ada", &[prepared(WARD_URL, WARD)], Some(ward)).unwrap();
    let query = "PREFIX w: <https://chappe.example/ns/wsdl#> PREFIX uddi: <https://chappe.example/ns/uddi#>
        PREFIX sawsdl: <http://www.w3.org/ns/sawsdl#>
        SELECT ?address { ?interface w:operation/w:output/w:message/w:part/w:element/w:type ?type .
            ?type sawsdl:modelReference <http://example.org/meaning#Pulse> . ?interface w:tModel ?tmodel .
            ?binding uddi:tModelInstanceInfo/uddi:tModelKey ?tmodel ; uddi:accessPoint ?address }";
    let (limits, interrupt) = (
        chappe_registry::SparqlLimits::default(),
        chappe_registry::Interrupt::never(),
    );
    let answer = desk
        .registry
        .sparql(query, &Principal::Anonymous, &limits, &interrupt)
        .unwrap();
    let json = answer.to_json().unwrap();
    assert!(json.contains("http://192.0.2.7/monitor"), "{json}");
}
