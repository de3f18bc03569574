//! Notification trees on a virtual clock: the product's machine on each of up to a million sinks.
//!
//! An event loop separate from [`crate::network`], because the subject of a tree is the processor:
//! a node sends one message after the other, each taking its send cost, and handles one after the
//! other. Messages that arrive while it is busy wait in a receive buffer.
//!
//! [`Settings`] describe the network and its faults, [`run`] runs it and judges it: *delivered*
//! must be true of every sink for which the source reports it, no event is delivered twice, and no
//! live, connected sink may be left out. [`mixed`] draws settings from a seed.

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
    /// The source of all randomness.
    pub seed: u64,
    /// Sinks; each subscribes to every source.
    pub sinks: u32,
    /// Sources, nodes of their own.
    pub sources: u32,
    /// Events of each source, published at the same moment by all of them.
    pub events: u32,
    /// Time between two events of a source.
    pub period: Duration,
    /// Whether each source spreads a heartbeat a period before its first event.
    pub heartbeat: bool,
    /// Bytes of an event's body.
    pub body_bytes: usize,
    /// How sinks are divided.
    pub plan: Choice,
    /// The rule for the parts of silent heads.
    pub take_over: TakeOver,
    /// The order of each source's list, updated after each outcome; sinks receive the new list at
    /// once.
    pub order: Order,
    /// The share of sinks that are critical.
    pub critical: f64,
    /// The send cost of a node: `o`.
    pub send_cost: Duration,
    /// The latency: `L`.
    pub latency: Duration,
    /// The largest jitter in addition, evenly distributed.
    pub jitter: Duration,
    /// A node's cost of handling a message: `r`.
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
    /// The share of flaky sinks: from each event of the first source to its next they are away, or
    /// not, at random.
    pub flaky: f64,
    /// The share of sinks that are cut off: they reach each other, but neither the sources nor the
    /// other sinks.
    pub cut_off: f64,
    /// The start and end of the cut, from the start of the run.
    pub cut: (Duration, Duration),
    /// The share of sinks that lie, by all the kinds of `lies`.
    pub liars: f64,
    /// The kinds of lies.
    pub lies: Vec<Lie>,
    /// The share of sinks that are ten times slower.
    pub slow: f64,
    /// Bytes a second of each node's port at its switch; `None`: no limit.
    pub port_rate_bytes_per_s: Option<u64>,
    /// Bytes that wait at a port; more are dropped.
    pub port_queue_bytes: u64,
    /// The rate limit of a source.
    pub pace: Option<Pace>,
    /// The pacer whose decision each source awaits before its next event, which it sends when the
    /// previous one has left it; `None`: each event is sent when it happens.
    pub pacer: Option<Pacer>,
    /// Messages that wait at a busy node; more are dropped.
    pub receive_buffer: usize,
    /// Whether events are signed, hops authenticated and receipts made; without them liars are not
    /// caught.
    pub authenticated: bool,
    /// Whether the list travels in the event while it fits.
    pub inline: bool,
    /// `k`: messages of the source itself before it reports a sink as failed.
    pub attempts: u8,
    /// `T`: when the source reports its result.
    pub within: Duration,
    /// The floor of time-outs.
    pub timeout_floor: Duration,
}

impl Settings {
    /// A local network of small devices without faults: 20 µs per send, 30 µs latency.
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

    /// The same with this plan, and its rule for silent heads: the paper's for its two halves, ours
    /// for all others.
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
    /// For each event: the sorted times from the event until each sink had it, without dead sinks.
    pub arrivals: Vec<Vec<Duration>>,
    /// The same for critical sinks only.
    pub critical: Vec<Vec<Duration>>,
    /// For each event: messages that made a flaky sink the head of others.
    pub flaky_heads: Vec<u64>,
    /// For each event: when the source had its full result.
    pub known: Vec<Duration>,
    /// Sinks that the sources reported as failed, over all events.
    pub failed: u64,
    /// Sinks without a result at the end.
    pub unknown: u64,
    /// Pieces of coverage whose receipts were wrong.
    pub lies: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Messages lost in flight.
    pub lost: u64,
    /// Messages dropped at ports and receive buffers.
    pub dropped: u64,
    /// Of those: at ports of the switch.
    pub port_dropped: u64,
    /// The most bytes that waited at a port.
    pub port_queue_max: u64,
    /// Of all nodes together.
    pub counters: Counters,
    /// Inputs handled.
    pub steps: u64,
    /// The worst broken promises, in words; empty: none.
    pub violations: Vec<String>,
}

impl Report {
    /// When the last sink had the last of the events; the longest of all events.
    #[must_use]
    pub fn completion(&self) -> Duration {
        last(&self.arrivals)
    }

    /// When the last critical sink had the last of the events.
    #[must_use]
    pub fn critical_completion(&self) -> Duration {
        last(&self.critical)
    }

    /// The arrival at this share of the sinks, the worst of all events.
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

/// Runs a network and judges it. `progress` receives now and then the number of sinks that have the
/// current event.
#[must_use]
pub fn run(settings: &Settings, progress: &mut dyn FnMut(u64)) -> Report {
    world::World::new(settings).run(progress)
}
