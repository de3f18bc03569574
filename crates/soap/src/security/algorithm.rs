//! Algorithms by their identifiers.

use chappe_identity::certificate::Algorithm;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::{Policy, SecurityError};

const RSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256";
const ECDSA_SHA256: &str = "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha256";
const RSA_SHA1: &str = "http://www.w3.org/2000/09/xmldsig#rsa-sha1";
pub(super) const DIGEST_SHA256: &str = "http://www.w3.org/2001/04/xmlenc#sha256";
const DIGEST_SHA1: &str = "http://www.w3.org/2000/09/xmldsig#sha1";

/// The identifier of an algorithm of signatures.
pub(super) const fn identifier(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::RsaSha256 => RSA_SHA256,
        Algorithm::EcdsaSha256 => ECDSA_SHA256,
        Algorithm::RsaSha1 => RSA_SHA1,
    }
}

/// The algorithm of signatures with this identifier.
pub(super) fn signature(identifier: &str, policy: &Policy) -> Result<Algorithm, SecurityError> {
    match identifier {
        RSA_SHA256 => Ok(Algorithm::RsaSha256),
        ECDSA_SHA256 => Ok(Algorithm::EcdsaSha256),
        RSA_SHA1 if policy.allows_sha1 => Ok(Algorithm::RsaSha1),
        other => Err(SecurityError::algorithm(other)),
    }
}

/// An algorithm of digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Digest {
    Sha256,
    Sha1,
}

impl Digest {
    /// The algorithm with this identifier.
    pub(super) fn of(identifier: &str, policy: &Policy) -> Result<Self, SecurityError> {
        match identifier {
            DIGEST_SHA256 => Ok(Self::Sha256),
            DIGEST_SHA1 if policy.allows_sha1 => Ok(Self::Sha1),
            other => Err(SecurityError::algorithm(other)),
        }
    }

    /// The digest of these bytes.
    pub(super) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &SHA256,
            Self::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
        };
        digest(algorithm, bytes).as_ref().to_vec()
    }
}
