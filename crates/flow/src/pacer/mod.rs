//! The interface for pacing a reliable sender: when may the next sample be sent?
//!
//! Windows limit a sender to the receiver's room. A pacer holds back within them, so that the
//! window is never full and the receiver never idle. It is a machine without I/O: the caller
//! reports what was sent and acknowledged, and passes the time. A sender asks it before each sample
//! (a session: before each frame) and does the waiting.
//!
//! | pacer | when the next may be sent | its configuration |
//! |---|---|---|
//! | [`Flood`] | at once: only the sender's window bounds it | nothing |
//! | [`FixedWindow`] | while fewer than so many are in flight | the window |
//! | [`FixedPeriod`] | a fixed time after the one before | the time |
//! | [`Napa`] | after a time that follows the window's occupation, as published | the link's capacity, K |
//! | [`Adaptive`] | after a time that follows what it measures | nothing |
//!
//! All pacers keep these promises for any input, even from a clock that stops or jumps: no panic,
//! bounded memory, no wait above [`PERIOD_MAX`], and never [`Pace::AfterAcknowledgement`] with
//! nothing in flight.

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
use serde::{Serialize, Serializer};

pub use adaptive::{Adaptive, AdaptiveConfig};
pub use choice::{Choice, ChoiceError};
pub use events::Events;
pub use fixed::{FixedPeriod, FixedWindow, Flood};
pub use napa::{Napa, NapaConfig};
pub use receivers::{Receivers, Waits};

/// The longest time between two samples that a pacer requests. A sender that was slowed down by
/// mistake recovers within this time.
pub const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Lateness of a caller that is made up for by sending the next samples earlier: timers of an
/// operating system are a millisecond late, and the rate must not suffer from it.
pub const LATE_MAX: Duration = Duration::from_millis(2);

/// The data in flight: sent and not yet acknowledged. With several receivers: of the slowest that
/// counts, see [`Receivers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// Bytes (in a session: packed).
    pub bytes: u64,
    /// Stream elements (in DDS: samples): the window's occupation N.
    pub elements: u64,
    /// The receiver's window in bytes; 0 if unknown.
    pub window_bytes: u64,
    /// Bytes granted by [`Pacer::next`] and not yet sent; 0 for a sender that sends immediately.
    pub reserved_bytes: u64,
}

/// When the next sample may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Immediately.
    Now,
    /// Not before this time. Ask again then, or earlier after an acknowledgement.
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
    /// When the next sample may be sent. Asking twice returns the same.
    fn next(&mut self, now: Instant, in_flight: InFlight) -> Pace;

    /// Reports a sample or frame that was sent for the first time.
    fn sent(&mut self, now: Instant, bytes: u64, elements: u64);

    /// Reports data that was sent again, where the caller knows; with several receivers, the mean
    /// for each.
    fn sent_again(&mut self, _now: Instant, _bytes: u64) {}

    /// Reports acknowledgements since the last call, with the rest in flight. `delay` is the time
    /// from the sending of the newest acknowledged sample to its acknowledgement, where it was
    /// measured.
    fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        in_flight: InFlight,
    );

    /// Its current state, for display.
    fn status(&self) -> PacerStatus;
}

/// The state of a pacer. Serialized for people: times become seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PacerStatus {
    /// The pacer: `flood`, `fixed_window`, `fixed_period`, `napa`, `adaptive`.
    #[serde(rename = "pacer")]
    pub name: &'static str,
    /// Its state.
    pub state: PacerState,
    /// The window's occupation N: elements in flight at the last report.
    pub occupation: u64,
    /// It sends faster below this occupation, elements; 0: no threshold.
    pub low_threshold: u64,
    /// It sends slower or waits above this occupation, elements; 0: no threshold.
    pub high_threshold: u64,
    /// The time between two samples or frames; zero: no pause.
    #[serde(rename = "period_s", serialize_with = "in_seconds")]
    pub period: Duration,
    /// The last round trip, from sending to acknowledgement.
    #[serde(rename = "round_trip_s", serialize_with = "in_seconds")]
    pub round_trip: Option<Duration>,
    /// The round trip without queueing.
    #[serde(rename = "round_trip_min_s", serialize_with = "in_seconds")]
    pub round_trip_min: Option<Duration>,
    /// The estimated rate of the slowest part of the path, in bytes per second.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// K: elements covered by one acknowledgement, as configured or measured; 0: unknown.
    pub acknowledged_at_once: u64,
}

fn in_seconds<T, S>(time: &T, to: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<Option<Duration>>,
    S: Serializer,
{
    (*time).into().map(|time| time.as_secs_f64()).serialize(to)
}

/// What a pacer is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PacerState {
    /// It does not change its pace, or has none.
    #[default]
    Fixed,
    /// It measures the path and sends little.
    Measuring,
    /// The source has less to send than it may: nothing is held back.
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
    /// All of them.
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

/// The time for this many bytes at this rate.
fn time_of(bytes: f64, bytes_per_s: f64) -> Duration {
    let seconds = bytes / bytes_per_s.max(1e-9);
    seconds_of(seconds)
}

/// A time within `0..=PERIOD_MAX`; the maximum for NaN.
fn seconds_of(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds >= PERIOD_MAX.as_secs_f64() {
        return PERIOD_MAX;
    }
    Duration::from_secs_f64(seconds.max(0.0))
}
