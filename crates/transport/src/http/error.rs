//! Why a request got no usable answer.

use std::io;
use std::net::SocketAddr;

use chappe_soap::Fault;
use hyper::StatusCode;

/// A request without a usable answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address wants TLS, and nobody said whom to trust.
    #[error("{0} wants https, and no certificate is trusted here")]
    Https(SocketAddr),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(Box<crate::tls::Error>),
    /// No connection.
    #[error("no connection to {peer}: {source}")]
    Connect {
        /// The peer.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A deadline passed.
    #[error("{peer} did not {what} in time")]
    Late {
        /// The peer.
        peer: SocketAddr,
        /// What it did not do.
        what: &'static str,
    },
    /// The connection ended or the answer is no HTTP.
    #[error("the exchange with {peer} failed: {source}")]
    Exchange {
        /// The peer.
        peer: SocketAddr,
        /// What went wrong.
        source: hyper::Error,
    },
    /// The answer is larger than allowed.
    #[error("the answer of {peer} is larger than {bound} bytes")]
    TooLarge {
        /// The peer.
        peer: SocketAddr,
        /// The limit.
        bound: usize,
    },
    /// The answer's encoding is unknown or broken.
    #[error("the answer of {peer} is not in a content encoding that is read here")]
    Encoding {
        /// The peer.
        peer: SocketAddr,
    },
    /// A status that is no success, without a fault.
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
    /// The answer is no SOAP message.
    #[error("the answer of {peer} is no SOAP message: {source}")]
    Soap {
        /// The peer.
        peer: SocketAddr,
        /// Why not.
        source: chappe_soap::Error,
    },
    /// The answer was not parsed to its end: the program ends.
    #[error("the answer of {0} was not parsed to its end")]
    Parser(SocketAddr),
    /// The request cannot be written as HTTP.
    #[error("not expressible as an HTTP request: {0}")]
    Request(#[from] hyper::http::Error),
}

impl From<crate::tls::Error> for Error {
    fn from(error: crate::tls::Error) -> Self {
        Self::Tls(Box::new(error))
    }
}

impl Error {
    /// A few words that are always the same, for counting.
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
            Self::Parser(_) => "parser ended",
            Self::Request(_) => "request not expressible",
        }
    }

    /// What can be done, when that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Connect { peer, source } => Some(match source.kind() {
                io::ErrorKind::ConnectionRefused => {
                    format!("nothing listens at {peer}: does the device still run?")
                }
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    format!("see the route: ip route get {}", peer.ip())
                }
                _ => format!("a firewall may stand before {peer}"),
            }),
            Self::Late { peer, .. } => Some(format!("a firewall or load may hold up {peer}")),
            Self::Tls(error) => error.hint(),
            Self::Https(_) => Some("let the device offer an http address too".to_owned()),
            Self::TooLarge { .. } => Some("raise the limit of body bytes".to_owned()),
            _ => None,
        }
    }
}
