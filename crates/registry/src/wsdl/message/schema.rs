//! The elements of the messages: one table for the check of requests, the XML schema and the WSDL.

use chappe_xml::{Element, Name};

use super::NAMESPACE;
use crate::uddi::{Error, ErrorCode};

/// An element and its content: `string`, `base64`, `int`, or the names of children, each once unless `?` (at most
/// once) or `*` (any number) follows.
type Row = (&'static str, &'static str);

/// A request, its children, and the name of its answer.
type Call = (&'static str, &'static str, &'static str);

const ELEMENTS: &[Row] = &[
    ("action", "string"),
    ("after", "string"),
    ("authInfo", "string"),
    ("businessKey", "string"),
    ("content", "base64"),
    ("direction", "string"),
    (
        "documentInfo",
        "key url? mediaType? size? targetNamespace? owner? tModelKey* serviceKey*",
    ),
    ("element", "string"),
    ("input", "string"),
    ("interface", "string"),
    ("interfaceInfo", "iri name tModelKey*"),
    ("iri", "string"),
    ("key", "string"),
    ("maxRows", "int"),
    ("meaning", "string"),
    ("mediaType", "string"),
    ("message", "string"),
    ("messageInfo", "iri message name action partInfo*"),
    ("name", "string"),
    ("next", "string"),
    ("operation", "string"),
    ("operationInfo", "iri name interface pattern"),
    ("output", "string"),
    ("owner", "string"),
    ("part", "string"),
    ("partInfo", "iri name element? type? meaning*"),
    ("pattern", "string"),
    ("reason", "string"),
    ("serviceInfo", "serviceKey businessKey name*"),
    ("serviceKey", "string"),
    ("size", "int"),
    ("tModelKey", "string"),
    ("targetNamespace", "string"),
    ("type", "string"),
    ("unread", "url reason"),
    ("url", "string"),
];

const ANSWERS: &[Row] = &[
    ("wsdlAdded", "documentInfo* unread*"),
    ("wsdlRemoved", "key"),
    ("wsdlList", "documentInfo* next?"),
    ("wsdlContent", "documentInfo content"),
    ("operationList", "operationInfo* next?"),
    ("messageList", "messageInfo*"),
    ("interfaceList", "interfaceInfo* next?"),
    ("serviceList", "serviceInfo* next?"),
];

#[rustfmt::skip]
const CALLS: &[Call] = &[
    ("addWSDLFile", "authInfo? key? url? mediaType? content?", "wsdlAdded"),
    ("addWSDLFileAdvert", "authInfo? key? url? mediaType? content? businessKey", "wsdlAdded"),
    ("findInterfaceByOperation", "authInfo? operation? input? output? after? maxRows?", "interfaceList"),
    ("findOperationByMessagePart", "authInfo? part direction? after? maxRows?", "operationList"),
    ("findServicesByInterface", "authInfo? interface? operation? input? output? after? maxRows?",
        "serviceList"),
    ("getAllWSDLFiles", "authInfo? after? maxRows?", "wsdlList"),
    ("getFaultMessageOfOperation", "authInfo? operation", "messageList"),
    ("getInputMessageOfOperation", "authInfo? operation", "messageList"),
    ("getOperationsByURL", "authInfo? url", "operationList"),
    ("getOutputMessageOfOperation", "authInfo? operation", "messageList"),
    ("getWSDLAdvertContent", "authInfo? key", "wsdlContent"),
    ("getWSDLAdvertContentByURL", "authInfo? url", "wsdlContent"),
    ("removeWSDLFile", "authInfo? key? url?", "wsdlRemoved"),
];

/// The children in a content: name, least and greatest number.
fn children(content: &'static str) -> impl Iterator<Item = (&'static str, usize, usize)> {
    content.split_ascii_whitespace().map(|word| {
        if let Some(name) = word.strip_suffix('?') {
            return (name, 0, 1);
        }
        match word.strip_suffix('*') {
            Some(name) => (name, 0, usize::MAX),
            None => (word, 1, 1),
        }
    })
}

/// The name of the request that an element is.
pub(super) fn call(body: &Element) -> Option<&'static str> {
    let mut calls = CALLS.iter();
    let found = calls.find(|(name, ..)| body.name.is(NAMESPACE, name));
    found.map(|(name, ..)| *name)
}

