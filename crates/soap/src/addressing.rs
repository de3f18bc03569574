//! WS-Addressing headers and endpoint references.

use chappe_xml::{Element, Name, Str};

use crate::Error;

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

    /// Removes the addressing headers from `headers` and parses them.
    ///
    /// # Errors
    /// The action is missing, a header is repeated or an endpoint reference is invalid.
    pub(crate) fn parse(headers: &mut Vec<Element>) -> Result<Self, Error> {
        let version = headers
            .iter()
            .filter(|header| header.name.local == "Action")
            .find_map(|header| AddressingVersion::from_namespace(&header.name.namespace))
            .ok_or(Error::MissingHeader("Action"))?;
        let mut found: [Option<Element>; 7] = Default::default();
        let mut others = Vec::new();
        for header in headers.drain(..) {
            let slot = (header.name.namespace == version.namespace())
                .then(|| HEADERS.iter().position(|local| header.name.local == *local))
                .flatten();
            match slot {
                Some(slot) if found[slot].is_some() => {
                    return Err(Error::DuplicateHeader(HEADERS[slot].into()));
                }
                Some(slot) => found[slot] = Some(header),
                None => others.push(header),
            }
        }
        *headers = others;
        let text = |slot: &Option<Element>| {
            slot.as_ref()
                .map(|header| Str::Owned(header.text().trim().to_owned()))
        };
        let reference = |slot: &Option<Element>| {
            slot.as_ref()
                .map(|header| EndpointReference::from_element(version, header))
                .transpose()
        };
        let [action, message_id, to, relates_to, from, reply_to, fault_to] = &found;
        Ok(Self {
            version,
            action: text(action)
                .filter(|uri| !uri.is_empty())
                .ok_or(Error::MissingHeader("Action"))?,
            message_id: text(message_id),
            to: text(to),
            relates_to: text(relates_to),
            from: reference(from)?,
            reply_to: reference(reply_to)?,
            fault_to: reference(fault_to)?,
        })
    }

    pub(crate) fn to_elements(&self) -> Vec<Element> {
        let version = self.version;
        let text = |local, value: &Option<Str>| {
            value
                .as_ref()
                .map(|value| Element::new(version.name(local)).with_text(value.clone()))
        };
        let reference = |local, value: &Option<EndpointReference>| {
            value
                .as_ref()
                .map(|value| value.to_element(version, version.name(local)))
        };
        [
            text("To", &self.to),
            text("Action", &Some(self.action.clone())),
            text("MessageID", &self.message_id),
            text("RelatesTo", &self.relates_to),
            reference("From", &self.from),
            reference("ReplyTo", &self.reply_to),
            reference("FaultTo", &self.fault_to),
        ]
        .into_iter()
        .flatten()
        .collect()
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
