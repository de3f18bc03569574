//! Real datagrams between real sockets of one process, with keys, on links emulated in user space.
//!
//! Each node has a UDP socket on loopback and the product's machine with all its keys. A
//! message is held back for the send cost of a small device (one after the other for each node) and
//! the latency, then goes through the kernel to the other socket. With a latency of 5 ms and more one
//! processor has time for all nodes; where half of hundreds of sinks look at a signature in the same moment, both
//! times are longer, in the same proportion. An event during which the emulator itself was
//! late, because others wanted the processors, does not count.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use chappe_identity::Key;
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::schedule::{Cost, completion};
use chappe_notification_tree::{
    Choice, Command, Config, Contact, DATAGRAM_BYTES_MAX, Happened, Keys, Membership, Message,
    Outcome, Plan, Tree, Window,
};

use crate::{Bound, Error, Report, Settings};

/// How many sinks, and how many times as long as the least all times are.
const SIZES: [(usize, u32); 4] = [(5, 1), (18, 1), (100, 20), (500, 100)];
/// The least times: `o` and `L`.
const SEND_COST: Duration = Duration::from_micros(200);
const LATENCY: Duration = Duration::from_millis(5);
/// Events of one measurement that count.
const EVENTS: usize = 5;
/// Events after which a measurement is given up, and fewer of which are none.
const EVENTS_TRIED: usize = 40;
const EVENTS_LEAST: usize = 3;
/// How late the emulator may be in an event that counts, with the least times.
const LATE_MAX: Duration = Duration::from_micros(250);
/// Longer nobody waits for an event.
const EVENT_MAX: Duration = Duration::from_secs(60);
/// What is left of a wait is spent looking at the clock: a sleep may take that much longer.
const SPIN: Duration = Duration::from_micros(150);
const TOPIC: u64 = 1;

struct Node {
    socket: UdpSocket,
    tree: Tree<Keys>,
    /// When the emulated processor has done its sends.
    free: Instant,
    timer: Option<Instant>,
}

/// When, which, from and to whom, and what.
type Underway = (Instant, u64, usize, SocketAddr, Vec<u8>);

