//! The network's nodes: their places, their initial tables, their churn.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;

use chappe_identity::PublicKey;
use chappe_kad::{Command, Config, Contact, Cryptography, Entrance, Kad, Key};
use chappe_machine::{Input, Instant};

use super::attacker::{Accomplices, Actor, Sybil};
use super::ideal::Ideal;
use super::{Attack, Settings};
use crate::network::{Network, Node, Nodes};

/// The port of every node.
const PORT: u16 = 4_000;
/// The time of day at the beginning, in seconds since 1970.
const UNIX_S: u64 = 1_800_000_000;
/// Bits by which the attacker's nodes are nearer to a key than the nearest honest node.
const NEARER_BITS: u32 = 8;
/// Cells of a bucket, as the product spreads its contacts.
const CELLS: u32 = 16;

/// 10.0.0.0/8 has room for 16 million nodes.
pub(super) fn address_of(node: Node) -> SocketAddr {
    (std::net::Ipv4Addr::from(0x0a00_0000 | node.0), PORT).into()
}

pub(super) fn node_of(address: SocketAddr) -> Node {
    match address.ip() {
        std::net::IpAddr::V4(ip) => Node(u32::from(ip) & 0x00ff_ffff),
        std::net::IpAddr::V6(_) => Node(0),
    }
}

/// The network.
pub(super) struct World {
    pub(super) nodes: Nodes<Actor>,
    pub(super) random: fastrand::Rng,
    settings: Settings,
    accomplices: Accomplices,
    honest: u32,
    /// How often each node was replaced.
    lives: Vec<u32>,
    /// The part of each node, with a partition.
    parts: Vec<u16>,
    /// The slow nodes.
    slow: BTreeSet<u32>,
}

impl World {
    /// The nodes of the settings; `keys` are the attacked ones.
    pub(super) fn new(settings: &Settings, keys: &[Key]) -> Self {
        let mut random = fastrand::Rng::with_seed(settings.seed);
        let network = Network::new(random.u64(..), settings.link);
        let honest = settings.honest();
        let log_nodes = settings.nodes.max(1).ilog2();
        let per_region = settings.nodes.max(1) / settings.region_nodes.max(1);
        let region_bits = per_region.max(1).ilog2();
        let places = (0..settings.nodes).map(|index| {
            let anywhere = random.u128(..);
            if index < honest {
                return Key::new(anywhere);
            }
            let attacked = keys
                .iter()
                .cycle()
                .nth((index - honest) as usize % keys.len().max(1));
            let shared = match settings.attack {
                Attack::Scattered => 0,
                Attack::Nearest => log_nodes + NEARER_BITS,
                Attack::Region => region_bits,
            };
            let key = attacked.copied().unwrap_or(Key::new(0));
            let mask = if shared == 0 {
                0
            } else {
                u128::MAX << (128 - shared)
            };
            Key::new(key.number() & mask | anywhere & !mask)
        });
        let places: Vec<Key> = places.collect();
        let contact = |index: usize| Contact {
            public: public_of(places[index]),
            // Fewer than 2^24 nodes.
            address: address_of(Node(index as u32)),
        };
        let mut accomplices: Vec<_> = (honest as usize..places.len())
            .map(|index| (places[index], contact(index)))
            .collect();
        accomplices.sort_by_key(|(place, _)| *place);
        let mut world = Self {
            nodes: Nodes::new(network),
            random,
            settings: settings.clone(),
            accomplices: Rc::new(accomplices),
            honest,
            lives: vec![0; places.len()],
            parts: vec![0; places.len()],
            slow: BTreeSet::new(),
        };
        for place in &places {
            let node = Node(u32::try_from(world.nodes.network.node_count()).unwrap_or(u32::MAX));
            let actor = world.actor(node, *place);
            world.nodes.add(actor);
            let network = &mut world.nodes.network;
            network.set_node_rate(node, settings.rate_bytes_per_s, settings.queue_bytes);
        }
        if settings.slow > 0.0 {
            let all = 0..settings.nodes;
            let slow = all.filter(|_| world.random.f64() < settings.slow).collect();
            world.slow = slow;
            for node in world.slow.clone() {
                world.slow_down(Node(node));
            }
        }
        if !settings.cold {
            world.warm(&places);
        }
        for index in 0..settings.nodes {
            world.tell_time(Node(index));
        }
        if let Some(partition) = settings.partition {
            for part in &mut world.parts {
                *part = world.random.u16(..partition.parts.max(1));
            }
        }
        world
    }

