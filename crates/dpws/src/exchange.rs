//! Requests, replies and faults of the profile, and their HTTP status codes.
//!
//! Sources: WS-Addressing 1.0 core, sections 3.3 and 3.4 (replies, reference parameters), and SOAP
//! binding, section 6 (faults); SOAP 1.2 part 2, section 7.5 (status codes); SOAP 1.2 over HTTP of
//! DPWS 1.1, section 2.

use std::sync::Arc;

use chappe_soap::security::WSSE;
use chappe_soap::{
    Addressing, AddressingVersion, Body, EndpointReference, Envelope, Fault, FaultCode,
    LazyEnvelope,
};
use chappe_soap::{not_understood_header, upgrade_header, v1_1};
use chappe_xml::{Element, Name, Str};

use crate::Dialect;
use crate::dialect::EVENTING;

/// The media type of SOAP 1.2 messages.
pub const SOAP_CONTENT_TYPE: &str = "application/soap+xml; charset=utf-8";
/// The media type of WSDL and schema documents.
pub const XML_CONTENT_TYPE: &str = "text/xml; charset=utf-8";

/// The address for messages to discard (WS-Addressing 1.0 core, section 2.1).
pub const NONE: &str = "http://www.w3.org/2005/08/addressing/none";

/// The namespace of additions of WS-Security 1.1.
const WSSE11: &str = "http://docs.oasis-open.org/wss/oasis-wss-wssecurity-secext-1.1.xsd";

/// An HTTP reply, which the driver sends unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub content: Content,
    /// The value of `Allow`: the methods of the path, if the status is 405.
    pub allow: Option<&'static str>,
}

/// The body of a [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// No body.
    Empty,
    /// A message.
    Envelope(Box<Envelope>),
    /// A message whose body is text.
    Lazy(Box<LazyEnvelope>),
    /// An XML document as text.
    Document(Arc<str>),
}

impl Reply {
    /// Accepted: the reply to one-way messages.
    pub const ACCEPTED: Self = Self::empty(202);
    /// The path does not exist.
    pub const NOT_FOUND: Self = Self::empty(404);
    /// Overload.
    pub const UNAVAILABLE: Self = Self::empty(503);

    const fn empty(status: u16) -> Self {
        Self {
            status,
            content: Content::Empty,
            allow: None,
        }
    }

    /// The method is not supported, only these are (RFC 9110, section 15.5.6).
    #[must_use]
    pub fn method_not_allowed(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::empty(405)
        }
    }

    /// A reply with a message: status 200, for a fault 400 if the sender is at fault and 500
    /// otherwise. A message to the address [`NONE`] is discarded: the request is accepted without an
    /// answer.
    #[must_use]
    pub fn message(envelope: Envelope) -> Self {
        if envelope.addressing.to.as_deref() == Some(NONE) {
            return Self::ACCEPTED;
        }
        Self {
            status: status(envelope.fault().as_ref()),
            content: Content::Envelope(Box::new(envelope)),
            allow: None,
        }
    }

    /// As [`Reply::message`].
    #[must_use]
    pub fn lazy(envelope: LazyEnvelope) -> Self {
        let LazyEnvelope { mut head, body } = envelope;
        // Trees alone make an envelope of the usual form.
        let is_text = |body: &Body| matches!(body, Body::Text(_));
        if !body.iter().any(is_text) {
            let trees = body.into_iter().filter_map(|body| body.into_element().ok());
            head.body.extend(trees);
            return Self::message(head);
        }
        if head.addressing.to.as_deref() == Some(NONE) {
            return Self::ACCEPTED;
        }
        let envelope = LazyEnvelope { head, body };
        Self {
            status: status(envelope.fault().as_ref()),
            content: Content::Lazy(Box::new(envelope)),
            allow: None,
        }
    }

    /// A reply with a document.
    #[must_use]
    pub const fn document(text: Arc<str>) -> Self {
        Self {
            status: 200,
            content: Content::Document(text),
            allow: None,
        }
    }

    /// The value of `Content-Type`.
    #[must_use]
    pub const fn content_type(&self) -> Option<&'static str> {
        match self.content {
            Content::Empty => None,
            Content::Envelope(_) | Content::Lazy(_) => Some(SOAP_CONTENT_TYPE),
            Content::Document(_) => Some(XML_CONTENT_TYPE),
        }
    }

    /// The message, if there is one of trees.
    #[must_use]
    pub fn envelope(&self) -> Option<&Envelope> {
        match &self.content {
            Content::Envelope(envelope) => Some(envelope),
            Content::Empty | Content::Lazy(_) | Content::Document(_) => None,
        }
    }

    /// The body as text; empty if there is none.
    #[must_use]
    pub fn to_text(&self) -> String {
        match &self.content {
            Content::Empty => String::new(),
            Content::Envelope(envelope) => envelope.to_text(),
            Content::Lazy(envelope) => envelope.to_text(),
            Content::Document(text) => text.to_string(),
        }
    }
}

