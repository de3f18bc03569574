//! The seam for the pace of a reliable sender: when may the next sample be sent?
//!
//! Windows state the receiver's capacity. A pacer delays samples within them, so that the window is
//! never full and the receiver never idle. It is a machine without I/O: it is notified of sent and
//! acknowledged samples, and time is an argument. The sender asks it before each sample (a session:
//! before each frame) and does the waiting.
//!
//! | pacer | the next may be sent | its setting |
//! |---|---|---|
//! | [`Flood`] | at once: only the sender's window bounds it | none |
//! | [`FixedWindow`] | while the number in flight is below the window | the window |
//! | [`FixedPeriod`] | a fixed time after the previous one | the time |
//! | [`Napa`] | after a time that follows the window's occupation, as published | the link's capacity, K |
//! | [`Adaptive`] | after a time that follows its measurements | none |
//!
//! All keep these promises for any input, including a clock that stops or jumps: no panic, bounded
//! memory, no wait above [`PERIOD_MAX`], and never [`Pace::AfterAcknowledgement`] with nothing in
//! flight.

mod adaptive;
mod choice;
mod events;
mod fixed;
mod napa;
mod receivers;
mod schedule;

use core::fmt;
use core::time::Duration;

use chappe_machine::Instant;

pub use adaptive::{Adaptive, AdaptiveConfig};
pub use choice::{Choice, ChoiceError};
pub use events::Events;
pub use fixed::{FixedPeriod, FixedWindow, Flood};
pub use napa::{Napa, NapaConfig};
pub use receivers::{Receivers, Waits};

/// Maximum time between two samples. A sender that was slowed down by mistake detects that within
/// this time.
pub const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Maximum lateness of a caller that is compensated by sending the next ones sooner: timers of an
/// operating system are a millisecond late, and the rate must not suffer from it.
pub const LATE_MAX: Duration = Duration::from_millis(2);

/// The amount in flight: sent and not yet acknowledged. With several receivers: by the slowest that
/// is waited for, see [`Receivers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// Bytes (of a session: packed).
    pub bytes: u64,
    /// Stream elements, which are samples in DDS: the window's occupation N.
    pub elements: u64,
    /// The receiver's window in bytes; 0: unknown.
    pub window_bytes: u64,
    /// Granted by [`Pacer::next`] and not yet sent, in bytes; 0 for a sender that sends at once.
    pub reserved_bytes: u64,
}

/// The time when the next may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At once.
    Now,
    /// Not before then. Ask again then, or earlier after an acknowledgement.
    At(Instant),
    /// After an acknowledgement. Never returned when nothing is in flight.
    AfterAcknowledgement,
}

/// Decides when a sender may continue. Asked before each sample or frame, within the windows.
///
/// ```
/// use chappe_flow::pacer::{Adaptive, AdaptiveConfig, InFlight, Pace, Pacer};
/// use chappe_machine::Instant;
///
/// let mut pacer = Adaptive::new(AdaptiveConfig::default());
/// let now = Instant::ZERO;
/// let mut in_flight = InFlight::default();
/// while pacer.next(now, in_flight) == Pace::Now && in_flight.elements < 100 {
///     // Here the sample is written.
///     in_flight.bytes += 5_000;
///     in_flight.elements += 1;
///     pacer.sent(now, 5_000, 1);
/// }
/// assert!(in_flight.elements < 100, "it begins with little in flight");
/// ```
pub trait Pacer: fmt::Debug + Send {
    /// The time when the next may be sent. Asking has no visible effect on the next answer.
    fn next(&mut self, now: Instant, in_flight: InFlight) -> Pace;

    /// Records that one sample or frame was sent for the first time, with this many bytes and
    /// elements.
    fn sent(&mut self, now: Instant, bytes: u64, elements: u64);

    /// Records a retransmission of this many bytes. Only if the caller knows.
    fn sent_again(&mut self, _now: Instant, _bytes: u64, _elements: u64) {}

    /// Records this many bytes acknowledged since the last call; `in_flight` remains. `delay` is
    /// the time from the sending of the newest of them to its acknowledgement, if it was measured.
    fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        in_flight: InFlight,
    );

    /// Its current state, for people.
    fn status(&self) -> PacerStatus;
}

/// The current state of a pacer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacerStatus {
    /// The pacer: `flood`, `fixed_window`, `fixed_period`, `napa`, `adaptive`.
    pub name: &'static str,
    /// The activity.
    pub state: PacerState,
    /// The window's occupation N in elements, as last reported.
    pub occupation: u64,
    /// Below this occupation it sends faster, elements; 0: it has no such threshold.
    pub low_threshold: u64,
    /// Above this occupation it sends slower or waits, elements; 0: it has no such threshold.
    pub high_threshold: u64,
    /// The current time between two samples or frames; zero: no delay.
    pub period: Duration,
    /// The last round trip, from sending to acknowledgement.
    pub round_trip: Option<Duration>,
    /// The round trip without queueing.
    pub round_trip_min: Option<Duration>,
    /// The estimated rate of the slowest part of the path in bytes per second.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// K: how many elements one acknowledgement acknowledges, as configured or measured; 0: unknown.
    pub acknowledged_at_once: u64,
}

/// The activity of a pacer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PacerState {
    /// It does not change its pace, or has none.
    #[default]
    Fixed,
    /// It measures the path and sends little.
    Measuring,
    /// There is less to send than allowed: it does not delay.
    Idle,
    /// It sends faster and faster.
    Rising,
    /// It keeps its pace.
    Holding,
    /// It sends slower.
    Falling,
    /// It waits until the queue on the path has drained.
    Draining,
}

impl PacerState {
    /// All activities.
    pub const ALL: [Self; 7] = [
        Self::Fixed,
        Self::Measuring,
        Self::Idle,
        Self::Rising,
        Self::Holding,
        Self::Falling,
        Self::Draining,
    ];

    /// The name in metrics and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Measuring => "measuring",
            Self::Idle => "idle",
            Self::Rising => "rising",
            Self::Holding => "holding",
            Self::Falling => "falling",
            Self::Draining => "draining",
        }
    }
}

/// The transmission time of these bytes at a rate.
fn time_of(bytes: f64, bytes_per_s: f64) -> Duration {
    let seconds = bytes / bytes_per_s.max(1e-9);
    seconds_of(seconds)
}

/// A time within `0..=PERIOD_MAX`; NaN becomes the maximum.
fn seconds_of(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds >= PERIOD_MAX.as_secs_f64() {
        return PERIOD_MAX;
    }
    Duration::from_secs_f64(seconds.max(0.0))
}
