//! NAPA, after its paper ("NAPA: An algorithm to auto-tune unicast reliable communications over
//! DDS"): the time T between samples follows the window's occupation N.
//!
//! The paper's symbols, and their names here:
//!
//! | symbol | meaning | here |
//! |---|---|---|
//! | N | the window's occupation: samples sent and not acknowledged | [`InFlight::elements`] |
//! | T | the time between two samples | [`PacerStatus::period`] |
//! | C | the capacity of the link | [`NapaConfig::capacity_bytes_per_s`] |
//! | K | one acknowledgement for so many samples | [`NapaConfig::acknowledged_at_once`] |
//! | t_m = size/C | the time that a sample takes on the link | computed from what is sent |
//! | t_prop, t_proc, t_ack | propagation one way, processing, acknowledgement | not separated: measured together |
//! | RTT_K = t_m + 2·t_prop + t_proc + t_ack + (K−1)·t_m | from the first of K samples to their acknowledgement | measured before the communication |
//! | RTT_1 | the same for K = 1 | RTT_K − (K−1)·t_m |
//! | W = RTT_1·C/size + K − 1 | the window that fills the link | `high_threshold` |
//! | low_threshold | 1 | [`NapaConfig::low_threshold`] |
//! | gain | from 1 to 0.2 after 30 s | [`NapaConfig::gain`], [`NapaConfig::gain_later`] |
//! | stability factor | | [`NapaConfig::stability_factor`] |
//!
//! N < low_threshold shortens T, N > high_threshold lengthens it, otherwise T is unchanged. It
//! changes once per control period.
//!
//! **Our choices**, since the paper does not specify them: the change is ΔT = gain · stability
//! factor · t_m, T starts at t_m, N is read just before a sample would be sent (right after one it
//! is at least 1), and the measurement before the communication sends K samples at once, five
//! times, and takes the shortest RTT_K.

use core::time::Duration;

use chappe_machine::Instant;

use super::schedule::Schedule;
use super::{InFlight, PERIOD_MAX, Pace, Pacer, PacerState, PacerStatus, time_of};

/// How often RTT_K is measured before the communication.
const MEASUREMENTS: u32 = 5;

/// The options of NAPA.
#[derive(Debug, Clone, PartialEq)]
pub struct NapaConfig {
    /// C: the capacity of the link in bytes per second. Default: a gigabit per second, 125,000,000.
    pub capacity_bytes_per_s: f64,
    /// K: samples covered by one acknowledgement. Default 1; the paper had 10.
    pub acknowledged_at_once: u64,
    /// Below this occupation in samples T becomes shorter. Default 1.
    pub low_threshold: u64,
    /// RTT_1, if known. Default: measured.
    pub round_trip: Option<Duration>,
    /// The time between changes of T. Default: RTT_K.
    pub control_period: Option<Duration>,
    /// The gain at the start. Default 1.
    pub gain: f64,
    /// The gain later. Default 0.2.
    pub gain_later: f64,
    /// When the later gain starts. Default 30 s.
    pub gain_until: Duration,
    /// The stability factor: ΔT as a share of t_m at a gain of 1. Default 0.05.
    pub stability_factor: f64,
}

impl Default for NapaConfig {
    fn default() -> Self {
        Self {
            capacity_bytes_per_s: 125e6,
            acknowledged_at_once: 1,
            low_threshold: 1,
            round_trip: None,
            control_period: None,
            gain: 1.0,
            gain_later: 0.2,
            gain_until: Duration::from_secs(30),
            stability_factor: 0.05,
        }
    }
}

/// The measurement before the communication.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Measuring {
    left: u32,
    /// Samples of this measurement that were sent, and when the first was.
    sent: u64,
    began: Instant,
}

/// NAPA.
#[derive(Debug, Clone)]
pub struct Napa {
    config: NapaConfig,
    measuring: Option<Measuring>,
    /// RTT_K, once it is known.
    rtt_k: Option<Duration>,
    /// The time between samples in seconds; never negative.
    period: f64,
    schedule: Schedule,
    /// When the communication started, and when T changed last.
    began: Option<Instant>,
    changed_at: Instant,
    /// Smoothed bytes of a sample.
    size: f64,
    occupation: u64,
    round_trip: Option<Duration>,
    state: PacerState,
}

impl Napa {
    /// A pacer in its initial state. Invalid options are replaced by their defaults.
    #[must_use]
    pub fn new(mut config: NapaConfig) -> Self {
        let default = NapaConfig::default();
        let sound = |value: f64| value.is_finite() && value > 0.0;
        for (value, default) in [
            (
                &mut config.capacity_bytes_per_s,
                default.capacity_bytes_per_s,
            ),
            (&mut config.gain, default.gain),
            (&mut config.gain_later, default.gain_later),
            (&mut config.stability_factor, default.stability_factor),
        ] {
            if !sound(*value) {
                *value = default;
            }
        }
        config.acknowledged_at_once = config.acknowledged_at_once.max(1);
        config.low_threshold = config.low_threshold.max(1);
        let measuring = config.round_trip.is_none().then_some(Measuring {
            left: MEASUREMENTS,
            sent: 0,
            began: Instant::ZERO,
        });
        Self {
            config,
            measuring,
            rtt_k: None,
            period: 0.0,
            schedule: Schedule::default(),
            began: None,
            changed_at: Instant::ZERO,
            size: 0.0,
            occupation: 0,
            round_trip: None,
            state: PacerState::Measuring,
        }
    }

