//! The view of a session between nodes on a network: rate, lag, retransmissions, queue.
//!
//! One origin and its subscribers, each with a session of `chappe_flow` over a connection, elements
//! at an even rate. Storing takes no time here: only the network and the session count. Connections
//! have no congestion control, so on a path with other traffic the rate will be lower.

use std::time::Duration;

use chappe_flow::{
    Channel, Grant, Level, Offer, Position, Receiver, ReceiverCommand, ReceiverConfig,
    ReceiverEvent, ReceiverReceive, Records, RecordsBuilder, Schema, Sender, SenderCommand,
    SenderConfig, SenderEvent, SenderReceive, Start, Subscription,
};
use chappe_machine::{Input, Instant};

use std::collections::VecDeque;
use std::num::NonZeroU64;

use crate::Distribution;
use crate::network::{Frame, Line, Link, Network, Node, Step};

/// Most latencies that are kept: above it every second one is dropped.
const SAMPLES_MAX: usize = 1 << 20;
/// Shortest interval between new elements.
const TICK: Duration = Duration::from_millis(1);
/// Most records passed to a sender at once.
const READ_RECORDS_MAX: u64 = 1_024;

/// The settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// The source of all randomness.
    pub seed: u64,
    /// Nodes: the origin and its subscribers.
    pub nodes: u32,
    /// Each direction between the origin and a subscriber.
    pub link: Link,
    /// Bytes a second that leave the origin, to all subscribers together.
    pub rate_bytes_per_s: Option<u64>,
    /// Elements a second of the origin's stream.
    pub elements_per_s: f64,
    /// Bytes of an element.
    pub payload_bytes: usize,
    /// How long elements are produced.
    pub duration: Duration,
}

/// The results.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StudyResult {
    /// Elements a second that were offered to each subscriber.
    pub offered_per_s: f64,
    /// Elements per second that each subscriber received meanwhile.
    pub received_per_s: f64,
    /// Bytes per second that the sessions passed to their connections, all frames included.
    pub bytes_per_s: f64,
    /// Median time from an element's creation to its receipt, in seconds.
    pub latency_p50_s: f64,
    /// 99th percentile of it.
    pub latency_p99_s: f64,
    /// The longest.
    pub latency_max_s: f64,
    /// Seconds from the last element until everything was received; `None`: never.
    pub caught_up_after_s: Option<f64>,
    /// The share of messages that the connections retransmitted.
    pub sent_again: f64,
    /// Messages that the network lost or dropped.
    pub dropped: u64,
    /// The most bytes that waited at the origin's rate.
    pub queue_bytes_max: u64,
    /// Most elements in flight to one subscriber.
    pub in_flight_max: u64,
}

struct Running<'a> {
    study: &'a Study,
    network: Network<Frame>,
    senders: Vec<Line<Sender>>,
    receivers: Vec<Line<Receiver>>,
    opened: Vec<bool>,
    /// Elements that exist.
    last: u64,
    received: Vec<u64>,
    latencies: Vec<f32>,
    seen: u64,
    sight: StudyResult,
}

const ORIGIN: Node = Node(0);
const CHANNEL: Channel = Channel(0);
const EPOCH: u64 = 1;
const ELEMENTS: u64 = 0;

/// Runs the study. `progress` receives the finished share.
pub fn study(study: &Study, progress: &mut dyn FnMut(f64)) -> StudyResult {
    Running::new(study).run(progress)
}

impl<'a> Running<'a> {
    fn new(study: &'a Study) -> Self {
        let mut network = Network::new(study.seed, study.link);
        network.trace = crate::network::Trace::new(0);
        network.add_node();
        let subscribers: Vec<Node> = (1..study.nodes.max(2))
            .map(|_| network.add_node())
            .collect();
        let rate = study.rate_bytes_per_s.and_then(NonZeroU64::new);
        network.set_node_rate(ORIGIN, rate, study.link.queue_bytes);
        let line = |network: &mut Network<Frame>, node: &Node| {
            let seed = study.seed ^ u64::from(node.0);
            let machine = Receiver::new(ReceiverConfig::default(), seed);
            Line::new(network.connect(*node, ORIGIN), machine, 1)
        };
        let receivers: Vec<_> = subscribers
            .iter()
            .map(|it| line(&mut network, it))
            .collect();
        network.set_timer(ORIGIN, Instant::ZERO + TICK, ELEMENTS);
        Self {
            study,
            senders: Vec::new(),
            opened: vec![false; receivers.len()],
            received: vec![0; receivers.len()],
            receivers,
            network,
            last: 0,
            latencies: Vec::new(),
            seen: 0,
            sight: StudyResult::default(),
        }
    }

