//! A few real nodes, with real keys, connected by a queue of packets instead of a network.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use chappe_identity::{Key as IdentityKey, PublicKey};
use chappe_kad::{Command, Config, Contact, Datagram, Entrance, Event, Kad, NodeKey};
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

/// Latency of a packet.
const LATENCY: Duration = Duration::from_millis(10);

/// Seconds since 1970 at the start.
pub(crate) const UNIX_S: u64 = 1_800_000_000;

/// The nodes and the packets in flight between them.
pub(crate) struct Network {
    pub(crate) nodes: Vec<Kad<NodeKey>>,
    pub(crate) now: Instant,
    pub(crate) on_the_way: VecDeque<(Instant, SocketAddr, Datagram)>,
    pub(crate) events: Vec<(usize, Event)>,
    /// Everything that went to an address without a node.
    pub(crate) astray: Vec<(SocketAddr, Datagram)>,
    /// Bytes that each node received from and sent to an address.
    pub(crate) traffic: BTreeMap<(usize, SocketAddr), (usize, usize)>,
    /// Nodes before this one and the others cannot reach each other; 0: all can.
    pub(crate) cut: usize,
}

pub(crate) fn key(number: u8) -> IdentityKey {
    IdentityKey::from_seed([number; 32])
}

pub(crate) fn address(index: usize) -> SocketAddr {
    // Few nodes.
    SocketAddr::from(([10, 0, 0, index as u8 + 1], 4_000))
}

pub(crate) fn config(number: u8) -> Config {
    Config::new(1, [number; 32])
}

impl Network {
    /// This many nodes that know no other.
    pub(crate) fn new(count: u8, change: impl Fn(u8, &mut Config)) -> Self {
        let node = |number: u8| {
            let mut config = config(number);
            change(number, &mut config);
            Kad::new(NodeKey::new(key(number)), config, Instant::ZERO)
        };
        let mut network = Self {
            nodes: (0..count).map(node).collect(),
            now: Instant::ZERO,
            on_the_way: VecDeque::new(),
            events: Vec::new(),
            astray: Vec::new(),
            traffic: BTreeMap::new(),
            cut: 0,
        };
        for index in 0..usize::from(count) {
            network.command(index, Command::TimeOfDay { unix_s: UNIX_S });
        }
        network
    }

    /// Nodes that have all entered by the first.
    pub(crate) fn entered(count: u8, change: impl Fn(u8, &mut Config)) -> Self {
        let mut network = Self::new(count, change);
        for index in 1..usize::from(count) {
            let entrance = Entrance {
                address: address(0),
                public: None,
            };
            network.command(index, Command::Enter(vec![entrance]));
            network.pass(Duration::from_millis(100));
        }
        network.pass(Duration::from_secs(20));
        network
    }

    pub(crate) fn contact(&self, index: usize) -> Contact {
        Contact {
            public: self.public(index),
            address: address(index),
        }
    }

    pub(crate) fn public(&self, index: usize) -> PublicKey {
        key(index as u8).public()
    }

    pub(crate) fn command(&mut self, index: usize, command: Command) {
        self.input(index, Input::Command(command));
    }

    /// A packet arrives at a node, from any address.
    pub(crate) fn inject(&mut self, index: usize, from: SocketAddr, bytes: &[u8]) {
        let datagram = Datagram {
            address: from,
            bytes: bytes.to_vec(),
        };
        self.traffic.entry((index, from)).or_default().0 += bytes.len();
        self.input(index, Input::Receive(datagram));
    }

    fn input(&mut self, index: usize, input: Input<Datagram, Command>) {
        let node = &mut self.nodes[index];
        node.handle_input(self.now, input);
        while let Some(output) = node.poll_output() {
            match output {
                Output::Event(event) => self.events.push((index, event)),
                Output::Transmit(Datagram { address: to, bytes }) => {
                    self.traffic.entry((index, to)).or_default().1 += bytes.len();
                    let datagram = Datagram {
                        address: address(index),
                        bytes,
                    };
                    self.on_the_way
                        .push_back((self.now + LATENCY, to, datagram));
                }
            }
        }
        if let Err(broken) = node.check() {
            panic!("node {index} at {:?}: {broken}", self.now);
        }
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let arrival = self.on_the_way.front().map(|(at, _, _)| *at);
            let alarm = self
                .nodes
                .iter()
                .enumerate()
                .filter_map(|(index, node)| Some((node.deadline()?, index)))
                .min();
            let next = match (arrival, alarm) {
                (Some(arrival), Some((alarm, index))) if alarm < arrival => (alarm, Some(index)),
                (Some(arrival), _) => (arrival, None),
                (None, Some((alarm, index))) => (alarm, Some(index)),
                (None, None) => break,
            };
            if next.0 > end {
                break;
            }
            self.now = self.now.max(next.0);
            match next.1 {
                Some(index) => self.input(index, Input::Timeout),
                None => self.arrive(),
            }
        }
        self.now = end;
    }

    fn arrive(&mut self) {
        let Some((_, to, datagram)) = self.on_the_way.pop_front() else {
            return;
        };
        match (0..self.nodes.len()).find(|index| address(*index) == to) {
            Some(index) => {
                let from = datagram.address;
                let sender = (0..self.nodes.len()).find(|index| address(*index) == from);
                if sender.is_some_and(|it| (it < self.cut) != (index < self.cut)) {
                    return;
                }
                self.inject(index, from, &datagram.bytes);
            }
            None => self.astray.push((to, datagram)),
        }
    }

    /// Removes and returns the events of a node.
    pub(crate) fn events_of(&mut self, index: usize) -> Vec<Event> {
        let (own, others): (Vec<_>, Vec<_>) =
            self.events.drain(..).partition(|(of, _)| *of == index);
        self.events = others;
        own.into_iter().map(|(_, event)| event).collect()
    }
}
