//! In the steady state an event costs a bounded number of allocations, however many came before.
//!
//! Goal: what a node asks of the allocator for one event is stated and does not grow. What is allocated is
//! what is kept for repair (the event, its job and parts) and the list where it travels inside.
//! Method: an allocator that counts in front of the system's; only what the machine does is counted,
//! not the test's own network.

mod unsafe_counting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chappe_identity::Key;
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::{
    Choice, Command, Config, Contact, Happened, Keys, Membership, Plan, Tree, Window,
};
use unsafe_counting::allocations;

const TOPIC: u64 = 5;
/// Sinks; the first is head of half of them.
const SINKS: usize = 8;
/// Allocations of the source for one event: its list of eight sinks is known; measured: 8.
const SOURCE_MAX: usize = 12;
/// Of all eight sinks together, which send it on by halves; measured: 44.
const SINKS_MAX: usize = 64;

struct Net {
    nodes: Vec<Tree<Keys>>,
    contacts: Vec<Contact>,
    now: Instant,
    /// Allocations by the source, and by all sinks.
    counted: [usize; 2],
    delivered: usize,
}

impl Net {
    fn new() -> Self {
        let keys = |number: usize| Keys::new(Key::from_seed([number as u8 + 1; 32]));
        let contact = |number: usize| Contact {
            address: ([127, 0, 0, 1], 5_000 + number as u16).into(),
            key: keys(number).public(),
        };
        let contacts: Vec<Contact> = (0..=SINKS).map(contact).collect();
        let config = Arc::new(Config {
            plan: Choice::Fixed(Plan::TwoHalves),
            inline: false,
            ..Config::default()
        });
        let node =
            |number: usize| Tree::new(Arc::clone(&config), contacts[number], keys(number), 1);
        let mut net = Self {
            nodes: (0..=SINKS).map(node).collect(),
            contacts: contacts.clone(),
            now: Instant::ZERO,
            counted: [0; 2],
            delivered: 0,
        };
        let list = Membership::new(TOPIC, 1, contacts[..SINKS].to_vec()).expect("apart");
        let membership = Arc::new(list);
        for sink in 0..SINKS {
            let (topic, source, window) = (TOPIC, contacts[SINKS], Window::default());
            net.command(
                sink,
                Command::Subscribe {
                    topic,
                    source,
                    window,
                },
            );
            let known = Arc::clone(&membership);
            net.command(
                sink,
                Command::Membership {
                    membership: known,
                    number: None,
                },
            );
        }
        net.command(
            SINKS,
            Command::Publisher {
                membership,
                boot: 1,
            },
        );
        net
    }

    fn count<T>(&mut self, node: usize, work: impl FnOnce(&mut Tree<Keys>) -> T) -> T {
        let before = allocations();
        let result = work(&mut self.nodes[node]);
        self.counted[usize::from(node != SINKS)] += allocations() - before;
        result
    }

    /// Gives a node a command, and lets all datagrams arrive that come of it.
    fn command(&mut self, node: usize, command: Command) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        let mut way: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
        self.count(node, |tree| tree.handle_input(now, Input::Command(command)));
        self.outputs(node, &mut way);
        while let Some((to, datagram)) = way.pop_front() {
            self.now += Duration::from_micros(100);
            let now = self.now;
            self.count(to, |tree| {
                let message = tree.open(&datagram).expect("nobody tampers");
                tree.handle_input(now, Input::Receive(message));
            });
            self.outputs(to, &mut way);
        }
    }

    fn outputs(&mut self, node: usize, way: &mut VecDeque<(usize, Vec<u8>)>) {
        let mut datagram = Vec::with_capacity(2_048);
        while let Some(output) = self.count(node, Tree::poll_output) {
            match output {
                Output::Transmit(transmit) => {
                    self.count(node, |tree| tree.seal(&transmit, &mut datagram));
                    let at = |it: &Contact| it.address == transmit.address;
                    let to = self.contacts.iter().position(at).expect("a node");
                    way.push_back((to, datagram.clone()));
                }
                Output::Event(Happened::Delivered { .. }) => self.delivered += 1,
                Output::Event(_) => {}
            }
        }
    }

    /// What so many events cost source and sinks.
    fn events(&mut self, count: usize) -> [usize; 2] {
        self.counted = [0; 2];
        for _ in 0..count {
            let (topic, body, deadline) = (TOPIC, vec![7; 100], None);
            self.command(
                SINKS,
                Command::Publish {
                    topic,
                    body,
                    deadline,
                },
            );
        }
        self.counted
    }
}

#[test]
fn an_event_costs_a_bounded_number_of_allocations() {
    let mut net = Net::new();
    // Until as many are kept as are kept at most.
    net.events(100);
    let first = net.events(200);
    let later = net.events(200);
    assert_eq!(net.delivered, 500 * SINKS);
    println!(
        "of 200 events: source {}, sinks {}; later {later:?}",
        first[0], first[1]
    );
    assert!(
        later[0] <= first[0] + 10 && later[1] <= first[1] + 10,
        "{first:?} {later:?}"
    );
    assert!(
        later[0] <= 200 * SOURCE_MAX,
        "source: {} of 200 events",
        later[0]
    );
    assert!(
        later[1] <= 200 * SINKS_MAX,
        "sinks: {} of 200 events",
        later[1]
    );
}
