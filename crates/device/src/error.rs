//! Why a device cannot be used, and what can be done.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use chappe_identity::Refusal;
use chappe_transport::Hop;
use chappe_transport::http;

/// Something about a device that failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Sockets cannot be made.
    #[error("cannot listen{}: {source}", at.map(|at| format!(" at {at}")).unwrap_or_default())]
    Listen {
        /// Where.
        at: Option<IpAddr>,
        /// What the system said.
        source: io::Error,
    },
    /// No interface fits the selection.
    #[error("no usable network interface: {0}")]
    NoInterface(String),
    /// The device gives no transport address.
    #[error("the device gives no transport address")]
    NoAddress,
    /// None of the device's transport addresses may be contacted.
    #[error("address {address} is not contacted: {refusal}")]
    Refused {
        /// The first of them.
        address: String,
        /// Why not.
        refusal: Refusal,
    },
    /// The device cannot be reached or answers wrongly.
    #[error(transparent)]
    Http(#[from] http::Error),
    /// An answer lacks what the profile demands.
    #[error("the device's answer to {question} is not usable: {what}")]
    Answer {
        /// What was asked.
        question: &'static str,
        /// What is wrong.
        what: String,
    },
    /// Something was found that is no device of the profile.
    #[error("it does not claim to be a DPWS device, and gives no metadata: {0}")]
    NotDpws(Box<Error>),
    /// A document of the device was not parsed to its end.
    #[error(transparent)]
    Parser(#[from] chappe_transport::ParserEnded),
    /// The device did not describe itself in time.
    #[error("the device has not described itself within {} s", .0.as_secs_f64())]
    Slow(Duration),
    /// A subscription was refused or lost.
    #[error("the subscription failed: {0}")]
    Subscription(String),
    /// The description of a device to be hosted is wrong.
    #[error("misuse: {0}")]
    Misuse(String),
    /// The client or host is closed.
    #[error("closed")]
    Closed,
}

impl Error {
    /// A few words that are always the same, for counting.
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
            Self::Subscription(_) => "subscription failed",
            Self::Misuse(_) => "misuse",
            Self::Closed => "closed",
        }
    }

    /// What can be done, when that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Listen { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => Some("take another port, or 0 for a free one".into()),
                io::ErrorKind::AddrNotAvailable => {
                    Some("take an address of this host: see ip address".into())
                }
                _ => None,
            },
            Self::NoInterface(_) => Some("see which there are: ip address".into()),
            Self::NoAddress => Some("the device answers no Resolve: restart it".into()),
            Self::Refused { refusal, .. } => refusal.hint(),
            Self::Http(error) => error.hint(),
            Self::Slow(_) => Some("see whether the device answers its WSDL and schemas".into()),
            Self::NotDpws(_) => Some("cameras and others speak discovery alone".into()),
            _ => None,
        }
    }

    /// Where on the way it is counted.
    #[must_use]
    pub fn hop(&self, otherwise: Hop) -> Hop {
        match self {
            Self::Refused { .. } => Hop::Address,
            Self::Listen { .. } | Self::NoInterface(_) => Hop::Network,
            _ => otherwise,
        }
    }
}
