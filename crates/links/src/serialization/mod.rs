//! The wire formats of elements: XML, postcard, MessagePack.
//!
//! A [`Document`] is one message: the structure of a stream, elements of it with the id and version
//! of their schema, or a loss. Decoding returns exactly the encoded values, bit by bit (doubles
//! that are not a number become the one NaN of the format). `docs/reference/links.md` describes the formats
//! for other programs.
//!
//! XML and MessagePack name the fields, so that a writer may use any order and leave out null
//! values; [`Elements::shape`] restores the order of the schema.

mod message_pack;
mod pack;
mod postcard;
mod xml;

use std::fmt;

use chappe_stream::{
    Epoch, FieldType, Position, Quality, SchemaError, StreamElement, StreamSchema, Value,
};
use serde::{Deserialize, Serialize};

use super::{LossReason, Serialization};

/// Largest document in bytes; reason: a reader keeps a whole one in memory, and the largest element
/// of a stream takes 2 MiB, a third more in XML.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Bytes of the elements of one document, as they are in memory; a larger element has a document of
/// its own. With 1 MiB, the postcard and MessagePack encodings stay below [`DOCUMENT_BYTES_MAX`].
const ELEMENTS_BYTES_MAX: usize = 1 << 20;
/// Greatest number of an element in a document; reason: its successors need numbers too.
pub const NUMBER_MAX: u64 = u64::MAX - 2;
/// Most elements of a document; reason: a document is acknowledged, and sent again, as a whole.
pub const ELEMENTS_MAX: usize = 4_096;
/// Most fields of a schema in a document; reason: SQLite's default limit of columns.
pub const FIELDS_MAX: usize = 2_000;

/// Identifies a schema by content: the first eight bytes of the SHA-256 of its JSON.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SchemaId(pub [u8; 8]);

impl SchemaId {
    /// The id of a schema.
    #[must_use]
    pub fn of(schema: &StreamSchema) -> Self {
        // A schema is plain data: it always encodes.
        let json = serde_json::to_vec(schema).unwrap_or_default();
        let digest = ring::digest::digest(&ring::digest::SHA256, &json);
        let mut id = [0; 8];
        id.copy_from_slice(&digest.as_ref()[..8]);
        Self(id)
    }

    /// Reads 16 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u64::from_str_radix(text, 16).ok().filter(|_| fits)?;
        Some(Self(number.to_be_bytes()))
    }
}

impl fmt::Display for SchemaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A schema by its id, and its version at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct SchemaRef {
    /// The schema's id.
    pub id: SchemaId,
    /// Its version at the origin.
    pub version: u32,
}

/// A message between origin and reader.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// The structure of the following elements.
    Structure(Structure),
    /// Elements.
    Elements(Elements),
    /// Elements that never arrive.
    Lost(Lost),
    /// The origin was rolled back to before the reader's position.
    Rollback(Rollback),
    /// A keep-alive; for a reader of new elements only, the first one has the start position.
    Alive(Option<Position>),
}

/// The structure of a stream's elements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Structure {
    /// The stream.
    pub stream: String,
    /// The version of its schema at the origin; its id is that of `schema`.
    pub version: u32,
    /// Its schema.
    pub schema: StreamSchema,
}

/// Elements of one stream and schema.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Elements {
    /// The stream.
    pub stream: String,
    /// The schema.
    pub schema: SchemaRef,
    /// The names of the values in their order; empty: those of the schema.
    pub names: Vec<String>,
    /// The elements, with their positions at the sender.
    pub elements: Vec<StreamElement>,
    /// The number of the newest element at the origin, if it is not among these.
    pub last: Option<u64>,
}

/// Numbers of a stream that never arrive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The stream.
    pub stream: String,
    /// The epoch.
    pub epoch: Epoch,
    /// The first.
    pub from: u64,
    /// The number after the last.
    pub next: u64,
    /// The reason.
    pub reason: LossReason,
}

/// The origin was rolled back to before the reader's position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The stream.
    pub stream: String,
    /// The last position that both have, if the origin knows it.
    pub kept: Option<Position>,
    /// The position at which the origin continues.
    pub next: Position,
}

