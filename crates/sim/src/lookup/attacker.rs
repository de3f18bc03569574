//! The nodes of the simulation: honest ones, and those of an attacker who knows all of theirs.
//!
//! A node of the attacker takes part as others do, so that it gets into tables. But its answers to
//! lookups name only the attacker's nodes, the nearest of them; it accepts records and drops them;
//! and asked for records it has none.

use std::rc::Rc;

use chappe_identity::PublicKey;
use chappe_kad::message::{Packet, Verdict};
use chappe_kad::{Body, Command, Contact, Cryptography, Datagram, Event, Kad, Key};
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use super::ideal::Ideal;
use super::world::{address_of, node_of};
use crate::network::{Node, Wire};

/// Bytes of the headers of IPv4 and UDP, which links carry too.
const HEADERS_BYTES: u32 = 28;

/// The attacker's nodes, by place.
pub(super) type Accomplices = Rc<Vec<(Key, Contact)>>;

/// One node.
pub(super) enum Actor {
    Honest(Box<Kad<Ideal>>),
    Sybil(Box<Sybil>),
}

/// A node of the attacker.
pub(super) struct Sybil {
    kad: Kad<Ideal>,
    cryptography: Ideal,
    accomplices: Accomplices,
    answers: Vec<Datagram>,
}

impl Sybil {
    pub(super) fn new(kad: Kad<Ideal>, cryptography: Ideal, accomplices: Accomplices) -> Self {
        Self {
            kad,
            cryptography,
            accomplices,
            answers: Vec::new(),
        }
    }

    /// Learns contacts, as honest nodes do.
    pub(super) fn recall(&mut self, now: Instant, contacts: Vec<Contact>) {
        self.kad.recall(now, contacts);
    }

    /// The attacker's nodes nearest to a target.
    fn nearest(&self, target: Key, count: usize) -> Vec<Contact> {
        let all = &self.accomplices;
        let at = all.partition_point(|(place, _)| *place < target);
        // The nearest by XOR share the most bits and are adjacent in order; two hundred of them
        // include nearly all.
        let near = &all[at.saturating_sub(100)..(at + 100).min(all.len())];
        let mut near: Vec<_> = near.to_vec();
        near.sort_by_key(|(place, _)| place.distance(target));
        near.truncate(count);
        near.iter().map(|(_, contact)| *contact).collect()
    }

    /// The answer to a request where the attacker deviates from the protocol.
    fn answer(&self, datagram: &Datagram) -> Option<Datagram> {
        let (asked, _, _) = Packet::read(&datagram.bytes).ok()?;
        let body = match asked.body {
            Body::Find { target, count, .. } => {
                Body::Contacts(self.nearest(target, usize::from(count)))
            }
            Body::Store { .. } => Body::Stored(Verdict::Kept),
            Body::Ask { .. } => Body::Records {
                held: 0,
                split: false,
                records: Vec::new(),
            },
            _ => return None,
        };
        let packet = Packet {
            sender: self.cryptography.public(),
            client: false,
            please: false,
            number: asked.number,
            token: 1,
            certificate: None,
            body,
        };
        let mut bytes = Vec::new();
        packet.write(&mut bytes);
        let secret = self.cryptography.agree(&asked.sender)?;
        let tag = self
            .cryptography
            .tag(&secret, &[asked.sender.as_bytes(), &bytes]);
        bytes.extend_from_slice(&tag);
        let address = datagram.address;
        Some(Datagram { address, bytes })
    }
}

impl Actor {
    pub(super) fn kad(&self) -> &Kad<Ideal> {
        match self {
            Self::Honest(kad) => kad,
            Self::Sybil(sybil) => &sybil.kad,
        }
    }

    pub(super) fn public(&self) -> PublicKey {
        Ideal::at(self.kad().place()).public()
    }
}

impl Machine for Actor {
    type Receive = Datagram;
    type Command = Command;
    type Transmit = Datagram;
    type Event = Event;

    fn handle_input(&mut self, now: Instant, input: Input<Datagram, Command>) {
        match self {
            Self::Honest(kad) => {
                kad.handle_input(now, input);
                if cfg!(debug_assertions)
                    && let Err(broken) = kad.check()
                {
                    panic!("at {now:?}: {broken}");
                }
            }
            Self::Sybil(sybil) => match &input {
                Input::Receive(datagram) => match sybil.answer(datagram) {
                    Some(answer) => sybil.answers.push(answer),
                    None => sybil.kad.handle_input(now, input),
                },
                _ => sybil.kad.handle_input(now, input),
            },
        }
    }

    fn poll_output(&mut self) -> Option<Output<Datagram, Event>> {
        match self {
            Self::Honest(kad) => kad.poll_output(),
            Self::Sybil(sybil) => match sybil.answers.pop() {
                Some(answer) => Some(Output::Transmit(answer)),
                None => sybil.kad.poll_output(),
            },
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.kad().deadline()
    }
}

impl Wire for Actor {
    type Payload = Rc<Vec<u8>>;

    fn receive(from: Node, payload: Rc<Vec<u8>>) -> Datagram {
        Datagram {
            address: address_of(from),
            bytes: Rc::unwrap_or_clone(payload),
        }
    }

    fn transmit(datagram: Datagram) -> (Node, u32, Rc<Vec<u8>>) {
        // A packet has at most 1,232 bytes.
        let bytes = datagram.bytes.len() as u32 + HEADERS_BYTES;
        (node_of(datagram.address), bytes, Rc::new(datagram.bytes))
    }
}
