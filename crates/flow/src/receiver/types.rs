//! The inputs and outputs of a receiver.

use alloc::string::String;

use bytes::Bytes;

use crate::{
    Channel, DeadLetterReason, Grant, LossReason, Position, Records, RefusalReason, Schema,
    SessionCommand, SessionEvent, Subscription,
};

/// Input of the subscriber's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverReceive {
    /// One frame, with its boundaries kept by the connection.
    Frame(Bytes),
}

/// Commands of the subscriber's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverCommand {
    /// Begins the handshake. Any other command does too; a session without channels yet needs this
    /// one.
    Open,
    /// Subscribes to a stream. May precede the end of the handshake.
    Subscribe {
        /// The channel; its number is unused in this session.
        channel: Channel,
        /// The subscription.
        subscription: Subscription,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as a text.
        text: String,
    },
    /// Reports that everything up to this element is stored at the subscription's level (or was
    /// refused).
    Stored {
        /// The channel.
        channel: Channel,
        /// The last element.
        position: Position,
    },
    /// Reports that this element is a dead letter, stored at the same level.
    Refused {
        /// The channel.
        channel: Channel,
        /// The element.
        position: Position,
        /// The reason.
        reason: DeadLetterReason,
    },
    /// A command of either end.
    Session(SessionCommand),
}

/// The events of a receiver for the subscriber's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The subscription is granted. A [`ReceiverEvent::Rollback`] may precede it.
    Accepted {
        /// The channel.
        channel: Channel,
        /// The grant.
        grant: Grant,
    },
    /// The subscription is refused, or the origin has ended it.
    Refused {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as a text.
        text: String,
    },
    /// The channel has ended, as [`ReceiverCommand::Unsubscribe`] requested.
    Unsubscribed {
        /// The channel.
        channel: Channel,
    },
    /// Store these, then give [`ReceiverCommand::Stored`]. They arrive in order, each once.
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
        /// The newest position on this side.
        have: Position,
        /// The last position that both have, if the origin knows it.
        kept: Option<Position>,
        /// The position at which the stream continues.
        next: Position,
    },
    /// The stream's schema changed.
    Schema {
        /// The channel.
        channel: Channel,
        /// The schema.
        schema: Schema,
    },
    /// An event of either end.
    Session(SessionEvent),
}

impl ReceiverEvent {
    /// The channel of the event; `None` for events of the session.
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
