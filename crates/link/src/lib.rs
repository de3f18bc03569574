//! The end of a link that stores, as a machine without I/O: [`Subscriber`] decides what is stored, in
//! which order, what is acknowledged, and where a session goes on. The node and the simulation run the
//! same machine; each brings its own connection, clock and log.
//!
//! ```text
//!              frames, time                     storage requests
//! connection ==============> Subscriber ==========================> log of the subscribing node
//!            <============== (Receiver)  <=========================
//!                frames                   outcome, queued, stored
//! ```
//!
//! # Inputs and effects
//!
//! A [`Subscriber`] holds the [`chappe_flow::Receiver`] of its session. It takes frames, time and
//! [`SubscriberCommand`]s, and gives frames and [`SubscriberEvent`]s. Storage is an effect:
//!
//! 1. [`SubscriberEvent::Storage`] asks for one change of the log. The program tries it at once, without
//!    waiting for the disk, and answers with [`SubscriberCommand::Outcome`]. There is one open request at
//!    a time.
//! 2. Each batch that an [`Append`](StorageRequest::Append) has put in the log's queue is reported by
//!    [`SubscriberCommand::Queued`] before the outcome: one request becomes several batches when some of
//!    its elements are dead letters, and after a partial success the rest is asked for again.
//! 3. When the log has made batches safe, in the order in which they were queued, the program says
//!    [`SubscriberCommand::Stored`]. Only then does the machine acknowledge them.
//! 4. When the log removes batches that it had queued, or fails, the program drops the machine and
//!    connects again. A new session goes on from the last position that the log has
//!    ([`SubscriberCommand::Subscribe`]).
//!
//! # Invariants
//!
//! - An acknowledged element is stored, or is among the dead letters, at the level of its subscription.
//! - Storage requests of a channel keep the order in which the origin sent them. A request that finds the
//!   log's queue full is repeated after [`SubscriberConfig::busy_pause`], and every later one waits; a
//!   request that waits for the definition of its own stream holds up only its channel. Lost numbers,
//!   rollbacks and schemas wait like records: if they overtook records, the stored position would pass
//!   elements that are not stored.
//! - Every number of the origin is stored once, or named once as lost, or given up by a rollback.
//!   [`Progress`] drops elements and losses that come again; it is shared by every kind of link.
//! - The position at the origin is stored with the elements. Where no element carries it (lost numbers, a
//!   rollback, a start at the end of the stream) the request itself stores it, so it outlives trims of
//!   the copy and the end of the connection.
//! - Memory is bounded: records by the credit of the session, other requests by
//!   [`chappe_flow::PARKED_MAX`]; at that number [`Subscriber::is_full`] says that the connection is not
//!   to be read.
//!
//! Not here: dialling ([`chappe_flow::Reconnect`]), the format of records and schemas, the log itself.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod progress;
mod repair;
mod subscriber;

pub use progress::{EPOCHS_MAX, Progress};
pub use repair::Hole;
pub use subscriber::{
    StorageOutcome, StorageRequest, Subscriber, SubscriberCommand, SubscriberConfig,
    SubscriberEvent, SubscriberReceive,
};
