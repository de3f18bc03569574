//! WSDL 1.1 as devices use it: what a service can be asked and what events it sends.
//!
//! [`Wsdl`] is read from any document of that language and written in one form; [`Service`] is the
//! short description that a device gives of itself, made into a [`Wsdl`] by [`Service::to_wsdl`].
//!
//! Sources: WSDL 1.1 (W3C note, 2001); WSDL 1.1 binding for SOAP 1.2 (W3C submission, 2006);
//! WS-Addressing 1.0 metadata, section 4.4 (actions); WS-Eventing (W3C submission, 2006), section
//! on WSDL (`wse:EventSource`). RPC style, encodings, MIME and HTTP bindings are not modelled, and
//! policies are not read.

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
/// The namespace of the attribute `Action` that is written; older ones are read as well.
pub const ADDRESSING_METADATA: &str = "http://www.w3.org/2007/05/addressing/metadata";
/// The namespace of WS-Eventing, whose attribute `EventSource` marks port types with events.
pub const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";
/// The transport of SOAP bindings over HTTP.
pub const HTTP_TRANSPORT: &str = "http://schemas.xmlsoap.org/soap/http";

/// A WSDL document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wsdl {
    /// The name of the document, if it has one.
    pub name: Option<String>,
    /// The namespace of its messages, port types, bindings and services.
    pub target_namespace: Namespace,
    /// Other documents it needs; whoever reads it fetches them.
    pub imports: Vec<Import>,
    /// The schemas in it, each with the declarations that were in scope around it.
    pub schemas: Vec<Element>,
    /// What can be sent.
    pub messages: Vec<Message>,
    /// Operations, grouped.
    pub port_types: Vec<PortType>,
    /// How port types go on the wire.
    pub bindings: Vec<Binding>,
    /// Where bindings are reached.
    pub services: Vec<ServicePorts>,
}

/// Another document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Its target namespace.
    pub namespace: String,
    /// Where it is, often relative to the importing document.
    pub location: Option<String>,
}

/// What can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its name.
    pub name: Name,
    /// Its parts; of document style the first is the child of the body.
    pub parts: Vec<Part>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// The element, of document style.
    pub element: Option<Name>,
    /// The type, of RPC style.
    pub type_name: Option<Name>,
}

/// A group of operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortType {
    /// Its name.
    pub name: Name,
    /// `wse:EventSource`: one can subscribe to its notifications.
    pub event_source: bool,
    /// Its operations.
    pub operations: Vec<Operation>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its name, unique in the port type.
    pub name: String,
    /// Who sends first, and whether an answer follows.
    pub kind: OperationKind,
    /// What the service receives.
    pub input: Option<OperationMessage>,
    /// What the service sends.
    pub output: Option<OperationMessage>,
    /// How it may fail.
    pub faults: Vec<OperationMessage>,
    /// For a person to read.
    pub documentation: Option<String>,
}

/// The four kinds of operations (WSDL 1.1, section 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// The service receives.
    OneWay,
    /// The service receives and answers.
    RequestResponse,
    /// The service sends: an event.
    Notification,
    /// The service sends and receives an answer: an event with answer.
    SolicitResponse,
}

/// A message in an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationMessage {
    /// Its name in the operation, if given.
    pub name: Option<String>,
    /// The message.
    pub message: Name,
    /// The action: as given with the message, else of an input that of its binding, else by the
    /// default pattern.
    pub action: String,
    /// Whether the action is given with the message.
    pub has_explicit_action: bool,
}

/// How a port type goes on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Its name.
    pub name: Name,
    /// What it binds.
    pub port_type: Name,
    /// Which protocol it is for.
    pub protocol: Protocol,
    /// Operations with their SOAP actions (empty when not given).
    pub operations: Vec<(String, String)>,
}

/// The protocol of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// SOAP 1.2.
    Soap12,
    /// SOAP 1.1, which is not spoken here.
    Soap11,
    /// Any other.
    Other,
}

/// Where bindings are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePorts {
    /// The name of the service.
    pub name: String,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// Where one binding is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What is reached.
    pub binding: Name,
    /// The address, if given.
    pub address: Option<String>,
}

impl Wsdl {
    /// The element that a message has in the body, of document style.
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

    /// The events: operations with the actions and elements of their first messages.
    pub fn event_operations(&self) -> impl Iterator<Item = (&Operation, &str, Option<&Name>)> {
        // Of messages of the same name the first counts.
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

    /// The events: actions with the elements that their messages carry.
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

    /// Takes port types, messages, bindings, services, schemas and imports of a document that this
    /// one imports.
    ///
    /// # Errors
    /// When both together have more components than one document may have; then nothing is taken.
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
        self.take_soap_actions();
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
        ];
        inner + outer.iter().sum::<usize>()
    }

    /// Gives requests without an action of their own the `soapAction` of their binding, if it is not
    /// empty (WS-Addressing 1.0 metadata, section 4.4.1). A binding may stand in another document
    /// than its port type, hence this follows each merge. SOAP 1.2 goes before other protocols.
    fn take_soap_actions(&mut self) {
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
                let asks = matches!(
                    operation.kind,
                    OperationKind::OneWay | OperationKind::RequestResponse
                );
                let found = actions.get(&(&port_type.name, operation.name.as_str()));
                if let (Some(input), Some(action)) = (&mut operation.input, found)
                    && asks
                    && !input.has_explicit_action
                {
                    input.action.clear();
                    input.action.push_str(action);
                }
            }
        }
    }
}

/// The action of a message that gives none (WS-Addressing 1.0 metadata, section 4.4.4).
///
/// `message` is the message's name in the operation, or the default one of WSDL 1.1, section 2.4.5.
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
    let start = target_namespace
        .strip_suffix(delimiter)
        .unwrap_or(target_namespace);
    format!("{start}{delimiter}{port_type}{delimiter}{message}")
}
