//! Errors of reading and writing documents: the reason and its byte offset.

/// A document that cannot be read, or a misused writer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (byte {offset})")]
pub struct Error {
    /// Byte offset in the input at which the reason was detected; zero without an input.
    pub offset: u64,
    /// The reason.
    pub reason: Reason,
}

/// The reason of an [`Error`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The input ends before the root element is complete.
    #[error("the document is truncated")]
    Truncated,
    /// The document is not well-formed.
    #[error("not well-formed XML: {0}")]
    Malformed(String),
    /// The document has a document type declaration. Entities and external files are never read.
    #[error("document type declarations are not supported")]
    DocumentType,
    /// The document refers to an entity other than the five predefined ones.
    #[error("entity &{0}; is not defined")]
    Entity(String),
    /// The document is not UTF-8, or declares another encoding.
    #[error("the encoding is not UTF-8, the only one supported")]
    Encoding,
    /// A prefix is not bound.
    #[error("prefix {0:?} is not bound")]
    UnboundPrefix(String),
    /// One of the [`Limits`](crate::Limits) is exceeded.
    #[error("limit {limit} of {bound} is exceeded")]
    Limit {
        /// The field of [`Limits`](crate::Limits).
        limit: &'static str,
        /// Its value.
        bound: usize,
    },
    /// The caller's events do not form a document.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

impl Error {
    pub(crate) const fn at(offset: u64, reason: Reason) -> Self {
        Self { offset, reason }
    }

    pub(crate) const fn misuse(what: &'static str) -> Self {
        Self::at(0, Reason::Misuse(what))
    }
}
