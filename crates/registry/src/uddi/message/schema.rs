//! The elements of UDDI v2 messages: one table for the check of requests, the XML schema and the
//! WSDL.
//!
//! Source: the structure of `uddi_v2.xsd` 2.03. More is admitted than it asks for: children in any
//! order, empty bags, and a binding without tModelInstanceDetails.

use chappe_xml::{Element, Name};

use super::request::{GENERIC, NAMESPACE, Port, XML_NAMESPACE};
use crate::uddi::error::{Error, ErrorCode};

/// An element: its name, its content and its attributes.
///
/// Content is `text`, or the names of children, each once unless `?` (at most once) or `*` (any
/// number) follows; of names joined by `|` one occurs. An attribute with `!` is required; `lang` is
/// `xml:lang`.
type Row = (&'static str, &'static str, &'static str);

/// A request: its port, its row without `authInfo` and `generic`, and the name of its answer.
type Call = (Port, &'static str, &'static str, &'static str, &'static str);

const ELEMENTS: &[Row] = &[
    ("accessPoint", "text", "URLType!"),
    ("address", "addressLine*", "useType sortCode tModelKey"),
    ("addressLine", "text", "keyName keyValue"),
    (
        "assertionStatusItem",
        "fromKey toKey keyedReference keysOwned",
        "completionStatus!",
    ),
    ("authInfo", "text", ""),
    ("bindingKey", "text", ""),
    (
        "bindingTemplate",
        "description* accessPoint|hostingRedirector tModelInstanceDetails?",
        "serviceKey bindingKey!",
    ),
    ("bindingTemplates", "bindingTemplate*", ""),
    (
        "businessEntity",
        "discoveryURLs? name* description* contacts? businessServices? identifierBag? categoryBag?",
        "businessKey! operator authorizedName",
    ),
    ("businessEntityExt", "businessEntity", ""),
    (
        "businessInfo",
        "name* description* serviceInfos",
        "businessKey!",
    ),
    ("businessInfos", "businessInfo*", ""),
    ("businessKey", "text", ""),
    (
        "businessService",
        "name* description* bindingTemplates? categoryBag?",
        "serviceKey! businessKey",
    ),
    ("businessServices", "businessService*", ""),
    ("categoryBag", "keyedReference*", ""),
    ("completionStatus", "text", ""),
    (
        "contact",
        "description* personName phone* email* address*",
        "useType",
    ),
    ("contacts", "contact*", ""),
    ("description", "text", "lang"),
    ("discoveryURL", "text", "useType!"),
    ("discoveryURLs", "discoveryURL*", ""),
    ("email", "text", "useType"),
    ("errInfo", "text", "errCode!"),
    ("findQualifier", "text", ""),
    ("findQualifiers", "findQualifier*", ""),
    ("fromKey", "text", ""),
    ("hostingRedirector", "", "bindingKey!"),
    ("identifierBag", "keyedReference*", ""),
    (
        "instanceDetails",
        "description* overviewDoc? instanceParms?",
        "",
    ),
    ("instanceParms", "text", ""),
    ("keyedReference", "", "tModelKey keyName keyValue!"),
    ("keysOwned", "fromKey? toKey?", ""),
    ("name", "text", "lang"),
    ("overviewDoc", "description* overviewURL?", ""),
    ("overviewURL", "text", ""),
    ("personName", "text", ""),
    ("phone", "text", "useType"),
    ("publisherAssertion", "fromKey toKey keyedReference", ""),
    (
        "relatedBusinessInfo",
        "businessKey name* description* sharedRelationships*",
        "",
    ),
    ("relatedBusinessInfos", "relatedBusinessInfo*", ""),
    ("result", "errInfo?", "keyType errno!"),
    ("serviceInfo", "name*", "serviceKey! businessKey!"),
    ("serviceInfos", "serviceInfo*", ""),
    ("serviceKey", "text", ""),
    ("sharedRelationships", "keyedReference*", "direction!"),
    (
        "tModel",
        "name description* overviewDoc? identifierBag? categoryBag?",
        "tModelKey! operator authorizedName",
    ),
    ("tModelBag", "tModelKey*", ""),
    ("tModelInfo", "name", "tModelKey!"),
    ("tModelInfos", "tModelInfo*", ""),
    ("tModelInstanceDetails", "tModelInstanceInfo*", ""),
    (
        "tModelInstanceInfo",
        "description* instanceDetails?",
        "tModelKey!",
    ),
    ("tModelKey", "text", ""),
    ("toKey", "text", ""),
    ("uploadRegister", "text", ""),
];

/// Answers: rows without `generic` and `operator`.
const ANSWERS: &[Row] = &[
    ("assertionStatusReport", "assertionStatusItem*", ""),
    ("authToken", "authInfo", ""),
    ("bindingDetail", "bindingTemplate*", "truncated"),
    ("businessDetail", "businessEntity*", "truncated"),
    ("businessDetailExt", "businessEntityExt*", "truncated"),
    ("businessList", "businessInfos", "truncated"),
    ("dispositionReport", "result*", "truncated"),
    (
        "publisherAssertions",
        "publisherAssertion*",
        "authorizedName!",
    ),
    ("registeredInfo", "businessInfos tModelInfos", "truncated"),
    (
        "relatedBusinessesList",
        "businessKey relatedBusinessInfos",
        "truncated",
    ),
    ("serviceDetail", "businessService*", "truncated"),
    ("serviceList", "serviceInfos", "truncated"),
    ("tModelDetail", "tModel*", "truncated"),
    ("tModelList", "tModelInfos", "truncated"),
];

/// The requests that need no `authInfo`, although they are of the port for publication.
const WITHOUT_TOKEN: [&str; 1] = ["get_authToken"];

use Port::{Inquiry as I, Publication as P};

#[rustfmt::skip]
const CALLS: &[Call] = &[
    (I, "find_binding", "findQualifiers? tModelBag?", "maxRows serviceKey!", "bindingDetail"),
    (I, "find_business",
        "findQualifiers? name* identifierBag? categoryBag? tModelBag? discoveryURLs?", "maxRows",
        "businessList"),
    (I, "find_relatedBusinesses", "findQualifiers? businessKey keyedReference?", "maxRows",
        "relatedBusinessesList"),
    (I, "find_service", "findQualifiers? name* categoryBag? tModelBag?", "maxRows businessKey",
        "serviceList"),
    (I, "find_tModel", "findQualifiers? name? identifierBag? categoryBag?", "maxRows", "tModelList"),
    (I, "get_bindingDetail", "bindingKey*", "", "bindingDetail"),
    (I, "get_businessDetail", "businessKey*", "", "businessDetail"),
    (I, "get_businessDetailExt", "businessKey*", "", "businessDetailExt"),
    (I, "get_serviceDetail", "serviceKey*", "", "serviceDetail"),
    (I, "get_tModelDetail", "tModelKey*", "", "tModelDetail"),
    (I, "validate_values", "businessEntity* businessService* tModel*", "", "dispositionReport"),
    (P, "add_publisherAssertions", "publisherAssertion*", "", "dispositionReport"),
    (P, "delete_binding", "bindingKey*", "", "dispositionReport"),
    (P, "delete_business", "businessKey*", "", "dispositionReport"),
    (P, "delete_publisherAssertions", "publisherAssertion*", "", "dispositionReport"),
    (P, "delete_service", "serviceKey*", "", "dispositionReport"),
    (P, "delete_tModel", "tModelKey*", "", "dispositionReport"),
    (P, "discard_authToken", "", "", "dispositionReport"),
    (P, "get_assertionStatusReport", "completionStatus?", "", "assertionStatusReport"),
    (P, "get_authToken", "", "userID! cred!", "authToken"),
    (P, "get_publisherAssertions", "", "", "publisherAssertions"),
    (P, "get_registeredInfo", "", "", "registeredInfo"),
    (P, "save_binding", "bindingTemplate*", "", "bindingDetail"),
    (P, "save_business", "businessEntity* uploadRegister*", "", "businessDetail"),
    (P, "save_service", "businessService*", "", "serviceDetail"),
    (P, "save_tModel", "tModel* uploadRegister*", "", "tModelDetail"),
    (P, "set_publisherAssertions", "publisherAssertion*", "", "publisherAssertions"),
];

/// How often a child occurs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occurs {
    Once,
    AtMostOnce,
    Any,
}