    /// t_m = size/C.
    fn t_m(&self) -> Duration {
        time_of(self.size, self.config.capacity_bytes_per_s)
    }

    /// (K−1)·t_m.
    fn batch_time(&self) -> Duration {
        let more = self.config.acknowledged_at_once - 1;
        time_of(self.size * more as f64, self.config.capacity_bytes_per_s)
    }

    /// RTT_1, as configured or from RTT_K.
    fn rtt_1(&self) -> Option<Duration> {
        let measured = self.rtt_k.map(|rtt_k| {
            // No shorter than a sample takes: one that is acknowledged sooner was sent together
            // with others.
            rtt_k.saturating_sub(self.batch_time()).max(self.t_m())
        });
        self.config.round_trip.or(measured)
    }

    /// W = RTT_1·C/size + K − 1.
    fn high_threshold(&self) -> u64 {
        let Some(rtt_1) = self.rtt_1() else { return 0 };
        let link = rtt_1.as_secs_f64() * self.config.capacity_bytes_per_s / self.size.max(1.0);
        // A float to an integer saturates; W is at least the low threshold.
        let whole = (link + 0.5) as u64;
        let window = whole.saturating_add(self.config.acknowledged_at_once - 1);
        window.max(self.config.low_threshold)
    }

    /// Changes T, once per control period.
    fn control(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let rtt_k = self.rtt_1().unwrap_or_default() + self.batch_time();
        let control_period = self.config.control_period.unwrap_or(rtt_k);
        if now - self.changed_at < control_period.min(PERIOD_MAX) && self.changed_at <= now {
            return;
        }
        self.changed_at = now;
        let gain = if now - began < self.config.gain_until {
            self.config.gain
        } else {
            self.config.gain_later
        };
        let change = gain * self.config.stability_factor * self.t_m().as_secs_f64();
        self.state = if self.occupation < self.config.low_threshold {
            self.period = (self.period - change).max(0.0);
            PacerState::Rising
        } else if self.occupation > self.high_threshold() {
            self.period = (self.period + change).min(PERIOD_MAX.as_secs_f64());
            PacerState::Falling
        } else {
            PacerState::Holding
        };
    }

    fn period(&self) -> Duration {
        super::seconds_of(self.period)
    }

    fn begin(&mut self, now: Instant) {
        self.measuring = None;
        self.period = self.t_m().as_secs_f64();
        self.schedule.reset(now);
        self.state = PacerState::Holding;
    }
}

impl Pacer for Napa {
    fn next(&mut self, now: Instant, in_flight: InFlight) -> Pace {
        self.occupation = in_flight.elements;
        if let Some(measuring) = self.measuring {
            let more = measuring.sent < self.config.acknowledged_at_once;
            return match in_flight.elements {
                0 => Pace::Now,
                _ if more => Pace::Now,
                // A reader that never acknowledges must not stop the sender for good.
                _ if now - measuring.began >= PERIOD_MAX => {
                    self.rtt_k = Some(PERIOD_MAX);
                    self.begin(now);
                    Pace::Now
                }
                _ => Pace::At((measuring.began + PERIOD_MAX).min(now + PERIOD_MAX)),
            };
        }
        let pace = self.schedule.pace(now);
        if pace == Pace::Now && self.size > 0.0 {
            self.control(now);
        }
        pace
    }

    fn sent(&mut self, now: Instant, bytes: u64, elements: u64) {
        let first = self.size == 0.0;
        let size = bytes as f64 / elements.max(1) as f64;
        self.size = if first {
            size
        } else {
            self.size * 0.9 + size * 0.1
        };
        self.occupation = self.occupation.saturating_add(elements);
        if let Some(measuring) = self.measuring.as_mut() {
            if measuring.sent == 0 {
                measuring.began = now;
            }
            measuring.sent = measuring.sent.saturating_add(elements);
            return;
        }
        if first {
            self.period = self.t_m().as_secs_f64();
            self.state = PacerState::Holding;
        }
        self.schedule.sent(now, self.period());
    }

    fn acknowledged(
        &mut self,
        now: Instant,
        _: u64,
        _: u64,
        delay: Option<Duration>,
        in_flight: InFlight,
    ) {
        self.occupation = in_flight.elements;
        self.round_trip = delay.or(self.round_trip);
        let Some(measuring) = self.measuring.as_mut() else {
            return;
        };
        if in_flight.elements > 0 || measuring.sent == 0 {
            return;
        }
        let took = now - measuring.began;
        measuring.sent = 0;
        measuring.left = measuring.left.saturating_sub(1);
        let done = measuring.left == 0;
        self.rtt_k = Some(self.rtt_k.map_or(took, |shortest| shortest.min(took)));
        if done {
            self.begin(now);
        }
    }

    fn status(&self) -> PacerStatus {
        PacerStatus {
            name: "napa",
            state: self.state,
            occupation: self.occupation,
            low_threshold: self.config.low_threshold,
            high_threshold: self.high_threshold(),
            period: self.period(),
            round_trip: self.round_trip,
            round_trip_min: self.rtt_1(),
            delivery_rate_bytes_per_s: None,
            acknowledged_at_once: self.config.acknowledged_at_once,
        }
    }
}
