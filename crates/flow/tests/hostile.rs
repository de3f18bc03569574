//! Goal: whatever a peer does against the protocol ends in a failure that says whose fault it is,
//! with a code, and is told to the peer; honest mishaps do not.
//!
//! Method: one machine against frames written by hand; and the fuzz target's programs at random.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/flow.rs"]
mod check;

use std::time::Duration;

use bytes::Bytes;
use chappe_flow::message::{
    Entry, FrameWriter, Hello, Message, Place, Rolled, SchemaText, Stage, Welcome, decode, seal,
};
use chappe_flow::{
    ANSWER_BYTES_MAX, Channel, Code, Credit, DAMAGED_FRAMES_MAX, Failure, Fault, Grant, Level,
    Offer, Position, Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent, ReceiverReceive,
    Records, RefusalReason, Schema, SchemaId, Sender, SenderCommand, SenderConfig, SenderEvent,
    SenderReceive, SessionConfig, SessionEvent, Start, Subscription,
};
use chappe_machine::{Input, Instant, Invariant, Machine, Output, drain};
use proptest::collection::vec;
use proptest::prelude::*;

const CHANNEL: Channel = Channel(3);

fn frame(messages: &[Message<'_>]) -> Bytes {
    let mut writer = FrameWriter::default();
    messages.iter().for_each(|message| writer.push(message));
    writer.finish().expect("there are messages")
}

fn records(count: usize) -> Records {
    (0..count).map(|_| (0, [5; 50])).collect()
}

/// An origin whose subscriber is written by hand.
struct Origin {
    machine: Sender,
    now: Instant,
    events: Vec<SenderEvent>,
    frames: Vec<Bytes>,
}

impl Origin {
    fn new() -> Self {
        Self::with(SenderConfig::default())
    }

    fn with(config: SenderConfig) -> Self {
        Self {
            machine: Sender::new(config, 1),
            now: Instant::ZERO,
            events: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<SenderReceive, SenderCommand>) {
        drain(&mut self.machine, self.now, input, |output| match output {
            Output::Transmit(frame) => self.frames.push(frame),
            Output::Event(event) => self.events.push(event),
        });
        self.machine.check().expect("an invariant");
    }

    fn frame(&mut self, frame: Bytes) {
        self.input(Input::Receive(SenderReceive::Frame(frame)));
    }

    /// One channel, on which elements 1 to 10 were sent.
    fn open() -> Self {
        let mut origin = Self::new();
        origin.frame(frame(&[Message::Hello(hello())]));
        origin.frame(frame(&[subscribe(CHANNEL)]));
        let offer = Offer::Accept(Grant {
            epoch: 9,
            next: 1,
            last: 0,
            level: Level::Power,
            schema: Schema {
                version: 1,
                ..Schema::default()
            },
        });
        let channel = CHANNEL;
        origin.input(Input::Command(SenderCommand::Answer { channel, offer }));
        origin.input(Input::Command(SenderCommand::Live {
            channel,
            epoch: 9,
            first: 1,
            schema_version: 1,
            records: records(10),
        }));
        assert_eq!(origin.machine.counters().elements, 10);
        origin
    }

    fn acknowledge(&mut self, serial: u64, entry: Entry) {
        let mut writer = FrameWriter::default();
        writer.push_acknowledge(serial, 0, &[entry], usize::MAX);
        self.frame(writer.finish().expect("it was pushed"));
    }

    /// Answers the first probe after this time, so that it is the measured round trip.
    fn measure_round_trip(&mut self, round_trip: Duration) {
        let probe = loop {
            self.now = self.machine.deadline().expect("a probe becomes due");
            self.input(Input::Timeout);
            let messages = decode(self.frames.last().expect("a frame")).expect("a sound frame");
            let token = messages.flatten().find_map(|message| match message {
                Message::Probe { token, .. } => Some(token),
                _ => None,
            });
            if let Some(token) = token {
                break token;
            }
        };
        self.now += round_trip;
        let mut writer = FrameWriter::default();
        writer.push_acknowledge(1, probe, &[entry(0)], usize::MAX);
        self.frame(writer.finish().expect("it was pushed"));
        assert_eq!(self.machine.round_trip(), Some(round_trip));
    }

    fn failure(&self) -> Option<&Failure> {
        self.events.iter().find_map(|event| match event {
            SenderEvent::Session(SessionEvent::Failed(failure)) => Some(failure),
            _ => None,
        })
    }

    /// It has failed by the peer's fault with this code, the peer was told, and nothing works now.
    fn assert_blamed(&mut self, code: Code) {
        let failure = self.failure().expect("a failure").clone();
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Peer, code),
            "{failure}"
        );
        assert_eq!(goodbye(&self.frames), Some(code));
        let (frames, events) = (self.frames.len(), self.events.len());
        self.frame(frame(&[Message::Ping { token: 1 }]));
        assert_eq!((self.frames.len(), self.events.len()), (frames, events));
        assert_eq!(self.machine.deadline(), None);
    }
}

