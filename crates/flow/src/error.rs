//! The failures of a session, and the side at fault.
//!
//! A [`Failure`] ends only the session: the next connection continues where storage ended. Its code
//! is sent to the peer in the `Goodbye` frame, so both sides report the same.

use alloc::string::String;
use core::fmt;

/// The side at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The peer broke the protocol.
    Peer,
    /// This side broke it, as the peer reports.
    Here,
    /// The program that drives this machine requested something invalid.
    Caller,
    /// Neither side's: the connection is silent, or the versions do not match.
    Connection,
}

/// The reason why a session ended, as a number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Orderly: one side wanted to end.
    Closed,
    /// The sides have no common version of the protocol.
    Version,
    /// A frame does not decode.
    Malformed,
    /// A frame has a wrong checksum.
    Damaged,
    /// A frame or a field is beyond its limit.
    TooLarge,
    /// A frame is unexpected at this point, such as data before Hello.
    Unexpected,
    /// A channel that was never subscribed.
    UnknownChannel,
    /// More channels than the limit.
    TooManyChannels,
    /// An acknowledgement of elements that were never sent.
    AcknowledgedUnsent,
    /// A credit or an acknowledgement went back.
    WentBack,
    /// More was sent than the credit allows.
    CreditExceeded,
    /// The peer contradicts itself.
    Contradiction,
    /// The peer was silent for too long.
    Silent,
    /// The handshake was not finished in time.
    Handshake,
    /// The caller's misuse.
    Misuse,
    /// A code of a newer version.
    Other(u8),
}

impl Code {
    /// All codes with their numbers on the wire and their names in metrics.
    const TABLE: [(Self, u8, &'static str); 15] = [
        (Self::Closed, 0, "closed"),
        (Self::Version, 1, "version"),
        (Self::Malformed, 2, "malformed"),
        (Self::Damaged, 3, "damaged"),
        (Self::TooLarge, 4, "too_large"),
        (Self::Unexpected, 5, "unexpected"),
        (Self::UnknownChannel, 6, "unknown_channel"),
        (Self::TooManyChannels, 7, "too_many_channels"),
        (Self::AcknowledgedUnsent, 8, "acknowledged_unsent"),
        (Self::WentBack, 9, "went_back"),
        (Self::CreditExceeded, 10, "credit_exceeded"),
        (Self::Contradiction, 11, "contradiction"),
        (Self::Silent, 12, "silent"),
        (Self::Handshake, 13, "handshake"),
        (Self::Misuse, 14, "misuse"),
    ];

    /// The number on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        if let Self::Other(number) = self {
            return number;
        }
        let found = Self::TABLE.iter().find(|(code, ..)| *code == self);
        found.map_or(u8::MAX, |(_, number, _)| *number)
    }

    /// The code of a number on the wire.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        let found = Self::TABLE.iter().find(|(_, known, _)| *known == number);
        found.map_or(Self::Other(number), |(code, ..)| *code)
    }

    /// The name in metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::TABLE.iter().find(|(code, ..)| *code == self);
        found.map_or("other", |(_, _, name)| name)
    }

    /// The remedy, if known.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Version => "update the node with the older version",
            Self::Damaged => "check the network between the nodes: it changes bytes",
            Self::TooLarge => "set equal limits on both nodes",
            Self::TooManyChannels => "use a second link, or raise channels_max at the origin",
            Self::Silent => {
                "check that the peer runs and the network passes data in both directions"
            }
            Self::Handshake => "check that a node, and not another program, listens there",
            Self::Misuse => "this is a defect of this program: please report it",
            Self::Closed | Self::Other(_) => return None,
            _ => "this is a defect of the program on the side named: please report it",
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(number) => write!(f, "other_{number}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// The reason why a session has failed. After it the machine accepts no input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Failure {
    /// The side at fault.
    pub fault: Fault,
    /// The kind of failure.
    pub code: Code,
    /// The description, with the values that show it.
    pub text: String,
}

impl Failure {
    /// A failure with its text.
    pub fn new(fault: Fault, code: Code, text: impl Into<String>) -> Self {
        Self {
            fault,
            code,
            text: text.into(),
        }
    }

    pub(crate) fn peer(code: Code, text: impl Into<String>) -> Self {
        Self::new(Fault::Peer, code, text)
    }

    /// The remedy, if known.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        self.code.hint()
    }
}

/// The reason why numbers of a stream never arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The origin's retention or size limit took them before they were read.
    Trimmed,
    /// Their bytes are corrupt at the origin.
    Corrupt,
    /// A record is larger than the receiver accepts.
    TooLarge,
    /// The origin continued at a later number without a reason.
    Skipped,
    /// A reason of a newer version.
    Other(u8),
}

impl LossReason {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Trimmed => 0,
            Self::Corrupt => 1,
            Self::TooLarge => 2,
            Self::Skipped => 3,
            Self::Other(number) => number,
        }
    }

    /// The reason of a number on the wire.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Trimmed,
            1 => Self::Corrupt,
            2 => Self::TooLarge,
            3 => Self::Skipped,
            other => Self::Other(other),
        }
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::Corrupt => "corrupt",
            Self::TooLarge => "too_large",
            Self::Skipped => "skipped",
            Self::Other(_) => "other",
        }
    }
}

/// The reason why a subscription is refused or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// No stream of this name.
    UnknownStream,
    /// The subscriber may not read it.
    Forbidden,
    /// The serialization or level is not offered.
    Unsupported,
    /// The origin has no room for one more.
    Busy,
    /// The schema does not match the subscriber's copy.
    Schema,
    /// The stream was removed.
    Removed,
    /// The sending side no longer wants the channel.
    Ended,
    /// A reason of a newer version.
    Other(u8),
}

impl RefusalReason {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::UnknownStream => 0,
            Self::Forbidden => 1,
            Self::Unsupported => 2,
            Self::Busy => 3,
            Self::Schema => 4,
            Self::Removed => 5,
            Self::Ended => 6,
            Self::Other(number) => number,
        }
    }

    /// The reason of a number on the wire.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::UnknownStream,
            1 => Self::Forbidden,
            2 => Self::Unsupported,
            3 => Self::Busy,
            4 => Self::Schema,
            5 => Self::Removed,
            6 => Self::Ended,
            other => Self::Other(other),
        }
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownStream => "unknown_stream",
            Self::Forbidden => "forbidden",
            Self::Unsupported => "unsupported",
            Self::Busy => "busy",
            Self::Schema => "schema",
            Self::Removed => "removed",
            Self::Ended => "ended",
            Self::Other(_) => "other",
        }
    }
}

/// The reason why the subscriber put an element among the dead letters instead of into its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// It does not fit the schema.
    Schema,
    /// It is larger than the stream accepts.
    TooLarge,
    /// Its bytes are not an element.
    Unreadable,
    /// Another reason of the application.
    Other,
}

impl DeadLetterReason {
    /// All reasons, in the order of [`DeadLetterReason::index`].
    pub const ALL: [Self; 4] = [Self::Schema, Self::TooLarge, Self::Unreadable, Self::Other];

    /// The index of its counter.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
            Self::Other => "other",
        }
    }
}
