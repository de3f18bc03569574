//! A pacer without configuration that finds its pace from measurements.
//!
//! Like NAPA it keeps the window's occupation between two thresholds by the time between samples.
//! Unlike NAPA it measures the inputs of these thresholds while it sends, so that nothing has to be
//! configured and the pace follows the path:
//!
//! - **delivery rate**: bytes acknowledged in a control period. While samples queue on the path,
//!   it is the rate C of the slowest part; otherwise it is just the send rate.
//! - **shortest round trip**: of the last of each batch of acknowledged samples.
//! - **K**: the most elements of one acknowledgement, slowly decaying. Late acknowledgements, and
//!   those after a repair, count as batches.
//!
//! The queue on the path is C · (round trip − shortest round trip). The thresholds are low = C ·
//! shortest round trip (below it the receiver idles) and high = low + K − 1 + one sample. Above
//! `high` nothing is sent.
//!
//! Round trips also vary where nothing is queued on the path: acknowledgements may be late, cover
//! many samples, or wait for a disk. The spread of round trips within a control period, and K,
//! determine how much of an apparent queue is noise; C falls no lower than the best of three
//! control periods; and as long as more in flight raises the delivery rate, it rises, whatever
//! seems to be queued.
//!
//! | state | what it does | until |
//! |---|---|---|
//! | measuring | twice as many in flight in each control period | samples stand in flight (of many acknowledged at once: and the rate no longer grows), or for three of them it did not grow |
//! | holding | sends at [`CRUISE`] of C | now and then; or something is queued on the path |
//! | rising | sends at [`PROBE`] of C, at [`PROBE_MORE`] of it once more was delivered | a sample is queued on the path: C is the rate of delivery; or nothing was gained; or something was sent again |
//! | draining | sends less than C | nothing is queued on the path |
//!
//! A sender that takes over a collapsed window drains it first, and a sender that retransmits more
//! than can have been lost drains its own.
//!
//! Where one acknowledgement covers many samples, as after a repair on a lossy path, a larger part
//! of the measurements is noise, and the constants that depend on it differ ([`Range`]: few, many).
//!
//! Two senders that share the slowest part converge to the same rate, since each rises until one
//! sample *of its own* is queued there, and falls when more is: the larger share falls first.

mod estimate;

use core::time::Duration;

use chappe_machine::Instant;

use super::schedule::Schedule;
use super::{InFlight, PERIOD_MAX, Pace, Pacer, PacerState, PacerStatus, seconds_of, time_of};
use estimate::{Estimate, Period, Range};

/// The share of C at which it holds: the rest keeps the path's queue empty.
const CRUISE: Range = (0.97, 0.98);
/// The share of C at which it probes for more.
const PROBE: f64 = 1.25;
/// The same after a probe that raised the delivery rate.
const PROBE_MORE: f64 = 2.0;
/// Growth of the rate in a probe that counts as growth.
const GAIN: f64 = 1.1;
/// The share of C while the queue on the path drains.
const DRAIN: Range = (0.75, 0.85);
/// Control periods from one probe to the next.
const PROBE_EVERY: u32 = 16;
/// For sessions also the longest time between two probes: their control periods are long where
/// acknowledgements are late. (Other senders have long control periods after repairs, where a probe
/// loses more.)
const PROBE_AGE: Duration = Duration::from_secs(1);
/// The share of the spread of round trips that is noise; and the share when the window is full.
const NOISE: Range = (0.5, 0.7);
const NOISE_BOUND: Range = (0.125, 0.3);
/// Batches that may be in flight in addition to the path's capacity: a lower bound would keep
/// batches small.
const BATCHES: Range = (2.0, 2.3);
/// Control periods after which draining ends, whatever is queued on the path: another sender queues
/// it.
const DRAIN_PERIODS: u32 = 4;
/// After this many findings of a queue between two probes, the path is emptied.
const STANDING_MAX: u32 = 3;
/// A delivery rate below this share of C, with much in flight, is a collapse.
const COLLAPSED: f64 = 0.7;
/// Control periods after which a probe without a result ends.
const PROBE_PERIODS: u32 = 4;
/// Growth of the rate while measuring that counts as growth.
const GROWTH: f64 = 1.25;
/// Control periods without growth after which measuring ends.
const FLAT_PERIODS: u32 = 3;
/// Age after which the shortest round trip is measured again.
const ROUND_TRIP_AGE: Duration = Duration::from_secs(10);
/// Samples in flight at the start.
const FIRST_SAMPLES: f64 = 2.0;