/// What the last frame says at last.
fn goodbye(frames: &[Bytes]) -> Option<Code> {
    match decode(frames.last()?).ok()?.last()?.ok()? {
        Message::Goodbye { code, .. } => Some(code),
        _ => None,
    }
}

fn hello() -> Hello {
    Hello {
        versions: (1, 1),
        session: 4,
        frame_bytes_max: 100_000,
        window_bytes: 100_000,
        acknowledge_ms: 10,
        dead_after_ms: 20_000,
    }
}

fn subscribe(channel: Channel) -> Message<'static> {
    Message::Subscribe {
        channel,
        start: Start::First,
        earlier: Vec::new(),
        level: Level::Power,
        credit: Credit {
            bytes: 10_000,
            elements: 100,
        },
        serialization: "postcard",
        stream: "plant/temperature",
        known: None,
    }
}

/// What a subscriber says that has stored the first `stored`.
fn entry(stored: u64) -> Entry {
    Entry {
        channel: CHANNEL.0,
        stage: 0,
        stored,
        received: stored,
        elements: stored,
        bytes: stored * 59,
        elements_limit: 100 + stored,
        bytes_limit: 10_000 + stored * 59,
        refused: 0,
        schemas: 1,
    }
}

#[test]
fn an_honest_acknowledgement_is_taken() {
    let mut origin = Origin::open();
    origin.acknowledge(1, entry(7));
    origin.acknowledge(2, entry(10));
    assert_eq!(origin.failure(), None);
    let position = Position {
        epoch: 9,
        sequence: 10,
    };
    let last = SenderEvent::Acknowledged {
        channel: CHANNEL,
        position,
        refused: 0,
    };
    assert_eq!(origin.events.last(), Some(&last));
    assert_eq!(origin.machine.in_flight().bytes, 0);
}

#[test]
fn a_frame_of_repeated_subscriptions_is_answered_up_to_a_limit() {
    const SCHEMA_BYTES: usize = 50_000;
    let mut origin = Origin::new();
    origin.frame(frame(&[Message::Hello(hello())]));
    origin.frame(frame(&[subscribe(CHANNEL)]));
    let schema = Schema {
        version: 1,
        bytes: vec![b' '; SCHEMA_BYTES].into(),
        ..Schema::default()
    };
    let offer = Offer::Accept(Grant {
        epoch: 9,
        next: 1,
        last: 0,
        level: Level::Power,
        schema,
    });
    let channel = CHANNEL;
    origin.input(Input::Command(SenderCommand::Answer { channel, offer }));
    let mut answered = |messages: &[Message<'_>]| {
        let before = origin.machine.counters().bytes_sent;
        origin.frame(frame(messages));
        assert_eq!(origin.failure(), None);
        usize::try_from(origin.machine.counters().bytes_sent - before).unwrap()
    };
    let repeated = vec![subscribe(CHANNEL); 1_000];
    let bytes = answered(&repeated);
    let most = usize::try_from(ANSWER_BYTES_MAX).unwrap() + 2 * SCHEMA_BYTES;
    assert!(
        bytes <= most && bytes >= most / 2,
        "{bytes} bytes answer one frame"
    );
    // One that did not hear the answer gets it.
    assert!(answered(&repeated[..1]) >= SCHEMA_BYTES);
}

