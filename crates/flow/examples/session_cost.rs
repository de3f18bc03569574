//! The cost of a session for each element, both ends together, in memory and on one core.
//!
//!     cargo run --release -p chappe-flow --example session_cost -- [ELEMENTS] [PAYLOAD_BYTES]
//!
//! Each way of sending is run with one session and prints nanoseconds for each element: packed by the
//! sender, carried as a frame, handed out by the receiver, said to be stored, acknowledged. What the
//! log, the network and the serialization cost is not in it.

#![allow(clippy::disallowed_methods)] // it measures: the clock is what it is for

use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use chappe_flow::{
    Channel, Grant, Level, Offer, Position, Receiver, ReceiverCommand, ReceiverConfig,
    ReceiverEvent, ReceiverReceive, Records, Schema, Sender, SenderCommand, SenderConfig,
    SenderEvent, SenderReceive, SessionEvent, Start, Subscription,
};
use chappe_machine::{Input, Instant, Output, drain};

/// Virtual time between two batches of a stream of 100 elements a second.
const TICK_NS: u64 = 10_000_000;

/// Both ends, and the connection between them.
struct Pair {
    sender: Sender,
    receiver: Receiver,
    now: Instant,
    deadlines: (Option<Instant>, Option<Instant>),
    /// The log, when the sender reads.
    batch: Records,
    stored: u64,
    frames: u64,
}

enum Carried {
    ToSender(Input<SenderReceive, SenderCommand>),
    ToReceiver(Input<ReceiverReceive, ReceiverCommand>),
}

impl Pair {
    fn new(channels: u32) -> Self {
        let mut pair = Self {
            sender: Sender::new(SenderConfig::default()),
            receiver: Receiver::new(ReceiverConfig::default(), 2),
            now: Instant::ZERO,
            deadlines: (None, None),
            batch: Records::default(),
            stored: 0,
            frames: 0,
        };
        let mut queue = Vec::new();
        for channel in 0..channels {
            let subscription = Subscription::new("rate", Start::New);
            pair.give(
                Carried::ToReceiver(Input::Command(ReceiverCommand::Subscribe {
                    channel: Channel(channel),
                    subscription,
                })),
                &mut queue,
            );
        }
        pair
    }

    /// Passes one input and processes everything that follows from it.
    fn give(&mut self, input: Carried, queue: &mut Vec<Carried>) {
        queue.push(input);
        while let Some(next) = queue.pop() {
            match next {
                Carried::ToSender(input) => self.at_sender(input, queue),
                Carried::ToReceiver(input) => self.at_receiver(input, queue),
            }
        }
    }

    fn at_sender(&mut self, input: Input<SenderReceive, SenderCommand>, queue: &mut Vec<Carried>) {
        let (batch, frames) = (&self.batch, &mut self.frames);
        self.deadlines.0 = drain(&mut self.sender, self.now, input, |output| match output {
            Output::Transmit(frame) => {
                *frames += 1;
                queue.insert(
                    0,
                    Carried::ToReceiver(Input::Receive(ReceiverReceive::Frame(frame))),
                );
            }
            Output::Event(SenderEvent::Subscribe { channel, .. }) => {
                queue.insert(0, Carried::ToSender(Input::Command(answer(channel))));
            }
            Output::Event(SenderEvent::Read {
                channel,
                from,
                bytes,
                elements,
            }) => {
                let records = batch.take(elements as usize, bytes as usize);
                queue.insert(
                    0,
                    Carried::ToSender(Input::Command(SenderCommand::Records {
                        channel,
                        epoch: 1,
                        first: from,
                        schema_version: 1,
                        records,
                    })),
                );
            }
            Output::Event(SenderEvent::Session(SessionEvent::Failed(failure))) => {
                panic!("{failure}")
            }
            Output::Event(_) => {}
        });
    }

