//! Requests, replies and faults of the profile, and their HTTP status codes.
//!
//! Sources: WS-Addressing 1.0 core, sections 3.3 and 3.4 (replies, reference parameters), and SOAP
//! binding, section 6 (faults); SOAP 1.2 part 2, section 7.5 (status codes); SOAP 1.2 over HTTP of
//! DPWS 1.1, section 2.

use std::sync::Arc;

use chappe_soap::{Addressing, AddressingVersion, EndpointReference, Envelope, Fault, FaultCode};
use chappe_xml::{Name, Str};

use crate::Dialect;
use crate::dialect::EVENTING;

/// The media type of SOAP 1.2 messages.
pub const SOAP_CONTENT_TYPE: &str = "application/soap+xml; charset=utf-8";
/// The media type of WSDL and schema documents.
pub const XML_CONTENT_TYPE: &str = "text/xml; charset=utf-8";

/// An HTTP reply, which the driver sends unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub content: Content,
}

/// The body of a [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// No body.
    Empty,
    /// A message.
    Envelope(Box<Envelope>),
    /// An XML document as text.
    Document(Arc<str>),
}

impl Reply {
    /// Accepted: the reply to one-way messages.
    pub const ACCEPTED: Self = Self::empty(202);
    /// The path does not exist.
    pub const NOT_FOUND: Self = Self::empty(404);
    /// The method is not supported.
    pub const METHOD_NOT_ALLOWED: Self = Self::empty(405);
    /// Overload.
    pub const UNAVAILABLE: Self = Self::empty(503);

    const fn empty(status: u16) -> Self {
        Self {
            status,
            content: Content::Empty,
        }
    }

    /// A reply with a message: status 200, for a fault 400 if the sender is at fault and 500
    /// otherwise.
    #[must_use]
    pub fn message(envelope: Envelope) -> Self {
        let status = match envelope.fault().map(|fault| fault.code) {
            None => 200,
            Some(FaultCode::Sender) => 400,
            Some(_) => 500,
        };
        Self {
            status,
            content: Content::Envelope(Box::new(envelope)),
        }
    }

    /// A reply with a document.
    #[must_use]
    pub const fn document(text: Arc<str>) -> Self {
        Self {
            status: 200,
            content: Content::Document(text),
        }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub const fn content_type(&self) -> Option<&'static str> {
        match self.content {
            Content::Empty => None,
            Content::Envelope(_) => Some(SOAP_CONTENT_TYPE),
            Content::Document(_) => Some(XML_CONTENT_TYPE),
        }
    }

    /// The message, if there is one.
    #[must_use]
    pub fn envelope(&self) -> Option<&Envelope> {
        match &self.content {
            Content::Envelope(envelope) => Some(envelope),
            Content::Empty | Content::Document(_) => None,
        }
    }

    /// The body as text; empty if there is none.
    #[must_use]
    pub fn to_text(&self) -> String {
        match &self.content {
            Content::Empty => String::new(),
            Content::Envelope(envelope) => envelope.to_text(),
            Content::Document(text) => text.to_string(),
        }
    }
}

/// Creates a message to an endpoint, with its reference parameters as headers. The answer is
/// expected on the same connection.
///
/// `message_id` is a unique URI.
#[must_use]
pub fn request(
    version: AddressingVersion,
    to: &EndpointReference,
    action: impl Into<Str>,
    message_id: impl Into<Str>,
) -> Envelope {
    let addressing = Addressing {
        to: Some(to.address.clone()),
        message_id: Some(message_id.into()),
        // WS-Addressing 2004/08 requires it in requests; it is the default of 2005/08.
        reply_to: (version == AddressingVersion::V200408)
            .then(|| EndpointReference::new(version.anonymous())),
        ..Addressing::new(version, action)
    };
    with_parameters(Envelope::new(addressing), to)
}

