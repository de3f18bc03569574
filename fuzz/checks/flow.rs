//! What must hold of both ends of a session for any bytes that a peer sends.
//!
//! The input is a program: each step takes a few bytes, which choose a message and its numbers, or
//! raw bytes with a right checksum, or time, or what the caller does. The invariants are checked
//! after each step; the caller is always honest.

use std::time::Duration;

use bytes::Bytes;
use chappe_flow::message::{Entry, seal};
use chappe_flow::message::{
    FrameWriter, Hello, Message, Place, RollbackPoint, SchemaText, Stage, Welcome,
};
use chappe_flow::{
    Channel, Code, Credit, Grant, Level, LossReason, Offer, Position, Receiver, ReceiverCommand,
    ReceiverConfig, ReceiverEvent, ReceiverReceive, Records, RefusalReason, Schema, SchemaId,
    Sender, SenderCommand, SenderConfig, SenderEvent, SenderReceive, SessionCommand, SessionConfig,
    SessionEvent, Start, Subscription,
};
use chappe_machine::{Input, Instant, Invariant, Output, drain};

use crate::bounds::Bound;

/// Two machines with their windows.
const BOUND: Bound = Bound::memory(1 << 20, 200);

/// Steps of one program.
const STEPS_MAX: usize = 400;

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
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=199 => u64::from(small) % 24,
            middle @ 200..=239 => u64::from(middle) * u64::from(self.byte()),
            240..=247 => u64::MAX - u64::from(self.byte()),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.byte());
        (0..length).map(|_| self.byte()).collect()
    }

    fn channel(&mut self) -> Channel {
        Channel(u32::from(self.byte()) % 6)
    }

    fn range(&mut self) -> (u64, u64) {
        let from = self.number();
        (from, from.saturating_add(1 + self.number() % 30))
    }

    fn records(&mut self) -> Records {
        let count = self.byte() % 5;
        (0..count)
            .map(|_| {
                let length = usize::from(self.byte());
                (0, vec![1; length * length / 16])
            })
            .collect()
    }

    fn place(&mut self) -> Place {
        let channel = self.channel();
        let number = u32::from(self.byte()) % 3;
        let stage = Stage {
            number,
            first: if number > 0 { self.number().max(1) } else { 0 },
            kept: 0,
        };
        Place {
            channel,
            stage,
            epoch: 1 + u64::from(self.byte()) % 3,
        }
    }
}

fn hello(choices: &mut Choices<'_>) -> Hello {
    Hello {
        versions: (1, 2 + u32::from(choices.byte()) % 3),
        session: 7,
        frame_bytes_max: 65_536,
        window_bytes: choices.number().saturating_mul(100),
        acknowledge_ms: choices.number(),
        dead_after_ms: choices.number(),
    }
}

