//! The inputs and outputs of a sender.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    Channel, LossReason, Offer, Position, Records, RefusalReason, Schema, SessionCommand,
    SessionEvent, Subscription,
};

/// Input of the origin's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderReceive {
    /// One frame, with its boundaries kept by the connection.
    Frame(Bytes),
}

/// Commands of the origin's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderCommand {
    /// Answers [`SenderEvent::Subscribe`]. Later, on an accepted channel: `Refuse` ends it, and
    /// `Rollback` reports that the log was rolled back while the session was open; it must precede
    /// all records of the new epoch.
    Answer {
        /// The channel.
        channel: Channel,
        /// The answer.
        offer: Offer,
    },
    /// Answers [`SenderEvent::Read`]: records from its `from` on, with consecutive numbers, of one
    /// epoch. At least one is used, and no more than requested. An empty answer means: not now,
    /// read again after the next append.
    Records {
        /// The channel.
        channel: Channel,
        /// The epoch of all of them.
        epoch: u64,
        /// The number of the first: `from` of the read.
        first: u64,
        /// The version of their schema, announced in the grant or by [`SenderCommand::Schema`].
        schema_version: u32,
        /// The records.
        records: Records,
    },
    /// Answers [`SenderEvent::Read`]: the numbers from its `from` up to `next` are lost here. They
    /// are numbers of one epoch: the subscriber continues after the last of them.
    Gap {
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The first lost number: `from` of the read.
        from: u64,
        /// The first number that can be read again.
        next: u64,
        /// The reason.
        reason: LossReason,
    },
    /// New records can be read, up to `last`. Commands that a later one supersedes may be left out.
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
    /// The schema changed, or later records have an older one.
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        schema: Schema,
    },
    /// A command of either end.
    Session(SessionCommand),
}

/// The events of a sender for the origin's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderEvent {
    /// A subscriber requests a stream; answer with [`SenderCommand::Answer`].
    Subscribe {
        /// The channel.
        channel: Channel,
        /// The subscription.
        subscription: Subscription,
    },
    /// The sender requests records; answer once, with [`SenderCommand::Records`] or
    /// [`SenderCommand::Gap`]. At most one read is open for a channel, at most
    /// [`crate::SenderConfig::reads_max`] in all.
    Read {
        /// The channel.
        channel: Channel,
        /// The first number.
        from: u64,
        /// Most packed bytes, but at least one record.
        bytes: u64,
        /// Most records.
        elements: u64,
    },
    /// Everything up to this element is stored at the subscriber's level, or a dead letter there.
    Acknowledged {
        /// The channel.
        channel: Channel,
        /// The last element.
        position: Position,
        /// The number of the channel's dead letters so far.
        refused: u64,
    },
    /// The subscriber has ended the subscription.
    Unsubscribed {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as a text.
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
    /// An event of either end.
    Session(SessionEvent),
}

impl From<SessionEvent> for SenderEvent {
    fn from(event: SessionEvent) -> Self {
        Self::Session(event)
    }
}
