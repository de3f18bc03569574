//! Why a packet is dropped, and what a caller asked in vain.

/// A packet that is not answered and changes nothing. The sender is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Longer than a packet may be.
    #[error("a packet of {0} bytes, where 1,232 is the most")]
    TooLong(usize),
    /// Ends within its head or tag.
    #[error("a packet that ends too early")]
    Truncated,
    /// Of another protocol, or a later version.
    #[error("version {0} of the protocol, where 1 is known")]
    Version(u8),
    /// Of no known kind.
    #[error("kind {0} of a packet is not known")]
    Kind(u8),
    /// The body does not fit its kind.
    #[error("the body of a packet of kind {kind} does not fit at byte {offset}")]
    Malformed {
        /// The kind.
        kind: u8,
        /// Where.
        offset: usize,
    },
}

/// What was asked of the machine and cannot be done. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A value longer than fits a packet.
    #[error("{bytes} bytes, where {most} fit a packet")]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        most: usize,
    },
    /// More at a time than the configuration allows.
    #[error("more than {0} at a time, which the configuration allows")]
    TooMany(usize),
}

/// Why a packet was dropped, for counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// It does not parse.
    Malformed,
    /// The tag does not fit: forged, changed, or meant for another key.
    Tag,
    /// Its number was seen, or is older than the window.
    Replayed,
    /// An answer to nothing that was asked, or too late.
    Unasked,
    /// The address sends more than its share.
    Rate,
    /// More unknown keys at a time than are looked at.
    Strangers,
    /// No member of this network.
    NotMember,
    /// Our own, come back.
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
