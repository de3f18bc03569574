//! The compact message: ten elements of the optimized WS-Eventing, in EXI, without an envelope.
//!
//! Source: "An Optimized WS-Eventing for Large-Scale Networks". The schema is `ev1` of
//! `chappe-exi`, known to both sides. In a notification tree, the event's datagram replaces some
//! elements: its signed list and range name the sinks (`IP-List`, `Sink-IP`), and the tree has its
//! own answers (`RelatesTo`). All sinks therefore get the same bytes, signed once by the source.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use chappe_exi::{Decoder, Encoder, Limits, MessageSchema, Options, Schema, SchemaId, xml};
use chappe_xml::{Element, Name, Str};

/// The namespace of the ten elements.
const NAMESPACE: &str = "urn:chappe:events:1";
/// Addresses in one list.
///
/// Reason: a datagram has no room for more.
const LIST_MAX: usize = 256;
/// Bytes of a subscription identifier.
const SUBSCRIPTION_BYTES_MAX: usize = 64;

/// The ten elements; only the action is mandatory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compact {
    /// The kind of event.
    pub action: Str,
    /// The UUID of the message identifier, which identifies the event for all sinks.
    pub event_id: Option<[u8; 16]>,
    /// The destination of answers.
    pub reply_to: Option<SocketAddr>,
    /// The message's number.
    pub message_number: Option<u32>,
    /// The number of the message that this one answers.
    pub relates_to: Option<u32>,
    /// The destination sink.
    pub sink: Option<SocketAddr>,
    /// The subscription manager's address.
    pub subscription: Option<SocketAddr>,
    /// The subscription's identifier.
    pub subscription_id: Option<Vec<u8>>,
    /// The sinks that the receiver notifies.
    pub list: Vec<SocketAddr>,
    /// The event's data.
    pub data: Option<Element>,
}

/// A compact message cannot be decoded or encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// Not EXI of this schema, or beyond the limits of a datagram.
    #[error("invalid compact message: {0}")]
    Exi(String),
    /// A missing element, or an invalid value.
    #[error("invalid compact message: {0} is missing or invalid")]
    Element(&'static str),
}

/// Encodes and decodes compact messages; reuses its grammars and buffers.
pub struct CompactCodec {
    encoder: Encoder,
    decoder: Decoder,
    options: Options,
}

impl fmt::Debug for CompactCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactCodec").finish_non_exhaustive()
    }
}

impl Default for CompactCodec {
    fn default() -> Self {
        let schema = Arc::new(Schema::for_messages(MessageSchema::Events));
        let mut options = Options {
            schema_id: SchemaId::Named(MessageSchema::Events.schema_id().to_owned()),
            ..Options::default()
        };
        // Content may refer to prefixes (xsi:type).
        options.preserve.prefixes = true;
        Self {
            encoder: Encoder::new(Arc::clone(&schema)).with_limits(Limits::datagram()),
            decoder: Decoder::new(schema).with_limits(Limits::datagram()),
            options,
        }
    }
}

impl CompactCodec {
    /// Encodes a message as EXI: about 30 bytes plus the action and the data.
    ///
    /// # Errors
    /// [`CompactError`] if the data exceed the depth or size of a datagram.
    ///
    /// ```
    /// use chappe_dpws::eventing::{Compact, CompactCodec};
    /// let mut codec = CompactCodec::default();
    /// let message = Compact { action: "urn:x/Report".into(), ..Compact::default() };
    /// let bytes = codec.encode(&message)?;
    /// assert_eq!(codec.decode(&bytes)?, message);
    /// # Ok::<(), chappe_dpws::eventing::CompactError>(())
    /// ```
    pub fn encode(&mut self, message: &Compact) -> Result<Vec<u8>, CompactError> {
        let element = message.to_element();
        let exi = |error: &dyn fmt::Display| CompactError::Exi(error.to_string());
        let writing = self
            .encoder
            .begin(&self.options)
            .map_err(|error| exi(&error))?;
        let mut sink = xml::Sink::new(writing).map_err(|error| exi(&error))?;
        element.write(&mut sink).map_err(|error| exi(&error))?;
        let bytes = sink.finish().map_err(|error| exi(&error))?;
        Ok(bytes.to_vec())
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// [`CompactError`] if the bytes are not a compact message.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<Compact, CompactError> {
        let exi = |error: &dyn fmt::Display| CompactError::Exi(error.to_string());
        let reading = self
            .decoder
            .begin(bytes, Some(&self.options))
            .map_err(|error| exi(&error))?;
        let mut source = xml::Source::new(reading);
        let element = Element::read_within(&mut source, chappe_xml::Limits::datagram());
        let element = element.map_err(|error| exi(&error))?;
        Compact::from_element(&element)
    }
}

