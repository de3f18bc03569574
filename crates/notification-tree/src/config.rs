//! Configuration of a node.

use core::time::Duration;

use chappe_machine::TokenRate;

use crate::plan::{CAP, Plan};
use crate::wire::DATAGRAM_BYTES_MAX;

/// How a source divides its sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The postal optimum for the measured send cost and latency, under a fan-out cap.
    Measured {
        /// The largest number of heads that one node sends to.
        cap: u16,
    },
    /// Always this plan.
    Fixed(Plan),
}

/// How the part of a silent head is reassigned. The node that gave the part also tries the head itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// The paper's rule: the next sink of the part takes over the rest of it.
    NextSink,
    /// Chappe's rule: the node that gave the part divides it as its head would have.
    #[default]
    Divide,
}

/// The send rate of a source: a token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The long-term rate in bytes a second.
    pub rate_bytes_per_s: u64,
    /// The burst after a pause; values below 2,048 count as 2,048.
    pub burst_bytes: u64,
}

impl Pace {
    pub(crate) fn token_rate(self) -> TokenRate {
        TokenRate {
            per_s: self.rate_bytes_per_s.max(1),
            burst: self.burst_bytes.max(2_048),
        }
    }
}

/// Configuration of a node; many nodes of a process can share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How this node divides sinks as a source. Default: measured, cap 128.
    pub plan: Choice,
    /// How this node reassigns the parts of silent heads. Default: it divides them.
    pub take_over: TakeOver,
    /// Bytes of a datagram, at most 1,232 (the default).
    pub datagram_bytes: usize,
    /// Whether the list travels inside events while it fits a datagram. Default: true.
    pub inline: bool,
    /// The cost of a send until [`Command::SendCost`](crate::Command::SendCost) sets it. Default: 5 µs.
    pub send_cost: Duration,
    /// The one-way latency, handling included, until one is measured. Default: 500 µs.
    pub latency: Duration,
    /// The least margin of a timeout above the mean round trip. Default: 2 ms, which an ordinary
    /// scheduler needs; 200 µs suits a fast network with idle processors.
    pub timeout_floor: Duration,
    /// Messages of a forwarder to an unsuspected sink that does not answer. Default: 4; with 5 % loss
    /// six of a million are then left to the source.
    pub tree_attempts: u8,
    /// Messages of the source itself before it reports a sink as failed: `k`. Default: 6.
    pub source_attempts: u8,
    /// The latest time for the outcome of an event: `T`. Default: 5 s. A sink holds no range open for
    /// longer, whatever a hop requests, so a sink's value should be at least the source's.
    pub within: Duration,
    /// The send rate of this node as a source. Default: unlimited.
    pub pace: Option<Pace>,
    /// Events of a topic that are kept for repair and deduplication, at least 1. Default: 32.
    pub history: usize,
    /// The largest number of topics. Default: 1,024.
    pub topics_max: usize,
    /// The largest number of ranges of one event that this node spreads; for further ranges it
    /// answers for itself only. Default: 16.
    pub jobs_max: usize,
    /// Missed events that this node retransmits a second; one peer gets an eighth of them. Default: 1,000.
    pub repairs_per_s: u32,
    /// Whether an event is forwarded before its signature is verified, if the hop is authentic, the list
    /// is known and the sender was never caught with a forgery. Default: true.
    pub forward_first: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            plan: Choice::Measured { cap: CAP },
            take_over: TakeOver::default(),
            datagram_bytes: DATAGRAM_BYTES_MAX,
            inline: true,
            send_cost: Duration::from_micros(5),
            latency: Duration::from_micros(500),
            timeout_floor: Duration::from_millis(2),
            tree_attempts: 4,
            source_attempts: 6,
            within: Duration::from_secs(5),
            pace: None,
            history: 32,
            topics_max: 1_024,
            jobs_max: 16,
            repairs_per_s: 1_000,
            forward_first: true,
        }
    }
}
