//! Errors of TLS, with remedies.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError};

use super::{Fingerprint, Usage};
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
                    "name an existing file; or let a certificate be made: for the HTTP of a node by \
                     http.tls.self_signed = true, for devices by a key without a certificate"
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
    /// The peer closed the connection before it sent anything, as one that only asks whether somebody listens.
    #[error("{peer} sent nothing")]
    Unused {
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
    /// The certificate of a client is not trusted.
    #[error("the certificate of {peer} is not accepted: {}", text(.error))]
    ClientCertificate {
        /// The client.
        peer: SocketAddr,
        /// The reason.
        error: CertificateError,
    },
    /// The peer refuses the certificate that was shown to it, or demands one.
    #[error("{peer} refuses the connection: {}", alert_text(*.alert))]
    Alert {
        /// The peer.
        peer: SocketAddr,
        /// What it says.
        alert: AlertDescription,
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

/// The remedy for a revocation list that has expired.
const RENEW_LIST: &str =
    "get the authority's new revocation list, and start again; or compare the clocks";

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
            rustls::Error::InvalidCertificate(error) => Self::ClientCertificate {
                peer,
                error: error.clone(),
            },
            rustls::Error::AlertReceived(alert) => Self::Alert {
                peer,
                alert: *alert,
            },
            other => Self::Protocol {
                peer,
                source: other.clone(),
            },
        }
    }

    /// The alert in an error of an open connection, if it is one.
    pub(crate) fn after_handshake(peer: SocketAddr, error: &io::Error) -> Option<Self> {
        match error.get_ref()?.downcast_ref()? {
            rustls::Error::AlertReceived(alert) => Some(Self::Alert {
                peer,
                alert: *alert,
            }),
            _ => None,
        }
    }

    /// A constant short text, for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Io { .. } => "TLS handshake broken off",
            Self::Late { .. } => "TLS handshake too slow",
            Self::Unused { .. } => "connection not used",
            Self::NotTls { .. } => "no TLS",
            Self::Certificate { .. } | Self::ClientCertificate { .. } => "certificate not accepted",
            Self::Alert { .. } => "refused by the peer",
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
            Self::Alert { alert, .. } => Some(match alert {
                AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
                | AlertDescription::BadCertificate => {
                    "let the peer trust this certificate: its authority, or its fingerprint"
                        .to_owned()
                }
                AlertDescription::CertificateRequired => {
                    "give a certificate that the peer trusts, and its key".to_owned()
                }
                AlertDescription::CertificateExpired => {
                    "renew the certificate, or compare the clocks of both machines".to_owned()
                }
                AlertDescription::UnsupportedCertificate => {
                    "let the certificate be made for the usages that the peer demands".to_owned()
                }
                _ => "check the log of the peer".to_owned(),
            }),
            Self::ClientCertificate { error, .. } => Some(
                match error {
                    CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                        "renew it at the peer, or set this machine's clock"
                    }
                    CertificateError::InvalidPurpose
                    | CertificateError::InvalidPurposeContext { .. } => {
                        "let it be made for TLS clients, and for the usages that are demanded here"
                    }
                    CertificateError::Revoked => "give the peer a new certificate",
                    CertificateError::ExpiredRevocationList
                    | CertificateError::ExpiredRevocationListContext { .. } => RENEW_LIST,
                    _ => "if the peer may connect, name its authority or pin its fingerprint here",
                }
                .to_owned(),
            ),
            Self::Unused { .. } => None,
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
    /// It is none of the pinned ones.
    NotPinned(Vec<Fingerprint>),
    /// Nothing is trusted.
    NoTrust,
    /// It lacks a usage.
    Usage(Usage),
    /// It names the endpoint of another device, this one.
    OtherDevice(String),
    /// Its issuer, dates or names are invalid.
    Invalid(CertificateError),
}

impl Why {
    /// The problem that rustls found.
    pub(super) fn of(error: rustls::Error) -> Self {
        Self::Invalid(match error {
            rustls::Error::InvalidCertificate(error) => error,
            _ => CertificateError::BadEncoding,
        })
    }
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
            Why::NoTrust => format!(
                "configure an authority to trust or, if the device itself shows the same one, the \
                 fingerprint {presented}"
            ),
            Why::Usage(_) => {
                format!("let {presented} be made for it, or leave it out of the demanded usages")
            }
            Why::OtherDevice(_) => {
                "give each device a certificate of its own; if it has one, it is impersonated"
                    .to_owned()
            }
            Why::Invalid(C::InvalidPurpose | C::InvalidPurposeContext { .. }) => {
                format!("let {presented} be made for TLS servers and clients, too")
            }
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
            Why::Invalid(C::ExpiredRevocationList | C::ExpiredRevocationListContext { .. }) => {
                RENEW_LIST.to_owned()
            }
            Why::Invalid(_) => format!("replace the certificate {presented}"),
        })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CertificateError as C;
        match &self.why {
            Why::NotPinned(pinned) => {
                write!(f, "its fingerprint is {}", self.presented)?;
                return match pinned.as_slice() {
                    [one] => write!(f, ", not {one}"),
                    many => write!(f, ", none of the {} that are trusted", many.len()),
                };
            }
            Why::NoTrust => f.write_str("no certificate is trusted here"),
            Why::Usage(usage) => write!(f, "it is not made for the usage {usage}"),
            Why::OtherDevice(named) => write!(f, "it is that of another device, {named:?}"),
            Why::Invalid(C::NotValidForName | C::NotValidForNameContext { .. }) => {
                write!(f, "it is not for {:?}", self.name)
            }
            Why::Invalid(other) => f.write_str(&text(other)),
        }?;
        write!(f, " (fingerprint {})", self.presented)
    }
}

/// The problem of a certificate in words.
fn text(error: &CertificateError) -> String {
    use CertificateError as C;
    let text = match error {
        C::Expired | C::ExpiredContext { .. } => "it has expired",
        C::NotValidYet | C::NotValidYetContext { .. } => "it is not valid yet",
        C::UnknownIssuer | C::BadSignature => "it is not signed by a trusted authority",
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => "it is not made for this usage",
        C::Revoked => "its authority has revoked it",
        C::ExpiredRevocationList | C::ExpiredRevocationListContext { .. } => {
            "the revocation list of its authority has expired"
        }
        C::ApplicationVerificationFailure => "it is none of those that are trusted",
        other => return format!("{other:?}"),
    };
    text.to_owned()
}

/// What a peer says of the certificate that was shown to it.
fn alert_text(alert: AlertDescription) -> &'static str {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired => "it demands a certificate",
        A::CertificateExpired => "the certificate shown to it has expired",
        A::UnknownCA => "it does not trust the authority of the certificate shown to it",
        A::UnsupportedCertificate => "the certificate shown to it is not made for this usage",
        A::AccessDenied | A::CertificateUnknown | A::BadCertificate | A::DecryptError => {
            "it does not trust the certificate shown to it"
        }
        A::CertificateRevoked => "the certificate shown to it is revoked",
        A::HandshakeFailure => "it finds no common parameters, or demands a certificate",
        A::ProtocolVersion => "it speaks neither TLS 1.2 nor TLS 1.3",
        _ => "it sends an alert of TLS",
    }
}

impl std::error::Error for Refused {}
