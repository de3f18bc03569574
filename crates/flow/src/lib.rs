//! Link sessions: a stream's elements from one node's log into another's, each exactly once.
//!
//! ```text
//! origin node                                              subscribing node
//! log --Read/Records--> Sender ==frames==> connection ==frames==> Receiver --Store--> log
//!                       Sender <==acknowledgements, credit====== Receiver <--Stored--
//! ```
//!
//! The subscriber dials. One *session* is one connection with one [`Sender`] at the origin and one
//! [`Receiver`] at the subscriber; it carries many *channels*, one for each stream. A node that wants
//! streams both ways has two sessions. When a connection is lost, both machines are dropped, and the
//! next session goes on from the newest element that the subscriber has stored: an element carries
//! its origin's [`Position`], so that storing it and remembering it is one step. [`Reconnect`] decides
//! when to dial again.
//!
//! # The contract
//!
//! Both ends are machines by [`chappe_machine`]: one input, then drain the outputs, then read the
//! deadline. What is transmitted is one frame ([`Bytes`](bytes::Bytes)). The connection keeps frame
//! boundaries, delivers every frame once and in order until it ends, as ZeroMQ over TCP does, and is
//! used for one session only. Nothing is sent twice. A frame whose checksum is wrong, or elements
//! after a missing number, end the session, and the next one resumes where storage ended.
//!
//! The origin's program
//! 1. answers each [`SenderEvent::Subscribe`] with [`SenderCommand::Answer`]. It compares the position
//!    of [`Start::After`] with its log; what the log does not remember is an [`Offer::Rollback`];
//! 2. gives [`SenderCommand::Appended`] (or [`SenderCommand::Live`], with the records) when the stream
//!    grew, for elements that are safe at its own level only;
//! 3. answers each [`SenderEvent::Read`] once, with [`SenderCommand::Records`] or
//!    [`SenderCommand::Gap`]; at once or later, while other inputs go on;
//! 4. may trim elements after [`SenderEvent::Acknowledged`].
//!
//! The subscriber's program
//! 1. gives [`ReceiverCommand::Subscribe`] with the newest position it has stored;
//! 2. stores what each [`ReceiverEvent::Store`] hands out, in order, and gives
//!    [`ReceiverCommand::Stored`] when it has reached the level; only then is it acknowledged;
//! 3. puts elements that it cannot store among its dead letters and gives [`ReceiverCommand::Refused`];
//! 4. reports [`ReceiverEvent::Lost`] and [`ReceiverEvent::Rollback`] to its users;
//! 5. keeps the order of the events of a channel when its log has no room for one ([`Parked`]).
//!
//! After [`SessionEvent::Failed`] and [`SessionEvent::Closed`] a machine takes no more
//! input. What it still has to transmit is transmitted before.
//!
//! # What is promised
//!
//! - Elements of a channel are handed out in order, each once, or are named in an event: `Lost` or
//!   `Rollback`.
//! - Only elements that the program has stored are acknowledged.
//! - Live channels go before those that catch up, each kind round robin. What catches up has at most
//!   [`SenderConfig::catch_up_bytes`] in flight.
//! - Memory is bounded by the named limits, whatever arrives. A sender holds no records at all; a
//!   receiver holds what its windows allow.
//! - A peer that breaks the protocol ends the session with a [`Failure`] that names whose fault it is.
//!
//! What is not done here: no sockets, no storage, no XML, no encryption and no authentication (the
//! connection's, CURVE or TLS), no choice of pace beyond a [`Pacer`].
//!
//! The protocol is written down for other implementations in `docs/exchange.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod config;
mod error;
pub mod message;
pub mod pacer;
mod parked;
#[cfg(not(feature = "planted"))]
mod planted;
#[cfg(feature = "planted")]
pub mod planted;
mod receiver;
mod reconnect;
mod records;
mod sender;
mod session;
mod status;
mod types;

pub use chappe_record::{Level, Position};
pub use config::{
    CHANNEL_NUMBERS_MAX, Credit, EARLIER_MAX, FETCH_WAIT, FETCHES_MAX, FRAME_BYTES_MIN,
    NAME_BYTES_MAX, ReceiverConfig, SCHEMA_BYTES_MAX, SCHEMAS_MAX, SERIALIZATION_BYTES_MAX,
    SenderConfig, SessionConfig, TEXT_BYTES_MAX, VERSION_MAX, VERSION_MIN,
};
pub use error::{Code, DeadLetterReason, Failure, Fault, LossReason, RefusalReason};
pub use pacer::{
    Adaptive, FixedPeriod, FixedWindow, Flood, InFlight, Napa, Pace, Pacer, PacerState, PacerStatus,
};
pub use parked::{PARKED_MAX, Parked};
pub use receiver::{Receiver, ReceiverCommand, ReceiverEvent, ReceiverReceive};
pub use reconnect::{Reconnect, ReconnectCommand, ReconnectConfig, ReconnectEvent};
pub use records::{Iter, Record, Records, RecordsBuilder};
pub use sender::{Sender, SenderCommand, SenderEvent, SenderReceive};
pub use status::{Counters, ReceiverChannel, SenderChannel};
pub use types::{
    Channel, Grant, Offer, Schema, SchemaId, SessionCommand, SessionEvent, Start, Subscription,
};
