//! The supported socket types, and their compatible peers (37/ZMTP, section The Socket-Type Property).

use std::fmt;

/// The type of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SocketType {
    /// Sends a request and waits for the reply (28/REQREP).
    Req,
    /// Replies to requests (28/REQREP).
    Rep,
    /// Sends and receives asynchronously (28/REQREP).
    Dealer,
    /// Sends and receives for each peer separately (28/REQREP).
    Router,
    /// Publishes (29/PUBSUB).
    Pub,
    /// Subscribes (29/PUBSUB).
    Sub,
    /// Publishes and receives subscriptions (29/PUBSUB).
    Xpub,
    /// Subscribes with messages (29/PUBSUB).
    Xsub,
}

impl SocketType {
    /// All types.
    pub const ALL: [Self; 8] = [
        Self::Req,
        Self::Rep,
        Self::Dealer,
        Self::Router,
        Self::Pub,
        Self::Sub,
        Self::Xpub,
        Self::Xsub,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Dealer => "DEALER",
            Self::Router => "ROUTER",
            Self::Pub => "PUB",
            Self::Sub => "SUB",
            Self::Xpub => "XPUB",
            Self::Xsub => "XSUB",
        }
    }

    /// The type with this name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().as_bytes() == name)
    }

    /// The code in the greeting of version 2.0 (15/ZMTP, The socket type). XPUB and XSUB have none there: ZeroMQ
    /// sends its own numbers.
    pub(crate) const fn version_2_code(self) -> u8 {
        match self {
            Self::Pub => 1,
            Self::Sub => 2,
            Self::Req => 3,
            Self::Rep => 4,
            Self::Dealer => 5,
            Self::Router => 6,
            Self::Xpub => 9,
            Self::Xsub => 10,
        }
    }

    /// The type with this code of version 2.0.
    pub(crate) fn from_version_2_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.version_2_code() == code)
    }

    /// Whether the types are compatible.
    #[must_use]
    pub const fn is_compatible_with(self, other: Self) -> bool {
        use SocketType::{Dealer, Pub, Rep, Req, Router, Sub, Xpub, Xsub};
        match self {
            Req => matches!(other, Rep | Router),
            Rep => matches!(other, Req | Dealer),
            Dealer => matches!(other, Rep | Dealer | Router),
            Router => matches!(other, Req | Dealer | Router),
            Pub | Xpub => matches!(other, Sub | Xsub),
            Sub | Xsub => matches!(other, Pub | Xpub),
        }
    }

    /// Whether it publishes, so that its peers send subscriptions.
    #[must_use]
    pub const fn publishes(self) -> bool {
        matches!(self, Self::Pub | Self::Xpub)
    }

    /// Whether it subscribes, so that its peers publish.
    #[must_use]
    pub const fn subscribes(self) -> bool {
        matches!(self, Self::Sub | Self::Xsub)
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatibility_is_mutual_and_names_are_found() {
        for one in SocketType::ALL {
            assert_eq!(SocketType::from_name(one.name().as_bytes()), Some(one));
            for other in SocketType::ALL {
                assert_eq!(
                    one.is_compatible_with(other),
                    other.is_compatible_with(one),
                    "{one} {other}"
                );
                assert!(!(one.publishes() && one.is_compatible_with(other)) || other.subscribes());
            }
        }
        assert_eq!(SocketType::from_name(b"PAIR"), None);
        assert!(!SocketType::Req.is_compatible_with(SocketType::Req));
    }
}