#[test]
fn an_acknowledgement_that_was_overtaken_is_nobodys_fault() {
    let mut origin = Origin::open();
    origin.acknowledge(2, entry(7));
    origin.acknowledge(1, entry(3));
    origin.acknowledge(2, entry(7));
    assert_eq!(origin.failure(), None);
    assert_eq!(origin.machine.counters().stale, 2);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_refused() {
    let wrong = [
        entry(11),
        Entry {
            received: 11,
            ..entry(5)
        },
        Entry {
            elements: 11,
            ..entry(10)
        },
        Entry {
            bytes: 591,
            ..entry(10)
        },
        Entry {
            stage: 1,
            ..entry(0)
        },
        Entry {
            schemas: 2,
            ..entry(1)
        },
        Entry {
            received: u64::MAX,
            ..entry(1)
        },
    ];
    for entry in wrong {
        let mut origin = Origin::open();
        origin.acknowledge(1, entry);
        origin.assert_blamed(Code::AcknowledgedUnsent);
    }
}

#[test]
fn credit_and_acknowledgements_never_go_back() {
    let wrong = [
        Entry {
            bytes_limit: 10_000,
            ..entry(8)
        },
        Entry {
            elements_limit: 100,
            ..entry(8)
        },
        Entry {
            stored: 3,
            received: 8,
            ..entry(8)
        },
        Entry {
            elements: 3,
            ..entry(8)
        },
    ];
    for later in wrong {
        let mut origin = Origin::open();
        origin.acknowledge(1, entry(7));
        origin.acknowledge(2, later);
        origin.assert_blamed(Code::WentBack);
    }
}

#[test]
fn channels_that_never_were_are_refused() {
    let mut origin = Origin::open();
    origin.acknowledge(
        1,
        Entry {
            channel: 77,
            ..entry(0)
        },
    );
    origin.assert_blamed(Code::UnknownChannel);
    let mut origin = Origin::open();
    origin.frame(frame(&[Message::Missing {
        channel: Channel(8),
        stage: 0,
        from: 1,
        next: 2,
    }]));
    origin.assert_blamed(Code::UnknownChannel);
}

#[test]
fn a_channel_that_was_left_is_not_an_error() {
    let mut origin = Origin::open();
    let left = Message::Unsubscribe {
        channel: CHANNEL,
        reason: RefusalReason::Ended,
        text: "",
    };
    origin.frame(frame(std::slice::from_ref(&left)));
    origin.frame(frame(&[left]));
    origin.acknowledge(1, entry(3));
    origin.frame(frame(&[subscribe(CHANNEL)]));
    assert_eq!(origin.failure(), None);
    assert_eq!(
        origin.machine.channels().count(),
        0,
        "a late Subscribe does not revive it"
    );
}

#[test]
fn missing_what_was_never_sent_is_refused() {
    let mut origin = Origin::open();
    origin.frame(frame(&[Message::Missing {
        channel: CHANNEL,
        stage: 0,
        from: 5,
        next: 12,
    }]));
    origin.assert_blamed(Code::AcknowledgedUnsent);
}

#[test]
fn asking_for_the_same_is_answered_once_a_round_trip() {
    const ROUND_TRIP: Duration = Duration::from_millis(20);
    let mut origin = Origin::open();
    origin.measure_round_trip(ROUND_TRIP);
    let ask = |origin: &mut Origin| {
        for _ in 0..1_000 {
            origin.frame(frame(&[Message::Missing {
                channel: CHANNEL,
                stage: 0,
                from: 1,
                next: 11,
            }]));
        }
        let is_read = |event: &SenderEvent| matches!(event, SenderEvent::Read { .. });
        let events = std::mem::take(&mut origin.events);
        events.into_iter().filter(is_read).count()
    };
    assert_eq!(
        ask(&mut origin),
        1,
        "the caller is asked once until it answers"
    );
    origin.input(Input::Command(SenderCommand::Records {
        channel: CHANNEL,
        epoch: 9,
        first: 1,
        schema_version: 1,
        records: records(10),
    }));
    assert_eq!(origin.machine.counters().sent_again, 10);
    origin.now += ROUND_TRIP - Duration::from_nanos(1);
    assert_eq!(ask(&mut origin), 0, "within a round trip");
    origin.now += Duration::from_nanos(1);
    assert_eq!(ask(&mut origin), 1, "after a round trip");
    assert_eq!(origin.machine.counters().sent_again, 10);
}

#[test]
fn another_version_is_refused_by_name() {
    let mut origin = Origin::new();
    origin.frame(frame(&[Message::Hello(Hello {
        versions: (3, 5),
        ..hello()
    })]));
    let failure = origin.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Version)
    );
    assert!(failure.text.contains("versions 1 to 1"), "{failure}");
    assert!(failure.text.contains("the peer 3 to 5"), "{failure}");
    assert!(failure.hint().is_some());
    // The subscriber says the same when it hears the goodbye.
    let mut subscriber = Subscriber::new();
    subscriber.frame(origin.frames[0].clone());
    let failure = subscriber.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Version)
    );
    assert!(failure.text.contains("the peer 1 to 1"), "{failure}");
}

