//! What a node is told once.

use core::time::Duration;

use chappe_machine::TokenRate;

use crate::plan::{CAP, Plan};
use crate::wire::DATAGRAM_BYTES_MAX;

/// How a source divides its sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The postal optimum of the send cost and latency as measured, under a fan-out cap.
    Measured {
        /// Most heads that one node sends to.
        cap: u16,
    },
    /// Always this plan.
    Fixed(Plan),
}

/// What becomes of a part whose head keeps silent. Whoever gave it tries the head by itself in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TakeOver {
    /// The paper's rule: the next sink of the part takes over what is left of it.
    NextSink,
    /// Ours: who gave the part divides it as its head would have.
    #[default]
    Divide,
}

/// How fast a source sends: a bucket that fills at a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Bytes a second in the long run.
    pub rate_bytes_per_s: u64,
    /// Bytes at once after a pause; less than 2,048 counts as 2,048.
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
    /// What this node does with parts that it gave to silent heads. Default: it divides them.
    pub take_over: TakeOver,
    /// Bytes of a datagram, at most 1,232 (the default).
    pub datagram_bytes: usize,
    /// Whether the list travels inside events while it fits a datagram. Default: yes.
    pub inline: bool,
    /// What a send costs this node until [`Command::SendCost`](crate::Command::SendCost) says it.
    /// Default: 5 µs.
    pub send_cost: Duration,
    /// The one-way latency, handling included, until it is measured. Default: 500 µs.
    pub latency: Duration,
    /// How much longer than the mean round trip an answer is waited for, at least. Default: 2 ms,
    /// which an ordinary system's scheduler needs; 200 µs on a fast network with idle processors.
    pub timeout_floor: Duration,
    /// How often a forwarder sends to a sink that does not answer, and is not suspected. Default: 4:
    /// with 5 % loss six of a million are left to the source.
    pub tree_attempts: u8,
    /// How often the source itself does, before it calls a sink failed: `k`. Default: 6.
    pub source_attempts: u8,
    /// When the source says what became of an event at the latest: `T`. Default: 5 s. A sink holds a range
    /// open for so long at most, whatever a hop says: it should not be shorter there than at the source.
    pub within: Duration,
    /// How fast this node sends as a source. Default: as fast as it can.
    pub pace: Option<Pace>,
    /// Events of a topic that are kept for repair and duplicates, from 1. Default: 32.
    pub history: usize,
    /// Topics of this node. Default: 1,024.
    pub topics_max: usize,
    /// Parts of one event that this node spreads; asked for more it answers for itself only.
    /// Default: 16.
    pub jobs_max: usize,
    /// Missed events that this node sends again, in a second; one peer has an eighth of them. Default: 1,000.
    pub repairs_per_s: u32,
    /// Whether an event is sent on before its signature is verified, where the hop is authentic, the
    /// list known and its sender never caught. Default: yes.
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