/// The options of [`Adaptive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdaptiveConfig {
    /// Below this many bytes in flight, nothing is held back. Default 0: one sample. For sessions
    /// see [`AdaptiveConfig::of_session`].
    pub least_bytes: u64,
}

impl AdaptiveConfig {
    /// For a session with frames of `frame_bytes`: four frames are never held back. A receiver
    /// acknowledges after two of them, or after a quarter of a second: with less in flight, these
    /// delays would limit the rate and hide the path.
    #[must_use]
    pub const fn of_session(frame_bytes: u64) -> Self {
        Self {
            least_bytes: frame_bytes.saturating_mul(4),
        }
    }
}

/// The current activity.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Drains the data in flight from before the pacer started.
    Inherited,
    /// Measures: the window in bytes; the best rate so far, and the control periods since.
    Start {
        window: f64,
        best: f64,
        flat: u32,
        filled: bool,
    },
    /// Sends just below C.
    Cruise,
    /// Sends above C, for this many control periods so far.
    Probe { periods: u32, gained: bool },
    /// Sends below C, for this many control periods so far.
    Drain { periods: u32 },
    /// Waits until nearly nothing is in flight, to measure the shortest round trip again.
    Empty,
}

impl Phase {
    const START: Self = Self::Start {
        window: 0.0,
        best: 0.0,
        flat: 0,
        filled: false,
    };
}

/// The share of C at which it probes; more after a successful probe.
fn probe(gained: bool) -> f64 {
    if gained { PROBE_MORE } else { PROBE }
}

/// The pacer of sessions.
#[derive(Debug, Clone)]
pub struct Adaptive {
    config: AdaptiveConfig,
    estimate: Estimate,
    schedule: Schedule,
    phase: Phase,
    /// C, bytes a second.
    rate: f64,
    /// Consecutive findings of a queue on the path while it holds.
    standing: u32,
    /// The delivery rates of the last control periods that could show C.
    recent: [f64; 2],
    /// Control periods since the last probe, and when that started.
    since_probe: u32,
    probed_at: Instant,
    /// When the last sample was sent, and the time from then to the next.
    last: Option<(Instant, Duration)>,
    /// Whether less than `least_bytes` was in flight at the last decision.
    free: bool,
    /// Whether it held back since the last sample.
    held: bool,
    /// Since when it waits for an acknowledgement.
    waiting_since: Option<Instant>,
    limited: bool,
    /// Whether the window was full in this control period.
    bound: bool,
    occupation: u64,
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::new(AdaptiveConfig::default())
    }
}

impl Adaptive {
    /// A pacer in its initial state.
    #[must_use]
    pub fn new(config: AdaptiveConfig) -> Self {
        Self {
            config,
            estimate: Estimate::default(),
            schedule: Schedule::default(),
            phase: Phase::START,
            rate: 0.0,
            standing: 0,
            recent: [0.0; 2],
            since_probe: 0,
            probed_at: Instant::ZERO,
            last: None,
            free: false,
            held: false,
            waiting_since: None,
            limited: false,
            bound: false,
            occupation: 0,
        }
    }

    fn round_trip_min(&self) -> f64 {
        self.estimate.round_trip_min.map_or(0.0, |(least, _)| least)
    }

    /// The capacity of the path in bytes: C · the shortest round trip.
    fn low(&self) -> f64 {
        self.rate * self.round_trip_min()
    }

