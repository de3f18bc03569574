//! The shared state of a run (network, judge, random numbers, counts), and sessions on connections.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use chappe_machine::{Input, Instant, Invariant, Machine, Output, drain};

use super::fault::Sometimes;
use super::plan::Plan;
use crate::judge::{Event, Judge, Violation};
use crate::network::{Connection, Network, Node, SendError};

/// A frame of a session, with its connection.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) connection: Connection,
    pub(super) bytes: Bytes,
}

/// Shared by all nodes.
pub(super) struct World {
    pub(super) network: Network<Frame>,
    pub(super) judge: Judge,
    pub(super) plan: Plan,
    pub(super) random: fastrand::Rng,
    pub(super) sometimes: Sometimes,
    pub(super) violations: Vec<Violation>,
    /// A node without process or links, for timers of the run itself.
    pub(super) driver: Node,
    next_serial: u32,
    next_content: u64,
}

/// The purpose of a timer of a node; a number goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    Produce = 0,
    Commit = 1,
    Session = 2,
    Redial = 3,
    Repair = 4,
    Agenda = 5,
}

impl Timer {
    pub(super) fn key(self, number: u32) -> u64 {
        (self as u64) << 32 | u64::from(number)
    }

    pub(super) fn from_key(key: u64) -> (Timer, u32) {
        let timer = match key >> 32 {
            0 => Timer::Produce,
            1 => Timer::Commit,
            2 => Timer::Session,
            3 => Timer::Redial,
            4 => Timer::Repair,
            _ => Timer::Agenda,
        };
        (timer, (key & u64::from(u32::MAX)) as u32)
    }
}

impl World {
    pub(super) fn new(plan: Plan, mut random: fastrand::Rng, trace_notes: usize) -> Self {
        let mut network = Network::new(random.u64(..), plan.link);
        network.trace = crate::network::Trace::new(trace_notes);
        let streams = plan.origins * plan.streams_each;
        Self {
            judge: Judge::new(streams, plan.subscribers),
            network,
            plan,
            random,
            sometimes: Sometimes::default(),
            violations: Vec::new(),
            driver: Node(0),
            next_serial: 0,
            next_content: 0,
        }
    }

    /// Reports an event to the judge.
    pub(super) fn report(&mut self, event: Event) {
        if let Err(violation) = self.judge.observe(event) {
            self.violations.push(violation);
        }
    }

    pub(super) fn serial(&mut self) -> u32 {
        self.next_serial += 1;
        self.next_serial
    }

    pub(super) fn content(&mut self) -> u64 {
        self.next_content += 1;
        self.next_content
    }

    pub(super) fn set_timer(&mut self, node: Node, after: Duration, timer: Timer, number: u32) {
        let at = self.network.now() + after;
        self.network.set_timer(node, at, timer.key(number));
    }

    /// A random time around a mean, at most ten times the mean.
    pub(super) fn around(&mut self, mean: Duration) -> Duration {
        let times = -(1.0 - self.random.f64()).ln();
        mean.mul_f64(times.min(10.0))
    }

    pub(super) fn between(&mut self, low: Duration, high: Duration) -> Duration {
        low + high.saturating_sub(low).mul_f64(self.random.f64())
    }

    pub(super) fn note(&mut self, node: Node, what: &'static str, numbers: [u64; 3]) {
        self.network.note(node, what, numbers);
    }
}

/// A machine of a session on its connection.
pub(super) struct Line<M> {
    pub(super) serial: u32,
    pub(super) connection: Connection,
    pub(super) machine: M,
    /// Frames that the connection had no room for.
    outbox: VecDeque<Bytes>,
    timer: Option<Instant>,
}

impl<M> Line<M>
where
    M: Machine<Transmit = Bytes> + Invariant,
{
    pub(super) fn new(serial: u32, connection: Connection, machine: M) -> Self {
        Self {
            serial,
            connection,
            machine,
            outbox: VecDeque::new(),
            timer: None,
        }
    }

    /// Gives the machine an input; sends its frames and returns its events.
    pub(super) fn drive(
        &mut self,
        world: &mut World,
        node: Node,
        input: Input<M::Receive, M::Command>,
    ) -> Vec<M::Event> {
        let mut events = Vec::new();
        let outbox = &mut self.outbox;
        let now = world.network.now();
        let deadline = drain(&mut self.machine, now, input, |output| match output {
            Output::Transmit(bytes) => outbox.push_back(bytes),
            Output::Event(event) => events.push(event),
        });
        if let Err(what) = self.machine.check() {
            world
                .violations
                .push(Violation(format!("invariant: {what}")));
        }
        self.flush(world, node);
        if let Some(at) = deadline
            && self.timer.is_none_or(|timer| at < timer || timer < now)
        {
            self.timer = Some(at);
            let key = Timer::Session.key(self.serial);
            world.network.set_timer(node, at, key);
        }
        events
    }

    /// Whether the machine's deadline has passed; a timer for an earlier deadline is ignored.
    pub(super) fn due(&mut self, world: &mut World, node: Node) -> bool {
        let now = world.network.now();
        if self.timer.is_some_and(|timer| timer <= now) {
            self.timer = None;
        }
        match self.machine.deadline() {
            Some(at) if at <= now => true,
            Some(at) if self.timer.is_none() => {
                self.timer = Some(at);
                let key = Timer::Session.key(self.serial);
                world.network.set_timer(node, at, key);
                false
            }
            _ => false,
        }
    }

    /// Sends the frames that there is room for.
    pub(super) fn flush(&mut self, world: &mut World, node: Node) {
        let connection = self.connection;
        while let Some(bytes) = self.outbox.pop_front() {
            let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let frame = Frame { connection, bytes };
            match world.network.write(node, connection, size, frame) {
                Ok(()) => {}
                Err(SendError::Full(frame)) => {
                    self.outbox.push_front(frame.bytes);
                    return;
                }
                Err(SendError::Closed(_)) => self.outbox.clear(),
            }
        }
    }
}