    fn at_receiver(
        &mut self,
        input: Input<ReceiverReceive, ReceiverCommand>,
        queue: &mut Vec<Carried>,
    ) {
        let stored = &mut self.stored;
        self.deadlines.1 = drain(&mut self.receiver, self.now, input, |output| match output {
            Output::Transmit(frame) => {
                queue.insert(
                    0,
                    Carried::ToSender(Input::Receive(SenderReceive::Frame(frame))),
                );
            }
            Output::Event(ReceiverEvent::Store {
                channel,
                epoch,
                first,
                records,
                ..
            }) => {
                for record in &records {
                    std::hint::black_box(record);
                }
                *stored += records.len() as u64;
                let position = Position {
                    epoch,
                    sequence: first + records.len() as u64 - 1,
                };
                queue.insert(
                    0,
                    Carried::ToReceiver(Input::Command(ReceiverCommand::Stored {
                        channel,
                        position,
                    })),
                );
            }
            Output::Event(ReceiverEvent::Session(SessionEvent::Failed(failure))) => {
                panic!("{failure}")
            }
            Output::Event(_) => {}
        });
    }

    /// Lets a tick of virtual time pass.
    fn tick(&mut self, queue: &mut Vec<Carried>) {
        self.now += Duration::from_nanos(TICK_NS);
        if self.deadlines.0.is_some_and(|at| at <= self.now) {
            self.give(Carried::ToSender(Input::Timeout), queue);
        }
        if self.deadlines.1.is_some_and(|at| at <= self.now) {
            self.give(Carried::ToReceiver(Input::Timeout), queue);
        }
    }
}

fn answer(channel: Channel) -> SenderCommand {
    let grant = Grant {
        epoch: 1,
        next: 1,
        last: 0,
        level: Level::Power,
        schema: Schema {
            version: 1,
            bytes: Bytes::from_static(b"schema"),
            ..Schema::default()
        },
    };
    SenderCommand::Answer {
        channel,
        offer: Offer::Accept(grant),
    }
}

/// Sends `elements` in batches of `batch` over `channels`, at hand or to be read.
fn run(name: &str, elements: u64, batch: usize, payload: usize, channels: u32, at_hand: bool) {
    let mut pair = Pair::new(channels);
    let bytes = vec![7; payload];
    pair.batch = std::iter::repeat_n((1, &bytes), batch).collect();
    let mut queue = Vec::new();
    let begin = (Clock::now(), processor_time());
    let mut first = 1;
    let rounds = elements / (batch as u64 * u64::from(channels));
    for _ in 0..rounds {
        for channel in (0..channels).map(Channel) {
            let last = first + batch as u64 - 1;
            let command = if at_hand {
                SenderCommand::Live {
                    channel,
                    epoch: 1,
                    first,
                    schema_version: 1,
                    records: pair.batch.clone(),
                }
            } else {
                SenderCommand::Appended { channel, last }
            };
            pair.give(Carried::ToSender(Input::Command(command)), &mut queue);
        }
        first += batch as u64;
        pair.tick(&mut queue);
    }
    let passed = begin.0.elapsed();
    let worked = processor_time()
        .zip(begin.1)
        .map(|(after, before)| after - before);
    let sent = rounds * batch as u64 * u64::from(channels);
    assert_eq!(pair.stored, sent, "everything was stored");
    let nanoseconds = |took: Duration| took.as_nanos() as f64 / sent as f64;
    println!(
        "{name:<42} {:>6.0} ns of processor time an element ({:>6.0} of time), {:>8} frames, {:>7} acknowledgements",
        worked.map_or(f64::NAN, nanoseconds),
        nanoseconds(passed),
        pair.frames,
        pair.receiver.counters().acknowledgements,
    );
}

/// Processor time of this thread, if the system reports it: elapsed time says little
/// on a machine that does other work too.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|one| one.parse::<u64>());
    let mut next = |default| {
        arguments
            .next()
            .map_or(default, |one| one.expect("a number"))
    };
    let elements = next(2_000_000);
    let payload = next(100) as usize;
    println!("payload {payload} bytes");
    run(
        "one element a frame, at hand",
        elements,
        1,
        payload,
        1,
        true,
    );
    run("one element a frame, read", elements, 1, payload, 1, false);
    run(
        "one element a frame, at hand, 24 channels",
        elements,
        1,
        payload,
        24,
        true,
    );
    run("4 elements a frame, at hand", elements, 4, payload, 1, true);
    run(
        "100 elements a frame, at hand",
        elements,
        100,
        payload,
        1,
        true,
    );
    run(
        "100 elements a frame, read",
        elements,
        100,
        payload,
        1,
        false,
    );
}
