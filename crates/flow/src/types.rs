//! The vocabulary of both machines: positions, levels, schemas, subscriptions, offers.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use bytes::Bytes;

use crate::{Credit, Failure, Level, Position, Records, RefusalReason};

/// The number of a channel: one stream within one session. The subscriber chooses it, below
/// [`crate::CHANNEL_NUMBERS_MAX`], and uses each once per session.
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

/// The structure of a stream's elements, as bytes that only the callers interpret.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The schema's id.
    pub id: SchemaId,
    /// Its version at the origin.
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
    /// At the next new element. A subscriber that has stored none when the connection is lost
    /// resumes with [`Start::After`] the number before [`Grant::next`], or misses the elements in
    /// between.
    New,
    /// After this position, the newest that the subscriber has stored.
    After(Position),
}

impl Start {
    /// The subscriber's newest position.
    #[must_use]
    pub const fn have(self) -> Option<Position> {
        match self {
            Self::After(position) => Some(position),
            Self::First | Self::New => None,
        }
    }
}

/// A request for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// The stream's global name.
    pub stream: String,
    /// The start position.
    pub start: Start,
    /// With [`Start::After`]: the newest stored element of each earlier epoch of the origin, the
    /// newest first, at most [`crate::EARLIER_MAX`]. They let an origin that was rolled back to an
    /// earlier epoch find the last element that both have; without them it sends everything again.
    pub earlier: Vec<Position>,
    /// The level of acknowledgements.
    pub level: Level,
    /// The serialization of payloads, such as `postcard`.
    pub serialization: String,
    /// The schema that the subscriber knows already: it is not sent again.
    pub known: Option<SchemaId>,
    /// The limit of elements sent and not stored; `None`: [`crate::ReceiverConfig::credit`]. Always
    /// present in the sender's event.
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

/// The terms of a granted subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The epoch of the element numbered `next` (or of the next to be written).
    pub epoch: u64,
    /// The first number of the channel.
    pub next: u64,
    /// The newest number of the stream now; `next - 1` if there is nothing to catch up.
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
    /// The subscriber's position is unknown to the origin, which was rolled back. The channel
    /// continues with `grant`; the last position that both have is `kept`.
    Rollback {
        /// The last position that both have; `None`: the origin does not know the subscriber's
        /// epoch.
        kept: Option<Position>,
        /// The terms from here on.
        grant: Grant,
    },
    /// Refused, or ended.
    Refuse {
        /// The reason.
        reason: RefusalReason,
        /// The reason as a text.
        text: String,
    },
}

/// Commands for both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionCommand {
    /// Requests records of this channel from the peer that are damaged here. Positions are the
    /// origin's.
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
        /// The number of the request.
        request: u64,
        /// The number of the first record: the first of the range that this side has.
        first: u64,
        /// Records with consecutive numbers from `first` on; none if this side has none of the
        /// range.
        records: Records,
    },
    /// Closes the session: a receiver acknowledges all stored elements, then both send Goodbye.
    Close,
}

/// Events of both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    /// The handshake is finished.
    Welcomed {
        /// The agreed version.
        version: u32,
    },
    /// The peer requests records that are damaged there, by the origin's positions; answer with
    /// [`SessionCommand::Fetched`].
    Fetch {
        /// The number of the request.
        request: u64,
        /// The channel.
        channel: Channel,
        /// Their epoch, at the origin.
        epoch: u64,
        /// The first number.
        from: u64,
        /// The number after the last.
        next: u64,
        /// Most packed bytes, but at least one record.
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
    /// The end of a request.
    FetchEnded {
        /// The channel.
        channel: Channel,
        /// The epoch.
        epoch: u64,
        /// The first requested number.
        from: u64,
        /// The number after the last requested one.
        next: u64,
        /// How many of them the peer does not have.
        missing: u64,
    },
    /// The session was closed; nothing more follows.
    Closed {
        /// Whether the peer closed it.
        by_peer: bool,
        /// The peer's text.
        text: String,
    },
    /// The session has failed; nothing more follows.
    Failed(Failure),
}
