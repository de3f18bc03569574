//! What a document defines: its parts with their links, from the document alone.
//!
//! Links to parts of other documents are IRIs, so an imported document needs not be at hand, and each
//! document is described by itself.

use chappe_soap::wsdl::{self, OperationKind, OperationMessage, Protocol, Wsdl};
use chappe_xml::{Element, Limits, Name};
use oxrdf::{Literal, NamedNode, NamedNodeRef, Term, Triple};

use super::identifier as id;
use super::{MAX_DOCUMENT_BYTES, bytes, invalid};
use crate::uddi::Error;
use crate::vocabulary::RDF_TYPE;
use crate::vocabulary::wsdl as v;

/// The namespace of XML Schema.
const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
/// The namespace of SAWSDL.
const SAWSDL: &str = "http://www.w3.org/ns/sawsdl";
/// The namespace of the HTTP binding of WSDL 1.1.
const HTTP: &str = "http://schemas.xmlsoap.org/wsdl/http/";
/// Maximum memory of a document's tree; reason: far above that of a device's description.
const TREE_BYTES_MAX: usize = 32 << 20;

/// How a binding sends messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// SOAP 1.1.
    Soap11,
    /// SOAP 1.2.
    Soap12,
    /// HTTP GET or POST without SOAP.
    Http,
    /// Anything else.
    Other,
}

impl Wire {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Soap11 => "SOAP 1.1",
            Self::Soap12 => "SOAP 1.2",
            Self::Http => "HTTP",
            Self::Other => "other",
        }
    }
}

/// A port type.
#[derive(Debug, Clone)]
pub(crate) struct PortType {
    pub(crate) iri: NamedNode,
    pub(crate) name: Name,
}

/// A binding.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) iri: NamedNode,
    pub(crate) name: Name,
    pub(crate) port_type: Option<NamedNode>,
    pub(crate) wire: Wire,
    /// Whether messages travel over HTTP.
    pub(crate) is_over_http: bool,
}

/// A port.
#[derive(Debug, Clone)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) binding: Option<NamedNode>,
    pub(crate) address: Option<String>,
}

/// A service.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) iri: NamedNode,
    pub(crate) name: Name,
    pub(crate) ports: Vec<Port>,
}

/// The content of a document.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parts {
    /// Whether it is a schema.
    pub(crate) is_schema: bool,
    /// The name of the document.
    pub(crate) name: Option<String>,
    pub(crate) target_namespace: String,
    /// Locations of other documents, as they stand in it.
    pub(crate) imports: Vec<String>,
    /// What it defines at its top level.
    pub(crate) defined: Vec<NamedNode>,
    /// Statements about its parts.
    pub(crate) triples: Vec<Triple>,
    pub(crate) port_types: Vec<PortType>,
    pub(crate) bindings: Vec<Binding>,
    pub(crate) services: Vec<Service>,
}

fn is_wsdl(element: &Element, local: &str) -> bool {
    element.name.is(wsdl::NAMESPACE, local)
}

fn name_of(element: &Element) -> &str {
    let name = element.attribute(&Name::local("name"));
    name.unwrap_or_default().trim()
}

impl Parts {
    /// Reads a document.
    ///
    /// # Errors
    /// It is too large, not XML without a document type, neither WSDL 1.1 nor a schema, or a part has no IRI.
    pub(crate) fn read(document: &[u8]) -> Result<Self, Error> {
        if document.len() > MAX_DOCUMENT_BYTES {
            let found = document.len();
            let text = format!("the document has {found} bytes; the limit is {MAX_DOCUMENT_BYTES}");
            return Err(super::too_large(text));
        }
        let text = bytes::to_utf8(document).map_err(invalid)?;
        let limits = Limits {
            expanded_bytes: TREE_BYTES_MAX,
            ..Limits::default()
        };
        let root = Element::parse_within(&text, limits);
        let root = root.map_err(|error| invalid(format!("the document is not read: {error}")))?;
        let mut parts = Self::default();
        if root.name.is(SCHEMA, "schema") {
            parts.is_schema = true;
            parts.target_namespace = target_namespace(&root).to_owned();
            parts.schema(&root, &[]);
            return Ok(parts);
        }
        let wsdl = Wsdl::from_element(&root).map_err(|error| invalid(error.to_string()))?;
        parts.target_namespace = wsdl.target_namespace.to_string();
        parts.name.clone_from(&wsdl.name);
        let locations = wsdl
            .imports
            .iter()
            .filter_map(|import| import.location.clone());
        parts.imports.extend(locations);
        parts.messages(&wsdl)?;
        parts.operations(&wsdl)?;
        parts.endpoints(&wsdl, &root)?;
        parts.annotations(&root);
        for types in root.elements().filter(|child| is_wsdl(child, "types")) {
            for schema in types
                .elements()
                .filter(|child| child.name.is(SCHEMA, "schema"))
            {
                parts.schema(schema, &[&root, types]);
            }
        }
        Ok(parts)
    }