struct Network {
    nodes: Vec<Node>,
    /// What is on emulated links.
    links: BinaryHeap<Reverse<Underway>>,
    cost: Cost,
    sent: u64,
    loss: f64,
    random: fastrand::Rng,
    began: Clock,
    places: std::collections::HashMap<SocketAddr, usize>,
    arrivals: Vec<Duration>,
    published: Instant,
    outcome: Option<Outcome>,
    /// How late the emulator was at worst in this event.
    late: Duration,
    wrong: u64,
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
    fn new(sinks: usize, plan: Choice, cost: Cost, loss: f64, seed: u64) -> Result<Self, Error> {
        let config = Config {
            plan,
            inline: false,
            send_cost: cost.send,
            latency: cost.delay,
            timeout_floor: 2 * cost.delay,
            source_attempts: 8,
            within: Duration::from_secs(20).max(400 * cost.delay),
            ..Config::default()
        };
        let config = Arc::new(config);
        let mut nodes = Vec::new();
        let mut contacts = Vec::new();
        let mut places = std::collections::HashMap::new();
        for number in 0..=sinks {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("binding"))?;
            socket
                .set_nonblocking(true)
                .map_err(Error::io("a socket that does not block"))?;
            let keys = Keys::new(key(number));
            let at = contact(&socket, &keys)?;
            places.insert(at.address, number);
            contacts.push(at);
            let tree = Tree::new(Arc::clone(&config), at, keys, seed + number as u64);
            nodes.push(Node {
                socket,
                tree,
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
            links: BinaryHeap::new(),
            cost,
            sent: 0,
            loss,
            random: fastrand::Rng::with_seed(seed),
            began: Clock::now(),
            places,
            arrivals: Vec::new(),
            published: Instant::ZERO,
            outcome: None,
            late: Duration::ZERO,
            wrong: 0,
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
        let now = self.now();
        self.nodes[node].tree.handle_input(now, input);
        self.nodes[node].free = self.nodes[node].free.max(now);
        while let Some(output) = self.nodes[node].tree.poll_output() {
            match output {
                Output::Transmit(transmit) => {
                    let mut datagram = Vec::with_capacity(DATAGRAM_BYTES_MAX);
                    self.nodes[node].tree.seal(&transmit, &mut datagram);
                    self.nodes[node].free += self.cost.send;
                    self.sent += 1;
                    if self.random.f64() < self.loss {
                        continue;
                    }
                    let at = self.nodes[node].free + self.cost.delay;
                    let number = self.sent;
                    self.links
                        .push(Reverse((at, number, node, transmit.address, datagram)));
                }
                Output::Event(Happened::Delivered { .. }) => {
                    self.arrivals.push(now.saturating_since(self.published));
                }
                Output::Event(Happened::Outcome(outcome)) => self.outcome = Some(outcome),
                Output::Event(_) => {}
            }
        }
        self.nodes[node].timer = self.nodes[node].tree.deadline();
    }

    /// Passes on what has reached the end of its link. The kernel delivers over loopback before the
    /// call that sends is back, so the receiver is asked at once.
    fn step(&mut self) -> Result<(), Error> {
        let now = self.now();
        while self
            .links
            .peek()
            .is_some_and(|Reverse((at, ..))| *at <= now)
        {
            let Some(Reverse((at, _, from, to, datagram))) = self.links.pop() else {
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
                if let Ok(message) = self.nodes[place].tree.open(&buffer[..length]) {
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
        let arrival = self.links.peek().map(|Reverse((at, ..))| *at);
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

    /// One event, until its outcome is known: when the last sink had it.
    fn event(&mut self, body: &[u8]) -> Result<Duration, Error> {
        let source = self.nodes.len() - 1;
        self.arrivals.clear();
        self.outcome = None;
        self.late = Duration::ZERO;
        self.published = self.now();
        let publish = Command::Publish {
            topic: TOPIC,
            body: body.to_vec(),
            deadline: None,
        };
        self.input(source, Input::Command(publish));
        let begun = Clock::now();
        while self.outcome.is_none() {
            if begun.elapsed() > EVENT_MAX {
                return Err(Error::Failed("an event has no outcome".to_owned()));
            }
            self.step()?;
            self.wait();
        }
        let outcome = self.outcome.as_ref();
        let said = outcome.map_or(0, |it| {
            it.sinks as usize - it.failed.len() - it.unknown.len()
        });
        if said > self.arrivals.len() || self.arrivals.len() != source {
            self.wrong += 1;
        }
        Ok(self.arrivals.iter().max().copied().unwrap_or_default())
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
    let capped = |cap| Plan::measured(nanos(SEND_COST), nanos(LATENCY), cap);
    let plans = [
        ("sequential with responses", Plan::SequentialWaiting),
        ("sequential", Plan::Sequential),
        ("two halves", Plan::TwoHalves),
        ("binomial", Plan::Binomial),
        ("postal", capped(chappe_notification_tree::CAP)),
    ];
    let (mut worst, mut wrong, mut judged): (f64, u64, u32) = (0.0, 0, 0);
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
            let mut network = Network::new(sinks, Choice::Fixed(plan), cost, 0.0, bench.seed)?;
            let (mut times, mut late) = (Vec::new(), Duration::ZERO);
            // Of every sink, of the events that count.
            let mut all = Vec::new();
            for tried in 0..EVENTS_TRIED {
                let took = network.event(b"the value has changed to 21.5 degrees")?;
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
            if times.len() < EVENTS_LEAST {
                let what = format!("{row}: the processors were busy with others");
                report.skipped.push(what);
                continue;
            }
            times.sort_unstable();
            let median = times[times.len() / 2];
            let count = u32::try_from(sinks).unwrap_or(u32::MAX);
            let best = completion(plan, count, cost);
            let ratio = median.as_secs_f64() / best.as_secs_f64();
            all.sort_unstable();
            let rank = (all.len() * 999).div_ceil(1_000).saturating_sub(1);
            let tail = all.get(rank).copied().unwrap_or_default();
            let note = format!(
                "median of {}; o {:?}, L {:?}; {median:?}, {ratio:.3} of the model; p99.9 of {} arrivals {tail:?}; \
                 emulator late by {late:?} at most",
                times.len(),
                cost.send,
                cost.delay,
                all.len(),
            );
            report.row(
                &row,
                median.as_secs_f64() / cost.send.as_secs_f64(),
                "o",
                note,
            );
            if name == "postal" {
                judged += 1;
                worst = worst.max(ratio);
            }
        }
    }
    (bench.progress)("emulated links: 100 sinks, measured plan, 5 % lost");
    let mut network = Network::new(100, Choice::Measured { cap: 128 }, least, 0.05, bench.seed)?;
    let mut times = Vec::new();
    for _ in 0..EVENTS * 4 {
        times.push(network.event(b"the value has changed to 21.5 degrees")?);
    }
    wrong += network.wrong;
    report.times(
        "emulated links, 100 sinks, 5 % lost",
        "last sink; o 200 us, L 5 ms",
        &times,
    );
    let name = "time to the last sink over the capped optimum, worst median, emulated links";
    if judged > 0 {
        report.target(name, worst, Bound::AtMost(1.05), "");
    }
    let name = "events on emulated links that did not reach all, or of which more was said";
    report.target(name, wrong as f64, Bound::AtMost(0.0), "");
    Ok(())
}
