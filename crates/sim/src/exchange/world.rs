//! The shared state of a run: network, judge, random numbers, counts.

use std::time::Duration;

use bytes::Bytes;
use chappe_machine::{Input, Invariant, Machine};

use super::fault::Sometimes;
use super::plan::Plan;
use crate::judge::{Event, Judge, Violation};
use crate::network::{Connection, Frame, Line, Network, Node};

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

/// The purpose of a node's timer, with a number.
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

    /// A random time with a given mean, at most ten times the mean.
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

    /// A machine of a session on its connection.
    pub(super) fn line<M: Machine<Transmit = Bytes>>(
        serial: u32,
        connection: Connection,
        machine: M,
    ) -> Line<M> {
        Line::new(connection, machine, Timer::Session.key(serial))
    }

    /// Passes a machine an input, sends its frames, checks it, and returns its events.
    pub(super) fn drive<M: Machine<Transmit = Bytes> + Invariant>(
        &mut self,
        line: &mut Line<M>,
        node: Node,
        input: Input<M::Receive, M::Command>,
    ) -> Vec<M::Event> {
        let events = line.drive(&mut self.network, node, input);
        if let Err(what) = line.machine.check() {
            let what = format!("invariant: {what}");
            self.violations.push(Violation(what));
        }
        events
    }
}
