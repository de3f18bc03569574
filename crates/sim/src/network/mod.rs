//! A network on a virtual clock: nodes, links and connections, from a seed, without input or output.
//!
//! [`Network`] is a queue of events and the rules by which sending creates new ones. Its caller
//! requests the [`Step`]s one by one, passes each to the node's machine, and sends the results.
//! Nothing runs on its own and nothing waits: an idle hour costs nothing.
//!
//! Two ways to send:
//! - **raw** ([`Network::send`]): a message is lost, doubled, overtaken, or dropped by a full
//!   queue, according to the direction's [`Link`];
//! - **connections** ([`Network::connect`]): as TCP behaves towards a program: in order, complete
//!   until the connection ends, with a bounded buffer ([`SendError::Full`], then
//!   [`Step::Writable`]). Lost data arrives later, a cut holds everything back until it heals or
//!   the connection times out; a node that loses its power sends nothing, and the other end stays
//!   connected.
//!
//! For each direction of each pair of nodes: latency (a distribution), rate, queue in bytes, loss,
//! doubling, reordering, cuts, flapping. For each node: its own rate, a wall clock that can be set
//! forward and back, slowness, stopping (SIGSTOP), the death of its process, the loss of its power.
//! Nodes of different groups do not reach each other, or only from a higher group down.
//!
//! Designed for a million nodes: a node costs about 64 bytes, a pair without its own settings and
//! without a rate nothing, an event 24 bytes and its payload, O(log n) each.
//!
//! [`exchange`](crate::exchange), [`study`](crate::study) and [`lookup`](crate::lookup) run on it;
//! [`tree`](crate::tree) and [`pacing`](crate::pacing) share only its [`Queue`] and explain why.
//!
//! Not modelled: packets and their sizes, congestion control, routes with shared bottlenecks other
//! than a node's own rate, the handshake's bytes, corruption (a checksum makes it a loss).
//!
//! ```
//! use chappe_sim::network::{Link, Network, Step};
//! use std::time::Duration;
//! let mut network = Network::new(7, Link { loss: 0.5, ..Link::default() });
//! let (a, b) = (network.add_node(), network.add_node());
//! for number in 0..100 {
//!     network.send(a, b, 40, number);
//! }
//! let mut arrived = 0;
//! while let Some(step) = network.next(network.now() + Duration::from_secs(1)) {
//!     assert!(matches!(step, Step::Arrived { .. }));
//!     arrived += 1;
//! }
//! assert_eq!(arrived, network.counters().arrived);
//! assert_eq!(network.counters().lost, 100 - arrived);
//! ```

mod connection;
mod link;
mod machines;
mod nodes;
mod queue;
mod session;
mod trace;

pub use connection::{CloseReason, Connection, ConnectionOptions, SendError};
pub use link::{Flapping, Latency, Link};
pub use machines::{Nodes, Wire};
pub use nodes::State;
pub use queue::Queue;
pub(crate) use session::{Frame, Line};
pub use trace::{Note, TRACE_NOTES, Trace};

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use chappe_machine::Instant;
use connection::{Connections, Half};
use link::Egress;
use nodes::{Held, NodeState};

/// Bytes of raw messages that wait at a stopped or slow node; more are dropped.
///
/// Reason: the default of operating systems for a UDP socket.
pub const RECEIVE_BUFFER_BYTES: u64 = 212_992;

/// A node, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// An event at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<P> {
    /// A raw message arrived.
    Arrived {
        /// The node.
        node: Node,
        /// The sender.
        from: Node,
        /// The message.
        payload: P,
    },
    /// A timer that the node set has passed.
    Timer {
        /// The node.
        node: Node,
        /// The key of the timer.
        key: u64,
    },
    /// Another node has connected.
    Accepted {
        /// The node.
        node: Node,
        /// The connection.
        connection: Connection,
        /// The other node.
        from: Node,
    },
    /// A connection that the node requested is open.
    Opened {
        /// The node.
        node: Node,
        /// The connection.
        connection: Connection,
    },
    /// A message arrived over a connection.
    Received {
        /// The node.
        node: Node,
        /// The connection.
        connection: Connection,
        /// The message.
        payload: P,
    },
    /// A connection whose buffer was full has room.
    Writable {
        /// The node.
        node: Node,
        /// The connection.
        connection: Connection,
    },
    /// A connection has ended.
    Closed {
        /// The node.
        node: Node,
        /// The connection.
        connection: Connection,
        /// The reason.
        reason: CloseReason,
    },
}

