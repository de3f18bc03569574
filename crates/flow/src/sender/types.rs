//! The inputs and outputs of a sender.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    Channel, LossReason, Offer, Position, Records, RefusalReason, Schema, SessionCommand,
    SessionEvent, Subscription,
};

/// What arrives at the origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderReceive {
    /// One frame, as the connection kept its boundaries.
    Frame(Bytes),
}

/// What the origin's program asks of its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderCommand {
    /// Answers [`SenderEvent::Subscribe`]. Later, on an accepted channel: `Refuse` ends it, and
    /// `Rollback` says that the log went back while the session was open; give it before any
    /// record of the new epoch.
    Answer {
        /// The channel.
        channel: Channel,
        /// The answer.
        offer: Offer,
    },
    /// Answers [`SenderEvent::Read`]: records from its `from` on, consecutive numbers, one epoch. No
    /// more than asked for is used, at least one is. None at all means: not now, ask again when the
    /// next is appended.
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
    /// Answers [`SenderEvent::Read`]: the numbers from its `from` up to `next` are lost here. They are
    /// numbers of one epoch: the subscriber goes on from the last of them.
    Gap {
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The number of the question.
        from: u64,
        /// The first number that can be read again.
        next: u64,
        /// Why they are lost.
        reason: LossReason,
    },
    /// New records can be read, up to `last`. May be left out for some if a later one follows.
    Appended {
        /// The channel.
        channel: Channel,
        /// The newest number.
        last: u64,
    },
    /// Like [`SenderCommand::Appended`], with the new records at hand: a channel that is up to date
    /// sends them without a read. Otherwise they are read later.
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
    /// A command that both ends take.
    Session(SessionCommand),
}

/// The events of a sender for the origin's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderEvent {
    /// A subscriber wants a stream; answer with [`SenderCommand::Answer`].
    Subscribe {
        /// The channel.
        channel: Channel,
        /// What is wanted.
        subscription: Subscription,
    },
    /// Records are wanted; answer with [`SenderCommand::Records`] or [`SenderCommand::Gap`], once.
    /// At most one question is open for a channel, at most [`crate::SenderConfig::reads_max`] in all.
    Read {
        /// The channel.
        channel: Channel,
        /// The first number.
        from: u64,
        /// So many packed bytes at most, but at least one record.
        bytes: u64,
        /// So many records at most.
        elements: u64,
    },
    /// Everything up to this element is stored at the subscriber's level, or among its dead letters.
    Acknowledged {
        /// The channel.
        channel: Channel,
        /// The last one.
        position: Position,
        /// How many of the channel's elements are among the dead letters so far.
        refused: u64,
    },
    /// The subscriber wants the stream no more.
    Unsubscribed {
        /// The channel.
        channel: Channel,
        /// Why.
        reason: RefusalReason,
        /// Why, as a text.
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
