//! Messages as EXI: by the schema `dev1` that both ends have anyway, or by the schemas of a service that both have.
//!
//! Streams have no cookie and name their schema in their header. `dev1` of `chappe-exi` has SOAP, WS-Addressing,
//! WS-Eventing and DPWS; its streams preserve prefixes and the lexical form of values, so that a message is the
//! same whichever way it came. Streams by a [`ServiceSchema`] are strict and have values in the form of their types:
//! `007` of an `xs:int` arrives as `7`. What such a stream cannot say goes by `dev1`: content that the schema does not
//! declare, names with prefixes in content (faults have them), zero with a minus sign.
//!
//! Sources: EXI 1.0; RFC 7694 for the negotiation over HTTP, which `chappe-transport` does. For SOAP-over-UDP there is
//! none: [`offer`] is a header of our own by which a question says that its answer may be EXI. Not covered: signed
//! messages, because comments and the choice between two prefixes of one namespace are not preserved.

mod coder;
mod content;
mod service;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use chappe_exi::{MessageSchema, Schema};
use chappe_soap::Envelope;
use chappe_xml::{Element, Limits, Name};

use coder::Coder;
pub use coder::DecodeError;
pub use service::{SCHEMAS_MAX, ServiceSchema, ServiceSchemas};

/// The namespace of the header by which a question offers to take EXI.
pub const NAMESPACE: &str = "urn:chappe:exi:1";

static DEVICES: LazyLock<Coder> = LazyLock::new(|| {
    let schema = Schema::for_messages(MessageSchema::Devices);
    Coder::new(schema, false)
});

/// A decoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// Its text.
    pub text: String,
    /// The schema of its stream, unless that is `dev1`.
    pub schema: Option<ServiceSchema>,
}

/// Encodes the text of a message by `dev1`; `None` if it is no document or does not get shorter.
///
/// ```
/// use chappe_dpws::exi::{self, ServiceSchemas};
/// let text = "<a>one</a>".repeat(9);
/// let text = format!("<all>{text}</all>");
/// let stream = exi::encode(text.as_bytes()).expect("it gets shorter");
/// assert!(exi::is_exi(&stream));
/// let decoded = exi::decode(&stream, chappe_xml::Limits::default(), &ServiceSchemas::default())?;
/// assert_eq!(decoded.text, text);
/// # Ok::<(), exi::DecodeError>(())
/// ```
#[must_use]
pub fn encode(text: &[u8]) -> Option<Vec<u8>> {
    DEVICES.encode(text)
}

/// Decodes a message by `dev1` or one of these schemas, within the limits of its text: a few bits can stand for a long
/// string.
///
/// # Errors
/// [`DecodeError`]: it is no EXI, of a schema that is not among the compiled ones, or beyond the limits.
pub fn decode(
    stream: &[u8],
    limits: Limits,
    schemas: &ServiceSchemas,
) -> Result<Decoded, DecodeError> {
    let wanted = match DEVICES.decode(stream, limits) {
        Err(DecodeError::OtherSchema(wanted)) => wanted,
        decoded => {
            let text = decoded?;
            return Ok(Decoded { text, schema: None });
        }
    };
    let schema = schemas.with_id(&wanted);
    let schema = schema.ok_or(DecodeError::OtherSchema(wanted))?;
    let text = schema.decode(stream, limits)?;
    let schema = Some(schema);
    Ok(Decoded { text, schema })
}

/// Whether these bytes begin as EXI does (EXI 1.0, section 5): with its cookie, or with bits with which no text begins.
#[must_use]
pub fn is_exi(bytes: &[u8]) -> bool {
    bytes.starts_with(b"$EXI") || bytes.first().is_some_and(|first| first >> 6 == 0b10)
}

/// The header of a question whose answer may be EXI. It is not mandatory, so that others ignore it.
#[must_use]
pub fn offer() -> Element {
    Element::new(offer_name()).with_namespace("x", NAMESPACE)
}

/// Whether the message has the header [`offer`].
#[must_use]
pub fn is_offered(envelope: &Envelope) -> bool {
    envelope.header(&offer_name()).is_some()
}

fn offer_name() -> Name {
    Name::new(NAMESPACE, "Accept")
}