impl<P> Step<P> {
    /// The node of the event.
    #[must_use]
    pub fn node(&self) -> Node {
        match self {
            Step::Arrived { node, .. }
            | Step::Timer { node, .. }
            | Step::Accepted { node, .. }
            | Step::Opened { node, .. }
            | Step::Received { node, .. }
            | Step::Writable { node, .. }
            | Step::Closed { node, .. } => *node,
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps handed out.
    pub steps: u64,
    /// Raw messages sent.
    pub sent: u64,
    /// Raw messages that arrived, doubled ones twice.
    pub arrived: u64,
    /// Raw messages lost on the way.
    pub lost: u64,
    /// Raw messages doubled.
    pub doubled: u64,
    /// Raw messages held back.
    pub held_back: u64,
    /// Raw messages dropped because a queue was full.
    pub queue_full: u64,
    /// Raw messages that met a cut or another group.
    pub cut: u64,
    /// Raw messages to nodes without process or power, or with a full receive buffer.
    pub unheard: u64,
    /// Connections opened.
    pub opened: u64,
    /// Connections refused.
    pub refused: u64,
    /// Connections that were reset.
    pub reset: u64,
    /// Connections given up after silence.
    pub timed_out: u64,
    /// Messages that arrived over connections.
    pub received: u64,
    /// How often a connection had to retransmit a message.
    pub sent_again: u64,
    /// How often a connection's buffer was full.
    pub buffer_full: u64,
    /// How often a connection met a cut.
    pub stalled: u64,
}

#[derive(Debug)]
enum Event<P> {
    Arrive(Node, Node, u32, P),
    Timer(Node, u32, u64),
    Drain(Node, u32),
    Syn(Connection, u32),
    SynArrives(Connection),
    SynAnswered(Connection),
    Flight(Connection, u8),
    Retry(Connection, u8),
    Writable(Connection, u8),
    Close(Connection, u8, CloseReason),
}

#[derive(Debug)]
struct Direction {
    link: Link,
    egress: Egress,
}

/// A multiplicative hash; the keys are node numbers, so collisions are not provoked.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type ByPair<T> = HashMap<u64, T, BuildHasherDefault<Mix>>;

fn pair(from: Node, to: Node) -> u64 {
    u64::from(from.0) << 32 | u64::from(to.0)
}

/// The network; `P` is the type of messages. See the [module documentation](self).
#[derive(Debug)]
pub struct Network<P> {
    now: Instant,
    queue: Queue<Event<P>>,
    random: fastrand::Rng,
    nodes: Vec<NodeState>,
    one_way: bool,
    held: ByPair<Held<P>>,
    ready: VecDeque<Step<P>>,
    default: Link,
    lines: ByPair<Direction>,
    connections: Connections<P>,
    counters: Counters,
    /// The latest notes; the caller may add its own.
    pub trace: Trace,
}

impl<P> Network<P> {
    /// A network without nodes; pairs have the link `default` until they get their own.
    #[must_use]
    pub fn new(seed: u64, default: Link) -> Self {
        Self {
            now: Instant::ZERO,
            queue: Queue::default(),
            random: fastrand::Rng::with_seed(seed),
            nodes: Vec::new(),
            one_way: false,
            held: ByPair::default(),
            ready: VecDeque::new(),
            default,
            lines: ByPair::default(),
            connections: Connections::default(),
            counters: Counters::default(),
            trace: Trace::default(),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The number of waiting events.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.queue.len() + self.ready.len()
    }

    /// The next event at or before `until`; after `None` that is the time.
    pub fn next(&mut self, until: Instant) -> Option<Step<P>> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                if let Some(step) = self.hand_out(step) {
                    return Some(step);
                }
                continue;
            }
            if self.queue.next().is_none_or(|at| at > until) {
                self.now = self.now.max(until);
                return None;
            }
            let (at, event) = self.queue.take()?;
            self.now = self.now.max(at);
            self.happen(event);
        }
    }

    /// Sets a timer of a node; it ends with the process. Timers with one key do not replace each
    /// other.
    pub fn set_timer(&mut self, node: Node, at: Instant, key: u64) {
        let incarnation = self.state(node).incarnation;
        let event = Event::Timer(node, incarnation, key);
        self.queue.put(at.max(self.now), event);
    }

    /// Sets the link of one direction.
    pub fn set_link(&mut self, from: Node, to: Node, link: Link) {
        let egress = self
            .lines
            .get(&pair(from, to))
            .map_or(Egress::default(), |line| line.egress);
        self.lines
            .insert(pair(from, to), Direction { link, egress });
    }

    /// Changes one direction's link.
    pub fn change_link(&mut self, from: Node, to: Node, change: impl FnOnce(&mut Link)) {
        let mut link = *self.link(from, to);
        change(&mut link);
        self.set_link(from, to, link);
    }

    /// One direction's link.
    #[must_use]
    pub fn link(&self, from: Node, to: Node) -> &Link {
        self.lines
            .get(&pair(from, to))
            .map_or(&self.default, |line| &line.link)
    }