/// The alternatives of a part of an element's content, and how often one of them occurs.
fn parts(content: &'static str) -> impl Iterator<Item = (Vec<&'static str>, Occurs)> {
    let words = content.split_ascii_whitespace();
    words.filter(|word| *word != "text").map(|word| {
        let (names, occurs) = match (word.strip_suffix('?'), word.strip_suffix('*')) {
            (Some(names), _) => (names, Occurs::AtMostOnce),
            (_, Some(names)) => (names, Occurs::Any),
            _ => (word, Occurs::Once),
        };
        (names.split('|').collect(), occurs)
    })
}

/// Names of attributes, and whether each is required.
fn attributes(list: &'static str) -> impl Iterator<Item = (&'static str, bool)> {
    let words = list.split_ascii_whitespace();
    words.map(|word| match word.strip_suffix('!') {
        Some(name) => (name, true),
        None => (word, false),
    })
}

/// The request of this name at this port.
pub(super) fn call(port: Port, name: &str) -> Option<&'static str> {
    let mut calls = CALLS.iter();
    let found = calls.find(|(of, call, ..)| *of == port && *call == name);
    found.map(|(_, call, ..)| *call)
}

fn has_token(port: Port, call: &str) -> bool {
    port == Port::Publication && !WITHOUT_TOKEN.contains(&call)
}

