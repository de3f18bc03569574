//! The event loop: sequential processors, links, ports, and the judge.
//!
//! The events wait in the queue of [`crate::network`]; the links are not its links. There a node
//! receives and sends without delay. Here both take time of its one processor (`o`, the send cost
//! of the papers), a message leaves when its sender gets to it, and it waits at the port of its
//! receiver rather than at its sender: that is the subject of these simulations.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_flow::pacer::Events;
use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_notification_tree::schedule::Order;
use chappe_notification_tree::{
    Arranger, Body, Command, Config, Contact, Counters, EventId, Membership, Message, Outcome,
    SOURCE, Transmit, Tree, TreeEvent, Window,
};

use super::guard::{SimGuard, key, node};
use super::liar::Lie;
use super::{Report, Settings};
use crate::network::Queue;

/// How long after `T` a run waits for the outcome before it counts as missing.
const SLACK: Duration = Duration::from_millis(100);
/// How much later a late answer comes, in round trips.
const LATE_ROUND_TRIPS: u32 = 50;
/// Steps between two reports of progress.
const PROGRESS_STEPS: u64 = 1 << 16;
/// How often a sink floods, so that floods do not feed each other forever.
const FLOODS: u32 = 32;
/// The cost factor of a slow sink.
const SLOW: u32 = 10;

/// Items checked per step: a node with more is checked every so many steps.
const CHECKED_A_STEP: usize = 8;

/// Approximate bytes of an event's datagram without its body: for the pacer.
const HEAD_BYTES: u64 = 200;
/// An event without a result for this long is no longer counted by the pacer.
const PATIENCE: Duration = Duration::from_millis(250);

/// The events that a source has still to publish.
#[derive(Default)]
struct Offers {
    /// The time of each.
    waiting: VecDeque<u64>,
    pacer: Option<Events>,
    /// The time of the event being published.
    happened: u64,
    /// The number of the newest, including heartbeats.
    number: u64,
    /// The time of the next check.
    wake: u64,
}

/// The lists of a source.
struct Lists {
    arranger: Arranger,
    /// All versions, from 1.
    versions: Vec<Arc<Membership>>,
    /// The number of each sink in the newest; as listed it is its own.
    numbers: Vec<u32>,
}

impl Lists {
    fn newest(&self) -> &Arc<Membership> {
        // There is one from the beginning.
        &self.versions[self.versions.len() - 1]
    }

    fn of(&self, version: u32) -> Option<&Arc<Membership>> {
        self.versions.get((version as usize).checked_sub(1)?)
    }

    /// Makes a new version from these sinks.
    fn list(&mut self, topic: u64, sinks: Vec<Contact>) {
        let version = self.versions.len() as u32 + 1;
        self.numbers = vec![0; sinks.len()];
        for (number, sink) in (0..).zip(&sinks) {
            self.numbers[node(&sink.key) as usize] = number;
        }
        match Membership::new(topic, version, sinks) {
            Ok(membership) => self.versions.push(Arc::new(membership)),
            Err(error) => unreachable!("addresses are apart: {error}"),
        }
    }
}

struct Node {
    tree: Option<Box<Tree<SimGuard>>>,
    /// When the processor is free.
    free: u64,
    /// When the port at the switch is free.
    port_free: u64,
    /// Messages that wait for the processor.
    inbox: VecDeque<Message>,
    /// The earliest timer.
    timer: u64,
    /// A timer has fired while the node was busy.
    rung: bool,
    waking: bool,
    dead: bool,
    slow: bool,
    /// On the other side of the partition.
    cut_off: bool,
    critical: bool,
    flaky: bool,
    /// A flaky sink that is away now.
    away: bool,
    lie: Option<Lie>,
    /// How often it still floods.
    floods_left: u32,
    /// Steps since its invariants were checked.
    unchecked: usize,
}

enum Happening {
    Arrive(u32, Box<Message>),
    Wake(u32),
    Timer(u32),
    Publish(u32),
    /// A source checks whether its next event may be sent.
    Offer(u32),
    Heartbeat(u32),
    Crash(u32),
    /// Flaky sinks leave and return.
    Flicker,
    /// A source checks whether its list has to be rearranged.
    Arrange(u32),
    /// A message that a liar sends unasked.
    Send(u32, Box<Transmit>),
}

