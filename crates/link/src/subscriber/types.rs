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
    /// Those of its session.
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

/// What arrives at a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberReceive {
    /// One frame of the session.
    Frame(Bytes),
}

/// What the program tells its subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriberCommand {
    /// Begins the session.
    Open,
    /// Asks for a stream.
    Subscribe {
        /// The channel; its number was not used in this session.
        channel: Channel,
        /// The last position that the log has of it. If there is one, the stream goes on after it, and
        /// [`Subscription::start`] is not used.
        last: Option<Position>,
        /// The stream and its options.
        subscription: Subscription,
    },
    /// The open [`StorageRequest::Append`] has put a batch in the log's queue, or one dead letter.
    Queued {
        /// Its last element.
        last: Position,
        /// How many elements are stored by it.
        count: u64,
        /// Why the element is a dead letter, if it is one.
        dead_letter: Option<DeadLetterReason>,
    },
    /// Answers [`SubscriberEvent::Storage`].
    Outcome(StorageOutcome),
    /// The log has made the oldest batches safe that were [`SubscriberCommand::Queued`].
    Stored {
        /// How many batches.
        batches: usize,
    },
    /// Asks the origin for records that are damaged here.
    Repair {
        /// All damaged records of the streams that are read.
        holes: Vec<Hole>,
    },
    /// A command of the session: answers [`SessionEvent::Fetch`], or closes.
    Session(SessionCommand),
}

/// What became of a storage request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageOutcome {
    /// It is in the log's queue.
    Done,
    /// The log's queue has no room; the request comes again.
    Busy,
    /// The stream, or this version of its schema, is not safe yet; the request comes again.
    Defining,
    /// The stream cannot be stored here: it is given up.
    Refused {
        /// Why, for the origin.
        reason: RefusalReason,
        /// Why, in words.
        text: String,
    },
}

/// A change of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageRequest {
    /// Elements are written by this schema.
    Define {
        /// The schema.
        schema: Schema,
    },
    /// Append these, each with its position at the origin.
    Append {
        /// The position of the first.
        first: Position,
        /// The version of their schema.
        schema_version: u32,
        /// The records.
        records: Records,
        /// How many newer elements the origin has.
        behind: u64,
    },
    /// The stream is read from its end on: store this position, the last before its first element.
    Begin {
        /// The position.
        at: Position,
    },
    /// These numbers never come: store the position of the last, and count them.
    Lost {
        /// The first that was not counted before.
        from: Position,
        /// The number after the last.
        next: u64,
        /// Why.
        reason: LossReason,
    },
    /// The origin went back: store the position before `next`, and report it.
    Rollback {
        /// The last position that this node has.
        have: Position,
        /// The last one that both have, if the origin knows.
        kept: Option<Position>,
        /// How the stream goes on.
        next: Position,
    },
}

/// What a subscriber asks of its program, and tells it.
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
        /// How many since the last time.
        count: u64,
    },
    /// The origin refuses the stream, or ends it.
    Refused {
        /// The channel.
        channel: Channel,
        /// Why.
        reason: RefusalReason,
        /// Why, in words.
        text: String,
    },
    /// An event of the session. Records of [`SessionEvent::Fetched`] go back to their places in the log.
    /// After [`SessionEvent::Closed`] and [`SessionEvent::Failed`] the machine takes no more input.
    Session(SessionEvent),
}
