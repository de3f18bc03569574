//! Letters of wrappers and exporters.

use chappe_log::Appended;
use chappe_stream::{
    CodecError, Position, StreamElement, StreamSchema, Timestamp, decode_element, encode_element,
};
use serde::{Deserialize, Serialize};

use super::{DeadLetters, Entry, LinkError, fit};

/// A letter of a wrapper or an exporter.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerLetter {
    /// A message that a wrapper could not decode, or an element that the peer of an exporter refused.
    Message(Message),
    /// The first bytes of a message that is too long to be kept whole. It cannot be decoded again.
    Beginning(Message),
    /// An element of a wrapper that its stream refused.
    Element(RefusedElement),
}

/// A message that a wrapper could not decode, or an element that the peer of an exporter refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The stream here, if it is known.
    pub stream: Option<String>,
    /// Why it is dead.
    pub reason: String,
    /// When it was received.
    pub received: Timestamp,
    /// The message as received, or the position of the element.
    pub bytes: Vec<u8>,
}

/// An element of a wrapper that its stream refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedElement {
    /// The stream here.
    pub stream: String,
    /// Why it is dead.
    pub reason: String,
    /// When it was refused.
    pub received: Timestamp,
    /// The schema that its message gave it.
    pub schema: StreamSchema,
    source_time: Timestamp,
    record: Vec<u8>,
}

impl PeerLetter {
    /// The stream here, if it is known.
    #[must_use]
    pub fn stream(&self) -> Option<&str> {
        match self {
            Self::Message(message) | Self::Beginning(message) => message.stream.as_deref(),
            Self::Element(refused) => Some(&refused.stream),
        }
    }

    /// Why it is dead.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Message(message) | Self::Beginning(message) => &message.reason,
            Self::Element(refused) => &refused.reason,
        }
    }

    /// When it was received.
    #[must_use]
    pub fn received(&self) -> Timestamp {
        match self {
            Self::Message(message) | Self::Beginning(message) => message.received,
            Self::Element(refused) => refused.received,
        }
    }
}

impl RefusedElement {
    /// An element of a schema, without its position at the origin.
    ///
    /// # Errors
    /// It is too large for any stream.
    pub fn new(
        stream: String,
        reason: String,
        received: Timestamp,
        schema: StreamSchema,
        mut element: StreamElement,
    ) -> Result<Self, CodecError> {
        element.origin = None;
        Ok(Self {
            stream,
            reason,
            received,
            schema,
            source_time: element.source_time,
            record: encode_element(&element, 0)?,
        })
    }

    /// The element, in the shape of its own schema.
    ///
    /// # Errors
    /// A description of bytes that do not decode.
    pub fn element(&self) -> Result<StreamElement, String> {
        let decoded = decode_element(&self.record, Position::default(), self.source_time);
        let (element, _) = decoded.map_err(|error| error.to_string())?;
        Ok(element)
    }

    /// The element, in the shape of another schema.
    ///
    /// # Errors
    /// Why it does not fit.
    pub fn element_for(&self, schema: &StreamSchema) -> Result<StreamElement, String> {
        let mut element = self.element()?;
        let values = std::mem::take(&mut element.values);
        element.values = fit(&self.schema, values, schema)?;
        Ok(element)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.record.len() as u64
    }
}

impl DeadLetters {
    /// Queues a letter; it is safe when the result resolves. Waits for the disk if it is the first.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn put_peer(&self, letter: PeerLetter) -> Result<Appended, LinkError> {
        let received = letter.received();
        let entry = match letter {
            PeerLetter::Message(message) => Entry::Message(message),
            PeerLetter::Beginning(message) => Entry::Beginning(message),
            PeerLetter::Element(refused) => Entry::Element(refused),
        };
        self.keep(received, entry)
    }

    /// The letters from a number on, at most `count`, with their numbers. Reads the disk.
    ///
    /// # Errors
    /// Errors of the log.
    pub fn peer_letters(
        &self,
        from: u64,
        count: usize,
    ) -> Result<Vec<(u64, PeerLetter)>, LinkError> {
        let numbers = self.numbers(from, count).into_iter();
        // One that is not safe yet, or damaged, is not listed.
        let letter = |number| Some((number, self.peer_letter(number).ok()?));
        Ok(numbers.filter_map(letter).collect())
    }

    /// The letter of this number. Reads the disk.
    ///
    /// # Errors
    /// There is none.
    pub fn peer_letter(&self, number: u64) -> Result<PeerLetter, LinkError> {
        match self.entry(number)? {
            Entry::Message(message) => Ok(PeerLetter::Message(message)),
            Entry::Beginning(message) => Ok(PeerLetter::Beginning(message)),
            Entry::Element(refused) => Ok(PeerLetter::Element(refused)),
            Entry::Letter(_)
            | Entry::SentAgain(_)
            | Entry::StartPosition(..)
            | Entry::Refused(_) => Err(LinkError::NoLetter(number)),
        }
    }
}
