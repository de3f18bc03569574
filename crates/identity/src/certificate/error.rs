//! The reasons why a certificate, a chain or a signing key is not accepted.

/// A certificate, chain, revocation list or signing key is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// Not a certificate in DER.
    #[error("the certificate is malformed")]
    Malformed,
    /// The certificate is longer than the limit.
    #[error("the certificate has more than {0} bytes")]
    TooLong(usize),
    /// The certificate has no subject, or one that is too long.
    #[error("the certificate has no usable subject")]
    Subject,
    /// The certificate's key is for none of the algorithms.
    #[error("the certificate's key is neither RSA nor ECDSA on P-256")]
    Key,
    /// The key may not sign messages.
    #[error("the certificate's usage does not allow it to sign messages")]
    Usage,
    /// No chain leads to a trusted root.
    #[error("no chain leads from the certificate to a trusted root")]
    Untrusted,
    /// A certificate of the chain has expired.
    #[error("a certificate of the chain has expired")]
    Expired,
    /// A certificate of the chain is not valid yet.
    #[error("a certificate of the chain is not valid yet")]
    NotYetValid,
    /// A certificate of the chain was revoked.
    #[error("a certificate of the chain was revoked")]
    Revoked,
    /// No revocation list covers the certificate, and the trust store requires one.
    #[error("no revocation list covers a certificate of the chain")]
    RevocationUnknown,
    /// The revocation list should have been replaced.
    #[error("the revocation list has expired")]
    RevocationListExpired,
    /// More than a limit.
    #[error("more than {1} {0}")]
    TooMany(&'static str, usize),
    /// The chain violates another rule of RFC 5280.
    #[error("the chain is not valid: {0}")]
    Chain(String),
    /// The signature does not match the key and the bytes.
    #[error("the signature does not match the certificate's key and the bytes")]
    Signature,
    /// PEM text without a usable section. The text itself is never repeated.
    #[error("{0}")]
    Pem(&'static str),
    /// A revocation list is malformed, or of a kind that is not supported.
    #[error("the revocation list is malformed, or an indirect or delta list")]
    RevocationList,
}

impl From<webpki::Error> for CertificateError {
    fn from(error: webpki::Error) -> Self {
        use webpki::Error;
        match error {
            Error::BadDer | Error::BadDerTime | Error::TrailingData(_) => Self::Malformed,
            Error::CertExpired { .. } => Self::Expired,
            Error::CertNotValidYet { .. } => Self::NotYetValid,
            Error::CertRevoked => Self::Revoked,
            Error::CrlExpired { .. } => Self::RevocationListExpired,
            Error::UnknownRevocationStatus => Self::RevocationUnknown,
            Error::UnknownIssuer => Self::Untrusted,
            Error::CaUsedAsEndEntity | Error::RequiredEkuNotFoundContext(_) => Self::Usage,
            other => Self::Chain(other.to_string()),
        }
    }
}
