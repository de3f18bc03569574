//! Estimates of the path from a sender's own traffic: round trips, delivery rate, and how many
//! elements one acknowledgement covers.

use alloc::collections::VecDeque;
use core::time::Duration;

use chappe_machine::Instant;

/// Most samples whose send time is remembered. Above it, every second one is dropped.
const MARKS_MAX: usize = 512;
/// A control period covers at least this many acknowledged elements, and as many acknowledgements.
const ELEMENTS_MIN: u64 = 6;
const ACKNOWLEDGEMENTS_MIN: u32 = 2;
/// It also covers this many of the largest batches: the rate must not depend on how many of them
/// fall into it.
const BATCHES_MIN: Range = (3.0, 4.0);
/// Where so little is known that a mistake costs more than waiting, a control period lasts at most
/// this long, in seconds.
const LONG_S: f64 = 0.2;
/// A sender that was idle for a larger share of a control period has not shown what could be sent.
const IDLE: f64 = 0.25;
/// The share of the largest batch that is kept with each control period.
const BATCH_KEPT: f64 = 0.9;
/// Samples per acknowledgement that count as few, and as many.
const BATCH: Range = (20.0, 60.0);
/// A sender that retransmits this share of the samples in flight, and a few more, is in a storm:
/// missing samples are requested again before they can have arrived.
const STORM: f64 = 0.3;
const STORM_SAMPLES: f64 = 16.0;

/// The value of a constant where few samples share an acknowledgement, and where many do.
pub(super) type Range = (f64, f64);

/// The send time of a sample.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Bytes sent up to its end.
    end: u64,
    at: Instant,
}

/// The estimates.
#[derive(Debug, Clone, Default)]
pub(super) struct Estimate {
    /// Bytes since the start.
    sent: u64,
    delivered: u64,
    marks: VecDeque<Mark>,
    /// Smoothed bytes of a sample or frame.
    pub(super) size: f64,
    /// Smoothed elements of a sample or frame: 1 in DDS.
    pub(super) elements: f64,
    /// The shortest round trip in seconds, and when it was measured.
    pub(super) round_trip_min: Option<(f64, Instant)>,
    /// The last round trip in seconds.
    pub(super) round_trip: Option<f64>,
    /// The largest batch of one acknowledgement, slowly decaying: bytes and elements (K).
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
    /// It lasts until everything sent before this point is acknowledged.
    until: u64,
    acknowledgements: u32,
    elements: u64,
    /// Bytes sent again.
    again: u64,
    round_trip: f64,
    round_trip_max: f64,
    /// Idle seconds.
    idle: f64,
}

/// The result of a control period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Period {
    /// Bytes per second between its first and its last acknowledgement.
    pub(super) rate: f64,
    /// Its shortest round trip in seconds.
    pub(super) round_trip: f64,
    /// The difference to its longest round trip, in seconds.
    pub(super) spread: f64,
    /// Whether the sender had less to send than it could.
    pub(super) limited: bool,
    /// Whether something was sent again.
    pub(super) repaired: bool,
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

    /// Adds time in which the sender could have sent and had nothing to send.
    pub(super) fn idle(&mut self, time: Duration) {
        if let Some(period) = self.period.as_mut() {
            period.idle += time.as_secs_f64();
        }
    }

    /// The bytes that one acknowledgement covers beyond one sample: (K − 1) · size.
    pub(super) fn batch(&self) -> f64 {
        (self.batch_bytes - self.size).max(0.0)
    }

    /// The value of a constant for the current batch size.
    pub(super) fn within(&self, (few, many): Range) -> f64 {
        let samples = self.batch() / self.size.max(1.0);
        let share = ((samples - BATCH.0) / (BATCH.1 - BATCH.0)).clamp(0.0, 1.0);
        few + (many - few) * share
    }

    /// Adds bytes that were sent again; returns whether that is a storm.
    pub(super) fn sent_again(&mut self, bytes: u64) -> bool {
        let Some(period) = self.period.as_mut() else {
            return false;
        };
        period.again = period.again.saturating_add(bytes);
        let sent = self.sent.saturating_sub(period.delivered) as f64;
        period.again as f64 > STORM * sent + STORM_SAMPLES * self.size
    }

    /// Restarts the control period, so that earlier and later measurements do not mix.
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

    /// Handles an acknowledgement; returns the control period if this was its end. `quickly`: even
    /// if it is long and has covered little.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        quickly: bool,
    ) -> Option<Period> {
        // Bytes sent before this pacer existed have no mark.
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
        // If the clock went back, restart.
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
            repaired: ended.again > 0,
        })
    }

    /// Forgets the estimates of batches and round trips.
    pub(super) fn forget(&mut self, now: Instant) {
        self.batch_bytes = 0.0;
        self.batch_elements = 0.0;
        self.round_trip_min = None;
        self.restart(now);
    }

    /// Bytes sent since the start.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Acknowledgements at the same instant count as one.
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
