//! WS-Addressing headers and endpoint references.

use std::borrow::Cow;

use chappe_xml::{Element, Event, EventSink, Name, Node, Str, Value};

use crate::Error;
use crate::envelope::is_for_receiver;

/// The two supported versions, which differ in namespace and defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum AddressingVersion {
    /// The submission of August 2004, used by WS-Discovery 2005/04 and DPWS 2006/02.
    V200408,
    /// The recommendation, used by the 2009 dialects.
    #[default]
    V200508,
}

impl AddressingVersion {
    /// The namespace name.
    #[must_use]
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::V200408 => "http://schemas.xmlsoap.org/ws/2004/08/addressing",
            Self::V200508 => "http://www.w3.org/2005/08/addressing",
        }
    }

    /// The address of the request's own connection.
    #[must_use]
    pub const fn anonymous(self) -> &'static str {
        match self {
            Self::V200408 => "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous",
            Self::V200508 => "http://www.w3.org/2005/08/addressing/anonymous",
        }
    }

    /// The action of faults that WS-Addressing defines.
    #[must_use]
    pub const fn fault_action(self) -> &'static str {
        match self {
            Self::V200408 => "http://schemas.xmlsoap.org/ws/2004/08/addressing/fault",
            Self::V200508 => "http://www.w3.org/2005/08/addressing/fault",
        }
    }

    /// The name of a fault's subcode, given by its name in the recommendation: two have another one in
    /// the submission.
    #[must_use]
    pub fn fault_name(self, local: &'static str) -> Name {
        self.name(match (self, local) {
            (Self::V200408, "InvalidAddressingHeader") => "InvalidMessageInformationHeader",
            (Self::V200408, "MessageAddressingHeaderRequired") => {
                "MessageInformationHeaderRequired"
            }
            _ => local,
        })
    }

    /// The type of the relationship of an answer to its request, which is the default: a URI in the
    /// recommendation, a QName in the submission.
    fn is_reply(self, header: &Element, kind: &str) -> bool {
        // Some senders of the recommendation's namespace write the submission's QName.
        header.resolve(&[], kind) == Some(self.name("Reply"))
            || self == Self::V200508 && kind == "http://www.w3.org/2005/08/addressing/reply"
    }

    /// A name in this version's namespace.
    #[must_use]
    pub const fn name(self, local: &'static str) -> Name {
        Name::new(self.namespace(), local)
    }

    pub(crate) fn from_namespace(namespace: &str) -> Option<Self> {
        [Self::V200408, Self::V200508]
            .into_iter()
            .find(|version| version.namespace() == namespace)
    }
}

/// Bytes of an endpoint reference: its address and the trees of its reference parameters. Default
/// 16 KiB; some hundred bytes are usual. The limit matters because a reference is stored with each
/// subscription or device and sent with each message to the endpoint.
pub(crate) const REFERENCE_BYTES_MAX: usize = 16 << 10;

/// A message destination: an address, and headers to echo.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EndpointReference {
    /// A transport URI, or a stable identifier such as `urn:uuid:…`.
    pub address: Str,
    /// Reference parameters (and, in 2004/08, properties), echoed as headers.
    pub reference_parameters: Vec<Element>,
}

impl EndpointReference {
    /// A reference without parameters.
    #[must_use]
    pub fn new(address: impl Into<Str>) -> Self {
        Self {
            address: address.into(),
            reference_parameters: Vec::new(),
        }
    }

    /// Parses an element of endpoint reference type.
    ///
    /// # Errors
    /// [`Error::Incomplete`] without address, [`Error::LongReference`] above the limit.
    pub fn from_element(version: AddressingVersion, element: &Element) -> Result<Self, Error> {
        let Some(address) = element.child(&version.name("Address")) else {
            return Err(Error::Incomplete {
                element: element.name.clone(),
                what: "Address",
            });
        };
        let address = address.text();
        let containers = ["ReferenceProperties", "ReferenceParameters"]
            .into_iter()
            .filter_map(|local| element.child(&version.name(local)));
        let parameters: Vec<&Element> = containers.flat_map(Element::elements).collect();
        let bytes = parameters.iter().map(|one| one.expanded_bytes());
        let bytes = address.len() + bytes.sum::<usize>();
        if bytes > REFERENCE_BYTES_MAX {
            return Err(Error::LongReference {
                element: element.name.clone(),
                bytes,
            });
        }
        Ok(Self {
            address: address.trim().to_owned().into(),
            reference_parameters: parameters.into_iter().cloned().collect(),
        })
    }

