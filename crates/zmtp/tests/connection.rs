//! Goal: two compatible ends connect, and each incompatibility is reported at the right end.
//! Method: two machines connected in memory, on the test's clock; NULL and CURVE, in pieces of one byte and as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_zmtp::{
    Allowed, Command, Config, Connection, Error, Event, Fault, Heartbeat, Limits, Mechanism,
    Message, SecretKey, SocketType, public_key,
};
use proptest::prelude::*;

const SERVER: SecretKey = SecretKey([1; 32]);
const CLIENT: SecretKey = SecretKey([2; 32]);

fn curve_server(allowed: Allowed) -> Mechanism {
    Mechanism::CurveServer {
        secret: SERVER,
        allowed,
    }
}

fn curve_client(secret: SecretKey) -> Mechanism {
    Mechanism::CurveClient {
        secret,
        server: public_key(&SERVER),
    }
}

struct End {
    machine: Connection,
    out: BytesMut,
    events: Vec<Event>,
}

impl End {
    fn new(config: Config, seed: u8) -> Self {
        let mut end = Self {
            machine: Connection::new(config, [seed; 32], Instant::ZERO),
            out: BytesMut::new(),
            events: Vec::new(),
        };
        end.drain();
        end
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Transmit(bytes) => self.out.extend_from_slice(&bytes),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn input(&mut self, now: Instant, input: Input<BytesMut, Command>) {
        self.machine.handle_input(now, input);
        self.drain();
    }

    fn command(&mut self, command: Command) {
        self.input(Instant::ZERO, Input::Command(command));
    }

    fn failure(&self) -> Option<&Error> {
        self.events.iter().find_map(|event| match event {
            Event::Failed(error) => Some(error),
            _ => None,
        })
    }

    fn messages(&self) -> Vec<Message> {
        let messages = self.events.iter().filter_map(|event| match event {
            Event::Message(message) => Some(message.clone()),
            _ => None,
        });
        messages.collect()
    }
}

/// Carries the output of each to the other, in pieces, until both are silent.
fn carry(one: &mut End, other: &mut End, piece: usize) {
    while !one.out.is_empty() || !other.out.is_empty() {
        for bytes in one.out.split().chunks(piece) {
            other.input(Instant::ZERO, Input::Receive(bytes.into()));
        }
        for bytes in other.out.split().chunks(piece) {
            one.input(Instant::ZERO, Input::Receive(bytes.into()));
        }
    }
}

fn pair(one: Config, other: Config) -> (End, End) {
    let (mut one, mut other) = (End::new(one, 3), End::new(other, 4));
    carry(&mut one, &mut other, usize::MAX);
    (one, other)
}

fn dealer(mechanism: Mechanism) -> Config {
    Config::new(SocketType::Dealer, mechanism)
}

fn router(mechanism: Mechanism) -> Config {
    Config::new(SocketType::Router, mechanism)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn messages_arrive_unchanged_in_any_pieces(
        secured in any::<bool>(),
        piece in prop_oneof![Just(1usize), 2usize..100, Just(usize::MAX)],
        sizes in prop::collection::vec(prop::collection::vec(
            prop_oneof![0usize..300, 4_000usize..5_000], 1..4), 0..8),
    ) {
        let (at_dealer, at_router) = match secured {
            false => (Mechanism::Null, Mechanism::Null),
            true => (curve_client(CLIENT), curve_server(Allowed::Any)),
        };
        let (mut one, mut other) = (End::new(dealer(at_dealer), 3), End::new(router(at_router), 4));
        carry(&mut one, &mut other, piece);
        let frames = |sizes: &Vec<usize>| sizes.iter().map(|size| vec![*size as u8; *size]).collect::<Vec<_>>();
        let messages: Vec<_> = sizes.iter().filter_map(|sizes| Message::from_frames(frames(sizes))).collect();
        one.command(Command::Send(messages.clone()));
        other.command(Command::Send(messages.clone()));
        carry(&mut one, &mut other, piece);
        prop_assert_eq!(one.failure(), None);
        prop_assert_eq!(one.messages(), messages.clone());
        prop_assert_eq!(other.messages(), messages);
    }
}

#[test]
fn curve_proves_both_keys_and_encrypts_messages() {
    let keys = Arc::new(BTreeSet::from([public_key(&CLIENT)]));
    let mut config = dealer(curve_client(CLIENT));
    config.identity = Bytes::from_static(b"node 7");
    let (mut one, mut other) = pair(config, router(curve_server(Allowed::Keys(keys))));
    let Some(Event::Ready(peer)) = other.events.first() else {
        panic!("{:?}", other.failure());
    };
    assert_eq!(
        (peer.key, &peer.identity[..]),
        (Some(public_key(&CLIENT)), &b"node 7"[..])
    );
    assert!(matches!(&one.events[0], Event::Ready(peer) if peer.key == Some(public_key(&SERVER))));
    one.command(Command::Send(vec![Message::from("secret words")]));
    let said = one.out.clone();
    assert!(!said.windows(6).any(|window| window == b"secret"));
    // The first copy is a message, the second one an attack.
    other.input(Instant::ZERO, Input::Receive(said.clone()));
    assert_eq!(other.messages().len(), 1);
    other.input(Instant::ZERO, Input::Receive(said));
    assert_eq!(other.failure().unwrap().fault(), Fault::Peer);
}

#[test]
fn a_changed_byte_of_a_box_ends_the_connection() {
    let (mut one, mut other) = pair(
        dealer(curve_client(CLIENT)),
        router(curve_server(Allowed::Any)),
    );
    one.command(Command::Send(vec![Message::from("words")]));
    let mut said = one.out.clone();
    let last = said.len() - 1;
    said[last] ^= 1;
    other.input(Instant::ZERO, Input::Receive(said));
    assert!(matches!(
        other.failure(),
        Some(Error::Key { what: "message" })
    ));
    assert!(other.messages().is_empty());
}

#[test]
fn a_refused_client_gets_the_reason() {
    let nobody = Allowed::Keys(Arc::default());
    let (one, other) = pair(dealer(curve_client(CLIENT)), router(curve_server(nobody)));
    let key = public_key(&CLIENT);
    assert_eq!(other.failure(), Some(&Error::NotAllowed { key }));
    let reason = "400".to_owned();
    assert_eq!(one.failure(), Some(&Error::Refused { reason }));

    let wrong = Mechanism::CurveClient {
        secret: CLIENT,
        server: public_key(&CLIENT),
    };
    let (one, other) = pair(dealer(wrong), router(curve_server(Allowed::Any)));
    assert_eq!(other.failure(), Some(&Error::Key { what: "HELLO" }));
    assert_eq!(
        one.failure(),
        None,
        "a server sends nothing to a client that does not know its key"
    );

    let (one, other) = pair(dealer(Mechanism::Null), router(curve_server(Allowed::Any)));
    assert_eq!(
        one.failure().unwrap().reason(),
        other.failure().unwrap().reason()
    );
    assert!(one.failure().unwrap().hint().is_some());

    let (one, other) = pair(
        Config::new(SocketType::Sub, Mechanism::Null),
        router(Mechanism::Null),
    );
    for end in [&one, &other] {
        assert!(
            matches!(end.failure(), Some(Error::SocketTypes { .. })),
            "{:?}",
            end.failure()
        );
    }
}

#[test]
fn each_exceeded_limit_ends_the_connection_and_is_named() {
    let limits = Limits {
        message_bytes: 100,
        message_frames: 3,
        subscriptions: 2,
        subscription_bytes: 10,
        ..Limits::default()
    };
    let frames = |count: usize, size: usize| {
        Command::Send(vec![
            Message::from_frames(vec![vec![0; size]; count]).unwrap(),
        ])
    };
    let subscribe = |text: &'static str| Command::Subscribe(Bytes::from_static(text.as_bytes()));
    let none: Vec<Command> = Vec::new();
    for (limit, commands, is_sub) in [
        ("", vec![frames(3, 33), frames(1, 100)], false),
        ("message_bytes", vec![frames(1, 101)], false),
        ("message_bytes", vec![frames(2, 51)], false),
        ("message_frames", vec![frames(4, 1)], false),
        (
            "",
            vec![
                subscribe("a"),
                subscribe("a"),
                subscribe("b"),
                subscribe("a"),
            ],
            true,
        ),
        (
            "subscriptions",
            vec![subscribe("a"), subscribe("b"), subscribe("c")],
            true,
        ),
        ("subscription_bytes", vec![subscribe("01234567890")], true),
        ("", none, true),
    ] {
        for secured in [false, true] {
            let (at_one, at_other) = match secured {
                false => (Mechanism::Null, Mechanism::Null),
                true => (curve_client(CLIENT), curve_server(Allowed::Any)),
            };
            let (of_one, of_other) = match is_sub {
                true => (SocketType::Sub, SocketType::Pub),
                false => (SocketType::Dealer, SocketType::Router),
            };
            let mut config = Config::new(of_other, at_other);
            config.limits = limits.clone();
            let (mut one, mut other) = pair(Config::new(of_one, at_one), config);
            for command in commands.clone() {
                one.command(command);
                carry(&mut one, &mut other, 7);
            }
            let reached = match other.failure() {
                None => "",
                Some(Error::Limit { limit, .. }) => limit,
                Some(other) => panic!("{other}"),
            };
            assert_eq!(reached, limit, "secured: {secured}");
        }
    }
}

#[test]
fn a_publisher_refuses_messages_longer_than_a_subscription() {
    for (of_one, of_other, is_refused) in [
        (SocketType::Sub, SocketType::Pub, true),
        (SocketType::Dealer, SocketType::Router, false),
    ] {
        let config = |kind| Config::new(kind, Mechanism::Null);
        let (_, mut other) = pair(config(of_one), config(of_other));
        let head = [&[2][..], &(1_u64 << 20).to_be_bytes()].concat();
        other.input(Instant::ZERO, Input::Receive(BytesMut::from(&head[..])));
        assert_eq!(other.failure().is_some(), is_refused, "{of_other:?}");
    }
}

#[test]
fn subscriptions_are_counted_in_both_forms() {
    let (mut sub, mut publisher) = pair(
        Config::new(SocketType::Sub, Mechanism::Null),
        Config::new(SocketType::Pub, Mechanism::Null),
    );
    publisher.events.clear();
    let prefix = Bytes::from_static(b"room");
    sub.command(Command::Subscribe(prefix.clone()));
    carry(&mut sub, &mut publisher, usize::MAX);
    // The form of version 3.0: a message of 1 or 0 and the prefix.
    let message = |flag: u8| BytesMut::from(&[&[0, 5, flag], &b"room"[..]].concat()[..]);
    for (flag, expected) in [
        (1, vec![Event::Subscribed(prefix.clone())]),
        (0, vec![Event::Subscribed(prefix.clone())]),
        (
            0,
            vec![
                Event::Subscribed(prefix.clone()),
                Event::Cancelled(prefix.clone()),
            ],
        ),
        (
            0,
            vec![
                Event::Subscribed(prefix.clone()),
                Event::Cancelled(prefix.clone()),
            ],
        ),
    ] {
        publisher.input(Instant::ZERO, Input::Receive(message(flag)));
        assert_eq!(publisher.events, expected);
    }
    assert!(publisher.machine.subscriptions().is_empty());
}

#[test]
fn a_peer_of_version_3_0_gets_its_form_and_no_pings() {
    let mut sub = End::new(Config::new(SocketType::Sub, Mechanism::Null), 3);
    let mut greeting = sub.out.split();
    greeting[11] = 0;
    let ready = b"\x04\x1b\x05READY\x0bSocket-Type\0\0\0\x03PUB";
    greeting.extend_from_slice(&[0x04, 25]);
    greeting.extend_from_slice(&ready[2..]);
    sub.input(Instant::ZERO, Input::Receive(greeting));
    assert!(sub.machine.is_ready(), "{:?}", sub.failure());
    sub.out.clear();
    sub.command(Command::Subscribe(Bytes::from_static(b"a")));
    assert_eq!(sub.out, &[0, 2, 1, b'a'][..]);
    assert_eq!(sub.machine.deadline(), None);
}

#[test]
fn silence_causes_a_ping_and_then_ends_the_connection() {
    let mut config = dealer(Mechanism::Null);
    config.heartbeat = Some(Heartbeat {
        interval: Duration::from_secs(1),
        timeout: Duration::from_secs(3),
    });
    let (mut one, mut other) = pair(config, router(Mechanism::Null));
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    assert_eq!(one.machine.deadline(), Some(at(1_000)));
    one.input(at(1_000), Input::Timeout);
    assert_eq!(one.out, &b"\x04\x07\x04PING\0\x1e"[..]);
    let ping = one.out.split();
    other.input(at(1_500), Input::Receive(ping));
    assert_eq!(other.out, &b"\x04\x05\x04PONG"[..]);
    // The peer keeps the time to live that it was given: three seconds.
    assert_eq!(other.machine.deadline(), Some(at(4_500)));
    let pong = other.out.split();
    one.input(at(2_000), Input::Receive(pong));
    assert_eq!(
        (one.failure(), one.machine.deadline()),
        (None, Some(at(3_000)))
    );
    one.input(at(3_000), Input::Timeout);
    one.input(at(5_000), Input::Timeout);
    assert_eq!(one.failure(), Some(&Error::Silent));
    other.input(at(4_500), Input::Timeout);
    assert_eq!(other.failure(), Some(&Error::Silent));
}

#[test]
fn a_stalled_handshake_ends_in_time() {
    let mut end = End::new(router(curve_server(Allowed::Any)), 3);
    let until = end.machine.deadline().unwrap();
    end.input(until, Input::Timeout);
    assert_eq!(end.failure(), Some(&Error::HandshakeTimeout));
    assert_eq!(end.machine.deadline(), None);
}

#[test]
fn commands_without_content_are_limited_in_rate() {
    let (_, mut other) = pair(dealer(Mechanism::Null), router(Mechanism::Null));
    let ping = || Input::Receive(BytesMut::from(&b"\x04\x07\x04PING\0\0"[..]));
    for second in 0..3 {
        for _ in 0..Limits::default().idle_commands_per_s {
            other.input(Instant::ZERO + Duration::from_secs(second), ping());
        }
    }
    assert_eq!(other.failure(), None);
    other.input(Instant::ZERO + Duration::from_secs(2), ping());
    let reached = matches!(
        other.failure(),
        Some(Error::Limit {
            limit: "idle_commands_per_s",
            ..
        })
    );
    assert!(reached);
}

#[test]
fn a_command_too_early_is_the_callers_fault() {
    let mut end = End::new(dealer(Mechanism::Null), 3);
    end.command(Command::Send(vec![Message::from("early")]));
    assert_eq!(end.failure().unwrap().fault(), Fault::Caller);
    let (mut one, _) = pair(dealer(Mechanism::Null), router(Mechanism::Null));
    one.command(Command::Subscribe(Bytes::new()));
    assert_eq!(one.failure().unwrap().fault(), Fault::Caller);
}

/// A connection that accepts version 2.0.
fn lenient(socket_type: SocketType) -> End {
    let mut config = Config::new(socket_type, Mechanism::Null);
    config.accepts_version_2 = true;
    End::new(config, 3)
}

#[test]
fn a_peer_of_version_2_is_served_where_it_is_allowed() {
    let mut end = lenient(SocketType::Xpub);
    assert_eq!(end.out.split(), &b"\xFF\0\0\0\0\0\0\0\0\x7F\x03"[..]);
    // A SUB without an identity, which subscribes to "a" and cancels it.
    let peer = b"\xFF\0\0\0\0\0\0\0\x01\x7F\x01\x02\0\0\0\x02\x01a\0\x02\0a";
    for byte in peer {
        end.input(Instant::ZERO, Input::Receive(BytesMut::from(&[*byte][..])));
    }
    // The socket type and an empty identity.
    assert_eq!(end.out.split(), &b"\x09\0\0"[..]);
    let [
        Event::Ready(ready),
        Event::Subscribed(prefix),
        Event::Cancelled(cancelled),
    ] = &end.events[..]
    else {
        panic!("{:?}", end.events);
    };
    assert_eq!(
        (ready.major_version, ready.socket_type),
        (2, SocketType::Sub)
    );
    assert_eq!((prefix, cancelled), (&Bytes::from("a"), &Bytes::from("a")));
    assert_eq!(end.machine.deadline(), None, "version 2 has no heartbeats");
    end.command(Command::Send(vec![Message::from("a1")]));
    assert_eq!(end.out.split(), &b"\0\x02a1"[..]);
    let command = BytesMut::from(&b"\x04\x05\x04PING"[..]);
    end.input(Instant::ZERO, Input::Receive(command));
    assert_eq!(end.failure().unwrap().fault(), Fault::Peer);
}

#[test]
fn a_subscriber_of_version_2_subscribes_with_messages() {
    let mut end = lenient(SocketType::Sub);
    end.out.clear();
    let peer = BytesMut::from(&b"\xFF\0\0\0\0\0\0\0\x01\x7F\x01\x09\0\x02me"[..]);
    end.input(Instant::ZERO, Input::Receive(peer));
    let Some(Event::Ready(peer)) = end.events.first() else {
        panic!("{:?}", end.events);
    };
    assert_eq!(
        (peer.socket_type, &peer.identity[..]),
        (SocketType::Xpub, &b"me"[..])
    );
    end.command(Command::Subscribe("s: ".into()));
    assert_eq!(end.out, &b"\x02\0\0\0\x04\x01s: "[..]);
}

#[test]
fn version_2_is_refused_elsewhere_and_never_weakens_curve() {
    let peer = || BytesMut::from(&b"\xFF\0\0\0\0\0\0\0\x01\x7F\x01\x05\0\0"[..]);
    let mut curve = router(curve_server(Allowed::Any));
    curve.accepts_version_2 = true;
    for config in [router(Mechanism::Null), curve] {
        let mut end = End::new(config, 3);
        end.input(Instant::ZERO, Input::Receive(peer()));
        assert!(matches!(end.failure(), Some(Error::Version { .. })));
    }
    // An incompatible type is refused without a command, which version 2 does not have.
    let mut end = lenient(SocketType::Sub);
    end.out.clear();
    end.input(Instant::ZERO, Input::Receive(peer()));
    assert!(matches!(end.failure(), Some(Error::SocketTypes { .. })));
    assert_eq!(end.out, &b"\x02\0\0"[..]);
}

#[test]
fn ends_that_accept_version_2_use_version_3_with_each_other() {
    for (one, other) in [(true, true), (true, false), (false, true)] {
        let mut one_config = dealer(Mechanism::Null);
        one_config.accepts_version_2 = one;
        let mut other_config = router(Mechanism::Null);
        other_config.accepts_version_2 = other;
        let (one, other) = pair(one_config, other_config);
        for end in [one, other] {
            let Some(Event::Ready(peer)) = end.events.first() else {
                panic!("{:?}", end.events);
            };
            assert_eq!((peer.major_version, peer.minor_version), (3, 1));
        }
    }
}
