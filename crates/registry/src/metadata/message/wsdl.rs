//! The WSDL of the interfaces, in one document.
//!
//! The port types and operations are those of GRIMOIRES' four documents; all have one address here.

use chappe_xml::Element;

use super::NAMESPACE;
use super::read::NAMES;
use crate::uddi::message::{NAMESPACE as UDDI, schema_text};

/// The namespace of the description.
const TARGET: &str = "https://chappe.example/ns/metadata.wsdl";

/// The port types with their requests and the elements of their answers.
const PORTS: [(&str, &[(&str, &str)]); 4] = [
    (
        "PublishMetadata",
        &[
            ("addMetadataToEntity", "metadataInfo"),
            ("deleteMetadata", "success"),
        ],
    ),
    (
        "InquireMetadata",
        &[
            ("get_metadataDetail", "metadataInfo"),
            ("find_entityByMetadata", "entityReferenceList"),
            ("get_entityMetadata", "metadataInfos"),
            ("get_supportedEntityType", "uriBag"),
        ],
    ),
    ("InquireUddiMetadata", &[("find_service", "serviceList")]),
    (
        "InquireWsdlMetadata",
        &[
            ("find_interfaceByMessagePartMetadata", "uriBag"),
            ("find_interfaceByOperationMetadata", "uriBag"),
            ("find_operation", "operationReferenceList"),
        ],
    ),
];

/// Elements with text: their names and types.
const TEXTS: [(&str, &str); 15] = [
    ("metadataType", "anyURI"),
    ("metadataKey", "string"),
    ("uriValue", "anyURI"),
    ("stringKey", "string"),
    ("messageNamespace", "string"),
    ("messageName", "string"),
    ("messagePartName", "string"),
    ("portTypeNamespace", "string"),
    ("portTypeName", "string"),
    ("operationName", "string"),
    ("author", "string"),
    ("date", "string"),
    ("uri", "anyURI"),
    ("findQualifier", "string"),
    ("name", "string"),
];

/// Elements with children, each `?` at most once, `*` any number of times; `|` joins alternatives.
/// Attributes: `key` is metadataKey, `page` those of a part of a list, `next` the cursor.
const ELEMENTS: [(&str, &str, &str); 28] = [
    (
        "metadataValue",
        "triplesAssertion|stringValue|uriValue|xmlValue",
        "",
    ),
    (
        "triplesAssertion",
        "triples resourceIdentifier? language? base?",
        "",
    ),
    ("metadata", "metadataType metadataValue", "key"),
    (
        "metadataInfo",
        "metadataType metadataValue author? date",
        "key",
    ),
    ("metadataInfos", "metadataInfo*", "next"),
    (
        "entityReference",
        "stringKey|metadataKey|messagePartReference|operationReference",
        "entity",
    ),
    (
        "messagePartReference",
        "messageNamespace messageName messagePartName",
        "",
    ),
    (
        "operationReference",
        "portTypeNamespace portTypeName operationName",
        "",
    ),
    ("entityReferenceList", "entityReference*", "next"),
    ("operationReferenceList", "operationReference*", "next"),
    ("uriBag", "uri*", "next"),
    ("findQualifiers", "findQualifier*", ""),
    (
        "metadataQuery",
        "findQualifiers? metadataType? metadataValue? author* date?",
        "",
    ),
    ("metadataQueryBag", "metadataQuery*", ""),
    ("operationMetadataQueryBag", "metadataQuery*", ""),
    ("messagePartMetadataQueryBag", "metadataQuery*", ""),
    ("faultDetail", "errorMessage", "error"),
    ("faultDetailList", "faultDetail*", ""),
    (
        "addMetadataToEntity",
        "uddi:authInfo? entityReference metadata",
        "",
    ),
    ("deleteMetadata", "uddi:authInfo? metadataKey", ""),
    ("get_metadataDetail", "uddi:authInfo? metadataKey", ""),
    (
        "get_entityMetadata",
        "uddi:authInfo? entityReference",
        "page",
    ),
    (
        "find_entityByMetadata",
        "uddi:authInfo? metadataQueryBag",
        "page",
    ),
    (
        "get_supportedEntityType",
        "uddi:authInfo? dummyToGetClass?",
        "",
    ),
    (
        "find_service",
        "uddi:authInfo? findQualifiers? uddi:name* uddi:categoryBag? uddi:tModelBag? metadataQueryBag?",
        "service",
    ),
    (
        "find_operation",
        "uddi:authInfo? findQualifiers? name* operationMetadataQueryBag? messageName* messageNamespace* \
         messagePartName* messagePartMetadataQueryBag? entityReference?",
        "page",
    ),
    (
        "find_interfaceByOperationMetadata",
        "uddi:authInfo? metadataQueryBag",
        "page",
    ),
    (
        "find_interfaceByMessagePartMetadata",
        "uddi:authInfo? metadataQueryBag",
        "page",
    ),
];

