//! Answers as XML.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_soap::v1_1;
use chappe_xml::{Element, Name};

use super::{Answer, NAMESPACE};
use crate::uddi::{List, ServiceInfo};
use crate::wsdl::{Document, Interface, MessagePart, Operation, OperationMessage, SavedDocument};

fn element(local: &'static str) -> Element {
    Element::new(Name::new(NAMESPACE, local))
}

fn text(local: &'static str, text: impl ToString) -> Element {
    element(local).with_text(text.to_string())
}

fn maybe(local: &'static str, value: Option<&String>) -> Option<Element> {
    value.map(|value| text(local, value))
}

impl Answer {
    /// The document of the answer.
    #[must_use]
    pub fn to_text(&self) -> String {
        v1_1::to_text(self.element().with_namespace("", NAMESPACE))
    }

    fn element(&self) -> Element {
        match self {
            Self::Added(documents, unread) => {
                let unread = unread.iter().map(|one| {
                    element("unread")
                        .with_child(text("url", &one.url))
                        .with_child(text("reason", &one.reason))
                });
                let documents = documents.iter().map(saved);
                element("wsdlAdded")
                    .with_children(documents)
                    .with_children(unread)
            }
            Self::Removed(key) => element("wsdlRemoved").with_child(text("key", key)),
            Self::Documents(list) => page("wsdlList", list, document, |it| it.key.clone()),
            Self::Content(of, bytes) => element("wsdlContent")
                .with_child(document(of))
                .with_child(text("content", STANDARD.encode(bytes))),
            Self::Operations(list) => page("operationList", list, operation, |it| it.iri.clone()),
            Self::Messages(messages) => {
                element("messageList").with_children(messages.iter().map(message))
            }
            Self::Interfaces(list) => page("interfaceList", list, interface, |it| it.iri.clone()),
            Self::Services(list) => {
                use crate::uddi::Key as _;
                page("serviceList", list, service, |it| it.service_key.iri())
            }
        }
    }

    /// The keys of the documents that the request changed.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        match self {
            Self::Added(documents, _) => documents.iter().map(|one| one.key.clone()).collect(),
            Self::Removed(key) => vec![key.clone()],
            _ => Vec::new(),
        }
    }
}

/// A list; the key of its last entry continues it.
fn page<T>(
    name: &'static str,
    list: &List<T>,
    write: impl Fn(&T) -> Element,
    key: impl Fn(&T) -> String,
) -> Element {
    let last = list.items.last().filter(|_| list.is_truncated);
    let next = last.map(|last| text("next", key(last)));
    element(name)
        .with_children(list.items.iter().map(write))
        .with_children(next)
}

fn saved(document: &SavedDocument) -> Element {
    element("documentInfo")
        .with_child(text("key", &document.key))
        .with_children(document.tmodels.iter().map(|key| text("tModelKey", key)))
        .with_children(document.services.iter().map(|key| text("serviceKey", key)))
}

fn document(document: &Document) -> Element {
    element("documentInfo")
        .with_child(text("key", &document.key))
        .with_children(maybe("url", document.location.as_ref()))
        .with_child(text("mediaType", &document.media_type))
        .with_child(text("size", document.size))
        .with_child(text("targetNamespace", &document.target_namespace))
        .with_child(text("owner", &document.owner))
        .with_children(document.tmodels.iter().map(|key| text("tModelKey", key)))
}

fn operation(operation: &Operation) -> Element {
    element("operationInfo")
        .with_child(text("iri", &operation.iri))
        .with_child(text("name", &operation.name))
        .with_child(text("interface", &operation.interface))
        .with_child(text("pattern", &operation.pattern))
}

fn message(message: &OperationMessage) -> Element {
    element("messageInfo")
        .with_child(text("iri", &message.iri))
        .with_child(text("message", &message.message))
        .with_child(text("name", &message.name))
        .with_child(text("action", &message.action))
        .with_children(message.parts.iter().map(part))
}

fn part(part: &MessagePart) -> Element {
    element("partInfo")
        .with_child(text("iri", &part.iri))
        .with_child(text("name", &part.name))
        .with_children(maybe("element", part.element.as_ref()))
        .with_children(maybe("type", part.type_definition.as_ref()))
        .with_children(part.meanings.iter().map(|iri| text("meaning", iri)))
}

fn interface(interface: &Interface) -> Element {
    element("interfaceInfo")
        .with_child(text("iri", &interface.iri))
        .with_child(text("name", &interface.name))
        .with_children(interface.tmodels.iter().map(|key| text("tModelKey", key)))
}

fn service(service: &ServiceInfo) -> Element {
    element("serviceInfo")
        .with_child(text("serviceKey", service.service_key))
        .with_child(text("businessKey", service.business_key))
        .with_children(service.names.iter().map(|name| text("name", &name.text)))
}
