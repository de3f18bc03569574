//! What a receiver is told and says.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    Channel, DeadLetterReason, Grant, LossReason, Position, Records, RefusalReason, Schema,
    SessionCommand, SessionEvent, Subscription,
};

/// What arrives at the subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverReceive {
    /// One frame, as the connection kept its boundaries.
    Frame(Bytes),
}

/// What the subscriber's program asks of its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Begins the handshake. Any other command begins it too; a session without channels yet needs
    /// this one.
    Open,
    /// Asks for a stream. May be given at once, before the handshake is done.
    Subscribe {
        /// The channel; its number was not used in this session.
        channel: Channel,
        /// What is wanted.
        subscription: Subscription,
    },
    /// Wants the stream no more.
    Unsubscribe {
        /// The channel.
        channel: Channel,
        /// Why.
        reason: RefusalReason,
        /// Why, in words.
        text: String,
    },
    /// Everything up to this element is stored at the subscription's level (or was refused).
    Stored {
        /// The channel.
        channel: Channel,
        /// The last one.
        position: Position,
    },
    /// This one element is among the dead letters, as safely as the others are stored.
    Refused {
        /// The channel.
        channel: Channel,
        /// The element.
        position: Position,
        /// Why.
        reason: DeadLetterReason,
    },
    /// What both ends can be told.
    Session(SessionCommand),
}

/// What the subscriber's program is told by its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The subscription is granted. A [`ReceiverEvent::Rollback`] may come before.
    Accepted {
        /// The channel.
        channel: Channel,
        /// What is granted.
        grant: Grant,
    },
    /// The subscription is not granted, or was ended by the origin.
    Refused {
        /// The channel.
        channel: Channel,
        /// Why.
        reason: RefusalReason,
        /// Why, in words.
        text: String,
    },
    /// The channel is ended, as was asked by [`ReceiverCommand::Unsubscribe`].
    Unsubscribed {
        /// The channel.
        channel: Channel,
    },
    /// Store these, then say [`ReceiverCommand::Stored`]. They come in order, each once.
    Store {
        /// The channel.
        channel: Channel,
        /// Their epoch.
        epoch: u64,
        /// The number of the first.
        first: u64,
        /// The version of their schema, which was announced before.
        schema_version: u32,
        /// The records.
        records: Records,
        /// So many more are at the origin behind them: the lag.
        behind: u64,
    },
    /// These numbers never come. Told again after a reconnection if nothing behind them was stored.
    Lost {
        /// The channel.
        channel: Channel,
        /// Their epoch, as far as that is known.
        epoch: u64,
        /// The first.
        from: u64,
        /// The number behind the last.
        next: u64,
        /// Why.
        reason: LossReason,
    },
    /// The origin went back behind what was received: what it numbers from `next` on is new, and
    /// what is stored here behind `kept` is no longer there. The stream goes on at `next`.
    Rollback {
        /// The channel.
        channel: Channel,
        /// What this side has.
        have: Position,
        /// The last one that both have, if the origin knows.
        kept: Option<Position>,
        /// How it goes on.
        next: Position,
    },
    /// The stream's schema changed.
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        schema: Schema,
    },
    /// What both ends are told.
    Session(SessionEvent),
}

impl ReceiverEvent {
    /// The channel that it is about; none of one about the session.
    #[must_use]
    pub const fn channel(&self) -> Option<Channel> {
        match self {
            Self::Accepted { channel, .. }
            | Self::Refused { channel, .. }
            | Self::Unsubscribed { channel }
            | Self::Store { channel, .. }
            | Self::Lost { channel, .. }
            | Self::Rollback { channel, .. }
            | Self::Schema { channel, .. } => Some(*channel),
            Self::Session(_) => None,
        }
    }
}

impl From<SessionEvent> for ReceiverEvent {
    fn from(event: SessionEvent) -> Self {
        Self::Session(event)
    }
}
