//! The reasons why a signed message is not accepted, or a message cannot be signed.

use chappe_identity::certificate::CertificateError;
use chappe_xml::Name;

/// A message is not accepted, or cannot be signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// Not XML, or above a limit.
    #[error(transparent)]
    Xml(#[from] chappe_xml::Error),
    /// The envelope has not the structure of SOAP.
    #[error("the envelope is not of SOAP 1.1 or 1.2: {0}")]
    Envelope(&'static str),
    /// The endpoint requires a signature.
    #[error("the message is not signed")]
    NotSigned,
    /// The `Security` header or a part of it is missing, repeated or malformed.
    #[error("the Security header is not valid: {0}")]
    Header(&'static str),
    /// An algorithm is unknown, or not allowed by the policy.
    #[error("the algorithm {0:?} is not allowed")]
    Algorithm(String),
    /// The token is of a kind that is not supported.
    #[error("the signature's key is given in a way that is not supported: {0}")]
    Token(&'static str),
    /// The certificate is not accepted.
    #[error("the signer's certificate is not accepted: {0}")]
    Certificate(#[from] CertificateError),
    /// A reference names no element that may be signed, or several.
    #[error("the reference to {id:?} is not valid: {why}")]
    Reference {
        /// The identifier, truncated.
        id: String,
        /// The reason.
        why: &'static str,
    },
    /// The digest of an element does not match: it was changed.
    #[error("the element {0} was changed after it was signed")]
    Digest(Name),
    /// An element that must be signed is not.
    #[error("the element {0} is not signed")]
    Unsigned(Name),
    /// The message was made too long ago, or has expired.
    #[error("the message has expired")]
    Expired,
    /// The message was made in the future.
    #[error("the message was created in the future")]
    Future,
    /// The message was accepted before.
    #[error("the message was received before")]
    Replayed,
    /// The message is older than what the cache of replays knows.
    #[error("the message was created before replays could be recognized")]
    BeforeReplays,
    /// The cache of replays is full, so that a replay could not be recognized.
    #[error("too many messages to recognize replays ({0})")]
    ReplaysFull(&'static str),
    /// The message is for another endpoint.
    #[error("the message is addressed to another endpoint")]
    Addressee,
    /// The message is not the answer to the request: it relates to another one, or to none.
    #[error("the message answers another request")]
    Unrelated,
    /// The message has a valid signature, but another peer signed earlier ones.
    #[error("the message is signed by {0}, and earlier ones are not")]
    Signer(String),
    /// The signed parts are no SOAP message.
    #[error(transparent)]
    Message(#[from] crate::Error),
    /// The caller's certificates do not belong to its key.
    #[error("the first certificate is not of the signing key")]
    KeyMismatch,
    /// The source of random bytes fails.
    #[error("no random bytes")]
    Random,
}

impl SecurityError {
    pub(super) fn reference(id: &str, why: &'static str) -> Self {
        Self::Reference {
            id: shortened(id),
            why,
        }
    }

    pub(super) fn algorithm(algorithm: &str) -> Self {
        Self::Algorithm(shortened(algorithm))
    }

    /// The subcode of the fault for the sender (SOAP Message Security 1.1, section 12), in the
    /// namespace [`WSSE`](super::WSSE).
    #[must_use]
    pub const fn fault_subcode(&self) -> &'static str {
        match self {
            Self::Algorithm(_) => "UnsupportedAlgorithm",
            Self::Token(_) => "UnsupportedSecurityToken",
            Self::Certificate(CertificateError::Signature) | Self::Digest(_) => "FailedCheck",
            Self::Certificate(_) => "InvalidSecurityToken",
            Self::Expired | Self::Future => "MessageExpired",
            Self::NotSigned
            | Self::Replayed
            | Self::BeforeReplays
            | Self::Addressee
            | Self::Unrelated
            | Self::Signer(_) => "FailedAuthentication",
            _ => "InvalidSecurity",
        }
    }
}

/// Limits text of the sender in an error.
fn shortened(text: &str) -> String {
    text.chars().take(128).collect()
}
