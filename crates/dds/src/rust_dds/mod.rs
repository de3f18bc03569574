//! RustDDS behind the face of all backends.
//!
//! What it needs to be used safely, read from its source (0.15.1):
//! - The futures of `async_wait_for_acknowledgments` fix what they wait for at their first poll: one a
//!   sample, polled once after writing it, says when that sample was acknowledged. Their count is the
//!   exact number of unacknowledged samples.
//! - The window of a reliable writer is `max_samples`, whatever the history says.
//! - A reader keeps `max_samples` of a topic, taken or not, and drops older ones without a word even
//!   when they were acknowledged: what was passed over is counted here by the writer's numbers.
//! - `get_matched_subscriptions` panics, and the status channel of an end drops all above four
//!   events: what matches is learnt from the events of the participant.
//! - The instances of a keyed topic are remembered for ever by their key: to it all samples have one
//!   key here, so that a stranger's keys fill no memory.

mod participant;
mod raw;
mod reader;
mod writer;

pub(crate) use participant::open;
