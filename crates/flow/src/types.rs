//! The vocabulary of both machines: positions, levels, schemas, subscriptions, offers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::{Credit, Failure, Records, RefusalReason};

/// The number of a channel: one stream within one session. The subscriber chooses it, below
/// [`crate::CHANNEL_NUMBERS_MAX`], and uses none twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u32);

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}", self.0)
    }
}

/// An element's identity within its stream at the origin.
///
/// Numbers start at 1 and increase by one, across epochs. A new epoch means that the origin may
/// have been rolled back: its numbers from then on may have belonged to other elements before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The epoch.
    pub epoch: u64,
    /// The sequence number; 0 is before the first.
    pub sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} number {}", self.epoch, self.sequence)
    }
}

/// The meaning of *stored* at the subscriber: elements are acknowledged when they have reached this
/// level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// In memory.
    Memory,
    /// Survives the death of the process.
    Process,
    /// Survives the loss of power.
    Power,
}

impl Level {
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Memory,
            1 => Self::Process,
            2 => Self::Power,
            _ => return None,
        })
    }
}

/// Identifies a schema: the first eight bytes of the SHA-256 of its bytes, or any value that both
/// callers agree upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SchemaId(pub [u8; 8]);

/// The structure of a stream's elements, as bytes that only the callers understand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The identifier.
    pub id: SchemaId,
    /// The origin's version of it.
    pub version: u32,
    /// The schema; at most [`crate::SCHEMA_BYTES_MAX`]. Empty in an event if the subscription
    /// named it as known.
    pub bytes: Bytes,
}

/// The start of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// At the oldest element that the origin keeps.
    First,
    /// At the next new element. A subscriber that has stored none of them when the connection is
    /// lost continues with [`Start::After`] the number before [`Grant::next`], or misses those in
    /// between.
    New,
    /// Behind this one, which is the newest that the subscriber has stored.
    After(Position),
}

impl Start {
    /// The subscriber's last position.
    #[must_use]
    pub const fn have(self) -> Option<Position> {
        match self {
            Self::After(position) => Some(position),
            Self::First | Self::New => None,
        }
    }
}

/// A subscriber's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The stream's global name.
    pub stream: String,
    /// The start.
    pub start: Start,
    /// With [`Start::After`]: the newest stored element of each earlier epoch of the origin, newest
    /// first, at most [`crate::EARLIER_MAX`]. An origin that was rolled back to before its current
    /// epoch finds in them the last element that both have; without them it sends everything again.
    pub earlier: Vec<Position>,
    /// The meaning of an acknowledgement.
    pub level: Level,
    /// The serialization of payloads, such as `postcard`.
    pub serialization: String,
    /// The schema that the subscriber already has: it is not sent again.
    pub known: Option<SchemaId>,
    /// Limit of elements sent but not yet stored; `None`: [`crate::ReceiverConfig::credit`]. In the
    /// sender's event it is always there.
    pub credit: Option<Credit>,
}

impl Subscription {
    /// All of a stream, in `postcard`, at level `power`.
    pub fn new(stream: impl Into<String>, start: Start) -> Self {
        Self {
            stream: stream.into(),
            start,
            earlier: Vec::new(),
            level: Level::Power,
            serialization: String::from("postcard"),
            known: None,
            credit: None,
        }
    }
}

/// The grant of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The epoch of the element numbered `next` (or of the next to be written).
    pub epoch: u64,
    /// The number with which the channel starts.
    pub next: u64,
    /// The newest number of the stream now; `next - 1` when there is nothing to catch up.
    pub last: u64,
    /// The origin's own level.
    pub level: Level,
    /// The stream's schema.
    pub schema: Schema,
}

/// The origin's answer to a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Granted.
    Accept(Grant),
    /// The subscriber has more than the origin remembers: the origin was rolled back. It continues
    /// with `grant`; the last position that both have is `kept`.
    Rollback {
        /// The last element that the subscriber has and the origin too; `None`: the origin does not
        /// know the subscriber's epoch.
        kept: Option<Position>,
        /// The grant with which it continues.
        grant: Grant,
    },
    /// Not granted, or no longer.
    Refuse {
        /// The reason.
        reason: RefusalReason,
        /// The reason as text for people.
        text: String,
    },
}

/// Commands from the programs of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionCommand {
    /// Asks the peer for records of this channel that are damaged here. Positions are the origin's.
    Fetch {
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The first number.
        from: u64,
        /// The number after the last.
        next: u64,
    },
    /// Answers [`SessionEvent::Fetch`].
    Fetched {
        /// The question's number.
        request: u64,
        /// The number of the first record: the first of the range that exists here.
        first: u64,
        /// Records with consecutive numbers from `first`; none if none of the range exists here.
        records: Records,
    },
    /// Ends in an orderly way: a receiver acknowledges stored elements, then both send Goodbye.
    Close,
}

/// Events for the programs of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The handshake is done.
    Welcomed {
        /// The negotiated version.
        version: u32,
    },
    /// The peer requests records that are damaged there, by the origin's positions; answer with
    /// [`SessionCommand::Fetched`].
    Fetch {
        /// The number of the question.
        request: u64,
        /// The channel.
        channel: Channel,
        /// Their epoch, at the origin.
        epoch: u64,
        /// The first number.
        from: u64,
        /// The number after the last.
        next: u64,
        /// Maximum packed size in bytes, but at least one record.
        bytes: u64,
    },
    /// Records requested with [`SessionCommand::Fetch`].
    Fetched {
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The number of the first.
        first: u64,
        /// The records.
        records: Records,
    },
    /// The request has ended; no more records arrive.
    FetchEnded {
        /// The channel.
        channel: Channel,
        /// The epoch.
        epoch: u64,
        /// The first number requested.
        from: u64,
        /// The number after the last one requested.
        next: u64,
        /// The number of elements that the peer does not have either.
        missing: u64,
    },
    /// The session has ended in order; nothing more follows.
    Closed {
        /// Whether the peer requested it.
        by_peer: bool,
        /// The text that it sent.
        text: String,
    },
    /// The session has ended by a fault; nothing more follows.
    Failed(Failure),
}
