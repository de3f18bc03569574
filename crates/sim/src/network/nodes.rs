//! Faults of nodes: the death of a process, the loss of power, stopping, slowness, and wall clocks
//! that jump.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

use chappe_machine::Instant;

use super::{Egress, Event, Half, Network, Node, Step};

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its process runs.
    Up,
    /// Its process is dead; the host refuses connections.
    Killed,
    /// Its host is without power: nothing answers.
    Off,
}

#[derive(Clone, Debug)]
pub(super) struct NodeState {
    pub(super) state: State,
    /// Steps go through `held`.
    pub(super) holds: bool,
    pub(super) group: u16,
    /// Incremented when the process ends: its timers and connections are void.
    pub(super) incarnation: u32,
    pub(super) egress: Egress,
    pub(super) rate: Option<NonZeroU64>,
    pub(super) queue_bytes: u64,
    pub(super) clock_offset_ns: i64,
}

impl NodeState {
    pub(super) fn up(&self) -> bool {
        self.state == State::Up
    }

    pub(super) fn lives(&self, incarnation: u32) -> bool {
        self.up() && self.incarnation == incarnation
    }
}

/// Steps that wait for a stopped or slow node.
#[derive(Debug)]
pub(super) struct Held<P> {
    steps: VecDeque<(Step<P>, u32)>,
    /// Bytes of raw messages among them.
    pub(super) bytes: u64,
    still: bool,
    cost: Duration,
    busy_until: Instant,
    drains: bool,
}

impl<P> Network<P> {
    /// A new node, running.
    ///
    /// # Panics
    /// If there are four thousand million nodes.
    pub fn add_node(&mut self) -> Node {
        let node = Node(u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes"));
        self.nodes.push(NodeState {
            state: State::Up,
            holds: false,
            group: 0,
            incarnation: 0,
            egress: Egress::default(),
            rate: None,
            queue_bytes: u64::MAX,
            clock_offset_ns: 0,
        });
        node
    }

    /// The number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn state(&self, node: Node) -> &NodeState {
        &self.nodes[node.0 as usize]
    }

    fn state_mut(&mut self, node: Node) -> &mut NodeState {
        &mut self.nodes[node.0 as usize]
    }

    /// The state of a node.
    #[must_use]
    pub fn node_state(&self, node: Node) -> State {
        self.state(node).state
    }

    /// Limits the rate of a node over all its links together.
    pub fn set_node_rate(&mut self, node: Node, bytes_per_s: Option<NonZeroU64>, queue_bytes: u64) {
        let state = self.state_mut(node);
        state.rate = bytes_per_s;
        state.queue_bytes = queue_bytes;
    }

    /// Bytes that wait for a node's own rate.
    #[must_use]
    pub fn node_queued(&self, node: Node, rate_bytes_per_s: u64) -> u64 {
        let state = self.state(node);
        state.egress.queued(self.now, rate_bytes_per_s)
    }

    /// Puts a node into a group; only nodes of one group reach each other. Initially all are in 0.
    pub fn set_group(&mut self, node: Node, group: u16) {
        self.state_mut(node).group = group;
    }

    /// Whether messages from a higher group arrive at lower ones: a partition of one direction.
    /// Initially they do not.
    pub fn set_one_way(&mut self, one_way: bool) {
        self.one_way = one_way;
    }

    /// Cuts one direction, or heals it.
    pub fn cut(&mut self, from: Node, to: Node, cut: bool) {
        self.change_link(from, to, |link| link.cut = cut);
    }

    /// A node's wall clock, in nanoseconds since the run's origin; saturates.
    #[must_use]
    pub fn wall_clock_ns(&self, node: Node) -> i64 {
        let now = i64::try_from(self.now.as_nanos()).unwrap_or(i64::MAX);
        now.saturating_add(self.state(node).clock_offset_ns)
    }

    /// Sets a node's wall clock forward or back.
    pub fn step_clock(&mut self, node: Node, by_ns: i64) {
        let state = self.state_mut(node);
        state.clock_offset_ns = state.clock_offset_ns.saturating_add(by_ns);
    }