/// Refuses a request that does not have the structure of its row.
pub(super) fn check(request: &Element, name: &str) -> Result<(), Error> {
    let mut calls = CALLS.iter();
    let Some(&(name, content, _)) = calls.find(|(call, ..)| *call == name) else {
        return Ok(());
    };
    let malformed = |detail: String| Err(Error::new(ErrorCode::FatalError, detail));
    for child in request.elements() {
        let local = &*child.name.local;
        let is_known = children(content).any(|(known, ..)| child.name.is(NAMESPACE, known));
        if !is_known {
            let local: String = local.chars().take(80).collect();
            let detail = format!("{name} does not contain {local} in the namespace {NAMESPACE}");
            return malformed(detail);
        }
        if let Some(inner) = child.elements().next() {
            let inner: String = inner.name.local.chars().take(80).collect();
            return malformed(format!("{local} contains text, not {inner}"));
        }
    }
    for (child, least, most) in children(content) {
        let found = request
            .elements()
            .filter(|it| it.name.local == child)
            .count();
        if found < least {
            return malformed(format!("{child} is missing in {name}"));
        }
        if found > most {
            return malformed(format!("{name} has more than one {child}"));
        }
    }
    match request.text().trim().is_empty() {
        true => Ok(()),
        false => malformed(format!("{name} does not contain text")),
    }
}

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
const XSD: &str = "http://www.w3.org/2001/XMLSchema";
const WSDL: &str = "http://schemas.xmlsoap.org/wsdl/";
const WSDL_SOAP: &str = "http://schemas.xmlsoap.org/wsdl/soap/";
const UDDI: &str = "urn:uddi-org:api_v2";

fn xsd(local: &'static str) -> Element {
    Element::new(Name::new(XSD, local))
}