    fn need(&self, iri: Option<NamedNode>, part: &str, name: &str) -> Result<NamedNode, Error> {
        iri.ok_or_else(|| {
            let namespace: String = self.target_namespace.chars().take(80).collect();
            invalid(format!(
                "the {part} {name:?} has no IRI: its target namespace {namespace:?} is not an absolute IRI, \
                 or the name is not one of XML"
            ))
        })
    }

    fn say(&mut self, subject: &NamedNode, predicate: NamedNodeRef<'_>, object: impl Into<Term>) {
        let triple = Triple::new(subject.clone(), predicate.into_owned(), object.into());
        self.triples.push(triple);
    }

    fn text(&mut self, subject: &NamedNode, predicate: NamedNodeRef<'_>, text: &str) {
        self.say(subject, predicate, Literal::new_simple_literal(text));
    }

    /// A link to a part of any document.
    fn link(
        &mut self,
        subject: &NamedNode,
        predicate: NamedNodeRef<'_>,
        object: Option<NamedNode>,
    ) {
        if let Some(object) = object {
            self.say(subject, predicate, object);
        }
    }

    fn begin(&mut self, iri: &NamedNode, class: NamedNodeRef<'_>, name: &str) {
        self.say(iri, RDF_TYPE, class.into_owned());
        self.text(iri, v::NAME, name);
    }

    fn messages(&mut self, wsdl: &Wsdl) -> Result<(), Error> {
        for message in &wsdl.messages {
            let (space, local) = (&*message.name.namespace, &*message.name.local);
            let iri = self.need(id::message(space, local), "message", local)?;
            self.begin(&iri, v::MESSAGE_CLASS, local);
            for part in &message.parts {
                let part_iri = id::message_part(space, local, &part.name);
                let part_iri = self.need(part_iri, "part", &part.name)?;
                self.begin(&part_iri, v::PART_CLASS, &part.name);
                let element = part.element.as_ref();
                self.link(&part_iri, v::ELEMENT, element.and_then(element_iri));
                let type_name = part.type_name.as_ref();
                self.link(&part_iri, v::TYPE, type_name.and_then(type_iri));
                self.say(&iri, v::PART, part_iri);
            }
            self.defined.push(iri);
        }
        Ok(())
    }

    fn operations(&mut self, wsdl: &Wsdl) -> Result<(), Error> {
        for port_type in &wsdl.port_types {
            let (space, local) = (&*port_type.name.namespace, &*port_type.name.local);
            let iri = self.need(id::port_type(space, local), "portType", local)?;
            self.begin(&iri, v::PORT_TYPE_CLASS, local);
            for operation in &port_type.operations {
                let name = operation.name.as_str();
                let found = id::operation(space, local, name);
                let of = self.need(found, "operation", name)?;
                self.begin(&of, v::OPERATION_CLASS, name);
                let pattern = match operation.kind {
                    OperationKind::OneWay => "one-way",
                    OperationKind::RequestResponse => "request-response",
                    OperationKind::Notification => "notification",
                    OperationKind::SolicitResponse => "solicit-response",
                };
                self.text(&of, v::PATTERN, pattern);
                if let Some(message) = &operation.input {
                    self.exchange(&of, v::INPUT, id::input(space, local, name), message);
                }
                if let Some(message) = &operation.output {
                    self.exchange(&of, v::OUTPUT, id::output(space, local, name), message);
                }
                for message in &operation.faults {
                    let fault = message.name.as_deref().unwrap_or_default();
                    let fault = id::fault(space, local, name, fault);
                    self.exchange(&of, v::FAULT, fault, message);
                }
                self.say(&iri, v::OPERATION, of);
            }
            self.defined.push(iri.clone());
            let name = port_type.name.clone();
            self.port_types.push(PortType { iri, name });
        }
        Ok(())
    }

    /// An input, output or fault; a fault without a name has no IRI and is left out.
    fn exchange(
        &mut self,
        operation: &NamedNode,
        predicate: NamedNodeRef<'_>,
        iri: Option<NamedNode>,
        message: &OperationMessage,
    ) {
        let Some(iri) = iri else { return };
        let name = &message.message;
        self.link(&iri, v::MESSAGE, id::message(&name.namespace, &name.local));
        self.text(&iri, v::ACTION, &message.action);
        self.say(operation, predicate, iri);
    }