    /// Converts to an element with this name.
    #[must_use]
    pub fn to_element(&self, version: AddressingVersion, name: Name) -> Element {
        let address = Element::new(version.name("Address")).with_text(self.address.clone());
        let element = Element::new(name).with_child(address);
        if self.reference_parameters.is_empty() {
            return element;
        }
        let parameters = self.reference_parameters.iter().cloned();
        element
            .with_child(Element::new(version.name("ReferenceParameters")).with_children(parameters))
    }
}

/// A relationship to another message that is not the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relationship {
    /// Its type: a URI, or in 2004/08 the QName as `{namespace}local`.
    pub kind: Str,
    /// The identifier of the other message.
    pub message_id: Str,
}

impl Relationship {
    /// The kind in a `RelatesTo` header; `None` for an answer.
    fn kind_of(version: AddressingVersion, header: &Element) -> Option<Str> {
        let kind = header.attribute(&Name::local("RelationshipType"))?.trim();
        if version.is_reply(header, kind) {
            return None;
        }
        let name = match version {
            AddressingVersion::V200408 => header.resolve(&[], kind),
            AddressingVersion::V200508 => None,
        };
        Some(
            name.map_or_else(|| kind.to_owned(), |name| name.to_string())
                .into(),
        )
    }

    fn to_element(&self, version: AddressingVersion) -> Element {
        let header = Element::new(version.name("RelatesTo")).with_text(self.message_id.clone());
        let qname = self
            .kind
            .strip_prefix('{')
            .and_then(|rest| rest.split_once('}'));
        let (header, kind) = match qname {
            Some((namespace, local)) => (
                header.with_namespace("rel", namespace.to_owned()),
                format!("rel:{local}").into(),
            ),
            None => (header, self.kind.clone()),
        };
        header.with_attribute(Name::local("RelationshipType"), kind)
    }
}

/// The message addressing properties.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addressing {
    /// The version of the message.
    pub version: AddressingVersion,
    /// The meaning of the message (a URI); required.
    pub action: Str,
    /// The message's identifier (a URI).
    pub message_id: Option<Str>,
    /// The destination; absent means anonymous.
    pub to: Option<Str>,
    /// The identifier of the message that this one answers.
    pub relates_to: Option<Str>,
    /// Further relationships, in the order of the message.
    pub relationships: Vec<Relationship>,
    /// The sender.
    pub from: Option<EndpointReference>,
    /// The destination of the answer; absent means anonymous in 2005/08.
    pub reply_to: Option<EndpointReference>,
    /// The destination of faults; absent means that of the answer.
    pub fault_to: Option<EndpointReference>,
}

const HEADERS: [&str; 7] = [
    "Action",
    "MessageID",
    "To",
    "RelatesTo",
    "From",
    "ReplyTo",
    "FaultTo",
];

impl Addressing {
    /// Creates the properties of a message with this action.
    #[must_use]
    pub fn new(version: AddressingVersion, action: impl Into<Str>) -> Self {
        Self {
            version,
            action: action.into(),
            ..Self::default()
        }
    }

