//! Certificates of those who sign messages: the key, its usage, and the chain to a trusted root.
//!
//! [`Certificate`] is one certificate in DER, [`TrustStore`] the roots and revocation lists by which
//! it is judged at a time that the caller gives, [`SigningKey`] the private half, [`Algorithm`] what
//! may sign.
//!
//! Sources: RFC 5280 (certificates, revocation lists), whose chains `rustls-webpki` builds and checks;
//! RFC 8017 (RSA, PKCS #1 v1.5); FIPS 186-5 (ECDSA). Deliberately absent: certificates without a chain,
//! OCSP, and the names of hosts, which TLS checks.

mod error;
mod signature;
mod trust;

use rustls_pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::{DistinguishedName, der};

pub use error::CertificateError;
pub use signature::{Algorithm, SIGNING_KEY_PEM_BYTES_MAX, SigningKey};
pub use trust::{INTERMEDIATES_MAX, ROOTS_MAX, RevocationStatus, TrustStore};

use signature::VerifyingKey;

/// Bytes of a certificate in DER. Default 16 KiB: usual ones have one to two.
pub const CERTIFICATE_BYTES_MAX: usize = 16 << 10;

/// Tags (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const BOOLEAN: u8 = 0x01;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// The contents of the object identifier of `keyUsage` (RFC 5280, section 4.2.1.3).
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
/// `digitalSignature` and `nonRepudiation`, the first bits of `keyUsage`.
const MAY_SIGN: u8 = 0xc0;

/// The certificate of a signer. It is parsed and nothing more: only [`TrustStore::verify`] says
/// whether it can be trusted.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    key: VerifyingKey,
    subject: DistinguishedName,
    may_sign: bool,
}

impl Certificate {
    /// Parses a certificate in DER.
    ///
    /// # Errors
    /// It is malformed or too long, has no subject, or a key that cannot verify any [`Algorithm`].
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateError> {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(CertificateError::TooLong(CERTIFICATE_BYTES_MAX));
        }
        let der = CertificateDer::from(der.to_vec());
        EndEntityCert::try_from(&der).map_err(CertificateError::from)?;
        let fields = Fields::of(&der).ok_or(CertificateError::Malformed)?;
        let subject = DistinguishedName::of_certificate(&der).ok_or(CertificateError::Subject)?;
        let key = VerifyingKey::from_spki(fields.key).ok_or(CertificateError::Key)?;
        let may_sign = match fields.key_usage {
            Some(usage) => usage & MAY_SIGN != 0,
            None => true,
        };
        Ok(Self {
            key,
            subject,
            may_sign,
            der,
        })
    }

    /// The certificates of PEM text, in its order.
    ///
    /// # Errors
    /// The text has no certificate, or a malformed one.
    pub fn from_pem(text: &str) -> Result<Vec<Self>, CertificateError> {
        let all = trust::certificates_of_pem(text)?;
        all.iter().map(|der| Self::from_der(der)).collect()
    }

    /// The certificate in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The subject.
    #[must_use]
    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// The SHA-256 of the public key: the same for all certificates of one key.
    #[must_use]
    pub fn key_hash(&self) -> [u8; 32] {
        self.key.hash()
    }

    /// Checks a signature by this certificate's key.
    ///
    /// # Errors
    /// [`CertificateError::Signature`]: it does not match, or the key is not for `algorithm`.
    pub fn verify(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), CertificateError> {
        self.key.verify(algorithm, message, signature)
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate({})", self.subject)
    }
}

/// Parts of a certificate that `rustls-webpki` does not hand out.
struct Fields<'d> {
    /// The contents of `SubjectPublicKeyInfo`.
    key: &'d [u8],
    /// The first bits of the extension `keyUsage`, if there is one.
    key_usage: Option<u8>,
}

impl<'d> Fields<'d> {
    fn of(certificate: &'d [u8]) -> Option<Self> {
        let sequence = |bytes| der::value(bytes).filter(|it| it.0 == SEQUENCE);
        let (_, certificate, _) = sequence(certificate)?;
        let (_, mut rest, _) = sequence(certificate)?;
        if rest.first() == Some(&VERSION) {
            (_, _, rest) = der::value(rest)?;
        }
        // Serial number, algorithm, issuer, validity, subject.
        for _ in 0..5 {
            (_, _, rest) = der::value(rest)?;
        }
        let (_, key, mut rest) = sequence(rest)?;
        let mut key_usage = None;
        while !rest.is_empty() {
            let (tag, contents, after) = der::value(rest)?;
            rest = after;
            if tag == EXTENSIONS {
                let (_, extensions, _) = sequence(contents)?;
                key_usage = key_usage_of(extensions)?;
            }
        }
        Some(Self { key, key_usage })
    }
}

/// `keyUsage` among the extensions; the outer `None` if one is malformed.
fn key_usage_of(mut extensions: &[u8]) -> Option<Option<u8>> {
    let mut usage = None;
    while !extensions.is_empty() {
        let (_, extension, after) = der::value(extensions).filter(|it| it.0 == SEQUENCE)?;
        extensions = after;
        let (_, object, mut rest) = der::value(extension).filter(|it| it.0 == OBJECT)?;
        if rest.first() == Some(&BOOLEAN) {
            (_, _, rest) = der::value(rest)?;
        }
        if object != KEY_USAGE {
            continue;
        }
        let (_, bits, _) = der::value(rest).filter(|it| it.0 == OCTET_STRING)?;
        let (_, bits, _) = der::value(bits).filter(|it| it.0 == BIT_STRING)?;
        if usage.is_some() {
            return None;
        }
        // The first byte is the number of unused bits.
        usage = Some(bits.get(1).copied().unwrap_or_default());
    }
    Some(usage)
}
