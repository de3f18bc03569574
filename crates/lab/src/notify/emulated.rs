//! Real datagrams between real sockets of one process, with keys, on links emulated in user space.
//!
//! Each node has a UDP socket on loopback and the product's machine with all its keys. A message is
//! delayed by the send cost of a small device (one after another for each node) and the latency,
//! then goes through the kernel to the other socket. With a latency of at least 5 ms one processor
//! has time for all nodes; if half of hundreds of sinks verify a signature at the same moment, both
//! times are longer, in the same proportion. An event during which the emulator itself was late,
//! because other programs used the processors, does not count.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use chappe_identity::Key;
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::schedule::{Cost, completion};
use chappe_notification_tree::{
    CAP, Choice, Command, Config, Contact, DATAGRAM_BYTES_MAX, Keys, Membership, Message, Outcome,
    Plan, Tree, TreeEvent, Window,
};
use chappe_sim::Distribution;
use chappe_sim::network::Queue;

use crate::{Error, Limit, Reference, Report, Settings};

/// Numbers of sinks, and the factor by which all times exceed the minimum.
const SIZES: [(usize, u32); 4] = [(5, 1), (18, 1), (100, 20), (500, 100)];
/// The minimum times: `o` and `L`.
const SEND_COST: Duration = Duration::from_micros(200);
const LATENCY: Duration = Duration::from_millis(5);
/// Events of one measurement that count.
const EVENTS: usize = 5;
/// Number of events after which a measurement is given up, and below which it is invalid.
const EVENTS_TRIED: usize = 40;
const EVENTS_LEAST: usize = 3;
/// Maximum delay of the emulator in a valid event, with the minimum times.
const LATE_MAX: Duration = Duration::from_micros(250);
/// Maximum wait for an event.
const EVENT_MAX: Duration = Duration::from_secs(60);
/// The end of a wait is spent polling the clock: a sleep may take this much longer.
const SPIN: Duration = Duration::from_micros(150);
const TOPIC: u64 = 1;
/// The plan of a source without a setting.
const MEASURED: Choice = Choice::Measured { cap: CAP };

/// Links with dead sinks: number of sinks, factor of all times, `T`, and number of networks.
const DEAD_SIZES: [(usize, u32, Duration, u64); 2] = [
    (100, 20, Duration::from_secs(12), 3),
    (500, 100, Duration::from_secs(40), 1),
];
/// Shares of dead sinks.
const DEAD: [f64; 3] = [0.0, 0.01, 0.1];

/// The settings of a network.
#[derive(Clone, Copy)]
struct Setup {
    sinks: usize,
    plan: Choice,
    cost: Cost,
    loss: f64,
    /// The share of sinks whose process has ended: messages to them stay in their sockets.
    dead: f64,
    within: Duration,
    seed: u64,
}

impl Setup {
    fn new(sinks: usize, plan: Choice, cost: Cost, seed: u64) -> Self {
        Self {
            sinks,
            plan,
            cost,
            loss: 0.0,
            dead: 0.0,
            within: Duration::from_secs(20).max(400 * cost.delay),
            seed,
        }
    }
}

struct Node {
    socket: UdpSocket,
    tree: Tree<Keys>,
    dead: bool,
    /// The time when the emulated processor has finished its sends.
    free: Instant,
    timer: Option<Instant>,
}

/// A datagram on a link: its sender, its receiver and its bytes.
type Underway = (usize, SocketAddr, Vec<u8>);

struct Network {
    nodes: Vec<Node>,
    /// The messages on emulated links.
    links: Queue<Underway>,
    cost: Cost,
    loss: f64,
    random: fastrand::Rng,
    began: Clock,
    places: std::collections::HashMap<SocketAddr, usize>,
    arrivals: Vec<Duration>,
    published: Instant,
    outcome: Option<Outcome>,
    /// Maximum delay of the emulator in this event.
    late: Duration,
    wrong: u64,
    /// Events with a known outcome that were compared.
    judged: u64,
}

fn contact(socket: &UdpSocket, keys: &Keys) -> Result<Contact, Error> {
    Ok(Contact {
        address: socket
            .local_addr()
            .map_err(Error::io("asking for an address"))?,
        key: keys.public(),
    })
}

fn key(number: usize) -> Key {
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Key::from_seed(seed)
}

