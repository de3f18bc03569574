//! Frames and the messages in them.
//!
//! A frame is a CRC-32 (IEEE, four bytes, little-endian) over the rest, then one or more messages:
//! a kind (one byte), the length of the body (varint), the body. Numbers are varints; texts and
//! byte strings are preceded by their length. `docs/reference/exchange-protocol.md` explains their purpose.
//!
//! Decoding borrows from the frame; records are a slice of it.

mod decode;
mod encode;

use alloc::vec::Vec;

use bytes::Bytes;

use crate::{
    Channel, Code, Credit, Level, LossReason, Position, Records, RefusalReason, SchemaId, Start,
};

pub use decode::{DecodeError, Messages, decode};
pub use encode::{FrameWriter, seal};

/// The start of a session's first message, which distinguishes it from other protocols.
pub const MAGIC: [u8; 4] = *b"CHPF";

/// Bytes of the checksum.
pub const CHECKSUM_BYTES: usize = 4;

/// An upper bound for a frame with a [`Message::Records`], without the records but with the
/// checksum.
pub const RECORDS_OVERHEAD_MAX: usize = 128;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// The subscriber's greeting.
    Hello(Hello),
    /// The origin's agreement.
    Welcome(Welcome),
    /// The immediate end of the session.
    Goodbye {
        /// The reason.
        code: Code,
        /// The versions that the sender of this message supports.
        versions: (u32, u32),
        /// The reason as a text.
        text: &'a str,
    },
    /// A subscription.
    Subscribe {
        /// The channel.
        channel: Channel,
        /// The start position.
        start: Start,
        /// The newest position of each earlier epoch.
        earlier: Vec<Position>,
        /// The level at which elements are acknowledged.
        level: Level,
        /// The limit in flight.
        credit: Credit,
        /// The serialization of payloads.
        serialization: &'a str,
        /// The stream's name.
        stream: &'a str,
        /// The schema that need not be sent.
        known: Option<SchemaId>,
    },
    /// The subscription is granted.
    Accepted {
        /// The channel.
        channel: Channel,
        /// Whether the origin was rolled back.
        rollback: RollbackPoint,
        /// The epoch of the next element.
        epoch: u64,
        /// The number of the next element.
        next: u64,
        /// The newest number at the origin.
        last: u64,
        /// The origin's level.
        level: Level,
        /// The schema with index 0.
        schema: SchemaText<'a>,
    },
    /// The subscription is refused or ended.
    Refused {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as a text.
        text: &'a str,
    },
    /// Another schema of the channel.
    Schema {
        /// The channel.
        channel: Channel,
        /// Its index, rising by one.
        index: u32,
        /// The schema; its bytes are always present.
        schema: SchemaText<'a>,
    },
    /// Elements.
    Records {
        /// The stage of the elements.
        place: Place,
        /// The number of the first.
        first: u64,
        /// The index of their schema.
        schema: u32,
        /// How many newer elements the origin has.
        behind: u64,
        /// The records; at least one.
        records: Records,
    },
    /// Numbers that never arrive.
    Lost {
        /// The stage of the numbers.
        place: Place,
        /// The first.
        from: u64,
        /// The number after the last.
        next: u64,
        /// The reason.
        reason: LossReason,
    },
    /// A stage without elements so far.
    Stage {
        /// The stage.
        place: Place,
    },
    /// The stored elements, and the credit.
    Acknowledge {
        /// One for each changed channel.
        entries: Entries<'a>,
    },
    /// Requests a sign of life.
    Ping {
        /// The token to return.
        token: u64,
    },
    /// Answers a ping.
    Pong {
        /// The token of the ping.
        token: u64,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as a text.
        text: &'a str,
    },
    /// Confirms the end of a subscription.
    Ended {
        /// The channel.
        channel: Channel,
    },
    /// Requests records that are damaged at the sender of this message. Positions are the origin's.
    Fetch {
        /// The number of the request.
        request: u64,
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The first.
        from: u64,
        /// The number after the last.
        next: u64,
        /// Most bytes, but at least one record.
        bytes: u64,
    },
    /// Answers a request.
    Fetched {
        /// The number of the request.
        request: u64,
        /// The number of the first record.
        first: u64,
        /// The records; none if this side has none of them.
        records: Records,
    },
}

/// The subscriber's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The supported versions.
    pub versions: (u32, u32),
    /// A random number that names the session.
    pub session: u64,
    /// The largest accepted frame.
    pub frame_bytes_max: u64,
    /// Packed bytes received and not stored, over all channels.
    pub window_bytes: u64,
    /// The delay of acknowledgements in milliseconds.
    pub acknowledge_ms: u64,
    /// The silence in milliseconds after which the peer counts as dead.
    pub dead_after_ms: u64,
}