    /// The window in bytes at the start.
    fn first_window(&self) -> f64 {
        (FIRST_SAMPLES * self.estimate.size).max(self.config.least_bytes as f64)
    }

    /// The window in bytes.
    fn high(&self) -> f64 {
        let size = self.estimate.size;
        let batch = self.estimate.within(BATCHES) * self.estimate.batch();
        let low = self.low();
        match self.phase {
            Phase::Inherited | Phase::Empty => 0.0,
            Phase::Start { window, .. } => window.max(self.first_window()),
            Phase::Probe { gained, .. } => low * probe(gained) + batch + 2.0 * size,
            Phase::Cruise | Phase::Drain { .. } => low + batch + size,
        }
    }

    fn gain(&self) -> f64 {
        match self.phase {
            Phase::Cruise => self.estimate.within(CRUISE),
            Phase::Probe { gained, .. } => probe(gained),
            _ => self.estimate.within(DRAIN),
        }
    }

    /// The time between two samples.
    fn period_of(&self, bytes: f64) -> Duration {
        match self.phase {
            Phase::Start { .. } => Duration::ZERO,
            _ => time_of(bytes, self.rate * self.gain()),
        }
    }

    /// Waits for an acknowledgement, but not forever: it may have been lost, and the next sample
    /// requests it again.
    fn wait(&mut self, now: Instant) -> Pace {
        let since = *self.waiting_since.get_or_insert(now);
        if now < since {
            self.waiting_since = Some(now);
        }
        if now - since >= PERIOD_MAX {
            Pace::Now
        } else {
            Pace::At((since + PERIOD_MAX).min(now + PERIOD_MAX))
        }
    }

    /// The uncertainty of the queue on the path in bytes: where acknowledgements cover many samples
    /// or wait for a disk, round trips vary without a queue. When the window is full, less of the
    /// variation is noise.
    fn noise(&mut self, period: Period) -> f64 {
        let bound = core::mem::take(&mut self.bound);
        let noise = self.estimate.batch().max(period.spread * period.rate);
        let share = if bound { NOISE_BOUND } else { NOISE };
        self.estimate.within(share) * noise
    }