/// Bytes that are not a document, or elements that do not fit their schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SerializationError {
    /// The bytes end within a document that is valid so far.
    #[error("the document ends too early")]
    Incomplete,
    /// The bytes are not a document.
    #[error("byte {offset}: {why}")]
    Malformed {
        /// The offset of the fault.
        offset: usize,
        /// The fault.
        why: String,
    },
    /// A limit is exceeded.
    #[error("{what} is above the limit of {limit}")]
    Limit {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// An element does not fit the schema.
    #[error("element {position}: {error}")]
    Schema {
        /// Its position.
        position: Position,
        /// What does not fit.
        error: SchemaError,
    },
    /// An element has a field that the schema does not know.
    #[error("the schema has no field {0:?}")]
    Field(String),
}

impl Serialization {
    /// The name in messages between nodes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Xml => "xml",
            Self::Postcard => "postcard",
            Self::MessagePack => "message_pack",
        }
    }

    /// Parses the name of a serialization.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Xml, Self::Postcard, Self::MessagePack];
        all.into_iter().find(|it| it.as_str() == word)
    }

    /// The media type in HTTP.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Xml => "application/xml",
            Self::Postcard => "application/vnd.chappe.postcard",
            Self::MessagePack => "application/vnd.msgpack",
        }
    }

    /// The serialization of a media type; parameters are ignored.
    #[must_use]
    pub fn of_media_type(media_type: &str) -> Option<Self> {
        let bare = media_type.split(';').next().unwrap_or_default().trim();
        match bare.to_ascii_lowercase().as_str() {
            "application/xml" | "text/xml" => Some(Self::Xml),
            "application/vnd.chappe.postcard" => Some(Self::Postcard),
            "application/vnd.msgpack" | "application/msgpack" | "application/x-msgpack" => {
                Some(Self::MessagePack)
            }
            _ => None,
        }
    }

    /// Appends `document` to `bytes`. `schema` names the fields of elements.
    ///
    /// # Errors
    /// Elements that do not fit the schema, or a document above its limits.
    pub fn encode(
        self,
        document: &Document,
        schema: &StreamSchema,
        bytes: &mut Vec<u8>,
    ) -> Result<(), SerializationError> {
        if let Document::Elements(elements) = document {
            limit(
                "the number of elements",
                elements.elements.len(),
                ELEMENTS_MAX,
            )?;
            for element in &elements.elements {
                let position = element.position;
                schema
                    .check(element)
                    .map_err(|error| SerializationError::Schema { position, error })?;
            }
        }
        let before = bytes.len();
        match self {
            Self::Xml => xml::encode(document, schema, bytes),
            Self::Postcard => postcard::encode(document, bytes)?,
            Self::MessagePack => message_pack::encode(document, schema, bytes),
        }
        limit("the document", bytes.len() - before, DOCUMENT_BYTES_MAX)
    }

    /// Decodes the document at the start of `bytes`; also returns how many bytes it takes.
    ///
    /// # Errors
    /// [`SerializationError::Incomplete`] if more bytes can complete the document.
    pub fn decode(self, bytes: &[u8]) -> Result<(Document, usize), SerializationError> {
        let outcome = match self {
            Self::Xml => xml::decode(bytes),
            Self::Postcard => postcard::decode(bytes),
            Self::MessagePack => message_pack::decode(bytes),
        };
        match outcome {
            Err(SerializationError::Incomplete) => {
                limit("the document", bytes.len(), DOCUMENT_BYTES_MAX)?;
                Err(SerializationError::Incomplete)
            }
            Ok((_, used)) if used > DOCUMENT_BYTES_MAX => {
                limit("the document", used, DOCUMENT_BYTES_MAX)?;
                Err(SerializationError::Incomplete)
            }
            Ok((document, _)) if document.greatest() > NUMBER_MAX => {
                let (what, limit) = ("the number of an element", NUMBER_MAX as usize);
                Err(SerializationError::Limit { what, limit })
            }
            other => other,
        }
    }
}

/// How many of these elements fit one document: at most `most`, and at least one.
pub(crate) fn count_for_document(elements: &[StreamElement], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |element: &&StreamElement| {
        bytes += element.size_bytes();
        bytes <= ELEMENTS_BYTES_MAX
    };
    let count = elements.iter().take(most).take_while(fits).count();
    count.clamp(1, elements.len().max(1))
}

