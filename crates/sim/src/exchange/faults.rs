//! The faults of a run: their start, their effect, and their end.

use std::time::Duration;

use super::run::Run;
use super::store::Death;
use super::world::Timer;
use super::{Fault, store::Disked};
use crate::Operation;
use crate::network::{Flapping, Node, State};

/// A step that the run has scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Later {
    /// The next fault.
    Fault,
    /// Start a node's process.
    Start(Node),
    /// Cut the power, if it is on.
    PowerOff(Node),
    /// Let bytes rot on a node's disk.
    Rot(Node),
    /// Restore the backup of a node.
    Restore(Node),
    /// End a fault of a node, or of the direction to the other.
    HealGroup(Node),
    HealLink(Node, Node),
    HealPace(Node),
    HealStill(Node),
    HealDisk(Node),
    HealQueue(Node),
    HealVersion(Node),
}

const MINUTE: Duration = Duration::from_secs(60);

impl Run {
    /// Schedules a step.
    pub(super) fn later(&mut self, after: Duration, what: Later) {
        let number = self.agenda.len() as u32;
        self.agenda.push(what);
        let driver = self.world.driver;
        self.world.set_timer(driver, after, Timer::Agenda, number);
    }

    pub(super) fn due(&mut self, number: u32) {
        let what = self.agenda[number as usize];
        match what {
            Later::Fault => {
                if self.world.network.now() < self.faults_until {
                    self.fault();
                    let after = self.world.around(self.world.plan.fault_every);
                    self.later(after, Later::Fault);
                }
            }
            Later::Start(node) => self.start(node),
            Later::PowerOff(node) => {
                if self.world.network.node_state(node) == State::Up {
                    self.die(node, Death::PowerLost);
                }
            }
            Later::Rot(node) => self.rot(node),
            Later::Restore(node) => {
                if self.world.network.node_state(node) == State::Up {
                    self.die(node, Death::Killed);
                }
                self.world.note(node, "old state restored", [0; 3]);
                self.disked(node).restore();
            }
            Later::HealGroup(node) => self.world.network.set_group(node, 0),
            Later::HealLink(from, to) => {
                let link = self.world.plan.link;
                self.world.network.set_link(from, to, link);
            }
            Later::HealPace(node) => self.world.network.slow_down(node, Duration::ZERO),
            Later::HealStill(node) => self.world.network.stand_still(node, false),
            Later::HealDisk(node) => {
                let disked = self.disked(node);
                disked.disk.set_capacity(u64::MAX);
                disked.slow = Duration::ZERO;
            }
            Later::HealQueue(node) => self.disked(node).is_held = false,
            Later::HealVersion(node) => self.set_versions(node, None),
        }
    }

    /// Ends all faults.
    pub(super) fn heal_all(&mut self) {
        let nodes: Vec<Node> = self.nodes().collect();
        for node in &nodes {
            for what in [
                Later::HealGroup(*node),
                Later::HealPace(*node),
                Later::HealStill(*node),
                Later::HealDisk(*node),
                Later::HealQueue(*node),
                Later::HealVersion(*node),
            ] {
                self.later(Duration::ZERO, what);
            }
            for other in &nodes {
                self.later(Duration::ZERO, Later::HealLink(*node, *other));
            }
        }
    }

    fn any_node(&mut self) -> Node {
        let count = self.nodes().count();
        let chosen = self.world.random.usize(..count);
        self.nodes().nth(chosen).unwrap_or(Node(1))
    }

    /// An origin and a subscriber, in either order.
    fn any_pair(&mut self) -> (Node, Node) {
        let origin = self.world.random.usize(..self.origins.len());
        let subscriber = self.world.random.usize(..self.subscribers.len());
        let pair = (
            self.origins[origin].node(),
            self.subscribers[subscriber].node(),
        );
        if self.world.random.bool() {
            pair
        } else {
            (pair.1, pair.0)
        }
    }

    /// Seconds to a quarter of an hour, more often short.
    fn duration(&mut self) -> Duration {
        let exponent = self.world.random.f64() * 6.8;
        Duration::from_secs_f64(exponent.exp())
    }

    fn running(&self, node: Node) -> bool {
        self.world.network.node_state(node) == State::Up
    }

