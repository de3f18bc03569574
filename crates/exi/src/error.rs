//! Why a stream is refused, and where.

use alloc::string::String;
use core::fmt;

/// A refused stream, or events that a stream cannot hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause} (bit {offset}, byte {}{})", offset / 8, In(path))]
pub struct Error {
    /// The bit of the stream at which the cause was seen, counted from the begin of the stream; when
    /// encoding, how many bits had been written. Within a compressed block it is the block's.
    pub offset: u64,
    /// The open elements, outermost first: `/Envelope/Body`.
    pub path: String,
    /// Why.
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

/// Why a stream is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The stream ends before its document does.
    #[error("the stream is truncated")]
    Truncated,
    /// The source of the stream has failed.
    #[error("the stream cannot be read on: {0}")]
    Source(String),
    /// The first bits are not those of an EXI stream (5.2).
    #[error("this is no EXI stream: it does not begin with the bits 10{}", hint(.0))]
    NotExi(&'static str),
    /// A version of the format that is not known.
    #[error("version {0} of the format is not known, only version 1")]
    Version(u32),
    /// Options that exclude each other (5.4), or one that the stream's own header forbids.
    #[error("option {option}: {why}")]
    Option {
        /// Its standard name.
        option: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Neither the header nor the caller says with which options the body is to be read.
    #[error("the stream has no options in its header: they must be given")]
    OptionsMissing,
    /// The stream was made with another schema than the one at hand.
    #[error("the stream wants schema {wanted:?}, {loaded}: give the schema it was made with")]
    Schema {
        /// The schemaId in the header.
        wanted: String,
        /// What is loaded, in words.
        loaded: String,
    },
    /// An event code that the grammar does not have.
    #[error(
        "event code {0} does not exist here: the stream is damaged, or made with another schema"
    )]
    EventCode(u32),
    /// A compact identifier that the string table does not have.
    #[error(
        "there is no {table} {identifier} in the string table: the stream is damaged, or made with another schema"
    )]
    Identifier {
        /// Which partition.
        table: &'static str,
        /// The identifier.
        identifier: u64,
    },
    /// A value that its datatype does not have.
    #[error("out of range: this is not {0}")]
    OutOfRange(&'static str),
    /// The DEFLATE data of a block do not decompress.
    #[error("the compressed block does not decompress")]
    Inflate,
    /// Bytes after the end of the document.
    #[error("{0} bytes follow the document")]
    Trailing(usize),
    /// One of [`Limits`](crate::Limits) is reached.
    #[error("limit {limit} of {bound} is exceeded")]
    Limit {
        /// The field of [`Limits`](crate::Limits).
        limit: &'static str,
        /// Its value.
        bound: u64,
    },
    /// An event for which a strict grammar has no place.
    #[error("the strict schema does not allow {0} here")]
    NotAllowed(String),
    /// A value that the strict schema's datatype cannot represent.
    #[error("{value:?} is not {datatype}, as the strict schema wants")]
    NotTyped {
        /// The lexical form, shortened.
        value: String,
        /// The datatype.
        datatype: String,
    },
    /// The caller's events make no document.
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
