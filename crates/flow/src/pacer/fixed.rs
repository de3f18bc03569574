//! The paces that do not adapt: settings made by hand, and none at all.

use core::time::Duration;

use chappe_machine::Instant;

use super::schedule::Schedule;
use super::{InFlight, PERIOD_MAX, Pace, Pacer, PacerStatus};

/// Sends whenever the sender's own window has room.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flood {
    occupation: u64,
}

impl Pacer for Flood {
    fn next(&mut self, _: Instant, _: InFlight) -> Pace {
        Pace::Now
    }

    fn sent(&mut self, _: Instant, _: u64, elements: u64) {
        self.occupation = self.occupation.saturating_add(elements);
    }

    fn acknowledged(
        &mut self,
        _: Instant,
        _: u64,
        _: u64,
        _: Option<Duration>,
        in_flight: InFlight,
    ) {
        self.occupation = in_flight.elements;
    }

    fn status(&self) -> PacerStatus {
        PacerStatus {
            name: "flood",
            occupation: self.occupation,
            ..PacerStatus::default()
        }
    }
}

/// Sends while the number in flight is below a bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedWindow {
    /// The bound in elements; 0 means 1.
    pub elements: u64,
    /// The bound in bytes; 0 means 1.
    pub bytes: u64,
    occupation: u64,
}

impl FixedWindow {
    /// A bound in elements.
    #[must_use]
    pub const fn of_elements(elements: u64) -> Self {
        Self {
            elements,
            bytes: u64::MAX,
            occupation: 0,
        }
    }

    /// A bound in bytes, which one sample may exceed.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        Self {
            elements: u64::MAX,
            bytes,
            occupation: 0,
        }
    }
}

impl Pacer for FixedWindow {
    fn next(&mut self, _: Instant, in_flight: InFlight) -> Pace {
        let bytes = in_flight.bytes.saturating_add(in_flight.reserved_bytes);
        if in_flight.elements < self.elements.max(1) && bytes < self.bytes.max(1) {
            Pace::Now
        } else {
            Pace::AfterAcknowledgement
        }
    }

    fn sent(&mut self, _: Instant, _: u64, elements: u64) {
        self.occupation = self.occupation.saturating_add(elements);
    }

    fn acknowledged(
        &mut self,
        _: Instant,
        _: u64,
        _: u64,
        _: Option<Duration>,
        in_flight: InFlight,
    ) {
        self.occupation = in_flight.elements;
    }

    fn status(&self) -> PacerStatus {
        PacerStatus {
            name: "fixed_window",
            occupation: self.occupation,
            high_threshold: if self.elements == u64::MAX {
                0
            } else {
                self.elements.max(1)
            },
            ..PacerStatus::default()
        }
    }
}

/// Sends at a fixed interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedPeriod {
    period: Duration,
    schedule: Schedule,
    occupation: u64,
}

impl FixedPeriod {
    /// A fixed interval, at most [`PERIOD_MAX`].
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self {
            period: period.min(PERIOD_MAX),
            schedule: Schedule::default(),
            occupation: 0,
        }
    }
}

impl Pacer for FixedPeriod {
    fn next(&mut self, now: Instant, _: InFlight) -> Pace {
        self.schedule.pace(now)
    }

    fn sent(&mut self, now: Instant, _: u64, elements: u64) {
        self.schedule.sent(now, self.period);
        self.occupation = self.occupation.saturating_add(elements);
    }

    fn acknowledged(
        &mut self,
        _: Instant,
        _: u64,
        _: u64,
        _: Option<Duration>,
        in_flight: InFlight,
    ) {
        self.occupation = in_flight.elements;
    }

    fn status(&self) -> PacerStatus {
        PacerStatus {
            name: "fixed_period",
            occupation: self.occupation,
            period: self.period,
            ..PacerStatus::default()
        }
    }
}
