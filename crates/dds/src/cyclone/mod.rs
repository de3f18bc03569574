//! Cyclone DDS behind the face of all backends: the C library `libddsc` of the system.
//!
//! - The exact number of unacknowledged samples is read from the library's writer itself
//!   (`unsafe_cyclone/shim.c`): what is written less what the last of the readers has acknowledged. The
//!   library tells nobody when that changes, so that a wait looks often while samples are on the way.
//! - The watermarks at which the library would hold up a writer by itself are set out of reach: what may
//!   be on the way is said here, by [`crate::Qos::window`], and by the pacer.
//! - A reader that is full takes no more until it is emptied, and says so to the writers: nothing that
//!   was acknowledged is dropped.
//! - Discovery is read from the library's own topics; what does not fit is found here, by both sides'
//!   values.
//! - A domain is configured once in a process: participants of one domain have the same interfaces.

mod participant;
mod reader;
mod writer;

pub(crate) use participant::open;