    fn control(&mut self, now: Instant, period: Period) {
        let size = self.estimate.size;
        let low = self.low();
        let queued_bytes = (period.round_trip - self.round_trip_min()).max(0.0) * period.rate;
        let noise = self.noise(period);
        self.limited = period.limited;
        self.since_probe = self.since_probe.saturating_add(1);
        // The value that three control periods agree on: one alone may have seen a pause.
        let [before, earlier] = self.recent;
        let shown = period.rate.max(before).max(earlier);
        let waits = !matches!(
            self.phase,
            Phase::Inherited | Phase::Empty | Phase::Start { .. }
        );
        let much = 2.0 * (low + self.estimate.batch()) + 4.0 * size;
        if waits && !period.limited && queued_bytes > much && period.rate < COLLAPSED * self.rate {
            return self.phase = Phase::Inherited;
        }
        if matches!(self.phase, Phase::Cruise | Phase::Probe { .. }) {
            self.recent = [period.rate, before];
        }
        if waits && period.limited {
            // The rate is limited by the sender, so it is less than C.
            self.rate = self.rate.max(period.rate);
            if matches!(self.phase, Phase::Cruise) {
                return;
            }
        }
        match self.phase {
            Phase::Inherited | Phase::Empty => {}
            Phase::Start {
                window,
                best,
                flat,
                filled,
            } => self.start(now, period, queued_bytes, (window, best, flat, filled)),
            Phase::Cruise => {
                let old = self.estimate.round_trip_min;
                let old = old.is_none_or(|(_, at)| now - at > ROUND_TRIP_AGE || now < at);
                let age = now - self.probed_at >= PROBE_AGE || now < self.probed_at;
                let due = age && self.config.least_bytes > 0;
                if due || self.since_probe >= PROBE_EVERY {
                    self.since_probe = 0;
                    self.probed_at = now;
                    self.standing = 0;
                    self.phase = if old {
                        Phase::Empty
                    } else {
                        Phase::Probe {
                            periods: 0,
                            gained: false,
                        }
                    };
                } else if queued_bytes > size.max(0.1 * low) + noise {
                    self.standing += 1;
                    self.rate = self.rate.min(shown);
                    self.phase = Phase::Drain { periods: 0 };
                    if self.standing > STANDING_MAX {
                        // The queue stays: the path itself has become longer.
                        self.standing = 0;
                        self.phase = Phase::Empty;
                    }
                }
            }
            Phase::Probe { periods, gained } => {
                if period.rate > self.rate * GAIN && !period.repaired {
                    // Whatever seems to be queued: the delivery rate is higher.
                    self.rate = period.rate;
                    self.phase = Phase::Probe {
                        periods: 0,
                        gained: true,
                    };
                } else if queued_bytes >= size + noise && !period.limited {
                    self.rate = shown;
                    self.phase = Phase::Drain { periods: 0 };
                } else if period.repaired || periods >= PROBE_PERIODS {
                    // The next round trips would show repairs, and the queue on the path would
                    // grow unseen until it overflows.
                    self.rate = self.rate.max(period.rate);
                    self.phase = Phase::Drain { periods: 0 };
                } else {
                    let periods = periods + 1;
                    self.phase = Phase::Probe { periods, gained };
                }
            }
            Phase::Drain { periods } => {
                let periods = periods + 1;
                self.phase = if queued_bytes < 0.5 * size + noise || periods >= DRAIN_PERIODS {
                    Phase::Cruise
                } else {
                    Phase::Drain { periods }
                };
            }
        }
    }

    fn start(
        &mut self,
        now: Instant,
        period: Period,
        queued_bytes: f64,
        (window, best, flat, filled): (f64, f64, u32, bool),
    ) {
        let size = self.estimate.size;
        if !filled {
            // The sender was limited, so there is nothing to learn.
            self.limited = true;
            return;
        }
        let grew = period.rate > best * GROWTH;
        let best = best.max(period.rate);
        let flat = if grew { 0 } else { flat + 1 };
        // The last round trip: the first samples of a burst find an empty path.
        let last = self.estimate.round_trip.unwrap_or(period.round_trip);
        let last = (last - self.round_trip_min()).max(0.0) * period.rate;
        let low = period.rate * self.round_trip_min();
        let much = 2.0 * (low + self.estimate.batch()) + 4.0 * size;
        if queued_bytes > much && period.rate < COLLAPSED * best {
            return self.phase = Phase::Inherited;
        }
        let full = last > (2.0 * size).max(0.25 * low);
        // Where one acknowledgement covers more than a third of the window, samples wait for each
        // other, or for a disk: then a round trip shows little, and the rate may grow with the
        // window.
        let batched = 3.0 * self.estimate.batch() >= window.max(self.first_window());
        let before = core::mem::replace(&mut self.recent, [period.rate, 0.0])[0];
        if (full && (!grew || !batched)) || flat >= FLAT_PERIODS {
            self.probed_at = now;
            self.since_probe = 0;
            self.rate = if full { period.rate.max(before) } else { best };
            self.phase = Phase::Drain { periods: 0 };
            self.schedule.reset(now);
            return;
        }
        // Twice the capacity of the path at this rate is enough to see whether there is more.
        let most = 2.0 * (period.rate * self.round_trip_min() + self.estimate.batch_bytes + size);
        let window = window.max(self.first_window());
        self.phase = Phase::Start {
            window: (window * 2.0).min(most).max(window),
            best,
            flat,
            filled: false,
        };
    }
}

