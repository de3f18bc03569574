//! Goal: forged, replayed, changed, overlong packets and lying nodes change nothing, are counted,
//! and make no node send more than threefold to a stranger.
//! Method: real nodes with real keys; the attacker writes its own packets.

use std::net::SocketAddr;
use std::time::Duration;

use crate::network::{Network, UNIX_S, address, key};
use chappe_identity::Key as IdentityKey;
use chappe_kad::message::{Reason, Verdict};
use chappe_kad::{
    AMPLIFICATION_MAX, Body, Certificate, Command, Config, Contact, Cryptography, Drop, Event, Kad,
    Key, Membership, NodeKey, PACKET_BYTES_MAX, Packet, Record, SearchId, TAG_BYTES,
};
use chappe_machine::{Input, Instant, Machine, Output};

/// An attacker that writes packets by hand.
struct Attacker {
    key: NodeKey,
    /// It asks to be kept out of tables.
    client: bool,
    number: u64,
}

impl Attacker {
    fn new(seed: u8) -> Self {
        Self {
            key: NodeKey::new(IdentityKey::from_seed([seed; 32])),
            client: true,
            number: 1,
        }
    }

    /// A correctly tagged packet for a node.
    fn packet(&mut self, to: &Contact, token: u64, body: Body) -> Vec<u8> {
        self.number += 1;
        self.numbered(to, self.number, token, body)
    }

    fn numbered(&self, to: &Contact, number: u64, token: u64, body: Body) -> Vec<u8> {
        let packet = Packet {
            sender: self.key.public(),
            client: self.client,
            please: false,
            number,
            token,
            certificate: None,
            body,
        };
        let mut bytes = Vec::new();
        packet.write(&mut bytes);
        let secret = self.key.agree(&to.public).expect("a usable key");
        let tag = self.key.tag(&secret, &[to.public.as_bytes(), &bytes]);
        bytes.extend_from_slice(&tag);
        bytes
    }
}

fn outside(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 9))
}

/// The messages of a node to an address, decoded.
fn said(network: &mut Network, to: SocketAddr) -> Vec<(usize, u64, Body)> {
    network.pass(Duration::from_millis(50));
    let (own, others): (Vec<_>, Vec<_>) = network
        .astray
        .drain(..)
        .partition(|(address, _)| *address == to);
    network.astray = others;
    own.into_iter()
        .map(|(_, datagram)| {
            let (packet, _, _) = Packet::read(&datagram.bytes).expect("nodes write good packets");
            let body = match packet.body {
                Body::Contacts(contacts) => Body::Contacts(contacts),
                Body::Stored(verdict) => Body::Stored(verdict),
                Body::Refused(reason) => Body::Refused(reason),
                Body::Records {
                    held,
                    split,
                    records,
                } => Body::Records {
                    held,
                    split,
                    records,
                },
                Body::Pong => Body::Pong,
                _ => Body::Ping,
            };
            (datagram.bytes.len(), packet.token, body)
        })
        .collect()
}

#[test]
fn no_stranger_gets_more_than_threefold_before_it_gave_back_a_token() {
    let mut network = Network::entered(30, |_, _| {});
    let node = network.contact(0);
    let mut attacker = Attacker::new(200);
    let find = |padding| Body::Find {
        target: Key::new(5),
        count: 20,
        padding,
    };
    let mut largest: f64 = 0.0;
    for (at, padding) in [0, 10, 100, 300, 1_000].into_iter().enumerate() {
        // A victim's address each: nothing is known of it.
        let victim = outside(at as u8);
        let bytes = attacker.packet(&node, 0, find(padding));
        network.inject(0, victim, &bytes);
        let answers = said(&mut network, victim);
        let answered: usize = answers.iter().map(|(bytes, _, _)| bytes).sum();
        assert!(answered > 0 && answered <= AMPLIFICATION_MAX * bytes.len());
        largest = largest.max(answered as f64 / bytes.len() as f64);
    }
    assert!(largest > 2.0, "the bound is tight: {largest}");
    // With the token of the first answer the same question gets a whole answer.
    let bytes = attacker.packet(&node, 0, Body::Ping);
    network.inject(0, outside(9), &bytes);
    let token = said(&mut network, outside(9))[0].1;
    let bytes = attacker.packet(&node, token, find(0));
    network.inject(0, outside(9), &bytes);
    let answers = said(&mut network, outside(9));
    assert!(answers[0].0 > AMPLIFICATION_MAX * bytes.len());
    // At another address the same token is worth nothing, and so it is for another key.
    let bytes = attacker.packet(&node, token, find(0));
    network.inject(0, outside(10), &bytes);
    assert!(said(&mut network, outside(10))[0].0 <= AMPLIFICATION_MAX * bytes.len());
    let bytes = Attacker::new(201).packet(&node, token, find(0));
    network.inject(0, outside(9), &bytes);
    assert!(said(&mut network, outside(9))[0].0 <= AMPLIFICATION_MAX * bytes.len());
    // It ends: after two epochs it is not taken any more.
    network.pass(Duration::from_secs(601));
    let bytes = attacker.packet(&node, token, find(0));
    network.inject(0, outside(9), &bytes);
    let late = said(&mut network, outside(9));
    assert!(
        late.iter()
            .all(|(length, _, _)| *length <= AMPLIFICATION_MAX * bytes.len())
    );
}

