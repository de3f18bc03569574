//! Why a connection ended, and by whose fault.

/// Who has to change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The peer broke the protocol or a limit.
    Peer,
    /// The two ends are configured for different things: version, mechanism, socket types, keys.
    Configuration,
    /// This end used the connection wrongly.
    Caller,
    /// Nobody: silence, an end.
    Network,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes break the grammar of 37/ZMTP or 26/CURVEZMQ.
    #[error("the peer broke the protocol at byte {offset}: {what}")]
    Protocol {
        /// What it did.
        what: &'static str,
        /// Bytes of the connection before it.
        offset: u64,
    },
    /// The peer speaks another protocol or an older version.
    #[error("the peer does not speak ZMTP 3: {what}")]
    Version {
        /// What was seen.
        what: &'static str,
    },
    /// The mechanisms differ.
    #[error("this end wants the mechanism {ours}, the peer announces {theirs:?}")]
    Mechanism {
        /// Ours.
        ours: &'static str,
        /// Theirs, as far as it is printable.
        theirs: String,
    },
    /// Both ends are CURVE servers.
    #[error("both ends want to be the server of the CURVE handshake")]
    Role,
    /// The socket types do not go together.
    #[error("a {ours} socket does not talk to a {theirs} socket")]
    SocketTypes {
        /// Ours.
        ours: &'static str,
        /// Theirs, as far as it is printable.
        theirs: String,
    },
    /// A box does not open: a wrong key, or changed bytes.
    #[error("the {what} does not open: another key than expected, or changed on the way")]
    Key {
        /// Which box.
        what: &'static str,
    },
    /// The key is not among those that are let in.
    #[error("the peer's key is not among the allowed ones")]
    NotAllowed {
        /// The peer's public key.
        key: [u8; crate::KEY_BYTES],
    },
    /// The peer refused this end.
    #[error("the peer refused the connection: {reason:?}")]
    Refused {
        /// Its words, as far as they are printable.
        reason: String,
    },
    /// A limit was reached.
    #[error("the peer went beyond the limit {limit} of {bound}")]
    Limit {
        /// The limit's name, as in [`Limits`](crate::Limits).
        limit: &'static str,
        /// Its value.
        bound: usize,
    },
    /// The handshake took too long.
    #[error("the handshake was not done in time")]
    HandshakeTimeout,
    /// Nothing came for the time of the heartbeat.
    #[error("the peer has been silent for too long")]
    Silent,
    /// A message was given to send before the handshake was done, or a command that this socket
    /// type does not have.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

impl Error {
    /// Who has to change something.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Protocol { .. } | Self::Limit { .. } => Fault::Peer,
            Self::Version { .. }
            | Self::Mechanism { .. }
            | Self::Role
            | Self::SocketTypes { .. }
            | Self::Key { .. }
            | Self::NotAllowed { .. }
            | Self::Refused { .. } => Fault::Configuration,
            Self::HandshakeTimeout | Self::Silent => Fault::Network,
            Self::Misuse(_) => Fault::Caller,
        }
    }

    /// A few words that are always the same, for counting.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Protocol { .. } => "ZMTP broken",
            Self::Version { .. } => "not ZMTP 3",
            Self::Mechanism { .. } => "other security mechanism",
            Self::Role => "same CURVE role",
            Self::SocketTypes { .. } => "socket type does not fit",
            Self::Key { .. } => "wrong key",
            Self::NotAllowed { .. } => "key not allowed",
            Self::Refused { .. } => "refused by the peer",
            Self::Limit { .. } => "beyond a limit",
            Self::HandshakeTimeout => "handshake too slow",
            Self::Silent => "peer silent",
            Self::Misuse(_) => "misuse",
        }
    }

    /// What can be done, when that is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Version { .. } => "is the port right? older ZeroMQ than 4.0 is not understood",
            Self::Mechanism { ours: "CURVE", .. } => {
                "give the peer a CURVE key pair and this end's public key"
            }
            Self::Mechanism { .. } => "the peer wants CURVE: give this end the peer's public key",
            Self::Role => {
                "the end that binds is the CURVE server, the one that connects the client"
            }
            Self::SocketTypes { .. } => "is the port right? each kind of link has one of its own",
            Self::Key { .. } => "compare the server's public key with the one configured here",
            Self::NotAllowed { .. } => "add the peer's public key to the allowed keys",
            Self::Refused { .. } => "the peer's log says more",
            Self::Limit { .. } => "raise the limit, when the peer is trusted",
            Self::HandshakeTimeout => "is the peer a ZeroMQ socket?",
            Self::Silent => "see the network and the peer's load",
            Self::Protocol { .. } | Self::Misuse(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// What is printable of a stranger's bytes, at most 64 characters of it.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(64).map(|byte| match byte {
        0x20..=0x7E => char::from(*byte),
        _ => '?',
    });
    shown.collect()
}