/// The attributes of a group.
fn attributes(group: &str) -> String {
    let local = |name: &str, kind: &str, usage: &str| {
        format!("<xsd:attribute name=\"{name}\" type=\"xsd:{kind}\" use=\"{usage}\"/>")
    };
    let page = || local("maxRows", "int", "optional") + &local("cursor", "string", "optional");
    match group {
        "key" => "<xsd:attribute ref=\"meta:metadataKey\" use=\"required\"/>".to_owned(),
        "entity" => local("entityType", "anyURI", "required"),
        "error" => {
            local("errorNumber", "int", "required") + &local("errorCode", "string", "required")
        }
        "next" => local("next", "string", "optional"),
        "page" => page(),
        "service" => {
            local("generic", "string", "required")
                + &local("maxRows", "int", "optional")
                + &local("businessKey", "string", "optional")
        }
        _ => String::new(),
    }
}

fn reference(name: &str) -> String {
    let (name, occurs) = match name.split_at(name.len().saturating_sub(1)) {
        (name, "?") => (name, " minOccurs=\"0\""),
        (name, "*") => (name, " minOccurs=\"0\" maxOccurs=\"unbounded\""),
        _ => (name, ""),
    };
    match name {
        "triples" | "resourceIdentifier" | "language" | "base" | "errorMessage"
        | "dummyToGetClass" => {
            format!("<xsd:element name=\"{name}\" type=\"xsd:string\"{occurs}/>")
        }
        _ if name.contains(':') => format!("<xsd:element ref=\"{name}\"{occurs}/>"),
        _ => format!("<xsd:element ref=\"meta:{name}\"{occurs}/>"),
    }
}

fn schema() -> String {
    let mut text = format!(
        "<xsd:schema xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" xmlns:meta=\"{NAMESPACE}\" \
         xmlns:uddi=\"{UDDI}\" targetNamespace=\"{NAMESPACE}\" elementFormDefault=\"qualified\" \
         attributeFormDefault=\"unqualified\"><xsd:import namespace=\"{UDDI}\"/>\
         <xsd:attribute name=\"metadataKey\" type=\"xsd:string\"/>\
         <xsd:element name=\"success\" type=\"xsd:boolean\"/>\
         <xsd:element name=\"stringValue\"><xsd:complexType><xsd:simpleContent>\
         <xsd:extension base=\"xsd:string\"><xsd:attribute name=\"datatype\" type=\"xsd:anyURI\"/>\
         </xsd:extension></xsd:simpleContent></xsd:complexType></xsd:element>\
         <xsd:element name=\"xmlValue\"><xsd:complexType mixed=\"true\"><xsd:sequence>\
         <xsd:any processContents=\"lax\"/></xsd:sequence></xsd:complexType></xsd:element>"
    );
    for (name, kind) in TEXTS {
        text += &format!("<xsd:element name=\"{name}\" type=\"xsd:{kind}\"/>");
    }
    for (name, content, group) in ELEMENTS
        .iter()
        .filter(|(_, content, _)| !content.is_empty())
    {
        let inner = match content.contains('|') {
            true => {
                let choices: String = content.split('|').map(reference).collect();
                format!("<xsd:choice>{choices}</xsd:choice>")
            }
            false => {
                let children: String = content.split_whitespace().map(reference).collect();
                format!("<xsd:sequence>{children}</xsd:sequence>")
            }
        };
        let attributes = attributes(group);
        text += &format!(
            "<xsd:element name=\"{name}\"><xsd:complexType>{inner}{attributes}</xsd:complexType></xsd:element>"
        );
    }
    text + "</xsd:schema>"
}

