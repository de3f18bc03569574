//! Reasons for dropped packets, and misuse by the caller.

/// A packet that is not answered and changes nothing. The sender is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The packet exceeds the limit.
    #[error("the packet has {0} bytes; the limit is 1,232")]
    TooLong(usize),
    /// The packet ends within its head or tag.
    #[error("the packet ends within its head or tag")]
    Truncated,
    /// The packet is of another protocol, or of a later version.
    #[error("protocol version {0} is not supported; this node supports 1")]
    Version(u8),
    /// The packet's kind is unknown.
    #[error("unknown packet kind {0}")]
    Kind(u8),
    /// The body does not fit its kind.
    #[error("the body of a packet of kind {kind} is malformed at byte {offset}")]
    Malformed {
        /// The kind.
        kind: u8,
        /// The offset of the fault.
        offset: usize,
    },
}

/// A command that the machine cannot execute. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A value longer than fits a packet.
    #[error("the value has {bytes} bytes; at most {most} fit in a packet")]
    TooLong {
        /// The length of the value.
        bytes: usize,
        /// The longest value allowed.
        most: usize,
    },
    /// More operations at a time than the configuration allows.
    #[error("the limit of {0} at a time is reached")]
    TooMany(usize),
}

/// The reason why a packet was dropped, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// The packet does not parse.
    Malformed,
    /// The tag does not match: forged, changed, or meant for another key.
    Tag,
    /// The number was received before, or is older than the window.
    Replayed,
    /// An answer that matches no outstanding request, or arrived too late.
    Unasked,
    /// The address sends more than its share.
    Rate,
    /// Too many unknown keys at a time.
    Strangers,
    /// The sender is not a member of this network.
    NotMember,
    /// A packet of this node itself.
    Own,
}

impl Drop {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Tag,
        Self::Replayed,
        Self::Unasked,
        Self::Rate,
        Self::Strangers,
        Self::NotMember,
        Self::Own,
    ];

    /// The name for metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Tag => "tag",
            Self::Replayed => "replayed",
            Self::Unasked => "unasked",
            Self::Rate => "rate",
            Self::Strangers => "strangers",
            Self::NotMember => "not_member",
            Self::Own => "own",
        }
    }
}
