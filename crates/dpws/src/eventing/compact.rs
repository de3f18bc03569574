//! The compact message: the ten elements of the optimized WS-Eventing, in EXI, without an envelope.
//!
//! Source: "An Optimized WS-Eventing for Large-Scale Networks"; the schema is `ev1` of `chappe-exi`,
//! which both sides have. In a notification tree the event's datagram says the rest of the ten: who
//! is to be told (`IP-List`, `Sink-IP`) is in its signed list and range, and answers (`RelatesTo`) are
//! the tree's own; so that all sinks get the same bytes, which the source signs once.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use chappe_exi::{Decoder, Encoder, Limits, MessageSchema, Options, Schema, SchemaId, xml};
use chappe_xml::{Element, Name, Str};

/// The namespace of the ten elements.
const NAMESPACE: &str = "urn:chappe:events:1";
/// Addresses of one list.
///
/// Reason: more do not fit a datagram.
const LIST_MAX: usize = 256;
/// Bytes of a subscription's identifier.
const SUBSCRIPTION_BYTES_MAX: usize = 64;

/// The ten elements; only the action is always there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compact {
    /// What happened.
    pub action: Str,
    /// Names the event for all sinks: the UUID of the message identifier.
    pub event_id: Option<[u8; 16]>,
    /// Where answers go.
    pub reply_to: Option<SocketAddr>,
    /// The message's number.
    pub message_number: Option<u32>,
    /// The number of the message that this answers.
    pub relates_to: Option<u32>,
    /// The sink that it is for.
    pub sink: Option<SocketAddr>,
    /// Where the subscription is managed.
    pub subscription: Option<SocketAddr>,
    /// Which subscription.
    pub subscription_id: Option<Vec<u8>>,
    /// The sinks that the receiver is to tell.
    pub list: Vec<SocketAddr>,
    /// What the event source said.
    pub data: Option<Element>,
}

/// Bytes that are no compact message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompactError {
    /// They are no EXI of this schema, or beyond the limits of a datagram.
    #[error("no compact message: {0}")]
    Exi(String),
    /// An element that is missing, or holds what it cannot.
    #[error("no compact message: {0} is missing or not readable")]
    Element(&'static str),
}

/// Writes and reads compact messages; keeps its grammars and buffers from one to the next.
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
        // Content may name things by prefix (xsi:type).
        options.preserve.prefixes = true;
        Self {
            encoder: Encoder::new(Arc::clone(&schema)).with_limits(Limits::datagram()),
            decoder: Decoder::new(schema).with_limits(Limits::datagram()),
            options,
        }
    }
}

impl CompactCodec {
    /// The message as EXI: about 30 bytes, the action and the data.
    ///
    /// # Errors
    /// When the data is deeper or larger than a datagram's.
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

    /// Reads a message.
    ///
    /// # Errors
    /// When the bytes are none.
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
        let bad = CompactError::Element;
        let number = |local: &'static str| {
            let text = text(local);
            text.map(|text| text.parse::<u32>().map_err(|_| bad(local)))
                .transpose()
        };
        let address = |local: &'static str| {
            let text = text(local);
            text.map(|text| socket_address(&text).ok_or(bad(local)))
                .transpose()
        };
        let action = text("Action").filter(|action| !action.is_empty());
        let event_id = text("EventID").map(|text| {
            let id = unhex(&text, 16).and_then(|id| <[u8; 16]>::try_from(id).ok());
            id.ok_or(bad("EventID"))
        });
        let subscription_id = text("Subscription-ID")
            .map(|text| unhex(&text, SUBSCRIPTION_BYTES_MAX).ok_or(bad("Subscription-ID")));
        let list = text("IP-List").unwrap_or_default();
        let list = list.split_whitespace().take(LIST_MAX + 1);
        let list: Option<Vec<_>> = list.map(socket_address).collect();
        let list = list.filter(|list| list.len() <= LIST_MAX);
        let data = root.child(&name("EventData"));
        Ok(Self {
            action: action.ok_or(bad("Action"))?.into(),
            event_id: event_id.transpose()?,
            reply_to: address("ReplyTo")?,
            message_number: number("MsgNr")?,
            relates_to: number("RelatesTo")?,
            sink: address("Sink-IP")?,
            subscription: address("Subscription-IP")?,
            subscription_id: subscription_id.transpose()?,
            list: list.ok_or(bad("IP-List"))?,
            data: data.and_then(|data| data.elements().next().cloned()),
        })
    }
}

/// The octets of an IP address and of a port behind them, most significant first.
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

/// Bytes as xs:hexBinary writes them.
pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes everything.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

/// At most so many bytes from hexadecimal digits of either case.
pub(super) fn unhex(text: &str, most: usize) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() / 2 > most {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect()
}
