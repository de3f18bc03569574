//! Writing of WSDL documents.

use chappe_xml::{Element, Name};

use super::{
    ADDRESSING_METADATA, Binding, EVENTING, HTTP_TRANSPORT, NAMESPACE, Operation, OperationKind,
    OperationMessage, POLICY, PortType, Protocol, SOAP11, SOAP12, ServicePorts, Wsdl,
};

fn wsdl(local: &'static str) -> Element {
    Element::new(Name::new(NAMESPACE, local))
}

fn with(element: Element, name: &'static str, value: impl Into<String>) -> Element {
    element.with_attribute(Name::local(name), value.into())
}

/// Adds an attribute with a QName and declares its prefix.
fn with_qname(
    element: Element,
    attribute: &'static str,
    prefix: &'static str,
    name: &Name,
) -> Element {
    if name.namespace.is_empty() {
        return with(element, attribute, name.local.clone());
    }
    let element = element.with_namespace(prefix, name.namespace.clone());
    with(element, attribute, format!("{prefix}:{}", name.local))
}

impl Wsdl {
    /// The tree of the document, with SOAP bindings only.
    #[must_use]
    pub fn to_element(&self) -> Element {
        let mut root = wsdl("definitions")
            .with_namespace("wsdl", NAMESPACE)
            .with_namespace("soap12", SOAP12)
            .with_namespace("wsam", ADDRESSING_METADATA)
            .with_namespace("wse", EVENTING);
        if let Some(name) = &self.name {
            root = with(root, "name", name.clone());
        }
        root = with(root, "targetNamespace", &*self.target_namespace);
        root = root.with_children(self.imports.iter().map(|import| {
            let element = with(wsdl("import"), "namespace", import.namespace.clone());
            match &import.location {
                Some(location) => with(element, "location", location.clone()),
                None => element,
            }
        }));
        if !self.schemas.is_empty() {
            root = root.with_child(wsdl("types").with_children(self.schemas.iter().cloned()));
        }
        root.with_children(self.messages.iter().map(|message| {
            let parts = message.parts.iter().map(|part| {
                let mut element = with(wsdl("part"), "name", part.name.clone());
                if let Some(name) = &part.element {
                    element = with_qname(element, "element", "e", name);
                }
                if let Some(name) = &part.type_name {
                    element = with_qname(element, "type", "t", name);
                }
                element
            });
            with(wsdl("message"), "name", message.name.local.clone()).with_children(parts)
        }))
        .with_children(self.port_types.iter().map(port_type))
        .with_children(
            self.bindings
                .iter()
                .filter_map(|binding| self.binding_element(binding)),
        )
        .with_children(
            self.services
                .iter()
                .map(|service| self.service_element(service)),
        )
    }

    /// The document as text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let root = self.to_element().to_text();
        format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{root}")
    }

    fn binding_element(&self, binding: &Binding) -> Option<Element> {
        let namespace = soap_namespace(binding.protocol)?;
        let extension = |local| Element::new(Name::new(namespace, local));
        let element = with(wsdl("binding"), "name", binding.name.local.clone());
        let element = with_qname(element, "type", "tns", &binding.port_type);
        let style = with(extension("binding"), "style", "document");
        let element = element.with_child(with(style, "transport", HTTP_TRANSPORT));
        let port_types = self.port_types.iter();
        let mut port_types = port_types.filter(|known| known.name == binding.port_type);
        let bound_port_type = port_types.next();
        let operations = binding.operations.iter().map(|(name, action)| {
            let operation = extension("operation");
            let operation = with(
                with(operation, "soapAction", action.clone()),
                "style",
                "document",
            );
            let element = with(wsdl("operation"), "name", name.clone()).with_child(operation);
            let found = bound_port_type.and_then(|port_type| {
                port_type
                    .operations
                    .iter()
                    .find(|operation| operation.name == *name)
            });
            let body = |local| wsdl(local).with_child(with(extension("body"), "use", "literal"));
            let message_body = |local: &'static str, message: Option<&OperationMessage>| {
                message.map(|message| match &message.name {
                    Some(name) => with(body(local), "name", name.clone()),
                    None => body(local),
                })
            };
            let input = message_body(
                "input",
                found.and_then(|operation| operation.input.as_ref()),
            );
            let output = message_body(
                "output",
                found.and_then(|operation| operation.output.as_ref()),
            );
            let faults = found.into_iter().flat_map(|operation| &operation.faults);
            let faults = faults.filter_map(|fault| {
                let name = fault.name.clone()?;
                let literal = with(extension("fault"), "name", name.clone());
                let literal = with(literal, "use", "literal");
                Some(with(wsdl("fault"), "name", name).with_child(literal))
            });
            let element = element.with_children(input).with_children(output);
            element.with_children(faults)
        });
        Some(
            element
                .with_children(self.policy())
                .with_children(operations),
        )
    }

    /// The policy of each binding.
    fn policy(&self) -> Option<Element> {
        if self.assertions.is_empty() {
            return None;
        }
        let optional = Name::new(POLICY, "Optional");
        let assertions = self.assertions.iter().map(|name| {
            let assertion = Element::new(name.clone());
            assertion.with_attribute(optional.clone(), "true")
        });
        let policy = Element::new(Name::new(POLICY, "Policy")).with_namespace("wsp", POLICY);
        Some(policy.with_children(assertions))
    }

    fn service_element(&self, service: &ServicePorts) -> Element {
        let ports = service.ports.iter().map(|port| {
            let element = with(wsdl("port"), "name", port.name.clone());
            let element = with_qname(element, "binding", "tns", &port.binding);
            let binding = self
                .bindings
                .iter()
                .find(|known| known.name == port.binding);
            let namespace = binding
                .and_then(|binding| soap_namespace(binding.protocol))
                .unwrap_or(SOAP12);
            let address = Element::new(Name::new(namespace, "address"));
            let address = port
                .address
                .as_ref()
                .map(|at| with(address, "location", at.clone()));
            element.with_children(address)
        });
        with(wsdl("service"), "name", service.name.clone()).with_children(ports)
    }
}

fn soap_namespace(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::Soap12 => Some(SOAP12),
        Protocol::Soap11 => Some(SOAP11),
        Protocol::Other => None,
    }
}

fn port_type(port_type: &PortType) -> Element {
    let mut element = with(wsdl("portType"), "name", port_type.name.local.clone());
    if port_type.event_source {
        element = element.with_attribute(Name::new(EVENTING, "EventSource"), "true");
    }
    element.with_children(port_type.operations.iter().map(operation))
}

fn operation(operation: &Operation) -> Element {
    let documentation = operation.documentation.as_ref();
    let documentation = documentation.map(|text| wsdl("documentation").with_text(text.clone()));
    let message = |local, message: &OperationMessage| {
        let mut element = wsdl(local);
        if let Some(name) = &message.name {
            element = with(element, "name", name.clone());
        }
        let element = with_qname(element, "message", "tns", &message.message);
        element.with_attribute(
            Name::new(ADDRESSING_METADATA, "Action"),
            message.action.clone(),
        )
    };
    let input = operation
        .input
        .as_ref()
        .map(|input| message("input", input));
    let output = operation
        .output
        .as_ref()
        .map(|output| message("output", output));
    let (first, second) = match operation.kind {
        OperationKind::OneWay | OperationKind::RequestResponse => (input, output),
        OperationKind::Notification | OperationKind::SolicitResponse => (output, input),
    };
    with(wsdl("operation"), "name", operation.name.clone())
        .with_children(documentation)
        .with_children(first)
        .with_children(second)
        .with_children(operation.faults.iter().map(|fault| message("fault", fault)))
}
