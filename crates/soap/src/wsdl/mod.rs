//! WSDL 1.1 for devices: operations and events of services.
//!
//! [`Wsdl`] reads any WSDL document and writes one form; [`Service`] is a short description that
//! [`Service::to_wsdl`] converts into a [`Wsdl`].
//!
//! Sources: WSDL 1.1 (W3C note, 2001); WSDL 1.1 binding for SOAP 1.2 (W3C submission, 2006);
//! WS-Addressing 1.0 metadata, section 4.4 (actions); WS-Eventing (W3C submission, 2006), section
//! on WSDL (`wse:EventSource`); WS-Policy 1.5, attachment (assertions of bindings and port types, without
//! alternatives). RPC style, encodings, MIME and HTTP bindings are not modelled.

mod describe;
mod generate;
mod parse;

use std::collections::HashMap;

use chappe_xml::{Element, Name, Namespace};

pub use describe::{Service, ServiceOperation};
pub use parse::WsdlError;

/// The namespace of WSDL 1.1.
pub const NAMESPACE: &str = "http://schemas.xmlsoap.org/wsdl/";
/// The namespace of the SOAP 1.2 binding.
pub const SOAP12: &str = "http://schemas.xmlsoap.org/wsdl/soap12/";
/// The namespace of the SOAP 1.1 binding.
pub const SOAP11: &str = "http://schemas.xmlsoap.org/wsdl/soap/";
/// The namespace of the attribute `Action` in written documents; older namespaces are also read.
pub const ADDRESSING_METADATA: &str = "http://www.w3.org/2007/05/addressing/metadata";
/// The namespace of WS-Eventing, whose attribute `EventSource` marks port types with events.
pub const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";
/// The namespace of policies in written documents; [`POLICY_2004`] is also read.
pub const POLICY: &str = "http://www.w3.org/ns/ws-policy";
/// The namespace of policies before they were a standard.
pub const POLICY_2004: &str = "http://schemas.xmlsoap.org/ws/2004/09/policy";
/// The transport of SOAP bindings over HTTP.
pub const HTTP_TRANSPORT: &str = "http://schemas.xmlsoap.org/soap/http";

/// A WSDL document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wsdl {
    /// The name of the document, if it has one.
    pub name: Option<String>,
    /// The namespace of its messages, port types, bindings and services.
    pub target_namespace: Namespace,
    /// Referenced documents, which the caller fetches.
    pub imports: Vec<Import>,
    /// The embedded schemas, each with the declarations in scope.
    pub schemas: Vec<Element>,
    /// The messages.
    pub messages: Vec<Message>,
    /// The groups of operations.
    pub port_types: Vec<PortType>,
    /// The bindings of port types to protocols.
    pub bindings: Vec<Binding>,
    /// The addresses of bindings.
    pub services: Vec<ServicePorts>,
    /// The names of policy assertions, of which none is mandatory: those of any binding or port type when
    /// read, of each binding when written.
    pub assertions: Vec<Name>,
}

/// A reference to another document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Its target namespace.
    pub namespace: String,
    /// Its location, often relative to the importing document.
    pub location: Option<String>,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its name.
    pub name: Name,
    /// Its parts; in document style the first is the child of the body.
    pub parts: Vec<Part>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The element, in document style.
    pub element: Option<Name>,
    /// The type, in RPC style.
    pub type_name: Option<Name>,
}

/// A group of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortType {
    /// Its name.
    pub name: Name,
    /// `wse:EventSource`: the port type has notifications to subscribe to.
    pub event_source: bool,
    /// Its operations.
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name, unique in the port type.
    pub name: String,
    /// The first sender, and whether there is an answer.
    pub kind: OperationKind,
    /// The message that the service receives.
    pub input: Option<OperationMessage>,
    /// The message that the service sends.
    pub output: Option<OperationMessage>,
    /// Its faults.
    pub faults: Vec<OperationMessage>,
    /// Documentation for people.
    pub documentation: Option<String>,
}

/// The four kinds of operations (WSDL 1.1, section 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// The service receives a message.
    OneWay,
    /// The service receives a request and answers.
    RequestResponse,
    /// The service sends an event.
    Notification,
    /// The service sends an event and receives an answer.
    SolicitResponse,
}

/// A message in an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationMessage {
    /// Its name in the operation, if present.
    pub name: Option<String>,
    /// The message.
    pub message: Name,
    /// The action: explicit, else for an input that of its binding, else the default pattern.
    pub action: String,
    /// Whether the message has an explicit action.
    pub has_explicit_action: bool,
}

/// A binding of a port type to a protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Its name.
    pub name: Name,
    /// The bound port type.
    pub port_type: Name,
    /// The protocol.
    pub protocol: Protocol,
    /// Operations with their SOAP actions (empty if absent).
    pub operations: Vec<(String, String)>,
}

/// The protocol of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// SOAP 1.2.
    Soap12,
    /// SOAP 1.1, which is not supported.
    Soap11,
    /// Any other protocol.
    Other,
}

/// A service and the addresses of its bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePorts {
    /// The name of the service.
    pub name: String,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// The address of one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The binding.
    pub binding: Name,
    /// The address, if present.
    pub address: Option<String>,
}

impl Wsdl {
    /// The element of a message in the body, in document style.
    #[must_use]
    pub fn element(&self, message: &OperationMessage) -> Option<&Name> {
        let found = self
            .messages
            .iter()
            .find(|known| known.name == message.message)?;
        found.parts.first()?.element.as_ref()
    }

