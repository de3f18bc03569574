//! Invariants of a source, and of a sink that forwards, for any datagrams that a peer sends.
//!
//! The input is a program: each step takes a few bytes, which give raw bytes, or choose a message and
//! its numbers, or let time pass. On a trusted network, where nothing else keeps a stranger out. The
//! invariants: those of the machine, no panic, no endless output, no datagram above its limit, no event
//! delivered twice, and *delivered* only of those who could have said so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output};
use chappe_notification_tree::{
    Body, Command, Config, Contact, Coverage, DATAGRAM_BYTES_MAX, Event, EventId, Membership,
    Message, Piece, Plan, Proof, Pull, Response, SOURCE, Spread, Suspects, Transmit, Tree,
    TreeEvent, TrustedNetwork, Window,
};

use crate::bounds::Bound;

/// A machine with its history.
const BOUND: Bound = Bound::memory(1 << 20, 200);

/// Steps of one program.
const STEPS_MAX: usize = 100;
/// Outputs of one step beyond which it is endless: 16 parts of one event, each to all sinks, or 16
/// repairs, with answers.
const OUTPUTS_MAX: usize = 1_000;
const SINKS: u16 = 40;

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

    /// Small numbers mostly, huge ones sometimes.
    fn number(&mut self) -> u32 {
        match self.byte() {
            byte @ 0..=240 => u32::from(byte) % 48,
            byte => u32::MAX >> (byte % 16),
        }
    }

    fn range(&mut self) -> (u32, u32) {
        let first = self.number().min(1 << 30);
        (
            first,
            first.saturating_add(self.number().max(1)).min(u32::MAX - 1),
        )
    }

    fn id(&mut self) -> EventId {
        EventId {
            topic: u64::from(self.byte() % 3),
            boot: u32::from(self.byte() % 3),
            sequence: u64::from(self.number() % 80),
        }
    }

    fn response(&mut self) -> Response {
        let id = self.id();
        let (first, end) = self.range();
        Response {
            id,
            version: u32::from(self.byte() % 3),
            first,
            end,
            stamp_us: self.number(),
            dwell_us: self.number(),
        }
    }

    fn plan(&mut self) -> Plan {
        match self.byte() % 6 {
            0 => Plan::Sequential,
            1 => Plan::SequentialWaiting,
            2 => Plan::TwoHalves,
            3 => Plan::Binomial,
            4 => Plan::Kary(u16::from(self.byte())),
            _ => Plan::Postal {
                delay: self.number().min(1 << 20),
                cap: u16::from(self.byte()).max(1),
            },
        }
    }
}

fn contact(number: u16) -> Contact {
    let [high, low] = number.to_be_bytes();
    Contact {
        address: ([10, 1, high, low], 4_000).into(),
        key: [0; 32],
    }
}

fn membership(topic: u64, version: u32) -> Arc<Membership> {
    let sinks = (0..SINKS).map(contact).collect();
    Arc::new(Membership::new(topic, version, sinks).expect("addresses are apart"))
}

struct Peer {
    tree: Tree<TrustedNetwork>,
    delivered: BTreeSet<EventId>,
}

impl Peer {
    fn new(number: u16) -> Self {
        let config = Config {
            history: 4,
            within: Duration::from_secs(1),
            ..Config::default()
        };
        Self {
            tree: Tree::new(Arc::new(config), contact(number), TrustedNetwork, 1),
            delivered: BTreeSet::new(),
        }
    }

    fn input(&mut self, now: Instant, input: Input<Message, Command>) {
        self.tree.handle_input(now, input);
        let mut count = 0;
        while let Some(output) = self.tree.poll_output() {
            count += 1;
            assert!(count <= OUTPUTS_MAX, "endless outputs");
            match output {
                Output::Transmit(transmit) => self.sent(&transmit),
                Output::Event(TreeEvent::Delivered { event, .. }) => {
                    assert!(self.delivered.insert(event.id()), "{:?} twice", event.id());
                }
                Output::Event(TreeEvent::Outcome(outcome)) => {
                    let all = outcome.failed.len() + outcome.unknown.len();
                    assert!(all <= outcome.sinks as usize);
                    assert!(outcome.failed.windows(2).all(|two| two[0] < two[1]));
                }
                Output::Event(_) => {}
            }
        }
        if let Err(broken) = self.tree.check() {
            panic!("at {now:?}: {broken}");
        }
    }

