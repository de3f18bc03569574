//! Fingerprints of certificates.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

/// The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` and browsers show it.
/// Written as 64 hexadecimal digits; read with colons, too.
///
/// ```
/// use chappe_transport::tls::Fingerprint;
/// let plain: Fingerprint = "00".repeat(32).parse()?;
/// let colons: Fingerprint = ["00"; 32].join(":").parse()?;
/// assert_eq!(plain, colons);
/// assert_eq!(plain.to_string().len(), 64);
/// # Ok::<(), chappe_transport::tls::FingerprintError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// A malformed fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint: 64 hexadecimal digits, the SHA-256 of a certificate")]
pub struct FingerprintError;

impl Fingerprint {
    /// The fingerprint of a DER-encoded certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').take(65).collect();
        if digits.len() != 64 {
            return Err(FingerprintError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| FingerprintError)?;
            if !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(FingerprintError);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| FingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_fingerprints_are_refused() {
        let right = "aB".repeat(32);
        assert_eq!(
            right.parse::<Fingerprint>().unwrap().to_string(),
            "ab".repeat(32)
        );
        for wrong in [
            "",
            "ab",
            &"ab".repeat(33),
            &"+b".repeat(32),
            &"é".repeat(32),
        ] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
    }
}
