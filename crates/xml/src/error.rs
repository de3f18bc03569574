//! Why a document is refused, and where.

/// A refused document or a misused writer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (byte {offset})")]
pub struct Error {
    /// Byte offset in the input at which the reason was seen; zero when there is no input.
    pub offset: u64,
    /// Why.
    pub reason: Reason,
}

/// Why a document is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The input ends before the root element does.
    #[error("the document is truncated")]
    Truncated,
    /// Not well-formed.
    #[error("not well-formed XML: {0}")]
    Malformed(String),
    /// A document type declaration: entities and external files are never read.
    #[error("a document type declaration is not accepted")]
    DocumentType,
    /// An entity other than the five predefined ones.
    #[error("entity &{0}; is not defined")]
    Entity(String),
    /// Bytes that are not UTF-8, or a declaration of another encoding.
    #[error("only UTF-8 is read")]
    Encoding,
    /// A prefix that is not bound here.
    #[error("prefix {0:?} is not bound")]
    UnboundPrefix(String),
    /// One of [`Limits`](crate::Limits) is reached.
    #[error("limit {limit} of {bound} is exceeded")]
    Limit {
        /// The field of [`Limits`](crate::Limits).
        limit: &'static str,
        /// Its value.
        bound: usize,
    },
    /// The caller's events make no document.
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
