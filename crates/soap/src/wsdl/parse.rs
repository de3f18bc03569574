//! Parsing of WSDL documents.

use chappe_xml::{Element, Name, Namespace};

use super::{
    ADDRESSING_METADATA, Binding, EVENTING, Import, Message, NAMESPACE, Operation, OperationKind,
    OperationMessage, POLICY, POLICY_2004, Part, Port, PortType, Protocol, SOAP11, SOAP12,
    ServicePorts, Wsdl, default_action,
};
use crate::scope::Scoped;

/// The namespaces of the attribute `Action`, the newest first.
const ACTIONS: [&str; 4] = [
    ADDRESSING_METADATA,
    "http://www.w3.org/2006/05/addressing/wsdl",
    "http://www.w3.org/2005/08/addressing",
    "http://schemas.xmlsoap.org/ws/2004/08/addressing",
];
/// Components of a document, including imported ones. Default 5,000: an SDC provider has about 200,
/// and a device with 1,000 events has 4,000 (message, part, operation and bound operation of each).
pub(super) const COMPONENTS_MAX: usize = 5_000;
/// Schemas in a document, each with a copy of the declarations in scope. Default 64: an SDC
/// provider has 8.
const SCHEMAS_MAX: usize = 64;
/// Bytes of a target namespace, which is part of all names and many actions. Default 1,024, as in
/// the XML reader.
const NAMESPACE_BYTES_MAX: usize = 1_024;
/// Bytes of the name of a component, which is part of many actions. Default 256.
const NAME_BYTES_MAX: usize = 256;