#[test]
fn forged_replayed_and_changed_packets_change_nothing() {
    let mut network = Network::entered(3, |_, _| {});
    let node = network.contact(0);
    let mut attacker = Attacker::new(200);
    let before = |network: &Network, reason| network.nodes[0].dropped(reason);
    // Speaking for a node's key.
    let mut forged = attacker.packet(&node, 0, Body::Ping);
    forged[3..35].copy_from_slice(network.public(1).as_bytes());
    let tags = before(&network, Drop::Tag);
    network.inject(0, address(1), &forged);
    assert_eq!(before(&network, Drop::Tag), tags + 1);
    // Each changed bit of a good packet.
    let good = attacker.packet(&node, 0, Body::Ping);
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        network.inject(0, outside(1), &changed);
    }
    // Cut off and made longer.
    for length in 0..good.len() {
        network.inject(0, outside(1), &good[..length]);
    }
    network.inject(0, outside(1), &vec![1; PACKET_BYTES_MAX + 1]);
    assert!(said(&mut network, outside(1)).is_empty());
    let served = |network: &Network, at: usize| network.nodes[at].counters().served;
    let (before_here, before_there) = (served(&network, 0), served(&network, 1));
    // The packet itself counts once.
    for _ in 0..10 {
        network.inject(0, outside(1), &good);
    }
    assert_eq!(served(&network, 0), before_here + 1);
    assert_eq!(before(&network, Drop::Replayed), 9);
    // Meant for another node.
    network.inject(1, outside(1), &good);
    assert_eq!(served(&network, 1), before_there);
    // Our own come back.
    let own = Packet {
        sender: network.public(0),
        client: false,
        please: false,
        number: 1,
        token: 0,
        certificate: None,
        body: Body::Ping,
    };
    let mut bytes = Vec::new();
    own.write(&mut bytes);
    bytes.extend_from_slice(&[0; TAG_BYTES]);
    network.inject(0, outside(1), &bytes);
    assert_eq!(before(&network, Drop::Own), 1);
}

#[test]
fn answers_that_nobody_asked_for_are_not_used() {
    let mut network = Network::entered(5, |_, _| {});
    let node = network.contact(0);
    let attacker = Attacker::new(200);
    let victim = Contact {
        public: network.public(1),
        address: outside(77),
    };
    let contacts = vec![victim; 20];
    let known = network.nodes[0].contacts_len();
    for number in 0..100_u64 {
        let body = Body::Contacts(contacts.clone());
        let bytes = attacker.numbered(&node, (1 << 32) + number, 0, body);
        network.inject(0, outside(2), &bytes);
    }
    network.pass(Duration::from_secs(10));
    assert_eq!(network.nodes[0].dropped(Drop::Unasked), 100);
    assert_eq!(network.nodes[0].contacts_len(), known);
    assert!(network.astray.iter().all(|(to, _)| *to != outside(77)));
}

/// A record signed by this key.
fn record(by: &NodeKey, about: Key, sequence: u64, lifetime_s: u32, expires_s: u64) -> Record {
    Record::sign(
        by,
        (about, 0),
        sequence,
        (lifetime_s, expires_s),
        b"here".to_vec(),
    )
}

