//! Judging the answer to a request that the caller sent itself.

use chappe_identity::CertificateName;
use chappe_identity::certificate::TrustStore;

use super::{Admitted, Mode, Policy, ReplayCache, SecurityError, Verified, admit};

/// What the caller knows of the answer to its request.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The identifier of the request, which must not be predictable: the answer has to relate to it, so that
    /// neither an older answer nor that to another request is accepted.
    pub message_id: &'a str,
    /// The certificate that signed earlier answers of the same peer. Then a message without a signature, or by
    /// another trusted peer, is not its answer.
    pub signer: Option<&'a CertificateName>,
}

/// An answer.
#[derive(Debug)]
pub enum Answered {
    /// It has no signature, or the caller does not look at it.
    Unsigned,
    /// It is signed.
    Signed(Box<Verified>),
}

/// Judges the answer to a request.
///
/// It needs no cache of replays: the identifier of the request is the caller's own, and used once.
///
/// # Errors
/// The signature is not valid, or absent where it is required; the message answers another request, or another
/// peer signed it. No part of the message may be used then.
pub fn admit_answer(
    document: &[u8],
    mode: Mode,
    policy: &Policy,
    trust: &TrustStore,
    expected: Expected<'_>,
    unix_s: u64,
) -> Result<Answered, SecurityError> {
    let mode = match (mode, expected.signer) {
        (Mode::Accepted, Some(_)) => Mode::Required,
        (mode, _) => mode,
    };
    let mut once = ReplayCache::empty();
    let verified = match admit(document, mode, policy, trust, &mut once, unix_s)? {
        Admitted::Unsigned => return Ok(Answered::Unsigned),
        Admitted::Signed(verified) => verified,
    };
    let signer = verified.signer();
    if expected.signer.is_some_and(|expected| *expected != signer) {
        return Err(SecurityError::Signer(signer.to_string()));
    }
    match verified.addressing_header("RelatesTo") {
        Some(relates_to) if relates_to == expected.message_id => Ok(Answered::Signed(verified)),
        _ => Err(SecurityError::Unrelated),
    }
}
