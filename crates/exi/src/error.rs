//! Errors of encoding and decoding: the cause, the bit and the path of open elements.

use alloc::string::String;
use core::fmt;

/// A stream that cannot be decoded, or events that cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause} (bit {offset}, byte {}{})", offset / 8, In(path))]
pub struct Error {
    /// Bit offset from the start of the stream at which the cause was detected; when encoding, the
    /// number of bits written. Within a compressed block, the offset in the inflated block.
    pub offset: u64,
    /// Open elements, outermost first: `/Envelope/Body`.
    pub path: String,
    /// The cause.
    pub cause: Cause,
}

struct In<'a>(&'a str);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, ", in {}", self.0)
    }
}

/// The cause of an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The stream ends before its document is complete.
    #[error("the stream is truncated")]
    Truncated,
    /// The source of the stream failed.
    #[error("cannot read the stream: {0}")]
    Source(String),
    /// The first bits are not the distinguishing bits of an EXI stream (5.2).
    #[error("not an EXI stream: it does not start with the bits 10{}", hint(.0))]
    NotExi(&'static str),
    /// The stream has an unsupported format version.
    #[error("format version {0} is not supported, only version 1")]
    Version(u32),
    /// Options that exclude each other (5.4), or an option that the stream's header forbids.
    #[error("option {option}: {why}")]
    Option {
        /// The option's name in the specification.
        option: &'static str,
        /// The problem.
        why: &'static str,
    },
    /// Neither the header nor the caller gives the options of the body.
    #[error("the stream has no options in its header, so the caller must supply them")]
    OptionsMissing,
    /// The stream was encoded with a schema other than the loaded one.
    #[error(
        "the stream requires schema {wanted:?}, {loaded}: supply the schema that it was encoded with"
    )]
    Schema {
        /// The schemaId in the header.
        wanted: String,
        /// A description of the loaded schema.
        loaded: String,
    },
    /// An event code that the current grammar does not contain.
    #[error(
        "the grammar has no event code {0} here: the stream is damaged, or was encoded with another schema"
    )]
    EventCode(u32),
    /// A compact identifier that the string table does not contain.
    #[error(
        "the string table has no {table} {identifier}: the stream is damaged, or was encoded with another schema"
    )]
    Identifier {
        /// The partition of the string table.
        table: &'static str,
        /// The identifier.
        identifier: u64,
    },
    /// A decoded value outside the range of its datatype.
    #[error("the value is out of range: expected {0}")]
    OutOfRange(&'static str),
    /// The DEFLATE data of a block cannot be inflated.
    #[error("the compressed block is not valid DEFLATE data")]
    Inflate,
    /// Bytes follow the end of the document.
    #[error("{0} bytes follow the document")]
    Trailing(usize),
    /// One of the [`Limits`](crate::Limits) is exceeded.
    #[error("limit {limit} of {bound} is exceeded")]
    Limit {
        /// The field of [`Limits`](crate::Limits).
        limit: &'static str,
        /// Its value.
        bound: u64,
    },
    /// An event that the strict grammar does not allow.
    #[error("the strict schema does not allow {0} here")]
    NotAllowed(String),
    /// A value that the datatype of a strict schema cannot represent.
    #[error("{value:?} is not of type {datatype}, which the strict schema requires")]
    NotTyped {
        /// The lexical form, shortened.
        value: String,
        /// The datatype.
        datatype: String,
    },
    /// The caller's events do not form a document.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

fn hint(found: &str) -> alloc::string::String {
    if found.is_empty() {
        String::new()
    } else {
        alloc::format!("; it looks like {found}")
    }
}

impl Cause {
    pub(crate) const fn limit(limit: &'static str, bound: u64) -> Self {
        Self::Limit { limit, bound }
    }
}
