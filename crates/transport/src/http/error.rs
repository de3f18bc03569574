//! Errors of a request without a usable answer.

use std::io;
use std::net::SocketAddr;

use chappe_soap::Fault;
use chappe_soap::security::SecurityError;
use hyper::StatusCode;
use nix::errno::Errno;

/// A request without a usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address requires TLS, but no certificate is trusted.
    #[error("{0} requires https, but no trusted certificate is configured")]
    Https(SocketAddr),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(Box<crate::tls::Error>),
    /// No connection.
    #[error("no connection to {peer}: {source}")]
    Connect {
        /// The peer.
        peer: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// A deadline passed.
    #[error("{peer} did not {what} in time")]
    Late {
        /// The peer.
        peer: SocketAddr,
        /// The missed action.
        what: &'static str,
    },
    /// The connection ended, or the answer is not HTTP.
    #[error("the exchange with {peer} failed: {source}")]
    Exchange {
        /// The peer.
        peer: SocketAddr,
        /// The cause.
        source: hyper::Error,
    },
    /// The answer exceeds the limit.
    #[error("the answer of {peer} is larger than {bound} bytes")]
    TooLarge {
        /// The peer.
        peer: SocketAddr,
        /// The limit.
        bound: usize,
    },
    /// The answer's encoding is unknown or broken.
    #[error("the answer of {peer} has an unsupported or broken content encoding")]
    Encoding {
        /// The peer.
        peer: SocketAddr,
    },
    /// An unsuccessful status without a fault.
    #[error("{peer} answered with status {status}")]
    Status {
        /// The peer.
        peer: SocketAddr,
        /// The status.
        status: StatusCode,
    },
    /// The peer answered with a SOAP fault.
    #[error("{peer} answered with {fault}")]
    Fault {
        /// The peer.
        peer: SocketAddr,
        /// The fault.
        fault: Box<Fault>,
    },
    /// The answer is not a SOAP message.
    #[error("the answer of {peer} is not a SOAP message: {source}")]
    Soap {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        source: chappe_soap::Error,
    },
    /// The answer's signature is not accepted, or the request cannot be signed.
    #[error("a message to or from {peer} is not accepted: {source}")]
    Signature {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        source: Box<SecurityError>,
    },
    /// The parser ended before its result: the program is shutting down.
    #[error("the answer of {0} was not parsed: the parser ended")]
    Parser(SocketAddr),
    /// The request cannot be expressed in HTTP.
    #[error("the request cannot be expressed in HTTP: {0}")]
    Request(#[from] hyper::http::Error),
}

impl From<crate::tls::Error> for Error {
    fn from(error: crate::tls::Error) -> Self {
        Self::Tls(Box::new(error))
    }
}

impl Error {
    /// A constant short text, for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Https(_) => "https without trust",
            Self::Tls(error) => error.reason(),
            Self::Connect { .. } => "no connection",
            Self::Late { .. } => "too slow",
            Self::Exchange { .. } => "connection broken",
            Self::TooLarge { .. } => "answer too large",
            Self::Encoding { .. } => "unreadable content encoding",
            Self::Status { .. } => "HTTP error",
            Self::Fault { .. } => "fault",
            Self::Soap { .. } => "no SOAP message",
            Self::Signature { .. } => "signature",
            Self::Parser(_) => "parser ended",
            Self::Request(_) => "request not expressible",
        }
    }

    /// Whether this host had no file, port or buffer left for a connection.
    #[must_use]
    pub fn is_of_this_host(&self) -> bool {
        self.lack().is_some()
    }

    /// The remedy for what this host lacks.
    fn lack(&self) -> Option<&'static str> {
        let Self::Connect { source, .. } = self else {
            return None;
        };
        match Errno::from_raw(source.raw_os_error()?) {
            Errno::EMFILE | Errno::ENFILE => {
                Some("raise this program's limit of open files: ulimit -n")
            }
            Errno::EADDRNOTAVAIL => Some("this host has no address or free port for it: ss -s"),
            Errno::ENOBUFS | Errno::ENOMEM => Some("this host has no memory left: free -m"),
            _ => None,
        }
    }

    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { .. } if self.is_of_this_host() => self.lack().map(str::to_owned),
            Self::Connect { peer, source } => Some(match source.kind() {
                io::ErrorKind::ConnectionRefused => {
                    format!("nothing listens at {peer}: check that the device runs")
                }
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    format!("check the route: ip route get {}", peer.ip())
                }
                _ => format!("check for a firewall in front of {peer}"),
            }),
            Self::Late { peer, .. } => Some(format!("check {peer} for a firewall or high load")),
            Self::Tls(error) => error.hint(),
            Self::Https(_) => Some("configure an authority or a fingerprint to trust".to_owned()),
            Self::Signature { peer, source } => match **source {
                SecurityError::NotSigned => Some(format!(
                    "{peer} does not sign: give it a certificate, or accept its messages unsigned"
                )),
                SecurityError::Certificate(_) => Some(
                    "check that its issuer is among the trusted authorities, and the clocks"
                        .to_owned(),
                ),
                SecurityError::Expired | SecurityError::Future => Some(format!(
                    "compare the clock of {peer} with that of this host"
                )),
                _ => None,
            },
            Self::TooLarge { .. } => Some("raise the limit on body bytes".to_owned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_this_host_is_told_from_the_peers_silence() {
        let failed = |errno: Errno| Error::Connect {
            peer: SocketAddr::from(([192, 0, 2, 1], 80)),
            source: io::Error::from_raw_os_error(errno as i32),
        };
        for errno in [Errno::EMFILE, Errno::EADDRNOTAVAIL, Errno::ENOBUFS] {
            assert!(failed(errno).is_of_this_host(), "{errno}");
        }
        assert!(failed(Errno::EMFILE).hint().unwrap().contains("ulimit"));
        assert!(
            !failed(Errno::EADDRNOTAVAIL)
                .hint()
                .unwrap()
                .contains("ulimit")
        );
        for errno in [Errno::ECONNREFUSED, Errno::EHOSTUNREACH, Errno::ETIMEDOUT] {
            assert!(!failed(errno).is_of_this_host(), "{errno}");
        }
    }
}