    fn fault(&mut self) {
        let chosen = self.world.random.usize(..self.world.plan.faults.len());
        let fault = self.world.plan.faults[chosen];
        let node = self.any_node();
        let until = self.duration();
        self.world.note(node, fault.name(), [until.as_secs(), 0, 0]);
        match fault {
            Fault::Kill if self.running(node) => self.die(node, Death::Killed),
            Fault::PowerLoss if self.running(node) => self.die(node, Death::PowerLost),
            Fault::TornWrite if self.running(node) => {
                let ahead = self.world.random.u64(..6);
                let disk = self.disked(node).disk.clone();
                disk.cut_power_at(disk.boundaries() + ahead);
                self.later(10 * MINUTE, Later::PowerOff(node));
            }
            Fault::FailedSync if self.running(node) => {
                let nth = self.world.random.u64(..3);
                self.disked(node).disk.fail(Operation::Sync, nth, false);
            }
            Fault::DiskFull => {
                let room = self.world.random.u64(..8_192);
                let disk = self.disked(node).disk.clone();
                disk.set_capacity(disk.used() + room);
                self.later(until, Later::HealDisk(node));
            }
            Fault::BitRot => {
                // Half of the time while subscribers get no new elements, so that they miss it.
                if self.world.random.bool() {
                    self.world.network.set_group(node, 3);
                    self.later(until, Later::HealGroup(node));
                    self.burst(node);
                    self.later(until / 2, Later::Rot(node));
                } else {
                    self.rot(node);
                }
            }
            Fault::OldState => {
                let disked: &mut Disked = self.disked(node);
                disked.backup = Some(disked.disk.copied());
                self.later(until, Later::Restore(node));
            }
            Fault::SlowDisk => {
                let (low, high) = (Duration::from_millis(500), Duration::from_secs(15));
                let delay = self.world.between(low, high);
                self.disked(node).slow = delay;
                self.world.sometimes.slow_disk += 1;
                self.later(until, Later::HealDisk(node));
            }
            Fault::QueueFull if self.running(node) => self.fill_queue(node, until),
            Fault::ClockStep => {
                let nanos = (self.world.random.f64() * 40.2).exp().min(3.2e17);
                let by = if self.world.random.bool() {
                    nanos
                } else {
                    -nanos
                };
                self.world.network.step_clock(node, (by * 1e0) as i64);
                self.world.sometimes.clock_stepped += 1;
            }
            Fault::VersionSkew => {
                // An overlap with the versions of this build, or none.
                let newest = chappe_flow::VERSION_MAX;
                let versions = if self.world.random.bool() {
                    (newest, newest + 1)
                } else {
                    (newest + 1, newest + 2)
                };
                self.set_versions(node, Some(versions));
                self.later(until, Later::HealVersion(node));
            }
            other => self.network_fault(other, node, until),
        }
    }

    /// Fills a log's queue for a while, completely or up to the room for a mark.
    fn fill_queue(&mut self, node: Node, until: Duration) {
        let room = self.world.random.usize(..200);
        match self.index_of(node) {
            Ok(origin) => self.origins[origin]
                .disked
                .fill_queue(&mut self.world, room),
            Err(subscriber) => self.subscribers[subscriber]
                .disked
                .fill_queue(&mut self.world, room),
        }
        self.later(until, Later::HealQueue(node));
    }

    fn network_fault(&mut self, fault: Fault, node: Node, until: Duration) {
        let (from, to) = self.any_pair();
        match fault {
            Fault::Partition => {
                let group = self.world.random.u16(1..3);
                self.world.network.set_group(node, group);
                self.later(until, Later::HealGroup(node));
            }
            Fault::Flapping => {
                let now = self.world.network.now();
                let (low, high) = (Duration::from_millis(100), Duration::from_secs(40));
                let flapping = Flapping {
                    from: now,
                    until: now + until,
                    down: self.world.between(low, high),
                    up: self.world.between(low, high),
                };
                let both = self.world.random.bool();
                let pairs = [(from, to), (to, from)];
                for (from, to) in &pairs[..1 + usize::from(both)] {
                    self.world
                        .network
                        .change_link(*from, *to, |link| link.flapping = Some(flapping));
                    self.later(until, Later::HealLink(*from, *to));
                }
                self.world.sometimes.flapped += 1;
            }
            Fault::AsymmetricLoss => {
                let loss = self.world.random.f64();
                self.world.network.change_link(from, to, |link| {
                    link.loss = loss;
                    link.cut = loss > 0.6;
                });
                self.world.sometimes.one_way += 1;
                self.later(until, Later::HealLink(from, to));
            }
            Fault::Reset => self.reset(from, to),
            Fault::SlowPeer if self.running(node) => {
                let (low, high) = (Duration::from_millis(10), Duration::from_secs(2));
                let cost = self.world.between(low, high);
                self.world.network.slow_down(node, cost);
                self.world.sometimes.slowed += 1;
                self.later(until, Later::HealPace(node));
            }
            Fault::StandStill if self.running(node) => {
                self.world.network.stand_still(node, true);
                self.world.sometimes.stood_still += 1;
                self.later(until, Later::HealStill(node));
            }
            _ => {}
        }
    }
}