/// The origin's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version used from here on.
    pub version: u32,
    /// The session number of Hello.
    pub session: u64,
    /// The largest accepted frame.
    pub frame_bytes_max: u64,
    /// The silence in milliseconds after which the peer counts as dead.
    pub dead_after_ms: u64,
}

/// Whether an origin was rolled back to before the subscriber's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RollbackPoint {
    /// It was not.
    No,
    /// The origin does not know the subscriber's epoch.
    Unknown,
    /// The last position that both have.
    Kept(Position),
}

/// A schema, borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText<'a> {
    /// The version at the origin.
    pub version: u32,
    /// The schema's id.
    pub id: SchemaId,
    /// Its bytes; `None` if the subscriber knows it.
    pub bytes: Option<&'a [u8]>,
}

/// A part of a channel within which numbers rise. A new epoch begins a new stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// Its number, from 0.
    pub number: u32,
    /// Its first number; in stage 0 the number of the grant, which is not sent again.
    pub first: u64,
    /// The last number of the previous stage that the origin still has; 0 if unknown.
    pub kept: u64,
}

/// The channel and stage of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The channel.
    pub channel: Channel,
    /// The stage.
    pub stage: Stage,
    /// The epoch of the stage.
    pub epoch: u64,
}

/// The acknowledgement of one channel. All numbers are of the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// The channel's number.
    pub channel: u32,
    /// The stage.
    pub stage: u32,
    /// Everything up to this number is stored.
    pub stored: u64,
    /// Elements stored.
    pub elements: u64,
    /// Packed bytes stored.
    pub bytes: u64,
    /// Elements may be sent while fewer than this were sent.
    pub elements_limit: u64,
    /// Elements may be sent while fewer packed bytes than this were sent.
    pub bytes_limit: u64,
    /// Dead letters, over all stages.
    pub refused: u64,
}

/// The entries of an acknowledgement, decoded on iteration. They are validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries<'a>(pub(crate) &'a [u8]);

/// The numbers of the kinds. Version 1 also had 11 and 12; they stay unused.
mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const GOODBYE: u8 = 3;
    pub(super) const SUBSCRIBE: u8 = 4;
    pub(super) const ACCEPTED: u8 = 5;
    pub(super) const REFUSED: u8 = 6;
    pub(super) const SCHEMA: u8 = 7;
    pub(super) const RECORDS: u8 = 8;
    pub(super) const LOST: u8 = 9;
    pub(super) const ACKNOWLEDGE: u8 = 10;
    pub(super) const PING: u8 = 13;
    pub(super) const PONG: u8 = 14;
    pub(super) const UNSUBSCRIBE: u8 = 15;
    pub(super) const ENDED: u8 = 16;
    pub(super) const FETCH: u8 = 17;
    pub(super) const FETCHED: u8 = 18;
    pub(super) const STAGE: u8 = 19;

    pub(super) const fn is_known(kind: u8) -> bool {
        matches!(kind, HELLO..=ACKNOWLEDGE | PING..=STAGE)
    }
}

impl Message<'_> {
    /// The name in errors and traces.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello(_) => "Hello",
            Self::Welcome(_) => "Welcome",
            Self::Goodbye { .. } => "Goodbye",
            Self::Subscribe { .. } => "Subscribe",
            Self::Accepted { .. } => "Accepted",
            Self::Refused { .. } => "Refused",
            Self::Schema { .. } => "Schema",
            Self::Records { .. } => "Records",
            Self::Lost { .. } => "Lost",
            Self::Stage { .. } => "Stage",
            Self::Acknowledge { .. } => "Acknowledge",
            Self::Ping { .. } => "Ping",
            Self::Pong { .. } => "Pong",
            Self::Unsubscribe { .. } => "Unsubscribe",
            Self::Ended { .. } => "Ended",
            Self::Fetch { .. } => "Fetch",
            Self::Fetched { .. } => "Fetched",
        }
    }
}

impl SchemaText<'_> {
    /// The schema with owned bytes.
    pub(crate) fn to_schema(&self) -> crate::Schema {
        crate::Schema {
            id: self.id,
            version: self.version,
            bytes: self.bytes.map(Bytes::copy_from_slice).unwrap_or_default(),
        }
    }
}

impl RollbackPoint {
    /// The rollback point of an offer.
    pub(crate) fn of(kept: Option<Position>) -> Self {
        kept.map_or(Self::Unknown, Self::Kept)
    }
}
