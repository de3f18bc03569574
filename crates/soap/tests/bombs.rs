//! Goal: a small hostile document costs little memory and work.
//!
//! Method: reads documents that expand or refer to each other endlessly, within the bounds of the
//! fuzz target; each is accepted or rejected with the limit.

use chappe_soap::schema::{NotFlatReason, SchemaError, Schemas, Work};
use chappe_soap::wsdl::{Wsdl, WsdlError};
use chappe_soap::{Envelope, Error};
use chappe_xml::{Element, Name};

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/wsdl.rs"]
mod check;

fn xsd(body: &str) -> String {
    format!(
        "<s:schema xmlns:s='http://www.w3.org/2001/XMLSchema' xmlns='urn:t' targetNamespace='urn:t' \
         elementFormDefault='qualified'>{body}</s:schema>"
    )
}

fn schemas(document: &str) -> Result<Schemas, SchemaError> {
    let mut schemas = Schemas::default();
    let root = Element::parse(document.as_bytes()).expect("valid XML");
    schemas.add("t.xsd", &root).map(|()| schemas)
}

fn reason(document: &str) -> Option<NotFlatReason> {
    let schemas = schemas(document).expect("a schema");
    let flat = check::BOUND.hold(document.len(), || schemas.flat(&Name::new("urn:t", "E")));
    flat.err().map(|not_flat| not_flat.reason)
}

/// Attribute groups that each refer to the next `references` times.
fn nested_groups(levels: usize, references: usize) -> String {
    let mut body = String::from(
        "<s:element name='E'><s:complexType><s:attributeGroup ref='g0'/></s:complexType></s:element>",
    );
    for level in 0..levels {
        let reference = format!("<s:attributeGroup ref='g{}'/>", level + 1);
        let references = reference.repeat(references);
        body += &format!("<s:attributeGroup name='g{level}'>{references}</s:attributeGroup>");
    }
    body +=
        &format!("<s:attributeGroup name='g{levels}'><s:attribute name='a'/></s:attributeGroup>");
    xsd(&body)
}

#[test]
fn repeated_attribute_groups_count_once() {
    let document = nested_groups(12, 20);
    let schemas = schemas(&document).expect("a schema");
    // A visit costs at least 256 bytes; there are 13 groups, but 20 to the power of 12 paths.
    let mut work = Work::with_bytes(40 * 256);
    let flat = check::BOUND.hold(document.len(), || {
        schemas.flat_within(&Name::new("urn:t", "E"), &mut work)
    });
    assert_eq!(flat.expect("one attribute").fields.len(), 1);
    assert_eq!(
        reason(&nested_groups(20, 20)),
        Some(NotFlatReason::Depth(16))
    );
}

#[test]
fn circular_definitions_terminate() {
    for body in [
        "<s:element name='E'><s:complexType><s:attributeGroup ref='g'/></s:complexType></s:element>
         <s:attributeGroup name='g'><s:attributeGroup ref='g'/><s:attributeGroup ref='h'/>
         </s:attributeGroup><s:attributeGroup name='h'><s:attributeGroup ref='g'/></s:attributeGroup>",
        "<s:element name='E' type='T'/><s:complexType name='T'><s:complexContent>
         <s:extension base='T'/></s:complexContent></s:complexType>",
        "<s:element name='E' type='T'/><s:simpleType name='T'><s:list itemType='T'/></s:simpleType>",
        "<s:element name='E' ref='E'/>",
        "<s:include schemaLocation='t.xsd'/><s:import namespace='urn:t' schemaLocation='t.xsd'/>",
    ] {
        check::check(xsd(body).as_bytes());
    }
}

#[test]
fn long_text_is_not_copied_per_field() {
    let fields: String = (0..1_000)
        .map(|n| format!("<s:element name='f{n}' type='T'/>"))
        .collect();
    let element = format!(
        "<s:element name='E'><s:complexType><s:sequence>{fields}</s:sequence></s:complexType></s:element>"
    );
    let values = "<s:enumeration value='0123456789'/>".repeat(10_000);
    let long = "x".repeat(300_000);
    for body in [
        format!(
            "{element}<s:simpleType name='T'><s:restriction base='s:string'>{values}</s:restriction></s:simpleType>"
        ),
        format!(
            "{element}<s:simpleType name='T'><s:annotation><s:documentation>{long}</s:documentation></s:annotation><s:restriction base='s:string'/></s:simpleType>"
        ),
    ] {
        let document = xsd(&body);
        assert!(matches!(
            reason(&document),
            None | Some(NotFlatReason::Work)
        ));
        check::check(document.as_bytes());
    }
}

#[test]
fn too_many_imports_are_rejected() {
    let imports: String = (0..300)
        .map(|n| format!("<s:import namespace='u{n}'/>"))
        .collect();
    assert_eq!(schemas(&xsd(&imports)).err(), Some(SchemaError::TooMany));
}

#[test]
fn long_target_namespace_is_rejected() {
    let long = "x".repeat(2_000);
    let document = xsd("<s:element name='E' type='s:int'/>").replace("urn:t", &long);
    let root = Element::parse(document.replace(&format!("xmlns='{long}' "), "").as_bytes());
    let mut schemas = Schemas::default();
    let added = schemas.add("t.xsd", &root.expect("valid XML"));
    assert_eq!(added, Err(SchemaError::LongNamespace));
    let wsdl =
        format!("<definitions xmlns='http://schemas.xmlsoap.org/wsdl/' targetNamespace='{long}'/>");
    let read = Wsdl::parse(wsdl.as_bytes());
    assert!(matches!(
        read,
        Err(WsdlError::LongName { bytes: 2_000, .. })
    ));
}

#[test]
fn wsdl_with_many_components_is_rejected() {
    let wsdl = |body: &str| {
        let document = format!(
            "<w:definitions xmlns:w='http://schemas.xmlsoap.org/wsdl/' targetNamespace='urn:t'>{body}</w:definitions>"
        );
        check::BOUND.hold(document.len(), || Wsdl::parse(document.as_bytes()))
    };
    let repeat = |part: &str, count: usize| part.repeat(count);
    let too_many = |read: Result<Wsdl, WsdlError>| matches!(read, Err(WsdlError::TooMany));
    assert!(too_many(wsdl(&repeat("<w:message name='m'/>", 5_001))));
    let schema = "<schema xmlns='http://www.w3.org/2001/XMLSchema'/>";
    assert!(too_many(wsdl(&format!(
        "<w:types>{}</w:types>",
        repeat(schema, 65)
    ))));
    let one = wsdl(&repeat("<w:message name='m'/>", 3_000)).expect("below the limit");
    let mut both = one.clone();
    assert!(matches!(both.merge(one.clone()), Err(WsdlError::TooMany)));
    assert_eq!(both, one, "a failed merge changes nothing");
    let long = format!("<w:message name='{}'/>", "x".repeat(257));
    assert!(matches!(wsdl(&long), Err(WsdlError::LongName { .. })));
}

#[test]
fn envelope_with_many_blocks_is_rejected() {
    let declarations: String = (0..128).map(|n| format!(" xmlns:p{n}='u'")).collect();
    for blocks in ["<x/>", "<p1:x/>"] {
        let message = format!(
            "<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope'><s:Body{declarations}>{}\
             </s:Body></s:Envelope>",
            blocks.repeat(20_000)
        );
        let read = check::BOUND.hold(message.len(), || Envelope::parse(message.as_bytes()));
        assert_eq!(read, Err(Error::TooManyBlocks(64)));
    }
}