/// The status of a message (SOAP 1.2 part 2, section 7.5).
fn status(fault: Option<&Fault>) -> u16 {
    match fault.map(|fault| fault.code) {
        None => 200,
        Some(FaultCode::Sender) => 400,
        Some(_) => 500,
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
    answer(
        request,
        request.addressing.reply_to.as_ref(),
        action,
        message_id,
    )
}

/// Creates the answer to `request` with a fault. It goes to `FaultTo` if there is one, and names of the
/// profile and of WS-Addressing are those of the request's dialect.
#[must_use]
pub fn fault(request: &Envelope, fault: &Fault, message_id: impl Into<Str>) -> Envelope {
    let (head, fault) = fault_head(request, fault, message_id);
    head.with_body(fault.to_element())
}

/// As [`fault`]; a detail that a type has written stays text.
#[must_use]
pub fn typed_fault(request: &Envelope, fault: &Fault, message_id: impl Into<Str>) -> LazyEnvelope {
    let (head, fault) = fault_head(request, fault, message_id);
    let body = vec![fault.to_body()];
    LazyEnvelope { head, body }
}

/// The headers of a fault message, and the fault in the names of the request's dialect.
fn fault_head(request: &Envelope, fault: &Fault, message_id: impl Into<Str>) -> (Envelope, Fault) {
    let Addressing {
        version,
        reply_to,
        fault_to,
        ..
    } = &request.addressing;
    let fault = Fault {
        subcode: fault.subcode.as_ref().map(|name| translate(*version, name)),
        ..fault.clone()
    };
    let action = fault_action(*version, &fault);
    let to = fault_to.as_ref().or(reply_to.as_ref());
    (answer(request, to, action, message_id), fault)
}

fn answer(
    request: &Envelope,
    to: Option<&EndpointReference>,
    action: impl Into<Str>,
    message_id: impl Into<Str>,
) -> Envelope {
    let mut addressing = Addressing {
        message_id: Some(message_id.into()),
        ..request.addressing.reply(action)
    };
    let Some(to) = to else {
        return Envelope::new(addressing);
    };
    addressing.to = Some(to.address.clone());
    with_parameters(Envelope::new(addressing), to)
}

/// A name of the profile or of WS-Addressing in the dialect of this version; other names stay.
fn translate(version: AddressingVersion, name: &Name) -> Name {
    let mut name = dialect_of(version).translate(name);
    let is_addressing = |dialect: &Dialect| name.namespace == dialect.addressing().namespace();
    if Dialect::ALL.iter().any(is_addressing) {
        name.namespace = version.namespace().into();
    }
    name
}

/// The reply to a body that is not a message, in the sender's versions of SOAP and WS-Addressing as far
/// as they are known.
#[must_use]
pub fn unreadable(error: &chappe_soap::Error, message_id: impl Into<Str>) -> Reply {
    use chappe_soap::Error;
    if *error == Error::VersionMismatch {
        return Reply {
            status: 500,
            ..Reply::document(v1_1::version_mismatch().into())
        };
    }
    let is_other_version = matches!(error, Error::NotEnvelope(name) if name.local == "Envelope");
    let version = error.addressing_version();
    let subcode = match error {
        Error::MissingHeader { .. } => Some("MessageAddressingHeaderRequired"),
        _ => version.map(|_| "InvalidAddressingHeader"),
    };
    let version = version.unwrap_or_default();
    let fault = Fault {
        code: match is_other_version {
            true => FaultCode::VersionMismatch,
            false => FaultCode::Sender,
        },
        subcode: subcode.map(|local| version.fault_name(local)),
        reason: error.to_string().into(),
        detail: Vec::new(),
    };
    let mut envelope = unrelated(version, &fault, message_id);
    if is_other_version {
        envelope.headers.push(upgrade_header());
    }
    Reply::message(envelope)
}

/// Creates the fault for a message of which nothing may be used, so that it relates to none.
#[must_use]
pub fn unrelated_fault(fault: &Fault, message_id: impl Into<Str>) -> Envelope {
    unrelated(AddressingVersion::default(), fault, message_id)
}

fn unrelated(version: AddressingVersion, fault: &Fault, message_id: impl Into<Str>) -> Envelope {
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

/// The fault for mandatory headers that are not in `understood`, and the header blocks that name them
/// (SOAP 1.2 part 1, section 5.4.8); `None` if there are none.
#[must_use]
pub fn not_understood(request: &Envelope, understood: &[Name]) -> Option<(Fault, Vec<Element>)> {
    let headers = request.not_understood(understood);
    let blocks = headers.map(|header| not_understood_header(&header.name));
    let blocks: Vec<Element> = blocks.collect();
    let first = &request.not_understood(understood).next()?.name;
    let fault = Fault {
        code: FaultCode::MustUnderstand,
        subcode: None,
        reason: format!("the header {first} has mustUnderstand but is not understood").into(),
        detail: Vec::new(),
    };
    Some((fault, blocks))
}

/// The first reference parameter in a namespace of WS-Addressing or WS-Security. Parameters become
/// headers of messages to `to`, where these would contradict those of the sender.
#[must_use]
pub fn reserved_parameter(to: &EndpointReference) -> Option<&Element> {
    to.reference_parameters.iter().find(|parameter| {
        let namespace = &*parameter.name.namespace;
        let is_addressing = |dialect: &Dialect| namespace == dialect.addressing().namespace();
        Dialect::ALL.iter().any(is_addressing) || [WSSE, WSSE11].contains(&namespace)
    })
}

/// The fault for a request whose headers cannot be honoured: a mandatory one that is not in
/// `understood`, or an answer to another address than that of the connection. `None` if all can.
#[must_use]
pub fn check_headers(
    request: &Envelope,
    understood: &[Name],
    message_id: impl Into<Str>,
) -> Option<Envelope> {
    let Addressing {
        version,
        reply_to,
        fault_to,
        ..
    } = &request.addressing;
    let is_supported = |to: &str| to == version.anonymous() || to == NONE;
    let elsewhere = [("ReplyTo", reply_to), ("FaultTo", fault_to)]
        .into_iter()
        .find(|(_, to)| to.as_ref().is_some_and(|to| !is_supported(&to.address)));
    let (refusal, headers) = match (not_understood(request, understood), elsewhere) {
        (Some(found), _) => found,
        (None, Some((header, _))) => {
            let subcode = version.fault_name("InvalidAddressingHeader");
            let reason = format!("{header} must be anonymous; other addresses are not supported");
            (Fault::sender(subcode, reason), Vec::new())
        }
        (None, None) => return None,
    };
    let mut envelope = fault(request, &refusal, message_id);
    envelope.headers.extend(headers);
    // The answer uses this connection even if another address was refused.
    let to = envelope
        .addressing
        .to
        .get_or_insert(version.anonymous().into());
    if !is_supported(to) {
        *to = version.anonymous().into();
    }
    Some(envelope)
}
