//! Two ends on a virtual clock, connected by a network that delays, damages and breaks; with a
//! model of the origin's log and of the subscriber's storage. A session that fails is followed by
//! another.
//!
//! Everything derives from a seed. The machines' invariants are checked after each input.

pub(crate) mod origin;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use chappe_flow::{
    Channel, Counters, DeadLetterReason, Level, Position, Receiver, ReceiverCommand,
    ReceiverConfig, ReceiverEvent, ReceiverReceive, Records, Sender, SenderCommand, SenderConfig,
    SenderEvent, SenderReceive, SessionCommand, SessionEvent, Start, Subscription,
};
use chappe_machine::{Input, Instant, Invariant, Output, drain};
use fastrand::Rng;

use origin::{Answer, OriginStream};

/// The faults of the network, in chances of a thousand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Weather {
    pub(crate) damage: u32,
    /// The minimum delay of a frame, and the maximum in addition. Frames keep their order.
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    /// The rate in each direction; `None`: unlimited.
    pub(crate) bytes_per_s: Option<u64>,
}

/// The behaviour of the programs around the machines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behaviour {
    pub(crate) store: Duration,
    pub(crate) read: Duration,
    /// Chances of a thousand.
    pub(crate) live: u32,
    pub(crate) refuse: u32,
    /// A stream whose elements are never stored.
    pub(crate) stuck: Option<usize>,
}

enum Happening {
    ToSender(u64, Vec<u8>),
    ToReceiver(u64, Vec<u8>),
    Answered(u64, Channel, u64, Answer, u32),
    Stored(u64, usize, Position, Vec<(u64, Vec<u8>)>),
}

