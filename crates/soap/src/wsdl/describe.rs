//! The short description that a device gives of a service.

use chappe_xml::{Element, Name};

use super::{
    Binding, Message, Operation, OperationKind, OperationMessage, Part, Port, PortType, Protocol,
    ServicePorts, Wsdl, default_action,
};

/// A service with one port type, described in as few words as it takes.
///
/// ```
/// use chappe_soap::wsdl::{Service, ServiceOperation, Wsdl};
/// use chappe_xml::Name;
/// let service = Service {
///     target_namespace: "http://x/thermometer".into(),
///     name: "Thermometer".into(),
///     operations: vec![ServiceOperation::event("Report", Name::new("http://x/types", "Report"))],
///     schemas: Vec::new(),
///     address: None,
/// };
/// let text = service.to_wsdl().to_element().to_text();
/// let read = Wsdl::parse(text.as_bytes())?;
/// assert_eq!(read.events().next().unwrap().0, "http://x/thermometer/Thermometer/Report");
/// # Ok::<(), chappe_soap::wsdl::WsdlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The namespace of the port type.
    pub target_namespace: String,
    /// The local name of the port type, from which the other names are made.
    pub name: String,
    /// What it can be asked, and its events.
    pub operations: Vec<ServiceOperation>,
    /// The schemas that declare the elements, see [`schema::to_schema`](crate::schema::to_schema).
    pub schemas: Vec<Element>,
    /// Where it is reached, if that is fixed.
    pub address: Option<String>,
}

/// One operation or event of a [`Service`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceOperation {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: OperationKind,
    /// What the service receives.
    pub input: Option<Name>,
    /// What the service sends.
    pub output: Option<Name>,
    /// The action of the input, where not the default one.
    pub input_action: Option<String>,
    /// The action of the output, where not the default one.
    pub output_action: Option<String>,
}

impl ServiceOperation {
    fn new(name: &str, kind: OperationKind, input: Option<Name>, output: Option<Name>) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            input,
            output,
            input_action: None,
            output_action: None,
        }
    }

    /// An event with this element.
    #[must_use]
    pub fn event(name: &str, element: Name) -> Self {
        Self::new(name, OperationKind::Notification, None, Some(element))
    }

    /// A message without answer.
    #[must_use]
    pub fn one_way(name: &str, element: Name) -> Self {
        Self::new(name, OperationKind::OneWay, Some(element), None)
    }

    /// A question with an answer.
    #[must_use]
    pub fn request(name: &str, input: Name, output: Name) -> Self {
        Self::new(
            name,
            OperationKind::RequestResponse,
            Some(input),
            Some(output),
        )
    }
}

impl Service {
    /// The name of the port type, which is a type of the hosted service.
    #[must_use]
    pub fn port_type(&self) -> Name {
        self.own(self.name.clone())
    }

    fn own(&self, local: String) -> Name {
        Name::owned(self.target_namespace.clone(), local)
    }

    /// The action of an operation's input; `None` when it has none.
    #[must_use]
    pub fn input_action(&self, operation: &ServiceOperation) -> Option<String> {
        operation.input.as_ref()?;
        let last = match operation.kind {
            OperationKind::RequestResponse => format!("{}Request", operation.name),
            OperationKind::SolicitResponse => format!("{}Response", operation.name),
            OperationKind::OneWay | OperationKind::Notification => operation.name.clone(),
        };
        let default = || default_action(&self.target_namespace, &self.name, &last);
        Some(operation.input_action.clone().unwrap_or_else(default))
    }

    /// The action of an operation's output; `None` when it has none.
    #[must_use]
    pub fn output_action(&self, operation: &ServiceOperation) -> Option<String> {
        operation.output.as_ref()?;
        let last = match operation.kind {
            OperationKind::RequestResponse => format!("{}Response", operation.name),
            OperationKind::SolicitResponse => format!("{}Solicit", operation.name),
            OperationKind::OneWay | OperationKind::Notification => operation.name.clone(),
        };
        let default = || default_action(&self.target_namespace, &self.name, &last);
        Some(operation.output_action.clone().unwrap_or_else(default))
    }

    /// The actions of its events.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        let sends = |operation: &&ServiceOperation| {
            matches!(
                operation.kind,
                OperationKind::Notification | OperationKind::SolicitResponse
            )
        };
        let events = self.operations.iter().filter(sends);
        events
            .filter_map(|operation| self.output_action(operation))
            .collect()
    }

    /// The document: one message for each element, one port type, one binding for SOAP 1.2 over
    /// HTTP and, when there is an address, one service.
    #[must_use]
    pub fn to_wsdl(&self) -> Wsdl {
        let mut messages = Vec::new();
        let mut operations = Vec::new();
        for described in &self.operations {
            let mut message = |element: &Option<Name>, action: Option<String>, suffix: &str| {
                let (element, action) = element.clone().zip(action)?;
                let name = self.own(format!("{}{suffix}", described.name));
                messages.push(Message {
                    name: name.clone(),
                    parts: vec![Part {
                        name: "parameters".into(),
                        element: Some(element),
                        type_name: None,
                    }],
                });
                Some(OperationMessage {
                    name: None,
                    message: name,
                    action,
                    has_explicit_action: true,
                })
            };
            operations.push(Operation {
                name: described.name.clone(),
                kind: described.kind,
                input: message(&described.input, self.input_action(described), "In"),
                output: message(&described.output, self.output_action(described), "Out"),
                faults: Vec::new(),
                documentation: None,
            });
        }
        let binding = self.own(format!("{}Binding", self.name));
        let port = |address: &String| ServicePorts {
            name: format!("{}Service", self.name),
            ports: vec![Port {
                name: format!("{}Port", self.name),
                binding: binding.clone(),
                address: Some(address.clone()),
            }],
        };
        let bound = operations.iter().map(|operation| {
            let first = operation.input.as_ref().or(operation.output.as_ref());
            let action = first.map(|message| message.action.clone());
            (operation.name.clone(), action.unwrap_or_default())
        });
        Wsdl {
            name: Some(self.name.clone()),
            target_namespace: self.target_namespace.clone().into(),
            imports: Vec::new(),
            schemas: self.schemas.clone(),
            messages,
            bindings: vec![Binding {
                name: binding.clone(),
                port_type: self.port_type(),
                protocol: Protocol::Soap12,
                operations: bound.collect(),
            }],
            services: self.address.iter().map(port).collect(),
            port_types: vec![PortType {
                name: self.port_type(),
                event_source: !self.events().is_empty(),
                operations,
            }],
        }
    }
}