/// Adds the reference parameters of `to` to the headers.
fn with_parameters(mut envelope: Envelope, to: &EndpointReference) -> Envelope {
    let version = envelope.addressing.version;
    for parameter in &to.reference_parameters {
        let mut header = parameter.clone();
        if version == AddressingVersion::V200508 {
            let mark = version.name("IsReferenceParameter");
            header.attributes.retain(|(name, _)| *name != mark);
            header = header.with_attribute(mark, "true");
        }
        envelope.headers.push(header);
    }
    envelope
}

/// Creates the answer to `request`, without body.
#[must_use]
pub fn reply(request: &Envelope, action: impl Into<Str>, message_id: impl Into<Str>) -> Envelope {
    let addressing = Addressing {
        message_id: Some(message_id.into()),
        ..request.addressing.reply(action)
    };
    let envelope = Envelope::new(addressing);
    match &request.addressing.reply_to {
        Some(to) => with_parameters(envelope, to),
        None => envelope,
    }
}

/// Creates the answer to `request` with a fault.
#[must_use]
pub fn fault(request: &Envelope, fault: &Fault, message_id: impl Into<Str>) -> Envelope {
    let action = fault_action(request.addressing.version, fault);
    reply(request, action, message_id).with_body(fault.to_element())
}

/// Creates the fault for a body that is not a message.
#[must_use]
pub fn unreadable(error: &chappe_soap::Error, message_id: impl Into<Str>) -> Envelope {
    let code = match error {
        chappe_soap::Error::VersionMismatch => FaultCode::VersionMismatch,
        _ => FaultCode::Sender,
    };
    let subcode = match error {
        chappe_soap::Error::MissingHeader(_) => Some("MessageAddressingHeaderRequired"),
        chappe_soap::Error::DuplicateHeader(_) => Some("InvalidAddressingHeader"),
        _ => None,
    };
    let fault = Fault {
        code,
        subcode: subcode.map(|local| AddressingVersion::default().name(local)),
        reason: error.to_string().into(),
        detail: Vec::new(),
    };
    unrelated_fault(&fault, message_id)
}

/// Creates the fault for a message of which nothing may be used, so that it relates to none.
#[must_use]
pub fn unrelated_fault(fault: &Fault, message_id: impl Into<Str>) -> Envelope {
    let version = AddressingVersion::default();
    let addressing = Addressing {
        message_id: Some(message_id.into()),
        to: Some(version.anonymous().into()),
        ..Addressing::new(version, fault_action(version, fault))
    };
    Envelope::new(addressing).with_body(fault.to_element())
}

/// The action of a fault message, which the specification of its subcode defines.
#[must_use]
pub fn fault_action(version: AddressingVersion, fault: &Fault) -> Str {
    let dialect = dialect_of(version);
    let namespace = fault.subcode.as_ref().map(|subcode| &*subcode.namespace);
    match (namespace, version) {
        (Some(EVENTING), _) => format!("{EVENTING}/fault").into(),
        (Some(namespace), _) if namespace == version.namespace() => version.fault_action().into(),
        // Faults of SOAP itself (WS-Addressing 1.0 SOAP binding, section 6).
        (None, AddressingVersion::V200508) => {
            "http://www.w3.org/2005/08/addressing/soap/fault".into()
        }
        _ => dialect.dpws_fault_action(),
    }
}

/// The dialect with this version of WS-Addressing.
#[must_use]
pub const fn dialect_of(version: AddressingVersion) -> Dialect {
    match version {
        AddressingVersion::V200408 => Dialect::V2005,
        AddressingVersion::V200508 => Dialect::V2009,
    }
}

/// `wsa:ActionNotSupported` (WS-Addressing 1.0 SOAP binding, section 6.4.2).
#[must_use]
pub fn action_not_supported(version: AddressingVersion, action: &str) -> Fault {
    let reason = format!("this endpoint does not support the action {action}");
    Fault::sender(version.name("ActionNotSupported"), reason)
}

/// The fault for a mandatory header that is not understood (SOAP 1.2 part 1, section 5.4.8).
#[must_use]
pub fn not_understood(header: &Name) -> Fault {
    Fault {
        code: FaultCode::MustUnderstand,
        subcode: None,
        reason: format!("the header {header} has mustUnderstand but is not understood").into(),
        detail: Vec::new(),
    }
}
