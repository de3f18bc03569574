//! The seam for the pace of a session: when may the next frame go?
//!
//! Windows say what the receiver has room for. A pacer may hold back within them, so that the
//! window is never full and the receiver never idle. [`FixedWindow`] only bounds what is on the way.

use core::fmt;
use core::time::Duration;

use chappe_machine::Instant;

/// What is on the way: sent and not yet acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// Packed bytes.
    pub bytes: u64,
    /// Elements.
    pub elements: u64,
    /// The receiver's window over all channels, bytes.
    pub window_bytes: u64,
}

/// When the next may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Now,
    /// Not before then.
    At(Instant),
    /// When something was acknowledged. Not to be said when nothing is in flight.
    AfterAcknowledgement,
}

/// Decides when a session may send on. Asked before each frame of data, within the windows.
pub trait Pacer: fmt::Debug + Send {
    /// When the next frame may go.
    fn next(&mut self, now: Instant, in_flight: InFlight) -> Pace;
    /// A frame has gone out with so many packed bytes and elements.
    fn sent(&mut self, now: Instant, bytes: u64, elements: u64);
    /// So much was acknowledged; `delay` is the time from sending to that, where it was measured.
    fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        in_flight: InFlight,
    );
}

/// Sends whenever fewer than so many bytes are on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedWindow {
    /// The bound, in packed bytes, over all channels.
    pub bytes: u64,
}

impl Default for FixedWindow {
    /// No bound but the receiver's.
    fn default() -> Self {
        Self { bytes: u64::MAX }
    }
}

impl Pacer for FixedWindow {
    fn next(&mut self, _: Instant, in_flight: InFlight) -> Pace {
        if in_flight.bytes < self.bytes.max(1) {
            Pace::Now
        } else {
            Pace::AfterAcknowledgement
        }
    }

    fn sent(&mut self, _: Instant, _: u64, _: u64) {}

    fn acknowledged(&mut self, _: Instant, _: u64, _: u64, _: Option<Duration>, _: InFlight) {}
}
