//! The measurements that a sender makes of the path without extra messages: round trips, the rate
//! of delivery, and the number of samples acknowledged at once.

use alloc::collections::VecDeque;
use core::time::Duration;

use chappe_machine::Instant;

/// Maximum number of samples whose sending time is remembered. Beyond it, every second one is
/// dropped.
const MARKS_MAX: usize = 512;
/// Minimum number of elements acknowledged, and of acknowledgements, in a control period.
const ELEMENTS_MIN: u64 = 6;
const ACKNOWLEDGEMENTS_MIN: u32 = 2;
/// And of the largest batches: the rate must not depend on how many of them it happens to include.
const BATCHES_MIN: Range = (3.0, 4.0);
/// With so little data that a mistake costs more than waiting, maximum duration in seconds.
const LONG_S: f64 = 0.2;
/// A sender that had nothing to send for a larger share of a control period has not shown the
/// path's capacity.
const IDLE: f64 = 0.25;
/// Share of the largest batch that is forgotten with each control period.
const BATCH_KEPT: f64 = 0.9;
/// Samples acknowledged at once: up to the first number they are few, from the second on many.
const BATCH: Range = (20.0, 60.0);
/// A sender that retransmits this share of the amount in flight, plus some samples, is in a storm:
/// missing samples are requested again before they can have arrived.
const STORM: f64 = 0.3;
const STORM_SAMPLES: f64 = 16.0;

/// A constant for few samples acknowledged at once, and for many.
pub(super) type Range = (f64, f64);

/// The time when a sample was sent.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Bytes sent up to its end.
    end: u64,
    at: Instant,
}

/// The estimates.
#[derive(Debug, Clone, Default)]
pub(super) struct Estimate {
    /// Bytes since the beginning.
    sent: u64,
    delivered: u64,
    marks: VecDeque<Mark>,
    /// Bytes of a sample or frame, smoothed.
    pub(super) size: f64,
    /// Elements of a sample or frame, smoothed: 1 in DDS.
    pub(super) elements: f64,
    /// The shortest round trip, seconds, and when it was seen.
    pub(super) round_trip_min: Option<(f64, Instant)>,
    /// The last one.
    pub(super) round_trip: Option<f64>,
    /// The maximum acknowledged at once, slowly decaying: bytes and elements (K).
    pub(super) batch_bytes: f64,
    pub(super) batch_elements: f64,
    batch: (Instant, u64, u64),
    period: Option<Running>,
}

/// The current control period.
#[derive(Debug, Clone, Copy)]
struct Running {
    began: Instant,
    delivered: u64,
    /// It lasts until everything sent before it is acknowledged.
    until: u64,
    acknowledgements: u32,
    elements: u64,
    /// Bytes retransmitted.
    again: u64,
    round_trip: f64,
    round_trip_max: f64,
    /// Seconds without anything to send.
    idle: f64,
}

/// The measurements of a control period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Period {
    /// Bytes per second between its first and its last acknowledgement.
    pub(super) rate: f64,
    /// The shortest round trip in it, seconds.
    pub(super) round_trip: f64,
    /// The excess of the longest one in seconds.
    pub(super) spread: f64,
    /// Whether the sender had less to send than it might have.
    pub(super) limited: bool,
}

