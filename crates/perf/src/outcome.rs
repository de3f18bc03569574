//! The measurements, as rows: intervals during the run, phases at the end.

use serde::Serialize;

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Times {
    /// Number of samples.
    pub count: u64,
    /// The shortest, microseconds.
    pub min_us: f64,
    /// The mean, microseconds.
    pub mean_us: f64,
    /// The median, microseconds; like the others to within 1/64.
    pub p50_us: f64,
    /// 90 % are not above it, microseconds.
    pub p90_us: f64,
    /// 99 % are not above it, microseconds.
    pub p99_us: f64,
    /// 99.9 % are not above it, microseconds.
    pub p999_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
}

/// The method by which latency is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Both ends read the monotonic clock of one machine.
    OneClock,
    /// Half of the time until a sample was back, by the publisher's clock.
    RoundTripHalved,
}

/// The publisher's measurements in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublisherInterval {
    /// End of the interval since the start of the run.
    pub at_s: f64,
    /// The phase, from 0.
    pub phase: usize,
    /// Bytes of a sample.
    pub size_bytes: usize,
    /// The pacer.
    pub pacer: String,
    /// Not measured.
    pub warm_up: bool,
    /// Samples written.
    pub sent: u64,
    /// Samples acknowledged by all.
    pub acknowledged: u64,
    /// Samples written a second.
    pub rate_per_s: f64,
    /// Bytes of samples written a second.
    pub bytes_per_s: f64,
    /// Mean number of samples in flight just before one is written. None without acknowledgements.
    pub occupation_mean: Option<f64>,
    /// Their maximum.
    pub occupation_max: Option<u64>,
    /// Mean time between samples, microseconds.
    pub period_us: Option<f64>,
    /// The pacer's current time between samples, in microseconds.
    pub pacer_period_us: Option<f64>,
    /// The pacer's current state, in its own term.
    pub pacer_state: String,
    /// Share of the time that the window was full and nothing could be written.
    pub blocked_share: f64,
    /// Samples dropped at this end.
    pub dropped: Option<u64>,
    /// Median of half the round trip, microseconds, with `--echo`.
    pub latency_p50_us: Option<f64>,
    /// 99th percentile, in microseconds.
    pub latency_p99_us: Option<f64>,
    /// Percent of one processor.
    pub cpu_percent: f64,
    /// Resident bytes.
    pub resident_bytes: u64,
}

impl PublisherInterval {
    /// The columns of a table of intervals.
    pub const COLUMNS: [&'static str; 20] = [
        "at_s",
        "phase",
        "size_bytes",
        "pacer",
        "warm_up",
        "sent",
        "acknowledged",
        "rate_per_s",
        "bytes_per_s",
        "occupation_mean",
        "occupation_max",
        "period_us",
        "pacer_period_us",
        "pacer_state",
        "blocked_share",
        "dropped",
        "latency_p50_us",
        "latency_p99_us",
        "cpu_percent",
        "resident_bytes",
    ];
}

/// The publisher's measurements in a phase, without its warm-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PublisherPhase {
    /// The phase, from 0.
    pub phase: usize,
    /// Bytes of a sample.
    pub size_bytes: usize,
    /// The pacer.
    pub pacer: String,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Samples written.
    pub sent: u64,
    /// Samples acknowledged by all.
    pub acknowledged: u64,
    /// Samples written a second.
    pub rate_per_s: f64,
    /// Bytes of samples written a second.
    pub bytes_per_s: f64,
    /// Mean number of samples in flight just before one is written.
    pub occupation_mean: Option<f64>,
    /// Their maximum.
    pub occupation_max: Option<u64>,
    /// Mean time between samples, microseconds.
    pub period_us: Option<f64>,
    /// Lateness of samples that had a scheduled time.
    pub late: Option<Times>,
    /// At the end: the pacer sends faster below this number of samples in flight; 0: it has no such bound.
    pub low_threshold: u64,
    /// At the end: the pacer sends slower or waits above this number of samples in flight, W of NAPA; 0: it has no
    /// such bound.
    pub high_threshold: u64,
    /// Share of the time that the window was full and nothing could be written.
    pub blocked_share: f64,
    /// Samples dropped at this end.
    pub dropped: Option<u64>,
    /// Time from the end of the phase until everything was acknowledged, in seconds.
    pub drain_s: Option<f64>,
    /// Half the round trip, with `--echo`.
    pub latency: Option<Times>,
    /// Percent of one processor.
    pub cpu_percent: f64,
}

