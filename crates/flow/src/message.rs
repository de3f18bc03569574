//! Frames and the messages in them.
//!
//! A frame is a CRC-32 (IEEE, four bytes, little-endian) over the rest, then one or more messages:
//! a kind (one byte), the length of the body (varint), the body. Numbers are varints, texts and
//! byte strings are prefixed by their length. `docs/exchange.md` explains their purpose.
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

/// The magic number of a session's first message, which reveals another protocol.
pub const MAGIC: [u8; 4] = *b"CHPF";

/// Length of the checksum in bytes.
pub const CHECKSUM_BYTES: usize = 4;

/// Upper bound of the length of a frame with one [`Message::Records`], without its records,
/// including the checksum.
pub const RECORDS_OVERHEAD_MAX: usize = 128;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// Starts the subscriber's side.
    Hello(Hello),
    /// The origin agrees.
    Welcome(Welcome),
    /// Ends the session immediately.
    Goodbye {
        /// The reason.
        code: Code,
        /// The versions that the sender supports.
        versions: (u32, u32),
        /// The reason as text.
        text: &'a str,
    },
    /// Requests a stream.
    Subscribe {
        /// The channel.
        channel: Channel,
        /// The start.
        start: Start,
        /// The newest of each earlier epoch.
        earlier: Vec<Position>,
        /// The meaning of an acknowledgement.
        level: Level,
        /// The limits in flight.
        credit: Credit,
        /// The serialization of payloads.
        serialization: &'a str,
        /// The stream's name.
        stream: &'a str,
        /// The schema that need not be sent.
        known: Option<SchemaId>,
    },
    /// It is granted.
    Accepted {
        /// The channel.
        channel: Channel,
        /// Whether the origin went back.
        rollback: Rolled,
        /// The epoch of the following elements.
        epoch: u64,
        /// The first number that follows.
        next: u64,
        /// The newest number at the origin.
        last: u64,
        /// The origin's level.
        level: Level,
        /// The schema with index 0.
        schema: SchemaText<'a>,
    },
    /// It is not granted, or no longer.
    Refused {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
        text: &'a str,
    },
    /// Another schema of the channel.
    Schema {
        /// The channel.
        channel: Channel,
        /// Its index, increasing by one.
        index: u32,
        /// The schema; its bytes are always there.
        schema: SchemaText<'a>,
    },
    /// Elements.
    Records {
        /// The position of the records.
        place: Place,
        /// The number of the first.
        first: u64,
        /// The index of their schema.
        schema: u32,
        /// The number of newer elements at the origin.
        behind: u64,
        /// The records; at least one.
        records: Records,
    },
    /// Numbers that never arrive.
    Lost {
        /// The position of the numbers.
        place: Place,
        /// The first.
        from: u64,
        /// The number after the last.
        next: u64,
        /// The reason.
        reason: LossReason,
    },
    /// A stage has started, although it has no elements yet.
    Stage {
        /// The stage.
        place: Place,
    },
    /// The elements stored, and the further credit.
    Acknowledge {
        /// One for each channel with news.
        entries: Entries<'a>,
    },
    /// Asks whether the peer is alive.
    Ping {
        /// To be repeated in the answer.
        token: u64,
    },
    /// It is.
    Pong {
        /// The question's token.
        token: u64,
    },
    /// The stream is no longer wanted.
    Unsubscribe {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
        text: &'a str,
    },
    /// Answers that.
    Ended {
        /// The channel.
        channel: Channel,
    },
    /// Asks for records that are damaged at the sender. Positions are the origin's.
    Fetch {
        /// The number of the question.
        request: u64,
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The first.
        from: u64,
        /// The number after the last.
        next: u64,
        /// Maximum size in bytes, but at least one record.
        bytes: u64,
    },
    /// Answers that.
    Fetched {
        /// The question's number.
        request: u64,
        /// The number of the first record.
        first: u64,
        /// The records; none if the sender has none of them.
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
    /// The largest frame that it accepts.
    pub frame_bytes_max: u64,
    /// Maximum size of packed elements that are not yet stored, over all channels, in bytes.
    pub window_bytes: u64,
    /// The delay of its acknowledgements in milliseconds.
    pub acknowledge_ms: u64,
    /// The silence after which it considers the peer dead, in milliseconds.
    pub dead_after_ms: u64,
}

/// The origin's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version used from here on.
    pub version: u32,
    /// The number of Hello.
    pub session: u64,
    /// The largest frame that it accepts.
    pub frame_bytes_max: u64,
    /// The silence after which it considers the peer dead, in milliseconds.
    pub dead_after_ms: u64,
}

/// Whether an origin was rolled back before a subscriber's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rolled {
    /// It did not.
    No,
    /// It does not know the subscriber's epoch.
    Unknown,
    /// The last position that both have.
    Kept(Position),
}

/// A schema, borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText<'a> {
    /// The origin's version of it.
    pub version: u32,
    /// The schema's identifier.
    pub id: SchemaId,
    /// Its bytes; `None` if the subscriber stated that it knows the schema.
    pub bytes: Option<&'a [u8]>,
}

/// A part of a channel within which numbers increase. A new epoch starts a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// Its number, from 0.
    pub number: u32,
    /// The number with which it starts; in stage 0 that of the grant, not repeated here.
    pub first: u64,
    /// The last number of the previous stage that the origin still has; 0 if it does not know.
    pub kept: u64,
}

/// The position of elements.
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
    /// Elements among the dead letters, over all stages.
    pub refused: u64,
}

/// The entries of an acknowledgement, decoded on demand. They were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries<'a>(pub(crate) &'a [u8]);

/// The numbers of the kinds. Version 1 also had 11 and 12, which stay unused.
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
    /// With its own bytes.
    pub(crate) fn to_schema(&self) -> crate::Schema {
        crate::Schema {
            id: self.id,
            version: self.version,
            bytes: self.bytes.map(Bytes::copy_from_slice).unwrap_or_default(),
        }
    }
}

impl Rolled {
    /// From the fields of an offer.
    pub(crate) fn of(kept: Option<Position>) -> Self {
        kept.map_or(Self::Unknown, Self::Kept)
    }
}