impl Network {
    fn new(setup: &Setup) -> Result<Self, Error> {
        let Setup {
            sinks, cost, seed, ..
        } = *setup;
        let config = Config {
            plan: setup.plan,
            inline: false,
            send_cost: cost.send,
            latency: cost.delay,
            timeout_floor: 2 * cost.delay,
            source_attempts: 8,
            within: setup.within,
            ..Config::default()
        };
        let config = Arc::new(config);
        let mut random = fastrand::Rng::with_seed(seed);
        // Never all of them.
        let dead = (sinks as f64 * setup.dead).round() as usize;
        let mut order: Vec<usize> = (0..sinks).collect();
        random.shuffle(&mut order);
        let dead = &order[..dead.min(sinks.saturating_sub(1))];
        let mut nodes = Vec::new();
        let mut contacts = Vec::new();
        let mut places = std::collections::HashMap::new();
        for number in 0..=sinks {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("binding"))?;
            socket
                .set_nonblocking(true)
                .map_err(Error::io("making a socket non-blocking"))?;
            let keys = Keys::new(key(number));
            let at = contact(&socket, &keys)?;
            places.insert(at.address, number);
            contacts.push(at);
            let tree = Tree::new(Arc::clone(&config), at, keys, seed + number as u64);
            nodes.push(Node {
                socket,
                tree,
                dead: dead.contains(&number),
                free: Instant::ZERO,
                timer: None,
            });
        }
        let source = contacts[sinks];
        let list = contacts[..sinks].to_vec();
        let membership = Membership::new(TOPIC, 1, list).map_err(Error::failed("the list"))?;
        let membership = Arc::new(membership);
        let mut network = Self {
            nodes,
            links: Queue::default(),
            cost,
            loss: setup.loss,
            random,
            began: Clock::now(),
            places,
            arrivals: Vec::new(),
            published: Instant::ZERO,
            outcome: None,
            late: Duration::ZERO,
            wrong: 0,
            judged: 0,
        };
        for sink in 0..sinks {
            let window = Window::default();
            let topic = TOPIC;
            network.input(
                sink,
                Input::Command(Command::Subscribe {
                    topic,
                    source,
                    window,
                }),
            );
            let number = u32::try_from(sink).ok();
            let membership = Arc::clone(&membership);
            network.input(
                sink,
                Input::Command(Command::Membership { membership, number }),
            );
        }
        network.input(
            sinks,
            Input::Command(Command::Publisher {
                membership,
                boot: 1,
            }),
        );
        Ok(network)
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    fn input(&mut self, node: usize, input: Input<Message, Command>) {
        if self.nodes[node].dead {
            return;
        }
        let now = self.now();
        self.nodes[node].tree.handle_input(now, input);
        self.nodes[node].free = self.nodes[node].free.max(now);
        while let Some(output) = self.nodes[node].tree.poll_output() {
            match output {
                Output::Transmit(transmit) => {
                    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
                    self.nodes[node].tree.seal(&transmit, &mut datagram);
                    self.nodes[node].free += self.cost.send;
                    if self.random.f64() < self.loss {
                        continue;
                    }
                    let at = self.nodes[node].free + self.cost.delay;
                    self.links.put(at, (node, transmit.address, datagram));
                }
                Output::Event(TreeEvent::Delivered { .. }) => {
                    self.arrivals.push(now.saturating_since(self.published));
                }
                Output::Event(TreeEvent::Outcome(outcome)) => self.outcome = Some(outcome),
                Output::Event(_) => {}
            }
        }
        self.nodes[node].timer = self.nodes[node].tree.deadline();
    }

    /// Passes on messages that have reached the end of their link. The kernel delivers over
    /// loopback before the sending call returns, so the receiver is polled at once.
    fn step(&mut self) -> Result<(), Error> {
        let now = self.now();
        while self.links.next().is_some_and(|at| at <= now) {
            let Some((at, (from, to, datagram))) = self.links.take() else {
                break;
            };
            self.late = self.late.max(now.saturating_since(at));
            let socket = &self.nodes[from].socket;
            socket
                .send_to(&datagram, to)
                .map_err(Error::io("sending a datagram"))?;
            let Some(place) = self.places.get(&to).copied() else {
                continue;
            };
            let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
            while let Ok((length, _)) = self.nodes[place].socket.recv_from(&mut buffer) {
                if let Ok(message) = self.nodes[place].tree.open(now, &buffer[..length]) {
                    self.input(place, Input::Receive(message));
                }
            }
        }
        let now = self.now();
        for node in 0..self.nodes.len() {
            // The processor is busy with sends until then.
            let rings = |it: &Node| it.timer.is_some_and(|at| at <= now) && it.free <= now;
            if rings(&self.nodes[node]) {
                self.input(node, Input::Timeout);
            }
        }
        Ok(())
    }

    fn wait(&self) {
        let arrival = self.links.next();
        let timers = self
            .nodes
            .iter()
            .filter_map(|it| Some(it.timer?.max(it.free)));
        let next = arrival.into_iter().chain(timers).min();
        let left = next.map_or(SPIN, |at| at.saturating_since(self.now()));
        if left > SPIN {
            std::thread::sleep(left - SPIN);
        } else {
            std::hint::spin_loop();
        }
    }