/// Stores a record as the attacker, with a valid token.
fn store(network: &mut Network, attacker: &mut Attacker, record: Record) -> Body {
    let node = network.contact(0);
    let bytes = attacker.packet(&node, 0, Body::Ping);
    network.inject(0, outside(3), &bytes);
    let token = said(network, outside(3))[0].1;
    let bytes = attacker.packet(&node, token, Body::Store { level: 0, record });
    network.inject(0, outside(3), &bytes);
    said(network, outside(3)).remove(0).2
}

#[test]
fn records_are_kept_only_when_they_are_right() {
    let mut network = Network::new(1, |_, _| {});
    let mut attacker = Attacker::new(200);
    let about = Key::new(7);
    let signer = NodeKey::new(key(201));
    let good = record(&signer, about, 5, 3_600, UNIX_S + 3_600);
    // Without a token nothing is stored.
    let node = network.contact(0);
    let body = Body::Store {
        level: 0,
        record: good.clone(),
    };
    let bytes = attacker.packet(&node, 0, body);
    network.inject(0, outside(3), &bytes);
    assert_eq!(
        said(&mut network, outside(3))[0].2,
        Body::Refused(Reason::Token)
    );
    let mut verdict = |record: &Record| match store(&mut network, &mut attacker, record.clone()) {
        Body::Stored(verdict) => verdict,
        other => panic!("{other:?}"),
    };
    let changed = |change: fn(&mut Record)| {
        let mut record = good.clone();
        change(&mut record);
        record
    };
    for wrong in [
        changed(|it| it.value.push(1)),
        changed(|it| it.sequence += 1),
        changed(|it| it.lifetime_s += 1),
        changed(|it| it.expires_s += 1),
        changed(|it| it.slot += 1),
        changed(|it| it.key = Key::new(8)),
        changed(|it| it.publisher = key(202).public()),
        changed(|it| it.signature[0] ^= 1),
        // Signed, but long ended, or ending too late.
        record(&signer, about, 5, 3_600, UNIX_S - 3_600),
        record(&signer, about, 5, 3_600, UNIX_S + 36_000),
    ] {
        assert_eq!(verdict(&wrong), Verdict::Rejected, "{wrong:?}");
    }
    assert_eq!(verdict(&good), Verdict::Kept);
    assert_eq!(
        verdict(&record(&signer, about, 4, 3_600, 0)),
        Verdict::Outdated
    );
    assert_eq!(verdict(&record(&signer, about, 6, 3_600, 0)), Verdict::Kept);
    assert_eq!(network.nodes[0].stored().0, 1);
    // Stored again and again it still ends.
    for _ in 0..4 {
        network.pass(Duration::from_secs(1_000));
        let again = record(&signer, about, 6, 3_600, 0);
        store(&mut network, &mut attacker, again);
        if network.nodes[0].stored().0 == 0 {
            break;
        }
    }
    network.pass(Duration::from_secs(3_700));
    assert_eq!(network.nodes[0].stored(), (0, 0));
}

#[test]
fn a_flood_is_bounded_in_work_and_memory() {
    let mut network = Network::new(1, |_, config| config.peers_max = 100);
    let node = network.contact(0);
    // One host, one key.
    let mut attacker = Attacker::new(200);
    let flood: Vec<_> = (0..3_000)
        .map(|_| attacker.packet(&node, 0, Body::Ping))
        .collect();
    for bytes in &flood {
        network.inject(0, outside(4), bytes);
    }
    let served = network.nodes[0].counters().served;
    assert!((200..=201).contains(&served), "{served} answered at once");
    assert_eq!(network.nodes[0].dropped(Drop::Rate), 3_000 - served);
    // Many hosts, a key each: peers stay few, and so do the unknown keys that are looked at.
    for number in 0..4_000_u32 {
        let mut bytes = flood[0].clone();
        bytes[3..7].copy_from_slice(&number.to_be_bytes());
        let from = SocketAddr::from(([198, 51, (number >> 8) as u8, number as u8], 9));
        network.inject(0, from, &bytes);
    }
    assert!(network.nodes[0].dropped(Drop::Strangers) >= 1_000);
    assert!(network.nodes[0].state_bytes() < 64 * 1024);
    // A second later it answers again.
    network.pass(Duration::from_secs(3));
    let bytes = attacker.packet(&node, 0, Body::Ping);
    network.inject(0, outside(4), &bytes);
    assert_eq!(network.nodes[0].counters().served, served + 1);
}

