//! The configuration of a connection, and the limits for its peer.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::SocketType;

/// The size of a CURVE key, public or secret.
pub const KEY_BYTES: usize = 32;

/// A CURVE secret key. `Debug` withholds it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub [u8; KEY_BYTES]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(withheld)")
    }
}

/// The keys that a CURVE server accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Every client that knows the server's key; its proven key identifies it.
    Any,
    /// Only these public keys.
    Keys(Arc<BTreeSet<[u8; KEY_BYTES]>>),
}

impl Allowed {
    /// Whether this key is accepted.
    #[must_use]
    pub fn allows(&self, key: &[u8; KEY_BYTES]) -> bool {
        match self {
            Self::Any => true,
            Self::Keys(keys) => keys.contains(key),
        }
    }
}

/// The security mechanism of a connection, the same at both ends: there is no downgrade negotiation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mechanism {
    /// No authentication and no encryption.
    Null,
    /// CURVE (26/CURVEZMQ), with this end as the server.
    CurveServer {
        /// The server's permanent secret key.
        secret: SecretKey,
        /// The accepted client keys.
        allowed: Allowed,
    },
    /// CURVE, with this end as the client.
    CurveClient {
        /// The client's permanent secret key.
        secret: SecretKey,
        /// The server's permanent public key.
        server: [u8; KEY_BYTES],
    },
}

impl Mechanism {
    /// The name in the greeting.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::CurveServer { .. } | Self::CurveClient { .. } => "CURVE",
        }
    }

    /// The greeting's as-server field.
    #[must_use]
    pub const fn is_server(&self) -> bool {
        matches!(self, Self::CurveServer { .. })
    }
}

/// Limits for the peer. Exceeding one ends the connection, with the limit's name in the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Time from the start of the connection to the end of the handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// The size of a command before authentication, which contains the properties. Default 2 KiB; a handshake of
    /// libzmq needs less than 400 bytes.
    pub handshake_command_bytes: usize,
    /// The size of a message, all frames together. Default 16 MiB.
    pub message_bytes: usize,
    /// Frames of a message: empty frames cost memory, too. Default 256.
    pub message_frames: usize,
    /// Active subscriptions of the peer. Default 4,096.
    pub subscriptions: usize,
    /// The size of a subscription. Default 256 bytes, the longest stream name.
    pub subscription_bytes: usize,
    /// Commands a second without content: PING and unknown ones. Default 100; a heartbeat needs a few.
    pub idle_commands_per_s: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            handshake_command_bytes: 2 << 10,
            message_bytes: 16 << 20,
            message_frames: 256,
            subscriptions: 4_096,
            subscription_bytes: 256,
            idle_commands_per_s: 100,
        }
    }
}

/// When a silent peer gets a PING, and when it counts as dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// Silence after which a PING is sent.
    pub interval: Duration,
    /// Silence after which the connection is dead.
    pub timeout: Duration,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(15),
        }
    }
}

/// The configuration of one end of a connection.
#[derive(Debug, Clone)]
pub struct Config {
    /// This end's socket type.
    pub socket_type: SocketType,
    /// This end's identity, at most 255 bytes, empty for none.
    pub identity: Bytes,
    /// The security mechanism.
    pub mechanism: Mechanism,
    /// Limits for the peer.
    pub limits: Limits,
    /// Heartbeats; `None` waits forever.
    pub heartbeat: Option<Heartbeat>,
    /// Whether a peer of ZMTP 2.0 is accepted (15/ZMTP: ZeroMQ 3, JeroMQ 0.3), which has neither a security mechanism
    /// nor heartbeats. Only with [`Mechanism::Null`]. Default no; it delays every handshake by half a round trip,
    /// because the greeting waits for the peer's version.
    pub accepts_version_2: bool,
}

impl Config {
    /// A connection of this type and mechanism, with defaults for the rest.
    #[must_use]
    pub fn new(socket_type: SocketType, mechanism: Mechanism) -> Self {
        Self {
            socket_type,
            identity: Bytes::new(),
            mechanism,
            limits: Limits::default(),
            heartbeat: Some(Heartbeat::default()),
            accepts_version_2: false,
        }
    }
}
