//! Why a socket or a connection does not work.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use chappe_zmtp::Fault;

/// What went wrong, kept apart by whose fault it is: [`Error::fault`].
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint cannot be read.
    #[error("{endpoint:?} is no endpoint: {what}")]
    Endpoint {
        /// The text.
        endpoint: String,
        /// Why not.
        what: &'static str,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {endpoint}: {source}")]
    Bind {
        /// The endpoint.
        endpoint: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// No connection.
    #[error("no connection to {endpoint}: {source}")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// The kind of failure.
        kind: io::ErrorKind,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The connection broke.
    #[error("the connection with {peer} broke: {source}")]
    Broken {
        /// The peer.
        peer: SocketAddr,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The peer ended the connection, without a reason.
    #[error("{peer} closed the connection{}", if *handshake { " during the handshake" } else { "" })]
    Ended {
        /// The peer.
        peer: SocketAddr,
        /// Whether the handshake was not done: a peer that refuses a key says no more than this.
        handshake: bool,
    },
    /// The protocol ended the connection.
    #[error("{peer}: {source}")]
    Protocol {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        source: chappe_zmtp::Error,
    },
    /// This end closed the connection or the socket.
    #[error("closed at this end")]
    Closed,
    /// The message is above the limit of this end, so that no equal peer would take it.
    #[error("a message of {bytes} bytes is above the limit of {bound}")]
    TooLarge {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        bound: usize,
    },
    /// The connection had to give its place to another, or was one too many.
    #[error("{peer} had to give way: too many connections")]
    Displaced {
        /// The peer.
        peer: SocketAddr,
    },
    /// No answer came in time.
    #[error("{endpoint} did not answer in time")]
    Late {
        /// Who was asked.
        endpoint: String,
    },
}

impl Error {
    /// Who has to change something.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Endpoint { .. } | Self::Bind { .. } => Fault::Configuration,
            Self::Connect { .. } | Self::Broken { .. } | Self::Late { .. } => Fault::Network,
            Self::Ended {
                handshake: true, ..
            } => Fault::Configuration,
            Self::Ended { .. } => Fault::Network,
            Self::Protocol { source, .. } => source.fault(),
            Self::Displaced { .. } => Fault::Peer,
            Self::Closed | Self::TooLarge { .. } => Fault::Caller,
        }
    }

    /// A few words that are always the same, for counting.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Endpoint { .. } => "no endpoint",
            Self::Bind { .. } => "cannot listen",
            Self::Connect { .. } => "no connection",
            Self::Broken { .. } => "connection broken",
            Self::Ended {
                handshake: true, ..
            } => "closed during the handshake",
            Self::Ended { .. } => "closed by the peer",
            Self::Protocol { source, .. } => source.reason(),
            Self::Closed => "closed",
            Self::TooLarge { .. } => "message too large",
            Self::Displaced { .. } => "too many connections",
            Self::Late { .. } => "no answer in time",
        }
    }

    /// What can be done, when that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Endpoint { .. } => Some("write tcp://HOST:PORT".to_owned()),
            Self::Bind { source, .. } => Some(match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "something else listens there: take another port".into()
                }
                io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
                _ => "port 0 takes a free one".into(),
            }),
            Self::Connect { endpoint, kind, .. } => Some(match kind {
                io::ErrorKind::ConnectionRefused => {
                    format!(
                        "nothing listens at {endpoint}: does the node run, and is that its port?"
                    )
                }
                _ => format!("a firewall may stand before {endpoint}"),
            }),
            Self::Ended {
                handshake: true, ..
            } => {
                Some("does the peer know this node's public key, and is it a ZeroMQ socket?".into())
            }
            Self::Protocol { source, .. } => source.hint(),
            Self::TooLarge { .. } => Some("raise the limit of message bytes at both ends".into()),
            Self::Displaced { .. } => Some("raise the limit of connections".into()),
            _ => None,
        }
    }
}
