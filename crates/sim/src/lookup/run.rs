//! One run: enter, publish, wait, search, count.

mod parted;

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_identity::PublicKey;
use chappe_kad::service::device_key;
use chappe_kad::{Command, Event, Key, SearchId, SearchReport};
use chappe_machine::{Input, Instant};

use parted::When;

use super::outcome::Outcome;
use super::world::World;
use super::{Attack, Settings};
use crate::network::Node;

/// How long events accumulate before they are handled.
const STEP: Duration = Duration::from_millis(50);
/// Time limit of a search; only a defect takes longer.
const SEARCH_MAX: Duration = Duration::from_secs(600);
/// Searches begun each simulated second.
const SEARCHES_PER_S: f64 = 20.0;
/// Nodes that enter per simulated second, if all start without contacts.
const ENTER_PER_S: f64 = 50.0;

/// The progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The current phase.
    pub phase: &'static str,
    /// The finished share of the phase.
    pub share: f64,
    /// The simulated time.
    pub at: Instant,
}

struct Device {
    key: Key,
    publisher: Node,
    public: PublicKey,
    /// The life of the publisher in which it was published.
    life: u32,
    /// Published for the first time.
    there: bool,
}

/// A search at work.
struct Search {
    device: Option<usize>,
    when: When,
    began: Instant,
    /// The life of the searcher.
    life: u32,
    found: Option<Instant>,
    /// For a search for all: the publishers found.
    publishers: Vec<PublicKey>,
    /// Devices present when it began.
    there: Vec<usize>,
}

struct Run<'a> {
    settings: &'a Settings,
    world: World,
    devices: Vec<Device>,
    searches: BTreeMap<(Node, SearchId), Search>,
    next_search: u32,
    events: Vec<(Instant, Node, Event)>,
    /// When the next node is replaced.
    next_replaced: Option<Instant>,
    /// When the partition ended.
    healed_at: Instant,
    outcome: Outcome,
    progress: &'a mut dyn FnMut(&Progress),
}

/// Simulates one network. `progress` is called about once every simulated second.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(&Progress)) -> Outcome {
    let keys: Vec<Key> = (0..settings.devices)
        .map(|index| {
            Key::derive(
                "sim device",
                &[&settings.seed.to_be_bytes(), &index.to_be_bytes()],
            )
        })
        .collect();
    let attacked = (settings.attacked_keys.max(1) as usize).min(keys.len());
    let world = World::new(settings, &keys[..attacked]);
    let mut run = Run {
        settings,
        world,
        devices: Vec::new(),
        searches: BTreeMap::new(),
        next_search: 0,
        events: Vec::new(),
        next_replaced: None,
        healed_at: Instant::ZERO,
        outcome: Outcome::default(),
        progress,
    };
    run.enter();
    match settings.partition {
        None => {
            run.publish(&keys);
            run.pass("settle", settings.settle);
            run.search();
        }
        Some(partition) => run.fall_apart(&partition, &keys),
    }
    run.search_for_all();
    run.await_searches();
    run.count();
    run.outcome
}