    fn run(mut self, progress: &mut dyn FnMut(f64)) -> StudyResult {
        let end = Instant::ZERO + self.study.duration;
        let mut next = self.study.duration / 50;
        while let Some(step) = self.network.next(end) {
            self.step(step);
            if self.network.now() >= Instant::ZERO + next {
                progress(self.network.now().as_nanos() as f64 / end.as_nanos().max(1) as f64);
                next += self.study.duration / 50;
            }
        }
        let seconds = self.study.duration.as_secs_f64().max(1e-9);
        let subscribers = self.receivers.len() as f64;
        self.sight.offered_per_s = self.last as f64 / seconds;
        self.sight.received_per_s =
            self.received.iter().sum::<u64>() as f64 / subscribers / seconds;
        self.sight.bytes_per_s = self.bytes_sent() as f64 / seconds;
        // Data in flight may take ten times as long.
        let most = end + self.study.duration * 10;
        while self.received.iter().any(|received| *received < self.last) {
            match self.network.next(most) {
                Some(step) => self.step(step),
                None => break,
            }
        }
        if self.received.iter().all(|received| *received == self.last) {
            self.sight.caught_up_after_s = Some((self.network.now() - end).as_secs_f64());
        }
        self.finish()
    }

    fn bytes_sent(&self) -> u64 {
        self.senders
            .iter()
            .map(|it| it.machine.counters().bytes_sent)
            .sum()
    }

    fn finish(self) -> StudyResult {
        let latencies = Distribution::of(self.latencies);
        let at = |percent| latencies.percentile(percent);
        let (p50, p99, max) = (at(50.0), at(99.0), at(100.0));
        let counters = self.network.counters();
        let sent = (counters.received + counters.sent_again).max(1);
        StudyResult {
            latency_p50_s: p50,
            latency_p99_s: p99,
            latency_max_s: max,
            sent_again: counters.sent_again as f64 / sent as f64,
            dropped: counters.lost + counters.queue_full + counters.sent_again,
            ..self.sight
        }
    }

    fn step(&mut self, step: Step<Frame>) {
        match step {
            Step::Timer {
                node: ORIGIN,
                key: ELEMENTS,
            } => self.elements(),
            Step::Timer { node: ORIGIN, key } => {
                let index = key as usize - 1;
                if self.senders[index].is_due(&mut self.network, ORIGIN) {
                    self.sender(index, Input::Timeout);
                }
            }
            Step::Timer { node, .. } => {
                let index = node.0 as usize - 1;
                if self.receivers[index].is_due(&mut self.network, node) {
                    self.receiver(index, Input::Timeout);
                }
            }
            Step::Accepted { connection, .. } => {
                let machine = Sender::new(SenderConfig::default());
                let index = self.senders.len();
                self.senders
                    .push(Line::new(connection, machine, index as u64 + 1));
                self.sender(index, Input::Timeout);
            }
            Step::Opened { node, .. } => {
                let index = node.0 as usize - 1;
                self.opened[index] = true;
                let subscription = Subscription::new("stream", Start::First);
                let channel = CHANNEL;
                let command = ReceiverCommand::Subscribe {
                    channel,
                    subscription,
                };
                self.receiver(index, Input::Command(command));
            }
            Step::Received { node, payload, .. } => {
                if node == ORIGIN {
                    let of = |line: &Line<Sender>| line.connection == payload.connection;
                    if let Some(index) = self.senders.iter().position(of) {
                        let frame = SenderReceive::Frame(payload.bytes);
                        self.sender(index, Input::Receive(frame));
                    }
                } else {
                    let frame = ReceiverReceive::Frame(payload.bytes);
                    self.receiver(node.0 as usize - 1, Input::Receive(frame));
                }
            }
            Step::Writable { node, connection } => {
                if node == ORIGIN {
                    let line = self
                        .senders
                        .iter_mut()
                        .find(|it| it.connection == connection);
                    if let Some(line) = line {
                        line.flush(&mut self.network, node);
                    }
                } else {
                    self.receivers[node.0 as usize - 1].flush(&mut self.network, node);
                }
            }
            Step::Arrived { .. } | Step::Closed { .. } => {}
        }
    }

