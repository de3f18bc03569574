//! The IRIs that describe WSDL documents and their parts, documented in docs/reference/wsdl.md.
//!
//! Only documents make statements with these predicates: [`crate::Entity::validate`] refuses them in
//! other entities, so nobody adds an operation to the interface of another's document.

use oxrdf::NamedNodeRef;

/// Namespace of the terms.
pub const NAMESPACE: &str = "https://chappe.example/ns/wsdl#";

/// Type of the entity of a WSDL 1.1 document.
pub const DOCUMENT_TYPE: &str = "{https://chappe.example/ns/wsdl#}Definitions";
/// Type of the entity of an XML schema.
pub const SCHEMA_TYPE: &str = "{https://chappe.example/ns/wsdl#}Schema";

/// SAWSDL's link from a part to what it means, in the ontology of its author.
pub const MODEL_REFERENCE: NamedNodeRef<'static> =
    NamedNodeRef::new_unchecked("http://www.w3.org/ns/sawsdl#modelReference");

macro_rules! own {
    ($($(#[$doc:meta])* $name:ident = $local:literal;)*) => {
        $($(#[$doc])* pub const $name: NamedNodeRef<'static> =
            NamedNodeRef::new_unchecked(concat!("https://chappe.example/ns/wsdl#", $local));)*
    };
}

own! {
    /// Class of services.
    SERVICE_CLASS = "Service";
    /// Class of ports.
    PORT_CLASS = "Port";
    /// Class of bindings.
    BINDING_CLASS = "Binding";
    /// Class of port types.
    PORT_TYPE_CLASS = "PortType";
    /// Class of operations.
    OPERATION_CLASS = "Operation";
    /// Class of messages.
    MESSAGE_CLASS = "Message";
    /// Class of message parts.
    PART_CLASS = "MessagePart";
    /// The target namespace of a document.
    TARGET_NAMESPACE = "targetNamespace";
    /// The URL of a document, if it is known.
    LOCATION = "location";
    /// The media type of a document.
    MEDIA_TYPE = "mediaType";
    /// The size of a document in bytes.
    SIZE = "size";
    /// A part of the bytes of a document: its number, a colon, and base64 of DEFLATE.
    CONTENT = "content";
    /// A document that a document imports.
    IMPORTS = "imports";
    /// The businessService of a device's service that offers a document.
    OFFERED_BY = "offeredBy";
    /// A service, binding, port type or message of a document.
    DEFINES = "defines";
    /// The local name of a part.
    NAME = "name";
    /// A port of a service.
    PORT = "port";
    /// The binding of a port.
    BINDING = "binding";
    /// The address of a port.
    ADDRESS = "address";
    /// The port type of a binding.
    PORT_TYPE = "portType";
    /// The protocol of a binding: `SOAP 1.1`, `SOAP 1.2`, `HTTP` or `other`.
    PROTOCOL = "protocol";
    /// An operation of a port type.
    OPERATION = "operation";
    /// The kind of an operation: `one-way`, `request-response`, `notification` or `solicit-response`.
    PATTERN = "pattern";
    /// The input of an operation.
    INPUT = "input";
    /// The output of an operation.
    OUTPUT = "output";
    /// A fault of an operation.
    FAULT = "fault";
    /// The message of an input, output or fault.
    MESSAGE = "message";
    /// The WS-Addressing action of an input, output or fault.
    ACTION = "action";
    /// A part of a message.
    PART = "part";
    /// The element of a message part.
    ELEMENT = "element";
    /// The type of a message part or of an element.
    TYPE = "type";
    /// The tModel of a port type or binding.
    TMODEL = "tModel";
    /// The businessService of a service.
    BUSINESS_SERVICE = "businessService";
}
