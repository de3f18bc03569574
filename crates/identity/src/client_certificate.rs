//! How an account names the certificate of a TLS client or of a signer: by subject, by subject and issuer, or by
//! fingerprint.

use std::fmt;
use std::str::FromStr;

use crate::distinguished_name::split;
use crate::{DistinguishedName, Error, der, hex_decode_32, hex_encode};

/// The prefix of a fingerprint as text.
const SHA256: &str = "sha256:";
/// The prefix of the endpoints of devices among the URIs of a certificate.
const ENDPOINT: &str = "urn:uuid:";
/// The text between the subject and the issuer. A semicolon in a name is escaped (RFC 4514, section 2.4).
const ISSUER: &str = "issuer=";

/// A verified certificate of a TLS client or of a signer, as far as accounts name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    subject: Option<DistinguishedName>,
    issuer: Option<DistinguishedName>,
    endpoint: Option<String>,
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
            issuer: DistinguishedName::issuer_of_certificate(certificate),
            endpoint: endpoint(certificate).map(str::to_owned),
            fingerprint,
        }
    }

    /// The subject; `None` if it is empty or too long.
    #[must_use]
    pub fn subject(&self) -> Option<&DistinguishedName> {
        self.subject.as_ref()
    }

    /// The subject of the authority that has signed it; `None` if it is empty or too long.
    #[must_use]
    pub fn issuer(&self) -> Option<&DistinguishedName> {
        self.issuer.as_ref()
    }

    /// The endpoint (`urn:uuid:…`) of the device that the certificate names; `None` if it names none or several. It is
    /// as true as whoever signed it: a certificate that is trusted by its fingerprint may name any.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    /// The name that only this certificate has.
    #[must_use]
    pub fn fingerprint(&self) -> CertificateName {
        CertificateName::Fingerprint(self.fingerprint)
    }

    /// The subject with its issuer: the name that the certificate keeps when it is renewed. Of a certificate
    /// without one of them, the fingerprint.
    #[must_use]
    pub fn lasting_name(&self) -> CertificateName {
        match (&self.subject, &self.issuer) {
            (Some(subject), Some(issuer)) => CertificateName::Issued {
                subject: subject.clone(),
                issuer: issuer.clone(),
            },
            _ => self.fingerprint(),
        }
    }
}

/// The one endpoint that a certificate names.
fn endpoint(certificate: &[u8]) -> Option<&str> {
    let is_endpoint = |uri: &&str| {
        let uuid = uri.strip_prefix(ENDPOINT);
        uuid.is_some_and(|uuid| uuid.len() == 36 && uuid.is_ascii())
    };
    let mut all = der::uris(certificate).filter(is_endpoint);
    all.next().filter(|_| all.next().is_none())
}

/// The name of a certificate.
///
/// ```
/// use chappe_identity::CertificateName;
/// let name: CertificateName = "cn = ada, O=Ward 3".parse()?;
/// assert_eq!(name.to_string(), "CN=ada,O=Ward 3");
/// let name: CertificateName = "CN=ada,O=Ward 3; issuer = CN=Ward CA".parse()?;
/// assert_eq!(name.to_string(), "CN=ada,O=Ward 3;issuer=CN=Ward CA");
/// let name: CertificateName = format!("sha256:{}", "AB:".repeat(32)).trim_end_matches(':').parse()?;
/// assert_eq!(name.to_string(), format!("sha256:{}", "ab".repeat(32)));
/// # Ok::<(), chappe_identity::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateName {
    /// Each certificate with this subject.
    Subject(DistinguishedName),
    /// Each certificate with this subject that the authority with this name has signed.
    Issued {
        /// The subject.
        subject: DistinguishedName,
        /// The subject of the authority's own certificate.
        issuer: DistinguishedName,
    },
    /// The one certificate whose DER has this SHA-256.
    Fingerprint([u8; 32]),
}

impl CertificateName {
    /// Whether `certificate` has this name.
    #[must_use]
    pub fn is_of(&self, certificate: &ClientCertificate) -> bool {
        match self {
            Self::Subject(subject) => certificate.subject.as_ref() == Some(subject),
            Self::Issued { subject, issuer } => {
                certificate.subject.as_ref() == Some(subject)
                    && certificate.issuer.as_ref() == Some(issuer)
            }
            Self::Fingerprint(fingerprint) => certificate.fingerprint == *fingerprint,
        }
    }

    /// How closely it names a certificate: of several accounts whose names match, that with the highest counts.
    #[must_use]
    pub const fn precision(&self) -> u8 {
        match self {
            Self::Subject(_) => 0,
            Self::Issued { .. } => 1,
            Self::Fingerprint(_) => 2,
        }
    }
}

/// The subject in the form of RFC 4514, which `;issuer=` and the issuer may follow, or `sha256:` and 64 hexadecimal
/// digits.
impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject(subject) => subject.fmt(f),
            Self::Issued { subject, issuer } => write!(f, "{subject};{ISSUER}{issuer}"),
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
        let mut parts = split(text, b';');
        let subject = parts.next().unwrap_or_default().parse()?;
        let Some(issuer) = parts.next() else {
            return Ok(Self::Subject(subject));
        };
        let issuer = issuer.split_once('=').filter(|(key, _)| {
            key.trim()
                .eq_ignore_ascii_case(ISSUER.trim_end_matches('='))
        });
        match (issuer, parts.next()) {
            (Some((_, issuer)), None) => Ok(Self::Issued {
                subject,
                issuer: issuer.trim_start().parse()?,
            }),
            _ => Err(Error::DistinguishedName),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_compared_too() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/certificates/");
        let read = |name: &str| {
            let text = std::fs::read_to_string(format!("{folder}{name}.pem")).unwrap();
            let all = crate::certificate::Certificate::from_pem(&text).unwrap();
            ClientCertificate::of_der(all[0].der())
        };
        let signed = read("p256");
        let name = signed.lasting_name();
        assert!(name.is_of(&signed) && !name.is_of(&read("rsa")), "{name}");
        let again: CertificateName = name.to_string().parse().unwrap();
        assert_eq!(again, name);
        let text = name.to_string();
        let (subject, issuer) = text.split_once(";issuer=").unwrap();
        let subject: CertificateName = subject.parse().unwrap();
        assert!(subject.is_of(&signed) && subject.precision() < name.precision());
        let other: CertificateName = format!("{subject};issuer={issuer},O=Other")
            .parse()
            .unwrap();
        assert!(!other.is_of(&signed));
        for wrong in [
            "CN=ada;",
            "CN=ada;CN=ca",
            "CN=ada;issuer=",
            "CN=ada;issuer=CN=ca;issuer=CN=cb",
            ";issuer=CN=ca",
            "CN=ada;issuer=sha256:aa",
        ] {
            assert!(wrong.parse::<CertificateName>().is_err(), "{wrong}");
        }
        let escaped: CertificateName = "CN=a\\;issuer\\=b".parse().unwrap();
        assert!(
            matches!(escaped, CertificateName::Subject(_)),
            "{escaped:?}"
        );
    }

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
