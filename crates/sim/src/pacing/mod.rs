//! Reliable senders with their pacers, in front of a bottleneck.
//!
//! ```text
//! sender: window, pacer --+                                       +-> receiver: buffer, service
//!                         +-> queue -> bottleneck -> latency, loss+-> receiver ...
//! sender ... -------------+                                       |
//!        <---- acknowledgement of K samples, or after a delay; what is missing -----+
//! ```
//!
//! The pacers are the product's. The rest is a model of reliable DDS, with the traits that make it
//! collapse under flooding:
//!
//! - A sample passes the bottleneck whole or not at all, and costs its time there either way: of
//!   a sample that does not fit into the rest of the queue, the packets that fit are sent in vain.
//! - A receiver handles samples sequentially; those that find its buffer full are dropped.
//! - It acknowledges every K samples, or after a delay, up to the first missing one. At most once
//!   per [`Acknowledging::missing_interval`] it names the missing ones, within 256 samples, as RTPS
//!   does.
//! - The sender retransmits all named samples, at once, whole, outside of its pace.
//! - When nothing was acknowledged for [`Acknowledging::heartbeat`], the sender asks.
//!
//! For sessions between nodes, a frame takes all samples that wait ([`Settings::frame_samples`]),
//! sessions share their receiver's processor ([`Settings::one_processor`]), and samples stored by
//! one commit are acknowledged after it ([`Acknowledging::commit`]).
//!
//! Samples to several receivers cross the bottleneck once; retransmissions go to one. A sample's
//! *latency* is the time from its writing, when the pacer released it (for a source with a rate:
//! when it was offered), to its in-order delivery. Everything follows from the seed.

mod judge;
mod world;

use std::time::Duration;

use chappe_flow::pacer::{Choice, Waits};

pub use judge::{Point, beyond_front, front};

/// The bottleneck that all samples share.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Latency in one direction, without the time on the bottleneck.
    pub latency: Duration,
    /// Bytes that may wait; at least two samples.
    pub queue_bytes: u64,
    /// The share of samples that are lost after it, for each receiver.
    pub loss: f64,
}

/// The processing time of a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Per frame.
    pub per_frame: Duration,
    /// Per sample.
    pub per_sample: Duration,
    /// The rate for its bytes, in bytes per second.
    pub bytes_per_s: f64,
    /// The time differs from sample to sample by up to this share, evenly.
    pub jitter: f64,
    /// Bytes that may wait; at least two samples.
    pub buffer_bytes: u64,
}

/// When receivers acknowledge.
#[derive(Clone, Debug, PartialEq)]
pub struct Acknowledging {
    /// K: after this many samples.
    pub every: u64,
    /// After this delay, with fewer.
    pub delay: Duration,
    /// Shortest interval between two reports of missing samples.
    pub missing_interval: Duration,
    /// Samples are stored before they are acknowledged: a commit takes between these times, and
    /// covers the samples handled before it began. None: handled samples are acknowledged.
    pub commit: Option<(Duration, Duration)>,
    /// Time without an acknowledgement after which the sender asks.
    pub heartbeat: Duration,
}

/// A change during the run.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A sender has a new rate of samples.
    Offered {
        /// The sender.
        sender: usize,
        /// Samples a second.
        per_s: f64,
    },
    /// A receiver handles nothing for a while.
    Pause {
        /// The receiver.
        receiver: usize,
        /// The duration.
        time: Duration,
    },
    /// A receiver's service takes several times as long as initially.
    Slower {
        /// The receiver.
        receiver: usize,
        /// The factor.
        factor: f64,
    },
    /// A receiver no longer handles anything.
    Dead {
        /// The receiver.
        receiver: usize,
    },
    /// A sender continues with another pacer; its sent samples stay in flight.
    Pacer {
        /// The sender.
        sender: usize,
        /// The pacer.
        choice: Choice,
    },
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The source of all randomness.
    pub seed: u64,
    /// A pacer for each sender, and its start time.
    pub senders: Vec<(Choice, Duration)>,
    /// Bytes of a sample.
    pub size_bytes: u64,
    /// Most samples of a sender in flight: the writer's resource limit.
    pub window: u64,
    /// Samples per second that each sender has; none: as many as may be sent.
    pub offered_per_s: Option<f64>,
    /// The number of them that arrive at a time.
    pub offered_at_once: u64,
    /// The senders' timers fire at multiples of this; zero: exactly.
    pub timer: Duration,
    /// Most samples in one frame.
    pub frame_samples: u64,
    /// The shared bottleneck.
    pub bottleneck: Bottleneck,
    /// One for each receiver, which has a separate state for each sender.
    pub receivers: Vec<Service>,
    /// Whether a receiver handles the samples of all senders sequentially, as a node does with its
    /// sessions.
    pub one_processor: bool,
    /// The rules of their acknowledgements.
    pub acknowledging: Acknowledging,
    /// The receivers that limit senders.
    pub waits: Waits,
    /// Changes, with their times.
    pub changes: Vec<(Duration, Change)>,
    /// Time before the measurement starts.
    pub warm_up: Duration,
    /// Total duration.
    pub duration: Duration,
}