/// A subscriber's measurements in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubscriberInterval {
    /// End of the interval since the first sample.
    pub at_s: f64,
    /// The phase, from 0.
    pub phase: usize,
    /// Bytes of a sample.
    pub size_bytes: usize,
    /// Not measured.
    pub warm_up: bool,
    /// Samples taken.
    pub received: u64,
    /// Samples a second.
    pub rate_per_s: f64,
    /// Bytes of samples a second.
    pub bytes_per_s: f64,
    /// Numbers missed.
    pub lost: u64,
    /// Samples received repeatedly.
    pub repeated: u64,
    /// Median of the latency, microseconds.
    pub latency_p50_us: Option<f64>,
    /// 90th percentile, in microseconds.
    pub latency_p90_us: Option<f64>,
    /// 99th percentile, in microseconds.
    pub latency_p99_us: Option<f64>,
    /// The longest, microseconds.
    pub latency_max_us: Option<f64>,
    /// Percent of one processor.
    pub cpu_percent: f64,
    /// Resident bytes.
    pub resident_bytes: u64,
}

impl SubscriberInterval {
    /// The columns of a table of intervals.
    pub const COLUMNS: [&'static str; 15] = [
        "at_s",
        "phase",
        "size_bytes",
        "warm_up",
        "received",
        "rate_per_s",
        "bytes_per_s",
        "lost",
        "repeated",
        "latency_p50_us",
        "latency_p90_us",
        "latency_p99_us",
        "latency_max_us",
        "cpu_percent",
        "resident_bytes",
    ];
}

/// A subscriber's measurements in a phase, without its warm-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SubscriberPhase {
    /// The phase, from 0.
    pub phase: usize,
    /// Bytes of a sample.
    pub size_bytes: usize,
    /// Time from writing the first measured sample (on two machines: from its arrival) to taking
    /// the last, in seconds.
    pub seconds: f64,
    /// Samples taken.
    pub received: u64,
    /// Samples a second in that time.
    pub rate_per_s: f64,
    /// Bytes of samples a second.
    pub bytes_per_s: f64,
    /// Numbers missed.
    pub lost: u64,
    /// Samples received repeatedly.
    pub repeated: u64,
    /// From writing to taking, on one machine.
    pub latency: Option<Times>,
    /// Percent of one processor.
    pub cpu_percent: f64,
}

/// An event during the run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The publisher can be reached.
    Listening {
        /// The address or domain.
        endpoint: String,
        /// The public key that subscribers need, in Z85.
        server_key: Option<String>,
    },
    /// Waiting for subscribers, or for the first sample.
    Waiting {
        /// The awaited event.
        what: String,
    },
    /// A warning about the machine, or about a remote end that does not match.
    Warning {
        /// The warning.
        text: String,
        /// The remedy.
        hint: String,
    },
    /// The publisher starts.
    Begun {
        /// Subscribers.
        subscribers: usize,
        /// Phases.
        phases: usize,
    },
    /// An interval of the publisher.
    #[serde(rename = "interval")]
    Published(PublisherInterval),
    /// An interval of a subscriber.
    #[serde(rename = "interval")]
    Subscribed(SubscriberInterval),
}

/// A condition, and whether it is met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Criterion {
    /// The option that sets it.
    pub name: &'static str,
    /// In which phase; nothing: in all together.
    pub phase: Option<usize>,
    /// The measured value; None, which misses the criterion, if nothing could be measured.
    pub measured: Option<f64>,
    /// The limit.
    pub bound: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// Whether it is met.
    pub met: bool,
}

/// The final report of a publisher.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Published {
    /// Each phase.
    pub phases: Vec<PublisherPhase>,
    /// The method by which latency is measured, if any.
    pub latency_by: Option<Method>,
    /// Resident memory at the end in bytes.
    pub resident_bytes: u64,
    /// The criteria.
    pub criteria: Vec<Criterion>,
}

/// The final report of a subscriber.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Subscribed {
    /// Each phase that was seen.
    pub phases: Vec<SubscriberPhase>,
    /// The method by which latency is measured; none on two machines: see the publisher's `--echo`.
    pub latency_by: Option<Method>,
    /// Samples taken, including warm-up.
    pub received: u64,
    /// Numbers missed, warm-up included.
    pub lost: u64,
    /// Samples received repeatedly, including warm-up.
    pub repeated: u64,
    /// Received messages that are not samples of this run.
    pub foreign: u64,
    /// Whether the publisher's last sample arrived.
    pub complete: bool,
    /// Resident memory at the end in bytes.
    pub resident_bytes: u64,
    /// The criteria.
    pub criteria: Vec<Criterion>,
}
