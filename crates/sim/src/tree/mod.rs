//! Notification trees on a virtual clock: the product's machine on each of up to a million sinks.
//!
//! It has its own loop instead of [`crate::network`], because the processor dominates the cost of a
//! tree: a node sends one message after another, each taking its send cost, and handles one after
//! another. Messages that arrive while it is busy wait in a receive buffer.
//!
//! [`Settings`] describes the network and its faults, [`run`] runs and judges it: *delivered* must
//! be true of every sink for which the source reports it, no event is delivered twice, and no live,
//! connected sink may be left out. [`mixed`] draws settings from a seed.

mod command;
mod guard;
mod liar;
mod mixed;
mod world;

pub use liar::Lie;
pub use mixed::{Series, mixed, series};

use std::time::Duration;

use chappe_flow::pacer::Choice as Pacer;
use chappe_notification_tree::schedule::Order;
use chappe_notification_tree::{Choice, Counters, Pace, Plan, TakeOver};

/// A network of sources and sinks, and its faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// Number of sinks; each subscribes to every source.
    pub sinks: u32,
    /// Number of sources, which are separate nodes.
    pub sources: u32,
    /// Events of each source, published at the same moment by all of them.
    pub events: u32,
    /// Time between two events of a source.
    pub period: Duration,
    /// Whether each source spreads a heartbeat a period before its first event.
    pub heartbeat: bool,
    /// Bytes of an event's body.
    pub body_bytes: usize,
    /// The division of the sinks.
    pub plan: Choice,
    /// The reassignment of the parts of silent heads.
    pub take_over: TakeOver,
    /// How each source orders its list, again after each outcome; sinks receive the new one at
    /// once.
    pub order: Order,
    /// The share of sinks that are critical.
    pub critical: f64,
    /// The time of a send at a node: `o`.
    pub send_cost: Duration,
    /// The latency: `L`.
    pub latency: Duration,
    /// Maximum additional latency, uniformly distributed.
    pub jitter: Duration,
    /// The time of handling a message at a node: `r`.
    pub handling: Duration,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of sinks that are dead from the start.
    pub dead: f64,
    /// The share of dead sinks that the sources suspect beforehand.
    pub suspected: f64,
    /// The share of live sinks that the sources suspect wrongly.
    pub wrongly_suspected: f64,
    /// The share of sinks that die while an event spreads.
    pub crashing: f64,
    /// The share of sinks that are flaky: from each event of the first source to its next they are away, or not,
    /// by chance.
    pub flaky: f64,
    /// The share of sinks that do not reach the sources and the others, nor are reached, but do each other.
    pub cut_off: f64,
    /// Start and end, counted from the start of the run.
    pub cut: (Duration, Duration),
    /// The share of sinks that lie, in all the ways of `lies`.
    pub liars: f64,
    /// The lies.
    pub lies: Vec<Lie>,
    /// The share of sinks that are ten times slower.
    pub slow: f64,
    /// Bytes a second of each node's port at its switch; `None`: no limit.
    pub port_rate_bytes_per_s: Option<u64>,
    /// Bytes that wait at a port; more are dropped.
    pub port_queue_bytes: u64,
    /// The pace of a source.
    pub pace: Option<Pace>,
    /// The pacer of each source, which may delay its next event until after the previous one has
    /// left; `None`: each event is sent when it happens.
    pub pacer: Option<Pacer>,
    /// Messages that wait at a busy node; more are dropped.
    pub receive_buffer: usize,
    /// Whether events are signed, hops authenticated and receipts made; without them liars are not
    /// detected.
    pub authenticated: bool,
    /// Whether the list travels in the event while it fits.
    pub inline: bool,
    /// `k`: messages of the source itself before it reports a sink failed.
    pub attempts: u8,
    /// `T`: the time after which the source reports the outcome.
    pub within: Duration,
    /// The floor of time-outs.
    pub timeout_floor: Duration,
}