    fn sent(&mut self, transmit: &Transmit) {
        let mut datagram = Vec::new();
        self.tree.seal(transmit, &mut datagram);
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX);
        let (message, _) = Message::decode(&datagram).expect("what is sent can be read");
        assert_eq!(message, transmit.message);
    }
}

/// Runs a program.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let mut choices = Choices(data);
    let mut now = Instant::ZERO;
    let (mut source, mut sink) = (Peer::new(1_000), Peer::new(7));
    let publisher = Command::Publisher {
        membership: membership(1, 1),
        boot: 1,
    };
    source.input(now, Input::Command(publisher));
    let (topic, contact) = (1, contact(7));
    let prove = Command::Prove { topic, contact };
    source.input(now, Input::Command(prove));
    for topic in [0, 2] {
        let window = Window::default();
        let subscribe = Command::Subscribe {
            topic,
            source: self::contact(1_000),
            window,
        };
        sink.input(now, Input::Command(subscribe));
    }
    let known = Command::Membership {
        membership: membership(2, 1),
        number: None,
    };
    sink.input(now, Input::Command(known));
    for _ in 0..STEPS_MAX {
        if choices.0.is_empty() {
            break;
        }
        let datagram = match choices.byte() % 9 {
            0 => {
                now += Duration::from_micros(u64::from(choices.byte()) * 500);
                source.input(now, Input::Timeout);
                sink.input(now, Input::Timeout);
                continue;
            }
            1 => {
                let body = vec![choices.byte(); usize::from(choices.byte()) * 5];
                let publish = Command::Publish {
                    topic: 1,
                    body,
                    deadline: None,
                };
                source.input(now, Input::Command(publish));
                continue;
            }
            2 => {
                let length = usize::from(choices.byte()).min(choices.0.len());
                let (raw, rest) = choices.0.split_at(length);
                choices.0 = rest;
                let mut datagram = vec![b'T', 1];
                datagram.extend_from_slice(raw);
                datagram
            }
            kind => {
                let from = match choices.byte() {
                    255 => SOURCE,
                    byte => u32::from(byte) % 48,
                };
                let body = message(kind, &mut choices);
                let mut datagram = Vec::new();
                Message { from, body }.encode(false, &mut datagram);
                datagram
            }
        };
        for peer in [&mut source, &mut sink] {
            if let Ok(message) = peer.tree.open(now, &datagram) {
                let mut again = Vec::new();
                message.encode(false, &mut again);
                assert_eq!(again, datagram, "one form for each message");
                peer.input(now, Input::Receive(message));
            }
        }
    }
}

fn message(kind: u8, choices: &mut Choices<'_>) -> Body {
    match kind {
        3 | 4 => {
            let id = choices.id();
            let (first, end) = choices.range();
            let inline = choices.byte().is_multiple_of(2);
            let list = membership(id.topic, u32::from(choices.byte() % 3));
            let body = [choices.byte()];
            let most = DATAGRAM_BYTES_MAX - 120;
            let event = Event::new(&TrustedNetwork, id, &list, inline, None, &body, most);
            let mut suspects = Suspects::default();
            suspects.push(first);
            Body::Spread(Spread {
                first,
                end,
                stamp_us: choices.number(),
                due_us: choices.number(),
                timeout_us: choices.number(),
                age_us: choices.number(),
                latency_us: choices.number(),
                send_cost_ns: choices.number(),
                plan: choices.plan(),
                repair: choices.byte().is_multiple_of(8),
                suspects,
                event: Arc::new(event.expect("40 sinks fit")),
            })
        }
        5 => Body::Response(choices.response()),
        6 => {
            let response = choices.response();
            let first = response.first + choices.number() % (response.end - response.first);
            let failed = vec![first; usize::from(choices.byte() % 2)];
            Body::Coverage(Coverage {
                response,
                pieces: choices.number(),
                piece: Piece {
                    first,
                    end: response.end,
                    failed,
                    receipts: u128::from(choices.number()),
                },
            })
        }
        8 => Body::Proof(Proof {
            topic: u64::from(choices.byte() % 3),
            number: u128::from(choices.number()),
            answer: choices.byte().is_multiple_of(2),
        }),
        _ => Body::Pull(Pull {
            topic: u64::from(choices.byte() % 3),
            version: u32::from(choices.byte() % 3),
            boot: u32::from(choices.byte() % 3),
            first: u64::from(choices.byte()),
            wanted: u64::from(choices.number()).rotate_left(u32::from(choices.byte())),
        }),
    }
}
