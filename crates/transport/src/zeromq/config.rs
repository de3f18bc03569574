//! Endpoints, security and limits of sockets.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::{CurvePublic, CurveSecret};
use chappe_zmtp::{Heartbeat, Mechanism};

use super::{Dropping, Error};

/// `tcp://HOST:PORT`, the address format of ZeroMQ. The host is an address, a name, or `*` for all interfaces (to bind
/// only); port 0 takes a free one (to bind only).
///
/// ```
/// use chappe_transport::zeromq::Endpoint;
/// let endpoint: Endpoint = "tcp://[::1]:22022".parse()?;
/// assert_eq!(endpoint.to_string(), "tcp://[::1]:22022");
/// assert!(endpoint.is_loopback());
/// assert!("http://localhost".parse::<Endpoint>().is_err());
/// # Ok::<(), chappe_transport::zeromq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Whether only this machine can reach it. A name counts as remote, whatever it resolves to, except
    /// `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The address to bind.
    pub(super) fn to_bind(&self) -> Result<SocketAddr, Error> {
        let host = match self.host.as_str() {
            "*" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => host.parse().map_err(|_| Error::Endpoint {
                endpoint: self.to_string(),
                what: "to bind, the host must be an address of this machine or *",
            })?,
        };
        Ok(SocketAddr::new(host, self.port))
    }

    /// The addresses to try.
    pub(super) async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let host = self.host.as_str();
        if host == "*" || self.port == 0 {
            return Err(Error::Endpoint {
                endpoint: self.to_string(),
                what: "to connect, host and port are required",
            });
        }
        let failed = |source: std::io::Error| Error::Connect {
            endpoint: self.to_string(),
            kind: source.kind(),
            source: Arc::new(source),
        };
        let addresses = tokio::net::lookup_host((host, self.port)).await;
        Ok(addresses.map_err(failed)?.collect())
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<Ipv6Addr>() {
            Ok(host) => write!(f, "tcp://[{host}]:{}", self.port),
            Err(_) => write!(f, "tcp://{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what| Error::Endpoint {
            endpoint: text.chars().take(256).collect(),
            what,
        };
        let rest = text
            .strip_prefix("tcp://")
            .ok_or_else(|| wrong("it does not begin with tcp://"))?;
        let (host, port) = rest
            .rsplit_once(':')
            .ok_or_else(|| wrong("it has no port"))?;
        let port = port
            .parse()
            .map_err(|_| wrong("its port is not a number"))?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(host) => match host.parse::<Ipv6Addr>() {
                Ok(host) => host.to_string(),
                Err(_) => return Err(wrong("the text in brackets is not an IPv6 address")),
            },
            None if host.is_empty()
                || host.contains(|it: char| it == ':' || it.is_whitespace()) =>
            {
                return Err(wrong("its host is neither a name nor an address"));
            }
            None => host.to_owned(),
        };
        Ok(Self { host, port })
    }
}

/// The CURVE keys that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allowed {
    /// Every client that knows the server's public key; [`Peer`](super::Peer) has the proven key.
    Any,
    /// Only these.
    Keys(BTreeSet<CurvePublic>),
}

/// The security of a socket. All peers of a socket use the same mechanism (37/ZMTP): there is no downgrade
/// negotiation.
#[derive(Debug, Clone)]
pub enum Security {
    /// None. For loopback and networks with other protection.
    Null,
    /// None, and peers of ZMTP 2.0 (ZeroMQ 3, JeroMQ 0.3) are accepted, too: foreign programs with old libraries.
    NullFrom2,
    /// CURVE; this end has the key that peers have to know.
    CurveServer {
        /// The secret key of this end.
        secret: CurveSecret,
        /// The accepted keys.
        allowed: Allowed,
    },
    /// CURVE; this end knows the key of the other end.
    CurveClient {
        /// The secret key of this end.
        secret: CurveSecret,
        /// The public key of the other end.
        server_key: CurvePublic,
    },
}

impl Security {
    pub(super) fn mechanism(&self) -> Mechanism {
        match self {
            Self::Null | Self::NullFrom2 => Mechanism::Null,
            Self::CurveServer { secret, allowed } => Mechanism::CurveServer {
                secret: chappe_zmtp::SecretKey(*secret.as_bytes()),
                allowed: match allowed {
                    Allowed::Any => chappe_zmtp::Allowed::Any,
                    Allowed::Keys(keys) => {
                        let keys = keys.iter().map(|key| *key.as_bytes()).collect();
                        chappe_zmtp::Allowed::Keys(Arc::new(keys))
                    }
                },
            },
            Self::CurveClient { secret, server_key } => Mechanism::CurveClient {
                secret: chappe_zmtp::SecretKey(*secret.as_bytes()),
                server: *server_key.as_bytes(),
            },
        }
    }
}

