//! The forms in which elements travel: XML, postcard, MessagePack.
//!
//! A [`Document`] is what is said at once: the structure of a stream, elements of it with the id and
//! version of their schema, or that some never come. What is written is read as it was, bit by bit
//! (doubles that are not a number become the one that the form has). The forms are described for
//! other programs in `docs/links.md`.
//!
//! XML and MessagePack name the fields, so that a writer may give them in any order and leave out
//! what is null; [`Elements::shape`] gives them the order of the schema.

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

/// Largest document in bytes; reason: a reader holds one whole, and the largest element of a stream
/// takes 2 MiB, a third more in XML.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;
/// Bytes of the elements of one document, as they are in memory; a larger element has a document of its
/// own. 1 MiB: in postcard and MessagePack, whose documents hold several, they take less than
/// [`DOCUMENT_BYTES_MAX`].
const ELEMENTS_BYTES_MAX: usize = 1 << 20;
/// Greatest number of an element in a document; reason: what comes behind it has a number too.
pub const NUMBER_MAX: u64 = u64::MAX - 2;
/// Most elements of a document; reason: what is acknowledged at once is sent again at once.
pub const ELEMENTS_MAX: usize = 4_096;
/// Most fields of a schema in a document; reason: SQLite's default limit of columns.
pub const FIELDS_MAX: usize = 2_000;

/// Which schema, whoever wrote it: the first eight bytes of the SHA-256 of its JSON.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct SchemaId(pub [u8; 8]);

impl SchemaId {
    /// That of a schema.
    #[must_use]
    pub fn of(schema: &StreamSchema) -> Self {
        // A schema is plain data: it can always be written.
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

/// A schema by its id, and the number of its version at the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct SchemaRef {
    /// Which schema.
    pub id: SchemaId,
    /// Its version at the origin.
    pub version: u32,
}

/// What is said at once.
#[derive(Debug, Clone, PartialEq)]
pub enum Document {
    /// What the elements of a stream look like from here on.
    Structure(Structure),
    /// Elements.
    Elements(Elements),
    /// Elements that never come.
    Lost(Lost),
    /// The origin went back behind what the reader has.
    Rollback(Rollback),
    /// The origin lives. A reader that wanted only what is new is told behind which position that is.
    Alive(Option<Position>),
}

/// What the elements of a stream look like.
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
    /// The names of the values in their order; empty: as in the schema.
    pub names: Vec<String>,
    /// The elements; their positions are those at the sender.
    pub elements: Vec<StreamElement>,
    /// The number of the newest element at the origin, when that is not among these.
    pub last: Option<u64>,
}

/// Numbers of a stream that never come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The stream.
    pub stream: String,
    /// The epoch.
    pub epoch: Epoch,
    /// The first.
    pub from: u64,
    /// The number behind the last.
    pub next: u64,
    /// Why.
    pub reason: LossReason,
}

/// The origin went back behind what the reader has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollback {
    /// The stream.
    pub stream: String,
    /// The last element that both have, if the origin knows.
    pub kept: Option<Position>,
    /// How it goes on.
    pub next: Position,
}

/// Bytes that are no document, or elements that do not fit their schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SerializationError {
    /// The bytes end within a document; nothing else is wrong so far.
    #[error("the document ends too early")]
    Incomplete,
    /// The bytes are no document.
    #[error("byte {offset}: {why}")]
    Malformed {
        /// Where it was seen.
        offset: usize,
        /// The fault.
        why: String,
    },
    /// A limit is exceeded.
    #[error("{what} is above the limit of {limit}")]
    Limit {
        /// What.
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
    /// The word in messages between nodes.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Xml => "xml",
            Self::Postcard => "postcard",
            Self::MessagePack => "message_pack",
        }
    }

    /// The serialization of a word.
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

    /// The serialization of a media type; parameters are not looked at.
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
    /// Elements that do not fit the schema, or a document beyond its limits.
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

    /// The document at the beginning of `bytes`, and how many bytes it takes.
    ///
    /// # Errors
    /// [`SerializationError::Incomplete`] when more bytes may make a document of them.
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

/// How many of these elements one document takes: at most `most`, and at least one.
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
    /// The greatest number that it names.
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
    /// The same about these elements.
    pub(crate) fn with(&self, elements: &[StreamElement]) -> Self {
        Self {
            stream: self.stream.clone(),
            schema: self.schema,
            names: self.names.clone(),
            elements: elements.to_vec(),
            last: self.last,
        }
    }

    /// The elements with their values in the order of `schema`: null for what was left out; a whole
    /// number where the schema wants a double becomes one, if it is exact.
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

/// Programs in other languages write 3 for 3.0.
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
