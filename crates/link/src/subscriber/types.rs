//! The inputs and effects of a subscriber.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use bytes::Bytes;
use chappe_flow::{
    Channel, DeadLetterReason, LossReason, Position, ReceiverConfig, Records, RefusalReason,
    Schema, SessionCommand, SessionEvent, Subscription,
};

use crate::Hole;

/// The limits of a subscriber.
#[derive(Debug, Clone)]
pub struct SubscriberConfig {
    /// The limits of its session.
    pub receiver: ReceiverConfig,
    /// How long a storage request waits before it is repeated: for room in the log's queue, or for the
    /// definition of its stream.
    pub busy_pause: Duration,
}

impl Default for SubscriberConfig {
    fn default() -> Self {
        Self {
            receiver: ReceiverConfig::default(),
            busy_pause: Duration::from_millis(2),
        }
    }
}

/// Input of a subscriber from its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberReceive {
    /// One frame of the session.
    Frame(Bytes),
}

/// Input of a subscriber from its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberCommand {
    /// Starts the session.
    Open,
    /// Subscribes to a stream.
    Subscribe {
        /// The channel; its number was not used in this session.
        channel: Channel,
        /// The last position that the log has of it. The stream continues after it, and
        /// [`Subscription::start`] is ignored.
        last: Option<Position>,
        /// The stream and its options.
        subscription: Subscription,
    },
    /// The open [`StorageRequest::Append`] has put a batch, or one dead letter, in the log's queue.
    Queued {
        /// Its last element.
        last: Position,
        /// The number of elements that it stores.
        count: u64,
        /// The reason, if the element is a dead letter.
        dead_letter: Option<DeadLetterReason>,
    },
    /// Answers [`SubscriberEvent::Storage`].
    Outcome(StorageOutcome),
    /// The oldest [`SubscriberCommand::Queued`] batches are durable.
    Stored {
        /// The number of batches.
        batches: usize,
    },
    /// Asks the origin for elements that are damaged here.
    Repair {
        /// All damaged elements of the streams that are read.
        holes: Vec<Hole>,
    },
    /// A command of the session: answers [`SessionEvent::Fetch`], or closes.
    Session(SessionCommand),
}

/// The outcome of a storage request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageOutcome {
    /// It is in the log's queue.
    Done,
    /// The log's queue has no room; the request is repeated.
    Busy,
    /// The stream, or this version of its schema, is not durable yet; the request is repeated.
    Defining,
    /// The stream cannot be stored here; it is abandoned.
    Refused {
        /// The reason, for the origin.
        reason: RefusalReason,
        /// The reason as text.
        text: String,
    },
}

/// A change of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageRequest {
    /// Elements are written in this schema.
    Define {
        /// The schema.
        schema: Schema,
    },
    /// Append these elements, each with its position at the origin.
    Append {
        /// The position of the first.
        first: Position,
        /// The version of their schema.
        schema_version: u32,
        /// The records.
        records: Records,
        /// The number of newer elements at the origin.
        behind: u64,
    },
    /// The stream is read from its end: store this position, the last before its first element.
    Begin {
        /// The position.
        at: Position,
    },
    /// These numbers will never arrive: store the position of the last, and count them.
    Lost {
        /// The first one not counted before.
        from: Position,
        /// The number after the last.
        next: u64,
        /// The reason.
        reason: LossReason,
    },
    /// The origin was rolled back: store the position before `next`, and report it.
    Rollback {
        /// The last position that this node has.
        have: Position,
        /// The last position that both have, if the origin knows it.
        kept: Option<Position>,
        /// How the stream continues.
        next: Position,
    },
}

/// Requests of a subscriber to its program, and reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberEvent {
    /// Change the log, and answer with [`SubscriberCommand::Outcome`].
    Storage {
        /// The channel of the stream.
        channel: Channel,
        /// The change.
        request: StorageRequest,
    },
    /// The stream is granted and defined here.
    Accepted {
        /// The channel.
        channel: Channel,
        /// Its first element.
        next: Position,
    },
    /// Elements up to this one are stored.
    Stored {
        /// The channel.
        channel: Channel,
        /// The last of them.
        last: Position,
        /// The number of elements since the last report.
        count: u64,
    },
    /// The origin refuses the stream, or ends it.
    Refused {
        /// The channel.
        channel: Channel,
        /// The reason.
        reason: RefusalReason,
        /// The reason as text.
        text: String,
    },
    /// Restore these elements, which are damaged here; they may exist already.
    PutBack {
        /// The channel.
        channel: Channel,
        /// The position of the first at the origin.
        first: Position,
        /// The elements.
        records: Records,
    },
    /// An event of the session. Answer [`SessionEvent::Fetch`] with [`SessionCommand::Fetched`]. After
    /// [`SessionEvent::Closed`] and [`SessionEvent::Failed`] the machine ignores further input.
    Session(SessionEvent),
}
