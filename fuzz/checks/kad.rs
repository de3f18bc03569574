//! Invariants of a Kademlia node for any packets that others send.
//!
//! The input is a program: each step takes a few bytes, which choose a packet with a right tag from
//! one of some hostile keys, or raw bytes, or an answer to the node's last request, or time, or a
//! command of its application. The machine's invariants are checked after each step, and that no
//! address gets more than threefold before it has given back a token.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use chappe_identity::Key as IdentityKey;
use chappe_kad::message::{Reason, Verdict};
use chappe_kad::service::Announcement;
use chappe_kad::{
    AMPLIFICATION_MAX, Body, Command, Config, Contact, Cryptography, Datagram, Entrance, Kad, Key,
    LookupId, NodeKey, Packet, Record, SearchId,
};
use chappe_machine::{Input, Instant, Invariant, Machine, Output};

use crate::bounds::Bound;

/// Two machines with their tables.
const BOUND: Bound = Bound::memory(1 << 20, 200);

/// Steps of one program.
const STEPS_MAX: usize = 300;
/// Hostile keys.
const OTHERS: u8 = 6;

/// Reads choices from bytes; zeros when they are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => u64::from(small),
            200..=239 => (1 << 32) + u64::from(self.byte()),
            _ => u64::from_be_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn key(&mut self) -> Key {
        Key::new(u128::from(self.number()) << (u32::from(self.byte()) % 128))
    }
}

/// Hostile keys are made once: that costs more than all else.
fn others() -> &'static Vec<NodeKey> {
    static KEYS: std::sync::OnceLock<Vec<NodeKey>> = std::sync::OnceLock::new();
    KEYS.get_or_init(|| {
        (0..OTHERS)
            .map(|number| NodeKey::new(IdentityKey::from_seed([number + 1; 32])))
            .collect()
    })
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number % 8 + 1], 4_000))
}

struct World {
    node: Kad<NodeKey>,
    public: chappe_identity::PublicKey,
    now: Instant,
    /// The last requests of the node: to whom, and their numbers.
    asked: Vec<(SocketAddr, u64)>,
    /// Bytes to and from addresses that never returned a token.
    unconfirmed: BTreeMap<SocketAddr, (usize, usize)>,
    /// Tokens that the node gave.
    tokens: Vec<u64>,
}

impl World {
    fn new() -> Self {
        let key = NodeKey::new(IdentityKey::from_seed([200; 32]));
        let public = key.public();
        let config = Config {
            peers_max: 8,
            store_bytes: 8_192,
            place_records: 4,
            ..Config::new(1, [9; 32])
        };
        Self {
            node: Kad::new(key, config, Instant::ZERO),
            public,
            now: Instant::ZERO,
            asked: Vec::new(),
            unconfirmed: BTreeMap::new(),
            tokens: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<Datagram, Command>) {
        self.node.handle_input(self.now, input);
        while let Some(output) = self.node.poll_output() {
            let Output::Transmit(Datagram { address, bytes }) = output else {
                continue;
            };
            let (packet, _, _) = Packet::read(&bytes).expect("a node writes good packets");
            if packet.body.is_response() {
                self.tokens.push(packet.token);
                self.unconfirmed.entry(address).or_default().1 += bytes.len();
            } else {
                self.asked.push((address, packet.number));
            }
        }
        self.asked.drain(..self.asked.len().saturating_sub(32));
        self.tokens.drain(..self.tokens.len().saturating_sub(8));
        if let Err(broken) = self.node.check() {
            panic!("at {:?}: {broken}", self.now);
        }
    }

    fn arrive(&mut self, from: SocketAddr, bytes: Vec<u8>, confirmed: bool) {
        let length = bytes.len();
        let counted = self.unconfirmed.entry(from).or_default();
        counted.0 += length;
        let before = counted.1;
        self.input(Input::Receive(Datagram {
            address: from,
            bytes,
        }));
        let said = self.unconfirmed.get(&from).map_or(0, |it| it.1) - before;
        assert!(
            confirmed || said <= AMPLIFICATION_MAX * length,
            "{said} bytes for {length}"
        );
    }
}

fn body(choices: &mut Choices<'_>, by: &NodeKey) -> Body {
    let record = |choices: &mut Choices<'_>| {
        let about = (choices.key(), u16::from(choices.byte()) % 4);
        let value = vec![choices.byte(); usize::from(choices.byte())];
        let times = (u32::from(choices.byte()) + 1, choices.number());
        Record::sign(by, about, choices.number(), times, value)
    };
    match choices.byte() % 12 {
        0 => Body::Greet {
            padding: u16::from(choices.byte()),
        },
        1 => Body::Greeting,
        3 => Body::Pong,
        4 => Body::Find {
            target: choices.key(),
            count: choices.byte(),
            padding: u16::from(choices.byte()) * 4,
        },
        5 => {
            let count = usize::from(choices.byte()) % 21;
            let mut contact = || Contact {
                public: others()[usize::from(choices.byte() % OTHERS)].public(),
                address: address(choices.byte()),
            };
            Body::Contacts((0..count).map(|_| contact()).collect())
        }
        6 => Body::Store {
            level: choices.byte() % 5,
            record: record(choices),
        },
        7 => Body::Stored(match choices.byte() % 3 {
            0 => Verdict::Kept,
            1 => Verdict::Full,
            _ => Verdict::Rejected,
        }),
        8 => Body::Ask {
            place: choices.key(),
            after: u128::from(choices.number()),
            digest: choices.number(),
            bytes: choices.number() as u16,
            padding: u16::from(choices.byte()) * 4,
        },
        9 => Body::Records {
            held: u16::from(choices.byte()),
            split: choices.byte() % 2 == 1,
            records: vec![record(choices)],
        },
        10 => Body::Refused(match choices.byte() % 3 {
            0 => Reason::Token,
            1 => Reason::Certificate,
            _ => Reason::Busy,
        }),
        _ => Body::Ping,
    }
}