    /// Runs one event until its outcome is known; returns when the last live sink had it.
    fn event(&mut self) -> Result<Duration, Error> {
        self.publish();
        while self.outcome.is_none() {
            self.go_on()?;
        }
        let live = self.live();
        let outcome = self.outcome.as_ref();
        let said = outcome.map_or(0, |it| {
            it.sinks as usize - it.failed.len() - it.unknown.len()
        });
        if said > self.arrivals.len() || self.arrivals.len() != live {
            self.wrong += 1;
        }
        self.judged += 1;
        Ok(self.arrivals.iter().max().copied().unwrap_or_default())
    }

    /// Runs one event until the last live sink has it.
    fn arrived(&mut self) -> Result<Duration, Error> {
        self.publish();
        while self.arrivals.len() < self.live() {
            self.go_on()?;
        }
        Ok(self.arrivals.iter().max().copied().unwrap_or_default())
    }

    /// The number of live sinks.
    fn live(&self) -> usize {
        self.nodes.iter().filter(|it| !it.dead).count() - 1
    }

    fn publish(&mut self) {
        let source = self.nodes.len() - 1;
        self.arrivals.clear();
        self.outcome = None;
        self.late = Duration::ZERO;
        self.published = self.now();
        let publish = Command::Publish {
            topic: TOPIC,
            body: b"the value has changed to 21.5 degrees".to_vec(),
            deadline: None,
        };
        self.input(source, Input::Command(publish));
    }

    fn go_on(&mut self) -> Result<(), Error> {
        if self.now() - self.published > EVENT_MAX {
            return Err(Error::Failed("an event did not end".to_owned()));
        }
        self.step()?;
        self.wait();
        Ok(())
    }
}

/// Runs the measurements.
pub(super) fn run(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    let least = Cost {
        send: SEND_COST,
        delay: LATENCY,
    };
    let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
    // With 5 ms and 200 us the optimum sends to 26 sinks directly; beyond, it is a tree.
    let postal = Plan::measured(nanos(SEND_COST), nanos(LATENCY), CAP);
    let plans = [
        ("sequential with responses", Plan::SequentialWaiting),
        ("sequential", Plan::Sequential),
        ("two halves", Plan::TwoHalves),
        ("binomial", Plan::Binomial),
        ("postal", postal),
    ];
    let (mut wrong, mut judged) = (0, 0);
    // The time of the postal plan and the model's, where their ratio is the largest.
    let mut worst: Option<(f64, f64)> = None;
    for (sinks, slower) in SIZES {
        let cost = Cost {
            send: SEND_COST * slower,
            delay: LATENCY * slower,
        };
        let late_max = LATE_MAX * slower;
        for (name, plan) in plans {
            if (plan == Plan::SequentialWaiting && sinks > 18) || (bench.quick && sinks > 100) {
                continue;
            }
            (bench.progress)(&format!("emulated links: {sinks} sinks, {name}"));
            let setup = Setup::new(sinks, Choice::Fixed(plan), cost, bench.seed);
            let mut network = Network::new(&setup)?;
            let (mut times, mut late) = (Vec::new(), Duration::ZERO);
            // Of every sink, for the valid events.
            let mut all = Vec::new();
            for tried in 0..EVENTS_TRIED {
                let took = network.event()?;
                // The first one meets cold caches, and keys that are not yet agreed.
                if tried > 0 && network.late <= late_max {
                    times.push(took);
                    all.extend_from_slice(&network.arrivals);
                    late = late.max(network.late);
                }
                if times.len() == EVENTS {
                    break;
                }
            }
            let row = format!("emulated links, {sinks} sinks, {name}");
            wrong += network.wrong;
            judged += network.judged;
            if times.len() < EVENTS_LEAST {
                let what = format!("{row}: the processors were busy with others");
                report.skipped.push(what);
                continue;
            }
            times.sort_unstable();
            let median = times[times.len() / 2];
            let count = u32::try_from(sinks).unwrap_or(u32::MAX);
            let best = completion(plan, count, cost);
            let ratio = median.div_duration_f64(best);
            all.sort_unstable();
            let tail = chappe_sim::percentile(&all, 99.9).unwrap_or_default();
            let note = format!(
                "median of {}; o {:?}, L {:?}; {median:?}, {ratio:.3} of the model; p99.9 of {} arrivals {tail:?}; \
                 emulator late by {late:?} at most",
                times.len(),
                cost.send,
                cost.delay,
                all.len(),
            );
            report.row(&row, median.div_duration_f64(cost.send), "o", note);
            if name == "postal" && worst.is_none_or(|(took, best)| ratio > took / best) {
                let of = |time: Duration| time.div_duration_f64(cost.send);
                worst = Some((of(median), of(best)));
            }
        }
    }
    (bench.progress)("emulated links: 100 sinks, measured plan, 5 % lost");
    let mut network = Network::new(&Setup {
        loss: 0.05,
        ..Setup::new(100, MEASURED, least, bench.seed)
    })?;
    let mut times = Vec::new();
    for _ in 0..EVENTS * 4 {
        times.push(network.event()?);
    }
    wrong += network.wrong;
    judged += network.judged;
    report.times(
        "emulated links, 100 sinks, 5 % lost",
        "last sink; o 200 us, L 5 ms",
        &times,
    );
    let name = "emulated links: time to the last sink, worst median";
    let busy = "the processors were busy with others".to_owned();
    let optimum = worst.map(|(_, best)| Reference::new("the capped optimum", best));
    let took = worst.map_or(0.0, |(took, _)| took);
    report.compare(name, (took, "o"), optimum.ok_or(busy), Limit::AtMost(1.05));
    judge(report, "emulated links", wrong, judged);
    Ok(())
}

