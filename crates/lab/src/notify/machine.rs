//! A source and eight sinks in one thread, without sockets: the machine's cost of an event.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine, Output};
use chappe_notification_tree::{
    Choice, Command, Config, Contact, Guard, Membership, Plan, Tree, TreeEvent, Window,
};

use crate::Error;

/// Number of sinks; with two halves four of them are heads.
pub(super) const SINKS: usize = 8;
const TOPIC: u64 = 1;
/// Delay of a datagram on the virtual clock.
const WAY: Duration = Duration::from_micros(100);

/// Sinks from 0; the source is the last.
pub(super) struct Machines<G> {
    nodes: Vec<Tree<G>>,
    contacts: Vec<Contact>,
    now: Instant,
    way: VecDeque<(usize, Vec<u8>)>,
    /// Delivered datagrams whose memory is reused.
    spare: Vec<Vec<u8>>,
    delivered: usize,
}

impl<G: Guard> Machines<G> {
    /// Nodes with a guard each, which has a key; the list travels inside events when `inline`.
    pub(super) fn new(guard: impl Fn(u8) -> (G, [u8; 32]), inline: bool) -> Result<Self, Error> {
        let (guards, keys): (Vec<G>, Vec<_>) = (0..=SINKS as u8).map(guard).unzip();
        let contact = |(number, key): (u16, [u8; 32])| Contact {
            address: ([127, 0, 0, 1], 5_000 + number).into(),
            key,
        };
        let contacts: Vec<Contact> = (0..).zip(keys).map(contact).collect();
        let config = Arc::new(Config {
            plan: Choice::Fixed(Plan::TwoHalves),
            inline,
            ..Config::default()
        });
        let with = contacts.iter().zip(guards);
        let node =
            |(contact, guard): (&Contact, G)| Tree::new(Arc::clone(&config), *contact, guard, 1);
        let mut machines = Self {
            nodes: with.map(node).collect(),
            contacts,
            now: Instant::ZERO,
            way: VecDeque::new(),
            spare: Vec::new(),
            delivered: 0,
        };
        let list = Membership::new(TOPIC, 1, machines.contacts[..SINKS].to_vec());
        let membership = Arc::new(list.map_err(Error::failed("the list"))?);
        for sink in 0..SINKS {
            let (topic, source, window) = (TOPIC, machines.contacts[SINKS], Window::default());
            let subscribe = Command::Subscribe {
                topic,
                source,
                window,
            };
            let listed = Command::Membership {
                membership: Arc::clone(&membership),
                number: None,
            };
            for command in [subscribe, listed] {
                machines.nodes[sink].handle_input(machines.now, Input::Command(command));
            }
        }
        let boot = 1;
        let publisher = Command::Publisher { membership, boot };
        machines.nodes[SINKS].handle_input(machines.now, Input::Command(publisher));
        Ok(machines)
    }

    /// Publishes an event, and delivers all messages that follow.
    pub(super) fn event(&mut self, body: &[u8]) {
        self.now += WAY;
        self.nodes[SINKS].publish_borrowed(self.now, TOPIC, body, None);
        self.outputs(SINKS);
        while let Some((to, datagram)) = self.way.pop_front() {
            self.now += WAY;
            // A refused one shows as missing among the delivered ones.
            if let Ok(message) = self.nodes[to].open(self.now, &datagram) {
                self.nodes[to].handle_input(self.now, Input::Receive(message));
                self.outputs(to);
            }
            self.spare.push(datagram);
        }
    }

    /// Number of events delivered to a sink.
    pub(super) fn delivered(&self) -> usize {
        self.delivered
    }

    fn outputs(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].poll_output() {
            match output {
                Output::Transmit(transmit) => {
                    let at = |it: &Contact| it.address == transmit.address;
                    let Some(to) = self.contacts.iter().position(at) else {
                        continue;
                    };
                    let mut datagram = self.spare.pop().unwrap_or_default();
                    self.nodes[node].seal(&transmit, &mut datagram);
                    self.way.push_back((to, datagram));
                }
                Output::Event(TreeEvent::Delivered { .. }) => self.delivered += 1,
                Output::Event(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use chappe_identity::Key;
    use chappe_notification_tree::Keys;

    use super::*;

    #[test]
    fn each_sink_is_given_each_event_once() {
        let keyed = |number| {
            let keys = Keys::new(Key::from_seed([number; 32]));
            let key = keys.public();
            (keys, key)
        };
        for inline in [true, false] {
            let mut machines = Machines::new(keyed, inline).expect("apart");
            for event in 1..=40 {
                machines.event(&[7; 350]);
                assert_eq!(machines.delivered(), event * SINKS);
            }
        }
    }
}
