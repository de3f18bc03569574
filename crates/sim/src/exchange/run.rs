//! One run: builds the nodes, runs their steps, injects faults, heals, and judges.

use std::time::Duration;

use chappe_machine::Instant;

use super::Report;
use super::faults::Later;
use super::origin::Origin;
use super::plan::{Plan, Settings};
use super::store::{Death, Disked, Outcome};
use super::subscriber::Subscriber;
use super::world::{Timer, World};
use crate::judge::Violation;
use crate::network::{Frame, Node, State, Step};

/// The limit for catching up when all faults are over.
const CATCH_UP: Duration = Duration::from_secs(3 * 3_600);

pub(super) struct Run {
    pub(super) world: World,
    pub(super) origins: Vec<Origin>,
    pub(super) subscribers: Vec<Subscriber>,
    pub(super) agenda: Vec<Later>,
    pub(super) faults_until: Instant,
    seed: u64,
}

impl Run {
    pub(super) fn new(settings: &Settings) -> Self {
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let plan = Plan::draw(settings, &mut random);
        let mut world = World::new(plan, random, settings.trace_notes);
        world.driver = world.network.add_node();
        let nodes = |world: &mut World, count: usize| -> Vec<Node> {
            (0..count).map(|_| world.network.add_node()).collect()
        };
        let (origins, subscribers) = (world.plan.origins, world.plan.subscribers);
        let origin_nodes = nodes(&mut world, origins);
        let subscriber_nodes = nodes(&mut world, subscribers);
        let origins = origin_nodes.iter().enumerate();
        let origins = origins
            .map(|(index, node)| Origin::new(&mut world, *node, index))
            .collect();
        let subscribers = subscriber_nodes.iter().enumerate();
        let subscribers = subscribers
            .map(|(index, node)| Subscriber::new(&mut world, *node, index, &origin_nodes))
            .collect();
        let faults_until = Instant::ZERO + Duration::from_secs_f64(settings.hours * 3_600.0);
        Self {
            world,
            origins,
            subscribers,
            agenda: Vec::new(),
            faults_until,
            seed: settings.seed,
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> {
        let count = self.origins.len() + self.subscribers.len();
        (1..=count as u32).map(Node)
    }

    /// The index of a node's origin (`Ok`) or subscriber (`Err`): the driver is first, then all origins.
    pub(super) fn index_of(&self, node: Node) -> Result<usize, usize> {
        let index = node.0 as usize - 1;
        if index < self.origins.len() {
            Ok(index)
        } else {
            Err(index - self.origins.len())
        }
    }

    pub(super) fn disked(&mut self, node: Node) -> &mut Disked {
        match self.index_of(node) {
            Ok(origin) => &mut self.origins[origin].disked,
            Err(subscriber) => &mut self.subscribers[subscriber].disked,
        }
    }

    /// Runs to the end, or to the first violation.
    pub(super) fn run(mut self) -> Report {
        for node in self.nodes().collect::<Vec<_>>() {
            self.start(node);
        }
        let first = self.world.around(self.world.plan.fault_every);
        self.later(first, Later::Fault);
        self.run_until(self.faults_until);
        if self.world.violations.is_empty() {
            self.finish();
        }
        self.report()
    }

    fn finish(&mut self) {
        self.heal_all();
        self.world.plan.repair_every = self.world.plan.repair_every.min(Duration::from_secs(120));
        // Nodes whose next look for damage is after the end look now.
        let nodes: Vec<Node> = self.nodes().collect();
        nodes
            .into_iter()
            .for_each(|node| self.world.repair_later(node));
        let end = self.world.network.now() + CATCH_UP;
        // All nodes come back, and faults that have begun end.
        self.run_until(self.world.network.now() + Duration::from_secs(1_200));
        for origin in &mut self.origins {
            origin.produces = false;
        }
        self.run_until(self.world.network.now() + Duration::from_secs(60));
        self.produce_last();
        self.catch_up(end);
        while self.world.violations.is_empty() {
            self.testify();
            let now = self.world.network.now();
            match self.world.judge.not_put_back() {
                Some(violation) if now >= end => self.world.violations.push(violation),
                Some(_) => {}
                // Reading may have found damage that memory can repair.
                None if self.scrub() => {}
                None => break,
            }
            self.run_until(now + Duration::from_secs(60));
            self.catch_up(end);
        }
        if self.world.violations.is_empty()
            && let Err(violations) = self.world.judge.finish()
        {
            self.world.violations = violations;
        }
    }

    /// Scrubs all disks; returns whether records are written again from memory.
    fn scrub(&mut self) -> bool {
        let world = &mut self.world;
        let (origins, subscribers) = (&mut self.origins, &mut self.subscribers);
        let disks = origins.iter_mut().map(|it| &mut it.disked);
        let disks = disks.chain(subscribers.iter_mut().map(|it| &mut it.disked));
        let mut is_rewritten = false;
        for disked in disks {
            is_rewritten |= disked.scrub(world);
        }
        is_rewritten
    }

    /// Runs until all subscribers have all elements.
    fn catch_up(&mut self, end: Instant) {
        let mut last = self.world.network.now();
        while self.world.violations.is_empty() && !self.caught_up() {
            let now = self.world.network.now();
            if now >= end {
                let what = format!("not caught up in {CATCH_UP:?}: {}", self.laggards());
                self.world.violations.push(Violation(what));
                return;
            }
            // A failed sync may have dropped the last element.
            if now >= last + Duration::from_secs(1_800) {
                last = now;
                self.produce_last();
            }
            self.run_until(now + Duration::from_secs(30));
        }
    }

    /// All nodes report their elements to the judge.
    fn testify(&mut self) {
        for origin in &self.origins {
            origin.testify(&mut self.world);
        }
        for subscriber in &self.subscribers {
            subscriber.testify(&mut self.world);
        }
    }

    fn produce_last(&mut self) {
        for origin in &mut self.origins {
            origin.produce_last(&mut self.world);
        }
    }

    fn caught_up(&self) -> bool {
        self.origins.iter().all(Origin::settled)
            && self.subscribers.iter().all(Subscriber::settled)
            && self.laggards().is_empty()
    }

    /// Describes the subscribers that have not caught up.
    fn laggards(&self) -> String {
        let mut laggards = String::new();
        for (stream, newest) in self.origins.iter().flat_map(Origin::newest) {
            for (index, subscriber) in self.subscribers.iter().enumerate() {
                let last = subscriber.read_positions()[stream];
                let has_newest = last
                    .is_some_and(|last| last.epoch == newest.epoch && last.number >= newest.number);
                if !has_newest && newest.number > 0 {
                    laggards += &format!(
                        "subscriber {index} has {last:?} of stream {stream}, {newest:?}; "
                    );
                }
            }
        }
        laggards
    }

    fn run_until(&mut self, until: Instant) {
        while self.world.violations.is_empty() {
            let Some(step) = self.world.network.next(until) else {
                return;
            };
            self.step(step);
        }
    }

    fn step(&mut self, step: Step<Frame>) {
        let node = step.node();
        if node == self.world.driver {
            if let Step::Timer { key, .. } = step {
                self.due(Timer::from_key(key).1);
            }
            return;
        }
        match self.index_of(node) {
            Ok(origin) => self.origin_step(origin, step),
            Err(subscriber) => self.subscriber_step(subscriber, step),
        }
        // The power was lost within an operation.
        if self.world.network.node_state(node) == State::Up && self.disked(node).disk.is_off() {
            self.die(node, Death::PowerLost);
        }
    }

    fn origin_step(&mut self, index: usize, step: Step<Frame>) {
        let (origin, world) = (&mut self.origins[index], &mut self.world);
        match step {
            Step::Received { payload, .. } => origin.receive(world, payload),
            Step::Accepted {
                connection, from, ..
            } => origin.accept(world, connection, from),
            Step::Writable { connection, .. } => origin.writable(world, connection),
            Step::Closed { connection, .. } => origin.closed(world, connection),
            Step::Opened { .. } | Step::Arrived { .. } => {}
            Step::Timer { node, key } => match Timer::from_key(key) {
                (Timer::Produce, stream) => origin.produce(world, stream),
                (Timer::Session, serial) => origin.timeout(world, serial),
                (Timer::Repair, _) => origin.repair(world),
                (Timer::Commit, _) => {
                    let outcome = origin.commit(world);
                    self.after_commit(node, outcome);
                }
                _ => {}
            },
        }
    }

    fn subscriber_step(&mut self, index: usize, step: Step<Frame>) {
        let (subscriber, world) = (&mut self.subscribers[index], &mut self.world);
        match step {
            Step::Received { payload, .. } => subscriber.receive(world, payload),
            Step::Arrived { .. } => {}
            Step::Opened { connection, .. } => subscriber.opened(world, connection),
            Step::Writable { connection, .. } => subscriber.writable(world, connection),
            Step::Closed { connection, .. } => subscriber.closed(world, connection),
            Step::Accepted {
                node, connection, ..
            } => world.network.close(node, connection),
            Step::Timer { node, key } => match Timer::from_key(key) {
                (Timer::Session, serial) => subscriber.timeout(world, serial),
                (Timer::Repair, _) => subscriber.repair(world),
                (Timer::Redial, link) => subscriber.redial(world, link),
                (Timer::Commit, _) => {
                    let outcome = subscriber.commit(world);
                    self.after_commit(node, outcome);
                }
                _ => {}
            },
        }
    }

    /// A process whose store has stopped ends and is started again.
    fn after_commit(&mut self, node: Node, outcome: Outcome) {
        if outcome != Outcome::Failed || self.disked(node).disk.is_off() {
            return;
        }
        self.world.sometimes.sync_failed += u64::from(self.disked(node).disk.faults_hit() > 0);
        self.die(node, Death::Killed);
    }

    /// A process ends, and is started again after a while.
    pub(super) fn die(&mut self, node: Node, death: Death) {
        match self.index_of(node) {
            Ok(origin) => self.origins[origin].die(&mut self.world, death),
            Err(subscriber) => self.subscribers[subscriber].die(&mut self.world, death),
        }
        let (low, high) = (Duration::from_millis(100), Duration::from_secs(120));
        let after = self.world.between(low, high);
        self.later(after, Later::Start(node));
    }

    pub(super) fn start(&mut self, node: Node) {
        let running = self.disked(node).store.is_some();
        if running {
            return;
        }
        self.world.network.start(node);
        let started = match self.index_of(node) {
            Ok(origin) => self.origins[origin].start(&mut self.world),
            Err(subscriber) => self.subscribers[subscriber].start(&mut self.world),
        };
        if !started {
            self.world.network.kill(node);
            self.later(Duration::from_secs(10), Later::Start(node));
        }
    }

    pub(super) fn rot(&mut self, node: Node) {
        match self.index_of(node) {
            Ok(origin) => self.origins[origin].rot(&mut self.world),
            Err(subscriber) => self.subscribers[subscriber].rot(&mut self.world),
        }
    }

    /// An origin appends some elements at once.
    pub(super) fn burst(&mut self, node: Node) {
        if let Ok(origin) = self.index_of(node) {
            self.origins[origin].burst(&mut self.world, 20);
        }
    }

    /// A peer supports other versions, or (`None`) the usual ones again; its sessions are replaced.
    pub(super) fn set_versions(&mut self, node: Node, versions: Option<(u32, u32)>) {
        let normal = self.world.plan.sender.session.versions;
        let versions = versions.unwrap_or(normal);
        match self.index_of(node) {
            Ok(origin) => self.origins[origin].versions = versions,
            Err(subscriber) => {
                let changed = self.subscribers[subscriber].versions != versions;
                self.subscribers[subscriber].versions = versions;
                if changed && self.subscribers[subscriber].disked.store.is_some() {
                    self.subscribers[subscriber].redial_all(&mut self.world);
                }
            }
        }
    }

    /// Breaks off a connection between two nodes.
    pub(super) fn reset(&mut self, from: Node, to: Node) {
        if self.world.network.reset_between(from, to) {
            self.world.sometimes.reset += 1;
        }
    }

    fn report(mut self) -> Report {
        for origin in &self.origins {
            origin.count_sessions(&mut self.world);
        }
        let counters = self.world.network.counters();
        let sometimes = &mut self.world.sometimes;
        sometimes.stalled += counters.stalled;
        Report {
            seed: self.seed,
            simulated: self.world.network.now() - Instant::ZERO,
            steps: counters.steps,
            accepted: self.world.judge.accepted(),
            lost: self.world.judge.reported_lost(),
            sometimes: self.world.sometimes,
            violations: self.world.violations,
            trace: self.world.network.trace,
        }
    }
}