/// The WSDL 1.1 description of the interfaces at this address.
#[must_use]
pub fn wsdl(address: &str) -> String {
    let folder = address.rsplit_once('/').map_or("", |(folder, _)| folder);
    let address = Element::new(chappe_xml::Name::local("a")).with_text(address.to_owned());
    // With the characters that XML reserves written as references.
    let address = address.to_text();
    let address = address.trim_start_matches("<a>").trim_end_matches("</a>");
    let element = |name: &str| match name {
        "serviceList" => format!("uddi:{name}"),
        _ => format!("meta:{name}"),
    };
    let mut messages = std::collections::BTreeSet::from(["faultDetailList"]);
    messages.extend(NAMES);
    messages.extend(
        PORTS
            .iter()
            .flat_map(|(_, calls)| calls.iter().map(|(_, answer)| *answer)),
    );
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><definitions \
         xmlns=\"http://schemas.xmlsoap.org/wsdl/\" xmlns:soap=\"http://schemas.xmlsoap.org/wsdl/soap/\" \
         xmlns:meta=\"{NAMESPACE}\" xmlns:uddi=\"{UDDI}\" xmlns:tns=\"{TARGET}\" \
         targetNamespace=\"{TARGET}\"><types>{}{}</types>",
        schema_text(&format!("{folder}/xml.xsd")),
        schema()
    );
    for message in messages {
        let of = element(message);
        text += &format!(
            "<message name=\"{message}\"><part name=\"body\" element=\"{of}\"/></message>"
        );
    }
    let (mut bindings, mut ports) = (String::new(), String::new());
    for (name, calls) in PORTS {
        text += &format!("<portType name=\"{name}Port\">");
        bindings += &format!(
            "<binding name=\"{name}Soap\" type=\"tns:{name}Port\"><soap:binding style=\"document\" \
             transport=\"http://schemas.xmlsoap.org/soap/http\"/>"
        );
        for (call, answer) in calls {
            text += &format!(
                "<operation name=\"{call}\"><input message=\"tns:{call}\"/><output \
                 message=\"tns:{answer}\"/><fault name=\"error\" message=\"tns:faultDetailList\"/></operation>"
            );
            let body = "<soap:body use=\"literal\" parts=\"body\"/>";
            bindings += &format!(
                "<operation name=\"{call}\"><soap:operation soapAction=\"{call}\" style=\"document\"/>\
                 <input>{body}</input><output>{body}</output><fault name=\"error\"><soap:fault \
                 name=\"error\" use=\"literal\"/></fault></operation>"
            );
        }
        text += "</portType>";
        bindings += "</binding>";
        ports += &format!(
            "<port name=\"{name}\" binding=\"tns:{name}Soap\"><soap:address location=\"{address}\"/></port>"
        );
    }
    format!("{text}{bindings}<service name=\"Metadata\">{ports}</service></definitions>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_well_formed_and_names_each_request_once() {
        let text = wsdl("http://localhost/uddi/metadata?a&b");
        let root = Element::parse(text.as_bytes()).unwrap();
        assert!(
            root.name
                .is("http://schemas.xmlsoap.org/wsdl/", "definitions")
        );
        for name in NAMES {
            let declared = format!("<xsd:element name=\"{name}\">");
            // UDDI's schema, which stands beside, declares one of the same name.
            let count = if name == "find_service" { 2 } else { 1 };
            assert_eq!(text.matches(&declared).count(), count, "{name}");
            let operation = format!("<operation name=\"{name}\"><input");
            assert_eq!(text.matches(&operation).count(), 1, "{name}");
        }
        let known = |name: &str| {
            let of = format!("<xsd:element name=\"{name}\"");
            text.contains(&of)
        };
        for (name, content, _) in ELEMENTS {
            for child in content.split([' ', '|']).filter(|child| !child.is_empty()) {
                let child = child
                    .trim_end_matches(['?', '*'])
                    .trim_start_matches("uddi:");
                assert!(known(child), "{child} in {name}");
            }
        }
    }
}
