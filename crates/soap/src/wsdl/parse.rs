//! Reading WSDL documents.

use chappe_xml::{Element, Name, Namespace};

use super::{
    ADDRESSING_METADATA, Binding, EVENTING, Import, Message, NAMESPACE, Operation, OperationKind,
    OperationMessage, Part, Port, PortType, Protocol, SOAP11, SOAP12, ServicePorts, Wsdl,
    default_action,
};
use crate::scope::Scoped;

/// The namespaces in which an attribute `Action` says the action, the newest first.
const ACTIONS: [&str; 4] = [
    ADDRESSING_METADATA,
    "http://www.w3.org/2006/05/addressing/wsdl",
    "http://www.w3.org/2005/08/addressing",
    "http://schemas.xmlsoap.org/ws/2004/08/addressing",
];
/// Components of a document with those that it imports. Default 5,000: an SDC provider has about 200, and
/// a device of 1,000 events, each a message with its part and an operation of port type and binding, 4,000.
pub(super) const COMPONENTS_MAX: usize = 5_000;
/// Schemas in a document, each of which gets a copy of the declarations around it. Default 64: an SDC
/// provider has 8.
const SCHEMAS_MAX: usize = 64;
/// Bytes of a target namespace, which is in all names and in many actions. Default 1,024, as the XML
/// reader has it.
const NAMESPACE_BYTES_MAX: usize = 1_024;
/// Bytes of the name of a component, which is part of many actions. Default 256.
const NAME_BYTES_MAX: usize = 256;

/// A document that is no usable WSDL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WsdlError {
    /// Not XML, or beyond a limit.
    #[error(transparent)]
    Xml(#[from] chappe_xml::Error),
    /// The root element is another.
    #[error("{0} is no WSDL 1.1 document")]
    NotWsdl(Name),
    /// A component lacks something.
    #[error("{component} {name:?} lacks {what}")]
    Incomplete {
        /// The component's element.
        component: String,
        /// Its name, if any.
        name: String,
        /// What is missing, or names what is not declared.
        what: &'static str,
    },
    /// More components than the limit.
    #[error("the document has more than {COMPONENTS_MAX} components, or {SCHEMAS_MAX} schemas")]
    TooMany,
    /// A target namespace or a name of a component beyond the limit.
    #[error("a name has {bytes} bytes, the limit is {bound}")]
    LongName {
        /// Its length.
        bytes: usize,
        /// The most it may have.
        bound: usize,
    },
}

fn is(element: &Element, local: &str) -> bool {
    element.name.is(NAMESPACE, local)
}

fn incomplete(scope: &Scoped<'_>, what: &'static str) -> WsdlError {
    WsdlError::Incomplete {
        component: scope.element.name.local.clone().into_owned(),
        name: scope.attribute("name").unwrap_or_default().to_owned(),
        what,
    }
}

fn name(scope: &Scoped<'_>) -> Result<String, WsdlError> {
    let name = scope.attribute("name").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| incomplete(scope, "a name"))?;
    short(name, NAME_BYTES_MAX).map(str::to_owned)
}

fn short(name: &str, bound: usize) -> Result<&str, WsdlError> {
    let bytes = name.len();
    match bytes <= bound {
        true => Ok(name),
        false => Err(WsdlError::LongName { bytes, bound }),
    }
}

fn qname(scope: &Scoped<'_>, attribute: &'static str) -> Result<Name, WsdlError> {
    scope
        .qname(attribute)
        .ok_or_else(|| incomplete(scope, attribute))
}

impl Wsdl {
    /// Parses a text document.
    ///
    /// # Errors
    /// When it is malformed, beyond a limit, or no WSDL 1.1.
    pub fn parse(document: &[u8]) -> Result<Self, WsdlError> {
        Self::from_element(&Element::parse(document)?)
    }

