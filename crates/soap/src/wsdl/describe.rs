//! A short description of a device's service.

use chappe_xml::{Element, Name};

use super::{
    Binding, Message, Operation, OperationKind, OperationMessage, Part, Port, PortType, Protocol,
    ServicePorts, Wsdl, default_action,
};

/// A service with one port type, in minimal form.
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
    /// The local name of the port type, which is the base of other names.
    pub name: String,
    /// Its operations and events.
    pub operations: Vec<ServiceOperation>,
    /// The schemas that declare the elements, see [`schema::to_schema`](crate::schema::to_schema).
    pub schemas: Vec<Element>,
    /// Its address, if fixed.
    pub address: Option<String>,
}

/// One operation or event of a [`Service`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceOperation {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: OperationKind,
    /// The element that the service receives.
    pub input: Option<Name>,
    /// The element that the service sends.
    pub output: Option<Name>,
    /// The action of the input, unless it is the default.
    pub input_action: Option<String>,
    /// The action of the output, unless it is the default.
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

    /// Creates an event with this element.
    #[must_use]
    pub fn event(name: &str, element: Name) -> Self {
        Self::new(name, OperationKind::Notification, None, Some(element))
    }

    /// Creates an operation without answer.
    #[must_use]
    pub fn one_way(name: &str, element: Name) -> Self {
        Self::new(name, OperationKind::OneWay, Some(element), None)
    }

    /// Creates an operation with request and response.
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
    /// The port type's name, which is a type of the hosted service.
    #[must_use]
    pub fn port_type(&self) -> Name {
        self.name_in_target(self.name.clone())
    }

    fn name_in_target(&self, local: String) -> Name {
        Name::owned(self.target_namespace.clone(), local)
    }

    /// The action of an operation's input; `None` without input.
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

    /// The action of an operation's output; `None` without output.
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
        let is_event = |operation: &&ServiceOperation| {
            matches!(
                operation.kind,
                OperationKind::Notification | OperationKind::SolicitResponse
            )
        };
        let events = self.operations.iter().filter(is_event);
        events
            .filter_map(|operation| self.output_action(operation))
            .collect()
    }

    /// The WSDL document: one message per element, one port type, one binding for SOAP 1.2 over
    /// HTTP and, with an address, one service.
    #[must_use]
    pub fn to_wsdl(&self) -> Wsdl {
        let mut messages = Vec::new();
        let mut operations = Vec::new();
        for service_operation in &self.operations {
            let mut message = |element: &Option<Name>, action: Option<String>, suffix: &str| {
                let (element, action) = element.clone().zip(action)?;
                let name = self.name_in_target(format!("{}{suffix}", service_operation.name));
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
                name: service_operation.name.clone(),
                kind: service_operation.kind,
                input: message(
                    &service_operation.input,
                    self.input_action(service_operation),
                    "In",
                ),
                output: message(
                    &service_operation.output,
                    self.output_action(service_operation),
                    "Out",
                ),
                faults: Vec::new(),
                documentation: None,
            });
        }
        let binding = self.name_in_target(format!("{}Binding", self.name));
        let port = |address: &String| ServicePorts {
            name: format!("{}Service", self.name),
            ports: vec![Port {
                name: format!("{}Port", self.name),
                binding: binding.clone(),
                address: Some(address.clone()),
            }],
        };
        let bound_operations = operations.iter().map(|operation| {
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
                operations: bound_operations.collect(),
            }],
            services: self.address.iter().map(port).collect(),
            assertions: Vec::new(),
            port_types: vec![PortType {
                name: self.port_type(),
                event_source: !self.events().is_empty(),
                operations,
            }],
        }
    }
}