    /// The process of a node dies (SIGKILL). Its host ends its connections, regularly or by a
    /// reset.
    pub fn kill(&mut self, node: Node) {
        let open = self.connections.of(node);
        for (connection, end) in open {
            // A process that dies with unread bytes resets, otherwise its host closes regularly.
            if self.random.bool() {
                self.abort_end(connection, end);
            } else {
                self.close_end(connection, end);
            }
        }
        self.end(node, State::Killed);
    }

    /// A node loses its power without notifications.
    pub fn power_off(&mut self, node: Node) {
        let open = self.connections.of(node);
        for (connection, end) in open {
            self.vanish(connection, end);
        }
        self.end(node, State::Off);
    }

    fn end(&mut self, node: Node, state: State) {
        let it = self.state_mut(node);
        it.state = state;
        it.incarnation += 1;
        it.holds = false;
        self.held.remove(&u64::from(node.0));
        self.ready.retain(|step| step.node() != node);
        self.connections.forget_closed();
    }

    /// Starts a node's process, and its host where that was off.
    pub fn start(&mut self, node: Node) {
        self.state_mut(node).state = State::Up;
    }

    /// A node stops (SIGSTOP) or continues: its steps wait meanwhile, and all of them happen then.
    /// Its host continues: connections are accepted, buffers fill. A node without a running process
    /// is ignored.
    pub fn stand_still(&mut self, node: Node, still: bool) {
        if !self.state(node).up() {
            return;
        }
        let held = self.hold(node);
        held.still = still;
        if !still {
            self.wake(node);
        }
    }

    /// A node takes this long for each step; zero makes it fast again. A node without a running
    /// process is ignored.
    pub fn slow_down(&mut self, node: Node, cost: Duration) {
        if !self.state(node).up() {
            return;
        }
        let held = self.hold(node);
        held.cost = cost;
        self.wake(node);
    }

    fn hold(&mut self, node: Node) -> &mut Held<P> {
        self.state_mut(node).holds = true;
        self.held.entry(u64::from(node.0)).or_insert_with(|| Held {
            steps: VecDeque::new(),
            bytes: 0,
            still: false,
            cost: Duration::ZERO,
            busy_until: Instant::ZERO,
            drains: false,
        })
    }

    fn wake(&mut self, node: Node) {
        let incarnation = self.state(node).incarnation;
        let now = self.now;
        let Some(held) = self.held.get_mut(&u64::from(node.0)) else {
            return;
        };
        if !held.still && !held.drains {
            held.drains = true;
            let at = held.busy_until.max(now);
            self.queue.put(at, Event::Drain(node, incarnation));
        }
    }

    pub(super) fn drain(&mut self, node: Node, incarnation: u32) {
        if !self.state(node).lives(incarnation) {
            return;
        }
        let now = self.now;
        let Some(held) = self.held.get_mut(&u64::from(node.0)) else {
            return;
        };
        held.drains = false;
        if held.still {
            return;
        }
        match held.steps.pop_front() {
            Some((step, bytes)) => {
                held.bytes -= u64::from(bytes);
                held.busy_until = now + held.cost;
                self.ready.push_back(step);
                self.wake(node);
            }
            None if held.cost.is_zero() => {
                self.held.remove(&u64::from(node.0));
                self.state_mut(node).holds = false;
            }
            None => {}
        }
    }

    /// Executes a step now, or when its node gets to it; `bytes` count as a raw message's.
    pub(super) fn offer(&mut self, step: Step<P>, bytes: u32) {
        let node = step.node();
        if !self.state(node).holds {
            self.ready.push_back(step);
            return;
        }
        let held = self.hold(node);
        held.bytes += u64::from(bytes);
        held.steps.push_back((step, bytes));
        self.wake(node);
    }

    /// The final check of a step: it may have become void.
    pub(super) fn hand_out(&mut self, step: Step<P>) -> Option<Step<P>> {
        let step = self.connection_step(step)?;
        self.counters.steps += 1;
        Some(step)
    }
}

/// The half of a connection on which an end sends.
pub(super) fn outgoing<P>(halves: &mut [Half<P>; 2], end: u8) -> &mut Half<P> {
    &mut halves[usize::from(end)]
}