#[test]
fn numbers_go_on_after_a_restart_so_that_old_packets_stay_old() {
    let mut network = Network::entered(2, |_, _| {});
    let node = network.contact(0);
    let answered = |network: &mut Network| {
        network.pass(Duration::from_millis(50));
        let events = network.events_of(1);
        let is_answer = |event: &&Event| matches!(event, Event::Pinged { there: true, .. });
        events.iter().filter(is_answer).count()
    };
    network.command(1, Command::Ping(node));
    let (_, _, recorded) = network.on_the_way.back().expect("it is on the way").clone();
    assert_eq!(answered(&mut network), 1);
    // The sender restarts with a higher boot number.
    let config = Config {
        boot: 2,
        ..crate::network::config(1)
    };
    network.nodes[1] = Kad::new(NodeKey::new(key(1)), config, network.now);
    network.command(1, Command::Ping(node));
    assert_eq!(answered(&mut network), 1);
    let served = network.nodes[0].counters().served;
    network.inject(0, address(1), &recorded.bytes);
    assert_eq!(network.nodes[0].counters().served, served);
    assert_eq!(network.nodes[0].dropped(Drop::Replayed), 1);
}

#[test]
fn who_greets_members_without_a_certificate_is_told() {
    let owner = IdentityKey::from_seed([250; 32]);
    let network = Network::entered(3, |number, config| {
        let member = key(number).public();
        config.membership = (number != 2).then(|| Membership {
            owner: owner.public(),
            certificate: Certificate::issue(&owner, &member, UNIX_S + 1_000_000),
        });
    });
    assert_eq!(network.nodes[2].contacts_len(), 0);
    assert!(network.nodes[2].counters().uncertified > 0);
    assert_eq!(network.nodes[1].counters().uncertified, 0);
    let stranger = network.contact(2);
    assert!(!network.nodes[0].contacts().any(|it| it == stranger));
}

#[test]
fn only_members_are_heard_in_a_network_of_members() {
    let owner = IdentityKey::from_seed([250; 32]);
    let issue = |number: u8, end: u64| Certificate::issue(&owner, &key(number).public(), end);
    let change = |number: u8, config: &mut Config| {
        let end = match number {
            // Its certificate ends soon.
            5 => UNIX_S + 60,
            // Its certificate is somebody else's.
            6 => 0,
            _ => UNIX_S + 1_000_000,
        };
        let certificate = match number {
            6 => issue(1, UNIX_S + 1_000_000),
            _ => issue(number, end),
        };
        config.membership = Some(Membership {
            owner: owner.public(),
            certificate,
        });
    };
    let mut network = Network::entered(8, change);
    for index in [0, 1, 2, 3, 4, 7] {
        let contacts: Vec<_> = network.nodes[index].contacts().collect();
        assert!(contacts.len() >= 5, "node {index} knows {}", contacts.len());
        assert!(!contacts.contains(&network.contact(6)));
    }
    assert_eq!(network.nodes[6].contacts_len(), 0);
    // Publishing and finding works among members.
    let about = Key::new(9);
    let publish = |slot| Command::Publish {
        slot,
        keys: vec![about],
        value: vec![1],
    };
    network.command(3, publish(1));
    network.command(6, publish(2));
    network.pass(Duration::from_secs(30));
    network.command(
        7,
        Command::Search {
            search: SearchId(1),
            key: about,
            credit: 1 << 20,
        },
    );
    network.pass(Duration::from_secs(30));
    let found: Vec<_> = network
        .events_of(7)
        .into_iter()
        .filter_map(|event| match event {
            Event::Found { record, .. } => Some(record.publisher),
            _ => None,
        })
        .collect();
    assert_eq!(found, [network.public(3)]);
    // A member whose certificate has ended is not heard, and counts that.
    network.pass(Duration::from_secs(60));
    network.events.clear();
    let to = network.contact(0);
    for (member, heard) in [(4, true), (5, false)] {
        network.command(member, Command::Ping(to));
        network.pass(Duration::from_secs(10));
        let there = |event: Event| match event {
            Event::Pinged { there, .. } => Some(there),
            _ => None,
        };
        let events = network.events_of(member);
        assert_eq!(events.into_iter().find_map(there), Some(heard));
        assert_eq!(network.nodes[member].counters().uncertified > 0, !heard);
    }
    // Strangers without a certificate are refused in fewer bytes than they sent.
    let mut attacker = Attacker::new(200);
    let bytes = attacker.packet(&to, 0, Body::Ping);
    network.inject(0, outside(5), &bytes);
    let answers = said(&mut network, outside(5));
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].2, Body::Refused(Reason::Certificate));
    assert!(answers[0].0 <= bytes.len() + 1);
}

