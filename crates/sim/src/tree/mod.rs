//! Notification trees on a virtual clock: the product's machine on each of up to a million sinks.
//!
//! A loop of its own beside [`crate::network`], because what a tree is about is the processor: a node
//! sends one message after the other, each taking its send cost, and handles one after the other.
//! What arrives while it is busy waits in a receive buffer.
//!
//! [`Settings`] says what the network is and what goes wrong, [`run`] runs it and judges it:
//! *delivered* must be true of every sink that the source says it of, no event is delivered twice,
//! and no sink that lives and is connected may be left out. [`mixed`] draws settings from a seed.

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

/// A network of sources and sinks, and what goes wrong in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where chance comes from.
    pub seed: u64,
    /// Sinks; each takes the events of every source.
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
    /// What becomes of the parts of silent heads.
    pub take_over: TakeOver,
    /// How each source arranges its list, anew after each outcome; sinks have the new one at once.
    pub order: Order,
    /// The share of sinks that are critical.
    pub critical: f64,
    /// What a send costs a node: `o`.
    pub send_cost: Duration,
    /// The time on the way: `L`.
    pub latency: Duration,
    /// The largest time that comes on top of it, evenly.
    pub jitter: Duration,
    /// What handling a message costs a node: `r`.
    pub handling: Duration,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of sinks that are dead from the beginning.
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
    /// From when to when, since the beginning.
    pub cut: (Duration, Duration),
    /// The share of sinks that lie, in all the ways of `lies`.
    pub liars: f64,
    /// How they lie.
    pub lies: Vec<Lie>,
    /// The share of sinks that are ten times slower.
    pub slow: f64,
    /// Bytes a second of each node's port at its switch; `None`: no limit.
    pub port_rate_bytes_per_s: Option<u64>,
    /// Bytes that wait at a port; more are dropped.
    pub port_queue_bytes: u64,
    /// How fast a source may send.
    pub pace: Option<Pace>,
    /// Whose word each source waits for before its next event, which it does when the one before has left
    /// it; `None`: each event goes when it happens.
    pub pacer: Option<Pacer>,
    /// Messages that wait at a busy node; more are dropped.
    pub receive_buffer: usize,
    /// Whether events are signed, hops authenticated and receipts made; without it liars are not
    /// caught.
    pub authenticated: bool,
    /// Whether the list travels in the event while it fits.
    pub inline: bool,
    /// `k`: messages of the source itself before it calls a sink failed.
    pub attempts: u8,
    /// `T`: when the source says what it knows.
    pub within: Duration,
    /// The floor of time-outs.
    pub timeout_floor: Duration,
}

impl Settings {
    /// A local network of small devices where nothing fails: 20 µs a send, 30 µs on the way.
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

/// What a run found.
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
    /// For each event: when the source knew all there was to know.
    pub known: Vec<Duration>,
    /// Sinks that the sources said to have failed, over all events.
    pub failed: u64,
    /// Sinks of which the sources knew nothing in the end.
    pub unknown: u64,
    /// Pieces of coverage whose receipts were wrong.
    pub lies: u64,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Messages that were lost on the way.
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
    /// The worst failure of a promise, in words; empty: none.
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

/// Runs a network and judges it. `progress` is told now and then how many sinks have the event that
/// is under way.
#[must_use]
pub fn run(settings: &Settings, progress: &mut dyn FnMut(u64)) -> Report {
    world::World::new(settings).run(progress)
}
