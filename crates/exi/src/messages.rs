//! The schemas of web service messages, compiled into the crate.
//!
//! [`Messages::Devices`] is that of SOAP 1.2, WS-Addressing, WS-Eventing and DPWS: whatever is in a
//! header or body and not declared rides in wildcards, by built-in grammars. [`Messages::Events`] is
//! that of event messages between the nodes of a notification tree, ten elements and no envelope.
//!
//! The schema documents are in `schemas/`; a test compiles them anew and compares.

use crate::schema::Schema;

/// A schema that both sides have without exchanging it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Messages {
    /// SOAP 1.2, WS-Addressing 2005/08, WS-Eventing 2004/08 and DPWS 1.1.
    Devices,
    /// Events of the optimized WS-Eventing: Action, EventID, ReplyTo, MsgNr, RelatesTo, Sink-IP,
    /// Subscription-IP, Subscription-ID, IP-List, EventData.
    Events,
}

impl Messages {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Devices, Self::Events];

    /// The schemaId under which streams name it. A change of the schema changes it.
    #[must_use]
    pub const fn schema_id(self) -> &'static str {
        match self {
            Self::Devices => "dev1",
            Self::Events => "ev1",
        }
    }

    /// The schema of this schemaId.
    #[must_use]
    pub fn of_schema_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.schema_id() == id)
    }

    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Devices => include_bytes!("../schemas/devices.exig"),
            Self::Events => include_bytes!("../schemas/events.exig"),
        }
    }
}

impl Schema {
    /// The schema of these messages, loaded from what is compiled in.
    ///
    /// ```
    /// use chappe_exi::{Messages, Schema};
    /// let schema = Schema::of_messages(Messages::Devices);
    /// assert_eq!(schema.id(), "dev1");
    /// ```
    #[must_use]
    pub fn of_messages(messages: Messages) -> Self {
        match Self::from_bytes(messages.bytes()) {
            Ok(schema) => schema,
            // A test loads them all.
            Err(error) => unreachable!("the grammars in this crate are whole: {error}"),
        }
    }
}
