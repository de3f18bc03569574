//! The inputs and outputs of a receiver.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    Channel, DeadLetterReason, Grant, LossReason, Position, Records, RefusalReason, Schema,
    SessionCommand, SessionEvent, Subscription,
};

/// The input of a subscriber from its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverReceive {
    /// One frame, as the connection kept its boundaries.
    Frame(Bytes),
}

/// The commands of the subscriber's program to its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Starts the handshake. Any other command starts it too; a session without channels needs this
    /// one.
    Open,
    /// Requests a stream. May be sent at once, before the handshake is done.
    Subscribe {
        /// The channel; its number was not used in this session.
        channel: Channel,
        /// The request.
        subscription: Subscription,
    },
    /// Wants the stream no more.
    Unsubscribe {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
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
        /// The reason.
        reason: DeadLetterReason,
    },
    /// A command of both ends.
    Session(SessionCommand),
}

/// The events of a receiver for the subscriber's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The subscription is granted. A [`ReceiverEvent::Rollback`] may precede.
    Accepted {
        /// The channel.
        channel: Channel,
        /// The grant.
        grant: Grant,
    },
    /// The subscription is not granted, or was ended by the origin.
    Refused {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
        text: String,
    },
    /// The channel is ended, as requested by [`ReceiverCommand::Unsubscribe`].
    Unsubscribed {
        /// The channel.
        channel: Channel,
    },
    /// Store these, then send [`ReceiverCommand::Stored`]. They arrive in order, each once.
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
        /// The number of newer elements at the origin: the lag.
        behind: u64,
    },
    /// These numbers never arrive. Reported again after a reconnection if nothing after them was stored.
    Lost {
        /// The channel.
        channel: Channel,
        /// Their epoch, if known.
        epoch: u64,
        /// The first.
        from: u64,
        /// The number after the last.
        next: u64,
        /// The reason.
        reason: LossReason,
    },
    /// The origin lost elements that were received here: its elements from `next` on are new, and it no
    /// longer has those stored here after `kept`. The stream continues at `next`.
    Rollback {
        /// The channel.
        channel: Channel,
        /// The subscriber's last position.
        have: Position,
        /// The last one that both have, if the origin knows.
        kept: Option<Position>,
        /// The grant with which it continues.
        next: Position,
    },
    /// The stream's schema changed.
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        schema: Schema,
    },
    /// An event of both ends.
    Session(SessionEvent),
}

impl ReceiverEvent {
    /// The channel of the event; none if it concerns the session.
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