    fn endpoints(&mut self, wsdl: &Wsdl, root: &Element) -> Result<(), Error> {
        let elements = root.elements().filter(|child| is_wsdl(child, "binding"));
        for (binding, element) in wsdl.bindings.iter().zip(elements) {
            let (space, local) = (&*binding.name.namespace, &*binding.name.local);
            let iri = self.need(id::binding(space, local), "binding", local)?;
            self.begin(&iri, v::BINDING_CLASS, local);
            let (wire, is_over_http) = wire(binding.protocol, element);
            self.text(&iri, v::PROTOCOL, wire.as_str());
            let of = &binding.port_type;
            let port_type = id::port_type(&of.namespace, &of.local);
            self.link(&iri, v::PORT_TYPE, port_type.clone());
            self.defined.push(iri.clone());
            self.bindings.push(Binding {
                iri,
                name: binding.name.clone(),
                port_type,
                wire,
                is_over_http,
            });
        }
        let space = &*wsdl.target_namespace;
        for service in &wsdl.services {
            let iri = self.need(id::service(space, &service.name), "service", &service.name)?;
            self.begin(&iri, v::SERVICE_CLASS, &service.name);
            let mut ports = Vec::new();
            for port in &service.ports {
                let at = id::port(space, &service.name, &port.name);
                let at = self.need(at, "port", &port.name)?;
                self.begin(&at, v::PORT_CLASS, &port.name);
                let binding = id::binding(&port.binding.namespace, &port.binding.local);
                self.link(&at, v::BINDING, binding.clone());
                if let Some(address) = &port.address {
                    self.text(&at, v::ADDRESS, address);
                }
                self.say(&iri, v::PORT, at);
                ports.push(Port {
                    name: port.name.clone(),
                    binding,
                    address: port.address.clone(),
                });
            }
            self.defined.push(iri.clone());
            self.services.push(Service {
                iri,
                name: Name::inside(&wsdl.target_namespace, service.name.clone()),
                ports,
            });
        }
        Ok(())
    }

    /// What SAWSDL says of port types, operations and message parts.
    fn annotations(&mut self, root: &Element) {
        let space = self.target_namespace.clone();
        for element in root.elements() {
            let name = name_of(element);
            if is_wsdl(element, "portType") {
                self.meaning(id::port_type(&space, name), element);
                for child in element.elements().filter(|it| is_wsdl(it, "operation")) {
                    let of = id::operation(&space, name, name_of(child));
                    // An operation has no foreign attributes: SAWSDL 1.0, section 2.1.2.
                    let own = Name::new(SAWSDL, "attrExtensions");
                    let extensions = child.children_named(&own);
                    for element in extensions.chain(std::iter::once(child)) {
                        self.meaning(of.clone(), element);
                    }
                }
            } else if is_wsdl(element, "message") {
                for part in element.elements().filter(|it| is_wsdl(it, "part")) {
                    self.meaning(id::message_part(&space, name, name_of(part)), part);
                }
            }
        }
    }

    /// The elements and types of a schema, as far as they mean something.
    fn schema(&mut self, schema: &Element, ancestors: &[&Element]) {
        let space = target_namespace(schema).to_owned();
        let mut above = ancestors.to_vec();
        above.push(schema);
        for child in schema.elements().filter(|it| it.name.namespace == *SCHEMA) {
            let name = name_of(child);
            match &*child.name.local {
                "import" | "include" => {
                    let location = child.attribute(&Name::local("schemaLocation"));
                    self.imports.extend(location.map(|at| at.trim().to_owned()));
                }
                "element" => {
                    let iri = id::element(&space, name);
                    self.meaning(iri.clone(), child);
                    let of_type = child.attribute(&Name::local("type"));
                    let of_type = of_type.and_then(|name| child.resolve(&above, name.trim()));
                    let of_type = of_type.filter(|name| name.namespace != *SCHEMA);
                    if let (Some(iri), Some(name)) = (&iri, &of_type) {
                        self.link(iri, v::TYPE, type_iri(name));
                    }
                    // What the type inside says, it says of the element.
                    for inner in child.elements() {
                        self.meaning(iri.clone(), inner);
                    }
                }
                "complexType" | "simpleType" => {
                    self.meaning(id::type_definition(&space, name), child);
                }
                _ => {}
            }
        }
    }

    fn meaning(&mut self, iri: Option<NamedNode>, element: &Element) {
        let references = element.attribute(&Name::new(SAWSDL, "modelReference"));
        let (Some(iri), Some(references)) = (iri, references) else {
            return;
        };
        for reference in references.split_ascii_whitespace() {
            self.link(&iri, v::MODEL_REFERENCE, NamedNode::new(reference).ok());
        }
    }
}

fn target_namespace(element: &Element) -> &str {
    let namespace = element.attribute(&Name::local("targetNamespace"));
    namespace.unwrap_or_default().trim()
}

pub(crate) fn element_iri(name: &Name) -> Option<NamedNode> {
    id::element(&name.namespace, &name.local)
}

pub(crate) fn type_iri(name: &Name) -> Option<NamedNode> {
    id::type_definition(&name.namespace, &name.local)
}

/// How a binding sends messages, and whether over HTTP.
fn wire(protocol: Protocol, binding: &Element) -> (Wire, bool) {
    let mut extensions = binding.elements();
    let extension =
        extensions.find(|it| it.name.local == "binding" && it.name.namespace != *wsdl::NAMESPACE);
    let transport = extension.and_then(|it| it.attribute(&Name::local("transport")));
    // Devices that declare SOAP only in operations use HTTP.
    let is_over_http = transport.is_none_or(|uri| uri.trim() == wsdl::HTTP_TRANSPORT);
    match protocol {
        Protocol::Soap11 => (Wire::Soap11, is_over_http),
        Protocol::Soap12 => (Wire::Soap12, is_over_http),
        Protocol::Other if extension.is_some_and(|it| it.name.namespace == *HTTP) => {
            (Wire::Http, true)
        }
        Protocol::Other => (Wire::Other, false),
    }
}
