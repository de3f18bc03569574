//! A device's side of discovery.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};
use chappe_xml::{Name, Str};

use super::{DropCounts, DropReason, Inbound, Interface, Outbound, Retransmission};

/// What a target service is, and its limits.
#[derive(Debug, Clone)]
pub struct Config {
    /// The stable address of the endpoint, `urn:uuid:…`.
    pub endpoint: Str,
    /// What it implements; a DPWS device names [`Dialect::device_type`](crate::Dialect) here.
    pub types: Vec<Name>,
    /// Where it belongs (URIs).
    pub scopes: Vec<Str>,
    /// The version of its metadata.
    pub metadata_version: u32,
    /// Rises with every start of the device (seconds since 1970 do, if the clock does).
    pub instance_id: u32,
    /// The interfaces it is announced on, each with the transport addresses that fit it.
    pub interfaces: Vec<(Interface, Vec<Str>)>,
    /// Longest random delay before a Hello and before the answer to a multicast Probe. Default
    /// 2,500 ms (DPWS 1.1, APP_MAX_DELAY); WS-Discovery 1.1 itself has 500 ms. Zero is allowed.
    pub app_max_delay: Duration,
    /// How messages to the group are repeated.
    pub multicast: Retransmission,
    /// How answers are repeated.
    pub unicast: Retransmission,
    /// Answers to one source prefix (/24 or /64): how many at once. Default 40.
    pub answers_burst: u32,
    /// Answers to one source prefix in a second, in the long run. Default 20.
    pub answers_per_s: u32,
    /// Message identifiers remembered to know repeats. Default 1,024: peers remember about 200.
    pub seen_capacity: usize,
    /// Answers that may wait. Default 1,024.
    pub queue_capacity: usize,
    /// Makes the random choices.
    pub seed: u64,
}

impl Config {
    /// The defaults for an endpoint.
    #[must_use]
    pub fn new(endpoint: impl Into<Str>, instance_id: u32, seed: u64) -> Self {
        Self {
            endpoint: endpoint.into(),
            types: Vec::new(),
            scopes: Vec::new(),
            metadata_version: 1,
            instance_id,
            interfaces: Vec::new(),
            app_max_delay: Duration::from_millis(2_500),
            multicast: Retransmission::default(),
            unicast: Retransmission::default(),
            answers_burst: 40,
            answers_per_s: 20,
            seen_capacity: 1_024,
            queue_capacity: 1_024,
            seed,
        }
    }
}

/// What the application asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Say Hello on every interface and answer from now on.
    Start,
    /// Say Bye on every interface and answer no more.
    Stop,
    /// Describe the device anew, with a Hello when it is started.
    Update {
        /// What it implements.
        types: Vec<Name>,
        /// Where it belongs.
        scopes: Vec<Str>,
        /// The version of its metadata, risen.
        metadata_version: u32,
    },
    /// The interfaces have changed; Hello on each that is new or whose addresses changed.
    SetInterfaces(Vec<(Interface, Vec<Str>)>),
}

/// What the application is told.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A Probe or Resolve is answered.
    Answered {
        /// Who asked.
        to: SocketAddr,
        /// `Probe` or `Resolve`.
        question: &'static str,
    },
    /// A message was dropped. At most one such event a second for each reason.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Who sent it.
        from: SocketAddr,
        /// What was wrong with it.
        detail: String,
        /// Messages dropped for the same reason since the last such event.
        suppressed: u64,
    },
    /// The last copy of Bye is out.
    Stopped,
}

/// The machine that announces one device and answers questions about it, in the 2009 dialect.
#[derive(Debug)]
pub struct TargetService {
    config: Config,
    outputs: VecDeque<Output<Outbound, Event>>,
    drops: DropCounts,
}

impl TargetService {
    /// A target service that waits for [`Command::Start`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            outputs: VecDeque::new(),
            drops: DropCounts::default(),
        }
    }

    /// How it was made.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What was dropped so far.
    #[must_use]
    pub fn drops(&self) -> &DropCounts {
        &self.drops
    }
}

impl Machine for TargetService {
    type Receive = Inbound;
    type Command = Command;
    type Transmit = Outbound;
    type Event = Event;

    fn handle_input(&mut self, _now: Instant, input: Input<Inbound, Command>) {
        if let Input::Receive(_) = input {
            self.drops.add(DropReason::NotStarted);
        }
    }

    fn poll_output(&mut self) -> Option<Output<Outbound, Event>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}