    /// Whether anything passes from one node to another now.
    #[must_use]
    pub fn open(&self, from: Node, to: Node) -> bool {
        let (from_group, to_group) = (self.state(from).group, self.state(to).group);
        let passes = from_group == to_group || self.one_way && from_group > to_group;
        passes && self.link(from, to).open(self.now)
    }

    /// Bytes that wait for the rate of one direction.
    #[must_use]
    pub fn queued(&self, from: Node, to: Node) -> u64 {
        let line = self.lines.get(&pair(from, to));
        let queued = |line: &Direction| {
            let rate = line.link.rate_bytes_per_s?;
            Some(line.egress.queued(self.now, rate))
        };
        line.and_then(queued).unwrap_or(0)
    }

    /// The time at which a message has left its sender; `None` if a queue is full. A connection
    /// waits instead (`patient`), because its buffer bounds the waiting data.
    fn leave(&mut self, from: Node, to: Node, bytes: u32, patient: bool) -> Option<Instant> {
        let mut at = self.now;
        let room = |limit: u64| if patient { u64::MAX } else { limit };
        let node = &mut self.nodes[from.0 as usize];
        if let Some(rate) = node.rate {
            at = node
                .egress
                .leave(at, bytes, rate.get(), room(node.queue_bytes))?;
        }
        if self.link(from, to).rate_bytes_per_s.is_some() {
            let link = *self.link(from, to);
            let line = self.lines.entry(pair(from, to)).or_insert(Direction {
                link,
                egress: Egress::default(),
            });
            let rate = link.rate_bytes_per_s.unwrap_or(u64::MAX);
            at = line.egress.leave(at, bytes, rate, room(link.queue_bytes))?;
        }
        Some(at)
    }

    fn happen(&mut self, event: Event<P>) {
        match event {
            Event::Arrive(from, to, bytes, payload) => self.arrive(from, to, bytes, payload),
            Event::Timer(node, incarnation, key) => {
                if self.state(node).lives(incarnation) {
                    self.offer(Step::Timer { node, key }, 0);
                }
            }
            Event::Drain(node, incarnation) => self.drain(node, incarnation),
            Event::Syn(connection, attempt) => self.syn(connection, attempt),
            Event::SynArrives(connection) => self.syn_arrives(connection),
            Event::SynAnswered(connection) => self.syn_answered(connection),
            Event::Flight(connection, half) => self.flight(connection, half),
            Event::Retry(connection, half) => self.retry(connection, half),
            Event::Writable(connection, half) => self.writable(connection, half),
            Event::Close(connection, end, reason) => self.close_arrives(connection, end, reason),
        }
    }

    fn arrive(&mut self, from: Node, to: Node, bytes: u32, payload: P) {
        if !self.open(from, to) {
            self.counters.cut += 1;
            return;
        }
        let full = |held: &Held<P>| held.bytes + u64::from(bytes) > RECEIVE_BUFFER_BYTES;
        let overflow = self.held.get(&u64::from(to.0)).is_some_and(full);
        if !self.state(to).up() || overflow {
            self.counters.unheard += 1;
            return;
        }
        self.counters.arrived += 1;
        let node = to;
        self.offer(
            Step::Arrived {
                node,
                from,
                payload,
            },
            bytes,
        );
    }

    /// Notes an event with the current time.
    pub fn note(&mut self, node: Node, what: &'static str, numbers: [u64; 3]) {
        let at = self.now;
        self.trace.note(Note {
            at,
            node,
            what,
            numbers,
        });
    }
}

impl<P: Clone> Network<P> {
    /// Sends a raw message of this size; only the network knows whether it arrives.
    pub fn send(&mut self, from: Node, to: Node, bytes: u32, payload: P) {
        if !self.state(from).up() {
            return;
        }
        self.counters.sent += 1;
        if !self.open(from, to) {
            self.counters.cut += 1;
            return;
        }
        let Some(left) = self.leave(from, to, bytes, false) else {
            self.counters.queue_full += 1;
            return;
        };
        let link = *self.link(from, to);
        if link.loss > 0.0 && self.random.f64() < link.loss {
            self.counters.lost += 1;
            return;
        }
        if link.duplicate > 0.0 && self.random.f64() < link.duplicate {
            self.counters.doubled += 1;
            let at = left + link.latency.draw(&mut self.random);
            let event = Event::Arrive(from, to, bytes, payload.clone());
            self.queue.put(at, event);
        }
        let mut at = left + link.latency.draw(&mut self.random);
        if link.reorder > 0.0 && self.random.f64() < link.reorder {
            self.counters.held_back += 1;
            at += link.reorder_by.mul_f64(self.random.f64());
        }
        self.queue.put(at, Event::Arrive(from, to, bytes, payload));
    }
}