/// A WSDL document is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WsdlError {
    /// Not XML, or above a limit.
    #[error(transparent)]
    Xml(#[from] chappe_xml::Error),
    /// The root element is not WSDL.
    #[error("{0} is not a WSDL 1.1 document")]
    NotWsdl(Name),
    /// A component is incomplete.
    #[error("{component} {name:?} has no valid {what}")]
    Incomplete {
        /// The component's element.
        component: String,
        /// Its name, if any.
        name: String,
        /// The missing or undeclared part.
        what: &'static str,
    },
    /// Too many components.
    #[error("the document has more than {COMPONENTS_MAX} components, or {SCHEMAS_MAX} schemas")]
    TooMany,
    /// A target namespace or component name exceeds the limit.
    #[error("a name has {bytes} bytes (limit {limit})")]
    LongName {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Policy assertions of one document. Default 64: a device has one to three.
const ASSERTIONS_MAX: usize = 64;
/// Nesting of policy operators. Default 8: the normal form has 2.
const POLICY_DEPTH_MAX: usize = 8;

fn is_wsdl(element: &Element, local: &str) -> bool {
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
    let name = name.ok_or_else(|| incomplete(scope, "name"))?;
    check_length(name, NAME_BYTES_MAX).map(str::to_owned)
}

fn check_length(name: &str, limit: usize) -> Result<&str, WsdlError> {
    let bytes = name.len();
    match bytes <= limit {
        true => Ok(name),
        false => Err(WsdlError::LongName { bytes, limit }),
    }
}

fn qname(scope: &Scoped<'_>, attribute: &'static str) -> Result<Name, WsdlError> {
    scope
        .qname(attribute)
        .ok_or_else(|| incomplete(scope, attribute))
}

impl Wsdl {
    /// Parses a document.
    ///
    /// # Errors
    /// [`WsdlError`] if it is malformed, above a limit or not WSDL 1.1.
    pub fn parse(document: &[u8]) -> Result<Self, WsdlError> {
        Self::from_element(&Element::parse(document)?)
    }

    /// Converts the tree of a document.
    ///
    /// # Errors
    /// [`WsdlError`] if it is not WSDL 1.1, or a component is incomplete.
    pub fn from_element(root: &Element) -> Result<Self, WsdlError> {
        if !is_wsdl(root, "definitions") {
            return Err(WsdlError::NotWsdl(root.name.clone()));
        }
        let components = root.elements().flat_map(Element::elements).count();
        if components + root.elements().count() > COMPONENTS_MAX {
            return Err(WsdlError::TooMany);
        }
        let scope = Scoped::root(root);
        let target_namespace = scope.attribute("targetNamespace").unwrap_or_default();
        let target_namespace = check_length(target_namespace, NAMESPACE_BYTES_MAX)?;
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
        wsdl.assertions = assertions(root);
        wsdl.apply_soap_actions();
        Ok(wsdl)
    }

    fn name_in_target(&self, local: String) -> Name {
        Name::inside(&self.target_namespace, local)
    }

    fn message(&self, scope: &Scoped<'_>) -> Result<Message, WsdlError> {
        let parts = scope
            .element
            .elements()
            .filter(|child| is_wsdl(child, "part"));
        let parts = parts.map(|part| {
            let inner = scope.child(part);
            Ok(Part {
                name: name(&inner)?,
                element: inner.qname("element"),
                type_name: inner.qname("type"),
            })
        });
        Ok(Message {
            name: self.name_in_target(name(scope)?),
            parts: parts.collect::<Result<_, WsdlError>>()?,
        })
    }

    fn port_type(&self, scope: &Scoped<'_>) -> Result<PortType, WsdlError> {
        let local = name(scope)?;
        let event_source = scope.element.attribute(&Name::new(EVENTING, "EventSource"));
        let operations = scope
            .element
            .elements()
            .filter(|child| is_wsdl(child, "operation"));
        let operations = operations.map(|child| self.operation(&local, &scope.child(child)));
        Ok(PortType {
            operations: operations.collect::<Result<_, _>>()?,
            event_source: matches!(event_source.map(str::trim), Some("true" | "1")),
            name: self.name_in_target(local),
        })
    }

    fn operation(&self, port_type: &str, scope: &Scoped<'_>) -> Result<Operation, WsdlError> {
        let operation = name(scope)?;
        let children = || scope.element.elements();
        let first = children().find(|child| is_wsdl(child, "input") || is_wsdl(child, "output"));
        let has = |local| children().any(|child| is_wsdl(child, local));
        let kind = match (has("input"), has("output")) {
            (true, false) => OperationKind::OneWay,
            (false, true) => OperationKind::Notification,
            (true, true) if first.is_some_and(|child| is_wsdl(child, "input")) => {
                OperationKind::RequestResponse
            }
            (true, true) => OperationKind::SolicitResponse,
            (false, false) => return Err(incomplete(scope, "input or output")),
        };
        let message = |child: &Element| {
            let inner = scope.child(child);
            let explicit_action = ACTIONS
                .iter()
                .find_map(|namespace| child.attribute(&Name::new(namespace, "Action")))
                .map(str::trim)
                .filter(|action| !action.is_empty());
            let name = inner.attribute("name");
            let name = name
                .map(|name| check_length(name, NAME_BYTES_MAX))
                .transpose()?;
            let action = explicit_action.map_or_else(
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
                has_explicit_action: explicit_action.is_some(),
            })
        };
        let optional_message = |local| {
            children()
                .find(|child| is_wsdl(child, local))
                .map(message)
                .transpose()
        };
        let documentation = children().find(|child| is_wsdl(child, "documentation"));
        Ok(Operation {
            kind,
            input: optional_message("input")?,
            output: optional_message("output")?,
            faults: children()
                .filter(|child| is_wsdl(child, "fault"))
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
        // Some devices omit the binding's extension and declare SOAP only in operations.
        let operations = || {
            scope
                .element
                .elements()
                .filter(|child| is_wsdl(child, "operation"))
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
            name: self.name_in_target(name(scope)?),
            port_type: qname(scope, "type")?,
            protocol: protocol.unwrap_or(Protocol::Other),
            operations: operations.collect::<Result<_, WsdlError>>()?,
        })
    }
}

/// The assertions of policies in the document: of port types and bindings, or referenced by them.
fn assertions(root: &Element) -> Vec<Name> {
    let mut found = Vec::new();
    let inner = root.elements().flat_map(Element::elements);
    for policy in root.elements().chain(inner) {
        if is_policy(policy, &["Policy"]) {
            add_assertions(policy, &mut found, 0);
        }
    }
    found
}

/// Adds the assertions of a policy, without regard to their alternatives.
fn add_assertions(policy: &Element, found: &mut Vec<Name>, depth: usize) {
    for child in policy.elements() {
        if found.len() == ASSERTIONS_MAX {
            return;
        }
        match is_policy(child, &["Policy", "All", "ExactlyOne"]) {
            true if depth < POLICY_DEPTH_MAX => add_assertions(child, found, depth + 1),
            true => {}
            false if found.contains(&child.name) => {}
            false => found.push(child.name.clone()),
        }
    }
}

fn is_policy(element: &Element, locals: &[&str]) -> bool {
    matches!(&*element.name.namespace, POLICY | POLICY_2004)
        && locals.contains(&&*element.name.local)
}

/// The last segment of the default action.
fn default_name(
    operation: &str,
    kind: OperationKind,
    element: &Element,
    name: Option<&str>,
) -> String {
    if is_wsdl(element, "fault") {
        return format!("{operation}/Fault/{}", name.unwrap_or_default());
    }
    if let Some(name) = name {
        return name.to_owned();
    }
    match kind {
        OperationKind::OneWay | OperationKind::Notification => operation.to_owned(),
        OperationKind::RequestResponse if is_wsdl(element, "input") => {
            format!("{operation}Request")
        }
        OperationKind::SolicitResponse if is_wsdl(element, "output") => {
            format!("{operation}Solicit")
        }
        OperationKind::RequestResponse | OperationKind::SolicitResponse => {
            format!("{operation}Response")
        }
    }
}

fn service(scope: &Scoped<'_>) -> Result<ServicePorts, WsdlError> {
    let ports = scope
        .element
        .elements()
        .filter(|child| is_wsdl(child, "port"));
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
