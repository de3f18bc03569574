//! Schemas of web service messages, compiled into the crate.
//!
//! [`MessageSchema::Devices`] covers SOAP 1.2, WS-Addressing, WS-Eventing and DPWS. Undeclared content
//! of a header or body matches wildcards and is encoded with built-in grammars.
//! [`MessageSchema::Events`] covers event messages between the nodes of a notification tree: ten
//! elements without an envelope.
//!
//! The schema documents are in `schemas/`; a test recompiles them and compares the result.

use crate::schema::Schema;
#[cfg(feature = "std")]
use crate::{Limits, XsdError, XsdSource};
#[cfg(feature = "std")]
use alloc::{borrow::ToOwned, vec::Vec};

/// A schema that is built into both the encoder and the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageSchema {
    /// SOAP 1.2, WS-Addressing 2005/08, WS-Eventing 2004/08 and DPWS 1.1.
    Devices,
    /// Event messages of the optimized WS-Eventing: Action, EventID, ReplyTo, MsgNr, RelatesTo,
    /// Sink-IP, Subscription-IP, Subscription-ID, IP-List, EventData.
    Events,
}

impl MessageSchema {
    /// All built-in message schemas.
    pub const ALL: [Self; 2] = [Self::Devices, Self::Events];

    /// The schemaId in stream headers. Every change of the schema changes it.
    #[must_use]
    pub const fn schema_id(self) -> &'static str {
        match self {
            Self::Devices => "dev1",
            Self::Events => "ev1",
        }
    }

    /// The message schema with this schemaId.
    #[must_use]
    pub fn from_schema_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.schema_id() == id)
    }

    /// The names and texts of its schema documents.
    #[cfg(feature = "std")]
    const fn documents(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Devices => &[
                ("envelope.xsd", include_str!("../schemas/envelope.xsd")),
                ("addressing.xsd", include_str!("../schemas/addressing.xsd")),
                ("eventing.xsd", include_str!("../schemas/eventing.xsd")),
                ("dpws.xsd", include_str!("../schemas/dpws.xsd")),
                ("xml.xsd", include_str!("../schemas/xml.xsd")),
            ],
            Self::Events => &[("events.xsd", include_str!("../schemas/events.xsd"))],
        }
    }

    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Devices => include_bytes!("../schemas/devices.exig"),
            Self::Events => include_bytes!("../schemas/events.exig"),
        }
    }
}

impl Schema {
    /// Loads the compiled schema of these messages.
    ///
    /// ```
    /// use chappe_exi::{MessageSchema, Schema};
    /// let schema = Schema::for_messages(MessageSchema::Devices);
    /// assert_eq!(schema.id(), "dev1");
    /// ```
    #[must_use]
    pub fn for_messages(messages: MessageSchema) -> Self {
        match Self::from_bytes(messages.bytes()) {
            Ok(schema) => schema,
            // A test loads every one of them.
            Err(error) => unreachable!("the grammars in this crate are valid: {error}"),
        }
    }

    /// Compiles the schema of these messages together with schemas of their content, which are complete: documents
    /// that they import are skipped. The schemaId is empty.
    ///
    /// # Errors
    /// The first problem of a document, with its line.
    ///
    /// ```
    /// use chappe_exi::{Limits, MessageSchema, Schema, XsdSource};
    /// let document = br#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:x">
    ///   <xs:element name="Level" type="xs:double"/>
    /// </xs:schema>"#;
    /// let source = XsdSource { name: "level".into(), document: document.to_vec() };
    /// let schema = Schema::for_messages_with(MessageSchema::Devices, vec![source], &Limits::default())?;
    /// # Ok::<(), chappe_exi::XsdError>(())
    /// ```
    #[cfg(feature = "std")]
    pub fn for_messages_with(
        messages: MessageSchema,
        content: Vec<XsdSource>,
        limits: &Limits,
    ) -> Result<Self, XsdError> {
        let documents = messages.documents().iter();
        let documents = documents.map(|(name, text)| XsdSource {
            name: (*name).to_owned(),
            document: text.as_bytes().to_vec(),
        });
        let sources = documents.chain(content).collect();
        // All documents are given.
        Self::from_xsd_within(sources, &mut |_, _| None, limits)
    }
}
