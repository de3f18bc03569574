//! Why there is no TLS, and what to do.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::CertificateError;
use rustls::pki_types::ServerName;

use super::Fingerprint;
use crate::key_file;

/// Why a certificate, a key or a file of authorities is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file of the key is not its owner's alone, or cannot be read.
    #[error(transparent)]
    Key(#[from] key_file::Error),
    /// It holds no certificate, or no key, in PEM form.
    #[error("{}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is missing or wrong.
        what: String,
    },
}

impl FileError {
    /// What can be done.
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
                    Some(format!("see who owns it: ls -l {}", path.display()))
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
        /// What the system said.
        source: io::Error,
    },
    /// The handshake took too long.
    #[error("{peer} did not finish the TLS handshake in time")]
    Late {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer speaks plain HTTP, or something else.
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
        /// Why not.
        refused: Refused,
    },
    /// The peer refuses, or breaks the protocol.
    #[error("TLS with {peer} failed: {source}")]
    Protocol {
        /// The peer.
        peer: SocketAddr,
        /// What went wrong.
        source: rustls::Error,
    },
}

impl Error {
    /// From what a handshake ended with.
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

    /// A few words that are always the same, for counting.
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

    /// What can be done.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Certificate { refused, .. } => refused.hint(),
            Self::NotTls { .. } => Some(
                "one end speaks plain http: compare the addresses, \
                 http:// and https://, and http.tls of the node"
                    .to_owned(),
            ),
            Self::Late { peer } => Some(format!("a firewall or load may hold up {peer}")),
            Self::Protocol {
                source: rustls::Error::AlertReceived(alert),
                ..
            } => Some(match alert {
                rustls::AlertDescription::CertificateUnknown
                | rustls::AlertDescription::UnknownCA
                | rustls::AlertDescription::BadCertificate => {
                    "the peer does not trust this certificate: give it the fingerprint".to_owned()
                }
                _ => "the peer refused; its own log says why".to_owned(),
            }),
            Self::Io { .. } | Self::Protocol { .. } => None,
        }
    }
}

/// Why a certificate is not accepted, with its fingerprint.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Why not.
    pub(super) why: Why,
    /// The certificate that was shown.
    pub(super) presented: Fingerprint,
    /// The name that it was to be for.
    pub(super) name: String,
}

/// What is wrong with a certificate.
#[derive(Debug, Clone)]
pub(super) enum Why {
    /// It is another than the one that was told.
    NotPinned(Fingerprint),
    /// The authorities or the times or the name do not fit.
    Invalid(CertificateError),
}

impl Refused {
    /// As the error of a verifier.
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

    /// The fingerprint of the certificate that was shown.
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
                 {presented}; if not, somebody stands between"
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
            Why::Invalid(_) => format!("the certificate is {presented}; make it anew"),
        })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateError as C;
        match &self.why {
            Why::NotPinned(pinned) => {
                write!(f, "its fingerprint is {}, and not {pinned}", self.presented)
            }
            Why::Invalid(C::Expired | C::ExpiredContext { .. }) => f.write_str("it has expired"),
            Why::Invalid(C::NotValidYet | C::NotValidYetContext { .. }) => {
                f.write_str("it is not valid yet")
            }
            Why::Invalid(C::NotValidForName | C::NotValidForNameContext { .. }) => {
                write!(f, "it is not for {:?}", self.name)
            }
            Why::Invalid(C::UnknownIssuer | C::BadSignature) => {
                f.write_str("no authority that is trusted here has signed it")
            }
            Why::Invalid(other) => write!(f, "{other:?}"),
        }
    }
}

impl std::error::Error for Refused {}