#[test]
fn the_newest_common_version_is_agreed() {
    let mut origin = Origin::new();
    origin.frame(frame(&[Message::Hello(Hello {
        versions: (1, 9),
        ..hello()
    })]));
    assert_eq!(origin.machine.version(), Some(1));
}

#[test]
fn nothing_comes_before_hello_and_no_second_session_after() {
    let mut origin = Origin::new();
    origin.frame(frame(&[subscribe(CHANNEL)]));
    origin.assert_blamed(Code::Unexpected);
    let mut origin = Origin::open();
    origin.frame(frame(&[Message::Hello(hello())]));
    assert_eq!(origin.failure(), None, "Hello again: its answer was lost");
    origin.frame(frame(&[Message::Hello(Hello {
        session: 5,
        ..hello()
    })]));
    origin.assert_blamed(Code::Contradiction);
}

#[test]
fn what_only_an_origin_says_is_not_taken_from_a_subscriber() {
    let mut origin = Origin::open();
    origin.frame(frame(&[Message::Ended { channel: CHANNEL }]));
    origin.assert_blamed(Code::Unexpected);
}

#[test]
fn frames_beyond_the_limit_and_malformed_ones_are_refused() {
    let mut origin = Origin::open();
    origin.frame(Bytes::from(vec![
        0;
        SessionConfig::default().frame_bytes_max
            + 1
    ]));
    origin.assert_blamed(Code::TooLarge);
    let mut origin = Origin::open();
    origin.frame(seal(&[99, 1, 1]));
    origin.assert_blamed(Code::Malformed);
}

#[test]
fn damaged_frames_are_as_good_as_lost_until_they_are_too_many() {
    let mut origin = Origin::open();
    for _ in 0..DAMAGED_FRAMES_MAX {
        origin.frame(Bytes::from_static(b"GET / HTTP/1.1\r\n"));
    }
    origin.frame(frame(&[Message::Ping { token: 1 }]));
    for _ in 0..DAMAGED_FRAMES_MAX {
        origin.frame(Bytes::from_static(b"no frame"));
    }
    assert_eq!(origin.failure(), None);
    origin.frame(Bytes::new());
    let failure = origin.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Damaged)
    );
}

#[test]
fn too_many_channels_are_refused_one_by_one_then_altogether() {
    let mut origin = Origin::with(SenderConfig {
        channels_max: 4,
        ..SenderConfig::default()
    });
    origin.frame(frame(&[Message::Hello(hello())]));
    for number in 0..8 {
        origin.frame(frame(&[subscribe(Channel(number))]));
    }
    assert_eq!(origin.failure(), None);
    let asked = origin.events.iter();
    let asked = asked.filter(|event| matches!(event, SenderEvent::Subscribe { .. }));
    assert_eq!(asked.count(), 4);
    origin.frame(frame(&[subscribe(Channel(8))]));
    origin.assert_blamed(Code::TooManyChannels);
}

/// A subscriber whose origin is written by hand.
struct Subscriber {
    machine: Receiver,
    now: Instant,
    events: Vec<ReceiverEvent>,
    frames: Vec<Bytes>,
}

impl Subscriber {
    fn new() -> Self {
        let config = ReceiverConfig {
            window_bytes: 50_000,
            credit: Credit {
                bytes: 10_000,
                elements: 100,
            },
            ..ReceiverConfig::default()
        };
        let mut subscriber = Self {
            machine: Receiver::new(config, 1),
            now: Instant::ZERO,
            events: Vec::new(),
            frames: Vec::new(),
        };
        subscriber.input(Input::Command(ReceiverCommand::Subscribe {
            channel: CHANNEL,
            subscription: Subscription::new("plant/temperature", Start::First),
        }));
        subscriber
    }

    fn input(&mut self, input: Input<ReceiverReceive, ReceiverCommand>) {
        drain(&mut self.machine, self.now, input, |output| match output {
            Output::Transmit(frame) => self.frames.push(frame),
            Output::Event(event) => self.events.push(event),
        });
        self.machine.check().expect("an invariant");
    }