    /// All operations with their port types.
    pub fn operations(&self) -> impl Iterator<Item = (&PortType, &Operation)> {
        let port_types = self.port_types.iter();
        port_types.flat_map(|port_type| {
            port_type
                .operations
                .iter()
                .map(move |operation| (port_type, operation))
        })
    }

    /// The events: operations with the action and element of their first message.
    pub fn event_operations(&self) -> impl Iterator<Item = (&Operation, &str, Option<&Name>)> {
        // The first of several messages with the same name counts.
        let messages = self.messages.iter().rev();
        let elements: HashMap<_, _> = messages
            .map(|message| (&message.name, message.parts.first()))
            .collect();
        self.operations()
            .filter_map(move |(_, operation)| match operation.kind {
                OperationKind::Notification | OperationKind::SolicitResponse => {
                    let output = operation.output.as_ref()?;
                    let part = elements.get(&output.message).copied().flatten();
                    let element = part.and_then(|part| part.element.as_ref());
                    Some((operation, output.action.as_str(), element))
                }
                OperationKind::OneWay | OperationKind::RequestResponse => None,
            })
    }

    /// The events: actions with the elements of their messages.
    pub fn events(&self) -> impl Iterator<Item = (&str, Option<&Name>)> {
        let events = self.event_operations();
        events.map(|(_, action, element)| (action, element))
    }

    /// The operation whose first message has this action.
    #[must_use]
    pub fn operation_of(&self, action: &str) -> Option<(&PortType, &Operation)> {
        self.operations().find(|(_, operation)| {
            let first = match operation.kind {
                OperationKind::OneWay | OperationKind::RequestResponse => &operation.input,
                OperationKind::Notification | OperationKind::SolicitResponse => &operation.output,
            };
            first
                .as_ref()
                .is_some_and(|message| message.action == action)
        })
    }

    /// Adds the components of an imported document.
    ///
    /// # Errors
    /// [`WsdlError::TooMany`] if both together exceed the limit of components; then nothing is
    /// added.
    pub fn merge(&mut self, other: Self) -> Result<(), WsdlError> {
        if self.components() + other.components() > parse::COMPONENTS_MAX {
            return Err(WsdlError::TooMany);
        }
        self.imports.extend(other.imports);
        self.schemas.extend(other.schemas);
        self.messages.extend(other.messages);
        self.port_types.extend(other.port_types);
        self.bindings.extend(other.bindings);
        self.services.extend(other.services);
        for assertion in other.assertions {
            if !self.assertions.contains(&assertion) {
                self.assertions.push(assertion);
            }
        }
        self.apply_soap_actions();
        Ok(())
    }

    fn components(&self) -> usize {
        let parts = self.messages.iter().map(|message| message.parts.len());
        let operations = self.port_types.iter().map(|known| known.operations.len());
        let bound = self.bindings.iter().map(|known| known.operations.len());
        let ports = self.services.iter().map(|known| known.ports.len());
        let inner: usize = parts.chain(operations).chain(bound).chain(ports).sum();
        let outer = [
            self.imports.len(),
            self.schemas.len(),
            self.messages.len(),
            self.port_types.len(),
            self.bindings.len(),
            self.services.len(),
            self.assertions.len(),
        ];
        inner + outer.iter().sum::<usize>()
    }

    /// Sets the action of requests without an explicit one to the nonempty `soapAction` of their
    /// binding (WS-Addressing 1.0 metadata, section 4.4.1). The binding may be in another document,
    /// hence this follows each merge. SOAP 1.2 takes precedence.
    fn apply_soap_actions(&mut self) {
        let mut bindings: Vec<&Binding> = self.bindings.iter().collect();
        bindings.sort_by_key(|binding| binding.protocol != Protocol::Soap12);
        let mut actions: HashMap<(&Name, &str), &str> = HashMap::new();
        for binding in bindings {
            for (operation, action) in &binding.operations {
                if !action.is_empty() {
                    let key = (&binding.port_type, operation.as_str());
                    actions.entry(key).or_insert(action);
                }
            }
        }
        for port_type in &mut self.port_types {
            for operation in &mut port_type.operations {
                let is_request = matches!(
                    operation.kind,
                    OperationKind::OneWay | OperationKind::RequestResponse
                );
                let found = actions.get(&(&port_type.name, operation.name.as_str()));
                if let (Some(input), Some(action)) = (&mut operation.input, found)
                    && is_request
                    && !input.has_explicit_action
                {
                    input.action.clear();
                    input.action.push_str(action);
                }
            }
        }
    }
}

/// The default action of a message (WS-Addressing 1.0 metadata, section 4.4.4).
///
/// `message` is the message's name in the operation, or its default in WSDL 1.1, section 2.4.5.
///
/// ```
/// use chappe_soap::wsdl::default_action;
/// assert_eq!(default_action("http://x/y", "Clock", "GetRequest"), "http://x/y/Clock/GetRequest");
/// assert_eq!(default_action("urn:x", "Clock", "GetRequest"), "urn:x:Clock:GetRequest");
/// ```
#[must_use]
pub fn default_action(target_namespace: &str, port_type: &str, message: &str) -> String {
    let delimiter = if target_namespace.starts_with("urn:") {
        ':'
    } else {
        '/'
    };
    let prefix = target_namespace
        .strip_suffix(delimiter)
        .unwrap_or(target_namespace);
    format!("{prefix}{delimiter}{port_type}{delimiter}{message}")
}