/// One message, chosen by bytes.
fn push(writer: &mut FrameWriter, choices: &mut Choices<'_>, welcome: u64) {
    let kind = choices.byte() % 21;
    let bytes = choices.bytes();
    let text = String::from_utf8_lossy(&bytes);
    let schema = SchemaText {
        version: u32::from(bytes.first().copied().unwrap_or(1)) % 3,
        id: SchemaId([bytes.len() as u8; 8]),
        bytes: (bytes.len() & 3 > 0).then_some(&bytes),
    };
    let message = match kind {
        0 => Message::Hello(hello(choices)),
        1 => Message::Welcome(Welcome {
            version: 2,
            session: welcome,
            frame_bytes_max: 65_536,
            dead_after_ms: choices.number(),
        }),
        2 => Message::Goodbye {
            code: Code::from_number(choices.byte()),
            versions: (2, 2),
            text: &text,
        },
        3 => Message::Subscribe {
            channel: choices.channel(),
            start: match choices.byte() % 3 {
                0 => Start::First,
                1 => Start::New,
                _ => Start::After(Position {
                    epoch: 1,
                    sequence: choices.number().min(u64::MAX - 2),
                }),
            },
            earlier: Vec::new(),
            level: Level::Power,
            credit: Credit {
                bytes: choices.number(),
                elements: choices.number(),
            },
            serialization: "postcard",
            stream: &text,
            known: None,
        },
        4 => Message::Accepted {
            channel: choices.channel(),
            rollback: if choices.byte() & 1 == 0 {
                RollbackPoint::No
            } else {
                RollbackPoint::Unknown
            },
            epoch: 1 + u64::from(choices.byte()) % 3,
            next: choices.number().max(1),
            last: choices.number().min(u64::MAX - 2),
            level: Level::Power,
            schema,
        },
        5 => Message::Refused {
            channel: choices.channel(),
            reason: RefusalReason::from_number(choices.byte()),
            text: &text,
        },
        6 => Message::Schema {
            channel: choices.channel(),
            index: u32::from(choices.byte()) % 4,
            schema,
        },
        7..=9 => Message::Records {
            place: choices.place(),
            first: choices.number().max(1),
            schema: u32::from(choices.byte()) % 2,
            behind: choices.number(),
            records: choices.records(),
        },
        10 => {
            let (from, next) = choices.range();
            let reason = LossReason::from_number(choices.byte());
            Message::Lost {
                place: choices.place(),
                from,
                next,
                reason,
            }
        }
        11 | 12 => {
            let stored = choices.number();
            let entry = Entry {
                channel: choices.channel().0,
                stage: u32::from(choices.byte()) % 2,
                stored,
                elements: choices.number(),
                bytes: choices.number(),
                elements_limit: choices.number(),
                bytes_limit: choices.number(),
                refused: choices.number(),
            };
            let full = writer.push_acknowledge(&[entry], usize::MAX);
            return assert_eq!(full, None, "there is no limit");
        }
        13 | 14 => Message::Stage {
            place: choices.place(),
        },
        15 => Message::Ping {
            token: choices.number(),
        },
        16 => Message::Pong {
            token: choices.number(),
        },
        17 => Message::Unsubscribe {
            channel: choices.channel(),
            reason: RefusalReason::Ended,
            text: &text,
        },
        18 => Message::Ended {
            channel: choices.channel(),
        },
        19 => {
            let (from, next) = choices.range();
            Message::Fetch {
                request: choices.number(),
                channel: choices.channel(),
                epoch: 1,
                from,
                next,
                bytes: choices.number(),
            }
        }
        _ => Message::Fetched {
            request: choices.number(),
            first: choices.number(),
            records: choices.records(),
        },
    };
    writer.push(&message);
}

/// A frame of some messages, or of raw bytes.
fn frame(choices: &mut Choices<'_>, welcome: u64) -> Bytes {
    let how = choices.byte();
    if how >= 224 {
        return Bytes::from(choices.bytes());
    }
    if how >= 192 {
        return seal(&choices.bytes());
    }
    let mut writer = FrameWriter::default();
    for _ in 0..=how % 3 {
        push(&mut writer, choices, welcome);
    }
    writer.finish().expect("something was pushed")
}

fn session() -> SessionConfig {
    SessionConfig {
        frame_bytes: 4_096,
        frame_bytes_max: 16_384,
        ..SessionConfig::default()
    }
}

/// The origin against a hostile subscriber.
fn sender(choices: &mut Choices<'_>) {
    let config = SenderConfig {
        session: session(),
        channels_max: 4,
        ..SenderConfig::default()
    };
    let mut machine = Sender::new(config);
    let mut now = Instant::ZERO;
    let mut inputs = vec![Input::Receive(SenderReceive::Frame(first_frame(choices)))];
    let mut last = 20_u64;
    for _ in 0..STEPS_MAX {
        let input = match inputs.pop() {
            Some(input) => input,
            None if choices.0.is_empty() => break,
            None => match choices.byte() {
                0..=9 => {
                    now += Duration::from_millis(choices.number().min(30_000));
                    Input::Timeout
                }
                10..=29 => {
                    last += 1;
                    let channel = choices.channel();
                    Input::Command(SenderCommand::Appended { channel, last })
                }
                30..=39 => Input::Command(SenderCommand::Session(SessionCommand::Fetch {
                    channel: choices.channel(),
                    epoch: 1,
                    from: 1,
                    next: 9,
                })),
                _ => Input::Receive(SenderReceive::Frame(frame(choices, 0))),
            },
        };
        let mut sent = 0;
        drain(&mut machine, now, input, |output| match output {
            Output::Transmit(frame) => sent += frame.len(),
            Output::Event(event) => inputs.extend(sender_answer(event, last)),
        });
        assert!(sent < 1 << 20, "{sent} bytes answer one input");
        machine.check().expect("an invariant of the sender");
    }
}

fn first_frame(choices: &mut Choices<'_>) -> Bytes {
    let mut writer = FrameWriter::default();
    writer.push(&Message::Hello(Hello {
        window_bytes: 100_000,
        ..hello(choices)
    }));
    writer.finish().expect("Hello was pushed")
}

