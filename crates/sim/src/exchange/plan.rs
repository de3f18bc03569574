//! The plan of a run: nodes, links, traffic and possible faults, drawn from the seed.

use std::time::Duration;

use chappe_flow::{Credit, ReceiverConfig, SenderConfig, SessionConfig};
use chappe_log::{Commit, Options, QueueFull};

use super::Fault;
use crate::network::{Latency, Link};

/// The settings of a run; the same settings and seed give the same run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The source of all randomness.
    pub seed: u64,
    /// Simulated hours with traffic and faults; the time to recover is additional.
    pub hours: f64,
    /// The faults that may happen; each run takes some of them.
    pub faults: Vec<Fault>,
    /// How many elements each origin keeps; `None`: the seed chooses, possibly all.
    pub keep: Option<u64>,
    /// Notes kept for the trace.
    pub trace_notes: usize,
}

impl Settings {
    /// One hour with all faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            hours: 1.0,
            faults: Fault::ALL.to_vec(),
            keep: None,
            trace_notes: 0,
        }
    }
}

/// The choices of the seed.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) origins: usize,
    pub(super) subscribers: usize,
    pub(super) streams_each: usize,
    pub(super) link: Link,
    pub(super) sender: SenderConfig,
    pub(super) receiver: ReceiverConfig,
    pub(super) log: Options,
    /// The mean time between two elements of a stream.
    pub(super) every: Duration,
    /// The share of bursts instead of single elements.
    pub(super) burst: f64,
    pub(super) burst_elements: u64,
    /// The largest batch that is appended at once.
    pub(super) batch: u64,
    pub(super) payload_bytes: usize,
    /// Whether new elements are passed to the senders directly.
    pub(super) live: bool,
    /// Whether the origins' streams survive only the end of the process.
    pub(super) weak: bool,
    /// How many elements an origin keeps; `None`: all.
    pub(super) keep: Option<u64>,
    pub(super) faults: Vec<Fault>,
    /// Whether origins derive records from their streams.
    pub(super) derives: bool,
    /// The mean time between two faults.
    pub(super) fault_every: Duration,
    /// Duration of a commit.
    pub(super) disk: (Duration, Duration),
    /// The mean time between two looks for damage.
    pub(super) repair_every: Duration,
}

/// The largest element of any run.
pub(super) const PAYLOAD_BYTES_MAX: usize = 3_000;

fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}

impl Plan {
    pub(super) fn draw(settings: &Settings, random: &mut fastrand::Rng) -> Self {
        let mut faults = settings.faults.clone();
        random.shuffle(&mut faults);
        faults.truncate(1 + random.usize(..6));
        let millis = Duration::from_millis;
        let floor = pick(random, &[0, 1, 10, 60, 250]);
        let link = Link {
            latency: Latency::Tail(millis(floor), millis(1 + floor / 4)),
            rate_bytes_per_s: pick(random, &[None, None, Some(20_000), Some(1_000_000)]),
            queue_bytes: pick(random, &[16_384, 262_144]),
            loss: pick(random, &[0.0, 0.0, 0.001, 0.02]),
            ..Link::default()
        };
        let keep_alive = Duration::from_secs(pick(random, &[5, 15, 30, 60]));
        let frame_bytes = pick(random, &[4_096, 65_536]);
        let session = SessionConfig {
            keep_alive,
            dead_after: keep_alive * 4,
            frame_bytes,
            ..SessionConfig::default()
        };
        let sender = SenderConfig {
            session: session.clone(),
            linger: pick(random, &[Duration::ZERO, Duration::ZERO, millis(100)]),
            live_lag: pick(random, &[5, 100, 1_000]),
            catch_up_bytes: pick(random, &[8_192, 524_288]),
            ..SenderConfig::default()
        };
        let receiver = ReceiverConfig {
            session,
            credit: pick(
                random,
                &[
                    Credit::default(),
                    Credit {
                        bytes: 8_192,
                        elements: 64,
                    },
                    Credit {
                        bytes: 65_536,
                        elements: 4,
                    },
                ],
            ),
            acknowledge_elements: pick(random, &[1, 16, 1_024]),
            acknowledge_delay: pick(random, &[millis(5), millis(50), millis(1_000)]),
            ..ReceiverConfig::default()
        };
        // A frame of records, and what a subscriber adds to each.
        let batch_bytes = match frame_bytes {
            4_096 => 16 * 1024,
            _ => 128 * 1024,
        };
        let log = Options {
            segment_bytes: pick(random, &[4_096, 8_192, 65_536]),
            batch_bytes,
            queue_bytes: 2 * batch_bytes,
            queue_full: QueueFull::Refuse,
            reserve_bytes: 512,
            full_polls: 3,
            commit: Commit::Caller,
            ..Options::default()
        };
        let often = faults.contains(&Fault::BitRot);
        let repair_every = pick(
            random,
            if often {
                &[60, 300, 900]
            } else {
                &[900, 1_800, 3_600]
            },
        );
        let repair_every = Duration::from_secs(repair_every);
        let payload_bytes = pick(random, &[16, 60, 60, 400, 400, PAYLOAD_BYTES_MAX]);
        let large = payload_bytes == PAYLOAD_BYTES_MAX;
        Self {
            origins: 1 + random.usize(..3),
            subscribers: 1 + random.usize(..3),
            streams_each: 1 + random.usize(..2),
            link,
            sender,
            receiver,
            log,
            every: Duration::from_secs(if large {
                120
            } else {
                pick(random, &[10, 20, 60, 120])
            }),
            burst: pick(random, &[0.0, 0.01, 0.05]),
            burst_elements: if large {
                20
            } else {
                pick(random, &[20, 100, 400])
            },
            batch: pick(random, &[1, 1, 4]),
            payload_bytes,
            live: random.bool(),
            weak: random.f64() < 0.15,
            // Drawn in any case: the rest of the plan must not change.
            keep: settings
                .keep
                .or(pick(random, &[None, None, None, Some(20), Some(200)])),
            derives: faults.contains(&Fault::PowerLoss) || faults.contains(&Fault::TornWrite),
            faults,
            fault_every: Duration::from_secs(pick(random, &[60, 300, 600, 1_200])),
            disk: pick(
                random,
                &[
                    (Duration::from_micros(200), millis(4)),
                    (millis(5), millis(40)),
                ],
            ),
            repair_every,
        }
    }
}