/// Refuses a request that does not have the structure of its row.
pub(super) fn check(request: &Element, name: &str) -> Result<(), Error> {
    let mut calls = CALLS.iter();
    match calls.find(|(_, call, ..)| *call == name) {
        Some(&(_, call, content, list, _)) => check_as(request, (call, content, list), true),
        None => Ok(()),
    }
}

/// Refuses an element that does not have the structure of its row.
pub(super) fn check_element(element: &Element) -> Result<(), Error> {
    let local = &*element.name.local;
    match ELEMENTS.iter().find(|(name, ..)| *name == local) {
        Some(row) if element.name.namespace == *NAMESPACE => check_as(element, *row, false),
        _ => Err(malformed(format!(
            "{} is not an element of UDDI v2",
            shown(local)
        ))),
    }
}

fn malformed(detail: String) -> Error {
    Error::new(ErrorCode::FatalError, detail)
}

fn check_as(element: &Element, (name, content, list): Row, is_call: bool) -> Result<(), Error> {
    // An attribute of another namespace says nothing about the data.
    let own = element.attributes.iter();
    let own = own.filter(|(name, _)| name.namespace.is_empty());
    for (attribute, _) in own {
        let is_known = attributes(list).any(|(known, _)| attribute.local == known)
            || is_call && attribute.local == "generic";
        if !is_known {
            let attribute = shown(&attribute.local);
            return Err(malformed(format!("{name} has no attribute {attribute}")));
        }
    }
    for (attribute, _) in attributes(list).filter(|(_, is_required)| *is_required) {
        if element.attribute(&Name::local(attribute)).is_none() {
            let detail = format!("the attribute {attribute} of {name} is missing");
            return Err(malformed(detail));
        }
    }
    let mut counts: Vec<usize> = parts(content).map(|_| 0).collect();
    for child in element.elements() {
        let local = &*child.name.local;
        if is_call && local == "authInfo" && child.name.namespace == *NAMESPACE {
            check_as(child, ("authInfo", "text", ""), false)?;
            continue;
        }
        let at = parts(content).position(|(names, _)| names.contains(&local));
        let row = ELEMENTS.iter().find(|(name, ..)| *name == local);
        let (Some(at), Some(row)) = (at, row) else {
            let detail = format!("{name} does not contain {}", shown(local));
            return Err(malformed(detail));
        };
        if child.name.namespace != *NAMESPACE {
            let detail = format!("{local} in {name} is not in the namespace {NAMESPACE}");
            return Err(malformed(detail));
        }
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
        check_as(child, *row, false)?;
    }
    for ((names, occurs), count) in parts(content).zip(counts) {
        let names = names.join(" or ");
        if occurs == Occurs::Once && count == 0 {
            return Err(malformed(format!("{names} is missing in {name}")));
        }
        if occurs != Occurs::Any && count > 1 {
            return Err(malformed(format!("{name} has more than one {names}")));
        }
    }
    let has_text = content == "text";
    let is_blank = |text: &str| text.trim().is_empty();
    if !has_text && !is_blank(&element.text()) {
        return Err(malformed(format!("{name} does not contain text")));
    }
    Ok(())
}

