//! Why bytes are no usable SOAP message.

use chappe_xml::Name;

use crate::addressing::REFERENCE_BYTES_MAX;

/// Bytes or elements that are no usable SOAP message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not XML, or beyond a limit.
    #[error(transparent)]
    Xml(#[from] chappe_xml::Error),
    /// A root element that is no SOAP envelope.
    #[error("{0} is no SOAP 1.2 envelope")]
    NotEnvelope(Name),
    /// An envelope of SOAP 1.1: answered with the `VersionMismatch` fault.
    #[error("the envelope is of SOAP 1.1, SOAP 1.2 is spoken here")]
    VersionMismatch,
    /// The envelope has no body.
    #[error("the envelope has no Body")]
    NoBody,
    /// The children of the envelope are not one optional Header and then one Body.
    #[error("the envelope holds {0} where only a Header and then a Body may stand")]
    Structure(Name),
    /// More children of the Header or the Body than the limit.
    #[error("the Header or the Body has more than {0} children")]
    TooManyBlocks(usize),
    /// No action header in a known WS-Addressing namespace.
    #[error("the WS-Addressing header {0} is missing")]
    MissingHeader(&'static str),
    /// A header that may stand once stands twice.
    #[error("the WS-Addressing header {0} stands more than once")]
    DuplicateHeader(String),
    /// An element that lacks something its specification demands.
    #[error("{element} lacks {what}")]
    Incomplete {
        /// The element.
        element: Name,
        /// What is missing or wrong.
        what: &'static str,
    },
    /// An endpoint reference that would be kept, and sent back with each message.
    #[error(
        "{element} has {bytes} bytes of address and reference parameters, the limit is {REFERENCE_BYTES_MAX}"
    )]
    LongReference {
        /// The endpoint reference.
        element: Name,
        /// What its address and parameters take.
        bytes: usize,
    },
}