    /// Removes the addressing headers from `headers` and parses them. Those for another SOAP role are
    /// none of this message (WS-Addressing 1.0 SOAP binding, section 3.2).
    ///
    /// # Errors
    /// The action is missing, a header is repeated or an endpoint reference is invalid.
    pub(crate) fn parse(headers: &mut Vec<Element>) -> Result<Self, Error> {
        let version = version_of(headers)?;
        let mut found: [Option<Element>; 7] = Default::default();
        let mut relationships = Vec::new();
        let mut others = Vec::new();
        for header in headers.drain(..) {
            let is_known = header.name.namespace == version.namespace() && is_for_receiver(&header);
            let slot = is_known
                .then(|| HEADERS.iter().position(|local| header.name.local == *local))
                .flatten();
            let Some(slot) = slot else {
                others.push(header);
                continue;
            };
            if HEADERS[slot] == "RelatesTo"
                && let Some(kind) = Relationship::kind_of(version, &header)
            {
                let message_id = Str::Owned(header.text().trim().to_owned());
                relationships.push(Relationship { kind, message_id });
                continue;
            }
            if found[slot].is_some() {
                let header = HEADERS[slot];
                return Err(Error::DuplicateHeader { version, header });
            }
            found[slot] = Some(header);
        }
        *headers = others;
        let text = |slot: &mut Option<Element>| slot.take().map(into_text);
        let reference = |slot: &Option<Element>| {
            slot.as_ref()
                .map(|header| EndpointReference::from_element(version, header))
                .transpose()
        };
        let [action, message_id, to, relates_to, from, reply_to, fault_to] = &mut found;
        let header = "Action";
        Ok(Self {
            version,
            action: text(action)
                .filter(|uri| !uri.is_empty())
                .ok_or(Error::MissingHeader { version, header })?,
            message_id: text(message_id),
            to: text(to),
            relates_to: text(relates_to),
            relationships,
            from: reference(from)?,
            reply_to: reference(reply_to)?,
            fault_to: reference(fault_to)?,
        })
    }

    /// The headers whose content is text, as they are written.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'static str, &Str)> {
        let texts = [
            ("To", self.to.as_ref()),
            ("Action", Some(&self.action)),
            ("MessageID", self.message_id.as_ref()),
            ("RelatesTo", self.relates_to.as_ref()),
        ];
        texts
            .into_iter()
            .filter_map(|(local, text)| Some((local, text?)))
    }

    /// Whether there are no other headers than [`Self::texts`].
    pub(crate) fn has_texts_alone(&self) -> bool {
        let references = [&self.from, &self.reply_to, &self.fault_to];
        references.iter().all(|it| it.is_none()) && self.relationships.is_empty()
    }

    pub(crate) fn write(&self, sink: &mut impl EventSink) -> Result<(), chappe_xml::Error> {
        let version = self.version;
        for (local, value) in self.texts() {
            sink.event(Event::StartElement(version.name(local)))?;
            sink.event(Event::Text(Value::Text(Cow::Borrowed(value))))?;
            sink.event(Event::EndElement)?;
        }
        for (local, reference) in [
            ("From", &self.from),
            ("ReplyTo", &self.reply_to),
            ("FaultTo", &self.fault_to),
        ] {
            if let Some(reference) = reference {
                let name = version.name(local);
                reference.to_element(version, name).write(sink)?;
            }
        }
        let mut relationships = self.relationships.iter();
        relationships.try_for_each(|relationship| relationship.to_element(version).write(sink))
    }

    /// The properties of the answer to this message.
    #[must_use]
    pub fn reply(&self, action: impl Into<Str>) -> Self {
        let reply_to = self
            .reply_to
            .as_ref()
            .map(|reference| reference.address.clone());
        Self {
            relates_to: self.message_id.clone(),
            to: Some(reply_to.unwrap_or(Str::Borrowed(self.version.anonymous()))),
            ..Self::new(self.version, action)
        }
    }
}

/// The text of a header without white space around it.
fn into_text(mut header: Element) -> Str {
    let is_trimmed = |text: &str| text.trim().len() == text.len();
    match header.children.as_mut_slice() {
        [Node::Text(text)] if is_trimmed(text) => std::mem::take(text),
        _ => Str::Owned(header.text().trim().to_owned()),
    }
}

/// The version of the message's action; without an action, the error names the version of its other
/// headers, for the fault.
fn version_of(headers: &[Element]) -> Result<AddressingVersion, Error> {
    let of = |header: &Element| AddressingVersion::from_namespace(&header.name.namespace);
    let mut own = headers.iter().filter(|header| is_for_receiver(header));
    let action = own
        .clone()
        .filter(|header| header.name.local == "Action")
        .find_map(of);
    action.ok_or_else(|| Error::MissingHeader {
        version: own.find_map(of).unwrap_or_default(),
        header: "Action",
    })
}
