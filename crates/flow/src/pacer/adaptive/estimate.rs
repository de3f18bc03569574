//! What a sender sees of the way without asking: round trips, the rate of delivery, and how many are
//! acknowledged at once.

use alloc::collections::VecDeque;
use core::time::Duration;

use chappe_machine::Instant;

/// Most samples whose time of sending is remembered. Beyond, every second one is forgotten.
const MARKS_MAX: usize = 512;
/// A control period has at least so many elements acknowledged, and so many acknowledgements.
const ELEMENTS_MIN: u64 = 6;
const ACKNOWLEDGEMENTS_MIN: u32 = 2;
/// And so many of the largest batches: the rate must not depend on how many of them it happens to see.
const BATCHES_MIN: Range = (3.0, 4.0);
/// But where so little is known that a mistake costs more than waiting, it lasts no longer, seconds.
const LONG_S: f64 = 0.2;
/// Who had nothing to send for a larger share of a control period has not shown what might be sent.
const IDLE: f64 = 0.25;
/// How much of the largest batch is forgotten with each control period.
const BATCH_KEPT: f64 = 0.9;
/// Samples acknowledged at once up to which they are few, and from which on they are many.
const BATCH: Range = (20.0, 60.0);
/// Who sends this share again of what is in flight, and so many samples more, is in a storm: what is
/// missing is asked for again before it can have come.
const STORM: f64 = 0.3;
const STORM_SAMPLES: f64 = 16.0;

/// A constant where few samples are acknowledged at once, and where many are.
pub(super) type Range = (f64, f64);

/// When a sample went.
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
    /// The most that was acknowledged at once, slowly forgotten: bytes and elements (K).
    pub(super) batch_bytes: f64,
    pub(super) batch_elements: f64,
    batch: (Instant, u64, u64),
    period: Option<Running>,
}

/// The present control period.
#[derive(Debug, Clone, Copy)]
struct Running {
    began: Instant,
    delivered: u64,
    /// It lasts until what was sent before it is acknowledged.
    until: u64,
    acknowledgements: u32,
    elements: u64,
    /// Bytes sent again.
    again: u64,
    round_trip: f64,
    round_trip_max: f64,
    /// Seconds without anything to send.
    idle: f64,
}

/// What a control period has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Period {
    /// Bytes a second between its first and its last acknowledgement.
    pub(super) rate: f64,
    /// The shortest round trip in it, seconds.
    pub(super) round_trip: f64,
    /// By how much the longest was longer, seconds.
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

    /// For so long the sender had nothing to send and might have.
    pub(super) fn idle(&mut self, time: Duration) {
        if let Some(period) = self.period.as_mut() {
            period.idle += time.as_secs_f64();
        }
    }

    /// What one acknowledgement acknowledges beyond one sample: (K − 1) · size.
    pub(super) fn batch(&self) -> f64 {
        (self.batch_bytes - self.size).max(0.0)
    }

    /// The value of a constant for as many as are acknowledged at once.
    pub(super) fn within(&self, (few, many): Range) -> f64 {
        let samples = self.batch() / self.size.max(1.0);
        let share = ((samples - BATCH.0) / (BATCH.1 - BATCH.0)).clamp(0.0, 1.0);
        few + (many - few) * share
    }

    /// So much was sent again. Says whether that is a storm.
    pub(super) fn sent_again(&mut self, bytes: u64) -> bool {
        let Some(period) = self.period.as_mut() else {
            return false;
        };
        period.again = period.again.saturating_add(bytes);
        let sent = self.sent.saturating_sub(period.delivered) as f64;
        period.again as f64 > STORM * sent + STORM_SAMPLES * self.size
    }

    /// Begins the control period anew: what comes is not to be mixed with what was.
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

    /// Something was acknowledged; gives the control period if that was its end. `quickly`: also when
    /// it is long and has seen little.
    pub(super) fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        quickly: bool,
    ) -> Option<Period> {
        // What was sent before this pacer was asked is no mark of its own.
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
        // A clock that went back begins anew.
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

    /// Forgets what was learnt of batches and round trips.
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