    fn elements(&mut self) {
        let now = self.network.now();
        if now < Instant::ZERO + self.study.duration {
            let each = Duration::from_secs_f64(1.0 / self.study.elements_per_s.max(1e-3));
            self.network
                .set_timer(ORIGIN, now + each.max(TICK), ELEMENTS);
        }
        let seconds = now.as_nanos() as f64 / 1e9;
        let last = (seconds * self.study.elements_per_s) as u64;
        if last > self.last {
            self.last = last;
            for index in 0..self.senders.len() {
                let channel = CHANNEL;
                let command = SenderCommand::Appended { channel, last };
                self.sender(index, Input::Command(command));
            }
        }
        let rate = self.study.rate_bytes_per_s;
        let queued = rate.map_or(0, |rate| self.network.node_queued(ORIGIN, rate));
        self.sight.queue_bytes_max = self.sight.queue_bytes_max.max(queued);
    }

    /// The creation time of an element.
    fn born(&self, number: u64) -> f64 {
        number as f64 / self.study.elements_per_s
    }

    fn sender(&mut self, index: usize, input: Input<SenderReceive, SenderCommand>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let line = &mut self.senders[index];
            for event in line.drive(&mut self.network, ORIGIN, input) {
                if let Some(command) = self.answer(event) {
                    inputs.push_back(Input::Command(command));
                }
            }
        }
        let channels = self.senders[index].machine.channels();
        let in_flight = channels
            .map(|(_, it)| it.in_flight_elements)
            .max()
            .unwrap_or(0);
        self.sight.in_flight_max = self.sight.in_flight_max.max(in_flight);
    }

    fn answer(&self, event: SenderEvent) -> Option<SenderCommand> {
        match event {
            SenderEvent::Subscribe { channel, .. } => {
                let grant = Grant {
                    epoch: EPOCH,
                    next: 1,
                    last: self.last,
                    level: Level::Power,
                    schema: Schema::default(),
                };
                let offer = Offer::Accept(grant);
                Some(SenderCommand::Answer { channel, offer })
            }
            SenderEvent::Read {
                channel,
                from,
                elements,
                bytes,
            } => {
                let size = Records::packed_bytes(self.study.payload_bytes) as u64;
                let most = elements.min(READ_RECORDS_MAX).min((bytes / size).max(1));
                let until = (from + most).min(self.last + 1);
                let mut records = RecordsBuilder::default();
                let payload = vec![0; self.study.payload_bytes];
                for number in from..until {
                    records.push(number as i64, &payload);
                }
                Some(SenderCommand::Records {
                    channel,
                    epoch: EPOCH,
                    first: from,
                    schema_version: 0,
                    records: records.finish(),
                })
            }
            _ => None,
        }
    }

    fn receiver(&mut self, index: usize, input: Input<ReceiverReceive, ReceiverCommand>) {
        if !self.opened[index] {
            return;
        }
        let node = Node(index as u32 + 1);
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let line = &mut self.receivers[index];
            for event in line.drive(&mut self.network, node, input) {
                if let ReceiverEvent::Store {
                    channel,
                    epoch,
                    first,
                    records,
                    ..
                } = event
                {
                    let sequence = first + records.len() as u64 - 1;
                    self.take(index, first, sequence);
                    let position = Position { epoch, sequence };
                    let command = ReceiverCommand::Stored { channel, position };
                    inputs.push_back(Input::Command(command));
                }
            }
        }
    }

    fn take(&mut self, index: usize, first: u64, last: u64) {
        self.received[index] = last;
        let now = self.network.now().as_nanos() as f64 / 1e9;
        for number in first..=last {
            self.seen += 1;
            if self.latencies.len() < SAMPLES_MAX {
                let latency = (now - self.born(number)).max(0.0);
                self.latencies.push(latency as f32);
            } else if self.seen.is_multiple_of(2) {
                let place = (self.seen / 2) as usize % SAMPLES_MAX;
                self.latencies[place] = (now - self.born(number)).max(0.0) as f32;
            }
        }
    }
}