/// The results of one sender.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes a second delivered in order, mean of the receivers.
    pub throughput_bytes_per_s: f64,
    /// Median latency, seconds; 0 when nothing was delivered.
    pub latency_p50_s: f64,
    /// 99th percentile of the latency.
    pub latency_p99_s: f64,
    /// Longest latency.
    pub latency_max_s: f64,
    /// Samples written.
    pub sent: u64,
    /// Samples sent again.
    pub sent_again: u64,
    /// Samples that found no room in a queue or buffer.
    pub dropped: u64,
    /// Most samples in flight.
    pub occupation_max: u64,
    /// The course over time, from the start.
    pub moments: Vec<Moment>,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Its end, seconds.
    pub at_s: f64,
    /// Bytes a second delivered in it, mean of the receivers.
    pub throughput_bytes_per_s: f64,
    /// Median latency of the samples delivered in it, in seconds; 0 without any.
    pub latency_p50_s: f64,
    /// Samples sent again in it.
    pub sent_again: u64,
    /// Samples in flight at its end.
    pub occupation: u64,
    /// The pacer's period at its end, seconds.
    pub period_s: f64,
}

impl Settings {
    /// One sender that floods one receiver over a gigabit, as on a LAN: 100 µs of latency, a
    /// receive buffer of the usual default size, one acknowledgement per sample.
    #[must_use]
    pub fn new(seed: u64, choice: Choice, size_bytes: u64) -> Self {
        Self {
            seed,
            senders: vec![(choice, Duration::ZERO)],
            size_bytes,
            window: 1_024,
            offered_per_s: None,
            offered_at_once: 1,
            timer: Duration::ZERO,
            frame_samples: 1,
            bottleneck: Bottleneck {
                bytes_per_s: 125e6,
                latency: Duration::from_micros(100),
                queue_bytes: 4 << 20,
                loss: 0.0,
            },
            receivers: vec![Service {
                per_frame: Duration::ZERO,
                per_sample: Duration::from_micros(10),
                bytes_per_s: 500e6,
                jitter: 0.1,
                buffer_bytes: 4 << 20,
            }],
            one_processor: false,
            acknowledging: Acknowledging {
                every: 1,
                delay: Duration::from_millis(10),
                missing_interval: Duration::from_millis(10),
                commit: None,
                heartbeat: Duration::from_millis(100),
            },
            waits: Waits::All,
            changes: Vec::new(),
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(3),
        }
    }

    /// The initial rate of the slowest part of the path in bytes per second.
    #[must_use]
    pub fn capacity_bytes_per_s(&self) -> f64 {
        let size = self.size_bytes as f64;
        let service = self.receivers.iter().map(|one| {
            let frame = one.per_frame.as_secs_f64() / self.frame_samples.max(1) as f64;
            let time = frame + one.per_sample.as_secs_f64() + size / one.bytes_per_s;
            size / time
        });
        service.fold(self.bottleneck.bytes_per_s, f64::min)
    }

    /// From the writing of a sample to its delivery, on an empty path: seconds.
    #[must_use]
    pub fn latency_least_s(&self) -> f64 {
        let size = self.size_bytes as f64;
        let service = self
            .receivers
            .iter()
            .map(|one| (one.per_frame + one.per_sample).as_secs_f64() + size / one.bytes_per_s);
        size / self.bottleneck.bytes_per_s
            + self.bottleneck.latency.as_secs_f64()
            + service.fold(0.0, f64::max)
    }
}

/// Runs; returns one outcome for each sender.
#[must_use]
pub fn run(settings: &Settings) -> Vec<Outcome> {
    world::World::new(settings).run()
}
