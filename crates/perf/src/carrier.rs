//! The seam between the measuring loop and the carrier of the samples.
//!
//! Only `wait` blocks: it runs the carrier and returns on a change (an acknowledgement, a
//! subscriber, a sample) or at a given time. Everything else runs in between on the caller's one
//! thread, without a queue.

use std::time::Duration;

use chappe_machine::Instant;

use crate::Error;

/// A sample acknowledged by all subscribers that are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Its size in bytes.
    pub(crate) bytes: usize,
    /// From writing it to knowing that.
    pub(crate) delay: Duration,
}

/// Counters of a carrier since the start. Unknown ones are `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counters {
    /// Samples dropped at this end for subscribers that are too slow.
    pub(crate) dropped: Option<u64>,
}

/// The publisher's end.
pub(crate) trait Outlet {
    /// The number of subscribers that are ready for samples.
    fn subscribers(&mut self) -> usize;

    /// Writes a sample; false if the carrier has no room for it now.
    ///
    /// # Errors
    /// The carrier can never accept it, or has ended.
    fn write(&mut self, sample: &[u8]) -> Result<bool, Error>;

    /// Exact number of written samples that not all subscribers have acknowledged; 0 without
    /// acknowledgements.
    fn unacknowledged(&mut self) -> u64;

    /// Samples acknowledged since the last call, in order.
    fn acknowledged(&mut self, each: &mut dyn FnMut(Acknowledged));

    /// Bytes retransmitted since the last call, where the carrier retransmits.
    fn retransmitted_bytes(&mut self) -> u64 {
        0
    }

    /// Samples sent back.
    fn echoes(&mut self, each: &mut dyn FnMut(&[u8]));

    /// The counters.
    fn counters(&mut self) -> Counters;

    /// Runs the carrier until something has changed, at the latest until the given time. With a
    /// time in the past it only does pending work, and samples may be collected to be sent together.
    ///
    /// # Errors
    /// The carrier has ended.
    fn wait(&mut self, until: Instant) -> Result<(), Error>;

    /// Whether all written samples have left this end, as far as known.
    fn is_idle(&mut self) -> bool;

    /// The reason why a remote end does not match this one, if one was found since the last call.
    fn mismatch(&mut self) -> Option<String> {
        None
    }
}

/// The subscriber's end.
pub(crate) trait Inlet {
    /// Runs the carrier until samples are available, at the latest until the given time; false if
    /// the publisher has ended and nothing is left.
    ///
    /// # Errors
    /// The carrier has ended otherwise.
    fn wait(&mut self, until: Instant) -> Result<bool, Error>;

    /// The next available sample. Asking for the next one takes the previous one, which is then
    /// acknowledged.
    ///
    /// # Errors
    /// The received bytes are not a sample.
    fn take(&mut self) -> Result<Option<&[u8]>, Error>;

    /// Sends the last taken sample back.
    fn echo(&mut self) -> Result<(), Error>;

    /// The reason why a remote end does not match this one, if one was found since the last call.
    fn mismatch(&mut self) -> Option<String> {
        None
    }

    /// Reports the last taken sample to the publisher, and ends.
    fn finish(&mut self);
}
