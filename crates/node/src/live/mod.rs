//! Live data: one stream of server-sent events that carries many streams of elements.
//!
//! A client is a task with a cursor into the log for each of its streams, and a queue of two events
//! towards its connection. It reads from the log when the connection has room, so a slow client never
//! blocks another, and a notice reports its lag. Large events are read and encoded outside the
//! serving thread, two at a time. Each event carries the client's vector of all positions as its id; a
//! client that reconnects with it resumes after its last element.

mod client;
mod reading;
mod vector;

use std::collections::BTreeSet;

pub(crate) use client::run;
pub(crate) use vector::Vector;

/// Streams of one client; reason: the vector is sent with each event, about 50 bytes a stream.
pub(crate) const STREAMS_MAX: usize = 1_000;

/// The position from which a client resumes.
#[derive(Debug, Clone)]
pub(crate) struct After {
    /// The last positions that it received.
    pub(crate) vector: Vector,
    /// Whether the vector names all streams of its time, because it is the id of an event.
    pub(crate) complete: bool,
}

/// The streams that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All streams, including future ones.
    All,
    /// These streams, whether or not they exist yet.
    Names(BTreeSet<String>),
}

impl Wanted {
    /// Whether the client requests this stream.
    pub(crate) fn takes(&self, stream: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.contains(stream),
        }
    }
}