impl Estimate {
    pub(super) fn sent(&mut self, now: Instant, bytes: u64, elements: u64) {
        let (size, count) = (bytes as f64, elements as f64);
        let keep = if self.size == 0.0 { 0.0 } else { 0.9 };
        self.size = self.size * keep + size * (1.0 - keep);
        self.elements = self.elements * keep + count * (1.0 - keep);
        self.sent = self.sent.saturating_add(bytes);
        if self.marks.len() >= MARKS_MAX {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        let end = self.sent;
        self.marks.push_back(Mark { end, at: now });
    }

    /// Time for which the sender was allowed to send and had nothing.
    pub(super) fn idle(&mut self, time: Duration) {
        if let Some(period) = self.period.as_mut() {
            period.idle += time.as_secs_f64();
        }
    }

    /// The bytes that one acknowledgement covers beyond one sample: (K − 1) · size.
    pub(super) fn batch(&self) -> f64 {
        (self.batch_bytes - self.size).max(0.0)
    }

    /// The value of a constant for the number of samples acknowledged at once.
    pub(super) fn within(&self, (few, many): Range) -> f64 {
        let samples = self.batch() / self.size.max(1.0);
        let share = ((samples - BATCH.0) / (BATCH.1 - BATCH.0)).clamp(0.0, 1.0);
        few + (many - few) * share
    }

    /// Records a retransmission. Returns whether that is a storm.
    pub(super) fn sent_again(&mut self, bytes: u64) -> bool {
        let Some(period) = self.period.as_mut() else {
            return false;
        };
        period.again = period.again.saturating_add(bytes);
        let sent = self.sent.saturating_sub(period.delivered) as f64;
        period.again as f64 > STORM * sent + STORM_SAMPLES * self.size
    }

    /// Restarts the control period: new data must not be mixed with old.
    pub(super) fn restart(&mut self, now: Instant) {
        self.period = Some(Running {
            began: now,
            delivered: self.delivered,
            until: self.sent.max(self.delivered.saturating_add(1)),
            acknowledgements: 0,
            elements: 0,
            again: 0,
            round_trip: f64::INFINITY,
            round_trip_max: 0.0,
            idle: 0.0,
        });
    }

    /// Records an acknowledgement; returns the control period if that ended it. `quickly`: also if
    /// it is long with little data.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        quickly: bool,
    ) -> Option<Period> {
        // Samples sent before this pacer started are not its own marks.
        self.delivered = self.delivered.saturating_add(bytes).min(self.sent);
        let mut newest = None;
        while let Some(mark) = self.marks.front() {
            if mark.end > self.delivered {
                break;
            }
            newest = Some(now - mark.at);
            self.marks.pop_front();
        }
        let seen = match (delay, newest) {
            (Some(delay), Some(newest)) => Some(delay.min(newest)),
            (delay, newest) => delay.or(newest),
        };
        self.count_batch(now, bytes, elements);
        let seen = seen.map(|seen| seen.as_secs_f64());
        if let Some(seen) = seen {
            self.round_trip = Some(seen);
            if self.round_trip_min.is_none_or(|(least, _)| seen <= least) {
                self.round_trip_min = Some((seen, now));
            }
        }
        let batches = self.within(BATCHES_MIN) * self.batch_elements;
        let Some(period) = self.period.as_mut() else {
            self.restart(now);
            return None;
        };
        period.acknowledgements = period.acknowledgements.saturating_add(1);
        period.elements = period.elements.saturating_add(elements);
        if let Some(seen) = seen {
            period.round_trip = period.round_trip.min(seen);
            period.round_trip_max = period.round_trip_max.max(seen);
        }
        let took = (now - period.began).as_secs_f64();
        let enough = period.acknowledgements >= ACKNOWLEDGEMENTS_MIN
            && period.elements >= ELEMENTS_MIN
            && period.elements as f64 >= batches;
        let whole = self.delivered >= period.until
            && (enough || (quickly && took >= LONG_S))
            && period.round_trip.is_finite()
            && took > 0.0;
        // A clock that was set back restarts it.
        if now < period.began {
            self.restart(now);
            return None;
        }
        if !whole {
            return None;
        }
        let ended = *period;
        self.restart(now);
        self.batch_bytes *= BATCH_KEPT;
        self.batch_elements *= BATCH_KEPT;
        Some(Period {
            rate: (self.delivered - ended.delivered) as f64 / took,
            round_trip: ended.round_trip,
            spread: ended.round_trip_max - ended.round_trip,
            limited: ended.idle > IDLE * took,
        })
    }

    /// Forgets batches and round trips.
    pub(super) fn forget(&mut self, now: Instant) {
        self.batch_bytes = 0.0;
        self.batch_elements = 0.0;
        self.round_trip_min = None;
        self.restart(now);
    }

    /// Bytes sent since the beginning.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Acknowledgements of one instant are one.
    fn count_batch(&mut self, now: Instant, bytes: u64, elements: u64) {
        let batch = &mut self.batch;
        *batch = if batch.0 == now {
            (
                now,
                batch.1.saturating_add(bytes),
                batch.2.saturating_add(elements),
            )
        } else {
            (now, bytes, elements)
        };
        self.batch_bytes = self.batch_bytes.max(batch.1 as f64);
        self.batch_elements = self.batch_elements.max(batch.2 as f64);
    }
}