impl Run<'_> {
    fn now(&self) -> Instant {
        self.world.nodes.network.now()
    }

    fn say(&mut self, phase: &'static str, share: f64) {
        let at = self.now();
        (self.progress)(&Progress { phase, share, at });
    }

    /// Advances one step, replaces nodes that are due, and handles events.
    fn step(&mut self) {
        let until = self.now() + STEP;
        while let Some(at) = self.next_replaced.filter(|at| *at <= until) {
            self.run_until(at);
            let node = self.world.any_honest();
            self.world.replace(node);
            self.outcome.replaced += 1;
            self.plan_replacement();
        }
        self.run_until(until);
        for (at, node, event) in std::mem::take(&mut self.events) {
            self.happened(at, node, event);
        }
    }

    fn run_until(&mut self, until: Instant) {
        let events = &mut self.events;
        self.world.nodes.run_until(until, |at, node, event| {
            events.push((at, node, event));
        });
    }

    fn plan_replacement(&mut self) {
        let Some(session) = self.settings.session else {
            return;
        };
        let mean = session.as_secs_f64() / f64::from(self.world.honest().max(1));
        let wait = -mean * (1.0 - self.world.random.f64()).ln();
        self.next_replaced = Some(self.now() + Duration::from_secs_f64(wait));
    }

    fn pass(&mut self, phase: &'static str, time: Duration) {
        let (from, until) = (self.now(), self.now() + time);
        let mut said = from;
        while self.now() < until {
            self.step();
            if self.now() - said >= Duration::from_secs(1) {
                said = self.now();
                let share = (said - from).as_secs_f64() / time.as_secs_f64();
                self.say(phase, share);
            }
        }
    }

    /// Passes a command to a node, and collects its events.
    fn command(&mut self, node: Node, command: Command) {
        let events = &mut self.events;
        self.world
            .nodes
            .input(node, Input::Command(command), |at, node, event| {
                events.push((at, node, event));
            });
    }

    fn enter(&mut self) {
        if self.settings.cold {
            let mut due = 0.0;
            // Shuffled, or the attacker's would be the last.
            let mut order: Vec<u32> = (0..self.world.count()).collect();
            self.world.random.shuffle(&mut order);
            // The first ones know each other.
            for (at, index) in order.iter().enumerate() {
                self.world.enter_among(Node(*index), &order[..at]);
                due += 1.0 / ENTER_PER_S;
                while due >= STEP.as_secs_f64() {
                    due -= STEP.as_secs_f64();
                    self.step();
                }
                if at % 100 == 0 {
                    self.say("enter", at as f64 / order.len() as f64);
                }
            }
            self.pass("enter", Duration::from_secs(30));
        }
        self.plan_replacement();
    }

    fn publish(&mut self, keys: &[Key]) {
        for (index, key) in keys.iter().enumerate() {
            self.publish_one(*key);
            if index % 8 == 0 {
                self.step();
            }
            if index % 100 == 0 {
                self.say("publish", index as f64 / keys.len() as f64);
            }
        }
        self.pass("publish", Duration::from_secs(60));
    }

    /// A random node publishes a device.
    fn publish_one(&mut self, key: Key) {
        let node = self.world.any_honest();
        let Some(public) = self.world.nodes.machine(node).map(|it| it.public()) else {
            return;
        };
        let command = Command::Publish {
            // Fewer than 65,536 devices.
            slot: self.devices.len() as u16,
            keys: vec![key, device_key()],
            value: vec![0xd7; 120],
        };
        self.devices.push(Device {
            key,
            publisher: node,
            public,
            life: self.world.life(node),
            there: false,
        });
        self.command(node, command);
    }

    /// Whether the publisher of a device is present, and has published.
    fn is_there(&self, device: usize) -> bool {
        let device = &self.devices[device];
        device.there && self.world.life(device.publisher) == device.life
    }

    fn search(&mut self) {
        let every = Duration::from_secs_f64(1.0 / SEARCHES_PER_S);
        let attacked = self.settings.attacked_keys.max(1) as usize;
        let is_attacked = self.settings.sybils > 0.0 && self.settings.attack != Attack::Scattered;
        for number in 0..self.settings.searches {
            // Every other search is for an attacked device, if there are any.
            let among = match is_attacked && number % 2 == 0 {
                true => attacked.min(self.devices.len()),
                false => self.devices.len(),
            };
            if among == 0 {
                break;
            }
            let device = self.world.random.usize(..among);
            if self.is_there(device) {
                let publisher = self.devices[device].publisher;
                let mut node = self.world.any_honest();
                while node == publisher && self.world.honest() > 1 {
                    node = self.world.any_honest();
                }
                self.begin_search(node, Some(device), When::Whole);
            }
            self.pass("search", every);
            self.say(
                "search",
                f64::from(number) / f64::from(self.settings.searches),
            );
        }
    }

    fn search_for_all(&mut self) {
        for _ in 0..self.settings.full_searches {
            let node = self.world.any_honest();
            self.begin_search(node, None, When::Whole);
            self.pass("search", Duration::from_secs(1));
        }
    }

    fn await_searches(&mut self) {
        let until = self.now() + SEARCH_MAX;
        while !self.searches.is_empty() && self.now() < until {
            self.step();
        }
        // Searches that have not ended by now have failed.
        for key in self.searches.keys().copied().collect::<Vec<_>>() {
            self.ended(key, &SearchReport::default());
        }
    }

    fn begin_search(&mut self, node: Node, device: Option<usize>, when: When) {
        let id = SearchId(self.next_search);
        self.next_search += 1;
        let there = match device {
            Some(_) => Vec::new(),
            None => (0..self.devices.len())
                .filter(|device| self.is_there(*device))
                .collect(),
        };
        let search = Search {
            device,
            when,
            began: self.now(),
            life: self.world.life(node),
            found: None,
            publishers: Vec::new(),
            there,
        };
        self.searches.insert((node, id), search);
        let key = device.map_or(device_key(), |device| self.devices[device].key);
        let credit = self.settings.credit;
        self.command(
            node,
            Command::Search {
                search: id,
                key,
                credit,
            },
        );
    }

    fn happened(&mut self, at: Instant, node: Node, event: Event) {
        match event {
            Event::Published { slot, outcome, .. } => {
                self.outcome.published += 1;
                let device = &mut self.devices[usize::from(slot)];
                device.there |= device.publisher == node;
                self.outcome.copies.add(f64::from(outcome.kept));
            }
            Event::Found { search, record } => {
                let Some(it) = self.searches.get_mut(&(node, search)) else {
                    return;
                };
                let Some(device) = it.device else {
                    it.publishers.push(record.publisher);
                    return;
                };
                if self.devices[device].public == record.publisher && it.found.is_none() {
                    it.found = Some(at);
                    self.command(node, Command::Stop { search });
                }
            }
            Event::SearchPaused { search } => {
                let credit = self.settings.credit;
                self.command(node, Command::Grant { search, credit });
            }
            Event::SearchEnded { search, report } => self.ended((node, search), &report),
            _ => {}
        }
    }

    fn ended(&mut self, key: (Node, SearchId), report: &SearchReport) {
        let Some(search) = self.searches.remove(&key) else {
            return;
        };
        if search.life != self.world.life(key.0) {
            // The searcher has died.
            return;
        }
        let outcome = &mut self.outcome;
        let messages = f64::from(report.finds + report.asks);
        let seconds = |at: Instant| (at - search.began).as_secs_f64();
        if report.granted > 0 {
            let share = report.inflow as f64 / report.granted as f64;
            outcome.inflow_share.add(share);
        }
        let Some(device) = search.device else {
            let still = |device: &&usize| {
                let device = &self.devices[**device];
                self.world.life(device.publisher) == device.life
            };
            let there: Vec<_> = search.there.iter().filter(still).collect();
            let found =
                |device: &&&usize| search.publishers.contains(&self.devices[***device].public);
            // Fewer than 65,536 devices.
            outcome.devices_found += there.iter().filter(found).count() as u32;
            outcome.devices += there.len() as u32;
            outcome.full_messages.add(messages);
            outcome.full_inflow.add(report.inflow as f64);
            outcome
                .full_seconds
                .add(seconds(self.world.nodes.network.now()));
            return;
        };
        let there = self.world.life(self.devices[device].publisher) == self.devices[device].life;
        // The publisher may have died meanwhile.
        if !there && search.found.is_none() {
            return;
        }
        if !self.count_parted(&search) {
            return;
        }
        let outcome = &mut self.outcome;
        let attacked = device < self.settings.attacked_keys.max(1) as usize;
        outcome.searches += 1;
        outcome.by_device.resize(self.devices.len(), (0, 0, 0));
        let of_device = &mut outcome.by_device[device];
        of_device.0 += u32::from(search.found.is_some());
        of_device.1 += 1;
        outcome.attacked_searches += u32::from(attacked);
        if let Some(at) = search.found {
            outcome.found += 1;
            outcome.attacked_found += u32::from(attacked);
            outcome.hops.add(f64::from(report.hops));
            outcome.messages.add(messages);
            outcome.asks.add(f64::from(report.asks));
            outcome.seconds.add(seconds(at));
            outcome.inflow.add(report.inflow as f64);
        }
    }

    fn count(&mut self) {
        let passed = (self.now() - Instant::ZERO).as_secs_f64();
        let mut sent = 0;
        for index in 0..self.world.honest() {
            let Some(actor) = self.world.nodes.machine(Node(index)) else {
                continue;
            };
            let kad = actor.kad();
            sent += kad.counters().sent_bytes;
            let now = self.world.nodes.network.now();
            for (device, of_device) in self.devices.iter().zip(&mut self.outcome.by_device) {
                of_device.2 += u32::from(kad.held_at(now, device.key));
            }
            if let Some(nodes) = kad.network_nodes() {
                let share = nodes / f64::from(self.world.count());
                self.outcome.size_share.add(share);
            }
            // Every node of a small network, a thousandth of a large one.
            if index % self.world.honest().div_ceil(1_000) == 0 {
                self.outcome.state_bytes.add(kad.state_bytes() as f64);
                self.outcome.contacts.add(kad.contacts_len() as f64);
            }
        }
        if self.outcome.parted.is_some() {
            self.count_reached();
        }
        self.outcome.bytes_per_s = sent as f64 / f64::from(self.world.honest().max(1)) / passed;
        self.outcome.simulated_s = passed;
        let counters = self.world.nodes.network.counters();
        let dropped = counters.queue_full + counters.unheard;
        self.outcome.dropped_share = dropped as f64 / counters.sent.max(1) as f64;
        self.outcome.steps = counters.steps;
    }
}