impl Document {
    /// The greatest number in the document.
    fn greatest(&self) -> u64 {
        match self {
            Self::Structure(_) | Self::Alive(None) => 0,
            Self::Elements(elements) => {
                let numbers = elements.elements.iter().map(|it| it.position.sequence);
                numbers.chain(elements.last).max().unwrap_or(0)
            }
            Self::Lost(lost) => lost.from.max(lost.next),
            Self::Rollback(back) => {
                let kept = back.kept.map_or(0, |kept| kept.sequence);
                back.next.sequence.max(kept)
            }
            Self::Alive(Some(after)) => after.sequence,
        }
    }
}

impl Elements {
    /// The same header with these elements.
    pub(crate) fn with(&self, elements: &[StreamElement]) -> Self {
        Self {
            stream: self.stream.clone(),
            schema: self.schema,
            names: self.names.clone(),
            elements: elements.to_vec(),
            last: self.last,
        }
    }

    /// The elements with their values in the order of `schema`: null for missing ones; an integer
    /// becomes a double where the schema has one, if the conversion is exact.
    ///
    /// # Errors
    /// The first field or value that does not fit.
    pub fn shape(self, schema: &StreamSchema) -> Result<Vec<StreamElement>, SerializationError> {
        let fields = &schema.fields;
        let same = self.names.is_empty()
            || self.names.len() == fields.len()
                && self
                    .names
                    .iter()
                    .zip(fields)
                    .all(|(name, field)| *name == field.name);
        let place = |name: &String| {
            let found = fields.iter().position(|field| field.name == *name);
            found.ok_or_else(|| SerializationError::Field(name.chars().take(64).collect()))
        };
        let places: Vec<usize> = match same {
            true => Vec::new(),
            false => self.names.iter().map(place).collect::<Result<_, _>>()?,
        };
        let mut elements = self.elements;
        for element in &mut elements {
            if !same {
                let mut values = vec![Value::Null; fields.len()];
                for (place, value) in places.iter().zip(element.values.drain(..)) {
                    values[*place] = value;
                }
                element.values = values;
            }
            for (field, value) in fields.iter().zip(&mut element.values) {
                widen(field.field_type, value);
            }
            let position = element.position;
            schema
                .check(element)
                .map_err(|error| SerializationError::Schema { position, error })?;
        }
        Ok(elements)
    }
}

/// Other languages write 3 for 3.0.
pub(crate) fn widen(wanted: FieldType, value: &mut Value) {
    if let (FieldType::Double, Value::Integer(number)) = (wanted, &*value)
        && number.unsigned_abs() <= 1 << 53
    {
        *value = Value::Double(*number as f64);
    }
}

fn limit(what: &'static str, found: usize, limit: usize) -> Result<(), SerializationError> {
    match found > limit {
        true => Err(SerializationError::Limit { what, limit }),
        false => Ok(()),
    }
}

fn quality_word(quality: Quality) -> &'static str {
    match quality {
        Quality::Good => "good",
        Quality::Questionable => "questionable",
        Quality::Bad => "bad",
    }
}

fn quality_of(word: &str) -> Option<Quality> {
    let all = [Quality::Good, Quality::Questionable, Quality::Bad];
    all.into_iter().find(|it| quality_word(*it) == word)
}

fn loss_of(word: &str) -> Option<LossReason> {
    let all = [
        LossReason::Trimmed,
        LossReason::Corrupt,
        LossReason::TooLarge,
        LossReason::Skipped,
    ];
    all.into_iter().find(|it| it.as_str() == word)
}

fn type_word(field_type: FieldType) -> &'static str {
    match field_type {
        FieldType::Boolean => "boolean",
        FieldType::Integer => "integer",
        FieldType::Double => "double",
        FieldType::Text => "text",
        FieldType::Bytes => "bytes",
        FieldType::Samples => "samples",
    }
}

fn type_of(word: &str) -> Option<FieldType> {
    let all = [
        FieldType::Boolean,
        FieldType::Integer,
        FieldType::Double,
        FieldType::Text,
        FieldType::Bytes,
        FieldType::Samples,
    ];
    all.into_iter().find(|it| type_word(*it) == word)
}
