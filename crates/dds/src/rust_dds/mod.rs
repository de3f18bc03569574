//! The backend for RustDDS.
//!
//! Its use depends on these properties, read from its source (0.15.1):
//! - A future of `async_wait_for_acknowledgments` waits for the samples written before its first poll: one for each
//!   sample, polled once after the write, completes when that sample is acknowledged. Their count is the exact
//!   number of unacknowledged samples.
//! - The window of a reliable writer is `max_samples`, regardless of its history.
//! - A reader keeps `max_samples` of a topic, taken or not, and silently drops older ones even if they were
//!   acknowledged: the losses are counted here by the writers' sequence numbers. It offers no way to hold back
//!   acknowledgements: the waker of a reader is called once, under a lock that is needed to set it again.
//! - `get_matched_subscriptions` panics, and the status channel of an end drops events after the first four: matches
//!   are learned from the events of the participant.
//! - The instances of a keyed topic are remembered forever: all samples have the same key here, so that a
//!   stranger's keys cannot fill memory.

mod participant;
mod raw;
mod reader;
mod writer;

pub(crate) use participant::open;
