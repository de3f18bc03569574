//! The inputs and effects of an origin.

use alloc::string::String;
use alloc::vec::Vec;

use bytes::Bytes;
use chappe_flow::{
    Channel, Level, LossReason, Position, Records, RefusalReason, Schema, SenderConfig,
    SessionCommand, SessionEvent,
};

use crate::Hole;

/// The limits of an origin.
#[derive(Debug, Clone)]
pub struct OriginConfig {
    /// The limits of its session.
    pub sender: SenderConfig,
    /// The one serialization of its elements; subscriptions to others are refused.
    pub serialization: &'static str,
}

impl Default for OriginConfig {
    fn default() -> Self {
        Self {
            sender: SenderConfig::default(),
            serialization: "postcard",
        }
    }
}

/// Input of an origin from its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginReceive {
    /// One frame of the session.
    Frame(Bytes),
}

/// A stream as the program found it in its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// The oldest number kept; `last + 1` if there is none.
    pub first: u64,
    /// The newest number that can be read; later ones are reported by [`OriginCommand::Live`] and
    /// [`OriginCommand::Appended`].
    pub last: u64,
    /// The level of its elements.
    pub level: Level,
    /// Its epochs, oldest first, each with its first number.
    pub epochs: Vec<(u64, u64)>,
    /// The log's answer for each position of [`OriginEvent::Open`], in the same order.
    pub resumptions: Vec<Resumption>,
}

/// How a log continues after a position of the subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumption {
    /// The log knows the position; this number is next.
    Next(u64),
    /// The subscriber has more than the log.
    Rollback {
        /// The last position that both have; `None`: the log does not know the epoch.
        kept: Option<Position>,
        /// The number to continue with.
        next: u64,
    },
}

/// Selects a schema of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaOf {
    /// The one with this version.
    Version(u32),
    /// The one of the first element from this number; the current one if there is none.
    Element(u64),
}

/// A request for elements in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// The channel of the stream.
    pub channel: Channel,
    /// The number of the first element.
    pub from: u64,
    /// Maximum size of the packed elements in bytes; one element is read even if it is larger.
    pub bytes: u64,
    /// Maximum number of elements.
    pub elements: u64,
    /// The purpose of the read.
    pub purpose: ReadPurpose,
}

/// The purpose of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPurpose {
    /// They are next on their channel.
    Send,
    /// They are damaged at the subscriber.
    Fetch {
        /// The number of the subscriber's request.
        request: u64,
        /// Their epoch.
        epoch: u64,
        /// The number after the last one requested.
        next: u64,
    },
}

/// Input of an origin from its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginCommand {
    /// Answers [`OriginEvent::Open`]. From now on the program reports every later element.
    Opened {
        /// The channel.
        channel: Channel,
        /// The stream.
        stream: StreamState,
    },
    /// Answers [`OriginEvent::Open`]: the subscriber is refused this stream. Later: its access
    /// ends.
    Refuse {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
        text: String,
    },
    /// Answers [`OriginEvent::Schema`].
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        schema: Schema,
    },
    /// Answers [`OriginEvent::Read`]: consecutive elements of one epoch and one schema, from the
    /// number requested. If empty, there are none now, but a later element will be reported.
    Records {
        /// The request.
        request: ReadRequest,
        /// The epoch of all of them.
        epoch: u64,
        /// The version of their schema.
        schema_version: u32,
        /// The elements.
        records: Records,
    },
    /// Answers [`OriginEvent::Read`]: the numbers before `next` are lost here.
    Gap {
        /// The request.
        request: ReadRequest,
        /// The first number that can be read again, in whichever epoch.
        next: u64,
        /// The reason.
        reason: LossReason,
    },
    /// Answers [`OriginEvent::Read`]: one of the elements cannot be decoded.
    Undecodable {
        /// The request.
        request: ReadRequest,
    },
    /// Answers [`OriginEvent::Read`]: the log cannot be read. The stream ends if its next elements
    /// were requested.
    ReadFailed {
        /// The request.
        request: ReadRequest,
        /// The reason as text.
        text: String,
    },
    /// New elements, consecutive, of one epoch and one schema.
    Live {
        /// The channel.
        channel: Channel,
        /// The position of the first.
        first: Position,
        /// The version of their schema.
        schema_version: u32,
        /// The elements.
        records: Records,
    },
    /// New elements can be read.
    Appended {
        /// The channel.
        channel: Channel,
        /// The newest number.
        last: u64,
    },
    /// Asks the subscriber for elements that are damaged here.
    Repair {
        /// All damaged elements of the streams that it reads.
        holes: Vec<Hole>,
    },
    /// A command of the session.
    Session(SessionCommand),
}

/// Requests of an origin to its program, and reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginEvent {
    /// Find this stream, and answer with [`OriginCommand::Opened`] or [`OriginCommand::Refuse`].
    Open {
        /// The channel.
        channel: Channel,
        /// The stream's name.
        stream: String,
        /// How far the subscriber has read: its newest position, then those of earlier epochs.
        positions: Vec<Position>,
    },
    /// Answer with [`OriginCommand::Schema`]. One question is open for a channel at a time.
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        of: SchemaOf,
    },
    /// Read, and answer once with [`OriginCommand::Records`], [`OriginCommand::Gap`],
    /// [`OriginCommand::Undecodable`] or [`OriginCommand::ReadFailed`].
    Read(ReadRequest),
    /// Restore these elements, which are damaged here; they may exist already.
    PutBack {
        /// The channel.
        channel: Channel,
        /// The position of the first.
        first: Position,
        /// The elements.
        records: Records,
    },
    /// Everything up to this element is stored at the subscriber's level, or among its dead letters.
    Acknowledged {
        /// The channel.
        channel: Channel,
        /// The position of the last.
        position: Position,
    },
    /// The subscriber no longer reads this stream.
    Ended {
        /// The channel.
        channel: Channel,
        /// The reason as text.
        text: String,
    },
    /// An event of the session: [`SessionEvent::Welcomed`], [`SessionEvent::FetchEnded`],
    /// [`SessionEvent::Closed`] or [`SessionEvent::Failed`]. After the last two the machine ignores
    /// further input.
    Session(SessionEvent),
}
