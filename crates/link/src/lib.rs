//! The two ends of a link as machines without I/O. [`Origin`] decides where a subscriber's stream
//! starts or continues, and what to send; [`Subscriber`] decides what to store, in which order, and
//! what to acknowledge. Both repair damage. The node and the simulation run the same machines; each
//! provides its own connection, clock and log.
//!
//! ```text
//!       questions                 frames, time                  storage requests
//! log <============== Origin ==== connection ==== Subscriber ======================> log
//!      =============> (Sender)                    (Receiver) <======================
//!       answers, news                                          outcome, queued, stored
//! ```
//!
//! # The origin
//!
//! An [`Origin`] holds the [`chappe_flow::Sender`] of its session. Its inputs are frames, time and
//! [`OriginCommand`]s; its outputs are frames and [`OriginEvent`]s. Reading and restoring are
//! effects; the program answers a question at once or later, while other inputs continue:
//!
//! 1. [`OriginEvent::Open`] names a stream. The program checks the permission, arranges to be notified
//!    of new elements, and answers [`OriginCommand::Opened`] with the state of its log, or
//!    [`OriginCommand::Refuse`]. The machine decides where the stream continues, and whether that is a
//!    rollback.
//! 2. [`OriginEvent::Schema`] asks for a schema. The machine announces each version once in a session,
//!    before the first element written by it.
//! 3. [`OriginEvent::Read`] asks for elements, either because they are next or because they are damaged
//!    at the subscriber. The program reports what it finds; the machine divides lost numbers by epoch,
//!    reads past gaps for a repair, and isolates an element that cannot be decoded.
//! 4. The program reports new elements with [`OriginCommand::Live`], or their numbers with
//!    [`OriginCommand::Appended`].
//! 5. The program looks for damage at intervals ([`OriginCommand::Repair`]). The machine requests
//!    as many elements from the subscriber as its limit allows, in turn, and returns the answers in
//!    [`OriginEvent::PutBack`].
//! 6. The program forgets a channel at [`OriginEvent::Ended`].
//!
//! # The subscriber
//!
//! A [`Subscriber`] holds the [`chappe_flow::Receiver`] of its session. Its inputs are frames, time
//! and [`SubscriberCommand`]s; its outputs are frames and [`SubscriberEvent`]s. Storage is an
//! effect:
//!
//! 1. [`SubscriberEvent::Storage`] asks for one change of the log. The program tries it at once, without
//!    waiting for the disk, and answers with [`SubscriberCommand::Outcome`]. There is one open request at
//!    a time.
//! 2. Each batch that an [`Append`](StorageRequest::Append) has put in the log's queue is reported by
//!    [`SubscriberCommand::Queued`] before the outcome: one request becomes several batches when some of
//!    its elements are dead letters, and after a partial success the rest is requested again.
//! 3. When batches in the log are durable, in the order in which they were queued, the program
//!    reports them with [`SubscriberCommand::Stored`]. Only then does the machine acknowledge them.
//! 4. When the log rolls queued batches back, or fails, the program drops the machine and connects
//!    again. A new session continues after the last position that the log has
//!    ([`SubscriberCommand::Subscribe`]).
//! 5. The program looks for damage at intervals ([`SubscriberCommand::Repair`]), and restores the
//!    origin's answers ([`SubscriberEvent::PutBack`]). It answers the origin's
//!    [`SessionEvent::Fetch`](chappe_flow::SessionEvent::Fetch) from its copy.
//!
//! # Invariants
//!
//! - An acknowledged element is stored, or is among the dead letters, at the level of its subscription.
//! - A subscriber that the origin cannot continue exactly is notified of a rollback, with the last
//!   position that both have. If the log does not know its newest epoch, an earlier one decides.
//! - Elements follow the announcement of their schema. Elements that wait for one hold up only their
//!   channel, and live elements that arrive meanwhile are read from the log later.
//! - Lost numbers are named with their own epoch.
//! - Storage requests of a channel keep the order in which the origin sent them. A request that finds the
//!   log's queue full is repeated after [`SubscriberConfig::busy_pause`], and every later one waits; a
//!   request that waits for the definition of its own stream holds up only its channel. Lost numbers,
//!   rollbacks and schemas wait like records: if they overtook records, the stored position would pass
//!   elements that are not stored.
//! - Every number of the origin is stored once, or named once as lost, or dropped by a rollback.
//!   [`Progress`] drops elements and losses that are repeated; it is shared by every kind of link.
//! - The position at the origin is stored with the elements. Where no element carries it (lost numbers, a
//!   rollback, a start at the end of the stream) the request itself stores it, so it outlives trims of
//!   the copy and the end of the connection.
//! - Memory is bounded. An origin holds no elements except those that wait for a schema. A subscriber holds
//!   records up to the credit of the session, and other requests up to [`chappe_flow::PARKED_MAX`]; at that
//!   number [`Subscriber::is_full`] reports that the connection must not be read.
//!
//! This crate does not include dialling ([`chappe_flow::Reconnect`]), the format of records and
//! schemas, or the log.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod lost;
mod origin;
#[cfg(not(feature = "planted"))]
mod planted;
#[cfg(feature = "planted")]
pub mod planted;
mod progress;
mod repair;
mod subscriber;

pub use lost::LostRanges;
pub use origin::{
    Origin, OriginCommand, OriginConfig, OriginEvent, OriginReceive, ReadPurpose, ReadRequest,
    Resumption, SchemaOf, StreamState,
};
pub use progress::{EPOCHS_MAX, Progress};
pub use repair::Hole;
pub use subscriber::{
    StorageOutcome, StorageRequest, Subscriber, SubscriberCommand, SubscriberConfig,
    SubscriberEvent, SubscriberReceive,
};