fn with(element: Element, attributes: &[(&'static str, &str)]) -> Element {
    attributes.iter().fold(element, |element, (name, value)| {
        element.with_attribute(Name::local(name), (*value).to_owned())
    })
}

fn declaration((name, content): Row) -> Element {
    let element = with(xsd("element"), &[("name", name)]);
    let simple = match content {
        "string" => Some("xsd:string"),
        "base64" => Some("xsd:base64Binary"),
        "int" => Some("xsd:int"),
        _ => None,
    };
    if let Some(simple) = simple {
        return with(element, &[("type", simple)]);
    }
    let sequence = children(content).map(|(name, least, most)| {
        let element = with(xsd("element"), &[("ref", &format!("tns:{name}"))]);
        let element = match least {
            0 => with(element, &[("minOccurs", "0")]),
            _ => element,
        };
        match most {
            1 => element,
            _ => with(element, &[("maxOccurs", "unbounded")]),
        }
    });
    let sequence = xsd("sequence").with_children(sequence);
    element.with_child(xsd("complexType").with_child(sequence))
}

/// The WSDL 1.1 description of the port at this address.
#[must_use]
pub fn wsdl(address: &str) -> String {
    let element = |local| Element::new(Name::new(WSDL, local));
    let soap = |local| Element::new(Name::new(WSDL_SOAP, local));
    let calls = CALLS
        .iter()
        .map(|&(name, content, _)| declaration((name, content)));
    let rows = ELEMENTS.iter().chain(ANSWERS).map(|row| declaration(*row));
    let schema = [
        ("targetNamespace", NAMESPACE),
        ("elementFormDefault", "qualified"),
    ];
    let schema = with(xsd("schema"), &schema)
        .with_children(rows)
        .with_children(calls);
    // A fault has the report of UDDI; without its schema, readers take any content.
    let any = with(
        xsd("any"),
        &[
            ("processContents", "lax"),
            ("minOccurs", "0"),
            ("maxOccurs", "unbounded"),
        ],
    );
    let any_attribute = with(xsd("anyAttribute"), &[("processContents", "lax")]);
    let report = xsd("complexType")
        .with_child(xsd("sequence").with_child(any))
        .with_child(any_attribute);
    let report = with(xsd("element"), &[("name", "dispositionReport")]).with_child(report);
    let report = with(xsd("schema"), &[("targetNamespace", UDDI)]).with_child(report);
    let message = |name: &str, element_name: &str| {
        let part = with(
            element("part"),
            &[("name", "body"), ("element", element_name)],
        );
        with(element("message"), &[("name", name)]).with_child(part)
    };
    let names = CALLS
        .iter()
        .map(|(name, ..)| *name)
        .chain(ANSWERS.iter().map(|(name, _)| *name));
    let messages = names.map(|name| message(name, &format!("tns:{name}")));
    let tns = |name: &str| format!("tns:{name}");
    let described = CALLS.iter().map(|&(name, _, answer)| {
        let fault = [("name", "error"), ("message", "tns:dispositionReport")];
        with(element("operation"), &[("name", name)])
            .with_child(with(element("input"), &[("message", &tns(name))]))
            .with_child(with(element("output"), &[("message", &tns(answer))]))
            .with_child(with(element("fault"), &fault))
    });
    let bound = CALLS.iter().map(|&(name, ..)| {
        let literal = || with(soap("body"), &[("use", "literal")]);
        let fault = with(soap("fault"), &[("name", "error"), ("use", "literal")]);
        with(element("operation"), &[("name", name)])
            .with_child(with(
                soap("operation"),
                &[("soapAction", name), ("style", "document")],
            ))
            .with_child(element("input").with_child(literal()))
            .with_child(element("output").with_child(literal()))
            .with_child(with(element("fault"), &[("name", "error")]).with_child(fault))
    });
    let http = "http://schemas.xmlsoap.org/soap/http";
    let transport = with(
        soap("binding"),
        &[("style", "document"), ("transport", http)],
    );
    let binding = with(
        element("binding"),
        &[("name", "DocumentsSoap"), ("type", "tns:Documents")],
    );
    let location = with(soap("address"), &[("location", address)]);
    let port = with(
        element("port"),
        &[("name", "Documents"), ("binding", "tns:DocumentsSoap")],
    );
    let service = with(element("service"), &[("name", "WSDLRegistry")]);
    let definitions = with(element("definitions"), &[("targetNamespace", NAMESPACE)])
        .with_namespace("", WSDL)
        .with_namespace("soap", WSDL_SOAP)
        .with_namespace("xsd", XSD)
        .with_namespace("uddi", UDDI)
        .with_namespace("tns", NAMESPACE)
        .with_child(element("types").with_child(schema).with_child(report))
        .with_children(messages)
        .with_child(message("dispositionReport", "uddi:dispositionReport"))
        .with_child(with(element("portType"), &[("name", "Documents")]).with_children(described))
        .with_child(binding.with_child(transport).with_children(bound))
        .with_child(service.with_child(port.with_child(location)));
    format!("{DECLARATION}{}", definitions.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_child_has_a_row_and_every_answer_too() {
        let rows = || ELEMENTS.iter().chain(ANSWERS).map(|(name, _)| *name);
        let contents = ELEMENTS.iter().chain(ANSWERS).map(|(_, content)| *content);
        let contents = contents.filter(|content| !matches!(*content, "string" | "base64" | "int"));
        for (child, ..) in contents
            .chain(CALLS.iter().map(|call| call.1))
            .flat_map(children)
        {
            assert!(rows().any(|row| row == child), "{child} has no row");
        }
        for (.., answer) in CALLS {
            assert!(ANSWERS.iter().any(|(name, _)| name == answer), "{answer}");
        }
        let mut names: Vec<&str> = rows().chain(CALLS.iter().map(|call| call.0)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "two rows of one name");
    }

    #[test]
    fn the_description_is_a_document_that_the_registry_takes() {
        let text = wsdl("http://192.0.2.1/uddi/wsdl");
        let parts = crate::wsdl::parts::Parts::read(text.as_bytes()).unwrap();
        assert_eq!(
            parts.services[0].ports[0].address.as_deref(),
            Some("http://192.0.2.1/uddi/wsdl")
        );
        assert_eq!(parts.port_types.len(), 1);
    }
}
