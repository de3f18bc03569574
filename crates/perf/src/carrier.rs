//! The seam between the measuring and what carries the samples.
//!
//! Nothing here blocks but `wait`, which runs the carrier and returns when something has changed: an
//! acknowledgement, a subscriber, a sample; or at a time. Who measures does the rest in between: one
//! thread, no queue of its own.

use std::time::Duration;

use chappe_machine::Instant;

use crate::Error;

/// A sample that all who are waited for have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Its bytes.
    pub(crate) bytes: usize,
    /// From writing it to knowing that.
    pub(crate) delay: Duration,
}

/// What a carrier has counted since the beginning. What it cannot tell is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    /// Samples thrown away at this end for subscribers that are too slow.
    pub(crate) dropped: Option<u64>,
}

/// The publisher's end.
pub(crate) trait Outlet {
    /// How many subscribers are ready for samples.
    fn subscribers(&mut self) -> usize;

    /// Hands a sample over; false when the carrier has no room for it now.
    ///
    /// # Errors
    /// When the carrier can never take it, or is at its end.
    fn write(&mut self, sample: &[u8]) -> Result<bool, Error>;

    /// Samples written that not all subscribers have acknowledged, exactly; 0 where nobody does.
    fn unacknowledged(&mut self) -> u64;

    /// What was acknowledged since the last call, in order.
    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged));

    /// Samples that came back.
    fn echoes(&mut self, each: &mut dyn FnMut(&[u8]));

    /// What was counted.
    fn counters(&mut self) -> Counters;

    /// Runs the carrier until something has changed, at the latest until then. With a time that has
    /// passed it does what is ready.
    ///
    /// # Errors
    /// When it is at its end.
    fn wait(&mut self, until: Instant) -> Result<(), Error>;

    /// Whether what was written has left this end, as far as that can be known.
    fn is_idle(&mut self) -> bool;

    /// Why an end elsewhere does not fit this one, if one was found since the last call.
    fn mismatch(&mut self) -> Option<String> {
        None
    }
}

/// The subscriber's end.
pub(crate) trait Inlet {
    /// Runs the carrier until samples are there, at the latest until then; false when the publisher
    /// has ended and nothing is left.
    ///
    /// # Errors
    /// When it is at its end otherwise.
    fn wait(&mut self, until: Instant) -> Result<bool, Error>;

    /// The next sample that is there. Who asks for the next has taken the one before, which is then
    /// acknowledged.
    ///
    /// # Errors
    /// When what came is none.
    fn take(&mut self) -> Result<Option<&[u8]>, Error>;

    /// Sends the sample back that was taken last.
    fn echo(&mut self) -> Result<(), Error>;

    /// Why an end elsewhere does not fit this one, if one was found since the last call.
    fn mismatch(&mut self) -> Option<String> {
        None
    }

    /// Tells the publisher what was taken, and ends.
    fn finish(&mut self);
}