/// The true results of an event.
struct Truth {
    happened: u64,
    /// When each sink received it; 0: never.
    delivered: Vec<u64>,
    flaky_heads: u64,
    outcome: Option<Box<Outcome>>,
}

pub(super) struct World<'a> {
    settings: &'a Settings,
    random: fastrand::Rng,
    secret: u64,
    config: Arc<Config>,
    lists: Vec<Lists>,
    /// Sinks from 0, then sources.
    nodes: Vec<Node>,
    queue: Queue<Happening>,
    now: u64,
    truths: HashMap<EventId, Truth>,
    /// Sinks that were never dead, never lied and never crashed.
    report: Report,
    last_publish: u64,
    /// Of each source.
    offers: Vec<Offers>,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn address(node: u32) -> SocketAddr {
    // 10.0.0.0/8 has room for 16 million nodes.
    let ip = std::net::Ipv4Addr::from(0x0A00_0001 + node);
    SocketAddr::from((ip, 9_000))
}

fn contact(node: u32) -> Contact {
    Contact {
        address: address(node),
        key: key(node),
    }
}

/// The sinks as listed, each with its criticality.
fn sinks(settings: &Settings, nodes: &[Node]) -> Vec<(Contact, u8)> {
    let sink = |sink: u32| (contact(sink), u8::from(nodes[sink as usize].critical));
    (0..settings.sinks).map(sink).collect()
}

