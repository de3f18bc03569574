//! The socket types that are spoken, and which may meet (37/ZMTP, section The Socket-Type Property).

use std::fmt;

/// What a socket does with its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SocketType {
    /// Asks and waits for the answer (28/REQREP).
    Req,
    /// Answers (28/REQREP).
    Rep,
    /// Sends and receives freely (28/REQREP).
    Dealer,
    /// Sends and receives, each peer by itself (28/REQREP).
    Router,
    /// Publishes (29/PUBSUB).
    Pub,
    /// Subscribes (29/PUBSUB).
    Sub,
    /// Publishes and is told of subscriptions (29/PUBSUB).
    Xpub,
    /// Subscribes by messages (29/PUBSUB).
    Xsub,
}

impl SocketType {
    /// All of them.
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

    /// The name that goes over the wire.
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

    /// The type of this name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().as_bytes() == name)
    }

    /// Whether a socket of this type may talk to one of the other.
    #[must_use]
    pub const fn may_meet(self, other: Self) -> bool {
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
    fn meeting_is_mutual_and_names_are_found() {
        for one in SocketType::ALL {
            assert_eq!(SocketType::from_name(one.name().as_bytes()), Some(one));
            for other in SocketType::ALL {
                assert_eq!(one.may_meet(other), other.may_meet(one), "{one} {other}");
                assert!(!(one.publishes() && one.may_meet(other)) || other.subscribes());
            }
        }
        assert_eq!(SocketType::from_name(b"PAIR"), None);
        assert!(!SocketType::Req.may_meet(SocketType::Req));
    }
}