    /// Reads the tree of a document.
    ///
    /// # Errors
    /// When it is no WSDL 1.1, or a component lacks what it needs.
    pub fn from_element(root: &Element) -> Result<Self, WsdlError> {
        if !is(root, "definitions") {
            return Err(WsdlError::NotWsdl(root.name.clone()));
        }
        let components = root.elements().flat_map(Element::elements).count();
        if components + root.elements().count() > COMPONENTS_MAX {
            return Err(WsdlError::TooMany);
        }
        let scope = Scoped::root(root);
        let target_namespace = scope.attribute("targetNamespace").unwrap_or_default();
        let target_namespace = short(target_namespace, NAMESPACE_BYTES_MAX)?;
        let mut wsdl = Self {
            name: scope.attribute("name").map(str::to_owned),
            target_namespace: Namespace::from(target_namespace.to_owned()),
            ..Self::default()
        };
        for child in root.elements() {
            let inner = scope.child(child);
            match &*child.name.local {
                _ if child.name.namespace != NAMESPACE => {}
                "import" => wsdl.imports.push(Import {
                    namespace: inner.attribute("namespace").unwrap_or_default().to_owned(),
                    location: inner.attribute("location").map(str::to_owned),
                }),
                "types" => {
                    let schema = Name::new(crate::schema::NAMESPACE, "schema");
                    for schema in child.children_named(&schema) {
                        if wsdl.schemas.len() == SCHEMAS_MAX {
                            return Err(WsdlError::TooMany);
                        }
                        wsdl.schemas.push(inner.child(schema).detached());
                    }
                }
                "message" => wsdl.messages.push(wsdl.message(&inner)?),
                "portType" => wsdl.port_types.push(wsdl.port_type(&inner)?),
                "binding" => wsdl.bindings.push(wsdl.binding(&inner)?),
                "service" => wsdl.services.push(service(&inner)?),
                _ => {}
            }
        }
        wsdl.take_soap_actions();
        Ok(wsdl)
    }

    fn own(&self, local: String) -> Name {
        Name::inside(&self.target_namespace, local)
    }

    fn message(&self, scope: &Scoped<'_>) -> Result<Message, WsdlError> {
        let parts = scope.element.elements().filter(|child| is(child, "part"));
        let parts = parts.map(|part| {
            let inner = scope.child(part);
            Ok(Part {
                name: name(&inner)?,
                element: inner.qname("element"),
                type_name: inner.qname("type"),
            })
        });
        Ok(Message {
            name: self.own(name(scope)?),
            parts: parts.collect::<Result<_, WsdlError>>()?,
        })
    }

    fn port_type(&self, scope: &Scoped<'_>) -> Result<PortType, WsdlError> {
        let local = name(scope)?;
        let event_source = scope.element.attribute(&Name::new(EVENTING, "EventSource"));
        let operations = scope
            .element
            .elements()
            .filter(|child| is(child, "operation"));
        let operations = operations.map(|child| self.operation(&local, &scope.child(child)));
        Ok(PortType {
            operations: operations.collect::<Result<_, _>>()?,
            event_source: matches!(event_source.map(str::trim), Some("true" | "1")),
            name: self.own(local),
        })
    }

