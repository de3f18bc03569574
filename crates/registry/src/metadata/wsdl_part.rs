//! IRIs of the parts of a WSDL 1.1 document.
//!
//! Source: W3C Note "WSDL 1.1 Element Identifiers", 20 July 2007: the target namespace, `#` and a
//! pointer such as `wsdl11.portTypeOperation(portType/operation)`.

/// The start of every pointer.
const POINTER: &str = "#wsdl11.";

/// A part of a WSDL document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WsdlPart {
    /// A port type, the interface.
    PortType {
        /// Target namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An operation of a port type.
    Operation {
        /// Target namespace.
        namespace: String,
        /// The name of the port type.
        port_type: String,
        /// The name of the operation.
        name: String,
    },
    /// A part of a message.
    MessagePart {
        /// Target namespace.
        namespace: String,
        /// The name of the message.
        message: String,
        /// The name of the part.
        name: String,
    },
}

impl WsdlPart {
    /// Its IRI. A `#` at the end of the namespace is the one before the pointer.
    #[must_use]
    pub fn iri(&self) -> String {
        let of = |namespace: &str, pointer: String| {
            let namespace = namespace.strip_suffix('#').unwrap_or(namespace);
            format!("{namespace}{POINTER}{pointer}")
        };
        match self {
            Self::PortType { namespace, name } => of(namespace, format!("portType({name})")),
            Self::Operation {
                namespace,
                port_type,
                name,
            } => of(namespace, format!("portTypeOperation({port_type}/{name})")),
            Self::MessagePart {
                namespace,
                message,
                name,
            } => of(namespace, format!("messagePart({message}/{name})")),
        }
    }

    /// The part with this IRI; `None` for other IRIs, and for parts of other kinds.
    #[must_use]
    pub fn parse(iri: &str) -> Option<Self> {
        let (namespace, pointer) = iri.split_once(POINTER)?;
        let (kind, names) = pointer.strip_suffix(')')?.split_once('(')?;
        let namespace = namespace.to_owned();
        let is_name = |name: &str| !name.is_empty() && !name.contains(['(', ')', '/', '#']);
        let names: Vec<String> = names.split('/').map(str::to_owned).collect();
        if !names.iter().all(|name| is_name(name)) {
            return None;
        }
        let mut names = names.into_iter();
        let part = match (kind, names.next(), names.next(), names.next()) {
            ("portType", Some(name), None, None) => Self::PortType { namespace, name },
            ("portTypeOperation", Some(port_type), Some(name), None) => Self::Operation {
                namespace,
                port_type,
                name,
            },
            ("messagePart", Some(message), Some(name), None) => Self::MessagePart {
                namespace,
                message,
                name,
            },
            _ => return None,
        };
        Some(part)
    }

    /// The interface of an operation.
    #[must_use]
    pub fn interface(&self) -> Option<Self> {
        match self {
            Self::Operation {
                namespace,
                port_type,
                ..
            } => Some(Self::PortType {
                namespace: namespace.clone(),
                name: port_type.clone(),
            }),
            Self::PortType { .. } | Self::MessagePart { .. } => None,
        }
    }
}

/// The namespace and the local name of a message with this IRI.
pub(crate) fn message_name(iri: &str) -> Option<(&str, &str)> {
    let (namespace, pointer) = iri.split_once(POINTER)?;
    let name = pointer.strip_prefix("message(")?.strip_suffix(')')?;
    Some((namespace, name))
}

/// Whether an IRI is that of a part of a WSDL document, of any kind.
pub(crate) fn is_part(iri: &str) -> bool {
    iri.split_once(POINTER)
        .is_some_and(|(namespace, pointer)| !namespace.is_empty() && pointer.ends_with(')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_from_its_iri() {
        let namespace = "http://example.com/pulse".to_owned();
        let operation = WsdlPart::Operation {
            namespace: namespace.clone(),
            port_type: "Pulse".to_owned(),
            name: "measure".to_owned(),
        };
        let part = WsdlPart::MessagePart {
            namespace: namespace.clone(),
            message: "measured".to_owned(),
            name: "rate".to_owned(),
        };
        let interface = WsdlPart::PortType {
            namespace,
            name: "Pulse".to_owned(),
        };
        let iri = "http://example.com/pulse#wsdl11.portTypeOperation(Pulse/measure)";
        assert_eq!(operation.iri(), iri);
        assert_eq!(operation.interface(), Some(interface.clone()));
        for one in [operation, part, interface] {
            assert!(is_part(&one.iri()));
            assert_eq!(WsdlPart::parse(&one.iri()), Some(one));
        }
        let message = "http://example.com/pulse#wsdl11.message(measured)";
        assert_eq!(
            message_name(message),
            Some(("http://example.com/pulse", "measured"))
        );
        assert_eq!(message_name(iri), None);
        let binding = "http://example.com/pulse#wsdl11.binding(PulseSoap)";
        assert!(is_part(binding));
        for other in [
            binding,
            "urn:x",
            "urn:x#wsdl11.portType()",
            "urn:x#wsdl11.portType(a/b)",
            "urn:x#wsdl11.portTypeOperation(a)",
            "urn:x#wsdl11.messagePart(a/b",
        ] {
            assert_eq!(WsdlPart::parse(other), None, "{other}");
        }
    }
}
