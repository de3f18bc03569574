//! The failures of a session, and which side is at fault.
//!
//! A [`Failure`] ends the session and nothing else: the next connection resumes at the newest
//! stored element. Its code goes to the peer in the `Goodbye` frame, so both sides report the same.

use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// The peer broke the protocol.
    Peer,
    /// This side broke it, according to the peer.
    Here,
    /// The program that drives this machine misused it.
    Caller,
    /// Neither side: the connection is silent, or the versions do not match.
    Connection,
}

/// Why a session ended, as a number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Code {
    /// A regular end: one side closed the session.
    Closed,
    /// The two sides have no version of the protocol in common.
    Version,
    /// A frame does not decode.
    Malformed,
    /// A frame has a wrong checksum.
    Damaged,
    /// A frame or a field exceeds its limit.
    TooLarge,
    /// A frame that is invalid in this state, such as data before Hello.
    Unexpected,
    /// A channel that was never subscribed.
    UnknownChannel,
    /// More channels than the limit.
    TooManyChannels,
    /// An acknowledgement of elements that were never sent.
    AcknowledgedUnsent,
    /// A credit or an acknowledgement decreased.
    WentBack,
    /// More elements were sent than the credit allows.
    CreditExceeded,
    /// The peer contradicts itself.
    Contradiction,
    /// Nothing was received for too long.
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

    /// The hint, if there is one.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Version => "update the node with the older version",
            Self::Damaged => "check the network between the nodes: it changes bytes",
            Self::TooLarge => "make the limits of both nodes equal",
            Self::TooManyChannels => "use a second link, or raise channels_max at the origin",
            Self::Silent => {
                "check that the peer runs and that the network passes data in both directions"
            }
            Self::Handshake => "check that a node, and not another program, listens there",
            Self::Misuse => "this is a defect of this program: please report it",
            Self::Closed | Self::Other(_) => return None,
            _ => "this is a defect of the program on that side: please report it",
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

/// Why a session has failed. The machine accepts no more input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Failure {
    /// The side at fault.
    pub fault: Fault,
    /// The kind of failure.
    pub code: Code,
    /// A description with the relevant values.
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

    /// The hint, if there is one.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        self.code.hint()
    }
}

/// Why numbers of a stream never come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossReason {
    /// The origin's retention or size limit removed them before they were read.
    Trimmed,
    /// Their bytes are corrupt at the origin.
    Corrupt,
    /// The record exceeds the receiver's limit.
    TooLarge,
    /// The origin continued at a later number without a reason.
    Skipped,
    /// A reason of a newer version.
    #[serde(skip)]
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
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trimmed => "trimmed",
            Self::Corrupt => "corrupt",
            Self::TooLarge => "too_large",
            Self::Skipped => "skipped",
            Self::Other(_) => "other",
        }
    }
}

/// Why a subscription is refused or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// No stream of this name.
    UnknownStream,
    /// The subscriber may not read it.
    Forbidden,
    /// The origin does not support the serialization or level.
    Unsupported,
    /// The limit of channels is reached.
    Busy,
    /// The schema does not fit the subscriber's copy.
    Schema,
    /// The stream was removed.
    Removed,
    /// The sender of this message no longer wants it.
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

/// Why the subscriber put an element among the dead letters instead of into its stream. Logs hold it by
/// its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// It does not fit the schema.
    Schema,
    /// It exceeds the limit of the stream.
    TooLarge,
    /// Its bytes do not decode.
    Unreadable,
    /// Another reason of the application.
    Other,
}

impl DeadLetterReason {
    /// All of them, in the order of [`DeadLetterReason::index`].
    pub const ALL: [Self; 4] = [Self::Schema, Self::TooLarge, Self::Unreadable, Self::Other];

    /// The index of its counter.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::TooLarge => "too_large",
            Self::Unreadable => "unreadable",
            Self::Other => "other",
        }
    }
}