    fn operation(&self, port_type: &str, scope: &Scoped<'_>) -> Result<Operation, WsdlError> {
        let operation = name(scope)?;
        let children = || scope.element.elements();
        let first = children().find(|child| is(child, "input") || is(child, "output"));
        let has = |local| children().any(|child| is(child, local));
        let kind = match (has("input"), has("output")) {
            (true, false) => OperationKind::OneWay,
            (false, true) => OperationKind::Notification,
            (true, true) if first.is_some_and(|child| is(child, "input")) => {
                OperationKind::RequestResponse
            }
            (true, true) => OperationKind::SolicitResponse,
            (false, false) => return Err(incomplete(scope, "an input or an output")),
        };
        let message = |child: &Element| {
            let inner = scope.child(child);
            let given = ACTIONS
                .iter()
                .find_map(|namespace| child.attribute(&Name::new(namespace, "Action")))
                .map(str::trim)
                .filter(|action| !action.is_empty());
            let name = inner.attribute("name");
            let name = name.map(|name| short(name, NAME_BYTES_MAX)).transpose()?;
            let action = given.map_or_else(
                || {
                    let last = default_name(&operation, kind, child, name);
                    default_action(&self.target_namespace, port_type, &last)
                },
                str::to_owned,
            );
            Ok::<_, WsdlError>(OperationMessage {
                message: qname(&inner, "message")?,
                name: name.map(str::to_owned),
                action,
                has_explicit_action: given.is_some(),
            })
        };
        let one = |local| {
            children()
                .find(|child| is(child, local))
                .map(message)
                .transpose()
        };
        let documentation = children().find(|child| is(child, "documentation"));
        Ok(Operation {
            kind,
            input: one("input")?,
            output: one("output")?,
            faults: children()
                .filter(|child| is(child, "fault"))
                .map(message)
                .collect::<Result<_, _>>()?,
            documentation: documentation.map(|text| text.text().trim().to_owned()),
            name: operation,
        })
    }

    fn binding(&self, scope: &Scoped<'_>) -> Result<Binding, WsdlError> {
        let protocol = |element: &Element| match &*element.name.namespace {
            SOAP12 => Some(Protocol::Soap12),
            SOAP11 => Some(Protocol::Soap11),
            _ => None,
        };
        let extension = scope
            .element
            .elements()
            .find(|child| child.name.local == "binding");
        // Some devices leave the binding's own extension out and say SOAP only of operations.
        let operations = || {
            scope
                .element
                .elements()
                .filter(|child| is(child, "operation"))
        };
        let protocol = extension
            .and_then(protocol)
            .or_else(|| operations().flat_map(Element::elements).find_map(protocol));
        let operations = operations().map(|child| {
            let inner = scope.child(child);
            let extension = child
                .elements()
                .find(|known| known.name.local == "operation");
            let action = extension.and_then(|known| known.attribute(&Name::local("soapAction")));
            let action = action.unwrap_or_default().trim();
            Ok((name(&inner)?, action.to_owned()))
        });
        Ok(Binding {
            name: self.own(name(scope)?),
            port_type: qname(scope, "type")?,
            protocol: protocol.unwrap_or(Protocol::Other),
            operations: operations.collect::<Result<_, WsdlError>>()?,
        })
    }
}

/// The last part of the default action.
fn default_name(
    operation: &str,
    kind: OperationKind,
    element: &Element,
    name: Option<&str>,
) -> String {
    if is(element, "fault") {
        return format!("{operation}/Fault/{}", name.unwrap_or_default());
    }
    if let Some(name) = name {
        return name.to_owned();
    }
    match kind {
        OperationKind::OneWay | OperationKind::Notification => operation.to_owned(),
        OperationKind::RequestResponse if is(element, "input") => format!("{operation}Request"),
        OperationKind::SolicitResponse if is(element, "output") => format!("{operation}Solicit"),
        OperationKind::RequestResponse | OperationKind::SolicitResponse => {
            format!("{operation}Response")
        }
    }
}

fn service(scope: &Scoped<'_>) -> Result<ServicePorts, WsdlError> {
    let ports = scope.element.elements().filter(|child| is(child, "port"));
    let ports = ports.map(|child| {
        let inner = scope.child(child);
        let address = child.elements().find(|known| known.name.local == "address");
        let address = address.and_then(|known| known.attribute(&Name::local("location")));
        Ok(Port {
            name: name(&inner)?,
            binding: qname(&inner, "binding")?,
            address: address.map(str::to_owned),
        })
    });
    Ok(ServicePorts {
        name: name(scope)?,
        ports: ports.collect::<Result<_, WsdlError>>()?,
    })
}
