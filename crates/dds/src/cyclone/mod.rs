//! The backend for Cyclone DDS: the C library `libddsc` of the system.
//!
//! - The exact number of unacknowledged samples is read from the library's writer
//!   (`unsafe_cyclone/shim.c`): the written ones minus those acknowledged by the slowest reader. The library does not
//!   report changes, so a wait polls often while samples are in flight.
//! - The watermarks at which the library would block a writer are out of reach: [`crate::Qos::window`] and the pacer
//!   limit the samples in flight.
//! - A full reader accepts no more until it is emptied, and its writers learn that: no acknowledged sample is
//!   dropped.
//! - Discovery is read from the library's own topics; mismatches are found here, by comparing both sides'
//!   values.
//! - A domain is configured once in a process: participants of one domain have the same interfaces.

mod participant;
mod reader;
mod writer;

pub(crate) use participant::open;
