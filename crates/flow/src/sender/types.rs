//! The inputs and outputs of a sender.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    Channel, LossReason, Offer, Position, Records, RefusalReason, Schema, SessionCommand,
    SessionEvent, Subscription,
};

/// The input of an origin from its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderReceive {
    /// One frame, as the connection kept its boundaries.
    Frame(Bytes),
}

/// The commands of the origin's program to its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderCommand {
    /// Answers [`SenderEvent::Subscribe`]. Later, on an accepted channel: `Refuse` ends it, and
    /// `Rollback` reports that the log was rolled back while the session was open; send it before
    /// any record of the new epoch.
    Answer {
        /// The channel.
        channel: Channel,
        /// The answer.
        offer: Offer,
    },
    /// Answers [`SenderEvent::Read`]: records from its `from`, with consecutive numbers of one
    /// epoch. No more than requested are used, at least one is. None at all means: not now, repeat
    /// the request when the next is appended.
    Records {
        /// The channel.
        channel: Channel,
        /// The epoch of all of them.
        epoch: u64,
        /// The number of the first: that of the question.
        first: u64,
        /// The version of the schema by which they are written; it was announced before, in the
        /// grant or by [`SenderCommand::Schema`].
        schema_version: u32,
        /// The records.
        records: Records,
    },
    /// Answers [`SenderEvent::Read`]: the numbers from its `from` up to `next` are lost here. They
    /// belong to one epoch: the subscriber continues from the last of them.
    Gap {
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The number of the question.
        from: u64,
        /// The first number that can be read again.
        next: u64,
        /// The reason for the loss.
        reason: LossReason,
    },
    /// New records can be read, up to `last`. May be omitted for some if a later one follows.
    Appended {
        /// The channel.
        channel: Channel,
        /// The newest number.
        last: u64,
    },
    /// Like [`SenderCommand::Appended`], with the new records: a channel that is up to date sends
    /// them without a read. Otherwise they are read later.
    Live {
        /// The channel.
        channel: Channel,
        /// The epoch of all of them.
        epoch: u64,
        /// The number of the first.
        first: u64,
        /// The version of their schema.
        schema_version: u32,
        /// The records.
        records: Records,
    },
    /// The schema changed, or records that follow are written by an older one.
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        schema: Schema,
    },
    /// A command of both ends.
    Session(SessionCommand),
}

/// The events of a sender for the origin's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderEvent {
    /// A subscriber requests a stream; answer with [`SenderCommand::Answer`].
    Subscribe {
        /// The channel.
        channel: Channel,
        /// The request.
        subscription: Subscription,
    },
    /// Records are requested; answer once with [`SenderCommand::Records`] or
    /// [`SenderCommand::Gap`]. At most one request is open for a channel, at most
    /// [`crate::SenderConfig::reads_max`] in total.
    Read {
        /// The channel.
        channel: Channel,
        /// The first number.
        from: u64,
        /// Maximum packed size in bytes, but at least one record.
        bytes: u64,
        /// Maximum number of records.
        elements: u64,
    },
    /// Everything up to this element is stored at the subscriber's level, or among its dead letters.
    Acknowledged {
        /// The channel.
        channel: Channel,
        /// The last one.
        position: Position,
        /// The number of the channel's elements among the dead letters so far.
        refused: u64,
    },
    /// The subscriber no longer wants the stream.
    Unsubscribed {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
        text: String,
    },
    /// There are records to send, but the subscriber has no room.
    Stalled {
        /// The channel.
        channel: Channel,
    },
    /// The subscriber has room again.
    Resumed {
        /// The channel.
        channel: Channel,
    },
    /// An event of both ends.
    Session(SessionEvent),
}

impl From<SessionEvent> for SenderEvent {
    fn from(event: SessionEvent) -> Self {
        Self::Session(event)
    }
}
