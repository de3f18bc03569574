#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! ```text
//! origin node                                              subscribing node
//! log --Read/Records--> Sender ==frames==> connection ==frames==> Receiver --Store--> log
//!                       Sender <==acknowledgements, credit====== Receiver <--Stored--
//! ```
//!
//! The subscriber dials. One *session* is one connection with one [`Sender`] at the origin and one
//! [`Receiver`] at the subscriber; it carries many *channels*, one for each stream. Two nodes that
//! copy streams from each other have two sessions. When a connection is lost, both machines are
//! dropped, and the next session resumes from the newest element that the subscriber has stored: an
//! element carries its origin's [`Position`], so that one write stores both. [`Reconnect`] decides
//! when to dial again.
//!
//! # The contract
//!
//! Both ends are machines by [`chappe_machine`]: one input, then drain the outputs, then read the
//! deadline. A transmission is one frame ([`Bytes`](bytes::Bytes)). The connection keeps frame
//! boundaries, delivers every frame once and in order until it ends, as ZeroMQ over TCP does, and
//! is used for one session only. Nothing is sent twice. A frame with a wrong checksum, or elements
//! after a missing number, end the session, and the next one resumes at the newest stored element.
//!
//! The origin's program
//! 1. answers each [`SenderEvent::Subscribe`] with [`SenderCommand::Answer`]. It compares the
//!    position of [`Start::After`] with its log; for a position that the log does not know, it
//!    answers [`Offer::Rollback`];
//! 2. passes [`SenderCommand::Appended`] (or [`SenderCommand::Live`], with the records) when the
//!    stream grew, only for elements that are safe at its own level;
//! 3. answers each [`SenderEvent::Read`] once, with [`SenderCommand::Records`] or
//!    [`SenderCommand::Gap`]; immediately or later, with other inputs in between;
//! 4. may trim elements after [`SenderEvent::Acknowledged`].
//!
//! The subscriber's program
//! 1. passes [`ReceiverCommand::Subscribe`] with the newest position it has stored;
//! 2. stores the records of each [`ReceiverEvent::Store`], in order, and passes
//!    [`ReceiverCommand::Stored`] when they have reached the level; only then are they
//!    acknowledged;
//! 3. makes elements that it cannot store dead letters, and passes [`ReceiverCommand::Refused`];
//! 4. reports [`ReceiverEvent::Lost`] and [`ReceiverEvent::Rollback`] to its users;
//! 5. keeps the order of the events of a channel when its log has no room for one ([`Parked`]).
//!
//! After [`SessionEvent::Failed`] and [`SessionEvent::Closed`] a machine accepts no more input.
//! Pending transmissions precede these events.
//!
//! # What is promised
//!
//! - Elements of a channel are handed out in order, each once, or are reported in an event:
//!   `Lost` or `Rollback`.
//! - Only elements that the program has stored are acknowledged.
//! - Live channels precede those that catch up, each kind round robin. Channels that catch up
//!   have at most [`SenderConfig::catch_up_bytes`] in flight.
//! - Memory is bounded by the named limits, whatever is received. A sender keeps no records; a
//!   receiver keeps as much as its windows allow.
//! - A peer that breaks the protocol ends the session with a [`Failure`] that names the side at
//!   fault.
//!
//! Not part of this crate: sockets, storage, XML, encryption and authentication (those of the
//! connection, CURVE or TLS), and pacing algorithms beyond the [`Pacer`] implementations.
//!
//! `docs/reference/exchange-protocol.md` specifies the protocol for other implementations.

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
