//! IRIs of the parts of a document.
//!
//! Source: "WSDL 1.1 Element Identifiers" (W3C note, 20 July 2007). It names no schema components;
//! those of elements and types are this registry's own.

use oxrdf::NamedNode;

/// An IRI in a target namespace, such as `urn:x#wsdl11.portType(Clock)`; `None` if the namespace is
/// not an absolute IRI, or a name is none.
fn within(namespace: &str, function: &str, names: &[&str]) -> Option<NamedNode> {
    let is_name = |name: &&str| {
        let is_other = |c: char| matches!(c, '/' | '(' | ')' | '#' | ':') || c.is_whitespace();
        !name.is_empty() && !name.contains(is_other)
    };
    if namespace.is_empty() || !names.iter().all(|name| is_name(name)) {
        return None;
    }
    let hash = if namespace.ends_with('#') { "" } else { "#" };
    let path = names.join("/");
    NamedNode::new(format!("{namespace}{hash}{function}({path})")).ok()
}

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident($($part:ident),+) = $function:literal;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(namespace: &str, $($part: &str),+) -> Option<NamedNode> {
            within(namespace, $function, &[$($part),+])
        }
    )*};
}

identifiers! {
    /// The IRI of a service.
    service(service) = "wsdl11.service";
    /// The IRI of a port.
    port(service, port) = "wsdl11.port";
    /// The IRI of a binding.
    binding(binding) = "wsdl11.binding";
    /// The IRI of a port type.
    port_type(port_type) = "wsdl11.portType";
    /// The IRI of an operation.
    operation(port_type, operation) = "wsdl11.portTypeOperation";
    /// The IRI of an operation's input.
    input(port_type, operation) = "wsdl11.portTypeOperation.input";
    /// The IRI of an operation's output.
    output(port_type, operation) = "wsdl11.portTypeOperation.output";
    /// The IRI of an operation's fault.
    fault(port_type, operation, fault) = "wsdl11.portTypeOperation.fault";
    /// The IRI of a message.
    message(message) = "wsdl11.message";
    /// The IRI of a message part.
    message_part(message, part) = "wsdl11.messagePart";
    /// The IRI of a global element (our own form).
    element(element) = "element";
    /// The IRI of a global type (our own form).
    type_definition(definition) = "type";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_the_note() {
        let text = |iri: Option<NamedNode>| iri.map(NamedNode::into_string);
        let x = "http://example.org/ticket";
        for (iri, expected) in [
            (
                operation(x, "Agent", "list"),
                "wsdl11.portTypeOperation(Agent/list)",
            ),
            (
                fault(x, "Agent", "list", "bad"),
                "wsdl11.portTypeOperation.fault(Agent/list/bad)",
            ),
            (
                input(x, "Agent", "list"),
                "wsdl11.portTypeOperation.input(Agent/list)",
            ),
            (message_part(x, "In", "body"), "wsdl11.messagePart(In/body)"),
            (service(x, "Tickets"), "wsdl11.service(Tickets)"),
        ] {
            assert_eq!(text(iri), Some(format!("{x}#{expected}")));
        }
        let urn = text(port_type("urn:x#", "Clock"));
        assert_eq!(urn.as_deref(), Some("urn:x#wsdl11.portType(Clock)"));
    }

    #[test]
    fn what_is_no_iri_has_no_identifier() {
        for (namespace, name) in [
            ("", "a"),
            ("relative", "a"),
            ("urn:x", ""),
            ("urn:x", "a/b"),
            ("urn:x", "a b"),
        ] {
            assert_eq!(port_type(namespace, name), None, "{namespace} {name}");
        }
    }
}
