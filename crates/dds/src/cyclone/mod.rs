//! Cyclone DDS: the C library `libddsc`, built with this crate.
//!
//! - The exact number of unacknowledged samples is read from the library's writer
//!   (`unsafe_cyclone/shim.c`): the written ones minus those acknowledged by the slowest reader. A hook in the writer's
//!   history cache reports each change, so a wait ends with it.
//! - The watermarks at which the library would block a writer are out of reach: [`crate::Qos::window`] and the pacer
//!   limit the samples in flight.
//! - A full reader drops its oldest sample, and the gaps in the writers' numbers are counted. One that refuses samples
//!   blocks the library's receiving thread, and with it all topics, until it is emptied.
//! - Discovery is read from the library's own topics; mismatches are found here, by comparing both sides'
//!   values.
//! - Each participant has a domain of the library to itself, with threads, sockets and locks of its own. So one that
//!   stalled can be replaced, and participants of one process may have different interfaces. On the network they are in
//!   the domain that the configuration names.

mod any;
mod participant;
mod reader;
mod writer;

pub(crate) use participant::open;
