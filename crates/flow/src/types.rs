//! The vocabulary of both machines: positions, levels, schemas, subscriptions, offers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::{Credit, Failure, Level, Position, Records, RefusalReason};

/// The number of a channel: one stream within one session. The subscriber chooses it, below
/// [`crate::CHANNEL_NUMBERS_MAX`], and uses none twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u32);

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}", self.0)
    }
}

/// Identifies a schema: the first eight bytes of the SHA-256 of its bytes, or whatever
/// both callers agree upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SchemaId(pub [u8; 8]);

/// The structure of a stream's elements, as bytes that only the callers understand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// Which one.
    pub id: SchemaId,
    /// The origin's version of it.
    pub version: u32,
    /// The schema; at most [`crate::SCHEMA_BYTES_MAX`]. Empty in an event if the subscription
    /// named it as known.
    pub bytes: Bytes,
}

/// Where a subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// With the oldest element that the origin keeps.
    First,
    /// With the next new element. Who has stored none of them when the connection is lost goes on with
    /// [`Start::After`] the number before [`Grant::next`], or misses what comes in between.
    New,
    /// Behind this one, which is the newest that the subscriber has stored.
    After(Position),
}

impl Start {
    /// What the subscriber has.
    #[must_use]
    pub const fn have(self) -> Option<Position> {
        match self {
            Self::After(position) => Some(position),
            Self::First | Self::New => None,
        }
    }
}

/// What a subscriber wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The stream's global name.
    pub stream: String,
    /// Where to begin.
    pub start: Start,
    /// With [`Start::After`]: the newest stored element of each earlier epoch of the origin, the
    /// newest first, at most [`crate::EARLIER_MAX`]. An origin that went back to before its present
    /// epoch finds in them the last element that both have; without them it sends
    /// everything again.
    pub earlier: Vec<Position>,
    /// What an acknowledgement will mean.
    pub level: Level,
    /// How payloads are written, such as `postcard`.
    pub serialization: String,
    /// The schema that the subscriber already has: it is not sent again.
    pub known: Option<SchemaId>,
    /// How much may be sent and not stored; `None`: [`crate::ReceiverConfig::credit`]. In the
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

/// What a subscriber is granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The epoch of the element numbered `next` (or of the next to be written).
    pub epoch: u64,
    /// The number with which the channel begins.
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
    /// The subscriber has more than the origin remembers: the origin went back. It goes on with
    /// `grant`; the last that both have is `kept`.
    Rollback {
        /// The last element that the subscriber has and the origin too; `None`: the origin does not
        /// know the subscriber's epoch.
        kept: Option<Position>,
        /// How it goes on.
        grant: Grant,
    },
    /// Not granted, or no longer.
    Refuse {
        /// Why.
        reason: RefusalReason,
        /// Why, as a text for people.
        text: String,
    },
}

/// Commands that the programs of both ends give.
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
        /// The number of the first record: the first of the range that is kept here.
        first: u64,
        /// Records with consecutive numbers from `first` on; none when none of the range is here.
        records: Records,
    },
    /// Ends in order: a receiver acknowledges what is stored, then both send Goodbye.
    Close,
}

/// Events that the programs of both ends get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The handshake is done.
    Welcomed {
        /// The version that both speak.
        version: u32,
    },
    /// The peer asks for records that are damaged there, by the origin's positions; answer with
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
        /// So many packed bytes at most, but at least one record.
        bytes: u64,
    },
    /// Records that were asked for with [`SessionCommand::Fetch`].
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
    /// Nothing more comes for what was asked for.
    FetchEnded {
        /// The channel.
        channel: Channel,
        /// The epoch.
        epoch: u64,
        /// The first number that was asked for.
        from: u64,
        /// The number after the last one requested.
        next: u64,
        /// How many of them the peer does not have either.
        missing: u64,
    },
    /// The session has ended in order; nothing more follows.
    Closed {
        /// Whether the peer wanted that.
        by_peer: bool,
        /// The text that it sent.
        text: String,
    },
    /// The session has ended by a fault; nothing more follows.
    Failed(Failure),
}