    fn frame(&mut self, frame: Bytes) {
        self.input(Input::Receive(ReceiverReceive::Frame(frame)));
    }

    fn welcomed() -> Self {
        let mut subscriber = Self::new();
        let first = subscriber.frames[0].clone();
        let Some(Ok(Message::Hello(hello))) = decode(&first).expect("sound").next() else {
            panic!("no Hello");
        };
        subscriber.frame(frame(&[Message::Welcome(Welcome {
            version: 1,
            session: hello.session,
            frame_bytes_max: 100_000,
            dead_after_ms: 20_000,
        })]));
        subscriber
    }

    /// One channel, in epoch 9, from number 1 on.
    fn open() -> Self {
        let mut subscriber = Self::welcomed();
        subscriber.frame(frame(&[accepted(CHANNEL)]));
        subscriber
    }

    fn failure(&self) -> Option<&Failure> {
        self.events.iter().find_map(|event| match event {
            ReceiverEvent::Session(SessionEvent::Failed(failure)) => Some(failure),
            _ => None,
        })
    }

    fn assert_blamed(&self, code: Code) {
        let failure = self.failure().expect("a failure");
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Peer, code),
            "{failure}"
        );
        assert_eq!(goodbye(&self.frames), Some(code));
    }

    fn stored(&self) -> Vec<(u64, usize)> {
        let stored = self.events.iter().filter_map(|event| match event {
            ReceiverEvent::Store { first, records, .. } => Some((*first, records.len())),
            _ => None,
        });
        stored.collect()
    }
}

fn accepted(channel: Channel) -> Message<'static> {
    Message::Accepted {
        channel,
        rollback: Rolled::No,
        epoch: 9,
        next: 1,
        last: 0,
        level: Level::Power,
        schema: SchemaText {
            version: 1,
            id: SchemaId::default(),
            bytes: Some(b"schema"),
        },
    }
}

fn elements(first: u64, count: usize) -> Message<'static> {
    Message::Records {
        place: place(0, 0, 9),
        first,
        schema: 0,
        behind: 0,
        records: records(count),
    }
}

fn place(number: u32, first: u64, epoch: u64) -> Place {
    Place {
        channel: CHANNEL,
        stage: Stage {
            number,
            first,
            kept: 0,
        },
        epoch,
    }
}

#[test]
fn numbers_that_repeat_are_dropped_and_counted() {
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[elements(1, 5)]));
    subscriber.frame(frame(&[elements(1, 5)]));
    subscriber.frame(frame(&[elements(3, 5)]));
    subscriber.frame(frame(&[elements(10, 2)]));
    subscriber.frame(frame(&[elements(10, 2)]));
    subscriber.frame(frame(&[elements(8, 3)]));
    assert_eq!(subscriber.stored(), [(1, 5), (6, 2), (8, 3), (11, 1)]);
    assert_eq!(subscriber.machine.counters().duplicates, 5 + 3 + 2 + 1);
    assert_eq!(subscriber.failure(), None);
}

#[test]
fn more_than_the_credit_is_refused() {
    let mut subscriber = Subscriber::open();
    for round in 0..10 {
        subscriber.frame(frame(&[elements(1 + round * 10, 10)]));
    }
    assert_eq!(subscriber.failure(), None);
    subscriber.frame(frame(&[elements(101, 1)]));
    subscriber.assert_blamed(Code::CreditExceeded);
}

#[test]
fn what_comes_before_its_turn_is_held_within_the_credit() {
    let mut subscriber = Subscriber::open();
    for round in 1..1_000 {
        subscriber.frame(frame(&[elements(1 + round * 10, 10)]));
    }
    assert_eq!(subscriber.failure(), None);
    assert!(subscriber.machine.held_bytes() <= 10_000);
    assert!(subscriber.machine.counters().dropped_ahead > 9_000);
}