/// Limits on the resources of peers. Each refusal is counted by its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The size of a sent message, all frames together. Default 16 MiB.
    pub max_message_bytes: usize,
    /// The size of a received message, all frames together. Default 16 MiB. Each connection of a peer can
    /// occupy this much memory with a message that never ends.
    pub max_received_bytes: usize,
    /// Time to connect and for the handshake. Default 10 s.
    pub handshake_timeout: Duration,
    /// The size of a command before authentication. Default 2 KiB.
    pub handshake_command_bytes: usize,
    /// Connections of a listening socket. Default 1,024. Above it, the connection with the longest unfinished
    /// handshake is closed; one that has finished it never is.
    pub connections: usize,
    /// Connections of one peer (an IPv4 address or an IPv6 /64). Default 256.
    pub connections_per_address: usize,
    /// Whether the connection that sent no message for longest ends for a new one when there are too many. Default:
    /// false.
    pub displaces_idle: bool,
    /// Time of a peer to end a message that it has begun, for connections that are split. Default: none.
    pub message_time: Option<Duration>,
    /// Bytes of unfinished messages of all connections of a listening socket, above 64 KiB for each. A connection
    /// beyond them ends. Default: no bound.
    pub unfinished_bytes: Option<usize>,
    /// New connections a second from one peer, with a burst of one second. Default 100; further ones are closed at
    /// once, so that handshakes cannot use up the processor.
    pub handshakes_per_address_per_s: u32,
    /// New connections a second in total. Default 1,000; further ones wait.
    pub handshakes_per_s: u32,
    /// Outgoing messages queued for one connection. Default 1,000, ZeroMQ's high-water mark.
    pub send_messages: usize,
    /// Their bytes, plus 64 for each frame. Default 4 MiB; one message always fits.
    pub send_bytes: usize,
    /// Incoming messages queued for one connection. Default 1,000.
    pub receive_messages: usize,
    /// Their bytes, plus 64 for each frame. Default 4 MiB; one message always fits.
    pub receive_bytes: usize,
    /// The message dropped if a subscriber is too slow. Default: the newest.
    pub dropping: Dropping,
    /// Active subscriptions of one peer. Default 4,096.
    pub subscriptions: usize,
    /// Commands a second without content. Default 100.
    pub idle_commands_per_s: usize,
    /// Time to send queued messages after the connection is closed. Default 1 s.
    pub linger: Duration,
    /// Heartbeats. Default: PING after 5 s, dead after 15 s of silence.
    pub heartbeat: Option<Heartbeat>,
}

impl Default for Limits {
    fn default() -> Self {
        let zmtp = chappe_zmtp::Limits::default();
        Self {
            max_message_bytes: zmtp.message_bytes,
            max_received_bytes: zmtp.message_bytes,
            handshake_timeout: zmtp.handshake_timeout,
            handshake_command_bytes: zmtp.handshake_command_bytes,
            connections: 1_024,
            connections_per_address: 256,
            displaces_idle: false,
            message_time: None,
            unfinished_bytes: None,
            handshakes_per_address_per_s: 100,
            handshakes_per_s: 1_000,
            send_messages: 1_000,
            send_bytes: 4 << 20,
            receive_messages: 1_000,
            receive_bytes: 4 << 20,
            dropping: Dropping::default(),
            subscriptions: zmtp.subscriptions,
            idle_commands_per_s: zmtp.idle_commands_per_s,
            linger: Duration::from_secs(1),
            heartbeat: Some(Heartbeat::default()),
        }
    }
}

impl Limits {
    pub(super) fn machine(&self) -> chappe_zmtp::Limits {
        chappe_zmtp::Limits {
            handshake_timeout: self.handshake_timeout,
            handshake_command_bytes: self.handshake_command_bytes,
            message_bytes: self.max_received_bytes,
            subscriptions: self.subscriptions,
            idle_commands_per_s: self.idle_commands_per_s,
            ..chappe_zmtp::Limits::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_or_refused_in_words() {
        for text in ["tcp://127.0.0.1:0", "tcp://*:22022", "tcp://node7.plant:1"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "tcp://",
            "tcp://a",
            "tcp://a:b",
            "tcp://:1",
            "tcp://::1:1",
            "ipc://a:1",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.hint().is_some(), "{error}");
        }
        let everywhere: Endpoint = "tcp://*:5".parse().unwrap();
        assert!(everywhere.to_bind().unwrap().ip().is_unspecified());
        assert!(!everywhere.is_loopback());
        let name: Endpoint = "tcp://node7:5".parse().unwrap();
        assert!(name.to_bind().is_err());
    }
}