/// Events that did not reach every live sink, or whose outcome claims more than arrived.
fn judge(report: &mut Report, links: &str, wrong: u64, judged: u64) {
    let name = format!("{links}: did not reach every live sink, or claimed more");
    let judged = Reference::new("judged", judged as f64);
    report.target(name, (wrong as f64, "events"), judged, Limit::AtMost(0.0));
}

/// Dead sinks: the time to the last live one, for the first event and for the third, by which the
/// dead ones are known.
pub(super) fn dead(bench: &Settings, report: &mut Report) -> Result<(), Error> {
    let (mut worst, mut worst_first): (f64, f64) = (0.0, 0.0);
    let (mut wrong, mut judged) = (0, 0);
    for (sinks, slower, within, networks) in DEAD_SIZES {
        if bench.quick && sinks > 100 {
            continue;
        }
        let cost = Cost {
            send: SEND_COST * slower,
            delay: LATENCY * slower,
        };
        let setup = Setup {
            within,
            ..Setup::new(sinks, MEASURED, cost, bench.seed)
        };
        let row = format!("emulated links, {sinks} sinks");
        (bench.progress)(&format!("{row}, two halves"));
        let mut network = Network::new(&Setup {
            plan: Choice::Fixed(Plan::TwoHalves),
            ..setup
        })?;
        // The first one meets cold caches, and keys that are not yet agreed.
        network.event()?;
        let halves = network.event()?;
        let note = format!("o {:?}, L {:?}; {halves:?}", cost.send, cost.delay);
        let in_send_costs = halves.div_duration_f64(cost.send);
        report.row(&format!("{row}, two halves"), in_send_costs, "o", note);
        for share in DEAD {
            let (mut first, mut third, mut late) = (Vec::new(), Vec::new(), Duration::ZERO);
            for number in 0..networks {
                (bench.progress)(&format!(
                    "{row}, {} % dead, network {number}",
                    share * 100.0
                ));
                let mut network = Network::new(&Setup {
                    dead: share,
                    seed: bench.seed + number,
                    ..setup
                })?;
                let of_halves = |took: Duration| took.div_duration_f64(halves);
                first.push(of_halves(network.event()?));
                late = late.max(network.late);
                network.event()?;
                third.push(of_halves(network.arrived()?));
                late = late.max(network.late);
                wrong += network.wrong;
                judged += network.judged;
            }
            let [first, third] = [first, third].map(Distribution::of);
            let median = |shares: &Distribution| shares.percentile(50.0);
            let note = format!(
                "third event, median of {networks} (worst {:.3}); first event {:.3} (worst {:.3}); \
                 emulator late by {late:?} at most",
                third.max(),
                median(&first),
                first.max(),
            );
            let row = format!("{row}, {} % dead", share * 100.0);
            report.row(&row, median(&third), "of two halves without failures", note);
            if share > 0.0 {
                worst = worst.max(median(&third));
                worst_first = worst_first.max(median(&first));
            }
        }
    }
    let name =
        "emulated links, 1 and 10 % dead, third event: time to the last live sink, worst median";
    let halves = Reference::new("two halves without failures", 1.0);
    report.target(name, (worst, ""), halves, Limit::AtMost(1.3));
    // Not judged: if a large part has a dead head it takes longer.
    let name = "the same, first event, not judged";
    report.row(
        name,
        worst_first,
        "of two halves without failures",
        "worst median",
    );
    judge(report, "emulated links with dead sinks", wrong, judged);
    Ok(())
}
