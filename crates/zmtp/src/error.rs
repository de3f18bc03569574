//! Errors that end a connection, by fault.

/// The side at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The peer violated the protocol or a limit.
    Peer,
    /// The two ends have incompatible configurations: version, mechanism, socket types, keys.
    Configuration,
    /// This end misused the connection.
    Caller,
    /// No fault: silence or a normal end.
    Network,
}

/// The reason why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes violate the grammar of 37/ZMTP or 26/CURVEZMQ.
    #[error("the peer violated the protocol at byte {offset}: {what}")]
    Protocol {
        /// The violation.
        what: &'static str,
        /// The offset in the connection.
        offset: u64,
    },
    /// The peer uses another protocol or an older version.
    #[error("the peer does not speak ZMTP 3: {what}")]
    Version {
        /// The received bytes, described.
        what: &'static str,
    },
    /// The mechanisms differ.
    #[error("this end requires the mechanism {ours}, the peer announces {theirs:?}")]
    Mechanism {
        /// The local one.
        ours: &'static str,
        /// The peer's, as far as it is printable.
        theirs: String,
    },
    /// Both ends are CURVE servers.
    #[error("both ends are configured as CURVE servers")]
    Role,
    /// The socket types are incompatible.
    #[error("a {ours} socket is incompatible with a {theirs} socket")]
    SocketTypes {
        /// The local one.
        ours: &'static str,
        /// The peer's, as far as it is printable.
        theirs: String,
    },
    /// A box cannot be decrypted: the key is wrong, or the bytes were changed.
    #[error("the {what} cannot be decrypted: the key is wrong, or the bytes were changed")]
    Key {
        /// The box.
        what: &'static str,
    },
    /// The key is not accepted.
    #[error("the peer's key is not among the allowed ones")]
    NotAllowed {
        /// The peer's public key.
        key: [u8; crate::KEY_BYTES],
    },
    /// The peer refused this end.
    #[error("the peer refused the connection: {reason:?}")]
    Refused {
        /// Its reason, as far as it is printable.
        reason: String,
    },
    /// A limit was exceeded.
    #[error("the peer exceeded the limit {limit} of {bound}")]
    Limit {
        /// The limit's name, as in [`Limits`](crate::Limits).
        limit: &'static str,
        /// Its value.
        bound: usize,
    },
    /// The handshake took too long.
    #[error("the handshake did not finish in time")]
    HandshakeTimeout,
    /// Nothing arrived within the time of the heartbeat.
    #[error("the peer has been silent for too long")]
    Silent,
    /// A message was sent before the end of the handshake, or a command that this socket type does not have.
    #[error("misuse: {0}")]
    Misuse(&'static str),
}

impl Error {
    /// The side at fault.
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

    /// A constant short text, for counters.
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

    /// A remedy, if one is known.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Version { .. } => {
                "check the port; ZeroMQ before 4.0 speaks an older version, which this socket does not accept"
            }
            Self::Mechanism { ours: "CURVE", .. } => {
                "give the peer a CURVE key pair and this end's public key"
            }
            Self::Mechanism { .. } => {
                "the peer requires CURVE: configure the peer's public key here"
            }
            Self::Role => {
                "configure the end that binds as the CURVE server, and the other as the client"
            }
            Self::SocketTypes { .. } => "check the port: each kind of link has its own",
            Self::Key { .. } => "compare the server's public key with the one configured here",
            Self::NotAllowed { .. } => "add the peer's public key to the allowed keys",
            Self::Refused { .. } => "check the peer's log",
            Self::Limit { .. } => "raise the limit, if the peer is trusted",
            Self::HandshakeTimeout => "check that the peer is a ZeroMQ socket",
            Self::Silent => "check the network and the peer's load",
            Self::Protocol { .. } | Self::Misuse(_) => return None,
        };
        Some(hint.to_owned())
    }
}

/// The printable part of a peer's bytes, at most 64 characters.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = bytes.iter().take(64).map(|byte| match byte {
        0x20..=0x7E => char::from(*byte),
        _ => '?',
    });
    shown.collect()
}
