//! What a connection is, and what its peer may cost.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::SocketType;

/// Bytes of a CURVE key, public or secret.
pub const KEY_BYTES: usize = 32;

/// A CURVE secret key. `Debug` withholds it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(pub [u8; KEY_BYTES]);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(withheld)")
    }
}

/// Whose keys a CURVE server lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Everybody that knows the server's key; who it is shows the key it proved to have.
    Any,
    /// These public keys only.
    Keys(Arc<BTreeSet<[u8; KEY_BYTES]>>),
}

impl Allowed {
    /// Whether this key is let in.
    #[must_use]
    pub fn allows(&self, key: &[u8; KEY_BYTES]) -> bool {
        match self {
            Self::Any => true,
            Self::Keys(keys) => keys.contains(key),
        }
    }
}

/// The security mechanism of a connection. Both ends have the same; nothing is negotiated down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mechanism {
    /// No authentication and no secrecy.
    Null,
    /// CURVE (26/CURVEZMQ), this end is the server.
    CurveServer {
        /// The server's permanent secret key.
        secret: SecretKey,
        /// Whom it lets in.
        allowed: Allowed,
    },
    /// CURVE, this end is the client.
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

/// What the peer may cost. Reaching one ends the connection, with the limit's name in the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Time from the connection's begin to the end of the handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// Bytes of a command before the peer is authenticated: its properties are in it. Default
    /// 2 KiB; a handshake of libzmq takes below 400.
    pub handshake_command_bytes: usize,
    /// Bytes of a message, all frames together. Default 16 MiB.
    pub message_bytes: usize,
    /// Frames of a message: empty frames cost memory too. Default 256.
    pub message_frames: usize,
    /// Live subscriptions of the peer. Default 4,096.
    pub subscriptions: usize,
    /// Bytes of a subscription. Default 256, the longest stream name.
    pub subscription_bytes: usize,
    /// Commands in a second that carry nothing: PING, unknown ones. Default 100; a heartbeat takes
    /// a few.
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

/// When a silent peer is asked whether it still lives, and when it counts as dead.
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

/// One end of a connection.
#[derive(Debug, Clone)]
pub struct Config {
    /// This end's socket type.
    pub socket_type: SocketType,
    /// This end's identity, at most 255 bytes, empty for none.
    pub identity: Bytes,
    /// The security mechanism.
    pub mechanism: Mechanism,
    /// What the peer may cost.
    pub limits: Limits,
    /// Heartbeats; none to wait for ever.
    pub heartbeat: Option<Heartbeat>,
}

impl Config {
    /// A connection of this type and mechanism, all else at its default.
    #[must_use]
    pub fn new(socket_type: SocketType, mechanism: Mechanism) -> Self {
        Self {
            socket_type,
            identity: Bytes::new(),
            mechanism,
            limits: Limits::default(),
            heartbeat: Some(Heartbeat::default()),
        }
    }
}