fn name(local: &'static str) -> Name {
    Name::new(NAMESPACE, local)
}

impl Compact {
    fn to_element(&self) -> Element {
        let text = |local, value: Option<String>| {
            value.map(|value| Element::new(name(local)).with_text(value))
        };
        let address = |value: Option<SocketAddr>| value.map(|value| hex(&octets(value)));
        let list = (!self.list.is_empty()).then(|| {
            let list = self.list.iter().map(|one| hex(&octets(*one)));
            list.collect::<Vec<_>>().join(" ")
        });
        let data = self.data.as_ref();
        Element::new(name("Event"))
            .with_child(Element::new(name("Action")).with_text(self.action.clone()))
            .with_children(text("EventID", self.event_id.map(|id| hex(&id))))
            .with_children(text("ReplyTo", address(self.reply_to)))
            .with_children(text("MsgNr", self.message_number.map(|it| it.to_string())))
            .with_children(text("RelatesTo", self.relates_to.map(|it| it.to_string())))
            .with_children(text("Sink-IP", address(self.sink)))
            .with_children(text("Subscription-IP", address(self.subscription)))
            .with_children(text(
                "Subscription-ID",
                self.subscription_id.as_deref().map(hex),
            ))
            .with_children(text("IP-List", list))
            .with_children(
                data.map(|data| Element::new(name("EventData")).with_child(data.clone())),
            )
    }

    fn from_element(root: &Element) -> Result<Self, CompactError> {
        if root.name != name("Event") {
            return Err(CompactError::Element("Event"));
        }
        let text = |local| {
            let child = root.child(&name(local));
            child.map(|child| child.text().trim().to_owned())
        };
        let invalid = CompactError::Element;
        let number = |local: &'static str| {
            let text = text(local);
            text.map(|text| text.parse::<u32>().map_err(|_| invalid(local)))
                .transpose()
        };
        let address = |local: &'static str| {
            let text = text(local);
            text.map(|text| socket_address(&text).ok_or(invalid(local)))
                .transpose()
        };
        let action = text("Action").filter(|action| !action.is_empty());
        let event_id = text("EventID").map(|text| {
            let id = unhex(&text, 16).and_then(|id| <[u8; 16]>::try_from(id).ok());
            id.ok_or(invalid("EventID"))
        });
        let subscription_id = text("Subscription-ID")
            .map(|text| unhex(&text, SUBSCRIPTION_BYTES_MAX).ok_or(invalid("Subscription-ID")));
        let list = text("IP-List").unwrap_or_default();
        let list = list.split_whitespace().take(LIST_MAX + 1);
        let list: Option<Vec<_>> = list.map(socket_address).collect();
        let list = list.filter(|list| list.len() <= LIST_MAX);
        let data = root.child(&name("EventData"));
        Ok(Self {
            action: action.ok_or(invalid("Action"))?.into(),
            event_id: event_id.transpose()?,
            reply_to: address("ReplyTo")?,
            message_number: number("MsgNr")?,
            relates_to: number("RelatesTo")?,
            sink: address("Sink-IP")?,
            subscription: address("Subscription-IP")?,
            subscription_id: subscription_id.transpose()?,
            list: list.ok_or(invalid("IP-List"))?,
            data: data.and_then(|data| data.elements().next().cloned()),
        })
    }
}

/// The octets of an IP address followed by the port, most significant first.
fn octets(address: SocketAddr) -> Vec<u8> {
    let mut octets = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    octets.extend_from_slice(&address.port().to_be_bytes());
    octets
}

fn socket_address(text: &str) -> Option<SocketAddr> {
    let octets = unhex(text, 18)?;
    let (ip, port) = octets.split_last_chunk::<2>()?;
    let ip = match ip.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

/// Bytes as xs:hexBinary in its canonical form.
pub(super) fn hex(bytes: &[u8]) -> String {
    chappe_identity::hex_encode(bytes).to_ascii_uppercase()
}

/// Decodes hexadecimal digits of either case, up to `max_bytes` bytes.
pub(super) fn unhex(text: &str, max_bytes: usize) -> Option<Vec<u8>> {
    if text.len() / 2 > max_bytes {
        return None;
    }
    chappe_identity::hex_decode(text)
}
