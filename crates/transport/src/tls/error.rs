//! Errors of TLS, with remedies.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::CertificateError;
use rustls::pki_types::ServerName;

use super::Fingerprint;
use crate::key_file;

/// Why a certificate, a key or a file of authorities is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The key file is accessible to others, or cannot be read.
    #[error(transparent)]
    Key(#[from] key_file::Error),
    /// It contains no certificate, or no key, in PEM form.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
}

impl FileError {
    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Io { path, source } => match source.kind() {
                io::ErrorKind::NotFound => Some(
                    "name an existing file; or let the node make a certificate of its own: \
                     http.tls.self_signed = true"
                        .to_owned(),
                ),
                io::ErrorKind::PermissionDenied => {
                    Some(format!("check its owner: ls -l {}", path.display()))
                }
                _ => None,
            },
            Self::Key(error) => error.hint(),
            Self::Content { .. } => Some(
                "certificates and keys are PEM text: -----BEGIN CERTIFICATE-----, the own one first, \
                 and -----BEGIN PRIVATE KEY-----"
                    .to_owned(),
            ),
        }
    }
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The connection ended or the system refused.
    #[error("the connection with {peer} ended in the TLS handshake: {source}")]
    Io {
        /// The peer.
        peer: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The handshake took too long.
    #[error("{peer} did not finish the TLS handshake in time")]
    Late {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer uses plain HTTP, or another protocol.
    #[error("{peer} does not speak TLS")]
    NotTls {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer's certificate is not trusted.
    #[error("the certificate of {peer} is not accepted: {refused}")]
    Certificate {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        refused: Refused,
    },
    /// The peer refuses the connection, or violates the protocol.
    #[error("TLS with {peer} failed: {source}")]
    Protocol {
        /// The peer.
        peer: SocketAddr,
        /// The cause.
        source: rustls::Error,
    },
}

impl Error {
    /// Converts the error of a handshake.
    pub(super) fn of(peer: SocketAddr, error: io::Error) -> Self {
        let Some(inner) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        else {
            return Self::Io {
                peer,
                source: error,
            };
        };
        match inner {
            rustls::Error::InvalidMessage(_) => Self::NotTls { peer },
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<Refused>() {
                    Some(refused) => Self::Certificate {
                        peer,
                        refused: refused.clone(),
                    },
                    None => Self::Protocol {
                        peer,
                        source: inner.clone(),
                    },
                }
            }
            other => Self::Protocol {
                peer,
                source: other.clone(),
            },
        }
    }

    /// A constant short text, for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io { .. } => "TLS handshake broken off",
            Self::Late { .. } => "TLS handshake too slow",
            Self::NotTls { .. } => "no TLS",
            Self::Certificate { .. } => "certificate not accepted",
            Self::Protocol { .. } => "TLS failed",
        }
    }

    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Certificate { refused, .. } => refused.hint(),
            Self::NotTls { .. } => Some(
                "one end speaks plain http: compare the addresses, \
                 http:// and https://, and http.tls of the node"
                    .to_owned(),
            ),
            Self::Late { peer } => Some(format!("check {peer} for a firewall or high load")),
            Self::Protocol {
                source: rustls::Error::AlertReceived(alert),
                ..
            } => Some(match alert {
                rustls::AlertDescription::CertificateUnknown
                | rustls::AlertDescription::UnknownCA
                | rustls::AlertDescription::BadCertificate => {
                    "the peer does not trust this certificate: pin its fingerprint there".to_owned()
                }
                _ => "the peer refused the connection: check its log".to_owned(),
            }),
            Self::Io { .. } | Self::Protocol { .. } => None,
        }
    }
}

/// Why a certificate is not accepted, with its fingerprint.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The reason.
    pub(super) why: Why,
    /// The presented certificate.
    pub(super) presented: Fingerprint,
    /// The expected name.
    pub(super) name: String,
}

/// The problem of a certificate.
#[derive(Debug, Clone)]
pub(super) enum Why {
    /// It is not the pinned one.
    NotPinned(Fingerprint),
    /// Its issuer, dates or names are invalid.
    Invalid(CertificateError),
}

impl Refused {
    /// Converts it to an error of a verifier.
    pub(super) fn into_rustls(self) -> rustls::Error {
        let other = rustls::OtherError(Arc::new(self));
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
    }

    pub(super) fn new(why: Why, presented: Fingerprint, name: &ServerName<'_>) -> Self {
        Self {
            why,
            presented,
            name: name.to_str().into_owned(),
        }
    }

    /// The fingerprint of the presented certificate.
    #[must_use]
    pub fn presented(&self) -> Fingerprint {
        self.presented
    }

    fn hint(&self) -> Option<String> {
        use CertificateError as C;
        let presented = self.presented;
        Some(match &self.why {
            Why::NotPinned(_) => format!(
                "if the peer has a new certificate (compare with `chappe key show` there), pin \
                 {presented}; if not, the connection is intercepted"
            ),
            Why::Invalid(C::Expired | C::ExpiredContext { .. }) => {
                "renew the certificate at the peer, or set this machine's clock".to_owned()
            }
            Why::Invalid(C::NotValidYet | C::NotValidYetContext { .. }) => {
                "compare the clocks of both machines".to_owned()
            }
            Why::Invalid(C::NotValidForName | C::NotValidForNameContext { .. }) => format!(
                "use a name that the certificate has, let it be made for {:?}, or pin its \
                 fingerprint: {presented}",
                self.name
            ),
            Why::Invalid(C::UnknownIssuer | C::BadSignature) => format!(
                "name the file of its authority, or compare with `chappe key show` at the peer and \
                 pin the fingerprint: {presented}"
            ),
            Why::Invalid(_) => format!("replace the certificate {presented}"),
        })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateError as C;
        match &self.why {
            Why::NotPinned(pinned) => {
                write!(f, "its fingerprint is {}, not {pinned}", self.presented)
            }
            Why::Invalid(C::Expired | C::ExpiredContext { .. }) => f.write_str("it has expired"),
            Why::Invalid(C::NotValidYet | C::NotValidYetContext { .. }) => {
                f.write_str("it is not valid yet")
            }
            Why::Invalid(C::NotValidForName | C::NotValidForNameContext { .. }) => {
                write!(f, "it is not for {:?}", self.name)
            }
            Why::Invalid(C::UnknownIssuer | C::BadSignature) => {
                f.write_str("it is not signed by a trusted authority")
            }
            Why::Invalid(other) => write!(f, "{other:?}"),
        }
    }
}

impl std::error::Error for Refused {}