/// What an honest origin answers.
fn sender_answer(event: SenderEvent, last: u64) -> Option<Input<SenderReceive, SenderCommand>> {
    let command = match event {
        SenderEvent::Subscribe { channel, .. } => SenderCommand::Answer {
            channel,
            offer: Offer::Accept(Grant {
                epoch: 1,
                next: 1,
                last,
                level: Level::Power,
                schema: Schema {
                    version: 1,
                    ..Schema::default()
                },
            }),
        },
        SenderEvent::Read {
            channel,
            from,
            elements,
            ..
        } => {
            let count = elements.min((last + 1).saturating_sub(from));
            SenderCommand::Records {
                channel,
                epoch: 1,
                first: from,
                schema_version: 1,
                records: (0..count).map(|_| (0, [3; 50])).collect(),
            }
        }
        SenderEvent::Session(SessionEvent::Fetch { request, from, .. }) => {
            SenderCommand::Session(SessionCommand::Fetched {
                request,
                first: from,
                records: std::iter::once((0, [3; 50])).collect(),
            })
        }
        _ => return None,
    };
    Some(Input::Command(command))
}

/// The subscriber against a hostile origin.
fn receiver(choices: &mut Choices<'_>) {
    let config = ReceiverConfig {
        session: session(),
        channels_max: 4,
        window_bytes: 20_000,
        ..ReceiverConfig::default()
    };
    let mut machine = Receiver::new(config, 5);
    let mut now = Instant::ZERO;
    let mut inputs: Vec<_> = (0..3)
        .map(|channel| {
            let start = match choices.byte() % 3 {
                0 => Start::First,
                1 => Start::New,
                _ => Start::After(Position {
                    epoch: 1,
                    sequence: 5,
                }),
            };
            Input::Command(ReceiverCommand::Subscribe {
                channel: Channel(channel),
                subscription: Subscription::new("stream", start),
            })
        })
        .collect();
    let mut number = None;
    for _ in 0..STEPS_MAX {
        let input = match inputs.pop() {
            Some(input) => input,
            None if choices.0.is_empty() => break,
            None => match choices.byte() {
                0..=9 => {
                    now += Duration::from_millis(choices.number().min(30_000));
                    Input::Timeout
                }
                10..=14 => Input::Command(ReceiverCommand::Unsubscribe {
                    channel: choices.channel(),
                    reason: RefusalReason::Ended,
                    text: String::new(),
                }),
                15..=19 => Input::Command(ReceiverCommand::Session(SessionCommand::Fetch {
                    channel: choices.channel(),
                    epoch: 1,
                    from: 1,
                    next: 9,
                })),
                _ => {
                    let frame = frame(choices, number.unwrap_or(0));
                    Input::Receive(ReceiverReceive::Frame(frame))
                }
            },
        };
        let mut sent = 0;
        let lazy = choices.byte() & 1 == 0;
        drain(&mut machine, now, input, |output| match output {
            Output::Transmit(frame) => {
                sent += frame.len();
                number = number.or_else(|| session_number(&frame));
            }
            Output::Event(event) => inputs.extend(receiver_answer(event, lazy)),
        });
        assert!(sent < 1 << 20, "{sent} bytes answer one input");
        machine.check().expect("an invariant of the receiver");
    }
}

/// The number that a Hello gives to its session.
fn session_number(frame: &Bytes) -> Option<u64> {
    let mut messages = chappe_flow::message::decode(frame).ok()?;
    match messages.next()?.ok()? {
        Message::Hello(hello) => Some(hello.session),
        _ => None,
    }
}

/// What an honest subscriber answers; a lazy one stores nothing.
fn receiver_answer(
    event: ReceiverEvent,
    lazy: bool,
) -> Option<Input<ReceiverReceive, ReceiverCommand>> {
    let command = match event {
        ReceiverEvent::Store {
            channel,
            epoch,
            first,
            records,
            ..
        } if !lazy => {
            assert!(!records.is_empty(), "nothing to store");
            let sequence = first + records.len() as u64 - 1;
            let position = Position { epoch, sequence };
            ReceiverCommand::Stored { channel, position }
        }
        ReceiverEvent::Session(SessionEvent::Fetch { request, from, .. }) => {
            ReceiverCommand::Session(SessionCommand::Fetched {
                request,
                first: from,
                records: Records::default(),
            })
        }
        _ => return None,
    };
    Some(Input::Command(command))
}

/// No panic and no broken invariant, whatever the peer sends.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else {
        return;
    };
    let mut choices = Choices(rest);
    if which % 2 == 0 {
        sender(&mut choices);
    } else {
        receiver(&mut choices);
    }
}