/// Plays a program.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let mut choices = Choices(data);
    let mut world = World::new();
    for _ in 0..STEPS_MAX {
        if choices.0.is_empty() {
            return;
        }
        match choices.byte() % 8 {
            0 => {
                let length = usize::from(choices.byte()) * 6;
                let bytes = (0..length).map(|_| choices.byte()).collect();
                world.arrive(address(choices.byte()), bytes, false);
            }
            1 => {
                let millis = u64::from(choices.byte()).pow(2);
                world.now += Duration::from_millis(millis);
                world.input(Input::Timeout);
            }
            2 => command(&mut world, &mut choices),
            kind => packet(&mut world, &mut choices, kind < 5),
        }
    }
}

/// A packet with a valid tag; with `answers`, an answer to the node's last request.
fn packet(world: &mut World, choices: &mut Choices<'_>, answers: bool) {
    let by = &others()[usize::from(choices.byte() % OTHERS)];
    let mut from = address(choices.byte());
    let mut number = choices.number();
    if answers && !world.asked.is_empty() {
        let at = usize::from(choices.byte()) % world.asked.len();
        (from, number) = world.asked[at];
    }
    let token = match choices.byte() % 4 {
        0 => 0,
        1 => choices.number(),
        at => world.tokens.get(usize::from(at)).copied().unwrap_or(0),
    };
    let body = body(choices, by);
    let packet = Packet {
        sender: by.public(),
        client: choices.byte().is_multiple_of(4),
        please: choices.byte().is_multiple_of(4),
        number,
        token,
        certificate: None,
        body,
    };
    let mut bytes = Vec::new();
    packet.write(&mut bytes);
    let tag = match packet.body {
        Body::Greet { .. } => [0; 16],
        _ => {
            let secret = by.agree(&world.public).expect("good keys agree");
            by.tag(&secret, &[world.public.as_bytes(), &bytes])
        }
    };
    bytes.extend_from_slice(&tag);
    if bytes.len() > chappe_kad::PACKET_BYTES_MAX {
        return;
    }
    world.arrive(from, bytes, token != 0);
}

fn command(world: &mut World, choices: &mut Choices<'_>) {
    let contact = |choices: &mut Choices<'_>| Contact {
        public: others()[usize::from(choices.byte() % OTHERS)].public(),
        address: address(choices.byte()),
    };
    let search = SearchId(u32::from(choices.byte() % 3));
    let slot = u16::from(choices.byte() % 4);
    let command = match choices.byte() % 10 {
        0 => Command::TimeOfDay {
            unix_s: choices.number(),
        },
        1 => Command::Enter(vec![Entrance {
            address: address(choices.byte()),
            public: None,
        }]),
        2 => Command::Lookup {
            lookup: LookupId(1),
            target: choices.key(),
        },
        3 => Command::Publish {
            slot,
            keys: vec![choices.key()],
            value: vec![1; usize::from(choices.byte()) * 4],
        },
        4 => Command::Withdraw { slot },
        5 => Command::Search {
            search,
            key: choices.key(),
            credit: choices.number() % 100_000,
        },
        6 => Command::Grant {
            search,
            credit: choices.number(),
        },
        7 => Command::Stop { search },
        _ => Command::Ping(contact(choices)),
    };
    world.input(Input::Command(command));
}

/// Reads bytes as a packet and as an announcement: decoding and encoding give the same bytes.
pub(crate) fn check_forms(data: &[u8]) {
    BOUND.hold(data.len(), || check_forms_unbounded(data));
}

fn check_forms_unbounded(data: &[u8]) {
    if let Ok((packet, _, tag)) = Packet::read(data) {
        let mut again = Vec::new();
        packet.write(&mut again);
        again.extend_from_slice(tag);
        assert_eq!(again, data);
    }
    if let Some(announcement) = Announcement::from_bytes(data) {
        assert_eq!(announcement.to_bytes().as_deref(), Some(data));
    }
}