    fn actor(&mut self, node: Node, place: Key) -> Actor {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.random.u64(..).to_le_bytes());
        let config = Config {
            region_nodes: self.settings.region_nodes,
            // Limits the memory of 100,000 nodes in one process.
            peers_max: 64,
            host_slots: 16,
            ..Config::new(self.lives[node.0 as usize] + 1, seed)
        };
        let cryptography = Ideal::at(place);
        let kad = Kad::new(cryptography, config, self.nodes.network.now());
        if node.0 < self.honest {
            return Actor::Honest(Box::new(kad));
        }
        let accomplices = Rc::clone(&self.accomplices);
        Actor::Sybil(Box::new(Sybil::new(kad, cryptography, accomplices)))
    }

    /// Gives every node the table that it would have after a long time: in each bucket a contact in
    /// each cell.
    fn warm(&mut self, places: &[Key]) {
        let mut sorted: Vec<(Key, u32)> = places
            .iter()
            .enumerate()
            .map(|(index, place)| (*place, index as u32))
            .collect();
        sorted.sort_unstable();
        let range = |low: u128, high: u128| {
            let from = sorted.partition_point(|(place, _)| place.number() < low);
            let to = sorted.partition_point(|(place, _)| place.number() <= high);
            &sorted[from..to]
        };
        for (index, place) in places.iter().enumerate() {
            let mut known = Vec::new();
            for bucket in 0..128_u32 {
                // The places that share `bucket` bits and differ in the next.
                let flipped = place.number() ^ (1 << (127 - bucket));
                let rest = u128::MAX.checked_shr(bucket + 1).unwrap_or(0);
                let (low, high) = (flipped & !rest, flipped | rest);
                let all = range(low, high);
                if all.len() <= CELLS as usize {
                    known.extend(all.iter().map(|(_, index)| *index));
                } else {
                    let step = rest / u128::from(CELLS) + 1;
                    for cell in 0..u128::from(CELLS) {
                        let cell = range(low + cell * step, low + cell * step + (step - 1));
                        if !cell.is_empty() {
                            known.push(cell[self.random.usize(..cell.len())].1);
                        }
                    }
                }
                // No other node shares more.
                let (low, high) = (place.number() & !rest, place.number() | rest);
                if range(low, high).len() <= 1 {
                    break;
                }
            }
            let contacts = known.iter().map(|index| Contact {
                public: public_of(places[*index as usize]),
                address: address_of(Node(*index)),
            });
            let contacts: Vec<_> = contacts.collect();
            let now = self.nodes.network.now();
            // Fewer than 2^24 nodes.
            let node = Node(index as u32);
            if let Some(actor) = self.nodes.machine_mut(node) {
                match actor {
                    Actor::Honest(kad) => kad.recall(now, contacts),
                    Actor::Sybil(sybil) => sybil.recall(now, contacts),
                }
            }
        }
    }

    /// Makes a node slow, if it is a slow one.
    fn slow_down(&mut self, node: Node) {
        if self.slow.contains(&node.0) {
            let network = &mut self.nodes.network;
            network.slow_down(node, self.settings.slow_by);
        }
    }

    fn tell_time(&mut self, node: Node) {
        let passed = self.nodes.network.now() - Instant::ZERO;
        let unix_s = UNIX_S + passed.as_secs();
        let command = Command::TimeOfDay { unix_s };
        self.nodes
            .input(node, Input::Command(command), |_, _, _| {});
    }

    /// The number of honest nodes.
    pub(super) fn honest(&self) -> u32 {
        self.honest
    }

    /// The number of nodes.
    pub(super) fn count(&self) -> u32 {
        self.settings.nodes
    }

    /// How often a node was replaced.
    pub(super) fn life(&self, node: Node) -> u32 {
        self.lives[node.0 as usize]
    }

    /// The part of a node in the partition.
    pub(super) fn part(&self, node: Node) -> u16 {
        self.parts[node.0 as usize]
    }

    /// Partitions the network, or heals it.
    pub(super) fn cut(&mut self, cut: bool, one_way: bool) {
        let network = &mut self.nodes.network;
        network.set_one_way(one_way);
        for (index, part) in self.parts.iter().enumerate() {
            // Fewer than 2^24 nodes.
            network.set_group(Node(index as u32), if cut { *part } else { 0 });
        }
    }

    /// The contacts of a node that are present, by their nodes.
    pub(super) fn known_by(&self, node: Node) -> impl Iterator<Item = Node> {
        let actor = self.nodes.machine(node);
        let contacts = actor.into_iter().flat_map(|it| it.kad().contacts());
        contacts.filter_map(|contact| {
            let node = node_of(contact.address);
            let public = self.nodes.machine(node)?.public();
            (public == contact.public).then_some(node)
        })
    }

    /// A random honest node.
    pub(super) fn any_honest(&mut self) -> Node {
        Node(self.random.u32(..self.honest.max(1)))
    }

    /// A node enters through some of these.
    pub(super) fn enter_among(&mut self, node: Node, others: &[u32]) {
        let mut entrances = Vec::new();
        for _ in 0..(self.settings.entrances as usize).min(others.len()) {
            let other = Node(others[self.random.usize(..others.len())]);
            if let Some(actor) = self.nodes.machine(other) {
                entrances.push(Entrance {
                    address: address_of(other),
                    public: Some(actor.public()),
                });
            }
        }
        let command = Command::Enter(entrances);
        self.nodes
            .input(node, Input::Command(command), |_, _, _| {});
    }

    /// A node dies, and another one with its own place takes its address.
    pub(super) fn replace(&mut self, node: Node) {
        self.nodes.network.kill(node);
        self.nodes.network.start(node);
        self.slow_down(node);
        self.lives[node.0 as usize] += 1;
        let place = Key::new(self.random.u128(..));
        let actor = self.actor(node, place);
        self.nodes.put(node, actor);
        self.tell_time(node);
        let others: Vec<u32> = (0..self.settings.entrances)
            .map(|_| self.random.u32(..self.settings.nodes))
            .filter(|other| *other != node.0)
            .collect();
        self.enter_among(node, &others);
    }
}

fn public_of(place: Key) -> PublicKey {
    Ideal::at(place).public()
}