/// A sender's name, shortened for an error.
fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>";
const XSD: &str = "http://www.w3.org/2001/XMLSchema";
const WSDL: &str = "http://schemas.xmlsoap.org/wsdl/";
const WSDL_SOAP: &str = "http://schemas.xmlsoap.org/wsdl/soap/";

fn xsd(local: &'static str) -> Element {
    Element::new(Name::new(XSD, local))
}

fn with(element: Element, attributes: &[(&'static str, &str)]) -> Element {
    attributes.iter().fold(element, |element, (name, value)| {
        element.with_attribute(Name::local(name), (*value).to_owned())
    })
}

/// The declaration of an element.
fn declaration((name, content, list): Row, more: &[&'static str], token: bool) -> Element {
    let attributes = more.iter().map(|name| (*name, true));
    let attributes: Vec<Element> = attributes
        .chain(self::attributes(list))
        .map(|(name, is_required)| {
            let usage = ("use", if is_required { "required" } else { "optional" });
            match name {
                "lang" => with(xsd("attribute"), &[("ref", "xml:lang"), usage]),
                "maxRows" | "errno" => with(
                    xsd("attribute"),
                    &[("name", name), ("type", "xsd:int"), usage],
                ),
                _ => with(
                    xsd("attribute"),
                    &[("name", name), ("type", "xsd:string"), usage],
                ),
            }
        })
        .collect();
    let element = with(xsd("element"), &[("name", name)]);
    if content == "text" {
        if attributes.is_empty() {
            return with(element, &[("type", "xsd:string")]);
        }
        let extension = with(xsd("extension"), &[("base", "xsd:string")]);
        let content = xsd("simpleContent").with_child(extension.with_children(attributes));
        return element.with_child(xsd("complexType").with_child(content));
    }
    let token = token.then(|| reference("authInfo", Occurs::Once));
    let children = parts(content).map(|(names, occurs)| match names.as_slice() {
        [name] => reference(name, occurs),
        names => {
            let names = names.iter().map(|name| reference(name, Occurs::Once));
            xsd("choice").with_children(names)
        }
    });
    let sequence = xsd("sequence").with_children(token.into_iter().chain(children));
    let complex = xsd("complexType").with_child(sequence);
    element.with_child(complex.with_children(attributes))
}

fn reference(name: &str, occurs: Occurs) -> Element {
    let element = with(xsd("element"), &[("ref", &format!("uddi:{name}"))]);
    match occurs {
        Occurs::Once => element,
        Occurs::AtMostOnce => with(element, &[("minOccurs", "0")]),
        Occurs::Any => with(element, &[("minOccurs", "0"), ("maxOccurs", "unbounded")]),
    }
}

/// The schema of all messages.
fn schema(location_of_lang: &str) -> Element {
    let lang = with(
        xsd("import"),
        &[
            ("namespace", XML_NAMESPACE),
            ("schemaLocation", location_of_lang),
        ],
    );
    let elements = ELEMENTS.iter().map(|row| declaration(*row, &[], false));
    let answers = ANSWERS
        .iter()
        .map(|row| declaration(*row, &["generic", "operator"], false));
    let calls = CALLS.iter().map(|&(port, name, content, list, _)| {
        declaration((name, content, list), &["generic"], has_token(port, name))
    });
    with(
        xsd("schema"),
        &[
            ("targetNamespace", NAMESPACE),
            ("elementFormDefault", "qualified"),
            ("attributeFormDefault", "unqualified"),
        ],
    )
    .with_child(lang)
    .with_children(elements)
    .with_children(answers)
    .with_children(calls)
}

/// The schema of all messages as text, for the WSDL of other interfaces.
pub(crate) fn schema_text(location_of_lang: &str) -> String {
    let schema = schema(location_of_lang);
    let schema = schema
        .with_namespace("xsd", XSD)
        .with_namespace("uddi", NAMESPACE);
    schema.to_text()
}

/// The schema of `xml:lang`, to which the descriptions refer as `xml.xsd` next to their ports. Readers
/// without access to the Internet would not find it elsewhere.
#[must_use]
pub fn schema_of_lang() -> String {
    let lang = [("name", "lang"), ("type", "xsd:string")];
    let schema = with(xsd("schema"), &[("targetNamespace", XML_NAMESPACE)])
        .with_namespace("xsd", XSD)
        .with_child(with(xsd("attribute"), &lang));
    format!("{DECLARATION}{}", schema.to_text())
}

/// The WSDL 1.1 description of a port at this address.
///
/// Its operations are those of the published descriptions (`urn:uddi-org:inquiry_v2` and
/// `urn:uddi-org:publication_v2`), in one document with the schema.
#[must_use]
pub fn wsdl(port: Port, address: &str) -> String {
    let folder = address.rsplit_once('/').map_or("", |(folder, _)| folder);
    let lang = format!("{folder}/xml.xsd");
    let target = port.namespace();
    let element = |local| Element::new(Name::new(WSDL, local));
    let soap = |local| Element::new(Name::new(WSDL_SOAP, local));
    let calls = CALLS.iter().filter(|(of, ..)| *of == port);
    let names = |calls: &mut dyn Iterator<Item = &'static str>| -> Vec<&'static str> {
        calls
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect()
    };
    let messages = names(
        &mut calls
            .clone()
            .flat_map(|&(_, call, .., answer)| [call, answer]),
    );
    let message = |name: &str| {
        let part = [("name", "body"), ("element", &*format!("uddi:{name}"))];
        let part = with(element("part"), &part);
        with(element("message"), &[("name", name)]).with_child(part)
    };
    let report = (!messages.contains(&"dispositionReport")).then_some("dispositionReport");
    let messages = messages.iter().copied().chain(report).map(message);
    let tns = |name: &str| format!("tns:{name}");
    let described = calls.clone().map(|&(_, call, .., answer)| {
        let operation = with(element("operation"), &[("name", call)]);
        let fault = [("name", "error"), ("message", "tns:dispositionReport")];
        operation
            .with_child(with(element("input"), &[("message", &tns(call))]))
            .with_child(with(element("output"), &[("message", &tns(answer))]))
            .with_child(with(element("fault"), &fault))
    });
    let bound = calls.map(|&(_, call, ..)| {
        let literal = || with(soap("body"), &[("use", "literal"), ("parts", "body")]);
        let fault = with(soap("fault"), &[("name", "error"), ("use", "literal")]);
        let action = [("soapAction", call), ("style", "document")];
        with(element("operation"), &[("name", call)])
            .with_child(with(soap("operation"), &action))
            .with_child(element("input").with_child(literal()))
            .with_child(element("output").with_child(literal()))
            .with_child(with(element("fault"), &[("name", "error")]).with_child(fault))
    });
    let (kind, binding, name) = match port {
        Port::Inquiry => ("Inquire", "InquireSoap", "UDDIInquiry"),
        Port::Publication => ("Publish", "PublishSoap", "UDDIPublication"),
    };
    let http = "http://schemas.xmlsoap.org/soap/http";
    let transport = with(
        soap("binding"),
        &[("style", "document"), ("transport", http)],
    );
    let port_type = with(element("portType"), &[("name", kind)]).with_children(described);
    let binding_element = with(
        element("binding"),
        &[("name", binding), ("type", &tns(kind))],
    );
    let location = with(soap("address"), &[("location", address)]);
    let at = [("name", kind), ("binding", &*tns(binding))];
    let service = with(element("service"), &[("name", name)])
        .with_child(with(element("port"), &at).with_child(location));
    let definitions = with(element("definitions"), &[("targetNamespace", target)])
        .with_namespace("", WSDL)
        .with_namespace("soap", WSDL_SOAP)
        .with_namespace("xsd", XSD)
        .with_namespace("uddi", NAMESPACE)
        .with_namespace("tns", target)
        .with_child(element("types").with_child(schema(&lang)))
        .with_children(messages)
        .with_child(port_type)
        .with_child(binding_element.with_child(transport).with_children(bound))
        .with_child(service);
    format!("{DECLARATION}{}", definitions.to_text())
}

/// The attribute `generic` of a request, if it has another version than ours.
pub(super) fn other_version(request: &Element) -> Option<&str> {
    let generic = request
        .attribute(&Name::local("generic"))
        .unwrap_or_default();
    (generic.trim() != GENERIC).then_some(generic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_child_has_a_row_and_every_answer_too() {
        let rows = || ELEMENTS.iter().chain(ANSWERS).map(|(name, ..)| *name);
        let contents = ELEMENTS
            .iter()
            .chain(ANSWERS)
            .map(|(_, content, _)| *content);
        let calls = CALLS.iter().map(|(_, _, content, ..)| *content);
        for (names, _) in contents.chain(calls).flat_map(parts) {
            for name in names {
                assert!(rows().any(|row| row == name), "{name} has no row");
            }
        }
        for (.., answer) in CALLS {
            assert!(ANSWERS.iter().any(|(name, ..)| name == answer), "{answer}");
        }
        let mut names: Vec<&str> = rows().chain(CALLS.iter().map(|call| call.1)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "two rows of one name");
    }

    #[test]
    fn a_description_is_well_formed_and_names_each_request_once() {
        for port in [Port::Inquiry, Port::Publication] {
            let text = wsdl(port, "http://localhost/uddi");
            let root = Element::parse(text.as_bytes()).unwrap();
            let kind = root.child(&Name::new(WSDL, "portType")).unwrap();
            let calls = CALLS.iter().filter(|call| call.0 == port).count();
            assert_eq!(kind.elements().count(), calls);
            assert!(
                text.contains("location=\"http://localhost/uddi\""),
                "{text}"
            );
        }
    }

    #[test]
    fn a_request_of_another_structure_is_refused() {
        let check = |inner: &str| {
            let text = format!(
                "<save_service generic='2.0' xmlns='{NAMESPACE}'><authInfo>t</authInfo>{inner}\
                 </save_service>"
            );
            let request = Element::parse(text.as_bytes()).unwrap();
            super::check(&request, "save_service").map_err(|error| error.detail)
        };
        assert_eq!(
            check("<businessService serviceKey=''><categoryBag/></businessService>"),
            Ok(())
        );
        let binding = |inner: &str| {
            check(&format!(
                "<businessService serviceKey=''><bindingTemplates><bindingTemplate bindingKey=''>\
                 {inner}</bindingTemplate></bindingTemplates></businessService>"
            ))
        };
        let access = "<accessPoint URLType='http'>a</accessPoint>";
        assert_eq!(binding(access), Ok(()));
        for (found, reason) in [
            (
                check("<businessService/>"),
                "serviceKey of businessService is missing",
            ),
            (
                check("<businessService serviceKey='' x='1'/>"),
                "has no attribute x",
            ),
            (check("<tModel/>"), "does not contain tModel"),
            (
                check("<businessService xmlns='' serviceKey=''/>"),
                "not in the namespace",
            ),
            (check("text"), "does not contain text"),
            (binding(""), "accessPoint or hostingRedirector is missing"),
            (binding(&access.repeat(2)), "more than one accessPoint"),
        ] {
            let detail = found.unwrap_err();
            assert!(detail.contains(reason), "{detail}");
        }
    }
}
