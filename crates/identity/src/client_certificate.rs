//! How an account names the certificate of a TLS client or of a signer: by subject, or by fingerprint.

use std::fmt;
use std::str::FromStr;

use crate::{DistinguishedName, Error, hex_decode_32, hex_encode};

/// The prefix of a fingerprint as text.
const SHA256: &str = "sha256:";

/// A verified certificate of a TLS client or of a signer, as far as accounts name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    subject: Option<DistinguishedName>,
    fingerprint: [u8; 32],
}

impl ClientCertificate {
    /// That of a certificate in DER, which must have been verified.
    #[must_use]
    pub fn of_der(certificate: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest.as_ref());
        Self {
            subject: DistinguishedName::of_certificate(certificate),
            fingerprint,
        }
    }

    /// The name that only this certificate has.
    #[must_use]
    pub fn fingerprint(&self) -> CertificateName {
        CertificateName::Fingerprint(self.fingerprint)
    }
}

/// The name of a certificate.
///
/// ```
/// use chappe_identity::CertificateName;
/// let name: CertificateName = "cn = ada, O=Ward 3".parse()?;
/// assert_eq!(name.to_string(), "CN=ada,O=Ward 3");
/// let name: CertificateName = format!("sha256:{}", "AB:".repeat(32)).trim_end_matches(':').parse()?;
/// assert_eq!(name.to_string(), format!("sha256:{}", "ab".repeat(32)));
/// # Ok::<(), chappe_identity::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateName {
    /// Each certificate with this subject.
    Subject(DistinguishedName),
    /// The one certificate whose DER has this SHA-256.
    Fingerprint([u8; 32]),
}

impl CertificateName {
    /// Whether `certificate` has this name.
    #[must_use]
    pub fn is_of(&self, certificate: &ClientCertificate) -> bool {
        match self {
            Self::Subject(subject) => certificate.subject.as_ref() == Some(subject),
            Self::Fingerprint(fingerprint) => certificate.fingerprint == *fingerprint,
        }
    }
}

/// The subject in the form of RFC 4514, or `sha256:` and 64 hexadecimal digits.
impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject(subject) => subject.fmt(f),
            Self::Fingerprint(digest) => write!(f, "{SHA256}{}", hex_encode(digest)),
        }
    }
}

/// Digits of a fingerprint may be in either case and separated by colons, as openssl prints them.
impl FromStr for CertificateName {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let prefix = text.get(..SHA256.len());
        if prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(SHA256)) {
            let digits: String = text.chars().skip(SHA256.len()).take(128).collect();
            let digest = hex_decode_32(&digits.replace(':', ""));
            let digest = digest.ok_or(Error::Hex("the fingerprint of a certificate"));
            return digest.map(Self::Fingerprint);
        }
        text.parse().map(Self::Subject)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_names_one_certificate() {
        let certificate = ClientCertificate::of_der(b"abc");
        let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let name: CertificateName = format!("SHA256:{}", digest.to_uppercase()).parse().unwrap();
        assert_eq!(name.to_string(), format!("sha256:{digest}"));
        assert!(name.is_of(&certificate));
        assert!(!name.is_of(&ClientCertificate::of_der(b"abd")));
        let subject: CertificateName = "CN=ada".parse().unwrap();
        assert!(!subject.is_of(&certificate));
        for wrong in ["sha256:", "sha256:abc", "sha1:abc", ""] {
            assert!(wrong.parse::<CertificateName>().is_err(), "{wrong}");
        }
    }
}
