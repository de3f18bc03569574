//! A few real machines that exchange real datagrams, sealed and opened, on a virtual clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::Key;
use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_notification_tree::{
    Command, Config, Contact, Guard, Keys, Membership, Outcome, Tree, TreeEvent, Window,
};

/// The topic of all tests.
pub(crate) const TOPIC: u64 = 0xC0FFEE;
/// The time that a datagram takes.
const LATENCY: Duration = Duration::from_micros(500);

/// What is done to a datagram on its way: from, to, bytes; `false`: it is lost.
pub(crate) type Tamper = Box<dyn FnMut(usize, usize, &mut Vec<u8>) -> bool>;

/// Sinks from 0, and the source behind them.
pub(crate) struct Net<G> {
    pub(crate) nodes: Vec<Tree<G>>,
    pub(crate) contacts: Vec<Contact>,
    pub(crate) now: Instant,
    pub(crate) delivered: Vec<Vec<Vec<u8>>>,
    pub(crate) events: Vec<(usize, TreeEvent)>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) tamper: Tamper,
    /// Whether a node can store what it has seen.
    pub(crate) keeps: Box<dyn FnMut(usize) -> bool>,
    pub(crate) bytes_from: Vec<u64>,
    way: VecDeque<(Instant, usize, usize, Vec<u8>)>,
}

/// The keys of a node of a test.
pub(crate) fn keys(number: u8) -> Keys {
    Keys::new(Key::from_seed([number; 32]))
}

/// `sinks` sinks and a source with real keys; the list travels inside events when `inline`.
pub(crate) fn keyed(sinks: u8, config: Config, inline: bool) -> Net<Keys> {
    let config = Arc::new(Config { inline, ..config });
    let contact = |number: u8| Contact {
        address: ([127, 0, 0, 1], 5_000 + u16::from(number)).into(),
        key: keys(number + 1).public(),
    };
    let contacts: Vec<Contact> = (0..=sinks).map(contact).collect();
    let node = |number: u8| {
        let contact = contacts[usize::from(number)];
        Tree::new(
            Arc::clone(&config),
            contact,
            keys(number + 1),
            u64::from(number),
        )
    };
    let nodes: Vec<_> = (0..=sinks).map(node).collect();
    let count = nodes.len();
    let mut net = Net {
        nodes,
        contacts: contacts.clone(),
        now: Instant::ZERO,
        delivered: vec![Vec::new(); count],
        events: Vec::new(),
        outcomes: Vec::new(),
        tamper: Box::new(|_, _, _| true),
        keeps: Box::new(|_| true),
        bytes_from: vec![0; count],
        way: VecDeque::new(),
    };
    let list = contacts[..usize::from(sinks)].to_vec();
    let membership = Arc::new(Membership::new(TOPIC, 1, list).expect("apart"));
    let source = usize::from(sinks);
    let at = contacts[source];
    for sink in 0..source {
        let window = Window::default();
        net.command(
            sink,
            Command::Subscribe {
                topic: TOPIC,
                source: at,
                window,
            },
        );
        if !inline {
            let membership = Arc::clone(&membership);
            net.command(
                sink,
                Command::Membership {
                    membership,
                    number: None,
                },
            );
        }
    }
    net.command(
        source,
        Command::Publisher {
            membership,
            boot: 1,
        },
    );
    net
}

impl<G: Guard> Net<G> {
    /// The source.
    pub(crate) fn source(&self) -> usize {
        self.nodes.len() - 1
    }

    pub(crate) fn command(&mut self, node: usize, command: Command) {
        self.input(node, Input::Command(command));
    }

    pub(crate) fn publish(&mut self, body: &[u8]) {
        let source = self.source();
        let publish = Command::Publish {
            topic: TOPIC,
            body: body.to_vec(),
            deadline: None,
        };
        self.command(source, publish);
    }

    /// Puts a datagram on the way to a node.
    pub(crate) fn inject(&mut self, from: usize, to: usize, datagram: Vec<u8>) {
        self.way.push_back((self.now + LATENCY, from, to, datagram));
    }

    fn input(&mut self, node: usize, input: Input<chappe_notification_tree::Message, Command>) {
        self.nodes[node].handle_input(self.now, input);
        while let Some(output) = self.nodes[node].poll_output() {
            match output {
                Output::Transmit(transmit) => {
                    let mut datagram = Vec::new();
                    self.nodes[node].seal(&transmit, &mut datagram);
                    self.bytes_from[node] += datagram.len() as u64;
                    let to = self
                        .contacts
                        .iter()
                        .position(|it| it.address == transmit.address);
                    let to = to.expect("an address of the list");
                    if (self.tamper)(node, to, &mut datagram) {
                        self.inject(node, to, datagram);
                    }
                }
                Output::Event(TreeEvent::Delivered { event, .. }) => {
                    self.delivered[node].push(event.body().to_vec());
                }
                Output::Event(TreeEvent::Outcome(outcome)) => self.outcomes.push(outcome),
                Output::Event(event) => {
                    if matches!(event, TreeEvent::Remember { .. }) && !(self.keeps)(node) {
                        self.nodes[node].reject_window();
                    } else {
                        self.events.push((node, event));
                    }
                }
            }
        }
        if let Err(broken) = self.nodes[node].check() {
            panic!("node {node} at {:?}: {broken}", self.now);
        }
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let timer = self.nodes.iter().enumerate();
            let timer = timer
                .filter_map(|(node, tree)| Some((tree.deadline()?, node)))
                .min();
            let arrival = self.way.front().map(|(at, ..)| *at);
            match (timer, arrival) {
                (timer, Some(at)) if at <= end && timer.is_none_or(|(timer, _)| at <= timer) => {
                    let Some((at, _, to, datagram)) = self.way.pop_front() else {
                        return;
                    };
                    self.now = at.max(self.now);
                    if let Ok(message) = self.nodes[to].open(self.now, &datagram) {
                        self.input(to, Input::Receive(message));
                    }
                }
                (Some((at, node)), _) if at <= end => {
                    self.now = at.max(self.now);
                    self.input(node, Input::Timeout);
                }
                _ => break,
            }
        }
        self.now = end;
    }
}
