//! Errors of devices and clients, with hints.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use chappe_identity::Refusal;
use chappe_soap::message::TypesError;
use chappe_transport::http;
use chappe_transport::{Hop, key_file, tls};

/// A failure of a device, client or host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A socket cannot be opened.
    #[error("cannot listen{}: {source}", at.map(|at| format!(" at {at}")).unwrap_or_default())]
    Listen {
        /// The address.
        at: Option<IpAddr>,
        /// The error of the system.
        source: io::Error,
    },
    /// No interface fits the selection.
    #[error("no usable network interface: {0}")]
    NoInterface(String),
    /// The device gives no transport address.
    #[error("the device gives no transport address")]
    NoAddress,
    /// None of the device's transport addresses may be contacted.
    #[error("refused to contact address {address}: {refusal}")]
    Refused {
        /// The first of them.
        address: String,
        /// The reason.
        refusal: Refusal,
    },
    /// The device is unreachable, or its answer is invalid.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// An answer lacks a part that the profile requires.
    #[error("the device's answer to {operation} is unusable: {what}")]
    Answer {
        /// The operation.
        operation: &'static str,
        /// The problem.
        what: String,
    },
    /// A discovered endpoint is not a DPWS device.
    #[error("the endpoint does not claim to be a DPWS device, and returns no metadata: {0}")]
    NotDpws(Box<Error>),
    /// The parser of a document ended before its result.
    #[error(transparent)]
    Parser(#[from] chappe_transport::ParserEnded),
    /// The description took too long.
    #[error("the device did not complete its description within {} s", .0.as_secs_f64())]
    Slow(Duration),
    /// A check ended without an answer of the device that could be judged.
    #[error("the device gave no usable answer within {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// A subscription was refused or lost.
    #[error("the subscription failed: {0}")]
    Subscription(String),
    /// Events of a device with TLS need a server with TLS, and so a certificate.
    #[error("the device sends events only with TLS, and this client has no certificate")]
    NoCertificate,
    /// The description of a hosted device is wrong.
    #[error("misuse: {0}")]
    Misuse(String),
    /// The key file of the device cannot be used.
    #[error(transparent)]
    Key(#[from] key_file::Error),
    /// A certificate, a key or authorities cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::FileError),
    /// The version of the description cannot be stored.
    #[error("cannot store the version of the description in {}: {source}", path.display())]
    Memory {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The messages of a service do not fit into one schema.
    #[error("service {service}: {source}")]
    Types {
        /// The service.
        service: String,
        /// The reason.
        source: TypesError,
    },
    /// The client or host is closed.
    #[error("closed")]
    Closed,
}

impl Error {
    /// A constant short text, for counters.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Listen { .. } => "cannot listen",
            Self::NoInterface(_) => "no usable interface",
            Self::NoAddress => "no transport address",
            Self::Refused { .. } => "address refused",
            Self::Http(error) => error.reason(),
            Self::Answer { .. } => "unusable answer",
            Self::NotDpws(_) => "no DPWS device",
            Self::Parser(_) => "parser ended",
            Self::Slow(_) => "description too slow",
            Self::Silent(_) => "no usable answer",
            Self::Subscription(_) => "subscription failed",
            Self::NoCertificate => "no own certificate",
            Self::Misuse(_) => "misuse",
            Self::Key(_) => "key file refused",
            Self::Tls(_) => "certificate not usable",
            Self::Memory { .. } => "version not stored",
            Self::Types { .. } => "messages without a schema",
            Self::Closed => "closed",
        }
    }

    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => Some("choose another port, or 0 for a free one".into()),
                io::ErrorKind::AddrNotAvailable => {
                    Some("choose an address of this host: ip address".into())
                }
                _ => None,
            },
            Self::NoInterface(_) => Some("list the interfaces: ip address".into()),
            Self::NoAddress => Some("the device does not answer Resolve: restart it".into()),
            Self::Refused { refusal, .. } => refusal.hint(),
            Self::Http(error) => error.hint(),
            Self::NoCertificate => {
                Some("give a certificate that the device trusts, and its key".into())
            }
            Self::Slow(_) => Some("check that the device serves its WSDL and schemas".into()),
            Self::NotDpws(_) => Some("cameras and others support discovery only".into()),
            Self::Key(error) => error.hint(),
            Self::Tls(error) => error.hint(),
            Self::Memory { .. } => {
                Some("the device must be able to write to the directory of its key".into())
            }
            Self::Types { source, .. } => Some(source.hint().into()),
            _ => None,
        }
    }

    /// The hop at which it is counted.
    #[must_use]
    pub fn hop(&self, otherwise: Hop) -> Hop {
        match self {
            Self::Refused { .. } => Hop::Address,
            Self::Listen { .. } | Self::NoInterface(_) => Hop::Network,
            _ => otherwise,
        }
    }
}
