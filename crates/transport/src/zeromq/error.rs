//! Errors of sockets and connections.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use chappe_zmtp::Fault;

/// An error; [`Error::fault`] says whose fault it is.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The endpoint is malformed.
    #[error("{endpoint:?} is not a valid endpoint: {what}")]
    Endpoint {
        /// The text.
        endpoint: String,
        /// The reason.
        what: &'static str,
    },
    /// The address cannot be bound.
    #[error("cannot listen at {endpoint}: {source}")]
    Bind {
        /// The endpoint.
        endpoint: String,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// No connection.
    #[error("no connection to {endpoint}: {source}")]
    Connect {
        /// The endpoint.
        endpoint: String,
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The connection broke.
    #[error("the connection with {peer} broke: {source}")]
    Broken {
        /// The peer.
        peer: SocketAddr,
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The peer ended the connection, without a reason.
    #[error("{peer} closed the connection{}", if *handshake { " during the handshake" } else { "" })]
    Ended {
        /// The peer.
        peer: SocketAddr,
        /// Whether the handshake was unfinished: a peer gives no other sign that it refuses a key.
        handshake: bool,
    },
    /// The protocol ended the connection.
    #[error("{peer}: {source}")]
    Protocol {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        source: chappe_zmtp::Error,
    },
    /// This end closed the connection or the socket.
    #[error("the connection was closed at this end")]
    Closed,
    /// The message exceeds the limit of this end, so an equal peer would refuse it.
    #[error("a message of {bytes} bytes exceeds the limit of {bound}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit.
        bound: usize,
    },
    /// The connection was displaced by another, or there were too many.
    #[error("{peer} was disconnected: too many connections")]
    Displaced {
        /// The peer.
        peer: SocketAddr,
    },
    /// No answer came in time.
    #[error("{endpoint} did not answer in time")]
    Late {
        /// The address.
        endpoint: String,
    },
}

impl Error {
    /// The side at fault.
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

    /// A constant short text, for counters.
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

    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Endpoint { .. } => Some("write tcp://HOST:PORT".to_owned()),
            Self::Bind { source, .. } => Some(match source.kind() {
                io::ErrorKind::AddrInUse => {
                    "another program uses the port: choose another one".into()
                }
                io::ErrorKind::AddrNotAvailable => "this machine does not have that address".into(),
                _ => "port 0 picks a free one".into(),
            }),
            Self::Connect { endpoint, kind, .. } => Some(match kind {
                io::ErrorKind::ConnectionRefused => {
                    format!("nothing listens at {endpoint}: check that the node runs, and its port")
                }
                _ => format!("check for a firewall in front of {endpoint}"),
            }),
            Self::Ended {
                handshake: true, ..
            } => Some(
                "check that the peer is a ZeroMQ socket and knows this node's public key".into(),
            ),
            Self::Protocol { source, .. } => source.hint(),
            Self::TooLarge { .. } => Some("raise the limit on message bytes at both ends".into()),
            Self::Displaced { .. } => Some("raise the limit on connections".into()),
            _ => None,
        }
    }
}
