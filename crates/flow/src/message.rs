//! Frames and the messages in them.
//!
//! A frame is a CRC-32 (IEEE, four bytes, little-endian) over what follows, then one or more
//! messages: a kind (one byte), the length of the body (varint), the body. Numbers are varints, texts
//! and byte strings have their length before them. `docs/exchange.md` explains what they are for.
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

/// What a frame's first message of a session begins with, so that another protocol is noticed.
pub const MAGIC: [u8; 4] = *b"CHPF";

/// Bytes of the checksum.
pub const CHECKSUM_BYTES: usize = 4;

/// More than all of a [`Message::Records`] but its records takes in a frame, checksum included.
pub const RECORDS_OVERHEAD_MAX: usize = 128;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// The subscriber begins.
    Hello(Hello),
    /// The origin agrees.
    Welcome(Welcome),
    /// The session ends, here and now.
    Goodbye {
        /// Why.
        code: Code,
        /// The versions that the speaker speaks.
        versions: (u32, u32),
        /// Why, as a text.
        text: &'a str,
    },
    /// A stream is wanted.
    Subscribe {
        /// The channel.
        channel: Channel,
        /// Where to begin.
        start: Start,
        /// The newest of each earlier epoch.
        earlier: Vec<Position>,
        /// What an acknowledgement will mean.
        level: Level,
        /// How much may be in flight.
        credit: Credit,
        /// How payloads are written.
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
        /// The epoch of what follows.
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
        /// Why.
        reason: RefusalReason,
        /// Why, as a text.
        text: &'a str,
    },
    /// Another schema of the channel.
    Schema {
        /// The channel.
        channel: Channel,
        /// Its index, rising by one.
        index: u32,
        /// The schema; its bytes are always there.
        schema: SchemaText<'a>,
    },
    /// Elements.
    Records {
        /// Where they belong.
        place: Place,
        /// The number of the first.
        first: u64,
        /// The index of their schema.
        schema: u32,
        /// How many more the origin has behind them.
        behind: u64,
        /// The records; at least one.
        records: Records,
    },
    /// Numbers that never come.
    Lost {
        /// Where they belong.
        place: Place,
        /// The first.
        from: u64,
        /// The number after the last.
        next: u64,
        /// Why.
        reason: LossReason,
    },
    /// A stage has begun, although there are no elements of it yet.
    Stage {
        /// Which.
        place: Place,
    },
    /// What is stored, and how much more may be sent.
    Acknowledge {
        /// One for each channel with news.
        entries: Entries<'a>,
    },
    /// Asks whether the peer is there.
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
        /// Why.
        reason: RefusalReason,
        /// Why, as a text.
        text: &'a str,
    },
    /// Answers that.
    Ended {
        /// The channel.
        channel: Channel,
    },
    /// Asks for records that are damaged at the speaker. Positions are the origin's.
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
        /// So many bytes at most, but at least one record.
        bytes: u64,
    },
    /// Answers that.
    Fetched {
        /// The question's number.
        request: u64,
        /// The number of the first record.
        first: u64,
        /// The records; none when the speaker has none of them.
        records: Records,
    },
}

/// The subscriber's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The versions that it speaks.
    pub versions: (u32, u32),
    /// A random number that names the session.
    pub session: u64,
    /// The largest frame that it takes.
    pub frame_bytes_max: u64,
    /// Packed bytes that may be unstored over all channels.
    pub window_bytes: u64,
    /// How long it waits before it acknowledges, milliseconds.
    pub acknowledge_ms: u64,
    /// After how much silence it takes the peer for dead, milliseconds.
    pub dead_after_ms: u64,
}

/// The origin's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both speak from here on.
    pub version: u32,
    /// The number of Hello.
    pub session: u64,
    /// The largest frame that it takes.
    pub frame_bytes_max: u64,
    /// After how much silence it takes the peer for dead, milliseconds.
    pub dead_after_ms: u64,
}

/// Whether an origin went back behind a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rolled {
    /// It did not.
    No,
    /// It does not know the subscriber's epoch.
    Unknown,
    /// This is the last that both have.
    Kept(Position),
}

/// A schema, borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaText<'a> {
    /// The origin's version of it.
    pub version: u32,
    /// Which one.
    pub id: SchemaId,
    /// Its bytes; `None` when the subscriber said that it knows it.
    pub bytes: Option<&'a [u8]>,
}

/// A stretch of a channel within which numbers rise. A new one begins with a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// Its number, from 0.
    pub number: u32,
    /// The number that it begins with; in stage 0 that of the grant, not repeated here.
    pub first: u64,
    /// The last number of the stage before that the origin still has; 0 when it does not know.
    pub kept: u64,
}

/// Where elements belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The channel.
    pub channel: Channel,
    /// The stage.
    pub stage: Stage,
    /// The epoch of the stage.
    pub epoch: u64,
}

/// What one channel acknowledges. All numbers are of the stage.
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

/// The entries of an acknowledgement, decoded as they are asked for. They were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries<'a>(pub(crate) &'a [u8]);

/// The numbers of the kinds. Version 1 had 11 and 12 too; they stay unused.
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
    /// With bytes of its own.
    pub(crate) fn to_schema(&self) -> crate::Schema {
        crate::Schema {
            id: self.id,
            version: self.version,
            bytes: self.bytes.map(Bytes::copy_from_slice).unwrap_or_default(),
        }
    }
}

impl Rolled {
    /// From what an offer says.
    pub(crate) fn of(kept: Option<Position>) -> Self {
        kept.map_or(Self::Unknown, Self::Kept)
    }
}