/// The subscriber's copy of one stream.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// In the order of storage.
    pub(crate) elements: Vec<(Position, Vec<u8>)>,
    pub(crate) dead_letters: Vec<Position>,
    pub(crate) lost: Vec<(u64, u64, u64)>,
    pub(crate) rollbacks: Vec<(Position, Option<Position>, Position)>,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) random: Rng,
    pub(crate) now: Instant,
    pub(crate) weather: Weather,
    pub(crate) behaviour: Behaviour,
    pub(crate) sender_config: SenderConfig,
    pub(crate) receiver_config: ReceiverConfig,
    /// Another pacer than the default.
    pub(crate) pacer: Option<fn() -> Box<dyn chappe_flow::Pacer>>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    deadlines: (Option<Instant>, Option<Instant>),
    session: u64,
    agenda: BinaryHeap<Reverse<(Instant, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    ticket: u64,
    last_arrival: [Instant; 2],
    departed: [Instant; 2],
    pub(crate) streams: Vec<OriginStream>,
    pub(crate) stored: Vec<Stored>,
    /// The highest position acknowledged, by stream.
    pub(crate) acknowledged: BTreeMap<(usize, u64), u64>,
    pub(crate) failures: Vec<String>,
    pub(crate) cuts: u64,
    /// Frames that the network damaged.
    pub(crate) damaged: u64,
    /// Whether the current session has failed, and another must begin.
    has_failed: bool,
    pub(crate) totals: Counters,
    pub(crate) credit: Option<chappe_flow::Credit>,
    /// Prints all messages.
    pub(crate) trace: bool,
    /// Elements handed out, in order: stream, first number, count, time.
    pub(crate) handed_out: Vec<(usize, u64, u64, Instant)>,
    /// The time at which each element was appended.
    pub(crate) born: BTreeMap<(usize, u64), Instant>,
    /// Repaired elements, at the origin and at the subscriber: position and payload.
    pub(crate) repaired: [Vec<(Position, Vec<u8>)>; 2],
    /// How many numbers each ended repair could not bring.
    pub(crate) unrepaired: [Vec<u64>; 2],
    /// The other events of both ends, as texts.
    pub(crate) other_events: Vec<String>,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        streams: usize,
        sender: SenderConfig,
        receiver: ReceiverConfig,
    ) -> Self {
        let mut world = Self {
            seed,
            random: Rng::with_seed(seed),
            now: Instant::ZERO,
            weather: Weather::default(),
            behaviour: Behaviour::default(),
            pacer: None,
            sender: Sender::new(sender.clone()),
            receiver: Receiver::new(receiver.clone(), seed),
            sender_config: sender,
            receiver_config: receiver,
            deadlines: (None, None),
            session: 0,
            agenda: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            ticket: 0,
            last_arrival: [Instant::ZERO; 2],
            departed: [Instant::ZERO; 2],
            streams: (0..streams as u64).map(OriginStream::new).collect(),
            stored: (0..streams).map(|_| Stored::default()).collect(),
            acknowledged: BTreeMap::new(),
            failures: Vec::new(),
            cuts: 0,
            damaged: 0,
            has_failed: false,
            totals: Counters::default(),
            credit: None,
            trace: false,
            handed_out: Vec::new(),
            born: BTreeMap::new(),
            repaired: [Vec::new(), Vec::new()],
            unrepaired: [Vec::new(), Vec::new()],
            other_events: Vec::new(),
        };
        world.weather.delay = Duration::from_millis(1);
        world
    }

    pub(crate) fn chance(&mut self, thousandths: u32) -> bool {
        self.random.u32(0..1_000) < thousandths
    }

    fn plan(&mut self, after: Duration, happening: Happening) {
        self.plan_at(self.now + after, happening);
    }

    fn plan_at(&mut self, at: Instant, happening: Happening) {
        self.ticket += 1;
        self.agenda.push(Reverse((at, self.ticket)));
        self.happenings.insert(self.ticket, happening);
    }

    /// Cuts the connection, if there is one, and opens another.
    pub(crate) fn connect(&mut self) {
        self.session += 1;
        self.cuts += 1;
        self.has_failed = false;
        add(
            &mut self.totals,
            self.sender.counters(),
            self.receiver.counters(),
        );
        let seed = self.random.u64(..);
        let config = self.sender_config.clone();
        self.sender = match self.pacer {
            Some(pacer) => Sender::with_pacer(config, pacer()),
            None => Sender::new(config),
        };
        self.receiver = Receiver::new(self.receiver_config.clone(), seed);
        // Elements being stored are lost with the program, or stored after all.
        let unfinished = self
            .happenings
            .values()
            .any(|one| matches!(one, Happening::Stored(..)));
        if unfinished && self.random.bool() {
            self.happenings
                .retain(|_, one| !matches!(one, Happening::Stored(..)));
        } else if unfinished {
            for ticket in self.happenings.keys().copied().collect::<Vec<_>>() {
                if matches!(self.happenings[&ticket], Happening::Stored(..)) {
                    let one = self.happenings.remove(&ticket).expect("it is there");
                    self.happen(one);
                }
            }
        }
        self.tell_sender(Input::Timeout);
        for stream in 0..self.streams.len() {
            self.subscribe(stream);
        }
    }

    fn subscribe(&mut self, stream: usize) {
        let newest = self.newest(stream);
        // The newest position of each epoch, the newest epoch first.
        let mut epochs = BTreeMap::new();
        let stored = &self.stored[stream];
        let elements = stored.elements.iter().map(|(position, _)| position);
        for position in elements.chain(&stored.dead_letters) {
            let newest = epochs.entry(position.epoch).or_insert(*position);
            *newest = (*newest).max(*position);
        }
        let subscription = Subscription {
            earlier: epochs.into_values().rev().skip(1).collect(),
            level: Level::Process,
            credit: self.credit,
            ..Subscription::new(
                format!("stream/{stream}"),
                newest.map_or(Start::First, Start::After),
            )
        };
        self.tell_receiver(Input::Command(ReceiverCommand::Subscribe {
            channel: Channel(stream as u32),
            subscription,
        }));
    }

    /// The newest position that is stored or a dead letter.
    pub(crate) fn newest(&self, stream: usize) -> Option<Position> {
        let stored = &self.stored[stream];
        let element = stored.elements.last().map(|(position, _)| *position);
        // A newer epoch has the higher number here.
        let dead = stored.dead_letters.last().copied();
        element.max(dead)
    }

    /// Appends to a stream and informs the sender.
    pub(crate) fn append(&mut self, stream: usize, count: usize, bytes: usize) {
        let live = self.chance(self.behaviour.live);
        let mut records = Vec::new();
        let first = self.streams[stream].next;
        for _ in 0..count {
            let length = self.random.usize(0..=bytes);
            let mut payload = vec![0; length];
            self.random.fill(&mut payload);
            let number = self.streams[stream].append(payload.clone());
            self.born.insert((stream, number), self.now);
            records.push((0, payload));
        }
        let channel = Channel(stream as u32);
        let origin = &self.streams[stream];
        let command = if live {
            SenderCommand::Live {
                channel,
                epoch: origin.epoch(),
                first,
                schema_version: origin.schema_version,
                records: records.into_iter().collect(),
            }
        } else {
            let last = origin.last();
            SenderCommand::Appended { channel, last }
        };
        self.tell_sender(Input::Command(command));
    }

    pub(crate) fn tell_sender(&mut self, input: Input<SenderReceive, SenderCommand>) {
        if self.trace && matches!(input, Input::Command(_)) {
            println!("{:?} to sender: {input:?}", self.now);
        }
        let mut outputs = Vec::new();
        let now = self.now;
        self.deadlines.0 = drain(&mut self.sender, now, input, |output| outputs.push(output));
        if let Err(what) = self.sender.check() {
            panic!("seed {}, sender: {what}", self.seed);
        }
        for output in outputs {
            match output {
                Output::Transmit(frame) => self.carry(frame.to_vec(), 0),
                Output::Event(event) => self.sender_says(event),
            }
        }
    }

    pub(crate) fn tell_receiver(&mut self, input: Input<ReceiverReceive, ReceiverCommand>) {
        let mut outputs = Vec::new();
        let now = self.now;
        self.deadlines.1 = drain(&mut self.receiver, now, input, |output| {
            outputs.push(output)
        });
        if let Err(what) = self.receiver.check() {
            panic!("seed {}, receiver: {what}", self.seed);
        }
        for output in outputs {
            match output {
                Output::Transmit(frame) => self.carry(frame.to_vec(), 1),
                Output::Event(event) => self.receiver_says(event),
            }
        }
    }

    fn carry(&mut self, mut frame: Vec<u8>, from: usize) {
        if let Some(rate) = self.weather.bytes_per_s {
            let takes = Duration::from_nanos(frame.len() as u64 * 1_000_000_000 / rate);
            self.departed[from] = self.departed[from].max(self.now) + takes;
        }
        if self.chance(self.weather.damage) {
            let at = self.random.usize(0..frame.len());
            frame[at] ^= 1 << self.random.u8(0..8);
            self.damaged += 1;
        }
        let jitter = self.random.u64(0..=self.weather.jitter.as_nanos() as u64);
        let at =
            self.departed[from].max(self.now) + self.weather.delay + Duration::from_nanos(jitter);
        let at = at.max(self.last_arrival[from]);
        self.last_arrival[from] = at;
        let session = self.session;
        let happening = if from == 0 {
            Happening::ToReceiver(session, frame)
        } else {
            Happening::ToSender(session, frame)
        };
        self.plan_at(at, happening);
    }

    fn sender_says(&mut self, event: SenderEvent) {
        if self.trace {
            println!("{:?} sender: {event:?}", self.now);
        }
        match event {
            SenderEvent::Subscribe {
                channel,
                subscription,
            } => {
                let offer = self.streams[channel.0 as usize].offer(&subscription);
                self.tell_sender(Input::Command(SenderCommand::Answer { channel, offer }));
            }
            SenderEvent::Read {
                channel,
                from,
                bytes,
                elements,
            } => {
                let stream = &self.streams[channel.0 as usize];
                let answer = stream.read(from, bytes, elements);
                let version = stream.schema_version;
                let wait = self.behaviour.read;
                let happening = Happening::Answered(self.session, channel, from, answer, version);
                if wait.is_zero() {
                    self.happen(happening);
                } else {
                    let wait = self.random.u64(0..wait.as_nanos() as u64);
                    self.plan(Duration::from_nanos(wait), happening);
                }
            }
            SenderEvent::Acknowledged {
                channel, position, ..
            } => {
                let stream = channel.0 as usize;
                let stored = &self.stored[stream];
                let held = stored.elements.iter().map(|(position, _)| *position);
                let held = held.chain(stored.dead_letters.iter().copied());
                let highest = held.filter(|held| held.epoch == position.epoch).max();
                let lost = stored.lost.iter().filter(|lost| lost.0 == position.epoch);
                let highest = highest
                    .map(|highest| highest.sequence)
                    .max(lost.map(|lost| lost.2 - 1).max());
                assert!(
                    highest >= Some(position.sequence),
                    "seed {}: {position} is acknowledged, stored is {highest:?}",
                    self.seed
                );
                self.acknowledged
                    .insert((stream, position.epoch), position.sequence);
            }
            SenderEvent::Session(SessionEvent::Failed(failure)) => {
                self.has_failed = true;
                self.failures.push(format!("sender: {failure}"));
            }
            SenderEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                ..
            }) => {
                let stream = &self.streams[channel.0 as usize];
                let records = stream.records.range(from..next);
                let records = records.filter(|(_, (of, _))| *of == epoch);
                let records = records.map(|(number, (_, payload))| (*number, payload.clone()));
                let (first, records) = answer(records.collect());
                self.tell_sender(Input::Command(SenderCommand::Session(
                    SessionCommand::Fetched {
                        request,
                        first,
                        records,
                    },
                )));
            }
            SenderEvent::Session(SessionEvent::Fetched {
                epoch,
                first,
                records,
                ..
            }) => self.repaired[0].extend(positions(epoch, first, &records)),
            SenderEvent::Session(SessionEvent::FetchEnded { missing, .. }) => {
                self.unrepaired[0].push(missing)
            }
            other => self.other_events.push(format!("sender: {other:?}")),
        }
    }

    fn receiver_says(&mut self, event: ReceiverEvent) {
        if self.trace {
            println!("{:?} receiver: {event:?}", self.now);
        }
        match event {
            ReceiverEvent::Store {
                channel,
                epoch,
                first,
                records,
                ..
            } => {
                let stream = channel.0 as usize;
                let count = records.len() as u64;
                self.handed_out.push((stream, first, count, self.now));
                let last = first + records.len() as u64 - 1;
                let elements = (first..).zip(&records);
                let elements = elements.map(|(number, record)| (number, record.payload.to_vec()));
                let position = Position {
                    epoch,
                    sequence: last,
                };
                let happening =
                    Happening::Stored(self.session, stream, position, elements.collect());
                if self.behaviour.stuck == Some(stream) {
                    return;
                }
                if self.behaviour.store.is_zero() {
                    self.happen(happening);
                } else {
                    let wait = self.behaviour.store;
                    self.plan(wait, happening);
                }
            }
            ReceiverEvent::Lost {
                channel,
                epoch,
                from,
                next,
                ..
            } => self.stored[channel.0 as usize]
                .lost
                .push((epoch, from, next)),
            ReceiverEvent::Rollback {
                channel,
                have,
                kept,
                next,
            } => self.stored[channel.0 as usize]
                .rollbacks
                .push((have, kept, next)),
            ReceiverEvent::Session(SessionEvent::Failed(failure)) => {
                self.has_failed = true;
                self.failures.push(format!("receiver: {failure}"));
            }
            ReceiverEvent::Session(SessionEvent::Fetch {
                request,
                channel,
                epoch,
                from,
                next,
                ..
            }) => {
                let stored = self.stored[channel.0 as usize].elements.iter();
                let range =
                    |at: &Position| at.epoch == epoch && (from..next).contains(&at.sequence);
                let stored = stored.filter(|(at, _)| range(at));
                let stored = stored.map(|(at, payload)| (at.sequence, payload.clone()));
                let (first, records) = answer(stored.collect());
                self.tell_receiver(Input::Command(ReceiverCommand::Session(
                    SessionCommand::Fetched {
                        request,
                        first,
                        records,
                    },
                )));
            }
            ReceiverEvent::Session(SessionEvent::Fetched {
                epoch,
                first,
                records,
                ..
            }) => self.repaired[1].extend(positions(epoch, first, &records)),
            ReceiverEvent::Session(SessionEvent::FetchEnded { missing, .. }) => {
                self.unrepaired[1].push(missing)
            }
            other => self.other_events.push(format!("receiver: {other:?}")),
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::ToSender(session, frame) if session == self.session => {
                self.tell_sender(Input::Receive(SenderReceive::Frame(frame.into())));
            }
            Happening::ToReceiver(session, frame) if session == self.session => {
                self.tell_receiver(Input::Receive(ReceiverReceive::Frame(frame.into())));
            }
            Happening::ToSender(..) | Happening::ToReceiver(..) => {}
            Happening::Answered(session, channel, from, answer, version) => {
                if session != self.session {
                    return;
                }
                let command = match answer {
                    Answer::Records { epoch, records } => SenderCommand::Records {
                        channel,
                        epoch,
                        first: from,
                        schema_version: version,
                        records,
                    },
                    Answer::Gap {
                        epoch,
                        next,
                        reason,
                    } => SenderCommand::Gap {
                        channel,
                        epoch,
                        from,
                        next,
                        reason,
                    },
                };
                self.tell_sender(Input::Command(command));
            }
            Happening::Stored(session, stream, position, elements) => {
                let mut refused = Vec::new();
                for (sequence, payload) in elements {
                    let position = Position {
                        epoch: position.epoch,
                        sequence,
                    };
                    if self.chance(self.behaviour.refuse) {
                        self.stored[stream].dead_letters.push(position);
                        refused.push(position);
                    } else {
                        self.stored[stream].elements.push((position, payload));
                    }
                }
                if session != self.session {
                    return;
                }
                let channel = Channel(stream as u32);
                for position in refused {
                    let reason = DeadLetterReason::Unreadable;
                    self.tell_receiver(Input::Command(ReceiverCommand::Refused {
                        channel,
                        position,
                        reason,
                    }));
                }
                self.tell_receiver(Input::Command(ReceiverCommand::Stored {
                    channel,
                    position,
                }));
            }
        }
    }

    /// Advances the time.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            if self.has_failed {
                self.connect();
            }
            let next = self.agenda.peek().map(|Reverse((at, _))| *at);
            let times = [next, self.deadlines.0, self.deadlines.1];
            let Some(at) = times.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if next == Some(at) {
                let Reverse((_, ticket)) = self.agenda.pop().expect("it was there");
                if let Some(happening) = self.happenings.remove(&ticket) {
                    self.happen(happening);
                }
            } else if self.deadlines.0 == Some(at) {
                self.tell_sender(Input::Timeout);
                assert!(
                    self.deadlines.0 != Some(at),
                    "seed {}: the sender is stuck",
                    self.seed
                );
            } else {
                self.tell_receiver(Input::Timeout);
                assert!(
                    self.deadlines.1 != Some(at),
                    "seed {}: the receiver is stuck",
                    self.seed
                );
            }
        }
        self.now = end;
    }

    /// Runs until everything is stored, for at most this long.
    pub(crate) fn finish(&mut self, most: Duration) {
        let end = self.now + most;
        while self.now < end && !self.is_complete() {
            self.run(Duration::from_millis(100));
        }
        assert!(
            self.is_complete(),
            "seed {}: not complete after {most:?}: {:?} {:?} {:?} {:?}",
            self.seed,
            self.stuck(),
            self.sender.channels().collect::<Vec<_>>(),
            self.receiver.channels().collect::<Vec<_>>(),
            self.failures
        );
    }

    /// The streams whose end is not at the subscriber.
    fn stuck(&self) -> Vec<String> {
        let stand = |stream: usize| {
            let (origin, stored) = (&self.streams[stream], &self.stored[stream]);
            format!(
                "stream {stream}: {:?} of {} in {:?}, lost {:?}, rollbacks {:?}",
                self.newest(stream),
                origin.last(),
                origin.epochs,
                stored.lost,
                stored.rollbacks
            )
        };
        (0..self.streams.len()).map(stand).collect()
    }

    fn is_complete(&self) -> bool {
        let complete = |stream: usize| {
            let origin = &self.streams[stream];
            let lost = &self.stored[stream].lost;
            let last = Position {
                epoch: origin.epoch_of(origin.last()),
                sequence: origin.last(),
            };
            // In the current lineage, that is: a rollback assigned these numbers again.
            let lost = lost.iter().any(|(epoch, from, next)| {
                *next == origin.next && origin.epoch_of(*from) == *epoch
            });
            // The origin has lost the elements that only the subscriber has; a rollback was
            // reported.
            let is_reported = self.stored[stream].rollbacks.last().is_some_and(|one| {
                one.2.sequence == origin.next
                    && origin
                        .epochs
                        .last()
                        .is_some_and(|(_, first)| *first == origin.next)
            });
            let all = self.newest(stream) == Some(last) || is_reported;
            // A subscriber that arrives after everything was trimmed gets new elements.
            let none = origin.records.is_empty() && self.newest(stream).is_none();
            none || all || lost
        };
        (0..self.streams.len()).all(complete)
            && !self
                .happenings
                .values()
                .any(|one| matches!(one, Happening::Stored(..)))
    }

    /// Every element of the origin is at the subscriber once, unchanged and in order, or was
    /// reported.
    pub(crate) fn judge(&self) {
        for (stream, origin) in self.streams.iter().enumerate() {
            let stored = &self.stored[stream];
            let seed = self.seed;
            let mut seen = BTreeSet::new();
            let mut last: Option<Position> = None;
            for (position, _) in &stored.elements {
                assert!(
                    seen.insert(*position),
                    "seed {seed}: {position} is stored twice"
                );
                if let Some(last) = last.filter(|last| last.epoch == position.epoch) {
                    assert!(last < *position, "seed {seed}: {position} after {last}");
                }
                last = Some(*position);
            }
            for position in &stored.dead_letters {
                assert!(
                    seen.insert(*position),
                    "seed {seed}: {position} is stored and refused"
                );
            }
            let content: BTreeMap<_, _> = stored
                .elements
                .iter()
                .map(|(at, bytes)| (*at, bytes))
                .collect();
            for (number, (epoch, payload)) in &origin.records {
                let position = Position {
                    epoch: *epoch,
                    sequence: *number,
                };
                let lost = stored
                    .lost
                    .iter()
                    .any(|(_, from, next)| (*from..*next).contains(number));
                match content.get(&position) {
                    Some(bytes) => assert_eq!(*bytes, payload, "seed {seed}: {position} changed"),
                    None => assert!(
                        lost || stored.dead_letters.contains(&position),
                        "seed {seed}: stream {stream}: {position} is missing of {}; lost {:?}, rollbacks {:?}",
                        origin.last(),
                        stored.lost,
                        stored.rollbacks
                    ),
                }
            }
        }
    }
}

/// The first run of consecutive numbers, as in the answer to a repair.
fn answer(elements: Vec<(u64, Vec<u8>)>) -> (u64, Records) {
    let first = elements.first().map_or(0, |(number, _)| *number);
    let run = (first..).zip(elements);
    let run = run.take_while(|(expected, (number, _))| expected == number);
    (first, run.map(|(_, (_, payload))| (0, payload)).collect())
}

fn positions(epoch: u64, first: u64, records: &Records) -> Vec<(Position, Vec<u8>)> {
    let numbered = (first..).zip(records);
    let positions = numbered.map(|(sequence, record)| {
        let position = Position { epoch, sequence };
        (position, record.payload.to_vec())
    });
    positions.collect()
}

/// Adds the counters of both ends that tests check.
fn add(totals: &mut Counters, sender: Counters, receiver: Counters) {
    totals.stalls += sender.stalls;
    totals.rollbacks += receiver.rollbacks;
    totals.lost += receiver.lost;
    totals.elements += receiver.elements;
}

impl World {
    /// The counters of all sessions so far.
    pub(crate) fn counted(&self) -> Counters {
        let mut totals = self.totals;
        add(
            &mut totals,
            self.sender.counters(),
            self.receiver.counters(),
        );
        totals
    }
}
