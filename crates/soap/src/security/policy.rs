//! What an endpoint asks of signed messages.

use std::time::Duration;

use chappe_xml::Limits;

/// How old a message may be. Default 5 minutes, as SOAP stacks choose: it is how long each accepted
/// message must be remembered.
pub const MAX_AGE: Duration = Duration::from_secs(300);
/// How much the clocks of sender and receiver may differ. Default 1 minute.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Whether an endpoint asks for signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Signatures are not looked at.
    #[default]
    Off,
    /// Messages without a signature are accepted; one that has a signature must be valid.
    Accepted,
    /// Messages without a signature are refused.
    Required,
}

/// What an endpoint asks of signed messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether SHA-1 is accepted, in signatures and digests. Default no: it is broken, and only for
    /// peers that know nothing else.
    pub allows_sha1: bool,
    /// Whether the token with the certificate must be signed too. Default no, because most peers do
    /// not sign it. If it is not signed, it can be exchanged for another trusted certificate of the
    /// same key: then rely on the key, not on the subject.
    pub requires_signed_token: bool,
    /// How old a message may be; default [`MAX_AGE`]. Start with a new
    /// [`ReplayCache`](super::ReplayCache) after raising it: the old one has forgotten messages that
    /// are valid again.
    pub max_age: Duration,
    /// How much clocks may differ; default [`CLOCK_SKEW`]. The same holds for raising it.
    pub clock_skew: Duration,
    /// The addresses of the endpoint. If there are any, the signed header `To` must be one of them:
    /// without it, a message for another node could be sent to this one.
    pub addressees: Vec<String>,
    /// Limits of the message.
    pub limits: Limits,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allows_sha1: false,
            requires_signed_token: false,
            max_age: MAX_AGE,
            clock_skew: CLOCK_SKEW,
            addressees: Vec::new(),
            limits: Limits::default(),
        }
    }
}
