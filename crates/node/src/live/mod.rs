//! Live data: one stream of server-sent events that carries many streams of elements.
//!
//! A client is a task with a cursor into the log for each of its streams, and a queue of two events
//! towards its connection. It reads from the log when the connection takes more, so a slow client
//! holds nothing but its own place: it never blocks another, and it is told how far it is behind.
//! Large events are read and written apart from the serving thread, two at a time.
//! Each event carries the client's whole vector of positions as its id; a client that comes back
//! with it goes on behind the last element it has got.

mod client;
mod reading;
mod vector;

use std::collections::BTreeSet;

pub(crate) use client::run;
pub(crate) use vector::Vector;

/// Streams of one client; reason: the vector is sent with each event, about 50 bytes a stream.
pub(crate) const STREAMS_MAX: usize = 1_000;

/// Where a client goes on.
#[derive(Debug, Clone)]
pub(crate) struct After {
    /// What it has got.
    pub(crate) vector: Vector,
    /// The vector names all streams that there were: it is the id of an event.
    pub(crate) complete: bool,
}

/// Which streams a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All that there are, and those that come.
    All,
    /// These, whether they exist yet or not.
    Names(BTreeSet<String>),
}

impl Wanted {
    /// Whether the client wants this stream.
    pub(crate) fn takes(&self, stream: &str) -> bool {
        match self {
            Self::All => true,
            Self::Names(names) => names.contains(stream),
        }
    }
}
