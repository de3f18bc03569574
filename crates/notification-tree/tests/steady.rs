//! The steady state allocates no memory.
//!
//! Goal: neither source nor sink allocates for an event once `history` events are kept, with the list inside and
//! without. An event that the application holds keeps its memory, and the pool replaces it.
//! Method: a counting allocator in front of the system's; it counts the machine only, not the test's network.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bounds::allocations;
use chappe_identity::Key;
use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::{
    Choice, Command, Config, Contact, Event, Keys, Membership, Plan, Tree, TreeEvent, Window,
};

const TOPIC: u64 = 5;
/// Sinks; the first one is the head of half of them.
const SINKS: usize = 8;
/// Allocations for an event that the application holds: its bytes and its reference count.
const HELD: usize = 2;

struct Net {
    nodes: Vec<Tree<Keys>>,
    contacts: Vec<Contact>,
    now: Instant,
    /// Allocations by the source, and by all sinks.
    counted: [usize; 2],
    delivered: usize,
    /// The events that the applications of the sinks hold.
    held: Vec<Arc<Event>>,
    holds: bool,
}

impl Net {
    fn new(inline: bool) -> Self {
        let keys = |number: usize| Keys::new(Key::from_seed([number as u8 + 1; 32]));
        let contact = |number: usize| Contact {
            address: ([127, 0, 0, 1], 5_000 + number as u16).into(),
            key: keys(number).public(),
        };
        let contacts: Vec<Contact> = (0..=SINKS).map(contact).collect();
        let config = Arc::new(Config {
            plan: Choice::Fixed(Plan::TwoHalves),
            inline,
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
            held: Vec::new(),
            holds: false,
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

    /// Passes a node a command.
    fn command(&mut self, node: usize, command: Command) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        self.count(node, |tree| tree.handle_input(now, Input::Command(command)));
        self.spread(node);
    }

    /// Delivers all datagrams that follow from a command.
    fn spread(&mut self, node: usize) {
        let mut in_transit: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
        self.outputs(node, &mut in_transit);
        while let Some((to, datagram)) = in_transit.pop_front() {
            self.now += Duration::from_micros(100);
            let now = self.now;
            self.count(to, |tree| {
                let message = tree.open(now, &datagram).expect("an authentic datagram");
                tree.handle_input(now, Input::Receive(message));
            });
            self.outputs(to, &mut in_transit);
        }
    }

    fn outputs(&mut self, node: usize, in_transit: &mut VecDeque<(usize, Vec<u8>)>) {
        let mut datagram = Vec::with_capacity(2_048);
        while let Some(output) = self.count(node, Tree::poll_output) {
            match output {
                Output::Transmit(transmit) => {
                    self.count(node, |tree| tree.seal(&transmit, &mut datagram));
                    let at = |it: &Contact| it.address == transmit.address;
                    let to = self.contacts.iter().position(at).expect("a node");
                    in_transit.push_back((to, datagram.clone()));
                }
                Output::Event(TreeEvent::Delivered { event, .. }) => {
                    self.delivered += 1;
                    if self.holds {
                        self.held.push(event);
                    }
                }
                Output::Event(_) => {}
            }
        }
    }

    /// The allocations of source and sinks for this many events.
    fn events(&mut self, count: usize) -> [usize; 2] {
        self.counted = [0; 2];
        for _ in 0..count {
            self.now += Duration::from_millis(1);
            let (now, body) = (self.now, [7; 100]);
            self.count(SINKS, |tree| tree.publish_borrowed(now, TOPIC, &body, None));
            self.spread(SINKS);
        }
        self.counted
    }
}

#[test]
fn an_event_allocates_nothing() {
    for inline in [false, true] {
        let mut net = Net::new(inline);
        // Until `history` events are kept.
        net.events(100);
        let counted = net.events(400);
        assert_eq!(net.delivered, 500 * SINKS);
        assert_eq!(counted, [0, 0], "inline {inline}");
    }
}

#[test]
fn a_held_event_keeps_its_memory() {
    let mut net = Net::new(false);
    net.events(100);
    net.holds = true;
    // Until the pooled memory is held, too.
    net.events(100);
    let counted = net.events(400);
    assert_eq!(counted, [0, 400 * SINKS * HELD]);
    assert_eq!(net.held.len(), 500 * SINKS);
    let body = |event: &Arc<Event>| event.body() == [7; 100];
    assert!(net.held.iter().all(body), "held events keep their content");
    let ids: Vec<_> = net.held.iter().map(|event| event.id().sequence).collect();
    assert_eq!((ids[0], ids[ids.len() - 1]), (101, 600));
}
