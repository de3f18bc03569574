//! Answers as XML.

use std::fmt::Write as _;

use chappe_soap::v1_1;
use chappe_xml::{Element, Name};

use super::read::XML_LITERAL;
use super::{Answer, NAMESPACE};
use crate::metadata::find::Page;
use crate::metadata::piece::{Piece, Value};
use crate::metadata::wsdl_part::WsdlPart;
use crate::uddi::message::Answer as UddiAnswer;

fn element(local: &'static str) -> Element {
    Element::new(Name::new(NAMESPACE, local))
}

fn leaf(local: &'static str, text: &str) -> Element {
    element(local).with_text(text.to_owned())
}

/// The element of a message.
fn message(local: &'static str) -> Element {
    element(local).with_namespace("meta", NAMESPACE)
}

/// The element of a list, with the cursor of the next part.
fn list<T>(local: &'static str, page: &Page<T>, write: impl Fn(&T) -> Element) -> Element {
    let list = message(local).with_children(page.items.iter().map(write));
    match &page.next {
        None => list,
        Some(next) => list.with_attribute(Name::local("next"), next.clone()),
    }
}

fn value(piece: &Piece) -> Element {
    let typed = |value: &str, datatype: &str| {
        leaf("stringValue", value).with_attribute(Name::local("datatype"), datatype.to_owned())
    };
    let inner = match &piece.value {
        Value::Text(text) => leaf("stringValue", text),
        Value::Uri(uri) => leaf("uriValue", uri),
        Value::Typed { value, datatype } if datatype == XML_LITERAL => {
            match Element::parse(value.as_bytes()) {
                Ok(inner) => element("xmlValue").with_child(inner),
                Err(_) => typed(value, datatype),
            }
        }
        Value::Typed { value, datatype } => typed(value, datatype),
        Value::Graph(triples) => {
            let mut text = String::new();
            for triple in triples {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{triple} .");
            }
            element("triplesAssertion")
                .with_child(leaf("triples", &text))
                .with_child(leaf("resourceIdentifier", &piece.subject))
                .with_child(leaf("language", "N-TRIPLE"))
                .with_child(leaf("base", &piece.subject))
        }
    };
    element("metadataValue").with_child(inner)
}

fn fill(info: Element, piece: &Piece) -> Element {
    info.with_attribute(Name::new(NAMESPACE, "metadataKey"), piece.key.clone())
        .with_child(leaf("metadataType", &piece.piece_type))
        .with_child(value(piece))
        .with_child(leaf("author", &piece.author))
        .with_child(leaf("date", &piece.date()))
}

fn operation(namespace: &str, port_type: &str, name: &str) -> Element {
    element("operationReference")
        .with_child(leaf("portTypeNamespace", namespace))
        .with_child(leaf("portTypeName", port_type))
        .with_child(leaf("operationName", name))
}

/// A part of a WSDL document in the form that it has as a reference.
fn part(part: &WsdlPart) -> Element {
    match part {
        WsdlPart::Operation {
            namespace,
            port_type,
            name,
        } => operation(namespace, port_type, name),
        WsdlPart::MessagePart {
            namespace,
            message,
            name,
        } => element("messagePartReference")
            .with_child(leaf("messageNamespace", namespace))
            .with_child(leaf("messageName", message))
            .with_child(leaf("messagePartName", name)),
        WsdlPart::PortType { .. } => leaf("stringKey", &part.iri()),
    }
}

fn reference((key, entity_type): &(String, String)) -> Element {
    let inner = WsdlPart::parse(key).map_or_else(|| leaf("stringKey", key), |found| part(&found));
    element("entityReference")
        .with_attribute(Name::local("entityType"), entity_type.clone())
        .with_child(inner)
}

impl Answer {
    /// The SOAP message of the registry `operator`.
    #[must_use]
    pub fn to_text(&self, operator: &str) -> String {
        v1_1::to_text(match self {
            Self::Piece(piece) => fill(message("metadataInfo"), piece),
            Self::Pieces(page) => list("metadataInfos", page, |piece| {
                fill(element("metadataInfo"), piece)
            }),
            Self::Entities(page) => list("entityReferenceList", page, reference),
            Self::Uris(page) => list("uriBag", page, |uri| leaf("uri", uri)),
            Self::Operations(page) => list("operationReferenceList", page, part),
            Self::Services(found) => {
                return UddiAnswer::ServiceList(found.clone()).to_text(operator);
            }
            Self::Success => message("success").with_text("true"),
        })
    }
}