impl Settings {
    /// A local network of small devices without failures: 20 µs per send, 30 µs latency.
    #[must_use]
    pub fn new(seed: u64, sinks: u32) -> Self {
        Self {
            seed,
            sinks,
            sources: 1,
            events: 1,
            period: Duration::from_millis(100),
            heartbeat: false,
            body_bytes: 100,
            plan: Choice::Measured { cap: 128 },
            take_over: TakeOver::default(),
            order: Order::AsListed,
            critical: 0.0,
            send_cost: Duration::from_micros(20),
            latency: Duration::from_micros(30),
            jitter: Duration::ZERO,
            handling: Duration::from_micros(10),
            loss: 0.0,
            dead: 0.0,
            suspected: 0.0,
            wrongly_suspected: 0.0,
            crashing: 0.0,
            flaky: 0.0,
            cut_off: 0.0,
            cut: (Duration::ZERO, Duration::ZERO),
            liars: 0.0,
            lies: Lie::ALL.to_vec(),
            slow: 0.0,
            port_rate_bytes_per_s: None,
            port_queue_bytes: 256 * 1024,
            pace: None,
            pacer: None,
            receive_buffer: 256,
            authenticated: true,
            inline: true,
            attempts: 8,
            within: Duration::from_secs(5),
            timeout_floor: Duration::from_micros(200),
        }
    }

    /// The same with this plan, and the rule for silent heads that belongs to it: the paper's for its two
    /// halves, ours for all others.
    #[must_use]
    pub fn planned(self, plan: Choice) -> Self {
        let take_over = match plan {
            Choice::Fixed(Plan::TwoHalves) => TakeOver::NextSink,
            _ => TakeOver::Divide,
        };
        Self {
            plan,
            take_over,
            ..self
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// For each event: when each sink had it, since it happened, sorted. Dead sinks are not in it.
    pub arrivals: Vec<Vec<Duration>>,
    /// The same of critical sinks alone.
    pub critical: Vec<Vec<Duration>>,
    /// For each event: messages that made a flaky sink the head of others.
    pub flaky_heads: Vec<u64>,
    /// For each event: the time when the source knew the entire outcome.
    pub known: Vec<Duration>,
    /// Number of sinks that the sources reported failed, over all events.
    pub failed: u64,
    /// Number of sinks whose outcome the sources did not know in the end.
    pub unknown: u64,
    /// Pieces of coverage whose receipts were wrong.
    pub lies: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Messages lost on links.
    pub lost: u64,
    /// Messages dropped at ports and receive buffers.
    pub dropped: u64,
    /// Of those: at ports of the switch.
    pub port_dropped: u64,
    /// Maximum number of bytes queued at a port.
    pub port_queue_max: u64,
    /// Of all nodes together.
    pub counters: Counters,
    /// Inputs handled.
    pub steps: u64,
    /// The worst broken promise; empty: none.
    pub violations: Vec<String>,
}

impl Report {
    /// The time when the last sink had the last of the events; the longest of all events.
    #[must_use]
    pub fn completion(&self) -> Duration {
        last(&self.arrivals)
    }

    /// The time when the last critical sink had the last of the events.
    #[must_use]
    pub fn critical_completion(&self) -> Duration {
        last(&self.critical)
    }

    /// The arrival of this share of the sinks, the worst of all events.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let at = |times: &Vec<Duration>| {
            let rank = (times.len() as f64 * share).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied()
        };
        self.arrivals
            .iter()
            .filter_map(at)
            .max()
            .unwrap_or_default()
    }
}

fn last(arrivals: &[Vec<Duration>]) -> Duration {
    let last = arrivals.iter().filter_map(|times| times.last());
    last.copied().max().unwrap_or_default()
}

/// Runs a network and judges it. `progress` receives at intervals the number of sinks that have the
/// current event.
#[must_use]
pub fn run(settings: &Settings, progress: &mut dyn FnMut(u64)) -> Report {
    world::World::new(settings).run(progress)
}