impl<'a> World<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let secret = random.u64(..);
        let config = Config {
            plan: settings.plan,
            take_over: settings.take_over,
            inline: settings.inline,
            send_cost: settings.send_cost,
            latency: settings.latency + settings.jitter / 2 + settings.handling,
            timeout_floor: settings.timeout_floor.max(settings.jitter * 2),
            source_attempts: settings.attempts,
            within: settings.within,
            pace: settings.pace,
            history: (settings.events as usize).max(Config::default().history),
            ..Config::default()
        };
        let count = settings.sinks + settings.sources;
        let chosen = |share: f64, random: &mut fastrand::Rng| random.f64() < share;
        let nodes: Vec<Node> = (0..count)
            .map(|node| {
                let sink = node < settings.sinks;
                let dead = sink && chosen(settings.dead, &mut random);
                let liar = sink && !dead && chosen(settings.liars, &mut random);
                let lie = liar
                    .then(|| random.choice(&settings.lies).copied())
                    .flatten();
                Node {
                    tree: None,
                    free: 0,
                    port_free: 0,
                    inbox: VecDeque::new(),
                    timer: u64::MAX,
                    rung: false,
                    waking: false,
                    dead,
                    slow: sink && chosen(settings.slow, &mut random),
                    // Draws nothing unless requested: other seeds must not change.
                    cut_off: sink
                        && settings.cut_off > 0.0
                        && chosen(settings.cut_off, &mut random),
                    critical: sink
                        && settings.critical > 0.0
                        && chosen(settings.critical, &mut random),
                    flaky: sink
                        && !dead
                        && settings.flaky > 0.0
                        && chosen(settings.flaky, &mut random),
                    away: false,
                    lie,
                    floods_left: FLOODS,
                    unchecked: 0,
                }
            })
            .collect();
        let lists = (0..settings.sources).map(|source| {
            let mut lists = Lists {
                arranger: Arranger::new(settings.order, &config),
                versions: Vec::new(),
                numbers: Vec::new(),
            };
            let sinks = lists.arranger.arrange(&sinks(settings, &nodes));
            lists.list(u64::from(source) + 1, sinks);
            lists
        });
        Self {
            settings,
            random,
            secret,
            lists: lists.collect(),
            config: Arc::new(config),
            nodes,
            queue: Queue::default(),
            now: 0,
            truths: HashMap::new(),
            report: Report {
                seed: settings.seed,
                ..Report::default()
            },
            last_publish: 0,
            offers: (0..settings.sources)
                .map(|_| Offers {
                    pacer: settings
                        .pacer
                        .as_ref()
                        .map(|pacer| Events::new(pacer, PATIENCE)),
                    number: u64::from(settings.heartbeat),
                    ..Offers::default()
                })
                .collect(),
        }
    }

    fn push(&mut self, at: u64, happening: Happening) {
        self.queue.put(Instant::from_nanos(at), happening);
    }

    pub(super) fn run(mut self, progress: &mut dyn FnMut(u64)) -> Report {
        let settings = self.settings;
        let mut crashing = Vec::new();
        for source in 0..settings.sources {
            if settings.heartbeat {
                self.push(0, Happening::Heartbeat(settings.sinks + source));
            }
            for event in 0..settings.events {
                let number = u64::from(event) + u64::from(settings.heartbeat);
                let at = nanos(settings.period) * number;
                if source == 0 && settings.flaky > 0.0 {
                    self.push(at, Happening::Flicker);
                }
                self.push(at, Happening::Publish(settings.sinks + source));
                self.last_publish = self.last_publish.max(at);
            }
        }
        for sink in 0..settings.sinks {
            let node = &self.nodes[sink as usize];
            if !node.dead && self.random.f64() < settings.crashing {
                crashing.push(sink);
            }
        }
        // Within the approximate time that the events need to spread.
        let span = self.last_publish + nanos(settings.latency + settings.send_cost) * 16;
        for sink in &crashing {
            let at = self.random.u64(..=span);
            self.push(at, Happening::Crash(*sink));
        }
        let mut known = 0;
        while let Some((at, happening)) = self.queue.take() {
            let at = at.as_nanos();
            let end = self.last_publish + nanos(settings.within + SLACK);
            if at > end && self.offers.iter().all(|it| it.waiting.is_empty()) {
                break;
            }
            self.now = at;
            self.happen(happening);
            self.report.steps += 1;
            if self.report.steps.is_multiple_of(PROGRESS_STEPS) {
                progress(self.report.counters.delivered);
            }
            known = known.max(
                self.truths
                    .values()
                    .filter(|truth| truth.outcome.is_some())
                    .count(),
            );
            let all = settings.sources as usize * settings.events as usize;
            if known == all && settings.crashing == 0.0 && settings.events == 1 {
                break;
            }
        }
        self.judge(&crashing);
        self.report
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive(node, message) => self.arrive(node, *message),
            Happening::Wake(node) => {
                self.nodes[node as usize].waking = false;
                if self.nodes[node as usize].free > self.now {
                    self.wake(node);
                    return;
                }
                if let Some(message) = self.nodes[node as usize].inbox.pop_front() {
                    self.handle(node, message);
                } else if std::mem::take(&mut self.nodes[node as usize].rung) {
                    self.input(node, Input::Timeout, 0);
                }
                let busy = &self.nodes[node as usize];
                if busy.rung || !busy.inbox.is_empty() {
                    self.wake(node);
                }
            }
            Happening::Timer(node) => {
                let found = &mut self.nodes[node as usize];
                if found.timer != self.now || found.dead {
                    return;
                }
                found.timer = u64::MAX;
                if found.free > self.now || !found.inbox.is_empty() {
                    found.rung = true;
                    self.wake(node);
                } else {
                    self.input(node, Input::Timeout, 0);
                }
            }
            Happening::Publish(node) => {
                self.offers[(node - self.settings.sinks) as usize]
                    .waiting
                    .push_back(self.now);
                while self.offer(node) {}
            }
            Happening::Offer(node) => {
                let offers = &mut self.offers[(node - self.settings.sinks) as usize];
                if offers.wake == self.now {
                    offers.wake = 0;
                    while self.offer(node) {}
                }
            }
            Happening::Heartbeat(node) => {
                let topic = u64::from(node - self.settings.sinks) + 1;
                self.input(node, Input::Command(Command::Heartbeat { topic }), 0);
            }
            Happening::Crash(node) => {
                let found = &mut self.nodes[node as usize];
                found.dead = true;
                found.inbox.clear();
                found.tree = None;
            }
            Happening::Flicker => {
                for node in self.nodes.iter_mut().filter(|node| node.flaky) {
                    node.away = self.random.bool();
                }
            }
            Happening::Arrange(node) => self.arrange(node),
            Happening::Send(node, transmit) => {
                let now = self.now;
                self.send(node, *transmit, now);
            }
        }
    }

    fn wake(&mut self, node: u32) {
        let found = &mut self.nodes[node as usize];
        if !found.waking {
            found.waking = true;
            let at = found.free.max(self.now);
            self.push(at, Happening::Wake(node));
        }
    }

    fn arrive(&mut self, node: u32, message: Message) {
        let room = self.settings.receive_buffer;
        let found = &mut self.nodes[node as usize];
        if found.dead {
            return;
        }
        if found.free > self.now || !found.inbox.is_empty() {
            if found.inbox.len() >= room {
                self.report.dropped += 1;
                return;
            }
            found.inbox.push_back(message);
            self.wake(node);
            return;
        }
        self.handle(node, message);
    }

    fn handle(&mut self, node: u32, message: Message) {
        let cost = nanos(self.settings.handling);
        let lie = self.nodes[node as usize].lie;
        let flooded = self.nodes[node as usize].floods_left == 0;
        if let (Some(lie), Body::Spread(spread), false) = (lie, &message.body, flooded) {
            if matches!(lie, Lie::Floods | Lie::AnswersForOthers) {
                self.nodes[node as usize].floods_left -= 1;
            }
            let sinks = self.settings.sinks;
            let (id, version) = (spread.event.id(), spread.event.version());
            let own = match self.settings.order {
                Order::AsListed => Some(node),
                _ => {
                    let list = self.lists[id.topic as usize - 1].of(version);
                    list.and_then(|list| list.number(&contact(node)))
                }
            };
            let own = own.unwrap_or(node);
            let answers = lie.answers(own, message.from, sinks, spread, &mut self.random);
            for (to, answer) in answers {
                let Some(receiver) = self.listed(id.topic, version, to) else {
                    continue;
                };
                let now = self.now;
                let transmit = Transmit {
                    address: address(receiver),
                    key: key(receiver),
                    to,
                    message: answer,
                };
                self.send(node, transmit, now);
            }
            if !lie.is_half_honest() {
                return;
            }
        }
        self.input(node, Input::Receive(message), cost);
    }

    /// The node of a number in a version of a list.
    fn listed(&self, topic: u64, version: u32, number: u32) -> Option<u32> {
        if number == SOURCE {
            return Some(self.settings.sinks + topic as u32 - 1);
        }
        let list = self.lists[topic as usize - 1].of(version)?;
        list.sink(number).map(|sink| node(&sink.key))
    }

    /// Makes a new version of a source's list, if it differs; the participants get it at once.
    fn arrange(&mut self, source: u32) {
        let sinks = sinks(self.settings, &self.nodes);
        let topic = u64::from(source - self.settings.sinks) + 1;
        let lists = &mut self.lists[topic as usize - 1];
        let arranged = lists.arranger.arrange(&sinks);
        if arranged == lists.newest().sinks() {
            return;
        }
        lists.list(topic, arranged);
        for node in (0..self.settings.sinks).chain([source]) {
            if self.nodes[node as usize].tree.is_some() {
                let lists = &self.lists[topic as usize - 1];
                let number = lists.numbers.get(node as usize).copied();
                let membership = Arc::clone(lists.newest());
                let command = Command::Membership { membership, number };
                self.input(node, Input::Command(command), 0);
            }
        }
    }

    fn guard(&self, node: u32) -> SimGuard {
        SimGuard {
            node,
            secret: self.secret,
            authenticates: self.settings.authenticated,
        }
    }

    fn new_tree(&mut self, node: u32) -> Box<Tree<SimGuard>> {
        let seed = self.random.u64(..);
        let mut tree = Tree::new(
            Arc::clone(&self.config),
            contact(node),
            self.guard(node),
            seed,
        );
        let sinks = self.settings.sinks;
        let mut commands = Vec::new();
        if node < sinks {
            for (source, lists) in self.lists.iter().enumerate() {
                let at = sinks + source as u32;
                commands.push(Command::Subscribe {
                    topic: lists.newest().topic(),
                    source: contact(at),
                    window: Window::default(),
                });
                commands.push(Command::Membership {
                    membership: Arc::clone(lists.newest()),
                    number: Some(lists.numbers[node as usize]),
                });
            }
        } else {
            let lists = &self.lists[(node - sinks) as usize];
            let membership = Arc::clone(lists.newest());
            let topic = membership.topic();
            commands.push(Command::Publisher {
                membership,
                boot: 1,
            });
            for sink in 0..sinks {
                let dead = self.nodes[sink as usize].dead;
                let share = if dead {
                    self.settings.suspected
                } else {
                    self.settings.wrongly_suspected
                };
                if share > 0.0 && self.random.f64() < share {
                    commands.push(Command::Suspect {
                        topic,
                        sink: lists.numbers[sink as usize],
                        suspected: true,
                    });
                }
            }
        }
        let now = Instant::from_nanos(self.now);
        for command in commands {
            tree.handle_input(now, Input::Command(command));
            while tree.poll_output().is_some() {}
        }
        Box::new(tree)
    }

    /// Publishes the next event of a source, if there is one and it may be sent; returns whether it
    /// did.
    fn offer(&mut self, node: u32) -> bool {
        let (now, busy) = (self.now, self.nodes[node as usize].free);
        let bytes = self.settings.body_bytes as u64 + HEAD_BYTES;
        let offers = &mut self.offers[(node - self.settings.sinks) as usize];
        let Some(happened) = offers.waiting.front().copied() else {
            return false;
        };
        if let Some(pacer) = &mut offers.pacer {
            let moment = Instant::from_nanos(now);
            let wake = match pacer.next(moment) {
                // One event leaves the source after the other.
                Ok(()) if busy > now => busy,
                Ok(()) => {
                    offers.number += 1;
                    pacer.sent(moment, offers.number, bytes);
                    now
                }
                Err(at) => at.as_nanos().max(now + 1),
            };
            if wake > now {
                if offers.wake != wake {
                    offers.wake = wake;
                    self.push(wake, Happening::Offer(node));
                }
                return false;
            }
        }
        offers.waiting.pop_front();
        offers.happened = happened;
        self.last_publish = self.last_publish.max(now);
        self.publish(node);
        true
    }

    fn publish(&mut self, node: u32) {
        let topic = u64::from(node - self.settings.sinks) + 1;
        let body = vec![0xE5; self.settings.body_bytes];
        let deadline = None;
        let publish = Command::Publish {
            topic,
            body,
            deadline,
        };
        self.input(node, Input::Command(publish), 0);
    }

    /// Passes an input to a machine, and executes its outputs: each send takes its time.
    fn input(&mut self, node: u32, input: Input<Message, Command>, cost: u64) {
        let slow = if self.nodes[node as usize].slow {
            u64::from(SLOW)
        } else {
            1
        };
        let begins = self.now + cost * slow;
        let mut tree = match self.nodes[node as usize].tree.take() {
            Some(tree) => tree,
            None => self.new_tree(node),
        };
        let mut busy = begins;
        let send_cost = nanos(self.settings.send_cost) * slow;
        tree.handle_input(Instant::from_nanos(begins), input);
        let lie = self.nodes[node as usize].lie;
        while let Some(output) = tree.poll_output() {
            let output = match lie {
                Some(lie) => lie.twist(output),
                None => output,
            };
            match output {
                Output::Transmit(transmit) => {
                    busy += send_cost;
                    let answer = !matches!(transmit.message.body, Body::Spread(_));
                    if lie == Some(Lie::AnswersLate) && answer {
                        let late = nanos(self.settings.latency) * 2 * u64::from(LATE_ROUND_TRIPS);
                        self.push(busy + late, Happening::Send(node, Box::new(transmit)));
                    } else {
                        self.send(node, transmit, busy);
                    }
                }
                Output::Event(event) => self.heard(node, begins, event),
            }
        }
        self.check(node, begins, &tree);
        let deadline = tree.deadline().map(Instant::as_nanos);
        let found = &mut self.nodes[node as usize];
        found.tree = Some(tree);
        found.free = busy;
        if let Some(at) = deadline {
            let at = at.max(busy);
            if at < found.timer {
                found.timer = at;
                self.push(at, Happening::Timer(node));
            }
        }
    }

    /// The invariants of a machine after each input; checked as often as it costs little.
    fn check(&mut self, node: u32, at: u64, tree: &Tree<SimGuard>) {
        let unchecked = &mut self.nodes[node as usize].unchecked;
        *unchecked += 1;
        if *unchecked * CHECKED_A_STEP < tree.kept_items() {
            return;
        }
        *unchecked = 0;
        // The others follow from the first.
        if let Err(broken) = tree.check()
            && self.report.violations.is_empty()
        {
            let at = Duration::from_nanos(at);
            self.violation(format!("node {node} after {at:?}: {broken}"));
        }
    }

    fn send(&mut self, from: u32, transmit: Transmit, sent: u64) {
        let settings = self.settings;
        let to = node(&transmit.key);
        let bytes = u64::from(transmit.message.wire_bytes());
        self.report.messages += 1;
        self.report.bytes += bytes;
        // A hop tag authenticates the sender; without authentication any node can impersonate
        // another.
        let (topic, version) = (transmit.message.topic(), transmit.message.version());
        let claimed = transmit.message.from;
        // A sink that joined after a version has no number in it.
        let honest = claimed >= SOURCE - 1 || self.listed(topic, version, claimed) == Some(from);
        debug_assert!(!settings.authenticated || honest);
        if let Body::Spread(spread) = &transmit.message.body
            && self.nodes[to as usize].flaky
            && spread.end - spread.first > 1
            && let Some(truth) = self.truths.get_mut(&spread.event.id())
        {
            truth.flaky_heads += 1;
        }
        if self.nodes[from as usize].away || self.nodes[to as usize].away {
            self.report.lost += 1;
            return;
        }
        let apart = self.nodes[from as usize].cut_off != self.nodes[to as usize].cut_off;
        let (from_when, until) = settings.cut;
        if apart && (nanos(from_when)..nanos(until)).contains(&sent) {
            self.report.lost += 1;
            return;
        }
        if settings.loss > 0.0 && self.random.f64() < settings.loss {
            self.report.lost += 1;
            return;
        }
        let mut at = sent + nanos(settings.latency);
        if !settings.jitter.is_zero() {
            at += self.random.u64(..=nanos(settings.jitter));
        }
        if let Some(rate) = settings.port_rate_bytes_per_s {
            let port = &mut self.nodes[to as usize].port_free;
            let waits = port.saturating_sub(at);
            let waiting = waits / 1_000 * rate / 1_000_000;
            if waiting + bytes + 46 > settings.port_queue_bytes {
                self.report.dropped += 1;
                self.report.port_dropped += 1;
                return;
            }
            self.report.port_queue_max = self.report.port_queue_max.max(waiting + bytes + 46);
            *port = (*port).max(at) + (bytes + 46) * 1_000_000_000 / rate.max(1);
            at = *port;
        }
        if self.nodes[to as usize].dead {
            return;
        }
        self.push(at, Happening::Arrive(to, Box::new(transmit.message)));
    }

    fn heard(&mut self, node: u32, at: u64, event: TreeEvent) {
        match event {
            TreeEvent::Published(id) => {
                let source = (node - self.settings.sinks) as usize;
                let truth = Truth {
                    happened: self.offers[source].happened,
                    delivered: vec![0; self.settings.sinks as usize],
                    flaky_heads: 0,
                    outcome: None,
                };
                self.truths.insert(id, truth);
            }
            TreeEvent::Delivered { event, .. } => {
                self.report.counters.delivered += 1;
                let body = event.body().iter().all(|byte| *byte == 0xE5);
                let Some(truth) = self.truths.get_mut(&event.id()).filter(|_| body) else {
                    self.violation(format!(
                        "sink {node} was given an event that nobody published"
                    ));
                    return;
                };
                let delivered = &mut truth.delivered[node as usize];
                if *delivered != 0 {
                    self.violation(format!("sink {node} was given {:?} twice", event.id()));
                    return;
                }
                // An event at the very beginning would look like none.
                *delivered = at.max(1);
            }
            TreeEvent::Outcome(mut outcome) => {
                self.learn(node, at, &mut outcome);
                if !self.truths.contains_key(&outcome.id) {
                    // Heartbeats are not judged.
                    return;
                }
                self.became_known(node, at, &outcome);
                self.report
                    .known
                    .push(Duration::from_nanos(nanos(outcome.took)));
                self.report.failed += outcome.failed.len() as u64;
                self.report.unknown += outcome.unknown.len() as u64;
                self.report.lies += u64::from(outcome.lies);
                if let Some(truth) = self.truths.get_mut(&outcome.id) {
                    for sink in 0..self.settings.sinks {
                        // At this moment, not later.
                        if outcome.delivered(sink) && truth.delivered[sink as usize] == 0 {
                            let what = format!("{:?} is not delivered to sink {sink}", outcome.id);
                            self.report.violations.push(what);
                            break;
                        }
                    }
                    truth.outcome = Some(Box::new(outcome));
                }
            }
            TreeEvent::Refused(error) | TreeEvent::NotPublished { error, .. } => {
                self.violation(format!("node {node}: {error}"))
            }
            _ => {}
        }
    }

    /// The source's arranger learns the outcome of an event, whose sinks had the numbers of their
    /// nodes then.
    fn learn(&mut self, source: u32, at: u64, outcome: &mut Outcome) {
        if self.settings.order == Order::AsListed {
            return;
        }
        let lists = &mut self.lists[(source - self.settings.sinks) as usize];
        let Some(list) = lists.of(outcome.version).map(Arc::clone) else {
            return;
        };
        lists.arranger.learn(&list, outcome);
        for numbers in [&mut outcome.failed, &mut outcome.unknown] {
            for number in numbers.iter_mut() {
                *number = list.sink(*number).map_or(*number, |sink| node(&sink.key));
            }
            numbers.sort_unstable();
        }
        self.push(at, Happening::Arrange(source));
    }

    /// The source's pacer learns the outcome of an event, and the next may be sent.
    fn became_known(&mut self, node: u32, at: u64, outcome: &Outcome) {
        let offers = &mut self.offers[(node - self.settings.sinks) as usize];
        let Some(pacer) = &mut offers.pacer else {
            return;
        };
        let measured = outcome.failed.is_empty() && outcome.unknown.is_empty();
        pacer.known(Instant::from_nanos(at), outcome.id.sequence, measured);
        if !offers.waiting.is_empty() {
            offers.wake = at;
            self.push(at, Happening::Offer(node));
        }
    }

    fn violation(&mut self, what: String) {
        self.report.violations.push(what);
    }

    fn judge(&mut self, crashing: &[u32]) {
        let mut whole: Vec<bool> = self
            .nodes
            .iter()
            .map(|it| !it.dead && it.lie.is_none() && !it.cut_off && !it.flaky)
            .collect();
        for sink in crashing {
            whole[*sink as usize] = false;
        }
        let mut violations = Vec::new();
        let mut events: Vec<_> = self.truths.iter().collect();
        events.sort_by_key(|(id, _)| **id);
        for (id, truth) in events {
            let delivered = truth.delivered.iter().filter(|at| **at > 0);
            let mut times: Vec<Duration> = delivered
                .map(|at| Duration::from_nanos(at.saturating_sub(truth.happened)))
                .collect();
            times.sort_unstable();
            self.report.arrivals.push(times);
            if self.settings.critical > 0.0 {
                let with = truth.delivered.iter().zip(&self.nodes);
                let critical = with.filter(|(at, node)| **at > 0 && node.critical);
                let times = critical.map(|(at, _)| at.saturating_sub(truth.happened));
                let mut times: Vec<_> = times.map(Duration::from_nanos).collect();
                times.sort_unstable();
                self.report.critical.push(times);
            }
            self.report.flaky_heads.push(truth.flaky_heads);
            let Some(outcome) = &truth.outcome else {
                violations.push(format!("{id:?} has no outcome after T"));
                continue;
            };
            let left = (0..self.settings.sinks).filter(|sink| whole[*sink as usize]);
            let left: Vec<u32> = left
                .filter(|sink| truth.delivered[*sink as usize] == 0 || !outcome.delivered(*sink))
                .collect();
            if let Some(first) = left.first() {
                violations.push(format!(
                    "{id:?}: {} live, connected sinks are left out or not known, the first is {first}; \
                     {} failed, {} unknown",
                    left.len(),
                    outcome.failed.len(),
                    outcome.unknown.len()
                ));
            }
        }
        self.report.violations.append(&mut violations);
        let delivered = self.report.counters.delivered;
        let mut sum = Counters::default();
        for tree in self.nodes.iter().filter_map(|node| node.tree.as_ref()) {
            let of = tree.counters();
            sum.forged += of.forged;
            sum.misdirected += of.misdirected;
            sum.unasked += of.unasked;
            sum.lies += of.lies;
            sum.overloaded += of.overloaded;
            sum.repairs_refused += of.repairs_refused;
            sum.unverified += of.unverified;
            sum.spread += of.spread;
            sum.repeated += of.repeated;
            sum.taken_over += of.taken_over;
            sum.late += of.late;
            sum.old += of.old;
            sum.duplicates += of.duplicates;
            sum.not_stored += of.not_stored;
        }
        sum.delivered = delivered;
        self.report.counters = sum;
    }
}
