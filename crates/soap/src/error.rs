//! Errors of SOAP messages.

use chappe_xml::Name;

use crate::AddressingVersion;
use crate::addressing::REFERENCE_BYTES_MAX;

/// A SOAP message is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not XML, or above a limit.
    #[error(transparent)]
    Xml(#[from] chappe_xml::Error),
    /// The root element is not a SOAP envelope.
    #[error("{0} is not a SOAP envelope")]
    NotEnvelope(Name),
    /// An envelope of the other version; the answer is the `VersionMismatch` fault.
    #[error("the envelope has a version of SOAP that is not supported here")]
    VersionMismatch,
    /// The Body of a SOAP 1.1 message does not have exactly one child.
    #[error("the Body has {0} elements; exactly one is allowed")]
    NotOneBlock(usize),
    /// The envelope has no body.
    #[error("the envelope has no Body")]
    NoBody,
    /// The envelope has other children than an optional Header followed by a Body.
    #[error(
        "the envelope has an unexpected child {0}; only an optional Header followed by a Body is allowed"
    )]
    Structure(Name),
    /// The Header or Body has too many children.
    #[error("the Header or the Body has more than {0} children")]
    TooManyBlocks(usize),
    /// No action header in a known WS-Addressing namespace.
    #[error("the WS-Addressing header {header} is missing")]
    MissingHeader {
        /// The version of the message's other headers; the default if there are none.
        version: AddressingVersion,
        /// The header.
        header: &'static str,
    },
    /// A header is repeated.
    #[error("the WS-Addressing header {header} is repeated")]
    DuplicateHeader {
        /// The version of the message.
        version: AddressingVersion,
        /// The header.
        header: &'static str,
    },
    /// A part that the specification requires is missing.
    #[error("{element} has no {what}")]
    Incomplete {
        /// The element.
        element: Name,
        /// The missing or invalid part.
        what: &'static str,
    },
    /// An endpoint reference exceeds the limit.
    #[error(
        "{element} has {bytes} bytes of address and reference parameters (limit {REFERENCE_BYTES_MAX})"
    )]
    LongReference {
        /// The endpoint reference.
        element: Name,
        /// Bytes of its address and parameters.
        bytes: usize,
    },
}

impl Error {
    /// The version of WS-Addressing that the invalid message uses, if the error lies in one of its
    /// headers or endpoint references.
    #[must_use]
    pub fn addressing_version(&self) -> Option<AddressingVersion> {
        match self {
            Self::MissingHeader { version, .. } | Self::DuplicateHeader { version, .. } => {
                Some(*version)
            }
            Self::Incomplete { element, .. } | Self::LongReference { element, .. } => {
                AddressingVersion::from_namespace(&element.namespace)
            }
            _ => None,
        }
    }
}