#[test]
fn epochs_and_stages_do_not_contradict_each_other() {
    let records = |place, first| Message::Records {
        place,
        first,
        schema: 0,
        behind: 0,
        records: records(1),
    };
    let wrong = [
        records(place(0, 0, 10), 6),
        records(place(2, 6, 10), 6),
        records(place(1, 7, 10), 6),
        // Back to number 3, in the same epoch.
        records(place(1, 3, 9), 3),
    ];
    for message in wrong {
        let mut subscriber = Subscriber::open();
        subscriber.frame(frame(&[elements(1, 5)]));
        subscriber.frame(frame(&[message]));
        subscriber.assert_blamed(Code::Contradiction);
    }
    // In a new epoch it may go back, loudly.
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[elements(1, 5)]));
    subscriber.frame(frame(&[records(place(1, 3, 10), 3)]));
    assert_eq!(subscriber.failure(), None);
    let told = subscriber.events.iter();
    let told = told.filter(|event| matches!(event, ReceiverEvent::Rollback { .. }));
    assert_eq!(told.count(), 1);
    assert_eq!(subscriber.stored(), [(1, 5), (3, 1)]);
    // And an epoch whose elements are still being stored does not come back.
    subscriber.frame(frame(&[records(place(2, 4, 9), 4)]));
    subscriber.assert_blamed(Code::Contradiction);
}

#[test]
fn an_origin_that_says_what_only_a_subscriber_says_is_refused() {
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[subscribe(CHANNEL)]));
    subscriber.assert_blamed(Code::Unexpected);
    let mut subscriber = Subscriber::new();
    subscriber.frame(frame(&[elements(1, 1)]));
    subscriber.assert_blamed(Code::Unexpected);
    let mut subscriber = Subscriber::welcomed();
    subscriber.frame(frame(&[accepted(Channel(9))]));
    subscriber.assert_blamed(Code::UnknownChannel);
}

#[test]
fn elements_that_overtake_their_grant_or_schema_are_nobodys_fault() {
    let mut subscriber = Subscriber::welcomed();
    subscriber.frame(frame(&[elements(1, 5)]));
    subscriber.frame(frame(&[accepted(CHANNEL)]));
    subscriber.frame(frame(&[Message::Records {
        place: place(0, 0, 9),
        first: 1,
        schema: 1,
        behind: 0,
        records: records(1),
    }]));
    assert_eq!(subscriber.failure(), None);
    assert_eq!(subscriber.stored(), []);
}

#[test]
fn a_schema_that_was_not_sent_must_be_known() {
    let mut subscriber = Subscriber::welcomed();
    let mut message = accepted(CHANNEL);
    if let Message::Accepted { schema, .. } = &mut message {
        schema.bytes = None;
    }
    subscriber.frame(frame(&[message]));
    subscriber.assert_blamed(Code::Contradiction);
}

#[test]
fn a_caller_that_stores_what_it_was_not_given_is_named() {
    let mut subscriber = Subscriber::open();
    let position = Position {
        epoch: 9,
        sequence: 1,
    };
    let channel = CHANNEL;
    subscriber.input(Input::Command(ReceiverCommand::Stored {
        channel,
        position,
    }));
    let failure = subscriber.failure().expect("a failure");
    assert_eq!((failure.fault, failure.code), (Fault::Caller, Code::Misuse));
}

#[test]
fn a_silent_peer_is_given_up() {
    let mut origin = Origin::open();
    while let Some(at) = origin.machine.deadline() {
        assert!(at <= Instant::ZERO + Duration::from_secs(20), "{at:?}");
        origin.now = at;
        origin.input(Input::Timeout);
    }
    assert_eq!(origin.now, Instant::ZERO + Duration::from_secs(20));
    let failure = origin.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Silent)
    );
    assert!(
        origin.frames.len() < 40,
        "{} frames to nobody",
        origin.frames.len()
    );
}

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let mut origin = Origin::new();
    origin.input(Input::Timeout);
    let mut subscriber = Subscriber::new();
    for _ in 0..20 {
        if let Some(at) = origin.machine.deadline() {
            origin.now = at;
            origin.input(Input::Timeout);
        }
        if let Some(at) = subscriber.machine.deadline() {
            subscriber.now = at;
            subscriber.input(Input::Timeout);
        }
    }
    assert_eq!(
        origin.failure().map(|failure| failure.code),
        Some(Code::Handshake)
    );
    assert_eq!(
        subscriber.failure().map(|failure| failure.code),
        Some(Code::Handshake)
    );
    assert_eq!(subscriber.now, Instant::ZERO + Duration::from_secs(10));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_peer_breaks_an_invariant(bytes in vec(any::<u8>(), 0..2_000)) {
        check::check(&bytes);
    }
}
