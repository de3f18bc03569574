//! Reliable senders with their pacers, in front of a bottleneck.
//!
//! ```text
//! sender: window, pacer --+                                       +-> receiver: buffer, service
//!                         +-> queue -> bottleneck -> latency, loss+-> receiver ...
//! sender ... -------------+                                       |
//!        <---- acknowledgement of K samples, or after a delay; what is missing -----+
//! ```
//!
//! The pacers are the product's. The rest is a model of what reliable DDS does, with the traits that
//! make it collapse under flooding:
//!
//! - A sample goes through the bottleneck whole or not at all, and costs its time there either way: of
//!   a sample that does not fit into what is left of the queue, the packets that fit are sent in vain.
//! - A receiver handles samples one after the other; what finds its buffer full is dropped.
//! - It acknowledges every K samples, or after a delay, up to the first missing one. At most once in
//!   [`Acknowledging::missing_interval`] it names what is missing, within 256 samples, as RTPS does.
//! - The sender sends again all that is named missing, at once, whole, beside its pace.
//! - When nothing was acknowledged for [`Acknowledging::heartbeat`], the sender asks.
//!
//! Where it is a session between nodes that is simulated, a frame takes what waits together
//! ([`Settings::frame_samples`]), sessions share their receiver's processor
//! ([`Settings::one_processor`]), and what is stored by one commit is acknowledged after it
//! ([`Acknowledging::commit`]).
//!
//! Samples to several receivers cross the bottleneck once; what goes again goes to one. A sample's
//! *latency* is the time from its being written, when the pacer let it go (of what is offered at a rate:
//! when it was offered), to its being delivered in order. Everything follows from the seed.

mod judge;
mod world;

use std::time::Duration;

use chappe_flow::pacer::{Choice, Waits};

pub use judge::{Point, beyond_front, front};

/// Where samples go through, shared by all.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// One way, beside the time on the bottleneck.
    pub latency: Duration,
    /// Bytes that may wait; at least two samples.
    pub queue_bytes: u64,
    /// The share of samples that are lost behind it, for each receiver.
    pub loss: f64,
}

/// How a receiver handles samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// For each frame.
    pub per_frame: Duration,
    /// For each sample.
    pub per_sample: Duration,
    /// For its bytes, bytes a second.
    pub bytes_per_s: f64,
    /// The time differs from sample to sample by up to this share, evenly.
    pub jitter: f64,
    /// Bytes that may wait; at least two samples.
    pub buffer_bytes: u64,
}

/// When receivers acknowledge.
#[derive(Clone, Debug, PartialEq)]
pub struct Acknowledging {
    /// K: after so many samples.
    pub every: u64,
    /// After so long, with fewer.
    pub delay: Duration,
    /// How often at most it is said what is missing.
    pub missing_interval: Duration,
    /// What is acknowledged is stored before: a commit takes between so long and so long, and holds
    /// what was handled before it began. None: what was handled is acknowledged.
    pub commit: Option<(Duration, Duration)>,
    /// After so long without an acknowledgement the sender asks.
    pub heartbeat: Duration,
}

/// Something that changes while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A sender has so many samples a second from now on.
    Offered {
        /// Which.
        sender: usize,
        /// Samples a second.
        per_s: f64,
    },
    /// A receiver handles nothing for so long.
    Pause {
        /// Which.
        receiver: usize,
        /// How long.
        time: Duration,
    },
    /// A receiver's service takes so many times as long as at first.
    Slower {
        /// Which.
        receiver: usize,
        /// The factor.
        factor: f64,
    },
    /// A receiver no longer handles anything.
    Dead {
        /// Which.
        receiver: usize,
    },
    /// A sender goes on with another pacer; what it has sent is on the way.
    Pacer {
        /// Which.
        sender: usize,
        /// The pacer.
        choice: Choice,
    },
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where chance comes from.
    pub seed: u64,
    /// A pacer for each sender, and when it begins.
    pub senders: Vec<(Choice, Duration)>,
    /// Bytes of a sample.
    pub size_bytes: u64,
    /// The most samples that a sender may have on the way: the writer's resource limit.
    pub window: u64,
    /// Samples a second that each sender has; none: as many as may go.
    pub offered_per_s: Option<f64>,
    /// So many of them come at a time.
    pub offered_at_once: u64,
    /// The senders' timers go off at multiples of this; zero: when they are to.
    pub timer: Duration,
    /// Samples that go in one frame at most, when so many wait.
    pub frame_samples: u64,
    /// What all share.
    pub bottleneck: Bottleneck,
    /// One for each receiver; each has its own for each sender.
    pub receivers: Vec<Service>,
    /// Whether a receiver handles what comes from all senders one after the other, as a node does
    /// with its sessions.
    pub one_processor: bool,
    /// When they acknowledge.
    pub acknowledging: Acknowledging,
    /// For whom senders wait.
    pub waits: Waits,
    /// What changes, and when.
    pub changes: Vec<(Duration, Change)>,
    /// What is before this is not measured.
    pub warm_up: Duration,
    /// How long it takes in all.
    pub duration: Duration,
}

/// What one sender saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Bytes a second delivered in order, mean of the receivers.
    pub throughput_bytes_per_s: f64,
    /// Median latency, seconds; 0 when nothing was delivered.
    pub latency_p50_s: f64,
    /// 99 of 100 are below.
    pub latency_p99_s: f64,
    /// The longest.
    pub latency_max_s: f64,
    /// Samples written.
    pub sent: u64,
    /// Samples sent again.
    pub sent_again: u64,
    /// Samples that found no room in a queue or buffer.
    pub dropped: u64,
    /// Samples on the way, most.
    pub occupation_max: u64,
    /// Over time, since the beginning.
    pub moments: Vec<Moment>,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Its end, seconds.
    pub at_s: f64,
    /// Bytes a second delivered in it, mean of the receivers.
    pub throughput_bytes_per_s: f64,
    /// Median latency of what was delivered in it, seconds; 0: nothing was.
    pub latency_p50_s: f64,
    /// Samples sent again in it.
    pub sent_again: u64,
    /// Samples on the way at its end.
    pub occupation: u64,
    /// The pacer's period at its end, seconds.
    pub period_s: f64,
}

impl Settings {
    /// One sender that floods one receiver through a gigabit, as a LAN would be: 100 µs of latency, a
    /// receive buffer as operating systems set it, one acknowledgement a sample.
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

    /// Bytes a second that the slowest part of the way lets through, as it is at first.
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

    /// From writing a sample to its being delivered, with nothing before it: seconds.
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

/// Runs; one outcome for each sender.
#[must_use]
pub fn run(settings: &Settings) -> Vec<Outcome> {
    world::World::new(settings).run()
}
