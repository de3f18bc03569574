//! Invariants of a ZMTP connection for any bytes in any pieces.

use bytes::BytesMut;
use chappe_machine::{Input, Instant, Machine as _, Output};
use chappe_zmtp::{
    Allowed, Command, Config, Connection, Event, Limits, Mechanism, Message, SecretKey, SocketType,
    public_key,
};

use crate::bounds::Bound;

/// A connection with its buffers.
const BOUND: Bound = Bound::memory(1 << 20, 200);

/// Small, so that limits are reached.
fn limits() -> Limits {
    Limits {
        message_bytes: 600,
        message_frames: 8,
        subscriptions: 4,
        subscription_bytes: 20,
        ..Limits::default()
    }
}

/// The first byte chooses socket type, mechanism, whether version 2.0 is accepted, and how far the handshake is done
/// for the peer; the second the size of the pieces.
///
/// No panic; nothing follows a failure; no message comes before [`Event::Ready`] or above its
/// limits; subscriptions start and end in pairs and within theirs; answers are bounded by the
/// input.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let [choice, piece, rest @ ..] = data else {
        return;
    };
    let types = [
        SocketType::Router,
        SocketType::Pub,
        SocketType::Sub,
        SocketType::Rep,
    ];
    let socket_type = types[usize::from(choice & 3)];
    let (server, client) = (SecretKey([1; 32]), SecretKey([2; 32]));
    let at_client = Mechanism::CurveClient {
        secret: client,
        server: public_key(&server),
    };
    let at_server = Mechanism::CurveServer {
        secret: server,
        allowed: Allowed::Any,
    };
    let (mechanism, theirs) = match choice >> 2 & 3 {
        0 | 1 => (Mechanism::Null, Mechanism::Null),
        2 => (at_server, at_client),
        _ => (at_client, at_server),
    };
    let mut config = Config::new(socket_type, mechanism);
    config.limits = limits();
    config.accepts_version_2 = choice & 0x40 != 0;
    let mut end = Connection::new(config, [3; 32], Instant::ZERO);
    let mut seen = Seen::default();
    let mut sent = seen.drain(&mut end);
    if choice & 0x10 != 0 {
        let peers_type = match socket_type {
            SocketType::Router => SocketType::Dealer,
            SocketType::Pub => SocketType::Sub,
            SocketType::Sub => SocketType::Pub,
            _ => SocketType::Req,
        };
        let mut peer = Connection::new(Config::new(peers_type, theirs), [4; 32], Instant::ZERO);
        let mut of_peer = Seen::default();
        for _ in 0..6 {
            let bytes = of_peer.drain(&mut peer);
            end.handle_input(Instant::ZERO, Input::Receive(bytes));
            peer.handle_input(Instant::ZERO, Input::Receive(sent));
            sent = seen.drain(&mut end);
        }
        assert!(
            seen.ready && of_peer.ready,
            "the handshake of two good ends"
        );
        // With CURVE the bytes are what a peer with the right keys says, boxed.
        if choice & 0x20 != 0 {
            let frames = rest.split(|byte| *byte == 0).map(<[u8]>::to_vec);
            let messages: Vec<_> = frames.map(Message::new).collect();
            peer.handle_input(Instant::ZERO, Input::Command(Command::Send(messages)));
            let bytes = of_peer.drain(&mut peer);
            receive(&mut end, &mut seen, &bytes, *piece);
            return;
        }
    }
    receive(&mut end, &mut seen, rest, *piece);
}

fn receive(end: &mut Connection, seen: &mut Seen, bytes: &[u8], piece: u8) {
    let (mut given, mut answered) = (0, 0);
    for piece in bytes.chunks(1 + usize::from(piece)) {
        given += piece.len();
        end.handle_input(Instant::ZERO, Input::Receive(BytesMut::from(piece)));
        answered += seen.drain(end).len();
        assert!(end.subscriptions().len() == seen.subscribed);
        assert!(seen.subscribed <= limits().subscriptions);
    }
    // A WELCOME and a READY, an INITIATE, an ERROR, and a PONG in a box for each PING.
    assert!(
        answered <= 1_024 + 8 * given,
        "{answered} bytes for {given}"
    );
}

#[derive(Default)]
struct Seen {
    ready: bool,
    failed: bool,
    subscribed: usize,
}

impl Seen {
    fn drain(&mut self, end: &mut Connection) -> BytesMut {
        let mut sent = BytesMut::new();
        while let Some(output) = end.poll_output() {
            assert!(!self.failed, "something after a failure");
            match output {
                Output::Transmit(bytes) => sent.extend_from_slice(&bytes),
                Output::Event(Event::Ready(_)) => {
                    assert!(!self.ready, "ready twice");
                    self.ready = true;
                }
                Output::Event(Event::Message(message)) => {
                    assert!(self.ready, "a message before the handshake");
                    assert!(message.bytes() <= limits().message_bytes);
                    assert!(message.len() <= limits().message_frames);
                }
                Output::Event(Event::Subscribed(prefix)) => {
                    assert!(self.ready && prefix.len() <= limits().subscription_bytes);
                    self.subscribed += 1;
                }
                Output::Event(Event::Cancelled(_)) => self.subscribed -= 1,
                Output::Event(Event::Failed(_)) => self.failed = true,
            }
        }
        sent
    }
}