impl Pacer for Adaptive {
    fn next(&mut self, now: Instant, in_flight: InFlight) -> Pace {
        self.occupation = in_flight.elements;
        let used = in_flight.bytes.saturating_add(in_flight.reserved_bytes);
        if self.estimate.sent_bytes() == 0 && used > 0 && self.phase != Phase::Inherited {
            self.phase = Phase::Inherited;
        }
        self.free = used < self.config.least_bytes;
        if used == 0 || self.free {
            self.waiting_since = None;
            if let Phase::Inherited = self.phase {
                self.estimate.forget(now);
                self.phase = Phase::START;
            }
            if self.free || matches!(self.phase, Phase::Start { .. }) {
                return Pace::Now;
            }
        }
        let (used, high) = (used as f64, self.high());
        let half = 0.5 * self.estimate.size;
        if used > 0.0 && used + half > high {
            // Reserved bytes exceed the bytes that will be sent, mostly.
            let bound = in_flight.bytes as f64 + half > high;
            self.held |= bound;
            match &mut self.phase {
                Phase::Start { filled, .. } => *filled |= bound,
                _ => self.bound |= bound,
            }
            return self.wait(now);
        }
        self.waiting_since = None;
        let pace = self.schedule.pace(now);
        self.held |= pace != Pace::Now;
        pace
    }

    fn sent(&mut self, now: Instant, bytes: u64, elements: u64) {
        // A sender that was not held back and sends late was idle. One that was held back and woke
        // late sends a few at once.
        if !self.held
            && let Some((at, period)) = self.last
        {
            self.estimate.idle((now - at).saturating_sub(period));
        }
        self.held = false;
        self.waiting_since = None;
        self.estimate.sent(now, bytes, elements);
        self.occupation = self.occupation.saturating_add(elements);
        let period = match self.free {
            true => Duration::ZERO,
            false => self.period_of(bytes as f64),
        };
        self.last = Some((now, period));
        self.schedule.sent(now, period);
    }

    fn sent_again(&mut self, _now: Instant, bytes: u64) {
        if self.estimate.sent_again(bytes) {
            self.phase = Phase::Inherited;
        }
    }

    fn acknowledged(
        &mut self,
        now: Instant,
        bytes: u64,
        elements: u64,
        delay: Option<Duration>,
        in_flight: InFlight,
    ) {
        self.occupation = in_flight.elements;
        self.waiting_since = None;
        let quickly = matches!(self.phase, Phase::Start { .. });
        let period = self
            .estimate
            .acknowledged(now, bytes, elements, delay, quickly);
        if let Some(period) = period {
            self.control(now, period);
        }
        let nearly_none = self.estimate.size.max(self.config.least_bytes as f64);
        if self.phase == Phase::Empty && in_flight.bytes as f64 <= nearly_none {
            // Later samples find an empty path.
            self.estimate.round_trip_min = None;
            self.estimate.restart(now);
            self.phase = Phase::Cruise;
        }
    }

    fn status(&self) -> PacerStatus {
        let per_element = self.estimate.size / self.estimate.elements.max(1.0);
        let count = |bytes: f64| (bytes / per_element.max(1.0) + 0.5) as u64;
        let state = match self.phase {
            _ if self.limited => PacerState::Idle,
            Phase::Inherited | Phase::Empty | Phase::Drain { .. } => PacerState::Draining,
            Phase::Start { .. } => PacerState::Measuring,
            Phase::Cruise => PacerState::Holding,
            Phase::Probe { .. } => PacerState::Rising,
        };
        PacerStatus {
            name: "adaptive",
            state,
            occupation: self.occupation,
            low_threshold: count(self.low()),
            high_threshold: count(self.high()),
            period: self.period_of(self.estimate.size),
            round_trip: self.estimate.round_trip.map(seconds_of),
            round_trip_min: self
                .estimate
                .round_trip_min
                .map(|(least, _)| seconds_of(least)),
            delivery_rate_bytes_per_s: (self.rate > 0.0).then_some(self.rate as u64),
            acknowledged_at_once: (self.estimate.batch_elements + 0.5) as u64,
        }
    }
}