#[test]
fn addresses_that_others_name_are_sent_to_within_bounds() {
    // A node that answers every question with 20 contacts at one victim.
    let mut network = Network::new(2, |_, _| {});
    let mut liar = Attacker::new(200);
    liar.client = false;
    let public = liar.key.public();
    let address = outside(6);
    network.command(0, Command::Ping(Contact { public, address }));
    let victim = |port: u16| SocketAddr::from(([203, 0, 113, 7], port));
    let node = network.contact(0);
    for round in 0..200_u64 {
        network.pass(Duration::from_millis(50));
        let asked: Vec<_> = network.astray.drain(..).collect();
        for (to, datagram) in asked {
            let (packet, _, _) = Packet::read(&datagram.bytes).expect("a good packet");
            if to != address {
                continue;
            }
            let body = match packet.body {
                Body::Ping => Body::Pong,
                Body::Find { .. } => {
                    let contact = |number: u64| Contact {
                        public: key((round * 20 + number) as u8).public(),
                        address: victim(1_000 + (round * 20 + number) as u16),
                    };
                    Body::Contacts((0..8).map(contact).collect())
                }
                _ => continue,
            };
            let bytes = liar.numbered(&node, packet.number, 1, body);
            network.inject(0, address, &bytes);
        }
        if round % 20 == 0 {
            let target = Key::new(u128::from(round) << 100);
            let lookup = chappe_kad::LookupId(round as u32);
            network.command(0, Command::Lookup { lookup, target });
        }
    }
    let to_victim: Vec<_> = network
        .traffic
        .iter()
        .filter(|((_, to), _)| to.ip() == victim(0).ip())
        .map(|(_, (_, sent))| *sent)
        .collect();
    // Of one host each lookup asks four at most.
    assert!(
        !to_victim.is_empty() && to_victim.len() <= 40,
        "{}",
        to_victim.len()
    );
}

#[test]
fn any_input_leaves_the_machine_sound() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut network = Network::entered(4, |_, _| {});
    let node = network.contact(0);
    let mut attacker = Attacker::new(200);
    for step in 0..2_000 {
        let target = Key::new(random.u128(..));
        let contacts = vec![network.contact(random.usize(..4)); random.usize(..21)];
        let record = record(&attacker.key, target, random.u64(..9), random.u32(1..9), 0);
        let body = match random.u8(..9) {
            0 => Body::Ping,
            1 => Body::Pong,
            2 => Body::Find {
                target,
                count: random.u8(..),
                padding: random.u16(..200),
            },
            3 => Body::Contacts(contacts),
            4 => Body::Store {
                level: random.u8(..5),
                record,
            },
            5 => Body::Stored(Verdict::Full),
            6 => Body::Ask {
                place: target,
                after: random.u128(..),
                digest: random.u64(..),
                bytes: random.u16(..),
                padding: 0,
            },
            7 => Body::Records {
                held: random.u16(..),
                split: true,
                records: vec![record],
            },
            _ => Body::Refused(Reason::Token),
        };
        let token = random.u64(..);
        let mut bytes = attacker.packet(&node, token, body);
        if step % 3 == 0 {
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 << random.u8(..8);
        }
        // The network's harness checks the invariants after each input.
        network.inject(0, outside(random.u8(..4)), &bytes);
        if step % 50 == 0 {
            network.pass(Duration::from_secs(1));
        }
    }
}

#[test]
fn a_machine_alone_says_so_and_ends_its_searches() {
    let mut kad = Kad::new(
        NodeKey::new(key(1)),
        crate::network::config(1),
        Instant::ZERO,
    );
    let command = Command::Search {
        search: SearchId(1),
        key: Key::new(1),
        credit: 100_000,
    };
    kad.handle_input(Instant::ZERO, Input::Command(command));
    let mut ended = 0;
    while let Some(output) = kad.poll_output() {
        ended += usize::from(matches!(output, Output::Event(Event::SearchEnded { .. })));
    }
    assert_eq!(ended, 1);
}
